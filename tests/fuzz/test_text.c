/* Text of any bytes: the vocabulary it makes, its tokens, and a data set over them.
   Input: six bytes of choices, then the text. */
#include <stdlib.h>
#include <string.h>
#include "support/fuzz.h"

enum { CAP = 16 << 20, BATCHES = 12 };

static void check_batch(const attn_batch *batch, const int32_t *tokens, int64_t count, int64_t most)
{
    const int32_t *target = attn_tensor_data_const(batch->target), *labels = attn_tensor_data_const(batch->labels);
    int64_t rows = attn_tensor_extent(batch->target, 0);
    fuzz_require(rows > 0 && rows == attn_tensor_extent(batch->labels, 0) && rows <= most, "a label for each row");
    for (int64_t i = 0; i < rows; i++) {
        int found = 0;
        for (int64_t k = 0; k + 1 < count && !found; k++) found = tokens[k] == target[i] && tokens[k + 1] == labels[i];
        fuzz_require(found, "a label is the token after");
    }
}

static void use_dataset(attn_context *ctx, fuzz_input choices, const int32_t *tokens, int64_t count)
{
    attn_dataset_options o;
    attn_dataset *dataset = NULL;
    attn_batch batch;
    fuzz_require(attn_dataset_options_init(&o, sizeof o) == ATTN_OK && attn_batch_init(&batch, sizeof batch) == ATTN_OK, "options");
    o.context = fuzz_between(&choices, 1, 9);
    o.batch = fuzz_between(&choices, 1, 4);
    o.order = fuzz_byte(&choices) & 1;
    o.last = fuzz_byte(&choices) % 11 / 10.0;
    attn_status status = attn_dataset_tokens(ctx, tokens, count, &o, &dataset);
    fuzz_status(ctx, status, dataset != NULL);
    int64_t rows = 0, passes = 0;
    for (int i = 0; i < BATCHES && status == ATTN_OK; i++) {
        status = attn_dataset_next(ctx, dataset, &batch);
        fuzz_require(status == ATTN_OK || (status == ATTN_ERROR_END_OF_DATA && o.order == ATTN_ORDER_SEQUENTIAL), "the next batch");
        if (status == ATTN_OK) {
            check_batch(&batch, tokens, count, o.context * o.batch);
            rows += attn_tensor_extent(batch.target, 0);
        } else {
            int64_t part = (int64_t)(o.last * (double)count);
            fuzz_require(rows == part - 1, "a pass predicts each token but the first");
            rows = 0;
            fuzz_require(passes++ < BATCHES && attn_dataset_rewind(ctx, dataset) == ATTN_OK, "the next pass begins");
            status = ATTN_OK;
        }
    }
    attn_dataset_free(dataset);
}

static void use_vocabulary(attn_context *ctx, const attn_vocabulary *vocabulary, fuzz_input choices, const uint8_t *text, size_t size)
{
    int64_t count = -1, again = -1, bytes = -1;
    attn_status status = attn_vocabulary_encode(ctx, vocabulary, text, (int64_t)size, 0, NULL, &count);
    fuzz_require(status == (count > 0 ? ATTN_ERROR_FULL : ATTN_OK), "a text has tokens of its own vocabulary");
    int32_t *tokens = malloc((size_t)count * sizeof *tokens + 1);
    char *back = malloc(size + 1);
    fuzz_require(tokens != NULL && back != NULL, "memory");
    status = attn_vocabulary_encode(ctx, vocabulary, text, (int64_t)size, count, tokens, &again);
    fuzz_require(status == ATTN_OK && again == count, "the text is encoded");
    if (attn_vocabulary_symbols(vocabulary) != ATTN_SYMBOLS_WORDS && attn_vocabulary_unknown(vocabulary) < 0) {
        status = attn_vocabulary_decode(ctx, vocabulary, tokens, count, (int64_t)size, back, &bytes);
        fuzz_require(status == ATTN_OK && bytes == (int64_t)size && (size == 0 || memcmp(back, text, size) == 0),
                     "decoded to the same bytes");
    }
    use_dataset(ctx, choices, tokens, count);
    free(back);
    free(tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_context f;
    fuzz_input input = {data, size};
    attn_vocabulary *vocabulary = NULL;
    int32_t symbols = (int32_t)fuzz_between(&input, 0, 2);
    int64_t threshold = fuzz_between(&input, 0, 3);
    fuzz_input choices = input;
    for (int i = 0; i < 4; i++) fuzz_byte(&input);
    fuzz_open(&f, ATTN_BACKEND_BLAS, CAP);
    attn_status status = attn_vocabulary_create(f.ctx, symbols, input.at, (int64_t)input.left, threshold, &vocabulary);
    fuzz_status(f.ctx, status, vocabulary != NULL);
    if (status == ATTN_OK) use_vocabulary(f.ctx, vocabulary, choices, input.at, input.left);
    attn_vocabulary_free(vocabulary);
    fuzz_close(&f);
    return 0;
}

#ifndef ATTN_FUZZER
int main(int argc, char **argv)
{
    return fuzz_replay(argc, argv, "text");
}
#endif
