#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/model.h"

/* Recurrent models beside what every model of tests/models/variants.h is tested for: their equations by other public calls, what they refuse, and
   that they learn. */
static attn_context *ctx;

static attn_transformer_options recurrent_options(int32_t recurrence)
{
    attn_transformer_options o = model_options(1, 1);
    o.recurrence = recurrence;
    o.positions = ATTN_POSITIONS_NONE;
    return o;
}

/* x W^T + b by the parameters of these names, [rows, columns of W's rows]; bias NULL: none */
static attn_tensor *linear_of(attn_parameters *p, const char *weight, const char *bias, const attn_tensor *x)
{
    const attn_tensor *w = attn_parameters_tensor(p, attn_parameters_find(p, weight));
    const attn_tensor *b = bias != NULL ? attn_parameters_tensor(p, attn_parameters_find(p, bias)) : NULL;
    attn_tensor *y = model_tensor(ctx, attn_tensor_dtype(x), attn_tensor_extent(x, 0), attn_tensor_extent(w, 0));
    OK(ctx, attn_linear(ctx, NULL, x, w, b, y));
    return y;
}

/* columns of several tensors side by side */
static attn_tensor *joined(int64_t count, const attn_tensor *const *parts)
{
    int64_t width = 0;
    for (int64_t i = 0; i < count; i++) width += attn_tensor_extent(parts[i], 1);
    attn_tensor *y = model_tensor(ctx, attn_tensor_dtype(parts[0]), attn_tensor_extent(parts[0], 0), width);
    OK(ctx, attn_concatenate(ctx, NULL, count, parts, y));
    return y;
}

static void tanh_all(attn_tensor *x)
{
    for (int64_t i = 0; i < model_elements(x); i++) model_set(x, i, tanh(model_get(x, i)));
}

enum { WIDTH = 8, MOST = 16 };

typedef struct decoder {
    attn_parameters *parameters;
    int lstm;
    attn_tensor *hidden, *cell, *context; /* one row */
    double weight[MOST];                  /* of its last look at the source */
} decoder;

static attn_tensor *row_of(const attn_tensor *x, int64_t row, int64_t first, int64_t columns)
{
    attn_tensor *y = model_tensor(ctx, attn_tensor_dtype(x), 1, columns);
    for (int64_t c = 0; c < columns; c++) model_set(y, c, model_get(x, row * attn_tensor_extent(x, 1) + first + c));
    return y;
}

/* h_t and c_t of one layer */
static void advance(decoder *d, const attn_tensor *word)
{
    attn_tensor *gates = linear_of(d->parameters, "decoder.layers.0.input.weight", "decoder.layers.0.input.bias", word);
    attn_tensor *by_context = linear_of(d->parameters, "decoder.context.weight", NULL, d->context);
    const attn_tensor *weight =
        attn_parameters_tensor(d->parameters, attn_parameters_find(d->parameters, "decoder.layers.0.hidden.weight"));
    attn_tensor *hidden = model_tensor(ctx, ATTN_FLOAT64, 1, WIDTH), *cell = d->lstm ? model_tensor(ctx, ATTN_FLOAT64, 1, WIDTH) : NULL;
    attn_recurrent_options o;
    OK(ctx, attn_recurrent_options_init(&o, sizeof o));
    o.kind = d->lstm ? ATTN_RECURRENT_LSTM : ATTN_RECURRENT_TANH;
    for (int64_t i = 0; i < model_elements(gates); i++) model_set(gates, i, model_get(gates, i) + model_get(by_context, i));
    OK(ctx, attn_recurrent(ctx, NULL, gates, weight, NULL, &o, d->hidden, d->cell, hidden, NULL, cell));
    attn_tensor_free(gates);
    attn_tensor_free(by_context);
    attn_tensor_free(d->hidden);
    attn_tensor_free(d->cell);
    d->hidden = hidden;
    d->cell = cell;
}

