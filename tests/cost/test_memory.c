/* The peak of memory that attn_transformer_memory foretells, against what contexts come to. ATTN_LONG: the large configurations of the bench
   too (up to 1.3 GB). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "../../bench/configs.c"
#include "support/model.h"

void bench_fail(attn_context *ctx, attn_status status, const char *what)
{
    model_expect(ctx, status, ATTN_OK, "", what, __FILE__, __LINE__);
}

static int64_t within, compared, configurations;
static int32_t backend = ATTN_BACKEND_BLAS;

static attn_memory_report memory_of(const attn_context *ctx)
{
    attn_memory_report report = {.struct_size = sizeof report};
    OK(ctx, attn_context_memory(ctx, &report));
    return report;
}

/* never less than measured, and at most `percent` more */
static void close_above(const char *name, const char *what, int64_t foretold, int64_t measured, double percent)
{
    double more = 100.0 * (double)(foretold - measured) / (double)measured;
    compared++;
    within += foretold >= measured && more <= percent;
    printf("%-17s %-10s foretold %11lld bytes, measured %11lld: %+.2f %%\n", name, what, (long long)foretold, (long long)measured, more);
    if (foretold < measured || more > percent)
        fail_msg("%s, %s: %lld bytes foretold, %lld measured", name, what, (long long)foretold, (long long)measured);
}

/* a batch in a context of its own: it is the caller's memory */
typedef struct session {
    attn_context *outside, *ctx;
    attn_transformer_options options;
    attn_cost_report training, inference;
    attn_transformer *model;
    model_batch batch;
} session;

static void open_session(session *s, const attn_transformer_options *o, int64_t count, int64_t longest, int64_t shorter, int32_t threads)
{
    int64_t lengths[256];
    assert_true(count <= 256);
    memset(s, 0, sizeof *s);
    s->options = *o;
    s->training.struct_size = s->inference.struct_size = sizeof s->training;
    s->outside = model_context(ATTN_BACKEND_BLAS, 1, 0);
    s->ctx = model_context(backend, threads, 0);
    for (int64_t i = 0; i < count; i++) lengths[i] = longest - shorter;
    model_batch_open(s->outside, &s->batch, o, count, lengths, lengths, 1);
    attn_memory_report before = memory_of(s->ctx);
    OK(s->ctx, attn_transformer_memory(s->ctx, o, 1, count * longest, longest, &s->training));
    OK(s->ctx, attn_transformer_memory(s->ctx, o, 0, count * longest, longest, &s->inference));
    attn_memory_report after = memory_of(s->ctx);
    assert_memory_equal(&before, &after, sizeof before); /* a report leaves no trace */
    OK(s->ctx, attn_transformer_create(s->ctx, o, &s->model));
}

static void close_session(session *s)
{
    model_batch_close(&s->batch);
    attn_transformer_free(s->model);
    assert_true(memory_of(s->ctx).live > 0);
    attn_context_free(s->ctx);
    attn_context_free(s->outside);
}

/* After the reserve no step allocates, the first one neither. */
static void train(const char *name, const attn_transformer_options *o, int64_t count, int64_t length, int32_t optimizer, double percent)
{
    session s;
    attn_trainer *trainer = NULL;
    attn_optimizer_options a;
    open_session(&s, o, count, length, 0, 2);
    OK(s.ctx, attn_optimizer_options_init(&a, sizeof a));
    a.optimizer = optimizer;
    a.clip = 1;
    OK(s.ctx, attn_trainer_create(s.ctx, s.model, NULL, &a, NULL, NULL, &trainer));
    OK(s.ctx, attn_trainer_reserve(s.ctx, trainer, count * length, length));
    int64_t allocations = model_allocations(s.ctx);
    for (int i = 0; i < 2; i++) OK(s.ctx, attn_trainer_step(s.ctx, trainer, &s.batch.batch, NULL));
    assert_int_equal(model_allocations(s.ctx), allocations);
    close_above(name, "training", s.training.peak_bytes, memory_of(s.ctx).peak, percent);
    /* and a second reserve finds everything there */
    OK(s.ctx, attn_trainer_reserve(s.ctx, trainer, count * length, length));
    assert_int_equal(model_allocations(s.ctx), allocations);
    attn_trainer_free(trainer);
    close_session(&s);
}

