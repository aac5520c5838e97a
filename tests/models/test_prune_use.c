#include "formats/safetensors.h"
#include "generation/generator.h"
#include "pruned.h"
#include "tensor/parameters.h"
#include "training/trainer.h"

/* A model that heads were taken out of, in use: files, generation, training and its checkpoints, reports, weights. */
#define PATH "models_prune_use.safetensors"

static void expect_same_heads(attn_context *ctx, const attn_transformer *a, const attn_transformer *b, const pruned_case *c)
{
    for (int32_t d = 0; d < 2; d++)
        for (int64_t layer = 0; layer < c->layers[d]; layer++) {
            int64_t x[PRUNED_HEADS], y[PRUNED_HEADS], counts[2];
            OK(ctx, attn_transformer_heads(ctx, a, d, layer, PRUNED_HEADS, x, &counts[0]));
            OK(ctx, attn_transformer_heads(ctx, b, d, layer, PRUNED_HEADS, y, &counts[1]));
            assert_int_equal(counts[0], counts[1]);
            assert_memory_equal(x, y, (size_t)counts[0] * sizeof *x);
        }
}

static void test_files(void **state)
{
    (void)state;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    for (int i = 0; i < PRUNED_CASES; i++) {
        const pruned_case *c = &pruned_cases[i];
        attn_transformer_options o = pruned_options(c, ATTN_FLOAT32), got = {.struct_size = sizeof got};
        attn_transformer *whole = model_create(ctx, &o), *pruned = pruned_of(ctx, whole, c), *again = NULL;
        char text[256] = "";
        int64_t bytes;
        OK(ctx, attn_transformer_save(ctx, whole, 0, NULL, NULL, PATH));
        FAILS(ctx, attn_file_metadata(ctx, PATH, "attn.heads", sizeof text, text, &bytes), ATTN_ERROR_END_OF_DATA, "attn.heads");
        OK(ctx, attn_transformer_save(ctx, pruned, 0, NULL, NULL, PATH));
        OK(ctx, attn_file_metadata(ctx, PATH, "attn.heads", sizeof text, text, &bytes));
        if (i == 2) assert_string_equal(text, "{\"decoder.layers.0\":[1,2,3],\"decoder.layers.2\":[0,3]}");
        OK(ctx, attn_transformer_load(ctx, PATH, NULL, &again));
        assert_true(model_same_bits(attn_transformer_parameters(pruned), attn_transformer_parameters(again)));
        expect_same_heads(ctx, pruned, again, c);
        OK(ctx, attn_transformer_get_options(ctx, again, &got));
        assert_int_equal(got.heads, c->heads); /* the number at creation */
        attn_transformer_free(whole);
        attn_transformer_free(pruned);
        attn_transformer_free(again);
    }
    remove(PATH);
    attn_context_free(ctx);
}

/* the parameters of a model, with another word about its heads; counters: of a checkpoint, or NULL */
static void claim(attn_context *ctx, const attn_transformer *model, const char *options, const char *heads, const char *counters)
{
    const attn_parameters *set = attn_transformer_parameters(model);
    attn__writer *writer = NULL;
    OK(ctx, attn__writer_create(ctx, &writer));
    OK(ctx, attn__writer_metadata(ctx, writer, "attn.options", options));
    OK(ctx, attn__writer_metadata(ctx, writer, "attn.heads", heads));
    if (counters != NULL) OK(ctx, attn__writer_metadata(ctx, writer, "attn.trainer", counters));
    for (int64_t i = 0; i < set->count; i++) {
        const attn__parameter *p = &set->at[i];
        OK(ctx, attn__writer_tensor(ctx, writer, p->name, set->dtype, p->rank, p->shape, attn__parameters_view(set, i).data));
    }
    OK(ctx, attn__file_write(ctx, writer, PATH));
    attn__writer_free(writer);
}

