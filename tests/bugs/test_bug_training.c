/* Training, files and generation: faults of other libraries as test cases. */
#include "bug.h"
#include "formats/safetensors.h"
#include "generation/generator.h"
#include "models/transformer_file.h"
#include "training/trainer.h"

static const char PATH[] = "bug_cases.safetensors";

/* micro-batches of unequal sizes: each has `count` tokens whose loss is `loss`; the mean counts tokens, not batches */
static void accumulated(const int64_t count[2], const double loss[2], double want)
{
    attn_tensor *w = tensor(SHAPE(2, 1), NUMBERS(0, 1)), *whole = tensor(SHAPE(2, 1), NULL), *parts = tensor(SHAPE(2, 1), NULL);
    double sum = 0;
    int64_t tokens = 0;
    for (int pieces = 1; pieces <= 2; pieces++) {
        attn_tape *tape = tape_open(1, 0);
        attn_tensor *x[2], *y[2], *z[2], *labels[2];
        OK(ctx, attn_tape_watch(ctx, tape, w, pieces == 1 ? whole : parts));
        for (int i = 0; i < pieces; i++) {
            int64_t rows = pieces == 1 ? count[0] + count[1] : count[i];
            attn_loss_report r = {.struct_size = sizeof r};
            x[i] = tensor(SHAPE(rows, 1), NULL);
            y[i] = tensor(SHAPE(rows, 2), NULL);
            z[i] = tensor(SHAPE(1), NULL);
            labels[i] = model_tensor(ctx, ATTN_INT32, rows, 0);
            for (int64_t row = 0; row < rows; row++) model_set(x[i], row, log(expm1(loss[pieces == 1 ? row >= count[0] : i])));
            OK(ctx, attn_linear(ctx, tape, x[i], w, NULL, y[i]));
            OK(ctx, attn_cross_entropy(ctx, tape, y[i], labels[i], NULL, z[i], &r));
            sum += pieces == 2 ? r.sum : 0;
            tokens += pieces == 2 ? r.count : 0;
        }
        const attn_tensor *outputs[] = {z[0], z[pieces - 1]};
        OK(ctx, attn_tape_backward(ctx, tape, pieces, outputs, NULL, 0, NULL));
        attn_tape_free(tape);
        for (int i = 0; i < pieces; i++) FREE(x[i], y[i], z[i], labels[i]);
    }
    if (!(fabs(sum / (double)tokens - want) < 1e-5)) fail_msg("mean loss %g, expected %g", sum / (double)tokens, want);
    for (int i = 0; i < 2; i++) near_to(parts, i, model_get(whole, i), 1e-6 * fabs(model_get(whole, i)) + 1e-6);
    FREE(w, whole, parts);
}
static void accumulation(void)
{
    accumulated((const int64_t[]){1, 3}, (const double[]){4, 2}, 2.5); /* B067 */
    accumulated((const int64_t[]){2, 4}, (const double[]){3, 6}, 5.0); /* B068 */
}
static void test_B067_B068_accumulation(void **state)
{
    (void)state;
    on_both(accumulation);
}