/* a prompt that leaves room for two steps; the peak is there from the first prompt on, and steps allocate nothing */
static void decode(const char *name, const attn_transformer_options *o, int64_t count, int64_t length, double percent)
{
    session s;
    attn_generator *generator = NULL;
    attn_generator_options g;
    int32_t tokens[64], finished[64];
    open_session(&s, o, count, length, 2, 2);
    OK(s.ctx, attn_generator_options_init(&g, sizeof g));
    g.sequences = count;
    g.capacity = length;
    OK(s.ctx, attn_generator_create(s.ctx, s.model, &g, &generator));
    OK(s.ctx, attn_generator_prompt(s.ctx, generator, &s.batch.batch));
    int64_t allocations = model_allocations(s.ctx);
    for (int i = 0; i < 2; i++) OK(s.ctx, attn_generator_step(s.ctx, generator, count, tokens, finished));
    assert_int_equal(model_allocations(s.ctx), allocations);
    close_above(name, "decoding", s.inference.decode_bytes, memory_of(s.ctx).peak, percent);
    attn_generator_free(generator);
    close_session(&s);
}

/* forward alone, once the scratch has its size */
static void infer(const char *name, const attn_transformer_options *o, int64_t count, int64_t length, double percent)
{
    session s;
    open_session(&s, o, count, length, 0, 2);
    attn_tensor *logits = model_tensor(s.outside, ATTN_FLOAT32, s.batch.rows, o->target_vocabulary);
    for (int i = 0; i < 3; i++) {
        OK(s.ctx, attn_transformer_forward(s.ctx, s.model, NULL, &s.batch.batch, logits));
        if (i == 1) OK(s.ctx, attn_context_reset_peak(s.ctx));
    }
    close_above(name, "forward", s.inference.peak_bytes, memory_of(s.ctx).peak, percent);
    attn_tensor_free(logits);
    close_session(&s);
}

/* With a cap of what was foretold everything has room. */
static void within_cap(const attn_transformer_options *o, int64_t count, int64_t length)
{
    session s;
    attn_context_options c;
    open_session(&s, o, count, length, 2, 1);
    for (int training = 0; training < 2; training++) {
        attn_transformer *model = NULL;
        attn_trainer *trainer = NULL;
        attn_generator *generator = NULL;
        attn_generator_options g;
        attn_context *ctx = NULL;
        int32_t tokens[64], finished[64];
        assert_int_equal(attn_context_options_init(&c, sizeof c), ATTN_OK);
        c.threads = 1;
        c.memory_cap = training ? s.training.peak_bytes : s.inference.decode_bytes;
        assert_int_equal(attn_context_create(&c, &ctx), ATTN_OK);
        OK(ctx, attn_transformer_create(ctx, o, &model));
        if (training) {
            OK(ctx, attn_trainer_create(ctx, model, NULL, NULL, NULL, NULL, &trainer));
            OK(ctx, attn_trainer_reserve(ctx, trainer, count * length, length));
            for (int i = 0; i < 3; i++) OK(ctx, attn_trainer_step(ctx, trainer, &s.batch.batch, NULL));
        } else {
            OK(ctx, attn_generator_options_init(&g, sizeof g));
            g.sequences = count;
            g.capacity = length;
            OK(ctx, attn_generator_create(ctx, model, &g, &generator));
            OK(ctx, attn_generator_prompt(ctx, generator, &s.batch.batch));
            for (int i = 0; i < 2; i++) OK(ctx, attn_generator_step(ctx, generator, count, tokens, finished));
        }
        attn_generator_free(generator);
        attn_trainer_free(trainer);
        attn_transformer_free(model);
        attn_context_free(ctx);
    }
    close_session(&s);
}

static void test_bench_configurations(void **state)
{
    (void)state;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    const bench_config *c;
    for (int64_t i = 0; (c = bench_config_at(i)) != NULL && (i == 0 || getenv("ATTN_LONG") != NULL); i++) {
        attn_transformer_options o;
        bench_config_options(ctx, c, &o);
        train(c->name, &o, c->batch, c->length, c->adam, 5);
        decode(c->name, &o, c->batch, c->length, 5);
        infer(c->name, &o, c->batch, c->length, 5);
        configurations++;
    }
    attn_context_free(ctx);
}

/* small ones of every kind: never less than measured; what is taken whole, blocks and handles, weighs more in them */
static void test_small_models(void **state)
{
    (void)state;
    for (int which = 0; which < 24; which++) {
        attn_transformer_options o = model_options(which & 1 ? 2 : 0, 2);
        char name[32];
        o.width = 64;
        o.feed_forward = 256;
        o.source_vocabulary = o.target_vocabulary = 300;
        o.context = 48;
        o.norm_placement = which & 2 ? ATTN_PLACEMENT_PRE : ATTN_PLACEMENT_POST;
        o.checkpoint_layers = which & 4 ? 1 : 0;
        o.gated = which & 8 ? 1 : 0;
        o.key_heads = which & 8 ? 1 : ATTN_DERIVED;
        o.positions = which & 8 ? ATTN_POSITIONS_LEARNED : ATTN_POSITIONS_SINUSOIDAL;
        o.dropout_attention = o.dropout_sublayer = 0.1;
        if (which >= 20) o.form = which & 1 ? ATTN_FORM_PERFORMER : ATTN_FORM_LINEAR;
        if (which == 21) o.features = 600, o.decoder_width = 128; /* the most room: the decoder's own attention */
        if (which == 23) o.form = ATTN_FORM_LINFORMER, o.projected = 16;
        if (which >= 16 && which < 20) o.recurrence = which & 2 ? ATTN_RECURRENCE_TANH : ATTN_RECURRENCE_LSTM;
        snprintf(name, sizeof name, "small %d", which);
        train(name, &o, 6, 48, ATTN_OPTIMIZER_ADAM, which < 16 ? 30 : 40); /* the last are smaller: the least block weighs more */
        decode(name, &o, 6, 48, 30);
        infer(name, &o, 6, 48, 30);
        within_cap(&o, 6, 48);
    }
}

