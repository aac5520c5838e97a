#include "vocabulary.h"
#include <stdlib.h>
#include <string.h>
#include "../core/utf8.h"

enum { BYTE_SYMBOLS = 256, SHOWN = 40 };

static int is_space(unsigned char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

int attn__next_symbol(int32_t kind, const unsigned char *text, int64_t bytes, int64_t *at, int64_t *begin, int64_t *length)
{
    if (kind == ATTN_SYMBOLS_WORDS)
        while (*at < bytes && is_space(text[*at])) ++*at;
    if (*at >= bytes) return 0;
    *begin = *at;
    if (kind == ATTN_SYMBOLS_BYTES) ++*at;
    if (kind == ATTN_SYMBOLS_CHARACTERS) *at += attn__utf8_length(text + *at, bytes - *at);
    if (kind == ATTN_SYMBOLS_WORDS)
        while (*at < bytes && !is_space(text[*at])) ++*at;
    *length = *at - *begin;
    return 1;
}

/* Text of a length, valid UTF-8 unless the symbols are bytes */
static attn_status check_text(attn_context *ctx, int32_t kind, const void *text, int64_t bytes)
{
    if (bytes < 0) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "bytes: got %lld, expected 0 or more", (long long)bytes);
    if (text == NULL && bytes > 0)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "text: got NULL, expected %lld bytes", (long long)bytes);
    int64_t invalid = kind == ATTN_SYMBOLS_BYTES ? -1 : attn__utf8_invalid(text, bytes);
    if (invalid < 0) return ATTN_OK;
    return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "text: got byte 0x%02x at offset %lld, expected valid UTF-8",
                      (unsigned)((const unsigned char *)text)[invalid], (long long)invalid);
}

attn_status attn__vocabulary_build(attn_context *ctx, int32_t kind, int32_t unknown, const unsigned char *text, const attn__symbol *symbols,
                                   int64_t count, attn_vocabulary **out)
{
    attn_vocabulary *vocabulary;
    attn_status status = attn__allocate_zero(ctx->memory, sizeof *vocabulary, (void **)&vocabulary);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "a vocabulary");
    vocabulary->magic = ATTN__MAGIC_VOCABULARY;
    vocabulary->memory = attn__memory_retain(ctx->memory);
    vocabulary->symbols = kind;
    vocabulary->first = unknown ? 1 : 0;
    vocabulary->unknown = unknown ? 0 : -1;
    vocabulary->size = kind == ATTN_SYMBOLS_BYTES ? BYTE_SYMBOLS : count + vocabulary->first;
    int64_t bytes = 0;
    for (int64_t i = 0; i < count; i++) bytes += symbols[i].length;
    status = attn__allocate(vocabulary->memory, bytes, (void **)&vocabulary->text);
    if (status == ATTN_OK) vocabulary->text_bytes = bytes;
    attn__symbol_table_start(&vocabulary->table, vocabulary->memory, vocabulary->text);
    for (int64_t i = 0, begin = 0; i < count && status == ATTN_OK; i++) {
        memcpy(vocabulary->text + begin, text + symbols[i].begin, (size_t)symbols[i].length);
        status = attn__symbol_table_add(&vocabulary->table, begin, symbols[i].length);
        begin += symbols[i].length;
    }
    if (status != ATTN_OK) {
        attn_vocabulary_free(vocabulary);
        return attn__fail_memory(ctx, status, "a vocabulary");
    }
    *out = vocabulary;
    return ATTN_OK;
}

typedef struct seen {
    const unsigned char *text;
    attn__symbol symbol;
} seen;

static int by_bytes(const void *left, const void *right)
{
    const seen *a = left, *b = right;
    int64_t shorter = a->symbol.length < b->symbol.length ? a->symbol.length : b->symbol.length;
    int order = memcmp(a->text + a->symbol.begin, b->text + b->symbol.begin, (size_t)shorter);
    if (order != 0) return order;
    return (a->symbol.length > b->symbol.length) - (a->symbol.length < b->symbol.length);
}

static int by_count(const void *left, const void *right)
{
    const seen *a = left, *b = right;
    if (a->symbol.count != b->symbol.count) return a->symbol.count > b->symbol.count ? -1 : 1;
    return by_bytes(left, right);
}

/* Drops what was seen too seldom and sorts the rest in place. Bytes of UTF-8 sort as their code points do. */
static attn_status choose(attn_context *ctx, attn__symbol_table *table, int32_t kind, int64_t threshold, int64_t *count)
{
    seen *list;
    int64_t bytes = table->count * (int64_t)sizeof *list, kept = 0;
    attn_status status = attn__allocate(table->memory, bytes, (void **)&list);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "symbols of a text");
    for (int64_t i = 0; i < table->count; i++)
        if (table->symbols[i].count >= threshold) list[kept++] = (seen){table->text, table->symbols[i]};
    if (kept > 1) qsort(list, (size_t)kept, sizeof *list, kind == ATTN_SYMBOLS_CHARACTERS ? by_bytes : by_count);
    for (int64_t i = 0; i < kept; i++) table->symbols[i] = list[i].symbol;
    attn__deallocate(table->memory, list, bytes);
    *count = kept;
    return ATTN_OK;
}

