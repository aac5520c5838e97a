/* Vocabularies from hostile text and files, and what they encode and decode.
   Input: the text form of a vocabulary; after a NUL, text to encode. */
#include <stdlib.h>
#include <string.h>
#include "support/fuzz.h"

enum { CAP = 16 << 20, MOST_TOKENS = 200 };

static char *text_of(attn_context *ctx, const attn_vocabulary *vocabulary, int64_t *bytes)
{
    attn_status status = attn_vocabulary_to_text(ctx, vocabulary, 0, NULL, bytes);
    fuzz_require(status == ATTN_ERROR_FULL, "the size of the text is told");
    char *text = malloc((size_t)*bytes + 1);
    fuzz_require(text != NULL, "memory");
    fuzz_require(attn_vocabulary_to_text(ctx, vocabulary, *bytes, text, bytes) == ATTN_OK, "the text is written");
    text[*bytes] = 0;
    return text;
}

/* the text form makes the same vocabulary again */
static void back_and_forth(attn_context *ctx, const attn_vocabulary *vocabulary)
{
    int64_t bytes, again_bytes;
    attn_vocabulary *again = NULL;
    char *text = text_of(ctx, vocabulary, &bytes);
    attn_status status = attn_vocabulary_from_text(ctx, text, bytes, &again);
    fuzz_require(status == ATTN_OK, "what was written is read");
    char *other = text_of(ctx, again, &again_bytes);
    fuzz_require(bytes == again_bytes && memcmp(text, other, (size_t)bytes) == 0, "the same vocabulary, the same text");
    attn_vocabulary_free(again);
    free(other);
    free(text);
}

/* decodes tokens 0, 1, ... and encodes the result */
static void all_tokens(attn_context *ctx, const attn_vocabulary *vocabulary)
{
    int32_t tokens[MOST_TOKENS], back[MOST_TOKENS];
    int64_t bytes = 0, got = 0, count = 0, size = attn_vocabulary_size(vocabulary);
    int32_t unknown = attn_vocabulary_unknown(vocabulary);
    for (int32_t i = 0; i < MOST_TOKENS && i < size; i++)
        if (i != unknown) tokens[count++] = i;
    attn_status status = attn_vocabulary_decode(ctx, vocabulary, tokens, count, 0, NULL, &bytes);
    fuzz_require(status == (bytes > 0 ? ATTN_ERROR_FULL : ATTN_OK), "the size of the text is told");
    char *text = malloc((size_t)bytes + 1);
    fuzz_require(text != NULL, "memory");
    fuzz_require(attn_vocabulary_decode(ctx, vocabulary, tokens, count, bytes, text, &bytes) == ATTN_OK, "tokens are decoded");
    fuzz_require(attn_vocabulary_encode(ctx, vocabulary, text, bytes, MOST_TOKENS, back, &got) == ATTN_OK, "and encoded again");
    fuzz_require(got == count && memcmp(tokens, back, (size_t)count * sizeof *tokens) == 0, "to the same tokens");
    free(text);
    status = attn_vocabulary_decode(ctx, vocabulary, (const int32_t[]){(int32_t)size}, 1, 0, NULL, &bytes);
    fuzz_require(status == ATTN_ERROR_INVALID_ARGUMENT, "a token past the end is refused");
}

static void encode(attn_context *ctx, const attn_vocabulary *vocabulary, const uint8_t *text, size_t size)
{
    int32_t tokens[MOST_TOKENS];
    char back[4 * MOST_TOKENS];
    int64_t count = -1, bytes = -1;
    attn_status status = attn_vocabulary_encode(ctx, vocabulary, text, (int64_t)size, MOST_TOKENS, tokens, &count);
    fuzz_require(status == ATTN_OK || status == ATTN_ERROR_FULL || status == ATTN_ERROR_INVALID_ARGUMENT, "encoding");
    if (status != ATTN_OK) return;
    fuzz_require(count >= 0 && count <= (int64_t)size && count <= MOST_TOKENS, "no more tokens than bytes");
    for (int64_t i = 0; i < count; i++) fuzz_require(tokens[i] >= 0 && tokens[i] < attn_vocabulary_size(vocabulary), "tokens in range");
    status = attn_vocabulary_decode(ctx, vocabulary, tokens, count, sizeof back, back, &bytes);
    if (attn_vocabulary_symbols(vocabulary) == ATTN_SYMBOLS_WORDS || attn_vocabulary_unknown(vocabulary) >= 0) return;
    fuzz_require(status == ATTN_OK && bytes == (int64_t)size && memcmp(back, text, size) == 0, "decoded to the same bytes");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_context f;
    attn_vocabulary *vocabulary = NULL, *loaded = NULL;
    const uint8_t *end = size > 0 ? memchr(data, 0, size) : NULL;
    size_t length = end != NULL ? (size_t)(end - data) : size;
    fuzz_open(&f, ATTN_BACKEND_BLAS, CAP);
    attn_status status = attn_vocabulary_from_text(f.ctx, (const char *)data, (int64_t)length, &vocabulary);
    fuzz_status(f.ctx, status, vocabulary != NULL);
    attn_status other = attn_vocabulary_load(f.ctx, fuzz_file(data, length), &loaded);
    fuzz_status(f.ctx, other, loaded != NULL);
    fuzz_require(status == other, "a file is read as its text is");
    if (status == ATTN_OK) {
        back_and_forth(f.ctx, vocabulary);
        all_tokens(f.ctx, vocabulary);
        if (end != NULL) encode(f.ctx, loaded, end + 1, size - length - 1);
    }
    attn_vocabulary_free(vocabulary);
    attn_vocabulary_free(loaded);
    fuzz_close(&f);
    return 0;
}

#ifndef ATTN_FUZZER
int main(int argc, char **argv)
{
    return fuzz_replay(argc, argv, "vocabulary");
}
#endif
