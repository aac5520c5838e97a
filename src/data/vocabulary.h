#ifndef ATTN_DATA_VOCABULARY_H
#define ATTN_DATA_VOCABULARY_H
#include <attn/data.h>
#include "../core/context.h"

enum { ATTN__VOCABULARY_MOST = 4 << 20 }; /* symbols; the ids are int32 */
#define ATTN__UNKNOWN_TEXT "<unk>"

/* A symbol of a text: bytes [begin, begin + length); count: how often it was seen */
typedef struct attn__symbol {
    int64_t begin, length, count;
} attn__symbol;

/* Distinct symbols of a text that lives elsewhere, found through a hash table of their indices. */
typedef struct attn__symbol_table {
    attn__memory *memory;
    const unsigned char *text;
    attn__symbol *symbols;
    int32_t *slots;                       /* index, or -1: free; at most half are taken */
    int64_t count, capacity, slots_count; /* slots_count: a power of two */
} attn__symbol_table;
void attn__symbol_table_start(attn__symbol_table *table, attn__memory *memory, const void *text);
void attn__symbol_table_end(attn__symbol_table *table);
int32_t attn__symbol_table_find(const attn__symbol_table *table, const unsigned char *symbol, int64_t length); /* -1: none */
/* Adds [begin, begin + length) of the text or raises its count. TOO_LARGE past the most; what allocation says. */
attn_status attn__symbol_table_add(attn__symbol_table *table, int64_t begin, int64_t length);

struct attn_vocabulary {
    uint64_t magic;
    attn__memory *memory;
    int32_t symbols, unknown; /* ATTN_SYMBOLS_*; id of the unknown symbol, or -1 */
    int64_t size;
    /* characters and words: symbol i of the table is token i + first; bytes: nothing */
    int32_t first, reserved; /* 1 when token 0 is the unknown symbol */
    attn__symbol_table table;
    unsigned char *text; /* all symbols, one after another */
    int64_t text_bytes;
};

/* Makes a vocabulary of `count` symbols of `text` in their order (copied; no symbol twice). unknown 1: token 0 is the unknown symbol. */
attn_status attn__vocabulary_build(attn_context *ctx, int32_t kind, int32_t unknown, const unsigned char *text, const attn__symbol *symbols,
                                   int64_t count, attn_vocabulary **out);
/* The next symbol of the text from *at on: its place and length; *at is behind it. 0 past the last. Characters: text is valid UTF-8. */
int attn__next_symbol(int32_t kind, const unsigned char *text, int64_t bytes, int64_t *at, int64_t *begin, int64_t *length);
/* where a caller wants something written: NULL with a capacity of 0 asks for the size */
attn_status attn__check_room(attn_context *ctx, const char *argument, const void *to, int64_t capacity);
#endif
