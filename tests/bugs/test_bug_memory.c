/* Sizes, strides, threads and BLAS: faults of other libraries as test cases. */
#include <pthread.h>
#include <unistd.h>
#include "bug.h"
#include "formats/safetensors.h"
#include "kernels/kernels.h"

static void large_offsets(void)
{
    view v = {(void *)(uintptr_t)64, 70000, 1, 32768, 32768, 0, ATTN_FLOAT32, 0};
    assert_int_equal((uintptr_t)attn__view_rows(v, 65536, 1).data - 64, UINT64_C(2147483648) * 4); /* B093 */
    attn_tensor *bias, *none = NULL;
    const int64_t shape[] = {2, 16, 12180, 12184};
    OK(ctx, attn_tensor_wrap(ctx, ATTN_FLOAT32, 4, shape, NULL, (void *)(uintptr_t)64, &bias)); /* B095 */
    assert_int_equal(attn_tensor_stride(bias, 0), INT64_C(16) * 12180 * 12184);
    attn_tensor_free(bias);
    int64_t before = model_allocations(ctx);
    FAILS(ctx, attn_tensor_create(ctx, ATTN_FLOAT32, 2, (const int64_t[]){INT64_C(1) << 33, INT64_C(1) << 31}, &none), /* B096 */
          ATTN_ERROR_TOO_LARGE, "shape");
    assert_null(none);
    assert_int_equal(model_allocations(ctx), before);
    /* without rows any width is legal, and the cutting into blocks must bear it */
    const int64_t wide[] = {0, 1, INT64_C(1) << 60}, narrow[] = {0, 1, 4};
    attn_tensor *q, *x, *y;
    OK(ctx, attn_tensor_wrap(ctx, ATTN_FLOAT32, 3, wide, NULL, NULL, &q));
    OK(ctx, attn_tensor_wrap(ctx, ATTN_FLOAT32, 3, narrow, NULL, NULL, &x));
    OK(ctx, attn_tensor_wrap(ctx, ATTN_FLOAT32, 3, narrow, NULL, NULL, &y));
    attend(NULL, q, q, x, NULL, y);
    FREE(q, x, y);
}
static void test_B093_B095_B096_large_offsets(void **state)
{
    (void)state;
    on_both(large_offsets);
}

static void key_heads(void)
{
    for (int64_t heads = 0; heads <= 3; heads += 3) {
        attn_tensor *q = noise(SHAPE(2, 4, 2), 1), *k = noise(SHAPE(2, heads, 2), 2), *y = filled(SHAPE(2, 4, 2), -7);
        FAILS(ctx, attn_dot_product_attention(ctx, NULL, q, k, k, NULL, NULL, NULL, NULL, y), ATTN_ERROR_SHAPE, "heads");
        for (int i = 0; i < 16; i++) assert_true(model_get(y, i) == -7);
        attn_attention *layer;
        attn_attention_options o;
        OK(ctx, attn_attention_options_init(&o, sizeof o));
        o.query_width = o.heads = 4;
        o.key_heads = heads;
        FAILS(ctx, attn_attention_create(ctx, &o, &layer), ATTN_ERROR_SHAPE, "key_heads");
        assert_null(layer);
        FREE(q, k, y);
    }
}
static void test_B097_key_heads(void **state)
{
    (void)state;
    on_both(key_heads);
}

/* no tokens at all: an empty result and gradients of zero, every one of them written */
static void empty_batch(void)
{
    attn_transformer_options o = model_options(1, 1);
    attn_transformer *model = model_create(ctx, &o);
    attn_gradients *gradients;
    model_batch b;
    attn_tensor *loss = filled(SHAPE(1), -7), *logits = tensor(SHAPE(0, 11), NULL);
    attn_tape *tape = tape_open(1, 0);
    OK(ctx, attn_gradients_create(ctx, attn_transformer_parameters(model), &gradients));
    model_batch_open(ctx, &b, &o, 0, NULL, NULL, 1);
    OK(ctx, attn_transformer_forward(ctx, model, NULL, &b.batch, logits));
    OK(ctx, attn_transformer_loss(ctx, model, tape, &b.batch, NULL, loss, NULL));
    near_to(loss, 0, 0, 0);
    const attn_tensor *outputs[] = {loss};
    OK(ctx, attn_tape_backward(ctx, tape, 1, outputs, NULL, 1, &gradients));
    double norm = -1;
    OK(ctx, attn_gradients_norm(ctx, gradients, &norm));
    assert_true(norm == 0);
    attn_tape_free(tape);
    model_batch_close(&b);
    attn_gradients_free(gradients);
    attn_transformer_free(model);
    FREE(loss, logits);
}
static void test_B099_empty_batch(void **state)
{
    (void)state;
    on_both(empty_batch);
}