/* where one part outweighs the rest: the handles of many small layers, the choice of a token, the blocks of one long sequence */
static void test_lopsided_models(void **state)
{
    (void)state;
    attn_transformer_options recurrent = model_options(1, 8); /* more states than rows */
    recurrent.recurrence = ATTN_RECURRENCE_LSTM;
    recurrent.width = 64;
    decode("many states", &recurrent, 64, 4, 60); /* what planning takes is in the caps of the context alone */
    decode("many keys", &recurrent, 2, 1000, 60);
    attn_transformer_options directions = model_options(0, 1); /* a Performer's 4 MB beside little else */
    directions.target_vocabulary = 11;
    directions.form = ATTN_FORM_PERFORMER;
    directions.width = 128;
    directions.heads = 1;
    directions.features = 8192;
    infer("many directions", &directions, 1, 3, 40);
    decode("many directions", &directions, 1, 4, 40);
    attn_transformer_options o = model_options(0, 60);
    o.source_vocabulary = o.target_vocabulary = 150000; /* more scratch than the least block */
    train("many layers", &o, 2, 16, ATTN_OPTIMIZER_ADAM, 5);
    o = model_options(0, 1);
    o.source_vocabulary = o.target_vocabulary = 50000;
    decode("many tokens", &o, 2, 16, 5);
    o = model_options(1, 1);
    o.source_vocabulary = o.target_vocabulary = 11;
    train("long", &o, 1, 900, ATTN_OPTIMIZER_ADAM, 60);
    o = model_options(0, 1);
    o.form = ATTN_FORM_LINEAR;
    o.width = 64;
    o.heads = 2;
    o.key_heads = 1;
    train("many sums", &o, 200, 1, ATTN_OPTIMIZER_ADAM, 60);
}

/* The reference backend computes in rows of double, in the scratch. */
static void test_reference(void **state)
{
    (void)state;
    backend = ATTN_BACKEND_REFERENCE;
    for (int which = 0; which < 4; which++) {
        attn_transformer_options o = model_options(which & 1, 1);
        o.width = 16;
        o.target_vocabulary = which & 2 ? 3000 : 40;
        o.context = 30;
        o.tie = ATTN_TIE_NONE;
        train("reference", &o, 3, 30, ATTN_OPTIMIZER_ADAM, 1000);
        decode("reference", &o, 3, 30, 1000);
    }
    backend = ATTN_BACKEND_BLAS;
}

/* A reserve made after steps, or after a smaller one, comes to the same as one made before: what steps hold is given back first. */
static void test_late_reserve(void **state)
{
    (void)state;
    enum { COUNT = 16, LENGTH = 48 };
    attn_transformer_options o = model_options(0, 4);
    o.width = 128;
    o.feed_forward = 512;
    o.context = LENGTH;
    for (int late = 0; late < 3; late++) {
        session s;
        attn_trainer *trainer = NULL;
        open_session(&s, &o, COUNT, LENGTH, 0, 1);
        OK(s.ctx, attn_trainer_create(s.ctx, s.model, NULL, NULL, NULL, NULL, &trainer));
        if (late == 2) OK(s.ctx, attn_trainer_reserve(s.ctx, trainer, LENGTH, LENGTH / 2));
        for (int i = 0; late > 0 && i < 3; i++) OK(s.ctx, attn_trainer_step(s.ctx, trainer, &s.batch.batch, NULL));
        OK(s.ctx, attn_context_reset_peak(s.ctx));
        OK(s.ctx, attn_trainer_reserve(s.ctx, trainer, COUNT * LENGTH, LENGTH));
        int64_t allocations = model_allocations(s.ctx);
        OK(s.ctx, attn_trainer_step(s.ctx, trainer, &s.batch.batch, NULL));
        assert_int_equal(model_allocations(s.ctx), allocations);
        /* two arenas that grew by themselves may keep a block of the least size, a MiB, for what needs less */
        int64_t peak = memory_of(s.ctx).peak, most = s.training.peak_bytes + (late > 0 ? 2 << 20 : 0);
        if (peak > most || peak < s.training.peak_bytes / 100 * 95)
            fail_msg("case %d: %lld bytes against %lld foretold", late, (long long)peak, (long long)s.training.peak_bytes);
        attn_trainer_free(trainer);
        close_session(&s);
    }
}

