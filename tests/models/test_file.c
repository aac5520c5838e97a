#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* after the headers it needs */
#include <cmocka.h>
#include "formats/safetensors.h"
#include "tensor/parameters.h"
#include "variants.h"

static const char PATH[] = "models_file.safetensors";
static attn_context *ctx;

static attn_transformer *load(const attn_load_options *o)
{
    attn_transformer *model = NULL;
    OK(ctx, attn_transformer_load(ctx, PATH, o, &model));
    return model;
}

/* every variant comes back with the same bits and the same options */
static void test_round_trip(void **state)
{
    (void)state;
    for (int i = 0; i < VARIANTS; i++) {
        attn_transformer_options o = variant_options(&variants[i], ATTN_FLOAT32, 0.125), a = {.struct_size = sizeof a}, b = a;
        o.norm_epsilon = 0.1 / 3; /* all 53 bits */
        attn_transformer *model = model_create(ctx, &o), *again;
        OK(ctx, attn_transformer_save(ctx, model, 0, NULL, NULL, PATH));
        again = load(NULL);
        assert_true(model_same_bits(attn_transformer_parameters(model), attn_transformer_parameters(again)));
        OK(ctx, attn_transformer_get_options(ctx, model, &a));
        OK(ctx, attn_transformer_get_options(ctx, again, &b));
        assert_memory_equal(&a, &b, sizeof a);
        for (int64_t p = 0; p < attn_parameters_count(attn_transformer_parameters(model)); p++)
            assert_string_equal(attn_parameters_name(attn_transformer_parameters(model), p),
                                attn_parameters_name(attn_transformer_parameters(again), p));
        attn_transformer_free(model);
        attn_transformer_free(again);
    }
}

static void test_metadata(void **state)
{
    (void)state;
    const char *const keys[3] = {"vocabulary", "", "attn"}, *const values[3] = {"{\"a\": 1}\n\"\\", "an empty key", ""};
    const char *const bad_keys[1] = {"attn.options"}, *const twice[2] = {"a", "a"};
    attn_transformer_options o = model_options(0, 1);
    attn_transformer *model = model_create(ctx, &o), *again;
    OK(ctx, attn_transformer_save(ctx, model, 3, keys, values, PATH));
    again = load(NULL);
    for (int i = 0; i < 3; i++) assert_string_equal(attn_transformer_metadata(again, keys[i]), values[i]);
    assert_null(attn_transformer_metadata(again, "other"));
    assert_null(attn_transformer_metadata(again, NULL));
    assert_null(attn_transformer_metadata(NULL, "attn"));
    FAILS(ctx, attn_transformer_save(ctx, model, 1, bad_keys, values, PATH), ATTN_ERROR_INVALID_ARGUMENT, "attn.");
    FAILS(ctx, attn_transformer_save(ctx, model, 1, NULL, values, PATH), ATTN_ERROR_INVALID_ARGUMENT, "keys");
    FAILS(ctx, attn_transformer_save(ctx, model, -1, keys, values, PATH), ATTN_ERROR_INVALID_ARGUMENT, "count");
    FAILS(ctx, attn_transformer_save(ctx, model, 2, twice, values, PATH), ATTN_ERROR_INVALID_ARGUMENT, "a");
    FAILS(ctx, attn_transformer_save(ctx, model, 0, NULL, NULL, NULL), ATTN_ERROR_INVALID_ARGUMENT, "path");
    FAILS(ctx, attn_transformer_save(ctx, model, 0, NULL, NULL, "no/such/folder/model"), ATTN_ERROR_IO, "no/such/folder");
    attn_transformer *whole = load(NULL); /* the file survived all that */
    attn_transformer_free(whole);
    attn_transformer_free(again);
    attn_transformer_free(model);
}

static void test_metadata_memory(void **state)
{
    (void)state;
    const char *const keys[2] = {"ab", "a"}, *const values[2] = {"of ab", "of a"}; /* the beginning of a key is not the key */
    test_allocator allocator = {0};
    attn_context *counted = model_context_counted(&allocator, ATTN_BACKEND_BLAS, 1);
    attn_transformer_options o = model_options(0, 1);
    attn_transformer *model = model_create(counted, &o), *again = NULL;
    for (int turn = 0; turn < 2; turn++) {
        const char *const turned[2] = {keys[turn], keys[!turn]}, *const texts[2] = {values[turn], values[!turn]};
        OK(counted, attn_transformer_save(counted, model, 2, turned, texts, PATH));
        OK(counted, attn_transformer_load(counted, PATH, NULL, &again));
        for (int i = 0; i < 2; i++) assert_string_equal(attn_transformer_metadata(again, keys[i]), values[i]);
        attn_transformer_free(again);
    }
    attn_transformer_free(model);
    attn_context_free(counted);
    assert_true(allocator.wrong == 0 && allocator.live_pointers == 0);
}