/* extents of 0 reach no BLAS: nothing on stderr, and a sum of no terms is the bias, or 0 over what was NaN */
static void empty_products(void)
{
    FILE *kept = tmpfile();
    int before = dup(2);
    assert_non_null(kept);
    dup2(fileno(kept), 2);
    const int64_t sizes[][3] = {{0, 3, 2}, {3, 0, 2}, {3, 2, 0}, {0, 0, 0}, {1, 0, 1}};
    attn_tensor *made[4];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int biased = 0; biased < 2; biased++) {
            const int64_t *s = sizes[i];
            made[0] = filled(SHAPE(s[0], s[1]), 1);
            made[1] = filled(SHAPE(s[2], s[1]), 1);
            made[2] = filled(SHAPE(s[2]), 0.5);
            made[3] = filled(SHAPE(s[0], s[2]), NAN);
            OK(ctx, attn_linear(ctx, NULL, made[0], made[1], biased ? made[2] : NULL, made[3]));
            for (int64_t e = 0; e < s[0] * s[2]; e++) near_to(made[3], e, (double)s[1] + (biased ? 0.5 : 0), 0);
            for (int t = 0; t < 4; t++) attn_tensor_free(made[t]);
        }
    fflush(stderr);
    dup2(before, 2);
    close(before);
    fseek(kept, 0, SEEK_END);
    assert_int_equal(ftell(kept), 0);
    fclose(kept);
}
static void test_B100_empty_products(void **state)
{
    (void)state;
    on_both(empty_products);
}

static void turned_queries(void)
{
    attn_tensor *q, *k = noise(SHAPE(5, 1, 4), 1), *y = filled(SHAPE(5, 1, 4), -7);
    float memory[20] = {0};
    OK(ctx, attn_tensor_wrap(ctx, ATTN_FLOAT32, 3, (const int64_t[]){5, 1, 4}, (const int64_t[]){1, 20, 5}, memory, &q));
    FAILS(ctx, attn_dot_product_attention(ctx, NULL, q, k, k, NULL, NULL, NULL, NULL, y), ATTN_ERROR_SHAPE, "query");
    for (int i = 0; i < 20; i++) assert_true(model_get(y, i) == -7);
    FREE(q, k, y);
}
static void test_B101_turned_queries(void **state)
{
    (void)state;
    on_both(turned_queries);
}

/* the same gradient from above, stored by rows and by heads */
static void gradient_strides(void)
{
    enum { T = 6, H = 2, D = 3, N = T * H * D };
    float by_rows[N], by_heads[N], got[2][N];
    random_state random = {9};
    random_floats(&random, by_rows, N, -1, 1);
    for (int i = 0; i < N; i++) by_heads[(i / D % H) * T * D + i / (D * H) * D + i % D] = by_rows[i];
    attn_tensor *x = noise(SHAPE(T, H, D), 4), *dx = tensor(SHAPE(T, H, D), NULL), *y = tensor(SHAPE(T, H, D), NULL);
    for (int turned = 0; turned < 2; turned++) {
        attn_tensor *up;
        attn_tape *tape = tape_open(0, 0);
        const int64_t heads_first[] = {D, T * D, 1};
        OK(ctx, attn_tensor_wrap(ctx, ATTN_FLOAT32, 3, (const int64_t[]){T, H, D}, turned ? heads_first : NULL, turned ? by_heads : by_rows,
                                 &up));
        OK(ctx, attn_tape_watch(ctx, tape, x, dx));
        attend(tape, x, x, x, NULL, y);
        const attn_tensor *outputs[] = {y}, *ups[] = {up};
        OK(ctx, attn_tape_backward(ctx, tape, 1, outputs, ups, 0, NULL));
        memcpy(got[turned], attn_tensor_data(dx), sizeof got[turned]);
        attn_tape_free(tape);
        attn_tensor_free(up);
    }
    assert_memory_equal(got[0], got[1], sizeof got[0]);
    FREE(x, dx, y);
}
static void test_B103_gradient_strides(void **state)
{
    (void)state;
    on_both(gradient_strides);
}

static void test_B106_threads(void **state)
{
    (void)state;
    float first[7 * 444];
    for (int32_t threads = 1; threads <= 8; threads++) {
        ctx = model_context(ATTN_BACKEND_BLAS, threads, 1);
        attn_tensor *x = noise(SHAPE(7, 56), 1), *w = noise(SHAPE(444, 56), 2), *y = tensor(SHAPE(7, 444), NULL);
        OK(ctx, attn_linear(ctx, NULL, x, w, NULL, y));
        if (threads == 1) memcpy(first, attn_tensor_data(y), sizeof first);
        assert_memory_equal(first, attn_tensor_data(y), sizeof first);
        FREE(x, w, y);
        end();
    }
}

