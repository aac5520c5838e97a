#ifndef TESTS_SUPPORT_MODEL_H
#define TESTS_SUPPORT_MODEL_H
#include <attn/attn.h>
#include "support/allocator.h"
#include "support/random.h"

/* Calls of the library with their statuses looked at; a failure prints the text of the last error. */
#define OK(ctx, call) model_expect(ctx, call, ATTN_OK, "", #call, __FILE__, __LINE__)
/* the status, and a word that the text of the error must hold */
#define FAILS(ctx, call, status, word) model_expect(ctx, call, status, word, #call, __FILE__, __LINE__)
void model_expect(const attn_context *ctx, attn_status got, attn_status want, const char *word, const char *call, const char *file,
                  int line);

attn_context *model_context(int32_t backend, int32_t threads, uint64_t seed);
/* memory from a test allocator, which must outlive the context */
attn_context *model_context_counted(test_allocator *allocator, int32_t backend, int32_t threads);
int64_t model_allocations(const attn_context *ctx);

attn_tensor *model_tensor(attn_context *ctx, int32_t dtype, int64_t rows, int64_t width); /* width 0: rank 1 */
double model_get(const attn_tensor *tensor, int64_t index);                               /* of a dense tensor */
void model_set(attn_tensor *tensor, int64_t index, double value);
int64_t model_elements(const attn_tensor *tensor);

/* every parameter gets a random number, the same for any dtype; norms around 1, weights of rows of about length 1 */
void model_scramble(attn_parameters *parameters, uint64_t seed);
/* are all bytes the same? */
int model_same_bits(attn_parameters *a, attn_parameters *b);

/* a model of few parameters: 1 + 1 layers, width 8, 2 heads, 11 tokens */
attn_transformer_options model_options(int64_t encoder_layers, int64_t decoder_layers);
attn_transformer *model_create(attn_context *ctx, const attn_transformer_options *options); /* scrambled */

/* random tokens and labels of unequal sequences; borrowed by batch */
typedef struct model_batch {
    attn_batch batch;
    attn_tensor *source, *target, *labels;
    attn_layout *source_layout, *target_layout;
    int64_t rows; /* of the output */
} model_batch;
void model_batch_open(attn_context *ctx, model_batch *made, const attn_transformer_options *options, int64_t count,
                      const int64_t *source_lengths, const int64_t *target_lengths, uint64_t seed);
void model_batch_close(model_batch *batch);
#endif
