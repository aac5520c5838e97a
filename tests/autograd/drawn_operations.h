#ifndef TESTS_AUTOGRAD_DRAWN_OPERATIONS_H
#define TESTS_AUTOGRAD_DRAWN_OPERATIONS_H
#include <string.h>
#include "autograd/operations.h"
#include "support/drawn.h"

/* A small program, drawn from a seed: leaves (watched inputs, constants, parameters) and operations that read what came before, so that a
   value is read by several operations, twice by one, or by none. Few sizes, so that almost everything fits as almost anything. */
enum {
    VALUES = 160,
    OPERATIONS = 12,
    MOST = 1024,
    WIDEST = 32,
    READ = 10,
    MADE_MOST = 3,
    ROWS_MOST = 32,
    POSITIONS = 12,
    SETS = 2,
    STRETCHES = 2,
    ASKED = 3
};
enum { LEAF, PARAMETER, MADE, PART };
enum {
    LINEAR,
    GATED,
    LINEAR_HEADS,
    ACTIVATE,
    NORM,
    RESIDUAL,
    SOFTMAX,
    DROP,
    ADD,
    MULTIPLY,
    TRANSPOSE,
    JOIN,
    GATHER,
    PUT,
    EMBED,
    ATTEND,
    ROTATE,
    LOSS,
    CUT,
    RECURRENT,
    PROJECT,
    CONVOLVE,
    FEATURES,
    LINEAR_ATTEND,
    KINDS
};
static const char *const kind_names[KINDS] = {"linear",  "gated",     "linear_heads", "activate", "norm",      "residual",
                                              "softmax", "drop",      "add",          "multiply", "transpose", "join",
                                              "gather",  "put",       "embed",        "attend",   "rotate",    "loss",
                                              "cut",     "recurrent", "project",      "convolve", "features",  "linear_attend"};

typedef struct drawn_value {
    int64_t rows, width, gap, heads; /* of the tensor: numbers between its rows, and rank 3 with more than one head */
    int32_t kind, outside;           /* outside: a caller's tensor, found by its address; else memory of the tape's */
    int32_t watched, when;           /* watched right before operation `when` */
    int32_t set, frozen, first, cut; /* a parameter's; a part's first column; cut 1: parts of it are values */
    int32_t base, taken;             /* taken: logits that become their gradient, for nobody else to read */
    uint64_t seed;
} drawn_value;

typedef struct drawn_operation {
    int32_t kind, inputs, outputs, detached; /* detached: computed without the tape */
    int32_t in[READ], out[MADE_MOST];        /* values, -1: absent */
    int64_t in_heads[READ], out_heads[MADE_MOST];
    int32_t form, beta; /* an activation, a norm, log or not, a kind of positions or of recurrent layer; beta: learned, in[3] or in[1] */
    double rate, cap;
    uint64_t site;
    int64_t row[ROWS_MOST]; /* tokens, labels, rows that go elsewhere */
    int64_t counts[2];      /* rows of the parts of PUT */
    attn_segment segments[2], keys[2];
    int64_t segments_count;
    int32_t causal, reverse;
    int64_t taps, dilation, first;
} drawn_operation;

/* operations from .. to - 1 as a checkpoint */
typedef struct drawn_stretch {
    int32_t from, to, inputs, outputs;
    int32_t in[ATTN__RECORD_INPUTS], out[ATTN__RECORD_OUTPUTS];
} drawn_stretch;

typedef struct drawn_program {
    random_state random;
    int64_t rows, width, other;
    int32_t values, operations, stretches, training;
    drawn_value value[VALUES];
    drawn_operation operation[OPERATIONS];
    drawn_stretch stretch[STRETCHES];
    int32_t asked, ask[ASKED], ones[ASKED], no_list; /* no_list: NULL for all arriving gradients */
    int64_t arriving_gap[ASKED];
    int32_t handle[SETS];
} drawn_program;

static int32_t new_value(drawn_program *p, int32_t kind, int64_t rows, int64_t width)
{
    drawn_value *v = &p->value[p->values];
    *v = (drawn_value){.rows = rows, .width = width, .kind = kind, .outside = 1, .heads = 1, .base = -1};
    v->gap = AMONG(&p->random, 0, 0, 3, 9);
    if (width % 2 == 0 && drawn_once_in(&p->random, 3)) v->heads = 2;
    v->seed = random_bits(&p->random);
    return p->values++;
}