/* batches of other lengths do not wipe what was gathered */
static void gathered(void)
{
    const int64_t of[] = {4, 6, 4};
    attn_transformer_options o = model_options(0, 1);
    attn_transformer *model = model_create(ctx, &o);
    attn_parameters *p = attn_transformer_parameters(model);
    attn_gradients *one, *all;
    OK(ctx, attn_gradients_create(ctx, p, &one));
    OK(ctx, attn_gradients_create(ctx, p, &all));
    int64_t n = model_elements(attn_gradients_flat(all));
    double *sum = calloc((size_t)n, sizeof *sum);
    assert_non_null(sum);
    for (int i = 0; i < 3; i++) {
        model_batch b;
        attn_tensor *loss = tensor(SHAPE(1), NULL);
        model_batch_open(ctx, &b, &o, 1, &of[i], &of[i], (uint64_t)i + 1);
        for (int alone = 0; alone < 2; alone++) {
            attn_tape *tape = tape_open(1, 0);
            const attn_tensor *outputs[] = {loss};
            OK(ctx, attn_transformer_loss(ctx, model, tape, &b.batch, NULL, loss, NULL));
            OK(ctx, attn_tape_backward(ctx, tape, 1, outputs, NULL, 1, alone ? &one : &all));
            attn_tape_free(tape);
        }
        for (int64_t e = 0; e < n; e++) sum[e] += model_get(attn_gradients_flat(one), e);
        OK(ctx, attn_gradients_zero(ctx, one));
        model_batch_close(&b);
        attn_tensor_free(loss);
    }
    for (int64_t e = 0; e < n; e++) near_to(attn_gradients_flat(all), e, sum[e], 1e-5);
    free(sum);
    attn_gradients_free(one);
    attn_gradients_free(all);
    attn_transformer_free(model);
}
static void test_B070_gathered(void **state)
{
    (void)state;
    on_both(gathered);
}

/* a file whose options say tied and which holds an output matrix all the same: refused, by the tensor's name */
static void test_B071_tied_and_not(void **state)
{
    (void)state;
    begin(ATTN_BACKEND_BLAS);
    attn_transformer_options o = model_options(0, 1);
    o.tie = ATTN_TIE_OUTPUT;
    attn_transformer *model = model_create(ctx, &o), *back;
    float other[11 * 8] = {2};
    attn__writer *writer;
    OK(ctx, attn__writer_create(ctx, &writer));
    OK(ctx, attn__transformer_write(ctx, writer, attn_transformer_parameters(model)));
    OK(ctx, attn__writer_tensor(ctx, writer, "output.weight", ATTN_FLOAT32, 2, (const int64_t[]){11, 8}, other));
    OK(ctx, attn__file_write(ctx, writer, PATH));
    attn__writer_free(writer);
    FAILS(ctx, attn_transformer_load(ctx, PATH, NULL, &back), ATTN_ERROR_MISMATCH, "output.weight");
    assert_null(back);
    remove(PATH);
    attn_transformer_free(model);
    end();
}

/* an output matrix of its own is used: twice the table gives twice the tied logits, bit for bit */
static void untied(void)
{
    const int64_t of[] = {5};
    attn_transformer_options o = model_options(0, 1);
    o.tie = ATTN_TIE_OUTPUT;
    attn_transformer *tied = model_create(ctx, &o);
    o.tie = ATTN_TIE_NONE;
    attn_transformer *free_one = model_create(ctx, &o);
    attn_parameters *from = attn_transformer_parameters(tied), *to = attn_transformer_parameters(free_one);
    for (int64_t i = 0; i < attn_parameters_count(to); i++) {
        const char *name = attn_parameters_name(to, i);
        int output = strcmp(name, "output.weight") == 0;
        attn_tensor *a = attn_parameters_tensor(from, attn_parameters_find(from, output ? "target_embedding.weight" : name));
        attn_tensor *b = attn_parameters_tensor(to, i);
        for (int64_t e = 0; e < model_elements(b); e++) model_set(b, e, model_get(a, e) * (output ? 2 : 1));
    }
    attn_tensor *x = tensor(SHAPE(5, 11), NULL), *y = tensor(SHAPE(5, 11), NULL);
    model_batch b;
    model_batch_open(ctx, &b, &o, 1, of, of, 1);
    OK(ctx, attn_transformer_forward(ctx, tied, NULL, &b.batch, x));
    OK(ctx, attn_transformer_forward(ctx, free_one, NULL, &b.batch, y));
    for (int i = 0; i < 55; i++) near_to(y, i, 2 * model_get(x, i), 0);
    model_batch_close(&b);
    attn_transformer_free(tied);
    attn_transformer_free(free_one);
    FREE(x, y);
}
static void test_B072_untied(void **state)
{
    (void)state;
    on_both(untied);
}

