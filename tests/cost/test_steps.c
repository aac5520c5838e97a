/* Ten thousand steps of training, of decoding and of forward calls: memory, its peak, the count of allocations and the process stay as they
   are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/model.h"

enum { STEPS = 10000, SETTLED = 50, ROOM = 1 << 18 }; /* ROOM: bytes the process may grow by; a leak of 32 bytes a step shows */

static int64_t steps_done;

/* bytes of the process in memory; 0 where that cannot be read */
static int64_t resident(void)
{
    long pages = 0, skipped = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL) return 0;
    if (fscanf(file, "%ld %ld", &skipped, &pages) != 2) pages = 0;
    fclose(file);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

typedef struct watcher {
    attn_context *ctx;
    attn_memory_report before;
    int64_t resident;
} watcher;

static void look(watcher *w, int64_t step)
{
    attn_memory_report now = {.struct_size = sizeof now};
    if (step == SETTLED) {
        w->before.struct_size = sizeof w->before;
        OK(w->ctx, attn_context_memory(w->ctx, &w->before));
        w->resident = resident();
    }
    if (step < SETTLED || step % 1000 != 0) return;
    OK(w->ctx, attn_context_memory(w->ctx, &now));
    if (memcmp(&now, &w->before, sizeof now) != 0)
        fail_msg("step %lld: live %lld, peak %lld, %lld allocations; after %d steps %lld, %lld, %lld", (long long)step, (long long)now.live,
                 (long long)now.peak, (long long)now.allocations, SETTLED, (long long)w->before.live, (long long)w->before.peak,
                 (long long)w->before.allocations);
    if (resident() > w->resident + ROOM)
        fail_msg("step %lld: the process has %lld bytes, after %d steps %lld", (long long)step, (long long)resident(), SETTLED,
                 (long long)w->resident);
}

/* sequences of other lengths at every step, with an encoder */
static void test_training(void **state)
{
    (void)state;
    enum { KINDS = 5 };
    static const int64_t source[KINDS][3] = {{9, 3, 1}, {12, 12, 12}, {1, 1, 1}, {0, 7, 5}, {4, 4, 4}},
                         target[KINDS][3] = {{4, 8, 2}, {12, 12, 12}, {3, 2, 1}, {6, 1, 1}, {9, 9, 9}};
    attn_transformer_options o = model_options(1, 1);
    attn_optimizer_options a;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 2, 0);
    attn_transformer *model = model_create(ctx, &o);
    attn_trainer *trainer = NULL;
    model_batch batch[KINDS];
    watcher w = {.ctx = ctx};
    OK(ctx, attn_optimizer_options_init(&a, sizeof a));
    a.rate = 1e-5;
    for (int i = 0; i < KINDS; i++) model_batch_open(ctx, &batch[i], &o, 3, source[i], target[i], (uint64_t)i);
    OK(ctx, attn_trainer_create(ctx, model, NULL, &a, NULL, NULL, &trainer));
    OK(ctx, attn_trainer_reserve(ctx, trainer, 36, 12));
    for (int64_t step = 1; step <= STEPS; step++, steps_done++) {
        OK(ctx, attn_trainer_step(ctx, trainer, &batch[step % KINDS].batch, NULL));
        look(&w, step);
    }
    attn_trainer_free(trainer);
    for (int i = 0; i < KINDS; i++) model_batch_close(&batch[i]);
    attn_transformer_free(model);
    attn_context_free(ctx);
}

/* session after session in one generator, each of a prompt and 20 steps */
static void test_decoding(void **state)
{
    (void)state;
    const int64_t source[2] = {9, 4}, target[2] = {3, 1};
    attn_transformer_options o = model_options(1, 2);
    attn_generator_options g;
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 2, 0);
    attn_transformer *model = model_create(ctx, &o);
    attn_generator *generator = NULL;
    model_batch batch;
    watcher w = {.ctx = ctx};
    int32_t tokens[2], finished[2];
    model_batch_open(ctx, &batch, &o, 2, source, target, 1);
    OK(ctx, attn_generator_options_init(&g, sizeof g));
    g.sequences = 2;
    g.capacity = 24;
    OK(ctx, attn_generator_create(ctx, model, &g, &generator));
    for (int64_t step = 1; step <= STEPS; step++, steps_done++) {
        if (step % 20 == 1) OK(ctx, attn_generator_prompt(ctx, generator, &batch.batch));
        OK(ctx, attn_generator_step(ctx, generator, 2, tokens, finished));
        look(&w, step);
    }
    attn_generator_free(generator);
    model_batch_close(&batch);
    attn_transformer_free(model);
    attn_context_free(ctx);
}

/* calls without a trainer: forward, and forward and backward on a tape */
static void test_calls(void **state)
{
    (void)state;
    const int64_t target[2] = {13, 1};
    attn_transformer_options o = model_options(0, 1);
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    attn_transformer *model = model_create(ctx, &o);
    attn_gradients *gradients = NULL;
    attn_tape *tape = NULL;
    model_batch batch;
    watcher w = {.ctx = ctx};
    model_batch_open(ctx, &batch, &o, 2, NULL, target, 1);
    attn_tensor *logits = model_tensor(ctx, ATTN_FLOAT32, 14, 11), *loss = model_tensor(ctx, ATTN_FLOAT32, 1, 0);
    OK(ctx, attn_tape_create(ctx, &tape));
    OK(ctx, attn_gradients_create(ctx, attn_transformer_parameters(model), &gradients));
    for (int64_t step = 1; step <= STEPS; step++, steps_done++) {
        const attn_tensor *outputs[] = {loss};
        OK(ctx, attn_transformer_forward(ctx, model, NULL, &batch.batch, logits));
        OK(ctx, attn_tape_begin(ctx, tape, NULL));
        OK(ctx, attn_transformer_loss(ctx, model, tape, &batch.batch, NULL, loss, NULL));
        OK(ctx, attn_tape_backward(ctx, tape, 1, outputs, NULL, 1, &gradients));
        look(&w, step);
    }
    attn_tape_free(tape);
    attn_gradients_free(gradients);
    attn_tensor_free(logits);
    attn_tensor_free(loss);
    model_batch_close(&batch);
    attn_transformer_free(model);
    attn_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_training), cmocka_unit_test(test_decoding), cmocka_unit_test(test_calls)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    printf("steps: %lld without growth\n", (long long)steps_done);
    return failed;
}
