#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/model.h"

/* Objects are freed in any order, from any thread, while others still refer to them. Every object below knows some of the others. */
enum {
    CTX,
    MODEL,
    MASK,
    BOTH,
    DATASET,
    TRAINER,
    OPTIMIZER,
    GRADIENTS,
    TAPE,
    GENERATOR,
    SOURCE,
    X,
    DX,
    LAYER,
    LAYER_TAPE,
    VOCABULARY,
    OBJECTS
};
typedef struct family {
    attn_context *ctx;
    attn_transformer *model;
    attn_mask *mask, *both;
    attn_dataset *dataset;
    attn_trainer *trainer;
    attn_optimizer *optimizer;
    attn_gradients *gradients;
    attn_tape *tape, *layer_tape;
    attn_generator *generator;
    attn_layout *source;
    attn_tensor *x, *dx, *y;
    attn_attention *layer;
    attn_vocabulary *vocabulary;
    attn_tensor *tokens, *loss;
} family;

static void make(family *f, test_allocator *allocator)
{
    const attn_transformer_options o = model_options(0, 1);
    static const int32_t tokens[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 1};
    attn_dataset_options d;
    attn_attention_options a;
    attn_batch batch;
    memset(f, 0, sizeof *f);
    attn_context *ctx = f->ctx = model_context_counted(allocator, ATTN_BACKEND_BLAS, 2);
    f->model = model_create(ctx, &o);
    OK(ctx, attn_mask_causal(ctx, ATTN_ALIGN_LAST, &f->mask));
    OK(ctx, attn_mask_union(ctx, f->mask, f->mask, &f->both));
    OK(ctx, attn_transformer_set_mask(ctx, f->model, 1, -1, f->both));
    OK(ctx, attn_dataset_options_init(&d, sizeof d));
    d.context = d.batch = 3;
    OK(ctx, attn_dataset_tokens(ctx, tokens, 12, &d, &f->dataset));
    OK(ctx, attn_trainer_create(ctx, f->model, f->dataset, NULL, NULL, NULL, &f->trainer));
    OK(ctx, attn_optimizer_create(ctx, attn_transformer_parameters(f->model), NULL, &f->optimizer));
    OK(ctx, attn_gradients_create(ctx, attn_transformer_parameters(f->model), &f->gradients));
    OK(ctx, attn_generator_create(ctx, f->model, NULL, &f->generator));
    OK(ctx, attn_vocabulary_create(ctx, ATTN_SYMBOLS_WORDS, "a b", 3, 0, &f->vocabulary));
    OK(ctx, attn_layout_create(ctx, 2, &f->source));
    OK(ctx, attn_layout_set_lengths(ctx, f->source, 2, (int64_t[]){1, 3}, 0));
    /* a tape that knows the model, its masks and a layout */
    f->tokens = model_tensor(ctx, ATTN_INT32, 4, 0);
    f->loss = model_tensor(ctx, ATTN_FLOAT32, 1, 0);
    OK(ctx, attn_batch_init(&batch, sizeof batch));
    batch.target = batch.labels = f->tokens;
    batch.target_layout = f->source;
    OK(ctx, attn_tape_create(ctx, &f->tape));
    OK(ctx, attn_tape_begin(ctx, f->tape, NULL));
    OK(ctx, attn_transformer_loss(ctx, f->model, f->tape, &batch, NULL, f->loss, NULL));
    /* and one that knows a layer, a mask and tensors */
    OK(ctx, attn_attention_options_init(&a, sizeof a));
    a.query_width = 4;
    OK(ctx, attn_attention_create(ctx, &a, &f->layer));
    f->x = model_tensor(ctx, ATTN_FLOAT32, 4, 4);
    f->dx = model_tensor(ctx, ATTN_FLOAT32, 4, 4);
    f->y = model_tensor(ctx, ATTN_FLOAT32, 4, 4);
    for (int64_t i = 0; i < 16; i++) model_set(f->x, i, 0.125 * (double)i);
    OK(ctx, attn_tape_create(ctx, &f->layer_tape));
    OK(ctx, attn_tape_begin(ctx, f->layer_tape, NULL));
    OK(ctx, attn_tape_watch(ctx, f->layer_tape, f->x, f->dx));
    OK(ctx, attn_attention_forward(ctx, f->layer, f->layer_tape, f->x, f->x, f->x, f->source, f->source, f->both, f->y));
}

static void free_one(family *f, int which)
{
    switch (which) {
    case CTX: attn_context_free(f->ctx); break;
    case MODEL: attn_transformer_free(f->model); break;
    case MASK: attn_mask_free(f->mask); break;
    case BOTH: attn_mask_free(f->both); break;
    case DATASET: attn_dataset_free(f->dataset); break;
    case TRAINER: attn_trainer_free(f->trainer); break;
    case OPTIMIZER: attn_optimizer_free(f->optimizer); break;
    case GRADIENTS: attn_gradients_free(f->gradients); break;
    case TAPE: attn_tape_free(f->tape); break;
    case GENERATOR: attn_generator_free(f->generator); break;
    case SOURCE: attn_layout_free(f->source); break;
    case X: attn_tensor_free(f->x); break;
    case DX: attn_tensor_free(f->dx); break;
    case LAYER: attn_attention_free(f->layer); break;
    case LAYER_TAPE: attn_tape_free(f->layer_tape); break;
    default: attn_vocabulary_free(f->vocabulary);
    }
}