/* c_t by (2.12) to (2.14), in plain loops */
static void attend(decoder *d, const attn_tensor *memory, int32_t score)
{
    const int64_t rows = attn_tensor_extent(memory, 0);
    double *weight = d->weight, sum = 0, most = -INFINITY;
    attn_tensor *q = NULL, *k = NULL;
    if (score == ATTN_SCORE_ADDITIVE) {
        q = linear_of(d->parameters, "decoder.attention.query.weight", NULL, d->hidden);
        k = linear_of(d->parameters, "decoder.attention.key.weight", "decoder.attention.key.bias", memory);
    } else if (score == ATTN_SCORE_MULTIPLICATIVE) {
        q = linear_of(d->parameters, "decoder.attention.score.weight", NULL, d->hidden);
    }
    const int64_t v = attn_parameters_find(d->parameters, "decoder.attention.score.weight");
    for (int64_t j = 0; j < rows; j++) {
        weight[j] = 0;
        for (int64_t c = 0; c < WIDTH; c++)
            weight[j] += score == ATTN_SCORE_ADDITIVE
                             ? model_get(attn_parameters_tensor(d->parameters, v), c) * tanh(model_get(q, c) + model_get(k, j * WIDTH + c))
                             : model_get(q != NULL ? q : d->hidden, c) * model_get(memory, j * WIDTH + c);
        if (score == ATTN_SCORE_SCALED_DOT) weight[j] /= sqrt(WIDTH);
        most = fmax(most, weight[j]);
    }
    for (int64_t j = 0; j < rows; j++) sum += weight[j] = exp(weight[j] - most);
    for (int64_t j = 0; j < rows; j++) weight[j] /= sum;
    for (int64_t c = 0; c < WIDTH; c++) {
        double mean = 0;
        for (int64_t j = 0; j < rows; j++) mean += weight[j] * model_get(memory, j * WIDTH + c);
        model_set(d->context, c, mean);
    }
    attn_tensor_free(q);
    attn_tensor_free(k);
}

/* h of one direction of the encoder over all rows, and its last state */
static attn_tensor *read_way(attn_parameters *p, int lstm, int backward, const attn_tensor *words, int64_t width, attn_tensor *last)
{
    char name[3][64];
    const char *const parts[3] = {"input.weight", "input.bias", "hidden.weight"};
    attn_recurrent_options o;
    for (int i = 0; i < 3; i++) snprintf(name[i], sizeof name[i], "encoder.layers.0.%s.%s", backward ? "backward" : "forward", parts[i]);
    OK(ctx, attn_recurrent_options_init(&o, sizeof o));
    o.kind = lstm ? ATTN_RECURRENT_LSTM : ATTN_RECURRENT_TANH;
    o.reverse = backward;
    attn_tensor *gates = linear_of(p, name[0], name[1], words),
                *rows = model_tensor(ctx, ATTN_FLOAT64, attn_tensor_extent(words, 0), width);
    OK(ctx, attn_recurrent(ctx, NULL, gates, attn_parameters_tensor(p, attn_parameters_find(p, name[2])), NULL, &o, NULL, NULL, rows, last,
                           NULL));
    attn_tensor_free(gates);
    return rows;
}

static attn_tensor *words_of(attn_parameters *p, const char *table, const attn_tensor *tokens)
{
    const attn_tensor *t = attn_parameters_tensor(p, attn_parameters_find(p, table));
    attn_tensor *y = model_tensor(ctx, ATTN_FLOAT64, attn_tensor_extent(tokens, 0), WIDTH);
    OK(ctx, attn_embedding(ctx, NULL, tokens, t, 1, y));
    return y;
}

