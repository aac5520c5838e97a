#ifndef ATTN_CLI_TEXT_H
#define ATTN_CLI_TEXT_H
#include <attn/data.h>

typedef struct text {
    char *at;
    int64_t bytes;
} text;

/* Reads a whole file, or what a pipe gives. 0, or the exit status after one line: no such file, a folder, an empty file, not readable.
   The caller frees at. */
int read_text(const char *path, text *out);

/* Tokens of a text by a vocabulary; path and its bytes are for the message. The caller frees *tokens. */
int encode_text(attn_context *ctx, const attn_vocabulary *vocabulary, const char *path, const text *from, int32_t **tokens, int64_t *count);

/* Bytes at the end of a text that begin a character of UTF-8 without finishing it: 0 to 3. */
int64_t unfinished_bytes(const char *at, int64_t bytes);

/* The bytes of the character of UTF-8 at `at`; 0: there is none. */
int64_t character_bytes(const unsigned char *at, int64_t bytes);
#endif
