#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
/* after the headers it needs */
#include <cmocka.h>
#include "formats/safetensors.h"
#include "support/calls.h"
#include "support/model.h"

/* Wrong calls that save and load models, and files that claim what they do not hold. */
#define PATH "calls_files.model"
#define OTHER "calls_files.other"
RELEASE(transformer, attn_transformer_free)
RELEASE(tensor, attn_tensor_free)
THUNK(save, attn_transformer_save(a[0].p, a[1].p, a[2].i, a[3].p, a[4].p, a[5].p))
THUNK(load, attn_transformer_load(a[0].p, a[1].p, a[2].p, a[3].p))
THUNK(metadata, attn_file_metadata(a[0].p, a[1].p, a[2].p, a[3].i, a[4].p, a[5].p))
THUNK(tensor_name, attn_file_tensor_name(a[0].p, a[1].p, a[2].i, a[3].i, a[4].p, a[5].p))
THUNK(read_tensor, attn_file_read_tensor(a[0].p, a[1].p, a[2].p, a[3].p))

static const char *const keys[2] = {"a", "b"}, *const values[2] = {"1", "2"};

/* places where no file can be written or read */
static void wrong_paths(calls *t, int index)
{
    wrong_pointer(t, index, "", ATTN_ERROR_INVALID_ARGUMENT, "path");
    wrong_pointer(t, index, "no/such/folder/file", ATTN_ERROR_IO, "no/such/folder");
    wrong_pointer(t, index, ".", ATTN_ERROR_IO, ".");
}

static void saving(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    static const char *const null_key[2] = {"a", NULL}, *const reserved[2] = {"a", "attn.b"}, *const twice[2] = {"a", "a"},
                             *const no_text[2] = {"a", "\xC3("}, *const empty[2] = {"a", ""};
    (void)state;
    ROW(t, attn_transformer_save, save);
    arg_context(t);
    arg_handle(t, "model", TRANSFORMER, t->live[TRANSFORMER], 0);
    arg_number(t, "count", 2);
    arg_pointer(t, "keys", keys, 0);
    arg_pointer(t, "values", values, 0);
    arg_pointer(t, "path", PATH, 0);
    guard_parameters(t, attn_transformer_parameters(t->live[TRANSFORMER]));
    check_row(t);
    wrong_paths(t, 5);
    wrong_number(t, 2, -1, ATTN_ERROR_INVALID_ARGUMENT, "count");
    wrong_pointer(t, 3, null_key, ATTN_ERROR_INVALID_ARGUMENT, "keys");
    wrong_pointer(t, 3, reserved, ATTN_ERROR_INVALID_ARGUMENT, "keys");
    wrong_pointer(t, 3, twice, ATTN_ERROR_INVALID_ARGUMENT, "key");
    wrong_pointer(t, 3, no_text, ATTN_ERROR_INVALID_ARGUMENT, "key");
    wrong_pointer(t, 4, null_key, ATTN_ERROR_INVALID_ARGUMENT, "values");
    wrong_pointer(t, 4, no_text, ATTN_ERROR_INVALID_ARGUMENT, "value");
    accept_pointer(t, 4, empty);
    /* a refused save leaves the file as it was */
    attn_transformer *got = NULL;
    OK(t->ctx, attn_transformer_save(t->ctx, t->live[TRANSFORMER], 2, keys, values, PATH));
    FAILS(t->ctx, attn_transformer_save(t->ctx, t->live[TRANSFORMER], 2, twice, values, PATH), ATTN_ERROR_INVALID_ARGUMENT, "key");
    OK(t->ctx, attn_transformer_load(t->ctx, PATH, NULL, &got));
    assert_string_equal(attn_transformer_metadata(got, "b"), "2");
    attn_transformer_free(got);
    calls_close(t);
}

/* a file of this text, no model */
static void put_other(void)
{
    FILE *other = fopen(OTHER, "wb");
    assert_non_null(other);
    assert_true(fputs("no model at all, but long enough to be looked at", other) >= 0);
    assert_int_equal(fclose(other), 0);
}

