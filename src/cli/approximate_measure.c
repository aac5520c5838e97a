#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "approximate.h"
#include "interrupt.h"
#include "terminal.h"

enum { SHORTEST = 64, LONGEST = 65536, LENGTHS = 11, MOST_ROUNDS = 15, LEAST_ROUNDS = 3 };
#define ROUNDS_SECONDS 0.1 /* short measurements are repeated until they have taken this */

/* forward and backward of the weighted sum of the output */
static attn_status step(attn_context *ctx, attn_tape *tape, const form *f, const operands *o)
{
    const attn_tensor *output = o->output, *output_gradient = o->output_gradient;
    attn_status status = attn_tape_begin(ctx, tape, NULL);
    for (int i = 0; status == ATTN_OK && i < 3; i++) status = attn_tape_watch(ctx, tape, o->in[i], o->gradient[i]);
    if (status == ATTN_OK) status = form_attend(ctx, tape, f, o);
    if (status == ATTN_OK) status = attn_tape_backward(ctx, tape, 1, &output, &output_gradient, 0, NULL);
    return status == ATTN_OK && interrupted() ? ATTN_ERROR_CANCELLED : status;
}

static attn_status forward(attn_context *ctx, const form *f, const operands *o)
{
    attn_status status = form_attend(ctx, NULL, f, o);
    return status == ATTN_OK && interrupted() ? ATTN_ERROR_CANCELLED : status;
}

/* differences of rows [rows, heads size], added to the variant's errors */
static void compare(variant *v, const float *exact, const float *got, int64_t rows, int64_t width)
{
    double all = 0, differences = 0, worst = 0;
    for (int64_t i = 0; i < rows; i++) {
        double row = 0;
        for (int64_t j = i * width; j < (i + 1) * width; j++) {
            double difference = (double)got[j] - (double)exact[j];
            row += difference * difference;
            all += (double)exact[j] * (double)exact[j];
        }
        differences += row;
        worst = fmax(worst, row);
    }
    v->error += sqrt(differences / all);
    v->worst_row += sqrt(worst / (all / (double)rows));
}

attn_status measure_errors(attn_context *ctx, variants *v, const operands *o)
{
    const int64_t rows = attn_tensor_extent(o->output, 0), keys = attn_tensor_extent(o->in[1], 0);
    const int64_t width = attn_tensor_extent(o->output, 1) * attn_tensor_extent(o->output, 2);
    float *exact = malloc((size_t)(rows * width) * sizeof *exact);
    attn_status status = exact == NULL ? ATTN_ERROR_OUT_OF_MEMORY : ATTN_OK;
    for (int i = 0; status == ATTN_OK && i < v->count; i++) {
        const int draws = v->at[i].kind == PERFORMER ? DRAWS : 1;
        for (int draw = 0; status == ATTN_OK && draw < draws; draw++) {
            form f;
            status = form_make(ctx, &v->at[i], v->causal, v->seed + (uint64_t)draw, keys, &f);
            if (status != ATTN_OK) break;
            status = forward(ctx, &f, o);
            form_free(&f);
            if (i == 0)
                memcpy(exact, attn_tensor_data_const(o->output), (size_t)(rows * width) * sizeof *exact);
            else
                compare(&v->at[i], exact, attn_tensor_data_const(o->output), rows, width);
        }
        v->at[i].error /= draws;
        v->at[i].worst_row /= draws;
    }
    free(exact);
    return status;
}

