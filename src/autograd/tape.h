#ifndef ATTN_AUTOGRAD_TAPE_H
#define ATTN_AUTOGRAD_TAPE_H
#include <attn/tape.h>
#include "../kernels/kernels.h"
#include "../tensor/parameters.h"

/* The tape. A value is what one operation wrote; its id is its slot on the tape, -1 for a constant (no gradient is wanted, or there is
   no tape). Two arenas, reused from step to step: records (real memory) and values (activations and gradients; addresses only in a dry
   context). Gradients of intermediates come from a pool of buffers and go back as soon as the record that made the value has run. */
typedef struct attn__value {
    view at;
    int32_t id, outside;
} attn__value; /* outside 1: the memory of a caller's tensor */

typedef struct attn__record attn__record;
/* Runs once, in reverse order; skipped when no output got a gradient. */
typedef attn_status attn__backward(attn_context *ctx, attn_tape *tape, attn__record *record);
enum { ATTN__RECORD_INPUTS = 8, ATTN__RECORD_OUTPUTS = 3 };
struct attn__record {
    attn__backward *backward;
    attn__record *previous;
    int32_t inputs_count, outputs_count;
    attn__value input[ATTN__RECORD_INPUTS], output[ATTN__RECORD_OUTPUTS];
    void *saved; /* the operation's own struct, in the arena of records */
};

attn_status attn__tape_check(attn_context *ctx, const attn_tape *tape); /* NULL, or begun and not consumed; else BAD_STATE */
int attn__tape_training(const attn_tape *tape);                         /* 0 without a tape */
/* {rate, seed, step, site} with the places; rate 0 when the tape does not train or is NULL */
attn__dropout attn__tape_dropout(const attn_tape *tape, double rate, uint64_t site, attn__places places);

/* Values of a public operation's tensors, looked up by data address. Input: id of a watched tensor, of an earlier output, of a parameter's
   tensor (marked with its set; frozen: -1), or -1. Output: BAD_STATE when the memory overlaps a live value; a fresh id. tape NULL: id -1.
   from: the view the operation uses (made by attn__rows or attn__heads). */
attn_status attn__tape_input(attn_context *ctx, attn_tape *tape, const char *argument, const attn_tensor *tensor, const view *from,
                             attn__value *out);
attn_status attn__tape_output(attn_context *ctx, attn_tape *tape, const char *argument, const attn_tensor *tensor, const view *from,
                              attn__value *out);
/* A parameter of a module, or a joined group: from is a view into the set's flat buffer. Frozen: id -1. */
attn_status attn__tape_parameter(attn_context *ctx, attn_tape *tape, attn_parameters *set, const view *from, int32_t frozen,
                                 attn__value *out);
/* An intermediate value [rows, width] in the tape's arena of values; tape NULL: in the context's scratch arena (id -1). */
attn_status attn__tape_temporary(attn_context *ctx, attn_tape *tape, int64_t rows, int64_t width, int32_t dtype, attn__value *out);
/* Plain memory beside the values (statistics, log-sum-exp, kept pre-activations): arena of values, or scratch without a tape. */
attn_status attn__tape_memory(attn_context *ctx, attn_tape *tape, int64_t bytes, void **out);
/* The arena for copies of segments and places that records keep: the tape's records, or scratch without a tape. */
attn__arena *attn__tape_records(attn_context *ctx, attn_tape *tape);
/* Lists of a call that are read in dry runs too: in the tape's records, or without a tape in the scratch; there, in a dry run, counted alone and
   lent from the heap until `close`, which is called after a failure too. */
typedef struct attn__lists {
    void *at, *lent;
    int64_t bytes;
} attn__lists;
attn_status attn__lists_open(attn_context *ctx, attn_tape *tape, int64_t bytes, const char *what, attn__lists *out);
void attn__lists_close(attn_context *ctx, const attn__lists *lists);
/* Columns first .. first + count of a temporary as a value of its own (query, key, value of one product). Its gradient is that part of the
   base's; a part that got none is zero by the time the base's is read. No operation takes a value and a part of it. */
attn_status attn__tape_part(attn_context *ctx, attn_tape *tape, const attn__value *base, int64_t first, int64_t count, attn__value *out);

/* Appends a record when any input has an id (inputs may be NULL: absent); then every output gets a fresh id (if it has none yet) and *out the record, to which the
   caller adds saved data. Otherwise (tape NULL or all constants) *out is NULL and the outputs are constants. Copies the values in;
   updates output[]->id. saved_bytes are zeroed. */
attn_status attn__tape_record(attn_context *ctx, attn_tape *tape, attn__backward *backward, int32_t inputs_count,
                              const attn__value *const *inputs, int32_t outputs_count, attn__value *const *outputs, int64_t saved_bytes,
                              attn__record **out);