/* within the reserve: shorter sequences, fewer rows, pieces of a larger batch of the data set, masks of layers */
static void test_first_step_allocates_nothing(void **state)
{
    (void)state;
    enum { TOKENS = 4000 };
    static int32_t text[TOKENS];
    for (int i = 0; i < TOKENS; i++) text[i] = i % 11;
    for (int which = 0; which < 8; which++) {
        attn_transformer_options o = model_options(0, 2);
        attn_trainer_options t;
        attn_dataset_options d;
        attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 2, 0);
        attn_transformer *model = model_create(ctx, &o);
        attn_dataset *dataset = NULL;
        attn_trainer *trainer = NULL;
        attn_mask *mask = NULL;
        OK(ctx, attn_dataset_options_init(&d, sizeof d));
        d.batch = which & 4 ? 200 : 8;
        d.context = which & 1 ? 100 : 16;
        OK(ctx, attn_dataset_tokens(ctx, text, TOKENS, &d, &dataset));
        OK(ctx, attn_mask_window(ctx, ATTN_ALIGN_LAST, 3, 0, which & 2 ? 7 : 1, &mask));
        OK(ctx, attn_transformer_set_mask(ctx, model, 1, -1, mask));
        OK(ctx, attn_trainer_options_init(&t, sizeof t));
        if (which & 4) t.micro_rows = 2 * d.context;
        t.accumulate = 2;
        OK(ctx, attn_trainer_create(ctx, model, dataset, NULL, NULL, &t, &trainer));
        OK(ctx, attn_trainer_reserve(ctx, trainer, which & 4 ? 2 * d.context : 8 * d.context, d.context));
        int64_t allocations = model_allocations(ctx);
        for (int i = 0; i < 3; i++) {
            OK(ctx, attn_trainer_step(ctx, trainer, NULL, NULL));
            if (model_allocations(ctx) != allocations) fail_msg("case %d: step %d allocates", which, i);
        }
        attn_trainer_free(trainer);
        attn_dataset_free(dataset);
        attn_mask_free(mask);
        attn_transformer_free(model);
        attn_context_free(ctx);
    }
}

/* Reports take their records from the allocator of the context, within its cap, and give them back. */
static void test_records_of_a_report(void **state)
{
    (void)state;
    test_allocator counted;
    memset(&counted, 0, sizeof counted);
    attn_context *ctx = model_context_counted(&counted, ATTN_BACKEND_BLAS, 1);
    attn_transformer_options o = model_options(1, 2);
    attn_cost_report r = {.struct_size = sizeof r};
    OK(ctx, attn_transformer_memory(ctx, &o, 1, 48, 16, &r)); /* the context's scratch exists */
    long long calls = counted.calls, live = counted.live_bytes;
    attn_memory_report before = memory_of(ctx);
    OK(ctx, attn_transformer_memory(ctx, &o, 1, 48, 16, &r));
    assert_true(counted.calls > calls);
    assert_true(counted.live_bytes == live);
    attn_memory_report after = memory_of(ctx);
    assert_memory_equal(&before, &after, sizeof before);
    counted.only_once = 1;
    for (int at = 1;; at++) {
        counted.fail_at = counted.calls + at;
        attn_status status = attn_transformer_memory(ctx, &o, 1, 48, 16, &r);
        assert_true(counted.live_bytes == live);
        if (status == ATTN_OK) break;
        FAILS(ctx, status, ATTN_ERROR_OUT_OF_MEMORY, "memory");
        assert_true(at < 10000);
    }
    attn_context_free(ctx);
    assert_int_equal(counted.live_pointers, 0);

    attn_context_options c;
    assert_int_equal(attn_context_options_init(&c, sizeof c), ATTN_OK);
    c.threads = 1;
    c.memory_cap = 40000;
    assert_int_equal(attn_context_create(&c, &ctx), ATTN_OK);
    FAILS(ctx, attn_transformer_memory(ctx, &o, 1, 48, 16, &r), ATTN_ERROR_MEMORY_CAP, "cap of 40000 bytes");
    attn_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bench_configurations), cmocka_unit_test(test_small_models),
                                       cmocka_unit_test(test_lopsided_models),      cmocka_unit_test(test_reference),
                                       cmocka_unit_test(test_late_reserve),         cmocka_unit_test(test_first_step_allocates_nothing),
                                       cmocka_unit_test(test_records_of_a_report)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    printf("memory: %lld configurations of the bench within 5 %%, %lld of %lld peaks foretold\n", (long long)configurations,
           (long long)within, (long long)compared);
    return failed;
}
