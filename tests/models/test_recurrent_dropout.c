#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
/* after the headers it needs */
#include <cmocka.h>
#include "models/transformer.h"
#include "support/model.h"

/* Where dropout of recurrent models falls: on the encoder's layers, between the decoder's, before the output and on attention weights, each by
   sequence and position. */
enum { WIDTH = 8 };
static attn_context *ctx;

static attn_transformer_options recurrent_options(int32_t recurrence)
{
    attn_transformer_options o = model_options(1, 1);
    o.recurrence = recurrence;
    o.positions = ATTN_POSITIONS_NONE;
    o.dtype = ATTN_FLOAT64;
    o.output_head = 0;
    return o;
}

static void forget(attn_transformer *model, const char *weight)
{
    attn_parameters *p = attn_transformer_parameters(model);
    attn_tensor *w = attn_parameters_tensor(p, attn_parameters_find(p, weight));
    for (int64_t e = 0; e < model_elements(w); e++) model_set(w, e, 0);
}

/* rows before an output head in training, by a model with these rates of dropout; the target begins at a position */
static void run_rows(attn_transformer *model, const attn_transformer_options *o, int same_tokens, int64_t position, double rows[5 * WIDTH])
{
    const int64_t source[1] = {5}, target[1] = {5};
    attn_tape_options training = {.struct_size = sizeof training, .training = 1, .seed = 4};
    attn_tape *tape = NULL;
    model_batch b;
    model_batch_open(ctx, &b, o, 1, source, target, 7);
    for (int64_t i = 0; same_tokens && i < 5; i++) model_set(b.target, i, 3);
    attn_tensor *got = model_tensor(ctx, ATTN_FLOAT64, 5, WIDTH);
    if (b.target_layout != NULL) OK(ctx, attn_layout_set(ctx, b.target_layout, 1, &(attn_segment){0, 5, position, 7}));
    OK(ctx, attn_tape_create(ctx, &tape));
    OK(ctx, attn_tape_begin(ctx, tape, &training));
    OK(ctx, attn_transformer_forward(ctx, model, tape, &b.batch, got));
    for (int64_t i = 0; i < 5 * WIDTH; i++) rows[i] = model_get(got, i);
    attn_tape_free(tape);
    attn_tensor_free(got);
    model_batch_close(&b);
}

static void rows_of(const attn_transformer_options *o, double sublayer, double attention, int64_t position, double rows[5 * WIDTH])
{
    attn_transformer_options dropped = *o;
    dropped.dropout_sublayer = sublayer;
    dropped.dropout_attention = attention;
    attn_transformer *model = model_create(ctx, &dropped);
    run_rows(model, &dropped, 0, position, rows);
    attn_transformer_free(model);
}

/* How many numbers are 0, and of the others how many are what they are without dropout, over the part that is kept. A stack of one layer drops its
   output alone; between two layers it does as well, and attention weights have a rate of their own. */
