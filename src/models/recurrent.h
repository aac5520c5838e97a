#ifndef ATTN_MODELS_RECURRENT_H
#define ATTN_MODELS_RECURRENT_H
#include <attn/transformer.h>
#include "../modules/attention.h"
#include "../modules/linear.h"
#include "../modules/recurrent.h"

/* The systems that attention came from, in the place of a Transformer's stacks: an encoder of recurrent layers, one-way or two-way, and a recurrent
   decoder that may ask it (Sections 1.2 and 2.3; Sutskever et al. 2014, Bahdanau et al. 2015, Luong et al. 2015). */

/* a layer of the encoder: two-way halves lie side by side */
typedef struct attn__recurrent_reader {
    attn__recurrent_module forward, backward;
    uint64_t site; /* of the dropout on its output */
} attn__recurrent_reader;

/* a layer of the decoder */
typedef struct attn__recurrent_writer {
    attn__recurrent_module layer;
    uint64_t site;
} attn__recurrent_writer;

typedef struct attn__recurrent_model {
    attn__memory *memory;
    attn__recurrent_reader *readers; /* [readers_count] */
    attn__recurrent_writer *writers; /* [writers_count] */
    int64_t readers_count, writers_count;
    /* scores of the decoder's state and the encoder's rows; the rows are projected by `key` before, once for all steps (additive scores) */
    attn__attention_module attention;
    attn__linear_module key, context, readout; /* context: what the context vector gives to the gates of the first layer */
    attn__linear_module start;                 /* tanh(W z + b) of the encoder's last state: hidden state and cell of each layer at first */
    int32_t two_way, has_start, has_attention, has_key;
    int64_t memory_width, width; /* of the encoder's rows; of the decoder's */
    double dropout;
    uint64_t readout_site;
} attn__recurrent_model;

/* resolved options with a recurrence; parameters under "encoder." and "decoder." of the scope */
attn_status attn__recurrent_model_plan(const attn__scope *scope, const attn_transformer_options *options, attn__recurrent_model **out);
void attn__recurrent_model_free(attn__recurrent_model *model); /* NULL is fine */

/* x [rows, width] to memory [rows, width]; state [segments, width], the last hidden state of the last layer's directions, may be NULL */
attn_status attn__recurrent_encode(const attn__call *call, const attn__recurrent_model *model, const attn__value *x,
                                   const attn__stream *stream, attn__value *memory, attn__value *state);

/* What a decoder knows before a step, one row for each sequence: side by side the hidden state and cell of each layer and the context vector. */
int64_t attn__recurrent_state_width(const attn__recurrent_model *model);
/* the state before the first step from attn__recurrent_encode's, its memory exists; of models with an encoder */
attn_status attn__recurrent_start(const attn__call *call, const attn__recurrent_model *model, const attn__value *summary,
                                  attn__value *state);
/* what the scores read of the encoder's rows; without a projection the rows themselves */
attn_status attn__recurrent_keys(const attn__call *call, const attn__recurrent_model *model, const attn__value *memory, attn__value *keys);

/* What the decoder reads beside its rows. Segment i of the rows goes with row i of state and with segment i of memory. */
typedef struct attn__recurrent_inputs {
    const attn__stream *stream;
    const attn__value *state; /* NULL: zeros */
    const attn__value *keys, *memory;
    attn__segments memory_segments;
    view *after; /* [segments, state width]: the state after the last row of each, where there is one; NULL: not wanted */
} attn__recurrent_inputs;
/* x [rows, width], embedded tokens, to hidden [rows, width], step by step: h_t = f(h_t-1, [y_t-1; c_t-1]), c_t = attention(h_t, memory),
   hidden tanh(W [h_t; c_t] + b) */
attn_status attn__recurrent_decode(const attn__call *call, const attn__recurrent_model *model, const attn__value *x,
                                   const attn__recurrent_inputs *in, attn__value *hidden);

/* multiply-adds of a forward over `count` pairs of sequences, by the equations; pairs: of a row of the decoder and one of the encoder */
void attn__recurrent_formula(const attn__recurrent_model *model, int64_t count, int64_t source_rows, int64_t target_rows, int64_t pairs,
                             int64_t *sum);
#endif
