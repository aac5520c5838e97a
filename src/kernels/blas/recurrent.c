/* A recurrent layer, forward: each step one product over the segments that still have a row, and its gates while they are in the cache. */
#include "recurrent.h"
#include <string.h>

attn_status BLAS(recurrent_floats)(attn_context *ctx, int64_t rows, int64_t width, float **out)
{
    int64_t bytes;
    *out = NULL;
    if (attn__multiply(rows, width, &bytes) || attn__multiply(bytes, (int64_t)sizeof(float), &bytes))
        return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "recurrent layer");
    *out = attn__scratch(ctx, bytes);
    return *out != NULL ? ATTN_OK : attn__arena_status(ctx->scratch);
}

static int64_t longest_of(attn__segments segments)
{
    int64_t longest = 0;
    for (int64_t s = 0; s < segments.count; s++)
        if (segments.at[s].length > longest) longest = segments.at[s].length;
    return longest;
}

/* by counting: segments of one length keep their order */
attn_status BLAS(recurrent_prepare)(attn_context *ctx, const attn__recurrent_arguments *a, recurrent_job *job)
{
    recurrent_order *order = &job->order;
    int64_t steps = longest_of(a->segments), bytes, numbers;
    *job = (recurrent_job){.a = a, .width = a->output.width, .wide = attn__recurrent_gates(a->kind) * a->output.width};
    if (attn__multiply(steps + 1, 2, &numbers) || attn__sum(numbers, a->segments.count, &numbers) ||
        attn__multiply(numbers, (int64_t)sizeof(int64_t), &bytes))
        return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "recurrent layer");
    int64_t *memory = attn__scratch(ctx, bytes);
    if (memory == NULL) return attn__arena_status(ctx->scratch);
    *order = (recurrent_order){steps, memory, memory + steps + 1, memory + 2 * (steps + 1)};
    memset(order->active, 0, (size_t)(steps + 1) * sizeof(int64_t));
    for (int64_t s = 0; s < a->segments.count; s++) order->active[a->segments.at[s].length]++;
    /* how many are as long, then how many are longer */
    for (int64_t t = steps, longer = 0; t >= 0; t--) {
        int64_t equal = order->active[t];
        order->active[t] = order->first[t] = longer;
        longer += equal;
    }
    for (int64_t s = 0; s < a->segments.count; s++) order->segment[order->first[a->segments.at[s].length]++] = s;
    order->first[0] = 0;
    for (int64_t t = 0; t < steps; t++) order->first[t + 1] = order->first[t] + order->active[t];
    return ATTN_OK;
}

attn_status BLAS(recurrent_gather)(attn_context *ctx, const recurrent_job *job, const view *state, float **out)
{
    int64_t most = job->order.active[0];
    size_t bytes = (size_t)job->width * sizeof(float);
    attn_status status = BLAS(recurrent_floats)(ctx, most, job->width, out);
    for (int64_t rank = 0; status == ATTN_OK && rank < most && bytes > 0; rank++) {
        float *to = *out + rank * job->width;
        if (state->data != NULL)
            memcpy(to, row_of(state, job->order.segment[rank]), bytes);
        else
            memset(to, 0, bytes);
    }
    return status;
}

/* u: i, f, g, o, each `apart` from the one before; they become the gates */
static void lstm_values(float *u, int64_t apart, const float *before, int64_t n, float *now, float *h)
{
    float *ui = u, *uf = u + apart, *ug = u + 2 * apart, *uo = u + 3 * apart;
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
        float i = attn__sigmoid(ui[k]), f = attn__sigmoid(uf[k]), g = attn__tanh(ug[k]), o = attn__sigmoid(uo[k]);
        float c = f * before[k] + i * g;
        ui[k] = i, uf[k] = f, ug[k] = g, uo[k] = o;
        now[k] = c;
        h[k] = o * attn__tanh(c);
    }
}