static int32_t new_leaf(drawn_program *p, int64_t rows, int64_t width)
{
    const int64_t kind = AMONG(&p->random, 0, 0, 0, 1, 2, 2);
    const int32_t i = new_value(p, kind == 2 ? PARAMETER : LEAF, rows, width);
    drawn_value *v = &p->value[i];
    v->watched = kind == 0;
    v->when = (int32_t)random_integer(&p->random, 0, p->operations + 1);
    v->set = (int32_t)random_integer(&p->random, 0, SETS);
    v->frozen = drawn_once_in(&p->random, 4);
    return i;
}

/* an earlier value of these sizes, or a leaf that is made for it; 0: any size */
static int32_t operand(drawn_program *p, int64_t rows, int64_t width)
{
    int32_t fits[VALUES], count = 0;
    for (int32_t i = 0; i < p->values; i++) {
        const drawn_value *v = &p->value[i];
        if ((rows == 0 || v->rows == rows) && (width == 0 || v->width == width) && !v->taken) fits[count++] = i;
    }
    if (count == 0 || drawn_once_in(&p->random, p->values > 40 ? 50 : 5))
        return new_leaf(p, rows ? rows : p->rows, width ? width : p->width);
    const int64_t a = random_integer(&p->random, 0, count), b = random_integer(&p->random, 0, count);
    return fits[drawn_once_in(&p->random, 2) ? a : a > b ? a : b]; /* rather a late one */
}

static int32_t maybe(drawn_program *p, int64_t rows, int64_t width)
{
    return drawn_once_in(&p->random, 2) ? -1 : operand(p, rows, width);
}

static void reads(drawn_operation *o, int32_t value, int64_t heads)
{
    o->in_heads[o->inputs] = heads;
    o->in[o->inputs++] = value;
}

static void makes(drawn_program *p, drawn_operation *o, int64_t rows, int64_t width, int64_t heads)
{
    const int32_t made = new_value(p, MADE, rows, width);
    p->value[made].outside = o->detached || drawn_once_in(&p->random, 2);
    o->out_heads[o->outputs] = heads;
    o->out[o->outputs++] = made;
}

static int64_t divisor(drawn_program *p, int64_t of)
{
    const int64_t d = AMONG(&p->random, 1, 2, 2, 3, 4);
    return of % d == 0 ? d : 1;
}

static void draw_activation(drawn_program *p, drawn_operation *o)
{
    o->form = (int32_t)AMONG(&p->random, ATTN_ACTIVATION_IDENTITY, ATTN_ACTIVATION_GELU, ATTN_ACTIVATION_SWISH, ATTN_ACTIVATION_SWISH,
                             ATTN_ACTIVATION_TANH, ATTN_ACTIVATION_SIGMOID);
    reads(o, o->form == ATTN_ACTIVATION_SWISH ? maybe(p, 1, 1) : -1, 1);
}

/* one or two segments that tile the rows, or leave some out */
static void draw_segments(drawn_program *p, int64_t rows, int tile, int64_t count, attn_segment *to)
{
    const int64_t first = count == 1 ? rows : random_integer(&p->random, 0, rows + 1);
    to[0] = (attn_segment){0, first, random_integer(&p->random, 0, 3), 5};
    to[1] = (attn_segment){first, rows - first, 0, 6};
    if (!tile && to[count - 1].length > 1 && drawn_once_in(&p->random, 2)) to[count - 1].length--;
}

static void draw_attention(drawn_program *p, drawn_operation *o)
{
    const int32_t query = operand(p, 0, 0);
    const drawn_value *q = &p->value[query];
    const int64_t heads = divisor(p, q->width), size = q->width / heads, key_heads = drawn_once_in(&p->random, 2) ? heads : 1;
    const int32_t key = drawn_once_in(&p->random, 3) && key_heads == heads ? query : operand(p, 0, key_heads * size);
    const int64_t key_rows = p->value[key].rows;
    int32_t value = drawn_once_in(&p->random, 3) ? key : operand(p, key_rows, 0);
    if (p->value[value].width % key_heads != 0 || heads * p->value[value].width / key_heads > WIDEST) value = key;
    const int64_t value_size = p->value[value].width / key_heads, rows = p->value[query].rows;
    reads(o, query, heads);
    reads(o, key, key_heads);
    reads(o, value, key_heads);
    reads(o, o->kind == ATTEND && drawn_once_in(&p->random, 4) ? operand(p, heads, size) : -1, 1);
    o->segments_count = random_integer(&p->random, 1, 3);
    draw_segments(p, rows, 0, o->segments_count, o->segments);
    draw_segments(p, key_rows, 0, o->segments_count, o->keys);
    o->causal = drawn_once_in(&p->random, 3);
    o->cap = drawn_once_in(&p->random, 4) ? 1.5 : 0;
    makes(p, o, rows, heads * value_size, heads);
}