static void loading(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    attn_load_options o;
    (void)state;
    OK(t->ctx, attn_load_options_init(&o, sizeof o));
    OK(t->ctx, attn_transformer_save(t->ctx, t->live[TRANSFORMER], 2, keys, values, PATH));
    put_other();
    ROW(t, attn_transformer_load, load);
    arg_context(t);
    arg_pointer(t, "path", PATH, 0);
    arg_options(t, "options", &o, sizeof o, sizeof o);
    arg_made(t, "out", release_transformer);
    check_row(t);
    accept_pointer(t, 2, NULL);
    wrong_paths(t, 1);
    wrong_pointer(t, 1, "calls_files.nothing", ATTN_ERROR_IO, "calls_files.nothing");
    wrong_pointer(t, 1, OTHER, ATTN_ERROR_BAD_FILE, OTHER);
    WRONG_INT32(t, 2, attn_load_options, strict, 2, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, 2, attn_load_options, strict, -1, ATTN_ERROR_INVALID_ARGUMENT);
    WRONG_INT32(t, 2, attn_load_options, dtype, ATTN_INT32, ATTN_ERROR_DTYPE);
    WRONG_INT32(t, 2, attn_load_options, dtype, ATTN_FLOAT16, ATTN_ERROR_DTYPE);
    WRONG_INT32(t, 2, attn_load_options, dtype, 77, ATTN_ERROR_DTYPE);
    WRONG_INT32(t, 2, attn_load_options, dtype, ATTN_FLOAT64, ATTN_ERROR_UNSUPPORTED); /* as creating one is */

    ROW(t, attn_file_metadata, metadata);
    arg_context(t);
    arg_pointer(t, "path", PATH, 0);
    arg_pointer(t, "key", "b", 0);
    arg_number(t, "capacity", 2);
    arg_result(t, "text", 2, 0);
    arg_result(t, "bytes", sizeof(int64_t), 0);
    check_row(t);
    wrong_paths(t, 1);
    wrong_pointer(t, 1, OTHER, ATTN_ERROR_BAD_FILE, OTHER);
    wrong_pointer(t, 2, "c", ATTN_ERROR_END_OF_DATA, "\"c\"");
    wrong_pointer(t, 2, "", ATTN_ERROR_END_OF_DATA, "\"\"");
    wrong_number(t, 3, -1, ATTN_ERROR_INVALID_ARGUMENT, "capacity");
    t->loose = place_of(t, 5); /* what is needed */
    wrong_number(t, 3, 1, ATTN_ERROR_FULL, "capacity");
    int64_t bytes = 0;
    FAILS(t->ctx, attn_file_metadata(t->ctx, PATH, "b", 0, NULL, &bytes), ATTN_ERROR_FULL, "capacity");
    assert_int_equal(bytes, 2);
    unlink(OTHER);
    unlink(PATH);
    calls_close(t);
}

static void tensors(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    const char *name = attn_parameters_name(attn_transformer_parameters(t->live[TRANSFORMER]), 0);
    const int64_t length = (int64_t)strlen(name) + 1;
    int64_t bytes = 0;
    (void)state;
    OK(t->ctx, attn_transformer_save(t->ctx, t->live[TRANSFORMER], 0, NULL, NULL, PATH));
    put_other();
    ROW(t, attn_file_tensor_name, tensor_name);
    arg_context(t);
    arg_pointer(t, "path", PATH, 0);
    arg_number(t, "index", 0);
    arg_number(t, "capacity", length);
    arg_result(t, "text", (uint64_t)length, 0);
    arg_result(t, "bytes", sizeof(int64_t), 0);
    check_row(t);
    assert_string_equal(place_of(t, 4), name);
    wrong_paths(t, 1);
    wrong_pointer(t, 1, OTHER, ATTN_ERROR_BAD_FILE, OTHER);
    wrong_number(t, 2, -1, ATTN_ERROR_INVALID_ARGUMENT, "index");
    wrong_number(t, 2, 1000000, ATTN_ERROR_END_OF_DATA, "index");
    wrong_number(t, 3, -1, ATTN_ERROR_INVALID_ARGUMENT, "capacity");
    t->loose = place_of(t, 5); /* what is needed */
    wrong_number(t, 3, length - 1, ATTN_ERROR_FULL, "capacity");
    FAILS(t->ctx, attn_file_tensor_name(t->ctx, PATH, 0, 0, NULL, &bytes), ATTN_ERROR_FULL, "capacity");
    assert_int_equal(bytes, length);

    ROW(t, attn_file_read_tensor, read_tensor);
    arg_context(t);
    arg_pointer(t, "path", PATH, 0);
    arg_pointer(t, "name", name, 0);
    arg_made(t, "out", release_tensor);
    check_row(t);
    wrong_paths(t, 1);
    wrong_pointer(t, 1, OTHER, ATTN_ERROR_BAD_FILE, OTHER);
    wrong_pointer(t, 2, "", ATTN_ERROR_END_OF_DATA, "name");
    wrong_pointer(t, 2, "no.such", ATTN_ERROR_END_OF_DATA, "no.such");
    unlink(OTHER);
    unlink(PATH);
    calls_close(t);
}