/* one number as a parameter set, at 1 */
typedef struct lone {
    attn_attention *layer;
    attn_tensor *p, *g;
    attn_gradients *gradients;
    attn_optimizer *optimizer;
    attn_optimizer_report report;
} lone;

static lone lone_open(const attn_optimizer_options *with)
{
    lone s = {.report = {.struct_size = sizeof s.report}};
    attn_attention_options o;
    OK(ctx, attn_attention_options_init(&o, sizeof o));
    o.query_width = 1;
    o.project_key = o.project_value = o.project_output = o.bias_query = 0;
    OK(ctx, attn_attention_create(ctx, &o, &s.layer));
    attn_parameters *set = attn_attention_parameters(s.layer);
    assert_int_equal(attn_parameters_elements(set), 1);
    s.p = attn_parameters_tensor(set, 0);
    model_set(s.p, 0, 1);
    OK(ctx, attn_gradients_create(ctx, set, &s.gradients));
    OK(ctx, attn_optimizer_create(ctx, set, with, &s.optimizer));
    s.g = attn_gradients_tensor(s.gradients, 0);
    return s;
}

static double lone_step(lone *s, double gradient)
{
    model_set(s->g, 0, gradient);
    OK(ctx, attn_optimizer_step(ctx, s->optimizer, s->gradients, 1, &s->report));
    return model_get(s->p, 0);
}

static void lone_close(lone *s)
{
    attn_optimizer_free(s->optimizer);
    attn_gradients_free(s->gradients);
    attn_attention_free(s->layer);
}

static attn_optimizer_options optimizer_options(int32_t kind, double rate)
{
    attn_optimizer_options o;
    OK(ctx, attn_optimizer_options_init(&o, sizeof o));
    o.optimizer = kind;
    o.rate = rate;
    return o;
}

static void clipping(void)
{
    attn_optimizer_options o = optimizer_options(ATTN_OPTIMIZER_ADAM, 0.1);
    o.clip = 1;
    lone s = lone_open(&o);
    assert_true(lone_step(&s, 0) == 1 && s.report.gradient_norm == 0 && !s.report.skipped); /* B075 */
    double before = lone_step(&s, 0.5), first, second;
    memcpy(&first, s.optimizer->first, sizeof(float));
    assert_true(lone_step(&s, INFINITY) == before && s.report.skipped == 1 && s.report.step == 2); /* B077 */
    memcpy(&second, s.optimizer->first, sizeof(float));
    assert_memory_equal(&first, &second, sizeof(float));
    assert_true(model_get(s.g, 0) == 0);
    lone_close(&s);
}
static void test_B075_B077_clipping(void **state)
{
    (void)state;
    on_both(clipping);
}

static void adam(void)
{
    attn_optimizer_options o = optimizer_options(ATTN_OPTIMIZER_ADAM, 1);
    lone s = lone_open(&o);
    assert_true(fabs(1 - lone_step(&s, 1e-8) - 0.5) < 1e-5); /* B078: epsilon outside the corrected root, Algorithm 2 */
    lone_close(&s);
    o.beta1 = 0.5;
    o.beta2 = 0.9;
    o.rate = 0.125;
    s = lone_open(&o);
    for (int t = 1; t <= 4; t++) assert_true(fabs(lone_step(&s, 1) - (1 - 0.125 * t)) < 1e-5); /* B080: both corrections cancel */
    lone_close(&s);
    o = optimizer_options(ATTN_OPTIMIZER_ADAMW, 0.1);
    o.weight_decay = 0.1;
    s = lone_open(&o);
    assert_true(fabs(lone_step(&s, 1) - 0.89) < 1e-6); /* B083 */
    lone_close(&s);
}
static void test_B078_B080_B083_adam(void **state)
{
    (void)state;
    on_both(adam);
}