/* logits of one pair and weights of attention, step by step, from the equations of attn/transformer.h alone */
static attn_tensor *by_hand(attn_transformer *model, const attn_transformer_options *o, const model_batch *b, double (*weights)[MOST])
{
    attn_parameters *p = attn_transformer_parameters(model);
    const int lstm = o->recurrence == ATTN_RECURRENCE_LSTM, ways = o->both_ways ? 2 : 1;
    attn_tensor *source = words_of(p, "source_embedding.weight", b->source), *target = words_of(p, "target_embedding.weight", b->target);
    attn_tensor *way[2] = {NULL, NULL}, *last[2] = {NULL, NULL};
    for (int i = 0; i < ways; i++) {
        last[i] = model_tensor(ctx, ATTN_FLOAT64, 1, WIDTH / ways);
        way[i] = read_way(p, lstm, i, source, WIDTH / ways, last[i]);
    }
    attn_tensor *memory = joined(ways, (const attn_tensor *const *)way), *z = joined(ways, (const attn_tensor *const *)last);
    attn_tensor *start = linear_of(p, "decoder.start.weight", "decoder.start.bias", z);
    tanh_all(start);
    decoder d = {p, lstm, row_of(start, 0, 0, WIDTH), lstm ? row_of(start, 0, WIDTH, WIDTH) : NULL, NULL, {0}};
    d.context = model_tensor(ctx, ATTN_FLOAT64, 1, WIDTH);
    for (int64_t c = 0; c < WIDTH; c++) model_set(d.context, c, 0);
    const int64_t rows = attn_tensor_extent(target, 0);
    attn_tensor *logits = model_tensor(ctx, ATTN_FLOAT64, rows, 11);
    for (int64_t t = 0; t < rows; t++) {
        attn_tensor *word = row_of(target, t, 0, WIDTH);
        advance(&d, word);
        attend(&d, memory, o->decoder_score);
        memcpy(weights[t], d.weight, sizeof d.weight);
        attn_tensor *both = joined(2, (const attn_tensor *const[2]){d.hidden, d.context});
        attn_tensor *out = linear_of(p, "decoder.readout.weight", "decoder.readout.bias", both);
        tanh_all(out);
        attn_tensor *line = linear_of(p, "output.weight", NULL, out);
        for (int64_t v = 0; v < 11; v++) model_set(logits, t * 11 + v, model_get(line, v));
        attn_tensor_free(word);
        attn_tensor_free(both);
        attn_tensor_free(out);
        attn_tensor_free(line);
    }
    attn_tensor *const all[] = {source, target, way[0], way[1], last[0], last[1], memory, z, start, d.hidden, d.cell, d.context};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) attn_tensor_free(all[i]);
    return logits;
}

/* weights of `count` rows from one on, and all entropies, as attn_transformer_inspect gives them */
static void expect_alignment(attn_transformer *model, const model_batch *b, int64_t row, int64_t count, int64_t rows, int64_t keys,
                             double (*want)[MOST])
{
    const int64_t shape[3] = {1, count, keys};
    double room[5 * MOST];
    attn_inspect_request r;
    attn_tensor *weights = NULL, *entropy = model_tensor(ctx, ATTN_FLOAT64, 1, rows);
    for (int i = 0; i < 5 * MOST; i++) room[i] = 7;
    OK(ctx, attn_tensor_wrap(ctx, ATTN_FLOAT64, 3, shape, NULL, room, &weights));
    OK(ctx, attn_inspect_request_init(&r, sizeof r));
    r.part = ATTN_INSPECT_CROSS;
    r.row = row;
    r.weights = weights;
    r.entropy = entropy;
    OK(ctx, attn_transformer_inspect(ctx, model, &b->batch, &r));
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0;
        for (int64_t j = 0; j < keys; j++) {
            sum -= want[i][j] * log(want[i][j]);
            if (i >= row && i < row + count) assert_true(fabs(room[(i - row) * keys + j] - want[i][j]) < 1e-12);
        }
        assert_true(fabs(model_get(entropy, i) - sum) < 1e-12);
    }
    for (int64_t i = count * keys; i < 5 * MOST; i++) assert_true(room[i] == 7);
    attn_tensor_free(weights);
    attn_tensor_free(entropy);
}