static attn_status from_text(attn_context *ctx, int32_t kind, const unsigned char *text, int64_t bytes, int64_t threshold,
                             attn_vocabulary **out)
{
    attn__symbol_table table;
    attn__symbol_table_start(&table, ctx->memory, text);
    attn_status status = ATTN_OK;
    int64_t begin, length, count = 0;
    for (int64_t at = 0; status == ATTN_OK && attn__next_symbol(kind, text, bytes, &at, &begin, &length);)
        status = attn__symbol_table_add(&table, begin, length);
    if (status == ATTN_ERROR_TOO_LARGE)
        attn__fail(ctx, status, "text: expected at most %d distinct symbols", (int)ATTN__VOCABULARY_MOST);
    else if (status != ATTN_OK)
        attn__fail_memory(ctx, status, "symbols of a text");
    else if (table.count == 0)
        status =
            attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "text: got no symbols in %lld bytes, expected at least one", (long long)bytes);
    if (status == ATTN_OK) status = choose(ctx, &table, kind, threshold, &count);
    if (status == ATTN_OK) status = attn__vocabulary_build(ctx, kind, threshold > 1, text, table.symbols, count, out);
    attn__symbol_table_end(&table);
    return status;
}

static attn_status create(attn_context *ctx, int32_t symbols, const void *text, int64_t bytes, int64_t threshold, attn_vocabulary **out)
{
    if (out == NULL) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL, expected a place for the vocabulary");
    if (symbols < ATTN_SYMBOLS_BYTES || symbols > ATTN_SYMBOLS_WORDS)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "symbols: got %d, expected ATTN_SYMBOLS_BYTES, _CHARACTERS or _WORDS",
                          (int)symbols);
    if (threshold < 0) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "threshold: got %lld, expected 0 or more", (long long)threshold);
    attn_status status = check_text(ctx, symbols, text, bytes);
    if (status != ATTN_OK) return status;
    if (symbols == ATTN_SYMBOLS_BYTES) return attn__vocabulary_build(ctx, symbols, 0, NULL, NULL, 0, out);
    return from_text(ctx, symbols, text, bytes, threshold, out);
}

attn_status attn_vocabulary_create(attn_context *ctx, int32_t symbols, const void *text, int64_t bytes, int64_t threshold,
                                   attn_vocabulary **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, create(ctx, symbols, text, bytes, threshold, out));
}

void attn_vocabulary_free(attn_vocabulary *vocabulary)
{
    if (!attn__is(vocabulary, ATTN__MAGIC_VOCABULARY)) return;
    attn__memory *memory = vocabulary->memory;
    vocabulary->magic = 0;
    attn__symbol_table_end(&vocabulary->table);
    attn__deallocate(memory, vocabulary->text, vocabulary->text_bytes);
    attn__deallocate(memory, vocabulary, sizeof *vocabulary);
    attn__memory_release(memory);
}

int64_t attn_vocabulary_size(const attn_vocabulary *vocabulary)
{
    return attn__is(vocabulary, ATTN__MAGIC_VOCABULARY) ? vocabulary->size : -1;
}

int32_t attn_vocabulary_symbols(const attn_vocabulary *vocabulary)
{
    return attn__is(vocabulary, ATTN__MAGIC_VOCABULARY) ? vocabulary->symbols : -1;
}

int32_t attn_vocabulary_unknown(const attn_vocabulary *vocabulary)
{
    return attn__is(vocabulary, ATTN__MAGIC_VOCABULARY) ? vocabulary->unknown : -1;
}

/* Token of a symbol: the unknown one, or -1, when there is none */
static int32_t token_of(const attn_vocabulary *vocabulary, const unsigned char *symbol, int64_t length)
{
    if (vocabulary->symbols == ATTN_SYMBOLS_BYTES) return *symbol;
    int32_t index = attn__symbol_table_find(&vocabulary->table, symbol, length);
    return index >= 0 ? index + vocabulary->first : vocabulary->unknown;
}

static attn_status unseen(attn_context *ctx, const unsigned char *text, int64_t begin, int64_t length)
{
    if (length == 1 && (text[begin] < 0x20 || text[begin] == 0x7F))
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                          "text: got no symbol for byte 0x%02x at offset %lld, expected one of the vocabulary", (unsigned)text[begin],
                          (long long)begin);
    return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "text: got no symbol for '%.*s' at offset %lld, expected one of the vocabulary",
                      (int)(length < SHOWN ? length : SHOWN), (const char *)text + begin, (long long)begin);
}