/* what is spared goes by what a parameter is, not by a pattern of its name */
static void spared(void)
{
    attn_transformer_options o = model_options(1, 1);
    o.embedding_norm = o.output_bias = 1;
    attn_optimizer_options with = optimizer_options(ATTN_OPTIMIZER_ADAMW, 0.1);
    with.weight_decay = 0.1;
    with.no_decay = ATTN_NO_DECAY_BIAS | ATTN_NO_DECAY_NORM;
    attn_transformer *model = model_create(ctx, &o);
    attn_parameters *p = attn_transformer_parameters(model);
    attn_gradients *gradients;
    attn_optimizer *optimizer;
    for (int64_t i = 0; i < attn_parameters_count(p); i++)
        for (int64_t e = 0; e < model_elements(attn_parameters_tensor(p, i)); e++) model_set(attn_parameters_tensor(p, i), e, 1);
    OK(ctx, attn_gradients_create(ctx, p, &gradients));
    OK(ctx, attn_optimizer_create(ctx, p, &with, &optimizer));
    OK(ctx, attn_optimizer_step(ctx, optimizer, gradients, 1, NULL));
    for (int64_t i = 0; i < attn_parameters_count(p); i++) {
        attn_tensor *t = attn_parameters_tensor(p, i);
        for (int64_t e = 0; e < model_elements(t); e++) near_to(t, e, attn_tensor_rank(t) == 1 ? 1 : 0.99, 1e-6);
    }
    attn_optimizer_free(optimizer);
    attn_gradients_free(gradients);
    attn_transformer_free(model);
}
static void test_B082_spared(void **state)
{
    (void)state;
    on_both(spared);
}

static void test_B084_to_B088_schedules(void **state)
{
    (void)state;
    begin(ATTN_BACKEND_BLAS);
    const struct {
        int32_t schedule;
        int64_t warmup, total;
        double rate;
        int count;
        double want[6];
    } cases[] = {
        {ATTN_SCHEDULE_CONSTANT, 4, 0, 1, 5, {0.25, 0.5, 0.75, 1, 1}},              /* B084 */
        {ATTN_SCHEDULE_INVERSE_SQRT, 0, 0, 1, 4, {1, 0.70710678, 0.57735027, 0.5}}, /* B085 */
        {ATTN_SCHEDULE_LINEAR, 3, 3, 1, 5, {1.0 / 3, 2.0 / 3, 0, 0, 0}},            /* B087: no division by 0 */
        {ATTN_SCHEDULE_COSINE, 1, 1, 1, 3, {0, 0, 0}},                              /* B087 */
        {ATTN_SCHEDULE_LINEAR, 2, 6, 0.1, 6, {0.05, 0.1, 0.075, 0.05, 0.025, 0}},   /* B088: none twice, none left out */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int t = 1; t <= cases[i].count; t++) {
            attn_schedule_options o;
            double rate = NAN;
            OK(ctx, attn_schedule_options_init(&o, sizeof o));
            o.schedule = cases[i].schedule;
            o.warmup = cases[i].warmup;
            o.total = cases[i].total;
            o.rate = cases[i].rate;
            OK(ctx, attn_learning_rate(ctx, &o, t, &rate));
            if (!(fabs(rate - cases[i].want[t - 1]) < 1e-8)) fail_msg("case %zu, step %d: got %.9g", i, t, rate);
        }
    end();
}

/* shapes seen before cost no more memory (B115), and neither do steps (B117) */
static void test_B115_B117_memory_is_flat(void **state)
{
    (void)state;
    begin(ATTN_BACKEND_BLAS);
    attn_transformer_options o = model_options(0, 2);
    attn_transformer *model = model_create(ctx, &o);
    attn_trainer *trainer;
    OK(ctx, attn_trainer_create(ctx, model, NULL, NULL, NULL, NULL, &trainer));
    attn_memory_report r[2] = {{.struct_size = sizeof *r}, {.struct_size = sizeof *r}};
    for (int round = 0; round < 3; round++) {
        for (int64_t length = 1; length <= 60; length++) {
            model_batch b;
            attn_tensor *y = tensor(SHAPE(length, 11), NULL);
            model_batch_open(ctx, &b, &o, 1, &length, &length, 1);
            OK(ctx, attn_transformer_forward(ctx, model, NULL, &b.batch, y));
            OK(ctx, attn_trainer_step(ctx, trainer, &b.batch, NULL));
            model_batch_close(&b);
            attn_tensor_free(y);
        }
        if (round > 0) OK(ctx, attn_context_memory(ctx, &r[round - 1]));
    }
    assert_int_equal(r[0].live, r[1].live);
    attn_trainer_free(trainer);
    attn_transformer_free(model);
    end();
}