static void test_equations(void **state)
{
    (void)state;
    for (int which = 0; which < 16; which++) {
        const int64_t source[1] = {6}, target[1] = {which % 3 == 0 ? 5 : which % 3};
        attn_transformer_options o = recurrent_options(which & 1 ? ATTN_RECURRENCE_LSTM : ATTN_RECURRENCE_TANH);
        o.both_ways = which >> 1 & 1;
        o.decoder_score = which >> 2;
        o.dtype = ATTN_FLOAT64;
        attn_transformer *model = model_create(ctx, &o);
        model_batch b;
        model_batch_open(ctx, &b, &o, 1, source, target, 7);
        double weights[5][MOST];
        attn_tensor *want = by_hand(model, &o, &b, weights), *got = model_tensor(ctx, ATTN_FLOAT64, target[0], 11);
        OK(ctx, attn_transformer_forward(ctx, model, NULL, &b.batch, got));
        for (int64_t i = 0; i < model_elements(got); i++)
            if (!(fabs(model_get(got, i) - model_get(want, i)) < 1e-12))
                fail_msg("case %d, logit %d: got %.17g, expected %.17g", which, (int)i, model_get(got, i), model_get(want, i));
        for (int64_t row = 0; row < target[0]; row++)
            for (int64_t count = 0; count <= target[0] - row; count++)
                expect_alignment(model, &b, row, count, target[0], source[0], weights);
        attn_tensor_free(want);
        attn_tensor_free(got);
        model_batch_close(&b);
        attn_transformer_free(model);
    }
}

/* The weights of a sequence in a batch, whose steps it shares with longer and shorter ones, are those it has alone; entropies lie where the batch
   has its rows. */
static void test_alignments_in_a_batch(void **state)
{
    enum { COUNT = 4, ROWS = 9 };
    static const int64_t source[COUNT] = {3, 6, 1, 4}, target[COUNT] = {2, 4, 0, 3};
    (void)state;
    for (int32_t backend = ATTN_BACKEND_BLAS; backend <= ATTN_BACKEND_REFERENCE; backend++) {
        attn_context *own = model_context(backend, 2, 0);
        attn_transformer_options o = recurrent_options(ATTN_RECURRENCE_LSTM);
        attn_transformer *model = model_create(own, &o);
        attn_tensor *entropy = model_tensor(own, ATTN_FLOAT32, 1, ROWS);
        attn_inspect_request r;
        model_batch b;
        int64_t from = 0, to = 0;
        model_batch_open(own, &b, &o, COUNT, source, target, 7);
        OK(own, attn_inspect_request_init(&r, sizeof r));
        r.part = ATTN_INSPECT_CROSS;
        r.entropy = entropy;
        OK(own, attn_transformer_inspect(own, model, &b.batch, &r));
        for (int64_t s = 0; s < COUNT; from += source[s], to += target[s++]) {
            const int64_t shape[3] = {1, target[s], source[s]};
            attn_tensor *weights[2] = {NULL, NULL}, *alone = NULL;
            OK(own, attn_tensor_create(own, ATTN_FLOAT32, 2, (const int64_t[]){1, target[s]}, &alone));
            for (int i = 0; i < 2; i++) OK(own, attn_tensor_create(own, ATTN_FLOAT32, 3, shape, &weights[i]));
            r.segment = s;
            r.weights = weights[0];
            r.entropy = NULL;
            OK(own, attn_transformer_inspect(own, model, &b.batch, &r));
            model_batch one;
            model_batch_open(own, &one, &o, 1, &source[s], &target[s], 7);
            for (int64_t i = 0; i < source[s]; i++) model_set(one.source, i, model_get(b.source, from + i));
            for (int64_t i = 0; i < target[s]; i++) model_set(one.target, i, model_get(b.target, to + i));
            r.segment = 0;
            r.weights = weights[1];
            r.entropy = alone;
            OK(own, attn_transformer_inspect(own, model, &one.batch, &r));
            for (int64_t i = 0; i < model_elements(weights[0]); i++)
                assert_true(fabs(model_get(weights[0], i) - model_get(weights[1], i)) < 1e-5);
            for (int64_t i = 0; i < target[s]; i++) assert_true(fabs(model_get(entropy, to + i) - model_get(alone, i)) < 1e-5);
            model_batch_close(&one);
            attn_tensor_free(alone);
            for (int i = 0; i < 2; i++) attn_tensor_free(weights[i]);
        }
        attn_tensor_free(entropy);
        model_batch_close(&b);
        attn_transformer_free(model);
        attn_context_free(own);
    }
}