static void test_dropout(void **state)
{
    static const struct {
        int64_t encoder, decoder;
        double sublayer, attention;
        int drops, scaled;
    } cases[] = {{0, 1, 0.25, 0, 1, 1}, {0, 2, 0.25, 0, 1, 0}, {1, 0, 0.25, 0, 1, 1}, {2, 0, 0.25, 0, 1, 0}, {1, 1, 0, 0.25, 0, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double plain[5 * WIDTH], got[5 * WIDTH];
        int zeros = 0, scaled = 0;
        attn_transformer_options o = recurrent_options(ATTN_RECURRENCE_LSTM);
        o.encoder_layers = cases[i].encoder;
        o.decoder_layers = cases[i].decoder;
        rows_of(&o, 0, 0, 0, plain);
        rows_of(&o, cases[i].sublayer, cases[i].attention, 0, got);
        for (int e = 0; e < 5 * WIDTH; e++) {
            zeros += got[e] == 0;
            scaled += got[e] != 0 && fabs(got[e] - plain[e] / (1 - cases[i].sublayer)) < 1e-12;
        }
        assert_int_equal(zeros > 0, cases[i].drops);
        if (cases[i].scaled)
            assert_int_equal(zeros + scaled, 5 * WIDTH);
        else
            assert_true(zeros + scaled < 4 * WIDTH);
        assert_true(zeros < 4 * WIDTH);
        if (cases[i].attention == 0) continue;
        rows_of(&o, 0, cases[i].attention, 3, plain); /* another place is another draw */
        assert_memory_not_equal(plain, got, sizeof got);
    }
}

enum { WIDE = 32, LONGEST = 4 };

/* rows [length, WIDE] of each sequence, all of token 3, by a decoder of two layers that remembers nothing: what differs from row to row is what
   dropout takes, between the layers and at the end */
static void dropped_rows(int64_t count, const attn_segment *segments, double *rows)
{
    attn_transformer_options o = recurrent_options(ATTN_RECURRENCE_TANH);
    attn_tape_options training = {.struct_size = sizeof training, .training = 1, .seed = 4};
    attn_tape *tape = NULL;
    attn_layout *layout = NULL;
    attn_batch batch;
    int64_t total = 0;
    for (int64_t s = 0; s < count; s++) total += segments[s].length;
    o.encoder_layers = 0;
    o.decoder_layers = 2;
    o.width = WIDE;
    o.dropout_sublayer = 0.5;
    attn_transformer *model = model_create(ctx, &o);
    forget(model, "decoder.layers.0.hidden.weight");
    forget(model, "decoder.layers.1.hidden.weight");
    attn_tensor *tokens = model_tensor(ctx, ATTN_INT32, total, 0), *got = model_tensor(ctx, ATTN_FLOAT64, total, WIDE);
    for (int64_t i = 0; i < total; i++) model_set(tokens, i, 3);
    OK(ctx, attn_layout_create(ctx, count, &layout));
    OK(ctx, attn_layout_set(ctx, layout, count, segments));
    OK(ctx, attn_batch_init(&batch, sizeof batch));
    batch.target = tokens;
    batch.target_layout = layout;
    OK(ctx, attn_tape_create(ctx, &tape));
    OK(ctx, attn_tape_begin(ctx, tape, &training));
    OK(ctx, attn_transformer_forward(ctx, model, tape, &batch, got));
    for (int64_t i = 0; i < total * WIDE; i++) rows[i] = model_get(got, i);
    attn_tensor_free(tokens);
    attn_tensor_free(got);
    attn_layout_free(layout);
    attn_tape_free(tape);
    attn_transformer_free(model);
}

/* what dropout takes between layers follows sequence and position, as everywhere: another place is another draw, whatever stands beside it */
static void test_places(void **state)
{
    const attn_segment both[2] = {{0, 2, 1, 7}, {2, LONGEST, 1, 8}}, first = {0, 2, 1, 7}, second = {0, LONGEST, 1, 8};
    double rows[6 * WIDE], alone[6 * WIDE];
    (void)state;
    dropped_rows(2, both, rows);
    dropped_rows(1, &first, alone);
    dropped_rows(1, &second, alone + 2 * WIDE);
    for (int i = 0; i < 6 * WIDE; i++) assert_true(fabs(rows[i] - alone[i]) < 1e-12);
    for (int a = 0; a < 6; a++)
        for (int b = 0; b < a; b++) {
            int kept = 0, same = 0;
            for (int c = 0; c < WIDE; c++) {
                const double x = rows[a * WIDE + c], y = rows[b * WIDE + c];
                kept += x != 0 && y != 0;
                same += x != 0 && x == y;
            }
            assert_true(kept > 0 && same < kept);
        }
}

/* The weights of attention drop by the row's position: a decoder that remembers nothing and reads one token again and again gives rows that
   differ by what was dropped, and the row of a position is the same wherever the sequence begins. */
static void test_places_of_attention(void **state)
{
    double from_first[5 * WIDTH], from_second[5 * WIDTH];
    attn_transformer_options o = recurrent_options(ATTN_RECURRENCE_TANH);
    (void)state;
    o.encoder_layers = o.decoder_layers = 1;
    o.dropout_attention = 0.25;
    attn_transformer *model = model_create(ctx, &o);
    forget(model, "decoder.layers.0.hidden.weight");
    forget(model, "decoder.context.weight");
    run_rows(model, &o, 1, 0, from_first);
    run_rows(model, &o, 1, 1, from_second);
    for (int i = 0; i < 4 * WIDTH; i++) assert_true(fabs(from_second[i] - from_first[WIDTH + i]) < 1e-12);
    assert_memory_not_equal(from_first, from_first + WIDTH, WIDTH * sizeof *from_first);
    attn_transformer_free(model);
}

/* no two places drop by the same numbers */
static void test_sites(void **state)
{
    attn_transformer_options o = recurrent_options(ATTN_RECURRENCE_LSTM);
    (void)state;
    o.encoder_layers = o.decoder_layers = 2;
    attn_transformer *model = model_create(ctx, &o);
    const attn__transformer_plan *plan = attn__transformer_plan_of(model);
    const attn__recurrent_model *m = plan->recurrent;
    const uint64_t sites[] = {m->readers[0].site, m->readers[1].site, m->writers[0].site, m->writers[1].site,
                              m->readout_site,    m->attention.site,  plan->source.site,  plan->target.site};
    for (size_t i = 0; i < sizeof sites / sizeof *sites; i++)
        for (size_t j = 0; j < i; j++) assert_true(sites[i] != sites[j]);
    attn_transformer_free(model);
}

/* the parameter of a name, zeros or ones on its diagonal */
static void set_diagonal(attn_transformer *model, const char *name, double one)
{
    attn_parameters *p = attn_transformer_parameters(model);
    attn_tensor *w = attn_parameters_tensor(p, attn_parameters_find(p, name));
    assert_non_null(w);
    for (int64_t e = 0; e < model_elements(w); e++) model_set(w, e, attn_tensor_rank(w) == 2 && e / WIDE == e % WIDE ? one : 0);
}

/* What is 0 of the rows of a stack whose layers hand on tanh of what they read, each column for itself: what any of its places dropped. */
static double share_of_zeros(const char *side, const char *way, int64_t layers)
{
    enum { LENGTH = 16 };
    const int decoder = side[0] == 'd';
    attn_transformer_options o = recurrent_options(ATTN_RECURRENCE_TANH);
    attn_tape_options training = {.struct_size = sizeof training, .training = 1, .seed = 4};
    attn_tape *tape = NULL;
    attn_batch batch;
    char name[64];
    int zeros = 0;
    o.encoder_layers = decoder ? 0 : layers;
    o.decoder_layers = decoder ? layers : 0;
    o.both_ways = 0;
    o.width = WIDE;
    o.dropout_sublayer = 0.5;
    attn_transformer *model = model_create(ctx, &o);
    for (int64_t i = 0; i < layers; i++) {
        static const char *const parts[] = {"hidden.weight", "input.bias", "input.weight"};
        for (int part = 0; part < 3; part++) {
            snprintf(name, sizeof name, "%s.layers.%d.%s%s", side, (int)i, way, parts[part]);
            set_diagonal(model, name, part == 2);
        }
    }
    for (int part = 0; decoder && part < 2; part++) set_diagonal(model, part ? "decoder.readout.bias" : "decoder.readout.weight", 1);
    attn_tensor *tokens = model_tensor(ctx, ATTN_INT32, LENGTH, 0), *got = model_tensor(ctx, ATTN_FLOAT64, LENGTH, WIDE);
    for (int64_t i = 0; i < LENGTH; i++) model_set(tokens, i, 3);
    OK(ctx, attn_batch_init(&batch, sizeof batch));
    *(decoder ? &batch.target : &batch.source) = tokens;
    OK(ctx, attn_tape_create(ctx, &tape));
    OK(ctx, attn_tape_begin(ctx, tape, &training));
    OK(ctx, attn_transformer_forward(ctx, model, tape, &batch, got));
    for (int64_t i = 0; i < LENGTH * WIDE; i++) zeros += model_get(got, i) == 0;
    attn_tensor_free(tokens);
    attn_tensor_free(got);
    attn_tape_free(tape);
    attn_transformer_free(model);
    return (double)zeros / (LENGTH * WIDE);
}

/* A stack has as many places as layers, and each draws for itself: what passes one by one half passes all by the power. */
static void test_layers_draw_apart(void **state)
{
    (void)state;
    for (int64_t layers = 1; layers <= 3; layers++) {
        const double want = 1 - exp2(-(double)layers);
        assert_true(fabs(share_of_zeros("encoder", "forward.", layers) - want) < 0.06);
        assert_true(fabs(share_of_zeros("decoder", "", layers) - want) < 0.06);
    }
}

static int open_all(void **state)
{
    (void)state;
    ctx = model_context(ATTN_BACKEND_REFERENCE, 1, 0);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    attn_context_free(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dropout), cmocka_unit_test(test_places),
                                       cmocka_unit_test(test_places_of_attention), cmocka_unit_test(test_sites),
                                       cmocka_unit_test(test_layers_draw_apart)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