static void test_claims(void **state)
{
    static const struct {
        const char *heads;
        attn_status status;
        const char *word;
    } cases[] = {
        {"{\"decoder.layers.1\":[0,1]}", ATTN_OK, ""},
        {"{\"decoder.layers.1\":[2,3]}", ATTN_OK, ""}, /* nothing in the file says which they were */
        {"{\"decoder.layers.0\":[0,1]}", ATTN_ERROR_MISMATCH, "decoder.layers.0"},
        {"{\"decoder.layers.0\":[0,1],\"decoder.layers.1\":[0,1]}", ATTN_ERROR_MISMATCH, "decoder.layers.0"},
        {"{\"decoder.layers.1\":[0,1,2,3]}", ATTN_ERROR_BAD_FILE, "has 4 heads, expected 1 to 3"},
        {"{\"decoder.layers.1\":[]}", ATTN_ERROR_BAD_FILE, "has 0 heads"},
        {"{\"decoder.layers.1\":[1,0]}", ATTN_ERROR_BAD_FILE, "rising"},
        {"{\"decoder.layers.1\":[0,0]}", ATTN_ERROR_BAD_FILE, "rising"},
        {"{\"decoder.layers.1\":[2,4]}", ATTN_ERROR_BAD_FILE, "rising"},
        {"{\"decoder.layers.1\":[-1,0]}", ATTN_ERROR_BAD_FILE, "rising"},
        {"{\"decoder.layers.1\":[0,1.0]}", ATTN_ERROR_BAD_FILE, "rising"},
        {"{\"decoder.layers.1\":[0,\"1\"]}", ATTN_ERROR_BAD_FILE, "rising"},
        {"{\"decoder.layers.1\":[0,2]}", ATTN_ERROR_BAD_FILE, "a part of a group"},
        {"{\"decoder.layers.1\":[1,2]}", ATTN_ERROR_BAD_FILE, "a part of a group"},
        {"{\"decoder.layers.1\":[0]}", ATTN_ERROR_BAD_FILE, "a part of a group"},
        {"{\"decoder.layers.1\":0}", ATTN_ERROR_BAD_FILE, "has 0 heads"},
        {"{\"decoder.layers.2\":[0,1]}", ATTN_ERROR_BAD_FILE, "a layer of the model"},
        {"{\"decoder.layers.01\":[0,1]}", ATTN_ERROR_BAD_FILE, "a layer of the model"},
        {"{\"decoder.layers.-1\":[0,1]}", ATTN_ERROR_BAD_FILE, "a layer of the model"},
        {"{\"decoder.layers.99999999999999999999\":[0,1]}", ATTN_ERROR_BAD_FILE, "a layer of the model"},
        {"{\"encoder.layers.0\":[0,1]}", ATTN_ERROR_BAD_FILE, "a layer of the model"},
        {"{\"decoder\":[0,1]}", ATTN_ERROR_BAD_FILE, "a layer of the model"},
        {"{\"\":[0,1]}", ATTN_ERROR_BAD_FILE, "a layer of the model"},
        {"{}", ATTN_ERROR_BAD_FILE, "object of layers"},
        {"[]", ATTN_ERROR_BAD_FILE, "object of layers"},
        {"", ATTN_ERROR_BAD_FILE, PATH},
        {"{\"decoder.layers.1\":[0,1],\"decoder.layers.1\":[0,1]}", ATTN_ERROR_BAD_FILE, PATH},
    };
    static const int64_t gone[2][3] = {{1, 1, 2}, {1, 1, 3}};
    test_allocator allocator = {0};
    (void)state;
    attn_context *ctx = model_context_counted(&allocator, ATTN_BACKEND_BLAS, 1);
    attn_transformer_options o = model_options(0, 2);
    o.width = 16;
    o.heads = 4;
    o.key_heads = 2;
    attn_transformer *whole = model_create(ctx, &o), *pruned = NULL, *got = NULL;
    OK(ctx, attn_transformer_prune_heads(ctx, whole, 2, &gone[0][0], &pruned));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        claim(
            ctx, pruned,
            "{\"encoder_layers\":0,\"decoder_layers\":2,\"width\":16,\"heads\":4,\"key_heads\":2,\"feed_forward\":12,\"source_vocabulary\":11}",
            cases[i].heads, NULL);
        FAILS(ctx, attn_transformer_load(ctx, PATH, NULL, &got), cases[i].status, cases[i].word);
        assert_true((got != NULL) == (cases[i].status == ATTN_OK));
        attn_transformer_free(got);
    }
    remove(PATH);
    attn_transformer_free(whole);
    attn_transformer_free(pruned);
    attn_context_free(ctx);
    assert_true(allocator.wrong == 0 && allocator.live_pointers == 0);
}