static void test_dtype(void **state)
{
    (void)state;
    attn_transformer_options o = model_options(1, 1);
    attn_load_options l;
    OK(ctx, attn_load_options_init(&l, sizeof l));
    attn_transformer *narrow = model_create(ctx, &o), *wide, *back;
    OK(ctx, attn_transformer_save(ctx, narrow, 0, NULL, NULL, PATH));
    attn_context *reference = model_context(ATTN_BACKEND_REFERENCE, 1, 0);
    l.dtype = ATTN_FLOAT64;
    OK(reference, attn_transformer_load(reference, PATH, &l, &wide));
    attn_parameters *n = attn_transformer_parameters(narrow), *w = attn_transformer_parameters(wide);
    for (int64_t i = 0; i < attn_parameters_count(n); i++) {
        attn_tensor *t = attn_parameters_tensor(w, i);
        assert_int_equal(attn_tensor_dtype(t), ATTN_FLOAT64);
        for (int64_t e = 0; e < model_elements(t); e++) {
            assert_true(model_get(t, e) == model_get(attn_parameters_tensor(n, i), e));
            model_set(t, e, model_get(t, e) * (1 + 0x1p-40)); /* rounds back to what it was */
        }
    }
    OK(reference, attn_transformer_save(reference, wide, 0, NULL, NULL, PATH));
    FAILS(ctx, attn_transformer_load(ctx, PATH, NULL, &back), ATTN_ERROR_UNSUPPORTED, "float64"); /* as creating one is, with BLAS */
    assert_null(back);
    OK(reference, attn_transformer_load(reference, PATH, NULL, &back)); /* float64 as in the file */
    assert_true(model_same_bits(w, attn_transformer_parameters(back)));
    attn_transformer_free(back);
    l.dtype = ATTN_FLOAT32;
    back = load(&l);
    assert_true(model_same_bits(n, attn_transformer_parameters(back)));
    attn_transformer_free(wide);
    l.dtype = ATTN_INT32;
    FAILS(ctx, attn_transformer_load(ctx, PATH, &l, &wide), ATTN_ERROR_DTYPE, "dtype");
    assert_null(wide);
    attn_transformer_free(back);
    attn_transformer_free(narrow);
    attn_context_free(reference);
}

/* numbers of another type are read aside, one parameter's at a time: never half a file of many layers */
static void test_dtype_memory(void **state)
{
    (void)state;
    attn_transformer_options o = model_options(0, 8);
    attn_load_options l;
    attn_memory_report before = {.struct_size = sizeof before}, after = before;
    o.width = 128;
    o.feed_forward = 512;
    OK(ctx, attn_load_options_init(&l, sizeof l));
    attn_transformer *narrow = model_create(ctx, &o), *wide;
    const int64_t elements = attn_parameters_elements(attn_transformer_parameters(narrow));
    OK(ctx, attn_transformer_save(ctx, narrow, 0, NULL, NULL, PATH));
    attn_context *reference = model_context(ATTN_BACKEND_REFERENCE, 1, 0);
    l.dtype = ATTN_FLOAT64;
    OK(reference, attn_context_memory(reference, &before));
    OK(reference, attn_transformer_load(reference, PATH, &l, &wide));
    OK(reference, attn_context_memory(reference, &after));
    assert_in_range(after.peak - before.live, elements * 8, elements * (8 + 4 / 2));
    attn_transformer_free(wide);
    attn_transformer_free(narrow);
    attn_context_free(reference);
}

