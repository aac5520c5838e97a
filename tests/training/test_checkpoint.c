#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "fixture.h"
#include "formats/digest.h"
#include "formats/safetensors.h"

/* Saving and restoring a trainer: what is restored goes on bit for bit, and what does not fit leaves the trainer whole. */
static const char PATH[] = "training_checkpoint.safetensors", OTHER[] = "training_checkpoint_other.safetensors";

static training_options variant(int which)
{
    training_options o = training_defaults();
    if (which == 1) o.trainer.accumulate = 3;
    if (which == 2) {
        o.backend = ATTN_BACKEND_REFERENCE;
        o.dtype = ATTN_FLOAT64;
        o.order = ATTN_ORDER_SEQUENTIAL;
    }
    if (which == 3) {
        o.schedule.schedule = ATTN_SCHEDULE_CONSTANT;
        o.schedule.warmup = 0;
        o.optimizer.beta1 = 0.5; /* the powers of the betas follow from the step */
        o.optimizer.beta2 = 0.9;
        o.trainer.micro_rows = 7;
    }
    return o;
}

static void test_continues_bit_for_bit(void **state)
{
    (void)state;
    for (int which = 0; which < 4; which++)
        for (int threads = 1; threads <= 2; threads++) {
            training_options o = variant(which);
            training whole, first, second;
            o.threads = threads;
            training_open(&whole, &o);
            training_open(&first, &o);
            training_steps(&first, 3);
            training_steps(&whole, 3);
            if (which == 3) {
                OK(whole.ctx, attn_optimizer_set_rate(whole.ctx, attn_trainer_optimizer(whole.trainer), 0.1 / 3));
                OK(first.ctx, attn_optimizer_set_rate(first.ctx, attn_trainer_optimizer(first.trainer), 0.1 / 3));
            }
            OK(first.ctx, attn_trainer_save(first.ctx, first.trainer, 0, NULL, NULL, PATH));
            assert_true(training_same(&first, &whole)); /* saving changes nothing */
            o.threads = 3 - threads;                    /* and the number of threads may change */
            training_open(&second, &o);
            training_steps(&second, 1); /* whatever it did before */
            OK(second.ctx, attn_trainer_restore(second.ctx, second.trainer, PATH));
            assert_int_equal(attn_trainer_steps(second.trainer), 3);
            assert_true(training_same(&second, &whole));
            for (int i = 0; i < 4; i++) {
                training_steps(&whole, 1);
                training_steps(&second, 1);
                assert_true(training_same(&second, &whole));
                assert_true(second.report.loss == whole.report.loss && second.report.rate == whole.report.rate);
            }
            training_close(&whole);
            training_close(&first);
            training_close(&second);
        }
}

/* updates that were skipped count as steps and not as updates, in the file too: the powers of the betas follow from the updates */
static void test_continues_after_a_skipped_update(void **state)
{
    (void)state;
    training_options o = variant(3);
    training whole, second;
    training_open(&whole, &o);
    training_open(&second, &o);
    attn_tensor *weight = attn_parameters_tensor(whole.parameters, 0);
    const double kept = model_get(weight, 0);
    model_set(weight, 0, NAN); /* tied logits see every row */
    training_steps(&whole, 1);
    assert_int_equal(whole.report.skipped, 1);
    model_set(weight, 0, kept);
    training_steps(&whole, 1);
    assert_int_equal(whole.report.skipped, 0);
    OK(whole.ctx, attn_trainer_save(whole.ctx, whole.trainer, 0, NULL, NULL, PATH));
    OK(second.ctx, attn_trainer_restore(second.ctx, second.trainer, PATH));
    for (int i = 0; i < 3; i++) {
        assert_true(training_same(&second, &whole));
        training_steps(&whole, 1);
        training_steps(&second, 1);
    }
    assert_true(training_same(&second, &whole));
    training_close(&whole);
    training_close(&second);
}