static void draw_norm(drawn_program *p, drawn_operation *o, int32_t x, int64_t rows, int64_t width)
{
    o->form = drawn_once_in(&p->random, 2) ? ATTN_NORM_RMS : ATTN_NORM_LAYER;
    reads(o, x, 1);
    reads(o, maybe(p, rows, width), 1);
    reads(o, maybe(p, 1, width), 1);
    reads(o, o->form == ATTN_NORM_LAYER ? maybe(p, 1, width) : -1, 1);
    makes(p, o, rows, width, 1);
    if (o->in[1] >= 0 && drawn_once_in(&p->random, 2)) makes(p, o, rows, width, 1);
}

static void draw_join(drawn_program *p, drawn_operation *o, int32_t x, int64_t rows)
{
    int64_t width = p->value[x].width;
    reads(o, x, 1);
    for (int64_t more = AMONG(&p->random, 0, 1, 1, 2, 9); more > 0; more--) {
        const int32_t next = operand(p, rows, more > 2 ? 1 : 0);
        if (width + p->value[next].width > WIDEST) break;
        width += p->value[next].width;
        reads(o, next, 1);
    }
    makes(p, o, rows, width, 1);
}

static void draw_put(drawn_program *p, drawn_operation *o, int32_t x, int64_t rows, int64_t width)
{
    const int32_t second = operand(p, 0, width);
    const int64_t more = p->value[second].rows, sum = rows + (rows + more <= POSITIONS ? more : 0);
    reads(o, x, 1);
    o->counts[0] = rows;
    if (sum > rows) reads(o, second, 1), o->counts[1] = more;
    for (int64_t i = 0; i < sum; i++) o->row[i] = i;
    for (int64_t i = sum - 1; i > 0; i--) {
        const int64_t j = random_integer(&p->random, 0, i + 1), kept = o->row[i];
        o->row[i] = o->row[j], o->row[j] = kept;
    }
    makes(p, o, sum, width, 1);
}

static void draw_embedding(drawn_program *p, drawn_operation *o, int32_t x, int64_t rows, int64_t width)
{
    const int given = drawn_once_in(&p->random, 2); /* x itself, else rows of it by their numbers */
    const int64_t made = given ? rows : AMONG(&p->random, 1, 3, p->rows, p->rows + 2);
    o->form = (int32_t)AMONG(&p->random, ATTN_POSITIONS_NONE, ATTN_POSITIONS_SINUSOIDAL, ATTN_POSITIONS_LEARNED, ATTN_POSITIONS_LEARNED);
    for (int64_t i = 0; i < made; i++) o->row[i] = random_integer(&p->random, 0, rows);
    reads(o, given ? -1 : x, 1);
    reads(o, given ? x : -1, 1);
    reads(o, o->form == ATTN_POSITIONS_LEARNED ? operand(p, POSITIONS, width) : -1, 1);
    makes(p, o, made, width, 1);
}

static void draw_recurrent(drawn_program *p, drawn_operation *o)
{
    o->form = drawn_once_in(&p->random, 2); /* LSTM, with cells */
    const int64_t width = p->other <= 4 ? p->other : 2, gates = o->form ? 4 : 1;
    const int32_t x = operand(p, 0, gates * width);
    o->segments_count = random_integer(&p->random, 1, 3), o->reverse = drawn_once_in(&p->random, 2);
    draw_segments(p, p->value[x].rows, 1, o->segments_count, o->segments);
    reads(o, x, 1);
    reads(o, operand(p, gates * width, width), 1);
    reads(o, maybe(p, o->segments_count, width), 1);
    reads(o, o->form ? maybe(p, o->segments_count, width) : -1, 1);
    makes(p, o, p->value[x].rows, width, 1);
    makes(p, o, o->segments_count, width, 1);
    if (o->form) makes(p, o, o->segments_count, width, 1);
}

/* parts of a value of the tape's, of which some columns may be no part */
static int draw_cut(drawn_program *p, drawn_operation *o)
{
    for (int32_t i = p->values - 1; i >= 0; i--) {
        drawn_value *v = &p->value[i];
        if (v->kind != MADE || v->outside || v->cut || v->taken || v->width < 2) continue;
        v->cut = 1;
        reads(o, i, 1);
        for (int64_t first = random_integer(&p->random, 0, 2), count; first < v->width && o->outputs < MADE_MOST; first += count) {
            count = random_integer(&p->random, 1, v->width - first + 1);
            const int32_t part = new_value(p, PART, v->rows, count);
            p->value[part] = (drawn_value){.rows = v->rows, .width = count, .heads = 1, .kind = PART, .base = i, .first = (int32_t)first};
            o->out_heads[o->outputs] = 1;
            o->out[o->outputs++] = part;
        }
        return 1;
    }
    return 0;
}