/* what concerns attention alone is refused by name, and leaves the model as it was */
static void test_refusals(void **state)
{
    const int64_t head[3] = {0, 0, 0};
    attn_transformer_options o = recurrent_options(ATTN_RECURRENCE_LSTM);
    attn_transformer *model = model_create(ctx, &o), *pruned = NULL;
    attn_encoder *encoder = NULL;
    attn_decoder *own = NULL;
    attn_mask *mask = NULL;
    attn_inspect_request request;
    int64_t heads[4], count = -1;
    model_batch b;
    (void)state;
    model_batch_open(ctx, &b, &o, 1, (const int64_t[]){3}, (const int64_t[]){3}, 7);
    OK(ctx, attn_mask_causal(ctx, ATTN_ALIGN_LAST, &mask));
    FAILS(ctx, attn_transformer_set_mask(ctx, model, 1, 0, mask), ATTN_ERROR_INVALID_ARGUMENT, "recurrent");
    FAILS(ctx, attn_transformer_prune_heads(ctx, model, 1, head, &pruned), ATTN_ERROR_INVALID_ARGUMENT, "recurrent");
    FAILS(ctx, attn_transformer_heads(ctx, model, 0, 0, 4, heads, &count), ATTN_ERROR_INVALID_ARGUMENT, "recurrent");
    OK(ctx, attn_inspect_request_init(&request, sizeof request));
    for (request.part = ATTN_INSPECT_ENCODER; request.part < ATTN_INSPECT_CROSS; request.part++)
        FAILS(ctx, attn_transformer_inspect(ctx, model, &b.batch, &request), ATTN_ERROR_INVALID_ARGUMENT, "ATTN_INSPECT_CROSS");
    request.layer = 1;
    FAILS(ctx, attn_transformer_inspect(ctx, model, &b.batch, &request), ATTN_ERROR_INVALID_ARGUMENT, "request.layer");
    request.layer = 0;
    OK(ctx, attn_transformer_inspect(ctx, model, &b.batch, &request)); /* asks for nothing */
    o.decoder_attention = 0;
    attn_transformer *blind = model_create(ctx, &o);
    FAILS(ctx, attn_transformer_inspect(ctx, blind, &b.batch, &request), ATTN_ERROR_INVALID_ARGUMENT, "without attention");
    attn_transformer_free(blind);
    assert_int_equal(count, -1);
    assert_null(pruned);
    FAILS(ctx, attn_encoder_create(ctx, &o, &encoder), ATTN_ERROR_UNSUPPORTED, "options.recurrence");
    FAILS(ctx, attn_decoder_create(ctx, &o, &own), ATTN_ERROR_UNSUPPORTED, "options.recurrence");
    attn_mask_free(mask);
    model_batch_close(&b);
    attn_transformer_free(model);
}