static void *bytes_of(const char *path, long *size)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *size = ftell(file);
    rewind(file);
    char *data = malloc((size_t)*size + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, (size_t)*size, file), (size_t)*size);
    fclose(file);
    return data;
}

static void write_bytes(const char *path, const void *data, long size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, (size_t)size, file), (size_t)size);
    assert_int_equal(fclose(file), 0);
}

/* the same state gives the same file */
static void test_files_are_equal(void **state)
{
    (void)state;
    training_options o = training_defaults();
    training t;
    long a_size, b_size;
    training_open(&t, &o);
    training_steps(&t, 2);
    OK(t.ctx, attn_trainer_save(t.ctx, t.trainer, 0, NULL, NULL, PATH));
    training_steps(&t, 2);
    OK(t.ctx, attn_trainer_restore(t.ctx, t.trainer, PATH));
    OK(t.ctx, attn_trainer_save(t.ctx, t.trainer, 0, NULL, NULL, OTHER));
    void *a = bytes_of(PATH, &a_size), *b = bytes_of(OTHER, &b_size);
    assert_int_equal(a_size, b_size);
    assert_memory_equal(a, b, (size_t)a_size);
    free(a);
    free(b);
    training_close(&t);
}

/* a trainer with these options refuses the checkpoint of the default ones, and is what it was */
static void refuses(const training_options *o, attn_status status, const char *word)
{
    training t, still;
    training_open(&t, o);
    training_open(&still, o);
    training_steps(&t, 2);
    training_steps(&still, 2);
    FAILS(t.ctx, attn_trainer_restore(t.ctx, t.trainer, PATH), status, word);
    assert_true(training_same(&t, &still));
    training_steps(&t, 1);
    training_steps(&still, 1);
    assert_true(training_same(&t, &still));
    training_close(&t);
    training_close(&still);
}

static void test_mismatch(void **state)
{
    (void)state;
    training_options o = training_defaults();
    training t;
    training_open(&t, &o);
    training_steps(&t, 1);
    OK(t.ctx, attn_trainer_save(t.ctx, t.trainer, 0, NULL, NULL, PATH));
    training_close(&t);
    o.model.width = 16;
    refuses(&o, ATTN_ERROR_MISMATCH, "width");
    o = training_defaults();
    o.model.decoder_layers = 1;
    refuses(&o, ATTN_ERROR_MISMATCH, "decoder_layers");
    o = training_defaults();
    o.model.dropout_sublayer = 0.1;
    refuses(&o, ATTN_ERROR_MISMATCH, "dropout_sublayer");
    o = training_defaults();
    o.backend = ATTN_BACKEND_REFERENCE;
    o.dtype = ATTN_FLOAT64;
    refuses(&o, ATTN_ERROR_MISMATCH, "dtype");
    o = training_defaults();
    o.trainer.seed = 2;
    refuses(&o, ATTN_ERROR_MISMATCH, "seed");
    o = training_defaults();
    o.batch = 2;
    refuses(&o, ATTN_ERROR_MISMATCH, "data set");
    o = training_defaults();
    o.order = ATTN_ORDER_SEQUENTIAL;
    refuses(&o, ATTN_ERROR_MISMATCH, "data set");
}

