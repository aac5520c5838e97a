#ifndef TESTS_INJECTION_SCENARIO_H
#define TESTS_INJECTION_SCENARIO_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "injection/inject.h"
#include "support/model.h"

/* What a scenario works with; all of it is freed after each run. */
enum { WORLD_TENSORS = 12, WORLD_MASKS = 3, WORLD_PATH = 256 };
typedef struct world {
    attn_context *ctx;
    int variant, again; /* of the scenario's kind; 1: a call that fails is made again at once */
    int lent;           /* 1: run_backward gives w->arriving alone, which nobody writes to */
    attn_tensor *tensor[WORLD_TENSORS], *arriving;
    attn_mask *mask[WORLD_MASKS];
    attn_layout *layout;
    attn_tape *tape;
    attn_attention *attention;
    attn_encoder *encoder;
    attn_decoder *decoder;
    attn_transformer *model;
    attn_gradients *gradients;
    attn_optimizer *optimizer;
    attn_vocabulary *vocabulary;
    attn_dataset *dataset;
    attn_trainer *trainer;
    attn_generator *generator;
    model_batch batch;
    char path[WORLD_PATH]; /* a file that is old or new after a failure; none when empty */
    int32_t numbers[8];
    uint64_t hash;
} world;

/* One row: what stands before, the calls that are disturbed, and what must be the same as without. */
typedef struct scenario {
    const char *name;
    void (*set_up)(world *w);        /* NULL: a context alone */
    attn_status (*act)(world *w);    /* after a failure it is called again, on the same objects */
    void (*result)(world *w);        /* notes what act has made */
    void (*after_failure)(world *w); /* may be NULL: what must hold before act is called again */
    int flags, variant;
} scenario;
enum {
    EACH_AGAIN = 1 /* act repeats a failed call at once (AGAIN) */,
    NO_CONTEXT = 2 /* set_up is responsible */,
    READS_JSON = 4 /* the reader of JSON gets its memory: without, it loses bytes or ends the process */,
    ON_REFERENCE = 8 /* the context computes by the reference */,
    FORETELLS = 16 /* looks ahead at what memory is needed: without kernels there is nothing to foretell, and nothing fails */
};

void run_scenarios(const scenario *all, int count); /* one cmocka test: every n of every mode */
void run_on_both(const scenario *all, int count);   /* once more by the reference */
int print_injections(void **state);                 /* group teardown: "injections: N made, N survived" */
void note(world *w, const void *from, int64_t bytes);
void note_tensor(world *w, const attn_tensor *tensor);
void note_parameters(world *w, attn_parameters *parameters);
void note_gradients(world *w, attn_gradients *gradients);
void expect(world *w, int holds, const char *what); /* a fault unless it holds */
void world_path(world *w, const char *name);        /* of a file in the program's own folder */
attn_context *counted_context(int32_t backend, int32_t threads);
attn_tensor *random_tensor(world *w, int seed, int32_t rank, const int64_t *shape); /* float32, numbers from -1 to 1 */
#define RANDOM_TENSOR(w, seed, ...) \
    random_tensor(w, seed, (int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]){__VA_ARGS__})
void world_arriving(world *w, const attn_tensor *output); /* the gradient that run_backward gives this output */
/* Backward of w->tape from one output (with w->arriving twice: that gradient and ones) to w->gradients, if there are any. It lacks nothing when calls are made again: one that lacked memory
   has consumed the tape. */
attn_status run_backward(world *w, attn_status before, const attn_tensor *output);

/* status = call, made a second time where act is told to */
#define AGAIN(w, status, call) \
    do { \
        if ((status) != ATTN_OK) break; \
        (status) = (call); \
        if ((status) != ATTN_OK && (w)->again) (status) = (call); \
    } while (0)
#define COUNT_OF(table) (int)(sizeof(table) / sizeof *(table))
#endif
