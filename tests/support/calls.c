#include "support/calls.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/model.h"
#include "tensor/parameters.h"

/* An allocator that gives nothing back before the end, so that a freed handle can be looked at. What is released is written over. */
enum { HEADER = 128, MEMORY = 65536, OWNED = 4096, PATTERN = 0xA5, SCRIBBLE = 0xDB };
typedef struct block {
    struct block *next;
    uint64_t size;
    int released;
} block;
struct calls_memory {
    pthread_mutex_t lock;
    block *blocks;
    long wrong; /* releases of another size, or twice */
    void *owned[OWNED];
    attn_tensor *tensors[OWNED];
    int owned_count, tensors_count;
};

static void *allocate(void *user, uint64_t size, uint64_t alignment)
{
    struct calls_memory *m = user;
    void *base = NULL;
    (void)alignment;
    if (size > PTRDIFF_MAX / 2 || posix_memalign(&base, HEADER, (size_t)size + HEADER) != 0) return NULL;
    block *made = base;
    pthread_mutex_lock(&m->lock);
    *made = (block){m->blocks, size, 0};
    m->blocks = made;
    pthread_mutex_unlock(&m->lock);
    return (char *)base + HEADER;
}

static void release(void *user, void *pointer, uint64_t size)
{
    struct calls_memory *m = user;
    block *at = (block *)(void *)((char *)pointer - HEADER);
    pthread_mutex_lock(&m->lock);
    if (at->released || at->size != size) m->wrong++;
    at->released = 1;
    pthread_mutex_unlock(&m->lock);
    memset(pointer, SCRIBBLE, (size_t)size);
}

void *calls_memory(calls *t)
{
    assert_true(t->memory->owned_count < OWNED);
    void *made = calloc(1, MEMORY);
    assert_non_null(made);
    return t->memory->owned[t->memory->owned_count++] = made;
}

attn_tensor *calls_over(calls *t, int32_t dtype, int32_t rank, const int64_t *shape, const int64_t *strides, void *data)
{
    attn_tensor *made = NULL;
    assert_true(t->memory->tensors_count < OWNED);
    OK(t->ctx, attn_tensor_wrap(t->ctx, dtype, rank, shape, strides, data, &made));
    return t->memory->tensors[t->memory->tensors_count++] = made;
}

attn_tensor *calls_tensor(calls *t, int32_t dtype, int32_t rank, const int64_t *shape)
{
    void *data = calls_memory(t);
    for (int64_t i = 0; i < 64; i++) {
        double value = 1 + 0.5 * (double)((i * 37 + t->memory->owned_count) % 29 - 14) / 15;
        if (dtype == ATTN_FLOAT32) ((float *)data)[i] = (float)value;
        if (dtype == ATTN_FLOAT64) ((double *)data)[i] = value;
    }
    return calls_over(t, dtype, rank, shape, NULL, data);
}