/* everything of the file once more, but for some text of the options; with a tensor too many */
static void write_again(attn_context *ctx, const char *without, int extra)
{
    const int64_t one = 1;
    const float number = 1;
    attn__file *file = NULL;
    attn__writer *writer = NULL;
    OK(ctx, attn__file_open(ctx, PATH, &file));
    OK(ctx, attn__writer_create(ctx, &writer));
    char *data = malloc((size_t)file->data_bytes);
    assert_non_null(data);
    for (int64_t i = 0; i < file->metadata_count; i++) {
        const char *key = file->metadata[i].key;
        char *value = strdup(file->metadata[i].value);
        char *at = without != NULL && strcmp(key, "attn.options") == 0 ? strstr(value, without) : NULL;
        if (at != NULL) memmove(at, at + strlen(without), strlen(at + strlen(without)) + 1);
        assert_true(at != NULL || without == NULL || strcmp(key, "attn.options") != 0);
        if (strcmp(key, "attn.digest") != 0) OK(ctx, attn__writer_metadata(ctx, writer, key, value));
        free(value);
    }
    for (int64_t i = 0; i < file->count; i++) {
        const attn__file_entry *e = &file->entries[i];
        OK(ctx, attn__file_read(ctx, file, i, data + e->begin, e->end - e->begin));
        OK(ctx, attn__writer_tensor(ctx, writer, e->name, e->dtype, e->rank, e->shape, data + e->begin));
    }
    if (extra) OK(ctx, attn__writer_tensor(ctx, writer, "extra.weight", ATTN_FLOAT32, 1, &one, &number));
    OK(ctx, attn__writer_seal(ctx, writer, "attn.digest"));
    OK(ctx, attn__file_write(ctx, writer, PATH));
    attn__writer_free(writer);
    attn__file_close(file);
    free(data);
}

static void test_broken_files(void **state)
{
    (void)state;
    training_options o = training_defaults();
    training t;
    long size;
    training_open(&t, &o);
    training_steps(&t, 1);
    OK(t.ctx, attn_trainer_save(t.ctx, t.trainer, 0, NULL, NULL, PATH));
    char *data = bytes_of(PATH, &size);
    const long cuts[] = {0, 7, 8, 100, size / 2, size - 1};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        write_bytes(PATH, data, cuts[i]);
        refuses(&o, ATTN_ERROR_BAD_FILE, PATH);
    }
    /* a counter that is no number; a moment under another name */
    const struct {
        const char *from, *to;
        attn_status status;
        const char *word;
    } edits[] = {
        {"steps\\\":1", "steps\\\":x", ATTN_ERROR_BAD_FILE, "JSON"},
        {"steps\\\":1", "stfps\\\":1", ATTN_ERROR_BAD_FILE, "attn.trainer"},
        {"optimizer.first_moment.decoder.final_norm.bias", "optimizer.first_moment.decoder.final_norm.bi_s", ATTN_ERROR_MISMATCH,
         "final_norm.bias"},
        {"\"decoder.final_norm.bias", "\"decoder.final_norm.bi_s", ATTN_ERROR_MISMATCH, "final_norm.bias"},
        {"\"attn.options\"", "\"attn.optionz\"", ATTN_ERROR_BAD_FILE, "attn.options"},
        {"embedding.weight\":{\"dtype\":\"F32\"", "embedding.weight\":{\"dtype\":\"I32\"", ATTN_ERROR_MISMATCH, "another shape or type"},
        {"\"shape\":[11,8]", "\"shape\":[8,11]", ATTN_ERROR_MISMATCH, "another shape or type"},
        {"\"shape\":[11,8]", "\"shape\":[88]  ", ATTN_ERROR_MISMATCH, "another shape or type"}};
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        char *copy = malloc((size_t)size), *at;
        memcpy(copy, data, (size_t)size);
        at = memmem(copy, (size_t)size, edits[i].from, strlen(edits[i].from));
        assert_non_null(at);
        memcpy(at, edits[i].to, strlen(edits[i].to));
        write_bytes(PATH, copy, size);
        refuses(&o, edits[i].status, edits[i].word);
        free(copy);
    }
    /* an option that the version which saved it did not know: what follows from the others, as in a model without it */
    write_bytes(PATH, data, size);
    write_again(t.ctx, "\"features\":16,", 0);
    OK(t.ctx, attn_trainer_restore(t.ctx, t.trainer, PATH));
    write_bytes(PATH, data, size);
    write_again(t.ctx, NULL, 1);
    refuses(&o, ATTN_ERROR_MISMATCH, "extra.weight");
    free(data);
    OK(t.ctx, attn_transformer_save(t.ctx, t.model, 0, NULL, NULL, PATH)); /* a model is no checkpoint */
    refuses(&o, ATTN_ERROR_BAD_FILE, "attn.trainer");
    assert_int_equal(unlink(PATH), 0);
    refuses(&o, ATTN_ERROR_IO, PATH);
    FAILS(t.ctx, attn_trainer_save(t.ctx, t.trainer, 0, NULL, NULL, "no/such/folder/file"), ATTN_ERROR_IO, "no/such/folder");
    training_close(&t);
}