static int rising(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* seconds [2] of each variant at these operands: medians of rounds in which all take their turn. A variant of which nothing can be made at this
   length (a Linformer of more rows than keys) takes for ever. */
static attn_status take_turns(attn_context *ctx, attn_tape *tape, const variants *v, const operands *o, double (*seconds)[2])
{
    const int64_t keys = attn_tensor_extent(o->in[1], 0);
    double times[MOST_VARIANTS][2][MOST_ROUNDS], begin = seconds_now();
    form forms[MOST_VARIANTS] = {{.kind = EXACT}};
    attn_status status = ATTN_OK;
    int rounds = -1; /* the first one brings memory and caches to where they stay, and does not count */
    for (int i = 0; status == ATTN_OK && i < v->count; i++)
        if (v->at[i].kind != LINFORMER || v->at[i].size <= keys) status = form_make(ctx, &v->at[i], v->causal, v->seed, keys, &forms[i]);
    for (; status == ATTN_OK && rounds < MOST_ROUNDS && (rounds < LEAST_ROUNDS || seconds_now() - begin < ROUNDS_SECONDS * v->count);
         rounds++)
        for (int i = 0; status == ATTN_OK && i < v->count; i++) {
            if (v->at[i].kind == LINFORMER && forms[i].projection == NULL) continue;
            double start = seconds_now();
            status = forward(ctx, &forms[i], o);
            double middle = seconds_now();
            if (status == ATTN_OK) status = step(ctx, tape, &forms[i], o);
            if (rounds < 0) continue;
            times[i][0][rounds] = middle - start;
            times[i][1][rounds] = seconds_now() - middle;
        }
    for (int i = 0; i < v->count; i++) {
        int none = v->at[i].kind == LINFORMER && forms[i].projection == NULL;
        for (int which = 0; status == ATTN_OK && which < 2; which++) {
            if (!none) qsort(times[i][which], (size_t)rounds, sizeof(double), rising);
            seconds[i][which] = none ? INFINITY : times[i][which][rounds / 2];
        }
        form_free(&forms[i]);
    }
    return status;
}

attn_status measure_times(attn_context *ctx, variants *v, const operands *o)
{
    double seconds[MOST_VARIANTS][2];
    attn_tape *tape = NULL;
    attn_status status = attn_tape_create(ctx, &tape);
    if (status == ATTN_OK) status = take_turns(ctx, tape, v, o, seconds);
    for (int i = 0; status == ATTN_OK && i < v->count; i++) memcpy(v->at[i].seconds, seconds[i], sizeof seconds[i]);
    attn_tape_free(tape);
    return status;
}

/* The peak of a context of its own: that of another one has grown already by what ran before. */
static attn_status memory_of(attn_context *own, variant *v, const variants *all, const operands *o)
{
    attn_memory_report report = {.struct_size = sizeof report};
    form f;
    attn_tape *tape = NULL;
    attn_status status = form_make(own, v, all->causal, all->seed, attn_tensor_extent(o->in[1], 0), &f);
    if (status == ATTN_OK) status = attn_tape_create(own, &tape);
    if (status == ATTN_OK) status = attn_context_memory(own, &report);
    const int64_t held = report.live;
    for (int which = 0; status == ATTN_OK && which < 2; which++) {
        status = attn_context_reset_peak(own);
        if (status == ATTN_OK) status = which == 0 ? forward(own, &f, o) : step(own, tape, &f, o);
        if (status == ATTN_OK) status = attn_context_memory(own, &report);
        v->bytes[which] = report.peak - held;
    }
    attn_tape_free(tape);
    form_free(&f);
    return status;
}

attn_status measure_memory(attn_context *ctx, int32_t threads, variants *v, const operands *o)
{
    attn_context_options options;
    attn_status status = attn_context_options_init(&options, sizeof options);
    options.threads = threads;
    for (int i = 0; status == ATTN_OK && i < v->count; i++) {
        attn_context *own = NULL;
        status = attn_context_create(&options, &own);
        if (status != ATTN_OK) break;
        interrupt_watch(own);
        status = interrupted() ? ATTN_ERROR_CANCELLED : memory_of(own, &v->at[i], v, o);
        interrupt_watch(ctx);
        attn_context_free(own);
    }
    return status;
}

/* Where a variant begins to take less time than exact attention, and stays so up to the last length: between two measured lengths both are
   straight lines on logarithmic axes. NAN: it does not. */
static double crossing(const int64_t *lengths, int count, double seconds[][MOST_VARIANTS][2], int i, int which)
{
    int from = count;
    while (from > 0 && seconds[from - 1][i][which] < seconds[from - 1][0][which]) from--;
    if (from == count) return NAN;
    if (from == 0 || !isfinite(seconds[from - 1][i][which])) return (double)lengths[from];
    double before = log(seconds[from - 1][i][which] / seconds[from - 1][0][which]);
    double after = log(seconds[from][i][which] / seconds[from][0][which]);
    return (double)lengths[from - 1] * exp(log((double)lengths[from] / (double)lengths[from - 1]) * before / (before - after));
}

attn_status measure_lengths(attn_context *ctx, variants *v, const operands *o, double seconds_each)
{
    double seconds[LENGTHS][MOST_VARIANTS][2];
    int64_t lengths[LENGTHS], shape[3][3];
    int count = 0;
    attn_tape *tape = NULL;
    attn_status status = attn_tape_create(ctx, &tape);
    for (int i = 0; i < 3; i++)
        for (int32_t axis = 1; axis < 3; axis++) shape[i][axis] = attn_tensor_extent(o->in[i], axis);
    for (int64_t n = SHORTEST; status == ATTN_OK && n <= LONGEST; n *= 2) {
        operands random = {.output = NULL};
        for (int i = 0; i < 3; i++) shape[i][0] = n;
        status = operands_random(ctx, shape[0], shape[1], shape[2], &random, v->seed);
        if (status == ATTN_OK) status = take_turns(ctx, tape, v, &random, seconds[count]);
        operands_free(&random);
        lengths[count++] = n;
        if (status == ATTN_OK && 4 * seconds[count - 1][0][1] > seconds_each) break; /* twice the length takes four times as long */
    }
    attn_tape_free(tape);
    if (status != ATTN_OK) return status;
    v->shortest = lengths[0];
    v->longest = lengths[count - 1];
    for (int i = 1; i < v->count; i++)
        for (int which = 0; which < 2; which++) v->at[i].pays_from[which] = crossing(lengths, count, seconds, i, which);
    return ATTN_OK;
}