static void free_rest(family *f)
{
    attn_tensor_free(f->y);
    attn_tensor_free(f->tokens);
    attn_tensor_free(f->loss);
}

typedef struct job {
    family *family;
    const int *order;
    int first, step;
} job;
static void *free_some(void *data)
{
    const job *j = data;
    for (int i = j->first; i < OBJECTS; i += j->step) free_one(j->family, j->order[i]);
    return NULL;
}

static void shuffle(random_state *random, int order[OBJECTS])
{
    for (int i = 0; i < OBJECTS; i++) order[i] = i;
    for (int i = OBJECTS - 1; i > 0; i--) {
        int j = (int)random_integer(random, 0, i + 1), kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}

static void expect_nothing_left(const test_allocator *allocator)
{
    assert_true(allocator->live_pointers == 0 && allocator->live_bytes == 0 && allocator->wrong == 0);
}

/* each object first, each object last, then random orders; by one thread, or by two at once */
static void orders(int threads, int rounds)
{
    random_state random = {11};
    for (int round = 0; round < rounds; round++) {
        test_allocator allocator = {0};
        family f;
        int order[OBJECTS];
        pthread_t other;
        make(&f, &allocator);
        shuffle(&random, order);
        for (int i = 0; round < 2 * OBJECTS && i < OBJECTS; i++) {
            if (order[i] != round % OBJECTS) continue;
            int end = round < OBJECTS ? 0 : OBJECTS - 1;
            order[i] = order[end];
            order[end] = round % OBJECTS;
        }
        job mine = {&f, order, 0, threads}, others = {&f, order, 1, threads};
        if (threads > 1) assert_int_equal(pthread_create(&other, NULL, free_some, &others), 0);
        free_some(&mine);
        if (threads > 1) assert_int_equal(pthread_join(other, NULL), 0);
        free_rest(&f);
        expect_nothing_left(&allocator);
    }
}

static void any_order(void **state)
{
    (void)state;
    orders(1, 3 * OBJECTS);
}

static void two_threads(void **state)
{
    (void)state;
    orders(2, 3 * OBJECTS);
}

/* What others still need goes on working: a trainer, a generator, an optimizer and two tapes, after all that they were made of is gone. */
static const int gone[] = {MODEL, MASK, BOTH, DATASET, LAYER, SOURCE, X};
static void *free_gone(void *data)
{
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) free_one(data, gone[i]);
    return NULL;
}

static void use(family *f, attn_context *ctx)
{
    static const int32_t prompt[2] = {1, 2};
    const attn_tensor *const outputs[1] = {f->loss}, *const layer_outputs[1] = {f->y};
    int32_t token, finished;
    double norm = 0;
    OK(ctx, attn_tape_backward(ctx, f->tape, 1, outputs, NULL, 1, &f->gradients));
    OK(ctx, attn_gradients_norm(ctx, f->gradients, &norm));
    assert_true(norm > 0);
    OK(ctx, attn_tape_backward(ctx, f->layer_tape, 1, layer_outputs, NULL, 0, NULL));
    OK(ctx, attn_optimizer_step(ctx, f->optimizer, f->gradients, 1, NULL));
    for (int i = 0; i < 3; i++) OK(ctx, attn_trainer_step(ctx, f->trainer, NULL, NULL));
    OK(ctx, attn_generator_prompt_tokens(ctx, f->generator, 2, prompt));
    for (int i = 0; i < 3; i++) OK(ctx, attn_generator_step(ctx, f->generator, 1, &token, &finished));
}

static void what_is_needed_lives_on(void **state)
{
    (void)state;
    for (int round = 0; round < 6; round++) { /* freed before, or by another thread while the rest is used; with the context, or without */
        test_allocator allocator = {0};
        family f;
        pthread_t other;
        const int at_once = round % 2, other_context = round / 2 % 2;
        make(&f, &allocator);
        attn_context *ctx = other_context ? model_context(ATTN_BACKEND_BLAS, 2, 0) : f.ctx;
        if (other_context) attn_context_free(f.ctx);
        assert_int_equal(pthread_create(&other, NULL, free_gone, &f), 0);
        if (!at_once) assert_int_equal(pthread_join(other, NULL), 0);
        use(&f, ctx);
        if (at_once) assert_int_equal(pthread_join(other, NULL), 0);
        static const int rest[] = {TRAINER, GENERATOR, OPTIMIZER, GRADIENTS, TAPE, LAYER_TAPE, DX, VOCABULARY};
        for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) free_one(&f, rest[i]);
        free_rest(&f);
        attn_context_free(ctx);
        expect_nothing_left(&allocator);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_order), cmocka_unit_test(two_threads),
                                       cmocka_unit_test(what_is_needed_lives_on)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