/* the trainer's state in the file, escaped as a string of JSON: another text in its place, filled up by spaces */
static void put_state(char *data, long size, const char *text)
{
    char *at = memmem(data, (size_t)size, "{\\\"steps", 8), *end = memmem(at, (size_t)(size - (at - data)), "}\"", 2);
    for (; *text != 0; text++) {
        if (*text == '"') *at++ = '\\';
        *at++ = *text;
    }
    assert_true(at <= end + 1);
    while (at <= end) *at++ = ' ';
}

#define COUNTERS "{\"steps\":1,\"updates\":1,\"cursor\":4,"
#define BITS "\"0000000000000001\""
static void test_broken_state(void **state)
{
    static const char *const texts[] = {"{\"steps\":-1}",
                                        "{\"steps\":\"1\"}",
                                        "{\"steps\":4611686018427387904}",
                                        "{\"steps\":1,\"updates\":-1}",
                                        "{\"steps\":1,\"updates\":1}",
                                        COUNTERS "\"data\":" BITS "}",
                                        COUNTERS "\"seed\":\"1\"}",
                                        COUNTERS "\"seed\":\"000000000000000x\"}",
                                        COUNTERS "\"seed\":\"0000000000000001x\",\"data\":" BITS ",\"rate\":" BITS "}",
                                        COUNTERS "\"seed\":" BITS "}",
                                        COUNTERS "\"seed\":" BITS ",\"data\":" BITS "}",
                                        COUNTERS "\"seed\":" BITS ",\"data\":" BITS ",\"rate\":\"bff0000000000000\"}",
                                        COUNTERS "\"seed\":" BITS ",\"data\":" BITS ",\"rate\":\"7ff0000000000000\"}",
                                        COUNTERS "\"seed\":" BITS ",\"data\":" BITS ",\"rate\":\"7ff8000000000000\"}"};
    (void)state;
    training_options o = training_defaults();
    training t;
    long size;
    training_open(&t, &o);
    training_steps(&t, 10); /* the state's text is a little longer than those above */
    OK(t.ctx, attn_trainer_save(t.ctx, t.trainer, 0, NULL, NULL, PATH));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char *copy = bytes_of(PATH, &size);
        put_state(copy, size, texts[i]);
        write_bytes(OTHER, copy, size);
        FAILS(t.ctx, attn_trainer_restore(t.ctx, t.trainer, OTHER), ATTN_ERROR_BAD_FILE, "attn.trainer");
        free(copy);
    }
    training_close(&t);
}

/* a place that no data set has is the file's fault, whoever made its digest fit; the last one there is can be gone on from */
static void test_place_past_the_last(void **state)
{
    (void)state;
    training_options o = training_defaults();
    training t;
    long size;
    training_open(&t, &o);
    OK(t.ctx, attn__dataset_seek(t.ctx, t.dataset, ATTN__MOST_CURSOR));
    OK(t.ctx, attn_trainer_save(t.ctx, t.trainer, 0, NULL, NULL, PATH));
    OK(t.ctx, attn_trainer_restore(t.ctx, t.trainer, PATH));
    char *data = bytes_of(PATH, &size), *cursor = memmem(data, (size_t)size, "cursor\\\":2", 10);
    char *digest = memmem(data, (size_t)size, "attn.digest", 11);
    assert_true(cursor != NULL && digest != NULL);
    cursor[9] = '3';
    memcpy(digest, "note", 4);
    write_bytes(OTHER, data, size);
    FAILS(t.ctx, attn_trainer_restore(t.ctx, t.trainer, OTHER), ATTN_ERROR_BAD_FILE, "attn.trainer");
    free(data);
    training_close(&t);
}

