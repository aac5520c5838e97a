#ifndef ATTN_ATTN_H
#define ATTN_ATTN_H
/* All of libattn. Each header can be included alone, as C99 or C++17.
   status, context: results, errors, threads, memory        tensor, layout: data and packed sequences       mask: who sees whom
   tape, parameters: gradients                               operations, embedding, rotary, loss, measures: the equations one by one
   linear_attention: linear attention, Performer, Linformer  recurrent: recurrent layers, convolution
   attention, transformer: layers and models, their files    heads: taken out of models    files: tensors of files
   data: vocabularies and batches                            inspect: weights, entropy
   optimizer, trainer: training                              generator: decoding                             cost: before it is built
   Arguments stand in the order context, object, inputs, outputs. Calls return an attn_status. An attn_X belongs to who created it and is
   freed by attn_X_free, which takes NULL; what a call lends says so. Options and reports start with struct_size: attn_X_options_init
   writes it with the defaults; where a report has no such call, the caller sets it. Positions, rows, layers and tokens count from 0,
   steps from 1. docs/abi.md says what stays as it is. */
#include "cost.h"
#include "files.h"
#include "generator.h"
#include "heads.h"
#include "inspect.h"
#include "linear_attention.h"
#include "measures.h"
#include "recurrent.h"
#include "rotary.h"
#include "trainer.h"
#endif
