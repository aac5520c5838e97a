/* attn-bench layers: Table 3.1 measured. Each layer has its parameters and its input products, so that all of them do the same work: rows of one
   width in, rows of one width out. */
#include <math.h>
#include "bench_layers.h"

enum { SELF_ATTENTION, DOT_PRODUCT, WINDOW, TANH, LSTM, CONVOLUTION };

const bench_layer bench_layer_table[] = {
    {"self-attention", "n^2 d", "4 n d^2 + 2 n^2 d", SELF_ATTENTION, 4},
    {"dot-product", "n^2 d", "2 n^2 d", DOT_PRODUCT, 0},
    {"window", "w n d", "4 n d^2 + 2 w n d", WINDOW, 4},
    {"tanh", "n d^2", "2 n d^2", TANH, 2},
    {"lstm", "n d^2", "8 n d^2", LSTM, 8},
    {"convolution", "k n d^2", "k n d^2", CONVOLUTION, 0},
    {NULL, NULL, NULL, 0, 0},
};

enum { MOST_WEIGHTS = 3 };
typedef struct problem {
    attn_context *ctx;
    attn_tape *tape;
    int32_t kind, taps;
    attn_tensor *x, *d_x, *y, *d_y; /* [n, width] */
    attn_tensor *weight[MOST_WEIGHTS],
        *d_weight[MOST_WEIGHTS]; /* of the inputs [out, in], bias [out], of the states [gates width, width] */
    attn_tensor *gates;          /* of recurrent layers, what the inputs give: [n, gates width] */
    attn_attention_options options;
    attn_attention *attention;
    attn_gradients *gradients; /* NULL: no parameters */
    attn_mask *mask;
} problem;

static int attends(int32_t kind)
{
    return kind == SELF_ATTENTION || kind == DOT_PRODUCT || kind == WINDOW;
}

static int recurs(int32_t kind)
{
    return kind == TANH || kind == LSTM;
}

/* of a size that keeps states and gradients from running full */
static void add_weight(problem *p, int at, int32_t rank, int64_t rows, int64_t columns)
{
    const int64_t shape[2] = {rows, columns};
    p->weight[at] = bench_filled(p->ctx, rank, shape, 11 + (uint64_t)at, 1 / sqrt((double)columns));
    p->d_weight[at] = bench_filled(p->ctx, rank, shape, 7, 1);
}

static void make_attention(problem *p, const bench_layers_run *run)
{
    attn_attention_options *o = &p->options;
    attn_attention_options_init(o, sizeof *o);
    o->heads = run->heads;
    o->query_width = run->width;
    if (p->kind == DOT_PRODUCT) o->project_query = o->project_key = o->project_value = o->project_output = 0;
    bench_fail(p->ctx, attn_attention_create(p->ctx, o, &p->attention), "attention");
    if (p->kind == DOT_PRODUCT) return;
    bench_fail(p->ctx, attn_gradients_create(p->ctx, attn_attention_parameters(p->attention), &p->gradients), "gradients");
}

/* the causal mask of `keys` keys; NULL, which sees all, for 0 */
static attn_mask *mask_of(attn_context *ctx, int64_t keys)
{
    attn_mask *out = NULL;
    if (keys > 0) bench_fail(ctx, attn_mask_window(ctx, ATTN_ALIGN_LAST, keys - 1, 0, 1, &out), "mask");
    return out;
}

/* how many rows each row reads of the layer below: itself and those before it; 0: all */
static int64_t reads(const bench_layers_run *run, int32_t kind)
{
    return kind == WINDOW ? run->window : kind == CONVOLUTION ? run->taps : recurs(kind) ? 2 : 0;
}

static problem make(attn_context *ctx, const bench_layers_run *run, const bench_layer *layer, int64_t n)
{
    const int64_t d = run->width, rows[2] = {n, d}, wide = d * (layer->kind == LSTM ? 4 : 1), gates[2] = {n, wide};
    problem p = {.ctx = ctx, .kind = layer->kind, .taps = run->taps};
    p.x = bench_filled(ctx, 2, rows, 1, 1);
    p.d_x = bench_filled(ctx, 2, rows, 7, 1);
    p.y = bench_filled(ctx, 2, rows, 8, 1);
    p.d_y = bench_filled(ctx, 2, rows, 9, 1);
    bench_fail(ctx, attn_tape_create(ctx, &p.tape), "tape");
    if (attends(p.kind)) {
        make_attention(&p, run);
        p.mask = mask_of(ctx, reads(run, p.kind));
        return p;
    }
    add_weight(&p, 0, 2, wide, p.kind == CONVOLUTION ? run->taps * d : d);
    add_weight(&p, 1, 1, wide, 1);
    if (!recurs(p.kind)) return p;
    add_weight(&p, 2, 2, wide, d);
    p.gates = bench_filled(ctx, 2, gates, 10, 1);
    return p;
}

static void drop(problem *p)
{
    attn_tensor_free(p->x), attn_tensor_free(p->d_x), attn_tensor_free(p->y), attn_tensor_free(p->d_y), attn_tensor_free(p->gates);
    for (int i = 0; i < MOST_WEIGHTS; i++) attn_tensor_free(p->weight[i]), attn_tensor_free(p->d_weight[i]);
    attn_gradients_free(p->gradients);
    attn_attention_free(p->attention);
    attn_mask_free(p->mask);
    attn_tape_free(p->tape);
}