/* one live object of every kind, all from the same few options */
static void make_all(calls *t, void *all[HANDLE_KINDS])
{
    attn_context *ctx = t->ctx;
    const attn_transformer_options o = model_options(1, 1);
    const int32_t tokens[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    attn_attention_options a;
    attn_dataset_options d;
    attn_allocator hooks = {sizeof hooks, allocate, release, t->memory};
    attn_context_options c;
    OK(ctx, attn_context_options_init(&c, sizeof c));
    OK(ctx, attn_attention_options_init(&a, sizeof a));
    OK(ctx, attn_dataset_options_init(&d, sizeof d));
    c.threads = 1;
    c.allocator = &hooks;
    a.query_width = 4;
    d.context = d.batch = 2;
    OK(ctx, attn_context_create(&c, (attn_context **)&all[CONTEXT]));
    OK(ctx, attn_tensor_create(ctx, ATTN_FLOAT32, 2, (int64_t[]){2, 2}, (attn_tensor **)&all[TENSOR]));
    OK(ctx, attn_layout_create(ctx, 2, (attn_layout **)&all[LAYOUT]));
    OK(ctx, attn_mask_causal(ctx, ATTN_ALIGN_LAST, (attn_mask **)&all[MASK]));
    OK(ctx, attn_tape_create(ctx, (attn_tape **)&all[TAPE]));
    OK(ctx, attn_attention_create(ctx, &a, (attn_attention **)&all[ATTENTION]));
    all[PARAMETERS] = attn_attention_parameters(all[ATTENTION]);
    OK(ctx, attn_gradients_create(ctx, all[PARAMETERS], (attn_gradients **)&all[GRADIENTS]));
    OK(ctx, attn_encoder_create(ctx, &o, (attn_encoder **)&all[ENCODER]));
    OK(ctx, attn_decoder_create(ctx, &o, (attn_decoder **)&all[DECODER]));
    OK(ctx, attn_transformer_create(ctx, &o, (attn_transformer **)&all[TRANSFORMER]));
    OK(ctx, attn_optimizer_create(ctx, all[PARAMETERS], NULL, (attn_optimizer **)&all[OPTIMIZER]));
    OK(ctx, attn_vocabulary_create(ctx, ATTN_SYMBOLS_BYTES, NULL, 0, 0, (attn_vocabulary **)&all[VOCABULARY]));
    OK(ctx, attn_dataset_tokens(ctx, tokens, 8, &d, (attn_dataset **)&all[DATASET]));
    OK(ctx, attn_trainer_create(ctx, all[TRANSFORMER], NULL, NULL, NULL, NULL, (attn_trainer **)&all[TRAINER]));
    OK(ctx, attn_generator_create(ctx, all[TRANSFORMER], NULL, (attn_generator **)&all[GENERATOR]));
}

static void free_all(void *all[HANDLE_KINDS])
{
    attn_trainer_free(all[TRAINER]);
    attn_generator_free(all[GENERATOR]);
    attn_dataset_free(all[DATASET]);
    attn_vocabulary_free(all[VOCABULARY]);
    attn_optimizer_free(all[OPTIMIZER]);
    attn_transformer_free(all[TRANSFORMER]);
    attn_decoder_free(all[DECODER]);
    attn_encoder_free(all[ENCODER]);
    attn_gradients_free(all[GRADIENTS]);
    attn_attention_free(all[ATTENTION]);
    attn_tape_free(all[TAPE]);
    attn_mask_free(all[MASK]);
    attn_layout_free(all[LAYOUT]);
    attn_tensor_free(all[TENSOR]);
    attn_context_free(all[CONTEXT]);
}

/* a tape that a backward has consumed */
static attn_tape *spend(calls *t)
{
    attn_tape *tape = NULL;
    attn_tensor *x = FLOATS(t, 2), *dx = FLOATS(t, 2), *y = FLOATS(t, 2);
    OK(t->ctx, attn_tape_create(t->ctx, &tape));
    OK(t->ctx, attn_tape_begin(t->ctx, tape, NULL));
    OK(t->ctx, attn_tape_watch(t->ctx, tape, x, dx));
    OK(t->ctx, attn_softmax(t->ctx, tape, x, y));
    OK(t->ctx, attn_tape_backward(t->ctx, tape, 1, (const attn_tensor *const[]){y}, NULL, 0, NULL));
    return tape;
}

calls *calls_open(int32_t backend)
{
    calls *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->memory = calloc(1, sizeof *t->memory);
    assert_non_null(t->memory);
    pthread_mutex_init(&t->memory->lock, NULL);
    attn_allocator hooks = {sizeof hooks, allocate, release, t->memory};
    attn_context_options o;
    assert_int_equal(attn_context_options_init(&o, sizeof o), ATTN_OK);
    o.backend = backend;
    o.threads = 2;
    o.allocator = &hooks;
    assert_int_equal(attn_context_create(&o, &t->ctx), ATTN_OK);
    t->broken = calls_memory(t);
    t->spare = calls_memory(t);
    make_all(t, t->freed);
    free_all(t->freed);
    make_all(t, t->live);
    OK(t->ctx, attn_tape_create(t->ctx, &t->new_tape));
    t->spent_tape = spend(t);
    return t;
}

static void drop_guards(calls *t)
{
    for (int i = 0; i < t->guards; i++) {
        free(t->guarded[i].before);
        free(t->guarded[i].first);
    }
    t->guards = 0;
}

void calls_close(calls *t)
{
    struct calls_memory *m = t->memory;
    long lost = 0;
    drop_guards(t);
    attn_tape_free(t->new_tape);
    attn_tape_free(t->spent_tape);
    free_all(t->live);
    for (int i = 0; i < m->tensors_count; i++) attn_tensor_free(m->tensors[i]);
    attn_context_free(t->ctx);
    for (block *at = m->blocks, *next; at != NULL; at = next) {
        next = at->next;
        lost += !at->released;
        free(at);
    }
    for (int i = 0; i < m->owned_count; i++) free(m->owned[i]);
    print_message("%ld wrong calls in %ld rows\n", t->wrong, t->rows);
    if (lost > 0 || m->wrong > 0) print_error("%ld blocks were not released, %ld were released wrongly\n", lost, m->wrong);
    long failed = t->failures + lost + m->wrong;
    pthread_mutex_destroy(&m->lock);
    free(m);
    free(t);
    assert_int_equal(failed, 0);
}

void calls_row(calls *t, const char *name, calls_function *call)
{
    drop_guards(t);
    t->name = name;
    t->call = call;
    t->before = NULL;
    t->user = NULL;
    t->loose = NULL;
    t->count = t->flags = t->started = 0;
    t->rows++;
}

static void add_guard(calls *t, const void *at, uint64_t bytes, uint64_t struct_size, int output)
{
    if (bytes == 0) return;
    assert_true(t->guards < CALLS_GUARDS);
    guard *g = &t->guarded[t->guards++];
    *g = (guard){.at = (unsigned char *)(uintptr_t)at, .bytes = bytes, .struct_size = struct_size, .output = output};
    g->before = malloc((size_t)bytes);
    g->first = malloc((size_t)bytes);
    assert_true(g->before != NULL && g->first != NULL);
}

void guard_memory(calls *t, const void *at, uint64_t bytes)
{
    add_guard(t, at, bytes, 0, 0);
}

void guard_written(calls *t, void *at, uint64_t bytes)
{
    add_guard(t, at, bytes, 0, 1);
}

void guard_parameters(calls *t, attn_parameters *parameters)
{
    guard_memory(t, parameters->flat, (uint64_t)(parameters->flat_elements * attn__dtype_bytes(parameters->dtype)));
}

static argument *add(calls *t, const char *name, int kind, int flags, slot valid)
{
    assert_true(t->count < CALLS_SLOTS);
    t->arguments[t->count] = valid;
    t->at[t->count] = (argument){.name = name, .kind = kind, .flags = flags, .valid = valid};
    return &t->at[t->count++];
}

static slot pointer(const void *p)
{
    return (slot){.p = (void *)(uintptr_t)p};
}

static uint64_t bytes_of(const attn_tensor *tensor)
{
    uint64_t size = (uint64_t)attn__dtype_bytes(attn_tensor_dtype(tensor));
    return (uint64_t)model_elements(tensor) * size;
}

void arg_context(calls *t)
{
    add(t, "ctx", CONTEXT, 0, pointer(t->ctx));
}

void arg_handle(calls *t, const char *name, int kind, const void *handle, int flags)
{
    add(t, name, kind, flags, pointer(handle));
}

void arg_tape(calls *t, attn_tape *tape)
{
    add(t, "tape", TAPE, NULLABLE, pointer(tape));
}

void arg_input(calls *t, const char *name, const attn_tensor *tensor, int flags)
{
    add(t, name, TENSOR, flags, pointer(tensor));
    if (tensor != NULL) guard_memory(t, attn_tensor_data_const(tensor), bytes_of(tensor));
}

void arg_output(calls *t, const char *name, attn_tensor *tensor, int flags)
{
    add(t, name, OUTPUT_KIND, flags, pointer(tensor));
    if (tensor != NULL) guard_written(t, attn_tensor_data(tensor), bytes_of(tensor));
}

void arg_number(calls *t, const char *name, int64_t value)
{
    add(t, name, NUMBER, 0, (slot){.i = value});
}

void arg_real(calls *t, const char *name, double value)
{
    add(t, name, NUMBER, 0, (slot){.d = value});
}

void arg_made(calls *t, const char *name, void (*released)(void *))
{
    add(t, name, MADE, 0, pointer(calls_memory(t)))->release = released;
}

void arg_pointer(calls *t, const char *name, const void *at, int flags)
{
    add(t, name, POINTER, flags, pointer(at));
}

void arg_result(calls *t, const char *name, uint64_t bytes, int flags)
{
    void *place = calls_memory(t);
    add(t, name, POINTER, flags, pointer(place));
    guard_written(t, place, bytes);
}

void arg_options(calls *t, const char *name, const void *options, uint64_t size, uint64_t smallest)
{
    void *place = calls_memory(t);
    memcpy(place, options, (size_t)size);
    argument *made = add(t, name, OPTIONS, 0, pointer(place));
    made->size = size;
    made->smallest = smallest;
    guard_memory(t, place, size);
}

void arg_report(calls *t, const char *name, uint64_t size, int flags)
{
    void *place = calls_memory(t);
    argument *made = add(t, name, REPORT, flags, pointer(place));
    made->size = made->smallest = size;
    add_guard(t, place, size, size, 1);
}

void *place_of(calls *t, int index)
{
    return t->arguments[index].p;
}