/* a file with one small tensor whose options are `text` */
static void claim(calls *t, const char *text)
{
    attn__writer *writer = NULL;
    const float one = 1;
    const int64_t shape = 1;
    OK(t->ctx, attn__writer_create(t->ctx, &writer));
    OK(t->ctx, attn__writer_metadata(t->ctx, writer, "attn.options", text));
    OK(t->ctx, attn__writer_tensor(t->ctx, writer, "extra", ATTN_FLOAT32, 1, &shape, &one));
    OK(t->ctx, attn__file_write(t->ctx, writer, PATH));
    attn__writer_free(writer);
}

/* What a file says about itself is not trusted: neither its options nor the memory they would take. */
static void claims(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    static const struct {
        const char *text;
        attn_status strict, loose;
        const char *word;
    } cases[] = {
        {"{\"width\":10,\"heads\":3}", ATTN_ERROR_BAD_FILE, ATTN_ERROR_BAD_FILE, PATH ": attn.options.width"},
        {"{\"feed_forward\":2147483647}", ATTN_ERROR_BAD_FILE, ATTN_ERROR_BAD_FILE, PATH},
        {"{\"encoder_layers\":0,\"decoder_layers\":0}", ATTN_ERROR_BAD_FILE, ATTN_ERROR_BAD_FILE, "encoder_layers"},
        {"{\"patch_values\":3}", ATTN_ERROR_UNSUPPORTED, ATTN_ERROR_UNSUPPORTED, "patch_values"},
        {"{\"dtype\":2}", ATTN_ERROR_UNSUPPORTED, ATTN_ERROR_UNSUPPORTED, "float64"},
        {"{\"width\":512,\"source_vocabulary\":2000000000}", ATTN_ERROR_MISMATCH, ATTN_ERROR_MISMATCH, PATH},
        {"{\"width\":4096,\"heads\":1,\"source_vocabulary\":9}", ATTN_ERROR_MISMATCH, ATTN_ERROR_MISMATCH, PATH},
        {"{\"width\":8,\"source_vocabulary\":9}", ATTN_ERROR_MISMATCH, ATTN_OK, PATH}}; /* what is missing is small: it is started */
    attn_load_options o;
    attn_memory_report before = {.struct_size = sizeof before}, after = before;
    (void)state;
    OK(t->ctx, attn_load_options_init(&o, sizeof o));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        claim(t, cases[i].text);
        for (o.strict = 0; o.strict < 2; o.strict++) {
            attn_transformer *got = NULL;
            attn_status want = o.strict ? cases[i].strict : cases[i].loose;
            OK(t->ctx, attn_context_reset_peak(t->ctx));
            OK(t->ctx, attn_context_memory(t->ctx, &before));
            FAILS(t->ctx, attn_transformer_load(t->ctx, PATH, &o, &got), want, want == ATTN_OK ? "" : cases[i].word);
            OK(t->ctx, attn_context_memory(t->ctx, &after));
            if (want != ATTN_OK) assert_true(after.peak - before.peak < 65536 && after.live == before.live);
            attn_transformer_free(got);
        }
    }
    unlink(PATH);
    calls_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(saving), cmocka_unit_test(loading), cmocka_unit_test(tensors),
                                       cmocka_unit_test(claims)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