/* writes the model's file by hand: with one parameter left out, of another shape or type, or one too many */
enum { NOTHING, LEAVE_OUT, RESHAPE, WIDEN, NEST, INTEGERS, ADD, ADD_OPTIMIZER, ADD_ALIKE, FLATTEN };
enum { NO_OPTIONS = FLATTEN + 1, BAD_OPTIONS, BAD_VALUE, BAD_JSON };
static void write_by_hand(const attn_transformer *model, int what, const char *options)
{
    attn__writer *writer = NULL;
    attn_parameters *p = attn_transformer_parameters(model);
    void *wide = NULL;
    OK(ctx, attn__writer_create(ctx, &writer));
    if (what != NO_OPTIONS) OK(ctx, attn__writer_metadata(ctx, writer, "attn.options", options));
    for (int64_t i = 0; i < attn_parameters_count(p); i++) {
        attn_tensor *t = attn_parameters_tensor(p, i);
        int64_t shape[4] = {attn_tensor_extent(t, 0), attn_tensor_extent(t, 1)};
        int32_t rank = attn_tensor_rank(t);
        const void *data = attn_tensor_data(t);
        if (what == LEAVE_OUT && i == 3) continue;
        if (what == RESHAPE && i == 0) {
            shape[0] = model_elements(t);
            rank = 1;
        }
        if (what == FLATTEN && i == 0) rank = 0;
        if (what == NEST && i == 0) shape[rank++] = 1; /* the same elements in an array of arrays */
        if (what == WIDEN && i == 0) {                 /* the first extent and the rank are the model's */
            shape[1] *= 2;
            data = wide = calloc(2 * (size_t)model_elements(t), sizeof(float));
        }
        OK(ctx, attn__writer_tensor(ctx, writer, attn_parameters_name(p, i), what == INTEGERS && i == 0 ? ATTN_INT32 : ATTN_FLOAT32, rank,
                                    shape, data));
    }
    const int64_t one = 1;
    const float extra = 1;
    if (what == ADD) OK(ctx, attn__writer_tensor(ctx, writer, "extra.weight", ATTN_FLOAT32, 1, &one, &extra));
    if (what == ADD_ALIKE) OK(ctx, attn__writer_tensor(ctx, writer, "optimizers.extra", ATTN_FLOAT32, 1, &one, &extra));
    if (what == ADD_OPTIMIZER) OK(ctx, attn__writer_tensor(ctx, writer, "optimizer.first_moment.extra", ATTN_FLOAT32, 1, &one, &extra));
    OK(ctx, attn__file_write(ctx, writer, PATH));
    attn__writer_free(writer);
    free(wide);
}

/* what the file lacks is what a new model has there */
static void expect_started(attn_transformer *got, const attn_transformer_options *o, int64_t index)
{
    attn_transformer *made = NULL;
    OK(ctx, attn_transformer_create(ctx, o, &made));
    attn_tensor *a = attn_parameters_tensor(attn_transformer_parameters(made), index),
                *b = attn_parameters_tensor(attn_transformer_parameters(got), index);
    assert_true(model_get(a, 0) != 0);
    for (int64_t e = 0; e < model_elements(a); e++) assert_true(model_get(a, e) == model_get(b, e));
    attn_transformer_free(made);
}