/* layers may stand in any order */
static void test_claims_order(void **state)
{
    static const char *const orders[3] = {
        "{\"encoder.layers.0\":[1],\"encoder.layers.1\":[0],\"decoder.layers.0\":[0],\"decoder.layers.1\":[1]}",
        "{\"decoder.layers.1\":[1],\"decoder.layers.0\":[0],\"encoder.layers.1\":[0],\"encoder.layers.0\":[1]}",
        "{\"decoder.layers.0\":[0],\"encoder.layers.1\":[0],\"decoder.layers.1\":[1],\"encoder.layers.0\":[1]}"};
    static const int64_t gone[4][3] = {{0, 0, 0}, {0, 1, 1}, {1, 0, 1}, {1, 1, 0}};
    (void)state;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    const attn_transformer_options o = model_options(2, 2);
    attn_transformer *whole = model_create(ctx, &o), *pruned = NULL;
    char options[2048];
    int64_t bytes;
    assert_int_equal(o.heads, 2);
    OK(ctx, attn_transformer_prune_heads(ctx, whole, 4, &gone[0][0], &pruned));
    OK(ctx, attn_transformer_save(ctx, whole, 0, NULL, NULL, PATH));
    OK(ctx, attn_file_metadata(ctx, PATH, "attn.options", sizeof options, options, &bytes));
    for (int i = 0; i < 3; i++) {
        attn_transformer *got = NULL;
        claim(ctx, pruned, options, orders[i], NULL);
        OK(ctx, attn_transformer_load(ctx, PATH, NULL, &got));
        for (int l = 0; l < 4; l++) {
            int64_t head = -1, count = 0;
            OK(ctx, attn_transformer_heads(ctx, got, (int32_t)gone[l][0], gone[l][1], 1, &head, &count));
            assert_true(count == 1 && head == 1 - gone[l][2]);
        }
        attn_transformer_free(got);
    }
    remove(PATH);
    attn_transformer_free(whole);
    attn_transformer_free(pruned);
    attn_context_free(ctx);
}

/* token by token from the caches, as from the beginning */
static void test_generation(void **state)
{
    const int64_t source[2] = {3, 5}, target[2] = {2, 2};
    (void)state;
    for (int i = 0; i < PRUNED_CASES; i++) {
        const pruned_case *c = &pruned_cases[i];
        if (c->layers[1] == 0) continue; /* nothing to generate with */
        attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 2, 0);
        attn_transformer_options o = pruned_options(c, ATTN_FLOAT32);
        attn_generator_options g;
        attn_generator *generator = NULL;
        attn_transformer *whole = model_create(ctx, &o), *pruned = pruned_of(ctx, whole, c);
        model_batch batch, longer;
        const int64_t lengths[2] = {7, 7};
        OK(ctx, attn_generator_options_init(&g, sizeof g));
        g.sequences = 2;
        g.capacity = 10;
        model_batch_open(ctx, &batch, &o, 2, source, target, 4);
        model_batch_open(ctx, &longer, &o, 2, source, lengths, 4);
        for (int s = 0; s < 2; s++) /* the same beginnings */
            for (int t = 0; t < 2; t++) model_set(longer.target, 7 * s + t, model_get(batch.target, 2 * s + t));
        for (int64_t r = 0; longer.source != NULL && r < 8; r++) model_set(longer.source, r, model_get(batch.source, r));
        attn_tensor *all = model_tensor(ctx, ATTN_FLOAT32, 14, 11);
        OK(ctx, attn_transformer_forward(ctx, pruned, NULL, &longer.batch, all));
        OK(ctx, attn_generator_create(ctx, pruned, &g, &generator));
        OK(ctx, attn_generator_prompt(ctx, generator, &batch.batch));
        int64_t before = 0;
        for (int t = 1; t < 7; t++) {
            const attn_tensor *logits = NULL;
            OK(ctx, attn_generator_logits(ctx, generator, &logits));
            for (int s = 0; s < 2; s++)
                for (int v = 0; v < 11; v++)
                    if (!(fabs(model_get(logits, 11 * s + v) - model_get(all, (7 * s + t) * 11 + v)) < 1e-5))
                        fail_msg("%s: token %d of sequence %d differs from the cache", c->name, t, s);
            if (t == 3) before = model_allocations(ctx);
            const int32_t next[2] = {(int32_t)model_get(longer.target, t + 1 < 7 ? t + 1 : 0),
                                     (int32_t)model_get(longer.target, 7 + (t + 1 < 7 ? t + 1 : 0))};
            OK(ctx, attn_generator_accept(ctx, generator, 2, next));
        }
        assert_int_equal(model_allocations(ctx), before); /* what decoding takes was known beforehand */
        attn_generator_free(generator);
        attn_tensor_free(all);
        model_batch_close(&batch);
        model_batch_close(&longer);
        attn_transformer_free(whole);
        attn_transformer_free(pruned);
        attn_context_free(ctx);
    }
}