/* a restore that runs out of memory has not happened either */
static void test_without_memory(void **state)
{
    (void)state;
    training_options o = training_defaults();
    training before, after;
    training_open(&before, &o);
    training_open(&after, &o);
    training_steps(&after, 3);
    OK(after.ctx, attn_trainer_save(after.ctx, after.trainer, 0, NULL, NULL, PATH));
    training_steps(&before, 1);
    test_allocator counted;
    training t;
    memset(&counted, 0, sizeof counted);
    memset(&t, 0, sizeof t);
    t.ctx = model_context_counted(&counted, o.backend, o.threads);
    training_build(&t, &o);
    training_steps(&t, 1);
    counted.only_once = 1;
    for (int at = 1;; at++) {
        counted.fail_at = counted.calls + at;
        attn_status status = attn_trainer_restore(t.ctx, t.trainer, PATH);
        int reached = counted.calls >= counted.fail_at;
        counted.fail_at = 0;
        if (status == ATTN_OK && !reached) break;
        if (status == ATTN_OK) continue; /* it got by with less */
        assert_int_equal(status, ATTN_ERROR_OUT_OF_MEMORY);
        assert_true(training_same(&t, &before));
        counted.fail_at = counted.calls + at;
        status = attn_trainer_save(t.ctx, t.trainer, 0, NULL, NULL, OTHER);
        counted.fail_at = 0;
        if (status != ATTN_OK) assert_int_equal(status, ATTN_ERROR_OUT_OF_MEMORY);
    }
    assert_true(training_same(&t, &after));
    training_close(&t);
    assert_int_equal(counted.live_pointers, 0);
    training_close(&before);
    training_close(&after);
}

static void test_metadata(void **state)
{
    (void)state;
    training_options o = training_defaults();
    training t;
    char text[64];
    int64_t bytes = 0;
    const char *const keys[2] = {"vocabulary", "note"}, *const values[2] = {"{\"a\": \"\\u00e9\"}", "two\nlines"},
                      *const bad[1] = {"attn.options"};
    training_open(&t, &o);
    OK(t.ctx, attn_trainer_save(t.ctx, t.trainer, 2, keys, values, PATH));
    OK(t.ctx, attn_file_metadata(t.ctx, PATH, "note", sizeof text, text, &bytes));
    assert_string_equal(text, "two\nlines");
    assert_int_equal(bytes, 10);
    FAILS(t.ctx, attn_file_metadata(t.ctx, PATH, "note", 9, text, &bytes), ATTN_ERROR_FULL, "capacity");
    FAILS(t.ctx, attn_file_metadata(t.ctx, PATH, "nothing", 9, text, &bytes), ATTN_ERROR_END_OF_DATA, "nothing");
    FAILS(t.ctx, attn_trainer_save(t.ctx, t.trainer, 1, bad, values, PATH), ATTN_ERROR_INVALID_ARGUMENT, "attn.");
    /* the weights of a checkpoint are a model */
    attn_transformer *model = NULL;
    OK(t.ctx, attn_transformer_load(t.ctx, PATH, NULL, &model));
    assert_true(model_same_bits(attn_transformer_parameters(model), t.parameters));
    assert_string_equal(attn_transformer_metadata(model, "vocabulary"), values[0]);
    attn_transformer_free(model);
    training_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_continues_bit_for_bit),
                                       cmocka_unit_test(test_continues_after_a_skipped_update),
                                       cmocka_unit_test(test_files_are_equal),
                                       cmocka_unit_test(test_mismatch),
                                       cmocka_unit_test(test_broken_files),
                                       cmocka_unit_test(test_broken_state),
                                       cmocka_unit_test(test_place_past_the_last),
                                       cmocka_unit_test(test_without_memory),
                                       cmocka_unit_test(test_metadata)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