/* many threads, each with a context of its own, over one model (B109) and over small products (B112) */
enum { WORKERS = 4, ROUNDS = 100 };
typedef struct shared {
    const attn_transformer *model;
    const attn_batch *batch;
    const float *want;
    int wrong;
} shared;

static void *share(void *data)
{
    shared *s = data;
    float got[9 * 11], x[100], y[100];
    attn_tensor *logits, *a, *b;
    attn_context *own = model_context(ATTN_BACKEND_BLAS, 2, 0);
    for (int i = 0; i < 100; i++) x[i] = 1;
    s->wrong = attn_tensor_wrap(own, ATTN_FLOAT32, 2, (const int64_t[]){9, 11}, NULL, got, &logits) != ATTN_OK ||
               attn_tensor_wrap(own, ATTN_FLOAT32, 2, (const int64_t[]){10, 10}, NULL, x, &a) != ATTN_OK ||
               attn_tensor_wrap(own, ATTN_FLOAT32, 2, (const int64_t[]){10, 10}, NULL, y, &b) != ATTN_OK;
    for (int i = 0; i < ROUNDS && !s->wrong; i++) {
        s->wrong |= attn_transformer_forward(own, s->model, NULL, s->batch, logits) != ATTN_OK || memcmp(got, s->want, sizeof got) != 0;
        for (int j = 0; j < 20; j++) s->wrong |= attn_linear(own, NULL, a, a, NULL, b) != ATTN_OK || y[99] != 10;
    }
    FREE(logits, a, b);
    attn_context_free(own);
    return NULL;
}