typedef struct run {
    attn_transformer *model;
    attn_dataset *data;
    attn_trainer *trainer;
    attn_trainer_report report;
} run;

static void open_run(attn_context *ctx, const attn_transformer *whole, const attn_transformer_options *o, const int64_t *gone, run *r)
{
    int32_t tokens[300];
    attn_dataset_options d;
    attn_trainer_options t;
    attn_optimizer_options optimizer;
    attn_schedule_options s;
    memset(r, 0, sizeof *r);
    for (int i = 0; i < 300; i++) tokens[i] = i * i % 11;
    OK(ctx, attn_dataset_options_init(&d, sizeof d));
    OK(ctx, attn_trainer_options_init(&t, sizeof t));
    OK(ctx, attn_optimizer_options_init(&optimizer, sizeof optimizer));
    OK(ctx, attn_schedule_options_init(&s, sizeof s));
    s.schedule = ATTN_SCHEDULE_CONSTANT;
    s.rate = 1e-2;
    d.context = 8;
    d.batch = 4;
    if (gone != NULL)
        OK(ctx, attn_transformer_prune_heads(ctx, whole, 1, gone, &r->model));
    else
        OK(ctx, attn_transformer_create(ctx, o, &r->model));
    OK(ctx, attn_dataset_tokens(ctx, tokens, 300, &d, &r->data));
    OK(ctx, attn_trainer_create(ctx, r->model, r->data, &optimizer, &s, &t, &r->trainer));
    OK(ctx, attn_trainer_reserve(ctx, r->trainer, 32, 8));
    OK(ctx, attn_trainer_report_init(&r->report, sizeof r->report));
}

static void close_run(run *r)
{
    attn_trainer_free(r->trainer);
    attn_dataset_free(r->data);
    attn_transformer_free(r->model);
}

static void test_training(void **state)
{
    static const int32_t positions[3] = {ATTN_POSITIONS_T5, ATTN_POSITIONS_ALIBI, ATTN_POSITIONS_ROTARY};
    static const int64_t gone[3] = {1, 0, 1}, other[3] = {1, 0, 0};
    (void)state;
    for (int i = 0; i < 3; i++) {
        attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 2, 0);
        attn_transformer_options o = model_options(0, 2);
        o.positions = positions[i];
        o.norm_placement = ATTN_PLACEMENT_PRE;
        o.dropout_attention = 0.1;
        attn_transformer *whole = NULL;
        OK(ctx, attn_transformer_create(ctx, &o, &whole));
        run a, b, c, d;
        open_run(ctx, whole, &o, gone, &a);
        open_run(ctx, whole, &o, gone, &b);
        open_run(ctx, whole, &o, other, &c);
        open_run(ctx, whole, &o, NULL, &d);
        OK(ctx, attn_trainer_step(ctx, a.trainer, NULL, &a.report));
        const double first = a.report.loss;
        const int64_t allocations = model_allocations(ctx);
        for (int s = 0; s < 30; s++) OK(ctx, attn_trainer_step(ctx, a.trainer, NULL, &a.report));
        assert_int_equal(model_allocations(ctx), allocations); /* the first step brought all that training takes */
        assert_true(a.report.loss < 0.8 * first);
        OK(ctx, attn_trainer_save(ctx, a.trainer, 0, NULL, NULL, PATH));
        FAILS(ctx, attn_trainer_restore(ctx, c.trainer, PATH), ATTN_ERROR_MISMATCH, "other heads");
        FAILS(ctx, attn_trainer_restore(ctx, d.trainer, PATH), ATTN_ERROR_MISMATCH, "other heads");
        OK(ctx, attn_trainer_restore(ctx, b.trainer, PATH));
        for (int s = 0; s < 2; s++) {
            OK(ctx, attn_trainer_step(ctx, a.trainer, NULL, &a.report));
            OK(ctx, attn_trainer_step(ctx, b.trainer, NULL, &b.report));
        }
        assert_true(model_same_bits(attn_transformer_parameters(a.model), attn_transformer_parameters(b.model)));
        close_run(&a);
        close_run(&b);
        close_run(&c);
        close_run(&d);
        attn_transformer_free(whole);
        attn_context_free(ctx);
    }
    remove(PATH);
}

