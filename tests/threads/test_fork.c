#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "support/blas.h"
#include "support/scenario.h"

/* A child goes on with everything it inherits and writes the bytes its parent would have written. A child that hangs is ended by its
   alarm, and that is a failure. */
enum { MOST_SECONDS = 100 };

#ifdef __SANITIZE_THREAD__
#define CAN_FORK 0 /* ThreadSanitizer allows no new thread in a child of a process with threads */
#else
#define CAN_FORK 1
#endif

/* of BLAS, before the library computed for the first time */
static int chosen_threads, chosen_openmp;
static int create(void **state)
{
    (void)state;
    blas_set_threads(4);
    blas_set_openmp_threads(4);
    chosen_threads = blas_threads();
    chosen_openmp = blas_openmp_threads();
    return 0;
}

static void expect_child(pid_t pid)
{
    int status;
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status != 0) fail_msg("the child ended with status 0x%x", (unsigned)status);
}

/* in a child: what went wrong, 0 for nothing */
static int child_computes(attn_context *ctx, int which, digest expected)
{
    int32_t threads = 0;
    alarm(MOST_SECONDS);
    if (attn_context_threads(ctx, &threads) != ATTN_OK || threads != 1) return 1;
    if (scenario_whole(ctx, which) != expected) return 2;
    attn_context *own = model_context(ATTN_BACKEND_BLAS, 3, 0);
    if (attn_context_threads(own, &threads) != ATTN_OK || threads != 3) return 3;
    if (scenario_whole(own, which) != expected) return 4;
    attn_context_free(own);
    attn_context_free(ctx); /* the parent's context ends here, too */
    return 0;
}

static void test_context(void **state)
{
    (void)state;
    if (!CAN_FORK) skip();
    for (int which = 0; which < SCENARIOS; which += 2) {
        attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 4, 0);
        digest expected = scenario_whole(ctx, which);
        pid_t pid = fork();
        if (pid == 0) {
            int wrong = child_computes(ctx, which, expected);
            if (wrong == 0 && (blas_threads() != chosen_threads || blas_openmp_threads() != chosen_openmp)) wrong = 5;
            _exit(wrong);
        }
        assert_true(scenario_whole(ctx, which) == expected); /* the parent at the same time */
        expect_child(pid);
        assert_true(scenario_whole(ctx, which) == expected);
        attn_context_free(ctx);
    }
}

/* in a child as well the allocator gets back the sizes that it gave, and all of them */
static void test_memory(void **state)
{
    (void)state;
    if (!CAN_FORK) skip();
    test_allocator allocator = {0};
    attn_context *ctx = model_context_counted(&allocator, ATTN_BACKEND_BLAS, 4);
    scenario_whole(ctx, 1);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(MOST_SECONDS);
        scenario_whole(ctx, 1);
        attn_context_free(ctx);
        _exit(allocator.wrong != 0 ? 2 : allocator.live_bytes != 0 || allocator.live_pointers != 0 ? 3 : 0);
    }
    expect_child(pid);
    attn_context_free(ctx);
    assert_true(allocator.wrong == 0 && allocator.live_bytes == 0);
}

static void test_grandchild(void **state)
{
    (void)state;
    if (!CAN_FORK) skip();
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 2, 0);
    digest expected = scenario_whole(ctx, 1);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(MOST_SECONDS);
        if (scenario_whole(ctx, 1) != expected) _exit(11);
        pid_t next = fork();
        if (next == 0) _exit(child_computes(ctx, 1, expected));
        int status = 0;
        _exit(waitpid(next, &status, 0) == next && status == 0 ? 0 : 12);
    }
    expect_child(pid);
    attn_context_free(ctx);
}

/* a trainer and a session in the middle of their work: both processes go on from there */
static digest go_on(attn_context *ctx, attn_transformer *model, attn_trainer *trainer, attn_generator *generator)
{
    digest d = 1;
    model_batch batch;
    int32_t tokens[4], finished[4];
    for (int i = 0; i < 3; i++) {
        OK(ctx, attn_generator_step(ctx, generator, 4, tokens, finished));
        d = digest_add(d, tokens, sizeof tokens);
    }
    scenario_batch(ctx, 1, &batch);
    for (int i = 0; i < 2; i++) OK(ctx, attn_trainer_step(ctx, trainer, &batch.batch, NULL));
    model_batch_close(&batch);
    digest parameters = digest_parameters(attn_transformer_parameters(model));
    return digest_add(d, &parameters, sizeof parameters);
}

static void test_in_the_middle(void **state)
{
    (void)state;
    int ends[2];
    digest here, there = 0;
    if (!CAN_FORK) skip();
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 3, 0);
    attn_transformer *model = scenario_model(ctx, 1), *other = scenario_model(ctx, 1);
    attn_trainer *trainer = scenario_trainer(ctx, model);
    attn_generator *generator = scenario_generator(ctx, 1, other);
    digest first = go_on(ctx, model, trainer, generator);
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(MOST_SECONDS);
        there = go_on(ctx, model, trainer, generator);
        attn_generator_free(generator);
        attn_trainer_free(trainer);
        attn_transformer_free(model);
        attn_transformer_free(other);
        attn_context_free(ctx);
        _exit(write(ends[1], &there, sizeof there) == sizeof there ? 0 : 1);
    }
    here = go_on(ctx, model, trainer, generator);
    expect_child(pid);
    assert_int_equal(read(ends[0], &there, sizeof there), sizeof there);
    assert_true(here == there && here != first);
    close(ends[0]);
    close(ends[1]);
    attn_generator_free(generator);
    attn_trainer_free(trainer);
    attn_transformer_free(model);
    attn_transformer_free(other);
    attn_context_free(ctx);
}

typedef struct busy {
    atomic_int stop, rounds, wrong;
    digest expected;
} busy;

static void *compute(void *argument)
{
    busy *b = argument;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 2, 0);
    while (!b->stop) {
        if (scenario_whole(ctx, 4) != b->expected) b->wrong = 1;
        b->rounds++;
    }
    attn_context_free(ctx);
    return NULL;
}

/* The process forks at random moments while another of its threads computes: the child has another context to itself. */
static void test_while_another_thread_computes(void **state)
{
#ifdef __SANITIZE_ADDRESS__
    skip(); /* the sanitizer's allocator does not release its locks in a child: one that another thread held there is waited for forever */
#endif
    (void)state;
    const char *wanted = getenv("ATTN_FORKS"); /* how often */
    const int forks = wanted != NULL ? atoi(wanted) : 8;
    if (!CAN_FORK) skip();
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 2, 0);
    busy b = {.expected = scenario_whole(ctx, 4)};
    random_state random = {9};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, compute, &b), 0);
    while (b.rounds < 1) usleep(1000);
    for (int i = 0; i < forks; i++) {
        usleep((unsigned)random_integer(&random, 0, 20000));
        pid_t pid = fork();
        if (pid == 0) {
            alarm(MOST_SECONDS);
            int same = scenario_whole(ctx, 4) == b.expected;
            _exit(!same ? 2 : blas_threads() != chosen_threads ? 5 : 0);
        }
        expect_child(pid);
    }
    b.stop = 1;
    pthread_join(thread, NULL);
    assert_int_equal(b.wrong, 0);
    assert_int_equal(blas_threads(), chosen_threads);
    attn_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_context), cmocka_unit_test(test_memory), cmocka_unit_test(test_grandchild),
                                       cmocka_unit_test(test_in_the_middle), cmocka_unit_test(test_while_another_thread_computes)};
    return cmocka_run_group_tests(tests, create, NULL);
}
