#include <attn/attn.h>
#include <cblas.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
/* after the headers it needs */
#include <cmocka.h>
#include "kernels/blas/gemm.h"
#include "support/model.h"

/* A BLAS that looks on: which products does it get, on a core whose kernels take a matrix as it lies and on others? */
static const char *core;
static int64_t matrices, vectors, packed, most_columns;

char *openblas_get_corename(void);
int sgemm_small_matrix_permit_SKYLAKEX(void);

char *openblas_get_corename(void)
{
    return (char *)(uintptr_t)core;
}

int sgemm_small_matrix_permit_SKYLAKEX(void)
{
    fail_msg("is not for us to call");
    return 0;
}

void cblas_sgemm(const enum CBLAS_ORDER order, const enum CBLAS_TRANSPOSE transpose_a, const enum CBLAS_TRANSPOSE transpose_b,
                 const blasint m, const blasint n, const blasint k, const float alpha, const float *a, const blasint lda, const float *b,
                 const blasint ldb, const float beta, float *c, const blasint ldc)
{
    int turned_a = transpose_a == CblasTrans, turned_b = transpose_b == CblasTrans;
    (void)order;
    matrices++;
    if (turned_a || !turned_b || m * n > 1200 || k < 32 || (int64_t)m * n * k > 1000000) packed++;
    most_columns = n > most_columns ? n : most_columns;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            float sum = 0, *to = &c[i * ldc + j];
            for (int64_t t = 0; t < k; t++)
                sum += (turned_a ? a[t * lda + i] : a[i * lda + t]) * (turned_b ? b[j * ldb + t] : b[t * ldb + j]);
            *to = alpha * sum + (beta == 0 ? 0 : beta * *to);
        }
}

void cblas_sgemv(const enum CBLAS_ORDER order, const enum CBLAS_TRANSPOSE transpose, const blasint m, const blasint n, const float alpha,
                 const float *a, const blasint lda, const float *x, const blasint step_x, const float beta, float *y, const blasint step_y)
{
    int turned = transpose == CblasTrans;
    (void)order;
    vectors++;
    for (int64_t i = 0; i < (turned ? n : m); i++) {
        float sum = 0;
        for (int64_t t = 0; t < (turned ? m : n); t++) sum += (turned ? a[t * lda + i] : a[i * lda + t]) * x[t * step_x];
        y[i * step_y] = alpha * sum + (beta == 0 ? 0 : beta * y[i * step_y]);
    }
}

/* y = x W^T + b of small integers, which are exact however they are cut; a given x holds zeros */
static void linear(attn_context *ctx, int64_t rows, int64_t columns, int64_t terms, attn_tensor *given)
{
    attn_tensor *x = given != NULL ? given : model_tensor(ctx, ATTN_FLOAT32, rows, terms);
    attn_tensor *w = model_tensor(ctx, ATTN_FLOAT32, columns, terms), *b = model_tensor(ctx, ATTN_FLOAT32, columns, 0);
    attn_tensor *y = model_tensor(ctx, ATTN_FLOAT32, rows, columns);
    for (int64_t i = 0; given == NULL && i < rows * terms; i++) model_set(x, i, (double)(i % 5 - 2));
    for (int64_t i = 0; i < columns * terms; i++) model_set(w, i, (double)(i % 7 - 3));
    for (int64_t i = 0; i < columns; i++) model_set(b, i, (double)(i % 11));
    matrices = vectors = packed = most_columns = 0;
    OK(ctx, attn_linear(ctx, NULL, x, w, b, y));
    for (int64_t i = 0; given == NULL && i < rows * columns; i++) {
        int64_t r = i / columns, j = i % columns, sum = j % 11;
        for (int64_t t = 0; t < terms; t++) sum += ((r * terms + t) % 5 - 2) * ((j * terms + t) % 7 - 3);
        assert_true(model_get(y, i) == (double)sum);
    }
    attn_tensor *all[] = {x, w, b, y};
    for (int i = 0; i < 4; i++) attn_tensor_free(all[i]);
}

static attn_context *opened(void)
{
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    linear(ctx, 1, 1, 1, NULL); /* the first call tries BLAS out */
    return ctx;
}

typedef struct shape {
    int64_t rows, columns, terms, pieces, widest; /* pieces 0: this BLAS would pack it, whatever its core */
} shape;

static const shape shapes[] = {
    {1, 128, 128, 1, 128},  {1, 1300, 32, 2, 1200}, {1, 250, 4096, 2, 240}, {2, 600, 64, 2, 592},
    {4, 384, 128, 2, 288},  {5, 512, 128, 3, 240},  {8, 512, 128, 4, 144},  {10, 128, 128, 2, 112},
    {10, 128, 512, 2, 112}, {16, 20, 3900, 2, 16},  {75, 40, 64, 3, 16},    {76, 40, 64, 0, 0},
    {8, 128, 31, 0, 0},     {1, 128, 31, 0, 0},     {16, 20, 3907, 0, 0},   {4, 128, 31, 0, 0},
};