static void draw_loss(drawn_program *p, drawn_operation *o, int32_t x)
{
    reads(o, x, 1);
    o->reverse = drawn_once_in(&p->random, 2); /* the mean */
    for (int64_t i = 0; i < p->value[x].rows; i++) o->row[i] = random_integer(&p->random, -1, p->value[x].width);
    makes(p, o, 1, 1, 1);
}

static int draw_operation(drawn_program *p, drawn_operation *o)
{
    *o = (drawn_operation){.kind = (int32_t)random_integer(&p->random, 0, KINDS), .detached = drawn_once_in(&p->random, 12)};
    o->rate = drawn_once_in(&p->random, 3) ? 0.4 : 0;
    o->site = random_bits(&p->random);
    if (o->kind == ATTEND || o->kind == LINEAR_ATTEND) return draw_attention(p, o), 1;
    if (o->kind == RECURRENT) return draw_recurrent(p, o), 1;
    if (o->kind == CUT) return o->detached = 0, draw_cut(p, o);
    const int32_t x = operand(p, drawn_once_in(&p->random, 2) ? p->rows : 0, 0);
    const int64_t rows = p->value[x].rows, width = p->value[x].width, out = AMONG(&p->random, p->width, p->other, p->rows);
    int64_t heads = divisor(p, width);
    switch (o->kind) {
    case LINEAR:
    case GATED: {
        const int64_t all = o->kind == GATED ? 2 * out : out;
        reads(o, x, 1);
        reads(o, operand(p, all, width), 1);
        reads(o, maybe(p, 1, all), 1);
        draw_activation(p, o);
        makes(p, o, rows, out, 1);
        break;
    }
    case LINEAR_HEADS:
        reads(o, x, heads);
        reads(o, operand(p, heads * 2, width / heads), 1);
        makes(p, o, rows, heads * 2, heads);
        break;
    case ACTIVATE:
        reads(o, x, 1);
        draw_activation(p, o);
        makes(p, o, rows, width, 1);
        break;
    case NORM: draw_norm(p, o, x, rows, width); break;
    case RESIDUAL:
    case ADD:
    case MULTIPLY:
        reads(o, x, 1);
        reads(o, operand(p, rows, width), 1);
        makes(p, o, rows, width, 1);
        break;
    case SOFTMAX:
        o->form = drawn_once_in(&p->random, 2);
        reads(o, x, 1);
        makes(p, o, rows, width, 1);
        break;
    case TRANSPOSE:
        if (rows * width / heads > WIDEST) heads = width;
        if (heads > POSITIONS || rows * width / heads > WIDEST) return 0;
        reads(o, x, heads);
        makes(p, o, heads, rows * (width / heads), rows);
        break;
    case JOIN: draw_join(p, o, x, rows); break;
    case GATHER: {
        const int64_t count = AMONG(&p->random, 1, 2, p->rows);
        for (int64_t i = 0; i < count; i++) o->row[i] = random_integer(&p->random, 0, rows);
        reads(o, x, 1);
        makes(p, o, count, width, 1);
        break;
    }
    case PUT: draw_put(p, o, x, rows, width); break;
    case EMBED: draw_embedding(p, o, x, rows, width); break;
    case ROTATE:
        if (width / heads < 2) return 0;
        o->reverse = drawn_once_in(&p->random, 2); /* how columns are paired */
        reads(o, x, heads);
        makes(p, o, rows, width, heads);
        break;
    case PROJECT:
        o->segments_count = random_integer(&p->random, 1, 3);
        draw_segments(p, rows, 1, o->segments_count, o->segments);
        reads(o, x, 1);
        reads(o, operand(p, p->other <= 4 ? p->other : 2, rows), 1);
        makes(p, o, o->segments_count * (p->other <= 4 ? p->other : 2), width, 1);
        break;
    case CONVOLVE:
        o->taps = random_integer(&p->random, 1, 4), o->dilation = random_integer(&p->random, 1, 3);
        o->first = random_integer(&p->random, -4, 2);
        if (o->taps * width > WIDEST) return 0;
        o->segments_count = random_integer(&p->random, 1, 3);
        draw_segments(p, rows, 1, o->segments_count, o->segments);
        reads(o, x, 1);
        reads(o, operand(p, out, o->taps * width), 1);
        reads(o, maybe(p, 1, out), 1);
        makes(p, o, rows, out, 1);
        break;
    case FEATURES:
        reads(o, x, heads);
        makes(p, o, rows, heads * 2, heads);
        break;
    case LOSS: draw_loss(p, o, x); break;
    default: /* DROP */ reads(o, x, 1); makes(p, o, rows, width, 1);
    }
    return 1;
}
#endif
