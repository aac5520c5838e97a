#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "core/context.h"
#include "core/dtype.h"
#include "support/allocator.h"

static attn_context *create(int32_t threads)
{
    attn_context *ctx;
    attn_context_options options;
    assert_int_equal(attn_context_options_init(&options, sizeof options), ATTN_OK);
    options.threads = threads;
    assert_int_equal(attn_context_create(&options, &ctx), ATTN_OK);
    return ctx;
}

static void test_options(void **state)
{
    (void)state;
    test_allocator counts = {0};
    attn_allocator hooks = test_allocator_hooks(&counts), no_allocate = hooks, no_release = hooks, no_size = hooks;
    no_allocate.allocate = NULL;
    no_release.release = NULL;
    no_size.struct_size = 0;
    attn_context_options d, o;
    attn_context_options_init(&d, sizeof d);
    assert_int_equal(d.struct_size, sizeof d);
    assert_int_equal(d.backend, ATTN_BACKEND_BLAS);
    assert_int_equal(d.threads, ATTN_THREADS_ALL);
    assert_int_equal(d.seed, 0);
    assert_int_equal(d.memory_cap, -1);
    assert_int_equal(d.guard_blas, 1);
    assert_null(d.allocator);
    for (int bad = 0; bad < 14; bad++) {
        attn_context *ctx = (attn_context *)&d;
        o = d;
        switch (bad) {
        case 0: o.threads = 0; break;
        case 1: o.threads = -2; break;
        case 2: o.backend = 2; break;
        case 3: o.backend = -1; break;
        case 4: o.memory_cap = -2; break;
        case 5: o.guard_blas = 2; break;
        case 6: o.guard_blas = -1; break;
        case 7: o.reserved = 1; break;
        case 8: o.struct_size = 8; break;
        case 9: o.struct_size = 0; break;
        case 10: o.struct_size = UINT64_MAX; break;
        case 11: o.allocator = &no_allocate; break;
        case 12: o.allocator = &no_release; break;
        default: o.allocator = &no_size; break;
        }
        assert_int_equal(attn_context_create(&o, &ctx), ATTN_ERROR_INVALID_ARGUMENT);
        assert_null(ctx);
    }
    assert_int_equal(counts.calls, 0);
    assert_int_equal(attn_context_create(&d, NULL), ATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(attn_context_options_init(NULL, sizeof d), ATTN_ERROR_INVALID_ARGUMENT);
}

/* A creation that fails at any of its allocations leaves nothing behind. */
static void test_creation_fails(void **state)
{
    (void)state;
    attn_status status = ATTN_ERROR_OUT_OF_MEMORY;
    int at = 0;
    for (at = 1; status != ATTN_OK; at++) {
        test_allocator counts = {.fail_at = at, .only_once = 1};
        attn_allocator hooks = test_allocator_hooks(&counts);
        attn_context_options o;
        attn_context *ctx = NULL;
        attn_context_options_init(&o, sizeof o);
        o.allocator = &hooks;
        o.threads = 2;
        status = attn_context_create(&o, &ctx);
        if (status != ATTN_OK) {
            assert_int_equal(status, ATTN_ERROR_OUT_OF_MEMORY);
            assert_null(ctx);
        }
        attn_context_free(ctx);
        assert_int_equal(counts.live_pointers, 0);
        assert_int_equal(counts.wrong, 0);
        assert_true(at < 100);
    }
    assert_true(at > 4);
}

static void test_cap(void **state)
{
    (void)state;
    attn_context_options o;
    attn_context *ctx;
    void *p;
    attn_memory_report report = {.struct_size = sizeof report};
    attn_context_options_init(&o, sizeof o);
    o.threads = 1;
    for (o.memory_cap = 0; attn_context_create(&o, &ctx) != ATTN_OK; o.memory_cap += 100) {
        assert_null(ctx);
        assert_int_equal(attn_context_create(&o, &ctx), ATTN_ERROR_MEMORY_CAP);
        assert_true(o.memory_cap < 100000);
    }
    attn_context_free(ctx);
    o.memory_cap = 3000000;
    assert_int_equal(attn_context_create(&o, &ctx), ATTN_OK);
    assert_int_equal(attn__enter(ctx), ATTN_OK);
    p = attn__scratch(ctx, 3000000);
    assert_null(p);
    assert_non_null(strstr(attn_context_last_error(ctx), "temporary memory: does not fit under the memory cap of 3000000 bytes, "));
    assert_int_equal(attn__worker_scratch_reserve(ctx, 3000000), ATTN_ERROR_MEMORY_CAP);
    assert_int_equal(attn__worker_scratch_reserve(ctx, 1000), ATTN_OK);
    assert_int_equal(attn__worker_scratch_reserve(ctx, 3000000), ATTN_ERROR_MEMORY_CAP); /* gave back what there was */
    assert_null(attn__worker_scratch(ctx, 0));
    assert_int_equal(attn__worker_scratch_reserve(ctx, 1000), ATTN_OK);
    assert_non_null(attn__worker_scratch(ctx, 0));
    assert_int_equal(attn__leave(ctx, ATTN_ERROR_MEMORY_CAP), ATTN_ERROR_MEMORY_CAP);
    assert_int_equal(attn_context_memory(ctx, &report), ATTN_OK);
    assert_true(report.live > 0 && report.live < 100000 && report.peak < 3000000);
    attn_context_free(ctx);
}

static void test_errors(void **state)
{
    (void)state;
    attn_context *ctx = create(1);
    int32_t count;
    assert_string_equal(attn_context_last_error(ctx), "");
    assert_string_equal(attn_context_last_error(NULL), "");
    assert_int_equal(attn_context_set_backend(ctx, 7), ATTN_ERROR_INVALID_ARGUMENT);
    assert_string_equal(attn_context_last_error(ctx), "backend: got 7, expected ATTN_BACKEND_BLAS (0) or ATTN_BACKEND_REFERENCE (1)");
    assert_int_equal(ctx->backend, ATTN_BACKEND_BLAS);
    assert_int_equal(attn_context_set_backend(ctx, ATTN_BACKEND_REFERENCE), ATTN_OK);
    assert_string_equal(attn_context_last_error(ctx), "");
    assert_int_equal(ctx->backend, ATTN_BACKEND_REFERENCE);
    assert_int_equal(attn_context_threads(ctx, NULL), ATTN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(attn_context_memory(ctx, NULL), ATTN_ERROR_INVALID_ARGUMENT);
    assert_string_equal(attn_context_last_error(ctx), "report: got NULL, expected a struct to fill");
    assert_int_equal(attn_context_threads(ctx, &count), ATTN_OK);
    assert_int_equal(count, 1);
    /* texts: built on the present one, cut at the end, never without one */
    assert_int_equal(attn__fail(ctx, ATTN_ERROR_SHAPE, "weight: got [%d]", 3), ATTN_ERROR_SHAPE);
    attn__fail(ctx, ATTN_ERROR_SHAPE, "layer 2: %s", ctx->error);
    assert_string_equal(ctx->error, "layer 2: weight: got [3]");
    attn__fail(ctx, ATTN_ERROR_SHAPE, "%0600d", 7);
    assert_int_equal(strlen(ctx->error), sizeof ctx->error - 1);
    /* UTF-8 whatever is quoted: cut by a width, by the end of the buffer, or never a text */
    attn__fail(ctx, ATTN_ERROR_SHAPE, "'%.4s' of it", "a\xC3\xA9\xE2\x82\xAC");
    assert_string_equal(ctx->error, "'a\xC3\xA9?' of it");
    attn__fail(ctx, ATTN_ERROR_SHAPE, "%s", "\xC3\xA9\xFF\xC0\xAF.");
    assert_string_equal(ctx->error, "\xC3\xA9???.");
    attn__fail(ctx, ATTN_ERROR_SHAPE, "%0509d\xE2\x82\xAC", 7);
    assert_int_equal(strlen(ctx->error), sizeof ctx->error - 1);
    assert_string_equal(ctx->error + 507, "07??");
    assert_int_equal(attn__fail(NULL, ATTN_ERROR_SHAPE, "nobody"), ATTN_ERROR_SHAPE);
    assert_int_equal(attn__fail_memory(NULL, ATTN_ERROR_SHAPE, "nobody"), ATTN_ERROR_SHAPE);
    attn__enter(ctx);
    attn__leave(ctx, ATTN_ERROR_FULL);
    assert_string_equal(attn_context_last_error(ctx), "full");
    /* a fault that the outer call got over leaves no text */
    attn__enter(ctx);
    attn__enter(ctx);
    attn__fail(ctx, ATTN_ERROR_SHAPE, "inner");
    attn__leave(ctx, ATTN_ERROR_SHAPE);
    assert_string_equal(ctx->error, "inner");
    attn__leave(ctx, ATTN_OK);
    assert_string_equal(ctx->error, "");
    attn_context_free(ctx);
}

static void test_handles(void **state)
{
    (void)state;
    attn_context *ctx = create(1);
    uint64_t not_a_context[100] = {1, 2, 3};
    attn_context *wrong[] = {NULL, (attn_context *)(void *)not_a_context};
    attn_memory_report report = {.struct_size = sizeof report};
    int32_t count;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(attn__enter(wrong[i]), ATTN_ERROR_INVALID_ARGUMENT);
        assert_int_equal(attn_context_set_backend(wrong[i], 0), ATTN_ERROR_INVALID_ARGUMENT);
        assert_int_equal(attn_context_threads(wrong[i], &count), ATTN_ERROR_INVALID_ARGUMENT);
        assert_int_equal(attn_context_memory(wrong[i], &report), ATTN_ERROR_INVALID_ARGUMENT);
        assert_int_equal(attn_context_reset_peak(wrong[i]), ATTN_ERROR_INVALID_ARGUMENT);
        assert_int_equal(attn_context_cancel(wrong[i]), ATTN_ERROR_INVALID_ARGUMENT);
        assert_string_equal(attn_context_last_error(wrong[i]), "");
        attn_context_free(wrong[i]);
    }
    uint64_t tensor = ATTN__MAGIC_TENSOR;
    assert_int_equal(attn__expect(ctx, "x", &tensor, ATTN__MAGIC_TENSOR, "attn_tensor"), ATTN_OK);
    assert_int_equal(attn__expect(ctx, "layout", NULL, ATTN__MAGIC_LAYOUT, "attn_layout"), ATTN_ERROR_INVALID_ARGUMENT);
    assert_string_equal(ctx->error, "layout: got NULL, expected an attn_layout");
    assert_int_equal(attn__expect(ctx, "layout", &tensor, ATTN__MAGIC_LAYOUT, "attn_layout"), ATTN_ERROR_INVALID_ARGUMENT);
    assert_string_equal(ctx->error, "layout: got a freed or foreign handle, expected an attn_layout");
    attn_context_free(ctx);
}

static void test_memory_report(void **state)
{
    (void)state;
    attn_context *ctx = create(2);
    attn_memory_report before = {.struct_size = sizeof before}, after = before;
    void *p;
    assert_int_equal(attn_context_memory(ctx, &before), ATTN_OK);
    assert_int_equal(attn__allocate(ctx->memory, 1000000, &p), ATTN_OK);
    assert_int_equal(attn_context_memory(ctx, &after), ATTN_OK);
    assert_int_equal(after.live, before.live + 1000000);
    assert_int_equal(after.allocations, before.allocations + 1);
    attn__deallocate(ctx->memory, p, 1000000);
    assert_int_equal(attn_context_reset_peak(ctx), ATTN_OK);
    assert_int_equal(attn_context_memory(ctx, &after), ATTN_OK);
    assert_int_equal(after.live, before.live);
    assert_int_equal(after.peak, before.live);
    attn_context_free(ctx);
}

static void fill(void *job, int64_t tile, int32_t worker)
{
    attn_context *ctx = job;
    memset(attn__worker_scratch(ctx, worker), (int)tile, 1000);
}

static void test_scratch(void **state)
{
    (void)state;
    attn_context *ctx = create(3);
    attn_memory_report first = {.struct_size = sizeof first}, last = first;
    assert_int_equal(attn__worker_scratch_reserve(ctx, 0), ATTN_OK);
    assert_null(attn__worker_scratch(ctx, 0)); /* nothing of nothing */
    for (int64_t bytes = 1; bytes < 200; bytes++) {
        assert_int_equal(attn__worker_scratch_reserve(ctx, bytes), ATTN_OK);
        assert_true((char *)attn__worker_scratch(ctx, 1) - (char *)attn__worker_scratch(ctx, 0) >= bytes);
    }
    for (int round = 0; round < 4; round++) {
        assert_int_equal(attn__enter(ctx), ATTN_OK);
        char *p = attn__scratch(ctx, 100), *q = attn__scratch(ctx, 5000000);
        assert_true(p != NULL && q != NULL);
        memset(q, 1, 5000000);
        assert_int_equal(attn__worker_scratch_reserve(ctx, round == 0 ? 10 : 1000), ATTN_OK);
        assert_int_equal(attn__worker_scratch_reserve(ctx, 5), ATTN_OK); /* never shrinks */
        if (round > 0) {
            assert_int_equal(attn__run(ctx, 100, fill, ctx), ATTN_OK);
            for (int32_t w = 0; w < 3; w++) {
                char *slice = attn__worker_scratch(ctx, w);
                assert_int_equal((uintptr_t)slice % 64, 0);
                if (w > 0) assert_true(slice - (char *)attn__worker_scratch(ctx, w - 1) >= 1000);
            }
        }
        assert_int_equal(attn__leave(ctx, ATTN_OK), ATTN_OK);
        assert_int_equal(attn__arena_used(ctx->scratch), 0);
        if (round == 1) attn_context_memory(ctx, &first);
    }
    attn_context_memory(ctx, &last);
    assert_int_equal(last.allocations, first.allocations); /* the steady state allocates nothing */
    assert_int_equal(attn__worker_scratch_reserve(ctx, INT64_MAX), ATTN_ERROR_TOO_LARGE);
    assert_int_equal(attn__worker_scratch_reserve(ctx, INT64_MAX / 2), ATTN_ERROR_TOO_LARGE);
    assert_int_equal(attn__worker_scratch_reserve(ctx, -1), ATTN_ERROR_TOO_LARGE);
    assert_non_null(attn__worker_scratch(ctx, 2)); /* a refusal keeps what is there */
    attn_context_free(ctx);
}

static void pause_tile(void *job, int64_t tile, int32_t worker)
{
    (void)tile;
    (void)worker;
    atomic_fetch_add((atomic_int *)job, 1);
    usleep(500);
}

static attn_context *signalled;
static void on_alarm(int number)
{
    (void)number;
    attn_context_cancel(signalled);
}

static void test_cancel(void **state)
{
    (void)state;
    for (int32_t threads = 1; threads <= 3; threads += 2) {
        attn_context *ctx = create(threads);
        atomic_int runs = 0;
        /* between two calls: stops the next long one, once */
        assert_int_equal(attn_context_cancel(ctx), ATTN_OK);
        assert_int_equal(attn_context_set_backend(ctx, 0), ATTN_OK);
        attn__enter(ctx);
        assert_int_equal(attn__leave(ctx, attn__run(ctx, 10, pause_tile, &runs)), ATTN_ERROR_CANCELLED);
        assert_string_equal(attn_context_last_error(ctx), "the call was stopped by attn_context_cancel");
        assert_int_equal(runs, 0);
        assert_int_equal(attn__run(ctx, 10, pause_tile, &runs), ATTN_OK);
        assert_int_equal(attn__cancelled(ctx), ATTN_OK);
        attn_context_cancel(ctx);
        assert_int_equal(attn__cancelled(ctx), ATTN_ERROR_CANCELLED);
        assert_int_equal(attn__cancelled(ctx), ATTN_OK);
        /* in the middle, out of a signal handler */
        signalled = ctx;
        runs = 0;
        signal(SIGALRM, on_alarm);
        ualarm(20000, 0);
        assert_int_equal(attn__run(ctx, 100000, pause_tile, &runs), ATTN_ERROR_CANCELLED);
        assert_true(runs > 0 && runs < 100000);
        signal(SIGALRM, SIG_DFL);
        attn_context_free(ctx);
    }
}

/* which workers ran, a bit each; a tile lasts long enough for all to come */
static void note_worker(void *job, int64_t tile, int32_t worker)
{
    (void)tile;
    usleep(200);
    atomic_fetch_or((atomic_int *)job, 1 << worker);
}

/* little work wakes nobody, much work does; both can be cancelled */
static void test_light(void **state)
{
    (void)state;
    attn_context *ctx = create(3);
    atomic_int few = 0, many = 0;
    assert_int_equal(attn__run_light(ctx, 300, note_worker, &few, ATTN__WORTH_WAKING - 1), ATTN_OK);
    assert_int_equal(few, 1);
    assert_int_equal(attn__run_light(ctx, 300, note_worker, &many, ATTN__WORTH_WAKING), ATTN_OK);
    assert_true(many > 1);
    attn_context_cancel(ctx);
    assert_int_equal(attn__run_light(ctx, 2, note_worker, &few, 0), ATTN_ERROR_CANCELLED);
    assert_int_equal(attn__run_light(ctx, 2, note_worker, &few, 0), ATTN_OK);
    attn_context_free(ctx);
}

static int child(attn_context *ctx)
{
    int32_t threads = 0;
    atomic_int runs = 0;
    alarm(20);
    if (attn_context_threads(ctx, &threads) != ATTN_OK || threads != 1) return 1;
    if (attn__enter(ctx) != ATTN_OK) return 2;
    if (attn__worker_scratch_reserve(ctx, 1 << 20) != ATTN_OK) return 3;
    if (attn__run(ctx, 20, pause_tile, &runs) != ATTN_OK || runs != 20) return 4;
    if (attn__leave(ctx, ATTN_OK) != ATTN_OK) return 5;
    attn_context_free(ctx);
    return 0;
}

/* ThreadSanitizer allows no new thread in a child, OpenBLAS and we start some. */
#ifdef __SANITIZE_THREAD__
#define CAN_FORK 0
#else
#define CAN_FORK 1
#endif

static void test_fork(void **state)
{
    (void)state;
    if (!CAN_FORK) skip();
    int status;
    attn_context *ctx = create(4);
    atomic_int runs = 0;
    assert_int_equal(attn__worker_scratch_reserve(ctx, 100), ATTN_OK);
    assert_int_equal(attn__run(ctx, 20, pause_tile, &runs), ATTN_OK);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(child(ctx));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    attn_context_free(ctx);
}

static void test_names(void **state)
{
    (void)state;
    static const struct {
        attn_status code;
        const char *name;
    } codes[] = {{ATTN_OK, "ok"},
                 {ATTN_ERROR_INVALID_ARGUMENT, "invalid argument"},
                 {ATTN_ERROR_SHAPE, "wrong shape"},
                 {ATTN_ERROR_DTYPE, "wrong dtype"},
                 {ATTN_ERROR_TOO_LARGE, "too large"},
                 {ATTN_ERROR_UNSUPPORTED, "unsupported"},
                 {ATTN_ERROR_BAD_STATE, "bad state"},
                 {ATTN_ERROR_OUT_OF_MEMORY, "out of memory"},
                 {ATTN_ERROR_MEMORY_CAP, "memory cap reached"},
                 {ATTN_ERROR_FULL, "full"},
                 {ATTN_ERROR_IO, "input or output failed"},
                 {ATTN_ERROR_BAD_FILE, "bad file"},
                 {ATTN_ERROR_MISMATCH, "mismatch"},
                 {ATTN_ERROR_END_OF_DATA, "end of data"},
                 {ATTN_ERROR_CANCELLED, "cancelled"},
                 {ATTN_ERROR_BLAS, "unusable BLAS"},
                 {ATTN_ERROR_NOT_FINITE, "not finite"}};
    int known = 0;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) assert_string_equal(attn_status_name(codes[i].code), codes[i].name);
    for (attn_status code = -100; code < 100; code++) known += strcmp(attn_status_name(code), "unknown status") != 0;
    assert_int_equal(known, sizeof codes / sizeof *codes);
    assert_string_equal(attn_status_name(1), "unknown status");
    assert_string_equal(attn_status_name(INT32_MIN), "unknown status");
    assert_non_null(strstr(attn_build_info(), attn_version()));
    static const struct {
        const char *name;
        int64_t bytes;
    } dtypes[] = {{"unknown", 0}, {"float32", 4},  {"float64", 8}, {"int32", 4},  {"int64", 8},
                  {"float16", 2}, {"bfloat16", 2}, {"uint8", 1},   {"unknown", 0}};
    for (int32_t d = 0; d < 9; d++) {
        assert_string_equal(attn__dtype_name(d), dtypes[d].name);
        assert_int_equal(attn__dtype_bytes(d), dtypes[d].bytes);
    }
    assert_int_equal(attn__dtype_bytes(INT32_MIN) + attn__dtype_bytes(INT32_MAX), 0);
}

static void test_checked_arithmetic(void **state)
{
    (void)state;
    int64_t out;
    assert_int_equal(attn__multiply(INT64_C(1) << 31, INT64_C(1) << 31, &out), 0);
    assert_true(out == INT64_C(1) << 62);
    assert_int_equal(attn__multiply(INT64_C(1) << 33, INT64_C(1) << 33, &out), 1);
    assert_int_equal(attn__multiply(-1, 0, &out), 1);
    assert_int_equal(attn__multiply(0, -1, &out), 1);
    assert_int_equal(attn__sum(INT64_MAX, 0, &out), 0);
    assert_int_equal(attn__sum(INT64_MAX, 1, &out), 1);
    assert_int_equal(attn__sum(5, -1, &out), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options), cmocka_unit_test(test_creation_fails), cmocka_unit_test(test_cap),
        cmocka_unit_test(test_errors),  cmocka_unit_test(test_handles),        cmocka_unit_test(test_memory_report),
        cmocka_unit_test(test_scratch), cmocka_unit_test(test_cancel),         cmocka_unit_test(test_light),
        cmocka_unit_test(test_fork),    cmocka_unit_test(test_names),          cmocka_unit_test(test_checked_arithmetic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
