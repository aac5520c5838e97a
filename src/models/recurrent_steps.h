#ifndef ATTN_MODELS_RECURRENT_STEPS_H
#define ATTN_MODELS_RECURRENT_STEPS_H
#include "recurrent.h"

/* The steps of a decoder over packed rows: step t takes row t of every segment that has one, in the order of the segments. Lives as long as the
   records of the call. */
typedef struct attn__recurrent_steps {
    int64_t count, rows;
    const int64_t *first;    /* [count + 1]: where a step's entries begin in the lists below, [rows] each */
    const int64_t *row;      /* of the packed rows */
    const int64_t *segment;  /* whose row it is */
    const int64_t *before;   /* the entry's place in the step before; in the first step the segment */
    const attn_segment *one; /* entries as sequences of one row, where they stand */
    const attn_segment *memory;
    attn__places places; /* the same of `one`, as activations take it */
    attn__lists lists;   /* at its beginning is room for the caller's own */
} attn__recurrent_steps;
/* memory: segments of the encoder's rows, count 0 where there are none; lists: bytes for each step and beside that. `lists` are closed by the
   caller, after a failure too. */
attn_status attn__recurrent_steps_open(const attn__call *call, attn__segments segments, attn__segments memory, int64_t step_bytes,
                                       int64_t more_bytes, attn__recurrent_steps *out);

/* attention of step t, whose inputs have a sequence of one row for each entry; the context's observer is told of the batch's rows */
attn_status attn__recurrent_attend(const attn__call *call, const attn__attention_module *module, const attn__attention_inputs *in,
                                   const attn__recurrent_steps *steps, int64_t t, attn__value *context);
#endif