static void run_layer(const problem *p, attn_tape *tape)
{
    attn_recurrent_options recurrent;
    attn_convolution_options convolution;
    if (attends(p->kind)) {
        bench_fail(p->ctx, attn_attention_forward(p->ctx, p->attention, tape, p->x, p->x, p->x, NULL, NULL, p->mask, p->y), "attention");
    } else if (p->kind == CONVOLUTION) {
        attn_convolution_options_init(&convolution, sizeof convolution);
        convolution.taps = p->taps;
        convolution.causal = 1;
        bench_fail(p->ctx, attn_convolution(p->ctx, tape, p->x, p->weight[0], p->weight[1], NULL, &convolution, p->y), "convolution");
    } else {
        attn_recurrent_options_init(&recurrent, sizeof recurrent);
        recurrent.kind = p->kind == LSTM ? ATTN_RECURRENT_LSTM : ATTN_RECURRENT_TANH;
        bench_fail(p->ctx, attn_linear(p->ctx, tape, p->x, p->weight[0], p->weight[1], p->gates), "inputs");
        bench_fail(p->ctx, attn_recurrent(p->ctx, tape, p->gates, p->weight[2], NULL, &recurrent, NULL, NULL, p->y, NULL, NULL),
                   "recurrent layer");
    }
}

static void forward(void *data)
{
    run_layer(data, NULL);
}

static void both(void *data)
{
    problem *p = data;
    const attn_tensor *outputs[] = {p->y}, *seeds[] = {p->d_y};
    bench_fail(p->ctx, attn_tape_begin(p->ctx, p->tape, NULL), "tape");
    bench_fail(p->ctx, attn_tape_watch(p->ctx, p->tape, p->x, p->d_x), "watch");
    for (int i = 0; i < MOST_WEIGHTS; i++)
        if (p->weight[i] != NULL) bench_fail(p->ctx, attn_tape_watch(p->ctx, p->tape, p->weight[i], p->d_weight[i]), "watch");
    run_layer(p, p->tape);
    if (p->gradients != NULL) bench_fail(p->ctx, attn_gradients_zero(p->ctx, p->gradients), "gradients");
    bench_fail(p->ctx, attn_tape_backward(p->ctx, p->tape, 1, outputs, seeds, p->gradients != NULL, &p->gradients), "backward");
}

/* multiply-adds: `dense` products of every row, and two of every pair of a query and a key that is seen */
static void count(const problem *p, const bench_layers_run *run, const bench_layer *layer, bench_layer_point *out)
{
    const int64_t n = out->n, d = run->width;
    attn_cost_report cost = {.struct_size = sizeof cost};
    attn_layout *layout;
    int64_t seen = 0;
    out->products = (p->kind == CONVOLUTION ? run->taps : layer->dense) * n * d * d;
    if (!attends(p->kind)) return;
    bench_fail(p->ctx, attn_layout_create(p->ctx, 1, &layout), "layout");
    bench_fail(p->ctx, attn_layout_set_lengths(p->ctx, layout, 1, &n, 0), "layout");
    bench_fail(p->ctx, attn_mask_pairs(p->ctx, p->mask, 1, layout, layout, &seen, NULL), "pairs");
    bench_fail(p->ctx, attn_attention_cost(p->ctx, &p->options, layout, layout, p->mask, &cost), "cost");
    attn_layout_free(layout);
    out->products += 2 * seen * d;
    out->counted = cost.forward;
    out->counted_both = cost.forward + cost.backward;
    if (p->mask == NULL) bench_agree(layer->name, "multiply-adds", out->products, cost.forward_formula);
}

/* rows that read `keys` rows each are ceil((n - 1) / (keys - 1)) layers apart at most */
static int64_t path_of(int64_t n, int64_t keys)
{
    return n < 2 ? 0 : keys == 0 ? 1 : (n - 1 + keys - 2) / (keys - 1);
}

/* attn_mask_path takes a time that grows with n^3: from some length on the formula stands alone */
static void find_path(attn_context *ctx, const bench_layers_run *run, const bench_layer *layer, bench_layer_point *out)
{
    enum { LONGEST = 2048 };
    const int64_t keys = reads(run, layer->kind);
    out->steps = recurs(layer->kind) ? out->n : 1;
    out->path = path_of(out->n, keys);
    if (layer->kind == CONVOLUTION)
        for (int64_t reach = 1; reach < out->n; reach *= run->taps) out->dilated++;
    if (out->n > LONGEST) return;
    int64_t found;
    attn_mask *mask = mask_of(ctx, keys);
    bench_fail(ctx, attn_mask_path(ctx, mask, out->n, &found, NULL), "path");
    attn_mask_free(mask);
    bench_agree(layer->name, "path length", out->path, found);
}

bench_layer_point bench_layer_measure(const bench_layers_run *run, const bench_layer *layer, int64_t n)
{
    bench_layer_point out = {.n = n};
    bench_context opened = bench_open(run->threads);
    problem p = make(opened.ctx, run, layer, n);
    count(&p, run, layer, &out);
    find_path(opened.ctx, run, layer, &out);
    out.forward = bench_repeat(run->seconds, forward, &p);
    out.both = bench_repeat(run->seconds, both, &p);
    drop(&p);
    bench_close(&opened);
    return out;
}