static void test_strict(void **state)
{
    (void)state;
    attn_transformer_options o = model_options(0, 1);
    attn_transformer *model = model_create(ctx, &o), *got = NULL;
    attn_parameters *p = attn_transformer_parameters(model);
    attn__file *file = NULL;
    attn_load_options loose;
    OK(ctx, attn_load_options_init(&loose, sizeof loose));
    loose.strict = 0;
    OK(ctx, attn_transformer_save(ctx, model, 0, NULL, NULL, PATH));
    OK(ctx, attn__file_open(ctx, PATH, &file));
    char *options = strdup(attn__file_metadata(file, "attn.options")), *bad = strdup(options), *value = strdup(options);
    attn__file_close(file);
    memcpy(strstr(bad, "\"width\""), "\"wydth\"", 7);
    memcpy(strstr(value, "\"width\":8"), "\"width\":0", 9);
    const struct {
        int what;
        const char *options;
        attn_status strict, loose;
        const char *word;
    } cases[] = {{NOTHING, options, ATTN_OK, ATTN_OK, ""},
                 {LEAVE_OUT, options, ATTN_ERROR_MISMATCH, ATTN_OK, attn_parameters_name(p, 3)},
                 {ADD, options, ATTN_ERROR_MISMATCH, ATTN_OK, "extra.weight"},
                 {ADD_OPTIMIZER, options, ATTN_OK, ATTN_OK, ""}, /* a checkpoint is a model too */
                 {ADD_ALIKE, options, ATTN_ERROR_MISMATCH, ATTN_OK, "optimizers.extra"},
                 {RESHAPE, options, ATTN_ERROR_MISMATCH, ATTN_ERROR_MISMATCH, attn_parameters_name(p, 0)},
                 {WIDEN, options, ATTN_ERROR_MISMATCH, ATTN_ERROR_MISMATCH, attn_parameters_name(p, 0)},
                 {NEST, options, ATTN_ERROR_MISMATCH, ATTN_ERROR_MISMATCH, attn_parameters_name(p, 0)},
                 {FLATTEN, options, ATTN_ERROR_MISMATCH, ATTN_ERROR_MISMATCH, "rank 0 and first extent 1"},
                 {INTEGERS, options, ATTN_ERROR_MISMATCH, ATTN_ERROR_MISMATCH, attn_parameters_name(p, 0)},
                 {NO_OPTIONS, options, ATTN_ERROR_BAD_FILE, ATTN_ERROR_BAD_FILE, "attn.options"},
                 {BAD_OPTIONS, bad, ATTN_ERROR_BAD_FILE, ATTN_ERROR_BAD_FILE, "wydth"},
                 {BAD_VALUE, value, ATTN_ERROR_BAD_FILE, ATTN_ERROR_BAD_FILE, "width"},
                 {BAD_VALUE, "{\"width\":\"8\"}", ATTN_ERROR_BAD_FILE, ATTN_ERROR_BAD_FILE, "width is no integer"},
                 {BAD_VALUE, "{\"width\":8.5}", ATTN_ERROR_BAD_FILE, ATTN_ERROR_BAD_FILE, "width is no integer"},
                 {BAD_VALUE, "{\"norm_epsilon\":true}", ATTN_ERROR_BAD_FILE, ATTN_ERROR_BAD_FILE, "norm_epsilon is no number"},
                 {BAD_VALUE, "{\"norm_epsilon\":1,\"dtype\":99}", ATTN_ERROR_BAD_FILE, ATTN_ERROR_BAD_FILE, "dtype: got 99"},
                 {BAD_JSON, "{", ATTN_ERROR_BAD_FILE, ATTN_ERROR_BAD_FILE, PATH},
                 {BAD_JSON, "[1]", ATTN_ERROR_BAD_FILE, ATTN_ERROR_BAD_FILE, "object"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_by_hand(model, cases[i].what, cases[i].options);
        for (int l = 0; l < 2; l++) {
            attn_status want = l ? cases[i].loose : cases[i].strict;
            FAILS(ctx, attn_transformer_load(ctx, PATH, l ? &loose : NULL, &got), want, want == ATTN_OK ? "" : cases[i].word);
            assert_int_equal(got != NULL, want == ATTN_OK);
            if (want == ATTN_OK && cases[i].what != LEAVE_OUT) assert_true(model_same_bits(attn_transformer_parameters(got), p));
            if (want == ATTN_OK && cases[i].what == LEAVE_OUT) expect_started(got, &o, 3);
            attn_transformer_free(got);
        }
    }
    free(options);
    free(bad);
    free(value);
    attn_transformer_free(model);
}

static void test_broken_files(void **state)
{
    (void)state;
    attn_transformer_options o = model_options(1, 1);
    attn_transformer *model = model_create(ctx, &o), *got = NULL;
    static char data[65536];
    OK(ctx, attn_transformer_save(ctx, model, 0, NULL, NULL, PATH));
    FILE *file = fopen(PATH, "rb");
    assert_non_null(file);
    size_t size = fread(data, 1, sizeof data, file);
    fclose(file);
    assert_true(size > 1000 && size < sizeof data);
    const size_t cuts[] = {0, 1, 8, 9, 500, size / 2, size - 1};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        file = fopen(PATH, "wb");
        assert_int_equal(fwrite(data, 1, cuts[i], file), cuts[i]);
        fclose(file);
        FAILS(ctx, attn_transformer_load(ctx, PATH, NULL, &got), ATTN_ERROR_BAD_FILE, PATH);
        assert_null(got);
    }
    assert_int_equal(unlink(PATH), 0);
    FAILS(ctx, attn_transformer_load(ctx, PATH, NULL, &got), ATTN_ERROR_IO, PATH);
    FAILS(ctx, attn_transformer_load(ctx, NULL, NULL, &got), ATTN_ERROR_INVALID_ARGUMENT, "path");
    attn_transformer_free(model);
}

static int setup(void **state)
{
    (void)state;
    ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    attn_context_free(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip),      cmocka_unit_test(test_metadata),
                                       cmocka_unit_test(test_metadata_memory), cmocka_unit_test(test_dtype),
                                       cmocka_unit_test(test_dtype_memory),    cmocka_unit_test(test_strict),
                                       cmocka_unit_test(test_broken_files)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