static attn_trainer *trainer_of(attn_context *ctx, attn_transformer *model)
{
    attn_trainer_options t;
    attn_optimizer_options optimizer;
    attn_schedule_options s;
    attn_trainer *trainer = NULL;
    OK(ctx, attn_trainer_options_init(&t, sizeof t));
    OK(ctx, attn_optimizer_options_init(&optimizer, sizeof optimizer));
    OK(ctx, attn_schedule_options_init(&s, sizeof s));
    s.schedule = ATTN_SCHEDULE_CONSTANT;
    s.rate = 1e-2;
    OK(ctx, attn_trainer_create(ctx, model, NULL, &optimizer, &s, &t, &trainer));
    return trainer;
}

/* a checkpoint's heads must be the model's: how many layers lost some, of which stack, which layer, how many heads, and which */
static void test_checkpoint_heads(void **state)
{
    static const int64_t gone[3] = {1, 0, 1};
    static const struct {
        int64_t count, gone[2][3];
        attn_status status;
    } others[7] = {{1, {{1, 0, 1}}, ATTN_OK},
                   {2, {{1, 0, 1}, {1, 1, 1}}, ATTN_ERROR_MISMATCH},
                   {2, {{0, 0, 1}, {1, 0, 1}}, ATTN_ERROR_MISMATCH},
                   {1, {{0, 0, 1}}, ATTN_ERROR_MISMATCH},
                   {1, {{1, 1, 1}}, ATTN_ERROR_MISMATCH},
                   {2, {{1, 0, 1}, {1, 0, 2}}, ATTN_ERROR_MISMATCH},
                   {1, {{1, 0, 2}}, ATTN_ERROR_MISMATCH}};
    char options[2048], counters[512];
    int64_t bytes;
    test_allocator allocator = {0};
    (void)state;
    attn_context *ctx = model_context_counted(&allocator, ATTN_BACKEND_BLAS, 1);
    attn_transformer_options o = model_options(2, 2);
    o.width = 12;
    o.heads = 3;
    attn_transformer *whole = model_create(ctx, &o), *model = NULL;
    OK(ctx, attn_transformer_prune_heads(ctx, whole, 1, gone, &model));
    attn_trainer *trainer = trainer_of(ctx, model);
    OK(ctx, attn_trainer_save(ctx, trainer, 0, NULL, NULL, PATH));
    for (int i = 0; i < 7; i++) {
        attn_transformer *other = NULL;
        OK(ctx, attn_transformer_prune_heads(ctx, whole, others[i].count, &others[i].gone[0][0], &other));
        attn_trainer *reader = trainer_of(ctx, other);
        FAILS(ctx, attn_trainer_restore(ctx, reader, PATH), others[i].status, others[i].status == ATTN_OK ? "" : "other heads");
        attn_trainer_free(reader);
        attn_transformer_free(other);
    }
    OK(ctx, attn_file_metadata(ctx, PATH, "attn.options", sizeof options, options, &bytes));
    OK(ctx, attn_file_metadata(ctx, PATH, "attn.trainer", sizeof counters, counters, &bytes));
    claim(ctx, model, options, "{\"decoder.layers.0\":[2,0]}", counters); /* heads that no model has */
    FAILS(ctx, attn_trainer_restore(ctx, trainer, PATH), ATTN_ERROR_BAD_FILE, "rising");
    remove(PATH);
    attn_trainer_free(trainer);
    attn_transformer_free(model);
    attn_transformer_free(whole);
    attn_context_free(ctx);
    assert_true(allocator.wrong == 0 && allocator.live_pointers == 0);
}

