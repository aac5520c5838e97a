#ifndef ATTN_AUTOGRAD_TAPE_STATE_H
#define ATTN_AUTOGRAD_TAPE_STATE_H
#include "../tensor/tensor.h"
#include "tape.h"

/* What a tape is made of; only the files of the tape itself include this. Lists grow geometrically and keep their memory from step to
   step; entries are known by index, since a list may move. */
typedef struct attn__list {
    void *at;
    int32_t count, capacity;
    int64_t entry_bytes; /* set at the first addition */
} attn__list;

/* Where the gradient of a value goes.
   VALUE: a block of the pool, dense, in the value's element order. PART: columns first .. first + width of the base's block.
   PARAMETER: the flat buffer of the handle of its set, at the offset it has in the set. */
enum { ATTN__SLOT_VALUE = 0, ATTN__SLOT_PART = 1, ATTN__SLOT_PARAMETER = 2 };
typedef struct attn__slot {
    int32_t kind, dtype;
    int64_t rows, width; /* width: heads included */
    int32_t block;       /* VALUE: -1 while nothing has arrived */
    int32_t complete;    /* VALUE: every element is written; PART: its columns are */
    int32_t parts, next; /* VALUE: its first part or -1; PART: the next part of the same base or -1 */
    int32_t base, set;   /* PART; PARAMETER */
    int64_t first;       /* PART: column; PARAMETER: element of the flat buffer */
} attn__slot;

/* A buffer for one gradient, counted by the slots that share it. */
typedef struct attn__block {
    void *data;
    int64_t bytes;
    int32_t references, next; /* next: in the list of free blocks of its size */
    int32_t size_class;       /* -1: adopted memory, never handed out again */
    int32_t reserved;
} attn__block;
typedef struct attn__size_class {
    int64_t bytes;
    int32_t free, reserved;
} attn__size_class;

/* Memory of callers' tensors that records know, in address order. id -1: a constant that a record reads. */
typedef struct attn__span {
    uintptr_t start, end;
    view at;
    int32_t id, reserved;
} attn__span;

typedef struct attn__tape_set {
    attn_parameters *set; /* counted */
    attn_gradients *handle;
} attn__tape_set;
enum { ATTN__HOLD_STORAGE = 0, ATTN__HOLD_MASK = 1 };
typedef struct attn__hold {
    void *object;
    int32_t kind, reserved;
} attn__hold;
typedef struct attn__watch {
    view gradient; /* the caller's */
    int32_t id, reserved;
} attn__watch;

enum { ATTN__TAPE_NEW = 0, ATTN__TAPE_RECORDING = 1, ATTN__TAPE_RUNNING = 2, ATTN__TAPE_SPENT = 3 };
enum { ATTN__TAPE_FRESH = 4 };
struct attn_tape {
    uint64_t magic;
    attn__memory *memory;
    attn__arena *records, *values, *gradients;
    int32_t state, training;
    int32_t paused;     /* > 0 inside the first run of a checkpointed stretch: nothing is recorded */
    int32_t paused_met; /* parameters that want a gradient, met while paused */
    int32_t rerunning;  /* > 0 while a stretch is recorded again during backward */
    int32_t fresh_count;
    int32_t fresh[ATTN__TAPE_FRESH];
    uint64_t seed;
    int64_t step, longest; /* longest: bytes of the longest span */
    attn__record *last;
    const attn__record *current; /* whose backward runs */
    attn__list slots, blocks, classes, spans, sets, holds, watches;
};

static inline attn__slot *attn__slot_at(const attn_tape *tape, int32_t id)
{
    return (attn__slot *)tape->slots.at + id;
}
static inline attn__block *attn__block_at(const attn_tape *tape, int32_t index)
{
    return (attn__block *)tape->blocks.at + index;
}
static inline attn__tape_set *attn__set_at(const attn_tape *tape, int32_t index)
{
    return (attn__tape_set *)tape->sets.at + index;
}

/* Appends one zeroed entry; its address holds until the next addition. */
attn_status attn__list_add(attn_context *ctx, attn_tape *tape, attn__list *list, int64_t entry_bytes, void **entry);
void attn__tape_forget(attn_tape *tape); /* records and what they hold; memory is kept */
void attn__tape_release_holds(attn_tape *tape, int32_t from);
attn_status attn__tape_hold_storage(attn_context *ctx, attn_tape *tape, attn__storage *storage);
/* attn__tape_record that may be told to append although no input has an id (parameters were met within a stretch) */
attn_status attn__tape_append(attn_context *ctx, attn_tape *tape, int force, attn__backward *backward, int32_t inputs_count,
                              const attn__value *const *inputs, int32_t outputs_count, attn__value *const *outputs, int64_t saved_bytes,
                              attn__record **out);

/* tape_values.c */
attn_status attn__slot_add(attn_context *ctx, attn_tape *tape, int32_t kind, const view *at, int32_t *id);
attn_status attn__span_insert(attn_context *ctx, attn_tape *tape, const view *at, int32_t id);
void attn__span_remove(attn_tape *tape, int32_t id); /* id -1: nothing */
/* 1: the very same elements are known, *id is theirs; 0: unknown, and *clash is 1 when a value with an id is partly overlapped,
   *touch when anything is */
int attn__span_find(const attn_tape *tape, const view *at, int32_t *id, int *clash, int *touch);
/* does it lie over the parameters of a set that was met on the tape? */
int attn__over_parameters(const attn_tape *tape, const view *at);
/* rank 3 as heads, anything else as rows: how tensors are seen that stand for no particular operation */
attn_status attn__tensor_view(attn_context *ctx, const char *argument, const attn_tensor *tensor, int32_t dtype, view *out);

/* tape_gradients.c */
void attn__block_release(attn_tape *tape, int32_t index);
void attn__slot_release(attn_tape *tape, int32_t id); /* a VALUE gives its block back */
/* fills the columns no part has written */
attn_status attn__slot_complete(attn_context *ctx, attn_tape *tape, int32_t id);
int attn__slot_arrived(const attn_tape *tape, int32_t id); /* something lies there */

/* tape_backward.c: runs the records from last to first */
attn_status attn__tape_unwind(attn_context *ctx, attn_tape *tape, attn__record *last);
#endif