static void test_pieces(void **state)
{
    static const char *const cores[] = {"SkylakeX", "Cooperlake", "SapphireRapids", "Haswell", "Zen", NULL};
    attn_context *ctx = opened();
    (void)state;
    for (size_t which = 0; which < sizeof cores / sizeof *cores; which++) {
        core = cores[which];
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            const shape *s = &shapes[i];
            linear(ctx, s->rows, s->columns, s->terms, NULL);
            if (which < 3 && s->pieces > 0) {
                assert_int_equal(vectors, 0);
                assert_int_equal(matrices, s->pieces);
                assert_int_equal(packed, 0);
                assert_int_equal(most_columns, s->widest);
            } else {
                assert_int_equal(vectors, s->rows <= 4 ? s->rows : 0);
                assert_int_equal(matrices, s->rows <= 4 ? 0 : 1);
            }
        }
    }
    attn_context_free(ctx);
}

/* one row by itself: a matrix product where B lies as those kernels want it, small enough; else a vector's */
static void test_one_row(void **state)
{
    enum { TERMS = 32, COLUMNS = 1201 };
    static float a[TERMS], b[COLUMNS * TERMS], c[COLUMNS];
    (void)state;
    for (int kind = 0; kind < 6; kind++) {
        core = kind == 5 ? "Zen" : "Cooperlake";
        int64_t n = kind == 1 ? COLUMNS : 7, k = kind == 2 ? TERMS - 1 : TERMS;
        matrices = vectors = 0;
        assert_int_equal(attn__sgemm(kind == 3, kind != 4, 1, n, k, 1, a, kind == 3 ? 1 : TERMS, b, TERMS, 0, c, n), 0);
        assert_int_equal(matrices, kind == 0);
        assert_int_equal(vectors, kind != 0);
    }
    core = "Cooperlake";
    assert_int_equal(attn__gemm_unpacked(0, TERMS), 0);
    assert_int_equal(attn__gemm_unpacked(2, INT64_MAX), 0);
}

/* rows too far apart for one product are multiplied one by one, on every core */
static void test_far_rows(void **state)
{
    const int64_t size[2] = {2, 32}, strides[2] = {INT64_C(1) << 31, 1};
    const size_t bytes = ((size_t)1 << 33) + 4096;
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    (void)state;
    if (room == MAP_FAILED) skip(); /* a system that promises no more memory than it has */
    attn_context *ctx = opened();
    core = "Cooperlake";
    attn_tensor *x = NULL, *y = NULL, *w = model_tensor(ctx, ATTN_FLOAT32, 32, 32), *in = model_tensor(ctx, ATTN_FLOAT32, 2, 32);
    OK(ctx, attn_tensor_wrap(ctx, ATTN_FLOAT32, 2, size, strides, room, &x));
    linear(ctx, 2, 40, 32, x);
    assert_int_equal(matrices, 2); /* a row by itself may go to either */
    OK(ctx, attn_tensor_wrap(ctx, ATTN_FLOAT32, 2, size, strides, room, &y));
    matrices = vectors = 0;
    OK(ctx, attn_linear(ctx, NULL, in, w, NULL, y));
    assert_int_equal(matrices, 2);
    attn_tensor *all[] = {y, w, in};
    for (int i = 0; i < 3; i++) attn_tensor_free(all[i]);
    attn_context_free(ctx);
    munmap(room, bytes);
}

/* dx = dy W: W does not lie as those kernels want it */
static void test_backward(void **state)
{
    enum { MANY = 5, OUT = 64, IN = 512 };
    attn_context *ctx = opened();
    attn_tape *tape = NULL;
    attn_tensor *x = model_tensor(ctx, ATTN_FLOAT32, MANY, IN), *dx = model_tensor(ctx, ATTN_FLOAT32, MANY, IN);
    attn_tensor *w = model_tensor(ctx, ATTN_FLOAT32, OUT, IN), *y = model_tensor(ctx, ATTN_FLOAT32, MANY, OUT);
    attn_tensor *dy = model_tensor(ctx, ATTN_FLOAT32, MANY, OUT);
    (void)state;
    core = "Cooperlake";
    for (int64_t i = 0; i < OUT * IN; i++) model_set(w, i, (double)(i % 7 - 3));
    for (int64_t i = 0; i < MANY * OUT; i++) model_set(dy, i, (double)(i % 5 - 2));
    OK(ctx, attn_tape_create(ctx, &tape));
    OK(ctx, attn_tape_begin(ctx, tape, NULL));
    OK(ctx, attn_tape_watch(ctx, tape, x, dx));
    OK(ctx, attn_linear(ctx, tape, x, w, NULL, y));
    const attn_tensor *const outputs[1] = {y}, *const arriving[1] = {dy};
    matrices = 0;
    OK(ctx, attn_tape_backward(ctx, tape, 1, outputs, arriving, 0, NULL));
    assert_int_equal(matrices, 1);
    for (int64_t i = 0; i < MANY * IN; i++) {
        int64_t sum = 0;
        for (int64_t t = 0; t < OUT; t++) sum += ((i / IN * OUT + t) % 5 - 2) * ((t * IN + i % IN) % 7 - 3);
        assert_true(model_get(dx, i) == (double)sum);
    }
    attn_tape_free(tape);
    attn_tensor *all[] = {x, dx, w, y, dy};
    for (int i = 0; i < 5; i++) attn_tensor_free(all[i]);
    attn_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pieces), cmocka_unit_test(test_one_row), cmocka_unit_test(test_far_rows),
                                       cmocka_unit_test(test_backward)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