/* what lies behind the filled rows of a cache is never read, whatever it holds */
static void unused_rows(void)
{
    attn_transformer_options o = model_options(0, 2);
    attn_transformer *model = model_create(ctx, &o);
    for (int64_t length = 4; length <= 8; length += length == 4 ? 1 : 3) {
        attn_generator *g;
        attn_generator_options with;
        const attn_tensor *logits;
        model_batch b;
        attn_tensor *y = tensor(SHAPE(length, 11), NULL);
        OK(ctx, attn_generator_options_init(&with, sizeof with));
        with.capacity = 16;
        OK(ctx, attn_generator_create(ctx, model, &with, &g));
        for (int64_t i = 0; i < g->model.self_bytes / (int64_t)sizeof(float); i++) ((float *)g->model.self_cache)[i] = NAN;
        model_batch_open(ctx, &b, &o, 1, &length, &length, 2);
        OK(ctx, attn_transformer_forward(ctx, model, NULL, &b.batch, y));
        OK(ctx, attn_generator_prompt_tokens(ctx, g, length - 1, attn_tensor_data(b.target)));
        OK(ctx, attn_generator_accept(ctx, g, 1, (const int32_t *)attn_tensor_data(b.target) + length - 1));
        OK(ctx, attn_generator_logits(ctx, g, &logits));
        for (int c = 0; c < 11; c++) near_to(logits, c, model_get(y, (length - 1) * 11 + c), 1e-5);
        attn_generator_free(g);
        model_batch_close(&b);
        attn_tensor_free(y);
    }
    attn_transformer_free(model);
}
static void test_B132_unused_rows(void **state)
{
    (void)state;
    on_both(unused_rows);
}

/* counters and rates of a checkpoint are not trusted */
static void test_counters_of_a_checkpoint(void **state)
{
    (void)state;
    const char *const text[] = {
        "{\"steps\":9223372036854775807,\"updates\":0,\"cursor\":0,\"seed\":\"0000000000000001\",\"data\":\"0000000000000000\",\"rate\":\"3f50624dd2f1a9fc\"}",
        "{\"steps\":1,\"updates\":1,\"cursor\":0,\"seed\":\"0000000000000001\",\"data\":\"0000000000000000\",\"rate\":\"7ff8000000000000\"}"};
    begin(ATTN_BACKEND_BLAS);
    attn_transformer_options o = model_options(0, 1);
    attn_transformer *model = model_create(ctx, &o);
    attn_trainer *trainer;
    OK(ctx, attn_trainer_create(ctx, model, NULL, NULL, NULL, NULL, &trainer));
    for (int i = 0; i < 2; i++) {
        attn__writer *writer;
        OK(ctx, attn__writer_create(ctx, &writer));
        OK(ctx, attn__transformer_write(ctx, writer, attn_transformer_parameters(model)));
        OK(ctx, attn__writer_metadata(ctx, writer, "attn.trainer", text[i]));
        OK(ctx, attn__file_write(ctx, writer, PATH));
        attn__writer_free(writer);
        FAILS(ctx, attn_trainer_restore(ctx, trainer, PATH), ATTN_ERROR_BAD_FILE, i == 0 ? "counter" : "rate");
        assert_int_equal(attn_trainer_steps(trainer), 0);
    }
    remove(PATH);
    attn_trainer_free(trainer);
    attn_transformer_free(model);
    end();
}