static void finish_row(const recurrent_job *job, int64_t rank, int64_t column, int64_t n)
{
    const attn__recurrent_arguments *a = job->a;
    int64_t at = rank * job->width + column, segment = job->order.segment[rank];
    float *u = job->sums + rank * job->wide + column, *h = row_of(&a->output, recurrent_row(job, rank, job->step)) + column;
    size_t bytes = (size_t)n * sizeof(float);
    if (a->kind == ATTN_RECURRENT_LSTM)
        lstm_values(u, job->width, job->cell_before + at, n, job->cell + at, h);
    else
        BLAS(act_values)(ATTN_ACTIVATION_TANH, 1, u, n, h);
    memcpy(job->hidden[job->step % 2] + at, h, bytes);
    if (rank < job->order.active[job->step + 1]) return;
    if (a->final_hidden.data != NULL) memcpy(row_of(&a->final_hidden, segment) + column, h, bytes);
    if (a->final_cell.data != NULL) memcpy(row_of(&a->final_cell, segment) + column, job->cell + at, bytes);
}

/* some segments and columns of a step: x, + h W^T gate by gate, then what the gates make of it */
static void step_tile(void *context, int64_t tile, int32_t worker)
{
    recurrent_job *job = context;
    const attn__recurrent_arguments *a = job->a;
    cell c = grid_cell(&job->cut, tile);
    const float *before = job->hidden[(job->step + 1) % 2] + c.first * job->width;
    (void)worker;
    for (int64_t gate = c.column; gate < job->wide; gate += job->width) {
        for (int64_t rank = c.first; rank < c.end; rank++)
            memcpy(job->sums + rank * job->wide + gate, row_of(&a->x, recurrent_row(job, rank, job->step)) + gate,
                   (size_t)c.count * sizeof(float));
        if (job->step == 0 && a->hidden.data == NULL) continue;
        BLAS(product)
        (1, c.end - c.first, c.count, job->width, before, job->width, row_of(&a->weight, gate), a->weight.row_stride, 1,
         job->sums + c.first * job->wide + gate, job->wide, &job->refused);
    }
    for (int64_t rank = c.first; rank < c.end; rank++) finish_row(job, rank, c.column, c.count);
}

/* segments without rows end in what they began with */
static void finish_empty(const recurrent_job *job, const view *start, const view *end)
{
    size_t bytes = (size_t)job->width * sizeof(float);
    for (int64_t rank = job->order.active[0]; end->data != NULL && bytes > 0 && rank < job->a->segments.count; rank++) {
        int64_t segment = job->order.segment[rank];
        if (start->data != NULL)
            memcpy(row_of(end, segment), row_of(start, segment), bytes);
        else
            memset(row_of(end, segment), 0, bytes);
    }
}

static attn_status run_steps(attn_context *ctx, recurrent_job *job)
{
    const attn__recurrent_arguments *a = job->a;
    attn_status status = ATTN_OK;
    int64_t most = job->order.active[0], gates = attn__recurrent_gates(a->kind);
    float *start = NULL, *sums = NULL;
    if (a->gates == NULL) status = BLAS(recurrent_floats)(ctx, most, job->wide, &sums);
    if (status == ATTN_OK) status = BLAS(recurrent_floats)(ctx, most, job->width, &job->hidden[0]);
    if (status == ATTN_OK) status = BLAS(recurrent_gather)(ctx, job, &a->hidden, &job->hidden[1]);
    if (status == ATTN_OK && a->kind == ATTN_RECURRENT_LSTM) status = BLAS(recurrent_gather)(ctx, job, &a->cell, &start);
    job->cell = start;
    for (job->step = 0; status == ATTN_OK && job->step < job->order.steps; job->step++) {
        int64_t active = job->order.active[job->step], first = job->order.first[job->step];
        job->sums = a->gates != NULL ? (float *)a->gates + first * job->wide : sums;
        job->cell_before = job->cell;
        if (a->cells != NULL) job->cell = (float *)a->cells + first * job->width;
        job->cut = BLAS(product_grid)(active, job->width, gates * job->width);
        status = attn__run(ctx, job->cut.tiles, step_tile, job);
    }
    return status;
}

attn_status BLAS(recurrent)(attn_context *ctx, const attn__recurrent_arguments *a)
{
    attn__mark mark = attn__arena_mark(ctx->scratch);
    recurrent_job job;
    attn_status status = BLAS(recurrent_prepare)(ctx, a, &job);
    if (status == ATTN_OK) status = run_steps(ctx, &job);
    if (status == ATTN_OK) {
        finish_empty(&job, &a->hidden, &a->final_hidden);
        finish_empty(&job, &a->cell, &a->final_cell);
        status = BLAS(product_status)(ctx, status, &job.refused);
    }
    attn__arena_rewind(ctx->scratch, mark);
    return status;
}