static void test_B109_B112_contexts_side_by_side(void **state)
{
    (void)state;
    const int64_t each[] = {4, 5};
    begin(ATTN_BACKEND_BLAS);
    attn_transformer_options o = model_options(0, 2);
    attn_transformer *model = model_create(ctx, &o);
    attn_tensor *logits = tensor(SHAPE(9, 11), NULL);
    model_batch b;
    model_batch_open(ctx, &b, &o, 2, each, each, 3);
    OK(ctx, attn_transformer_forward(ctx, model, NULL, &b.batch, logits));
    pthread_t threads[WORKERS];
    shared s[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        s[i] = (shared){model, &b.batch, attn_tensor_data(logits), 0};
        assert_int_equal(pthread_create(&threads[i], NULL, share, &s[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(threads[i], NULL);
        assert_false(s[i].wrong);
    }
    model_batch_close(&b);
    attn_tensor_free(logits);
    attn_transformer_free(model);
    end();
}

/* what lay in the output before is not read: gemv and gemm of all small sizes */
static void stale_output(void)
{
    for (int64_t n = 1; n <= 65; n++)
        for (int64_t rows = 1; rows <= n; rows += rows < 4 ? 1 : n) {
            attn_tensor *x = noise(SHAPE(rows, n), 1), *w = tensor(SHAPE(n, n), NULL), *y = filled(SHAPE(rows, n), NAN);
            for (int64_t i = 0; i < n; i++) model_set(w, i * n + i, 1);
            OK(ctx, attn_linear(ctx, NULL, x, w, NULL, y));
            for (int64_t i = 0; i < rows * n; i++) near_to(y, i, model_get(x, i), 0);
            FREE(x, w, y);
        }
}
static void test_B113_stale_output(void **state)
{
    (void)state;
    on_both(stale_output);
}

static void test_B167_subnormals(void **state)
{
    (void)state;
    volatile float tiny = 1e-40f, one = 1;
    begin(ATTN_BACKEND_BLAS);
    attn_tensor *x = filled(SHAPE(1, 4), 1e-40), *y = tensor(SHAPE(1, 4), NULL), *half = filled(SHAPE(1, 4), 1);
    OK(ctx, attn_multiply(ctx, NULL, x, half, y));
    near_to(y, 0, 1e-40, 1e-44);
    assert_true(tiny * one != 0);
    FREE(x, y, half);
    end();
}

/* a small file that names a large model: refused before memory is taken for it */
static void test_large_model_in_a_small_file(void **state)
{
    (void)state;
    static const char path[] = "bug_memory.safetensors";
    begin(ATTN_BACKEND_BLAS);
    attn__writer *writer;
    attn_transformer *model;
    attn_memory_report r = {.struct_size = sizeof r};
    OK(ctx, attn__writer_create(ctx, &writer));
    OK(ctx, attn__writer_metadata(ctx, writer, "attn.options", "{\"width\":65536,\"encoder_layers\":0,\"decoder_layers\":900}"));
    OK(ctx, attn__file_write(ctx, writer, path));
    attn__writer_free(writer);
    OK(ctx, attn_context_reset_peak(ctx));
    FAILS(ctx, attn_transformer_load(ctx, path, NULL, &model), ATTN_ERROR_MISMATCH, "missing parameter");
    assert_null(model);
    OK(ctx, attn_context_memory(ctx, &r));
    assert_true(r.peak < 4 << 20);
    attn_load_options o;
    OK(ctx, attn_load_options_init(&o, sizeof o));
    o.strict = 2;
    FAILS(ctx, attn_transformer_load(ctx, path, &o, &model), ATTN_ERROR_INVALID_ARGUMENT, "strict");
    remove(path);
    end();
}

/* a tape that is not begun is refused by a loss that is only reported, too */
static void test_tape_of_a_reported_loss(void **state)
{
    (void)state;
    const int64_t of[] = {3};
    begin(ATTN_BACKEND_BLAS);
    attn_transformer_options o = model_options(0, 1);
    attn_transformer *model = model_create(ctx, &o);
    model_batch b;
    attn_tape *tape;
    attn_loss_report r = {.struct_size = sizeof r};
    model_batch_open(ctx, &b, &o, 1, of, of, 1);
    OK(ctx, attn_tape_create(ctx, &tape));
    FAILS(ctx, attn_transformer_loss(ctx, model, tape, &b.batch, NULL, NULL, &r), ATTN_ERROR_BAD_STATE, "begin");
    attn_tape_free(tape);
    model_batch_close(&b);
    attn_transformer_free(model);
    end();
}

/* packing leaves rows of no segment as they are */
static void packed_gap(void)
{
    attn_tensor *padded = tensor(SHAPE(2, 2, 1), NUMBERS(1, 2, 3, 4)), *rows = filled(SHAPE(5, 1), -7);
    attn_layout *layout;
    OK(ctx, attn_layout_create(ctx, 2, &layout));
    OK(ctx, attn_layout_set(ctx, layout, 2, (const attn_segment[]){{3, 2, 0, 0}, {0, 1, 0, 1}}));
    OK(ctx, attn_pack(ctx, padded, layout, rows));
    const double want[] = {3, -7, -7, 1, 2};
    for (int i = 0; i < 5; i++) near_to(rows, i, want[i], 0);
    OK(ctx, attn_unpack(ctx, rows, layout, padded));
    const double back[] = {1, 2, 3, 0};
    for (int i = 0; i < 4; i++) near_to(padded, i, back[i], 0);
    attn_layout_free(layout);
    FREE(padded, rows);
}
static void test_packed_gap(void **state)
{
    (void)state;
    on_both(packed_gap);
}

/* with one class there is nothing to learn, in either form of smoothing */
static void one_class(void)
{
    attn_tensor *logits = filled(SHAPE(3, 1), 0.5), *d = filled(SHAPE(3, 1), NAN), *loss = tensor(SHAPE(1), NULL);
    attn_tensor *labels = model_tensor(ctx, ATTN_INT32, 3, 0);
    for (int32_t form = 0; form < 2; form++) {
        attn_cross_entropy_options o;
        attn_tape *tape = tape_open(1, 0);
        OK(ctx, attn_cross_entropy_options_init(&o, sizeof o));
        o.label_smoothing = 0.25;
        o.smoothing_form = form;
        OK(ctx, attn_tape_watch(ctx, tape, logits, d));
        OK(ctx, attn_cross_entropy(ctx, tape, logits, labels, &o, loss, NULL));
        backward(tape, loss);
        near_to(loss, 0, 0, 1e-7);
        for (int i = 0; i < 3; i++) near_to(d, i, 0, 1e-7);
        attn_tape_free(tape);
    }
    FREE(logits, d, loss, labels);
}
static void test_one_class(void **state)
{
    (void)state;
    on_both(one_class);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_B093_B095_B096_large_offsets),
        cmocka_unit_test(test_B097_key_heads),
        cmocka_unit_test(test_B099_empty_batch),
        cmocka_unit_test(test_B100_empty_products),
        cmocka_unit_test(test_B101_turned_queries),
        cmocka_unit_test(test_B103_gradient_strides),
        cmocka_unit_test(test_B106_threads),
        cmocka_unit_test(test_B109_B112_contexts_side_by_side),
        cmocka_unit_test(test_B113_stale_output),
        cmocka_unit_test(test_B167_subnormals),
        cmocka_unit_test(test_large_model_in_a_small_file),
        cmocka_unit_test(test_tape_of_a_reported_loss),
        cmocka_unit_test(test_packed_gap),
        cmocka_unit_test(test_one_class),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