/* 1 when attn__tape_record would append: what the backward needs has to be kept. Entries may be NULL (absent). */
int attn__tape_keeps(const attn_tape *tape, int32_t inputs_count, const attn__value *const *inputs);
attn_status attn__tape_hold_mask(attn_context *ctx, attn_tape *tape, const attn_mask *mask); /* until the records go */

/* Inside a backward: the gradient that arrived at an output; *out.data NULL when none did. It may be overwritten by the record when
   *exclusive is 1 (nobody else will read it). exclusive may be NULL. */
attn_status attn__tape_arrived(attn_context *ctx, attn_tape *tape, const attn__value *output, view *out, int *exclusive);
/* ... and where the gradient of an input goes, in the shape of the value: *add 0: write every element, 1: add. data NULL: not wanted (constant).
   Never shares memory with an arrived gradient. */
attn_status attn__tape_wanted(attn_context *ctx, attn_tape *tape, const attn__value *input, view *out, int *add);
/* ... ready to be added to: zeros when nothing arrived before. data NULL: not wanted. */
attn_status attn__tape_added(attn_context *ctx, attn_tape *tape, const attn__value *input, view *out);
/* A buffer of the pool, not written, for attn__tape_pass; it is this record's until the record has run. At most four. */
attn_status attn__tape_fresh(attn_context *ctx, attn_tape *tape, const view *like, view *out);
/* The gradient of input is exactly that buffer, which arrived at an output (or came from attn__tape_fresh, or from attn__tape_wanted for another input): shares it
   without a copy when input has none yet, adds otherwise. */
attn_status attn__tape_pass(attn_context *ctx, attn_tape *tape, const attn__value *input, const view *gradient);
/* The gradient of input is the caller's, which is read and never written: without a copy when input has none yet, added otherwise. */
attn_status attn__tape_lend(attn_context *ctx, attn_tape *tape, const attn__value *input, const view *gradient);
/* Puts memory of the tape's own as the gradient of input (logits that became their own gradient). input must have none yet, else adds. */
attn_status attn__tape_adopt(attn_context *ctx, attn_tape *tape, const attn__value *input, const view *gradient);

/* Views of gradients and values: dense, in the shape and dtype of like; y (+)= x of equal shape, heads as they may lie; y = amount */
view attn__view_shaped(void *data, const view *like);
attn_status attn__copy_view(attn_context *ctx, const view *x, int add, view *y);
attn_status attn__fill_view(attn_context *ctx, double amount, view *y);

/* attn_tape_backward on values; output_gradients NULL, or [i].data NULL: ones. */
attn_status attn__tape_run(attn_context *ctx, attn_tape *tape, int64_t count, const attn__value *outputs, const view *output_gradients,
                           int64_t gradients_count, attn_gradients *const *gradients);

/* A stretch that is dropped and run again: see attn_transformer_options.checkpoint_layers. run does the forward of the stretch from its
   input values to one output with any tape; closure_bytes of closure are copied and must hold no handle addresses that may die. */
typedef attn_status attn__stretch(attn_context *ctx, attn_tape *tape, const void *closure, const attn__value *inputs, attn__value *outputs);
attn_status attn__tape_checkpoint(attn_context *ctx, attn_tape *tape, attn__stretch *run, const void *closure, int64_t closure_bytes,
                                  int32_t inputs_count, const attn__value *inputs, int32_t outputs_count, attn__value *outputs);

/* bytes of values and gradients, most at once since creation; for memory reports */
int64_t attn__tape_peak(const attn_tape *tape);
/* What a tape had of each of its kinds of memory, most at once since its creation (a checkpoint runs again in the backward): bytes of its
   arenas, entries of its lists, and those in bytes. */
enum { ATTN__TAPE_LISTS = 7 };
typedef struct attn__tape_need {
    int64_t values, records, gradients, lists;
    int32_t entries[ATTN__TAPE_LISTS], reserved;
} attn__tape_need;
attn__tape_need attn__tape_needed(const attn_tape *tape);
/* Makes the tape as it was created, with this much memory: records and values that it had are forgotten. */
attn_status attn__tape_reserve(attn_context *ctx, attn_tape *tape, const attn__tape_need *need);
/* bytes in use now; most at once since creation */
void attn__tape_used(const attn_tape *tape, int64_t *value_bytes, int64_t *record_bytes, int64_t *gradient_bytes);
void attn__tape_most(const attn_tape *tape, int64_t *value_bytes, int64_t *record_bytes, int64_t *gradient_bytes);
#endif