attn_status attn__check_room(attn_context *ctx, const char *argument, const void *to, int64_t capacity)
{
    if (capacity < 0) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "capacity: got %lld, expected 0 or more", (long long)capacity);
    if (to == NULL && capacity > 0)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "%s: got NULL, expected room for %lld", argument, (long long)capacity);
    return ATTN_OK;
}

static attn_status full(attn_context *ctx, int64_t needed, int64_t capacity)
{
    return attn__fail(ctx, ATTN_ERROR_FULL, "capacity: got %lld, expected %lld", (long long)capacity, (long long)needed);
}

static attn_status encode(attn_context *ctx, const attn_vocabulary *vocabulary, const unsigned char *text, int64_t bytes, int64_t capacity,
                          int32_t *tokens, int64_t *count)
{
    if (count == NULL) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "count: got NULL, expected a place for a number");
    attn_status status = attn__expect(ctx, "vocabulary", vocabulary, ATTN__MAGIC_VOCABULARY, "attn_vocabulary");
    if (status == ATTN_OK) status = check_text(ctx, vocabulary->symbols, text, bytes);
    if (status == ATTN_OK) status = attn__check_room(ctx, "tokens", tokens, capacity);
    if (status != ATTN_OK) return status;
    int32_t kind = vocabulary->symbols;
    int64_t begin, length, needed = 0;
    for (int64_t at = 0; attn__next_symbol(kind, text, bytes, &at, &begin, &length); needed++)
        if (token_of(vocabulary, text + begin, length) < 0) return unseen(ctx, text, begin, length);
    *count = needed;
    if (needed > capacity) return full(ctx, needed, capacity);
    int32_t *to = tokens;
    for (int64_t at = 0; attn__next_symbol(kind, text, bytes, &at, &begin, &length);) *to++ = token_of(vocabulary, text + begin, length);
    return ATTN_OK;
}

attn_status attn_vocabulary_encode(attn_context *ctx, const attn_vocabulary *vocabulary, const void *text, int64_t bytes, int64_t capacity,
                                   int32_t *tokens, int64_t *count)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, encode(ctx, vocabulary, text, bytes, capacity, tokens, count));
}

/* Text of a token, valid until the next call with the same `byte`; words after the first have a space before them */
static const void *text_of(const attn_vocabulary *vocabulary, int32_t token, unsigned char *byte, int64_t *length)
{
    *byte = (unsigned char)token;
    *length = 1;
    if (vocabulary->symbols == ATTN_SYMBOLS_BYTES) return byte;
    *length = (int64_t)sizeof ATTN__UNKNOWN_TEXT - 1;
    if (token == vocabulary->unknown) return ATTN__UNKNOWN_TEXT;
    const attn__symbol *symbol = &vocabulary->table.symbols[token - vocabulary->first];
    *length = symbol->length;
    return vocabulary->text + symbol->begin;
}

static attn_status decode(attn_context *ctx, const attn_vocabulary *vocabulary, const int32_t *tokens, int64_t count, int64_t capacity,
                          char *text, int64_t *bytes)
{
    if (bytes == NULL) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "bytes: got NULL, expected a place for a number");
    attn_status status = attn__expect(ctx, "vocabulary", vocabulary, ATTN__MAGIC_VOCABULARY, "attn_vocabulary");
    if (status != ATTN_OK) return status;
    if (count < 0 || (tokens == NULL && count > 0))
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "tokens, count: got %s and %lld, expected an array",
                          tokens == NULL ? "NULL" : "one", (long long)count);
    status = attn__check_room(ctx, "text", text, capacity);
    if (status != ATTN_OK) return status;
    int64_t gap = vocabulary->symbols == ATTN_SYMBOLS_WORDS, needed = 0, length;
    unsigned char byte;
    for (int64_t i = 0; i < count; i++) {
        if (tokens[i] < 0 || tokens[i] >= vocabulary->size)
            return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "tokens: got %d at index %lld, expected 0 to %lld", (int)tokens[i],
                              (long long)i, (long long)vocabulary->size - 1);
        text_of(vocabulary, tokens[i], &byte, &length);
        if (attn__sum(needed, length + (i > 0 ? gap : 0), &needed))
            return attn__fail(ctx, ATTN_ERROR_TOO_LARGE, "tokens: their text overflows");
    }
    *bytes = needed;
    if (needed > capacity) return full(ctx, needed, capacity);
    for (int64_t i = 0; i < count; i++) {
        if (i > 0 && gap) *text++ = ' ';
        const void *from = text_of(vocabulary, tokens[i], &byte, &length);
        memcpy(text, from, (size_t)length);
        text += length;
    }
    return ATTN_OK;
}

attn_status attn_vocabulary_decode(attn_context *ctx, const attn_vocabulary *vocabulary, const int32_t *tokens, int64_t count,
                                   int64_t capacity, char *text, int64_t *bytes)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, decode(ctx, vocabulary, tokens, count, capacity, text, bytes));
}