/* the report of a model that is there knows what is gone from it */
static void test_cost(void **state)
{
    (void)state;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 2, 0);
    for (int i = 0; i < PRUNED_CASES; i++) {
        const pruned_case *c = &pruned_cases[i];
        attn_transformer_options o = pruned_options(c, ATTN_FLOAT32);
        attn_transformer *whole = model_create(ctx, &o), *pruned = pruned_of(ctx, whole, c);
        attn_cost_report a = {.struct_size = sizeof a}, b = a, by_options = a;
        OK(ctx, attn_transformer_model_cost(ctx, whole, 1, 24, 8, &a));
        OK(ctx, attn_transformer_memory(ctx, &o, 1, 24, 8, &by_options));
        assert_memory_equal(&a, &by_options, sizeof a);
        OK(ctx, attn_transformer_model_cost(ctx, pruned, 1, 24, 8, &b));
        assert_int_equal(b.parameters, attn_parameters_elements(attn_transformer_parameters(pruned)));
        assert_true(b.parameters < a.parameters && b.forward_formula < a.forward_formula && b.peak_bytes < a.peak_bytes);
        if (c->positions != ATTN_POSITIONS_T5) assert_true(b.forward < a.forward); /* else the columns of its table are picked */
        int64_t weights = 0;
        for (int32_t d = 0; d < 2; d++)
            for (int64_t layer = 0; layer < c->layers[d]; layer++) {
                int64_t count;
                int64_t heads[PRUNED_HEADS];
                OK(ctx, attn_transformer_heads(ctx, pruned, d, layer, PRUNED_HEADS, heads, &count));
                weights += 4 * 3 * 64 * (count + (d == 1 && c->layers[0] > 0 ? (c->decoder_heads > 0 ? c->decoder_heads : c->heads) : 0));
            }
        assert_int_equal(b.weights_bytes, weights);
        attn_transformer_free(whole);
        attn_transformer_free(pruned);
    }
    attn_context_free(ctx);
}

/* weights of the heads that are left are those they had */
static void test_inspect(void **state)
{
    const int64_t length = 5;
    (void)state;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    for (int i = 2; i < 4; i++) { /* ALiBi: layer 0 reads the same rows in both */
        const pruned_case *c = &pruned_cases[i];
        attn_transformer_options o = pruned_options(c, ATTN_FLOAT32);
        attn_transformer *whole = model_create(ctx, &o), *pruned = pruned_of(ctx, whole, c);
        model_batch batch;
        int64_t kept[PRUNED_HEADS], count;
        model_batch_open(ctx, &batch, &o, 1, &length, &length, 6);
        OK(ctx, attn_transformer_heads(ctx, pruned, 1, 0, PRUNED_HEADS, kept, &count));
        for (int64_t h = 0; h < count; h++) {
            const int64_t shape[3] = {1, length, length};
            attn_inspect_request r;
            attn_tensor *w[2] = {NULL, NULL};
            OK(ctx, attn_inspect_request_init(&r, sizeof r));
            r.part = ATTN_INSPECT_DECODER;
            for (int k = 0; k < 2; k++) {
                OK(ctx, attn_tensor_create(ctx, ATTN_FLOAT32, 3, shape, &w[k]));
                r.head = k ? h : kept[h];
                r.weights = w[k];
                OK(ctx, attn_transformer_inspect(ctx, k ? pruned : whole, &batch.batch, &r));
            }
            for (int64_t e = 0; e < length * length; e++) assert_true(fabs(model_get(w[0], e) - model_get(w[1], e)) < 1e-6);
            r.head = count;
            FAILS(ctx, attn_transformer_inspect(ctx, pruned, &batch.batch, &r), ATTN_ERROR_INVALID_ARGUMENT, "head");
            for (int k = 0; k < 2; k++) attn_tensor_free(w[k]);
        }
        model_batch_close(&batch);
        attn_transformer_free(whole);
        attn_transformer_free(pruned);
    }
    attn_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_files),        cmocka_unit_test(test_claims),
                                       cmocka_unit_test(test_claims_order), cmocka_unit_test(test_generation),
                                       cmocka_unit_test(test_training),     cmocka_unit_test(test_checkpoint_heads),
                                       cmocka_unit_test(test_cost),         cmocka_unit_test(test_inspect)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