static void test_sizes(void **state)
{
    static const struct {
        int64_t width, decoder_width;
        int32_t both_ways, attends, score, encoder, decoder;
        attn_status status;
        const char *word;
    } cases[] = {{7, 7, 1, 1, ATTN_SCORE_ADDITIVE, 1, 1, ATTN_ERROR_SHAPE, "options.width"},
                 {7, 7, 0, 1, ATTN_SCORE_ADDITIVE, 1, 1, ATTN_OK, ""},
                 {7, 7, 1, 1, ATTN_SCORE_ADDITIVE, 0, 1, ATTN_OK, ""},
                 {8, 6, 1, 1, ATTN_SCORE_DOT, 1, 1, ATTN_ERROR_SHAPE, "options.decoder_width"},
                 {8, 6, 1, 1, ATTN_SCORE_SCALED_DOT, 1, 1, ATTN_ERROR_SHAPE, "options.decoder_width"},
                 {8, 6, 1, 1, ATTN_SCORE_MULTIPLICATIVE, 1, 1, ATTN_OK, ""},
                 {8, 6, 1, 0, ATTN_SCORE_DOT, 1, 1, ATTN_OK, ""},
                 {8, 6, 1, 1, ATTN_SCORE_DOT, 1, 0, ATTN_OK, ""},
                 {8, 32769, 1, 1, ATTN_SCORE_ADDITIVE, 1, 1, ATTN_ERROR_SHAPE, "options.decoder_width"},
                 {(INT64_C(1) << 28) + 2, ATTN_DERIVED, 1, 1, ATTN_SCORE_ADDITIVE, 1, 1, ATTN_ERROR_TOO_LARGE, "2^28"},
                 {8, (INT64_C(1) << 28) + 2, 1, 0, ATTN_SCORE_ADDITIVE, 1, 1, ATTN_ERROR_TOO_LARGE, "2^28"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_transformer_options o = recurrent_options(ATTN_RECURRENCE_LSTM);
        attn_transformer *model = NULL;
        o.width = cases[i].width;
        o.decoder_width = cases[i].decoder_width;
        o.both_ways = cases[i].both_ways;
        o.decoder_attention = cases[i].attends;
        o.decoder_score = cases[i].score;
        o.encoder_layers = cases[i].encoder;
        o.decoder_layers = cases[i].decoder;
        o.heads = 3; /* not looked at */
        FAILS(ctx, attn_transformer_create(ctx, &o, &model), cases[i].status, cases[i].word);
        assert_true((model != NULL) == (cases[i].status == ATTN_OK));
        attn_transformer_free(model);
    }
}

/* numbers that stand for nothing are refused by name; the defaults are those of the header; a model that is freed leaves nothing behind */
static void test_options(void **state)
{
    attn_transformer_options o;
    attn_memory_report before = {.struct_size = sizeof before}, after = before;
    attn_transformer *model = NULL;
    (void)state;
    OK(ctx, attn_transformer_options_init(&o, sizeof o));
    assert_true(o.recurrence == ATTN_RECURRENCE_NONE && o.both_ways == 1 && o.decoder_attention == 1);
    assert_int_equal(o.decoder_score, ATTN_SCORE_ADDITIVE);
    o = recurrent_options(ATTN_RECURRENCE_LSTM + 1);
    FAILS(ctx, attn_transformer_create(ctx, &o, &model), ATTN_ERROR_INVALID_ARGUMENT, "options.recurrence");
    o = recurrent_options(ATTN_RECURRENCE_TANH);
    o.decoder_score = ATTN_SCORE_ADDITIVE + 1;
    FAILS(ctx, attn_transformer_create(ctx, &o, &model), ATTN_ERROR_INVALID_ARGUMENT, "options.decoder_score");
    o.decoder_score = ATTN_SCORE_ADDITIVE;
    for (int i = 0; i < 2; i++) { /* the first one may leave scratch */
        OK(ctx, attn_context_memory(ctx, i ? &after : &before));
        OK(ctx, attn_transformer_create(ctx, &o, &model));
        attn_transformer_free(model);
    }
    OK(ctx, attn_context_memory(ctx, &before));
    assert_int_equal(before.live, after.live);
}

/* Short strings come out as they went in, with attention and without (Sutskever et al. 2014); copying is learned sooner with it. */
static double learned(int32_t recurrence, int32_t attends, int64_t steps)
{
    enum { COUNT = 32 };
    int64_t lengths[COUNT];
    attn_transformer_options o = recurrent_options(recurrence);
    attn_trainer *trainer = NULL;
    attn_optimizer_options a;
    attn_trainer_report r = {.struct_size = sizeof r};
    model_batch b;
    random_state random = {5};
    o.width = 32;
    o.decoder_attention = attends;
    attn_transformer *model = NULL;
    OK(ctx, attn_transformer_create(ctx, &o, &model));
    OK(ctx, attn_optimizer_options_init(&a, sizeof a));
    a.rate = 0.01;
    OK(ctx, attn_trainer_create(ctx, model, NULL, &a, NULL, NULL, &trainer));
    for (int64_t step = 0; step < steps; step++) {
        int64_t row = 0;
        for (int64_t i = 0; i < COUNT; i++) lengths[i] = random_integer(&random, 1, 6);
        model_batch_open(ctx, &b, &o, COUNT, lengths, lengths, (uint64_t)step);
        for (int64_t i = 0; i < COUNT; i++)
            for (int64_t t = 0; t < lengths[i]; t++, row++) { /* token 0 begins a target */
                model_set(b.labels, row, model_get(b.source, row));
                model_set(b.target, row, t == 0 ? 0 : model_get(b.source, row - 1));
            }
        OK(ctx, attn_trainer_step(ctx, trainer, &b.batch, &r));
        model_batch_close(&b);
    }
    attn_trainer_free(trainer);
    attn_transformer_free(model);
    return r.unsmoothed_loss;
}

static void test_learns_to_copy(void **state)
{
    (void)state;
    const double asks = learned(ATTN_RECURRENCE_LSTM, 1, 300), knows = learned(ATTN_RECURRENCE_LSTM, 0, 300),
                 plain = learned(ATTN_RECURRENCE_TANH, 1, 300);
    if (!(asks < 0.2 && plain < 0.8 && knows < 1.8 && asks < knows))
        fail_msg("losses %g with attention, %g of tanh, %g without attention", asks, plain, knows);
}

/* segments in another order than their rows: every row gets what it gets where they are in order, in sequences of one row alone too */
static void test_order_of_segments(void **state)
{
    static const int64_t source[3] = {3, 2, 4}, target[2][3] = {{2, 1, 3}, {1, 1, 1}}, order[3] = {2, 0, 1};
    (void)state;
    for (int which = 0; which < 8; which++) {
        attn_transformer_options o = recurrent_options(which & 2 ? ATTN_RECURRENCE_LSTM : ATTN_RECURRENCE_TANH);
        if (which & 4) o.encoder_layers = 0;
        attn_transformer *model = model_create(ctx, &o);
        model_batch b;
        attn_segment turned[3];
        model_batch_open(ctx, &b, &o, 3, source, target[which & 1], 1);
        attn_layout *const layouts[2] = {b.target_layout, b.source_layout};
        attn_tensor *y[2] = {model_tensor(ctx, ATTN_FLOAT32, b.rows, 11), model_tensor(ctx, ATTN_FLOAT32, b.rows, 11)};
        OK(ctx, attn_transformer_forward(ctx, model, NULL, &b.batch, y[0]));
        for (int side = 0; side < 2 && layouts[side] != NULL; side++) {
            for (int i = 0; i < 3; i++) OK(ctx, attn_layout_get(ctx, layouts[side], order[i], &turned[i]));
            OK(ctx, attn_layout_set(ctx, layouts[side], 3, turned));
        }
        OK(ctx, attn_transformer_forward(ctx, model, NULL, &b.batch, y[1]));
        for (int64_t e = 0; e < model_elements(y[0]); e++)
            if (!(fabs(model_get(y[0], e) - model_get(y[1], e)) < 1e-6)) fail_msg("case %d, row %d: another output", which, (int)(e / 11));
        for (int i = 0; i < 2; i++) attn_tensor_free(y[i]);
        model_batch_close(&b);
        attn_transformer_free(model);
    }
}

static int open_all(void **state)
{
    (void)state;
    ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    attn_context_free(ctx);
    return 0;
}

static int open_reference(void **state)
{
    (void)state;
    ctx = model_context(ATTN_BACKEND_REFERENCE, 1, 0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_equations, open_reference, close_all),
                                       cmocka_unit_test(test_alignments_in_a_batch),
                                       cmocka_unit_test_setup_teardown(test_refusals, open_all, close_all),
                                       cmocka_unit_test_setup_teardown(test_sizes, open_all, close_all),
                                       cmocka_unit_test_setup_teardown(test_options, open_all, close_all),
                                       cmocka_unit_test_setup_teardown(test_order_of_segments, open_all, close_all),
                                       cmocka_unit_test_setup_teardown(test_learns_to_copy, open_all, close_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