/* data that is not aligned to its elements */
static void test_B104_unaligned_data(void **state)
{
    (void)state;
    static const char header[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                                 "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[1,9]}}";
    const uint8_t length[8] = {sizeof header - 1};
    const float numbers[2] = {1.5f, -2};
    float got[2] = {0, 0};
    begin(ATTN_BACKEND_BLAS);
    FILE *f = fopen(PATH, "wb");
    assert_non_null(f);
    fwrite(length, 1, 8, f);
    fwrite(header, 1, sizeof header - 1, f);
    fputc(7, f);
    fwrite(numbers, sizeof *numbers, 2, f);
    fclose(f);
    attn__file *file;
    OK(ctx, attn__file_open(ctx, PATH, &file));
    OK(ctx, attn__file_read(ctx, file, attn__file_find(file, "b"), got, sizeof got));
    assert_true(got[0] == 1.5f && got[1] == -2);
    attn__file_close(file);
    remove(PATH);
    end();
}

/* unknown numbers in every enumeration: an error that names the field */
static void test_B163_unknown_numbers(void **state)
{
    (void)state;
    begin(ATTN_BACKEND_BLAS);
    const int32_t wrong[] = {-1, 99, INT32_MAX, INT32_MIN};
    for (int i = 0; i < 4; i++) {
        attn_attention_options a;
        attn_attention *layer;
        const struct {
            int32_t *field;
            const char *name;
            attn_status status;
        } fields[] = {{&a.dtype, "dtype", ATTN_ERROR_DTYPE},
                      {&a.score, "score", ATTN_ERROR_INVALID_ARGUMENT},
                      {&a.initialisation, "initialisation", ATTN_ERROR_INVALID_ARGUMENT},
                      {&a.project_key, "project_key", ATTN_ERROR_INVALID_ARGUMENT},
                      {&a.derive_scale, "derive_scale", ATTN_ERROR_INVALID_ARGUMENT}};
        for (int f = 0; f < 5; f++) {
            OK(ctx, attn_attention_options_init(&a, sizeof a));
            a.query_width = 4;
            *fields[f].field = wrong[i];
            FAILS(ctx, attn_attention_create(ctx, &a, &layer), fields[f].status, fields[f].name);
        }
        attn_schedule_options s;
        double rate;
        OK(ctx, attn_schedule_options_init(&s, sizeof s));
        s.schedule = wrong[i];
        FAILS(ctx, attn_learning_rate(ctx, &s, 1, &rate), ATTN_ERROR_INVALID_ARGUMENT, "schedule");
        s.schedule = 0;
        s.reserved = wrong[i];
        FAILS(ctx, attn_learning_rate(ctx, &s, 1, &rate), ATTN_ERROR_INVALID_ARGUMENT, "reserved");
        attn_mask *mask = NULL;
        FAILS(ctx, attn_mask_causal(ctx, wrong[i], &mask), ATTN_ERROR_INVALID_ARGUMENT, "alignment");
        FAILS(ctx, attn_context_set_backend(ctx, wrong[i]), ATTN_ERROR_INVALID_ARGUMENT, "backend");
    }
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_B067_B068_accumulation),
        cmocka_unit_test(test_B070_gathered),
        cmocka_unit_test(test_B071_tied_and_not),
        cmocka_unit_test(test_B072_untied),
        cmocka_unit_test(test_B075_B077_clipping),
        cmocka_unit_test(test_B078_B080_B083_adam),
        cmocka_unit_test(test_B082_spared),
        cmocka_unit_test(test_B084_to_B088_schedules),
        cmocka_unit_test(test_B115_B117_memory_is_flat),
        cmocka_unit_test(test_B132_unused_rows),
        cmocka_unit_test(test_B104_unaligned_data),
        cmocka_unit_test(test_B163_unknown_numbers),
        cmocka_unit_test(test_counters_of_a_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
