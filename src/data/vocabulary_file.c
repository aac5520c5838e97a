#include <string.h>
#include "../core/utf8.h"
#include "../formats/input.h"
#include "../formats/json.h"
#include "../formats/replace.h"
#include "vocabulary.h"

/* The text form: {"format": "attn_vocabulary", "version": 1, "symbols": "characters", "unknown": false, "tokens": ["\n", " ", ...]}.
   tokens are those after the unknown symbol; bytes have an empty list. ASCII only, so that any string of C holds it. */
#define FORMAT "attn_vocabulary"
enum { VERSION = 1, KINDS = 3, FIELDS = 5, DEPTH = 2, TEXT_BYTES = 256 * 1024 * 1024 };
static const char *const kinds[KINDS] = {"bytes", "characters", "words"};

static json_t *to_json(const attn_vocabulary *vocabulary)
{
    json_t *root = json_object(), *tokens = json_array();
    int failed = json_object_set_new(root, "format", json_string(FORMAT)) || json_object_set_new(root, "version", json_integer(VERSION)) ||
                 json_object_set_new(root, "symbols", json_string(kinds[vocabulary->symbols])) ||
                 json_object_set_new(root, "unknown", json_boolean(vocabulary->unknown >= 0));
    for (int64_t i = 0; i < vocabulary->table.count && !failed; i++) {
        const attn__symbol *symbol = &vocabulary->table.symbols[i];
        failed = json_array_append_new(tokens, json_stringn((const char *)vocabulary->text + symbol->begin, (size_t)symbol->length));
    }
    if (failed)
        json_decref(tokens);
    else
        failed = json_object_set_new(root, "tokens", tokens);
    if (!failed) return root;
    json_decref(root);
    return NULL;
}

static attn_status to_text(attn_context *ctx, const attn_vocabulary *vocabulary, int64_t capacity, char *text, int64_t *bytes)
{
    if (bytes == NULL) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "bytes: got NULL, expected a place for a number");
    attn_status status = attn__expect(ctx, "vocabulary", vocabulary, ATTN__MAGIC_VOCABULARY, "attn_vocabulary");
    if (status != ATTN_OK) return status;
    status = attn__check_room(ctx, "text", text, capacity);
    if (status != ATTN_OK) return status;
    json_t *root = to_json(vocabulary);
    size_t length = root != NULL ? json_dumpb(root, NULL, 0, JSON_COMPACT | JSON_ENSURE_ASCII) : 0;
    if (length == 0) {
        status = attn__fail_memory(ctx, ATTN_ERROR_OUT_OF_MEMORY, "text of a vocabulary");
    } else if ((int64_t)length > capacity) {
        *bytes = (int64_t)length;
        status = attn__fail(ctx, ATTN_ERROR_FULL, "capacity: got %lld, expected %lld", (long long)capacity, (long long)length);
    } else if (json_dumpb(root, text, length, JSON_COMPACT | JSON_ENSURE_ASCII) != length) {
        status = attn__fail_memory(ctx, ATTN_ERROR_OUT_OF_MEMORY, "text of a vocabulary");
    } else {
        *bytes = (int64_t)length;
    }
    json_decref(root);
    return status;
}

attn_status attn_vocabulary_to_text(attn_context *ctx, const attn_vocabulary *vocabulary, int64_t capacity, char *text, int64_t *bytes)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, to_text(ctx, vocabulary, capacity, text, bytes));
}

static attn_status bad(attn_context *ctx, const char *what, const char *reason)
{
    return attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: %s", what, reason);
}

/* A token is exactly one symbol of its kind. */
static int is_symbol(int32_t kind, const char *text, size_t bytes)
{
    int64_t at = 0, begin, length;
    const unsigned char *from = (const unsigned char *)text;
    return attn__utf8_invalid(text, (int64_t)bytes) < 0 && attn__next_symbol(kind, from, (int64_t)bytes, &at, &begin, &length) &&
           length == (int64_t)bytes;
}

/* Collects the tokens into one text, checks each, and builds the vocabulary. */
static attn_status from_tokens(attn_context *ctx, const char *what, int32_t kind, int32_t unknown, json_t *tokens, attn_vocabulary **out)
{
    size_t index;
    json_t *token;
    int64_t bytes = 0, begin = 0;
    json_array_foreach(tokens, index, token)
    {
        if (!json_is_string(token) || kind == ATTN_SYMBOLS_BYTES || !is_symbol(kind, json_string_value(token), json_string_length(token)))
            return attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: tokens: entry %llu is not one symbol", what, (unsigned long long)index);
        bytes += (int64_t)json_string_length(token);
    }
    if (kind != ATTN_SYMBOLS_BYTES && index + (size_t)unknown == 0) return bad(ctx, what, "tokens: expected at least one");
    char *text;
    attn_status status = attn__allocate(ctx->memory, bytes, (void **)&text);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "a vocabulary");
    attn__symbol_table table;
    attn__symbol_table_start(&table, ctx->memory, text);
    json_array_foreach(tokens, index, token)
    {
        int64_t length = (int64_t)json_string_length(token);
        memcpy(text + begin, json_string_value(token), (size_t)length);
        status = attn__symbol_table_add(&table, begin, length);
        if (status != ATTN_OK) {
            status = attn__fail_memory(ctx, status, "a vocabulary");
            break;
        }
        if (table.count != (int64_t)index + 1) {
            status = attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: tokens: duplicate name at entry %llu", what, (unsigned long long)index);
            break;
        }
        begin += length;
    }
    if (status == ATTN_OK)
        status = attn__vocabulary_build(ctx, kind, unknown, (const unsigned char *)text, table.symbols, table.count, out);
    attn__symbol_table_end(&table);
    attn__deallocate(ctx->memory, text, bytes);
    return status;
}

static attn_status from_json(attn_context *ctx, const char *what, json_t *root, attn_vocabulary **out)
{
    json_t *format = json_object_get(root, "format"), *version = json_object_get(root, "version");
    json_t *symbols = json_object_get(root, "symbols"), *unknown = json_object_get(root, "unknown"),
           *tokens = json_object_get(root, "tokens");
    if (!json_is_string(format) || strcmp(json_string_value(format), FORMAT) != 0 || !json_is_integer(version))
        return bad(ctx, what, "not a vocabulary of libattn");
    if (json_integer_value(version) != VERSION)
        return attn__fail(ctx, ATTN_ERROR_UNSUPPORTED, "%s: got version %lld of the format, expected %d", what,
                          (long long)json_integer_value(version), (int)VERSION);
    if (json_object_size(root) != FIELDS || !json_is_string(symbols) || !json_is_boolean(unknown) || !json_is_array(tokens))
        return bad(ctx, what, "expected exactly format, version, symbols, unknown and tokens");
    int32_t kind = 0;
    while (kind < KINDS && strcmp(kinds[kind], json_string_value(symbols)) != 0) kind++;
    if (kind == KINDS) return bad(ctx, what, "symbols: expected bytes, characters or words");
    if (kind == ATTN_SYMBOLS_BYTES && json_is_true(unknown)) return bad(ctx, what, "unknown: bytes have no unknown symbol");
    return from_tokens(ctx, what, kind, json_is_true(unknown), tokens, out);
}

static attn_status from_text(attn_context *ctx, const char *what, const char *text, int64_t bytes, attn_vocabulary **out)
{
    json_t *root;
    attn_status status = attn__json_parse(ctx, what, text, bytes, DEPTH, ATTN__VOCABULARY_MOST + 4 * FIELDS, 1, &root);
    if (status != ATTN_OK) return status;
    status = from_json(ctx, what, root, out);
    json_decref(root);
    return status;
}

static attn_status checked_from_text(attn_context *ctx, const char *text, int64_t bytes, attn_vocabulary **out)
{
    if (out == NULL) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL, expected a place for the vocabulary");
    if (text == NULL || bytes < 0)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "text, bytes: got %s and %lld, expected a text", text == NULL ? "NULL" : "one",
                          (long long)bytes);
    return from_text(ctx, "text", text, bytes, out);
}

attn_status attn_vocabulary_from_text(attn_context *ctx, const char *text, int64_t bytes, attn_vocabulary **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, checked_from_text(ctx, text, bytes, out));
}

static attn_status save(attn_context *ctx, const attn_vocabulary *vocabulary, const char *path)
{
    attn_status status = attn__check_path(ctx, path);
    if (status == ATTN_OK) status = attn__expect(ctx, "vocabulary", vocabulary, ATTN__MAGIC_VOCABULARY, "attn_vocabulary");
    if (status != ATTN_OK) return status;
    json_t *root = to_json(vocabulary);
    char *text;
    int64_t bytes;
    status = attn__json_text(ctx, "text of a vocabulary", root, JSON_INDENT(1) | JSON_ENSURE_ASCII, &text, &bytes);
    json_decref(root);
    if (status != ATTN_OK) return status;
    attn__piece pieces[2] = {{text, bytes}, {"\n", 1}};
    status = attn__file_replace(ctx, path, pieces, 2);
    attn__deallocate(ctx->memory, text, bytes + 1);
    return status;
}

attn_status attn_vocabulary_save(attn_context *ctx, const attn_vocabulary *vocabulary, const char *path)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, save(ctx, vocabulary, path));
}

static attn_status read_whole(attn_context *ctx, const char *path, int32_t descriptor, int64_t bytes, attn_vocabulary **out)
{
    const char *shown = attn__path_shown(path);
    if (bytes > TEXT_BYTES)
        return attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: got %lld bytes, expected a vocabulary of at most %d", shown, (long long)bytes,
                          (int)TEXT_BYTES);
    char *text;
    attn_status status = attn__allocate(ctx->memory, bytes, (void **)&text);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "text of a vocabulary");
    status = attn__input_read(ctx, path, descriptor, 0, text, bytes);
    if (status == ATTN_OK) status = from_text(ctx, shown, text, bytes, out);
    attn__deallocate(ctx->memory, text, bytes);
    return status;
}

static attn_status load(attn_context *ctx, const char *path, attn_vocabulary **out)
{
    if (out == NULL) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL, expected a place for the vocabulary");
    int32_t descriptor;
    int64_t bytes;
    attn_status status = attn__check_path(ctx, path);
    if (status == ATTN_OK) status = attn__input_open(ctx, path, &descriptor, &bytes);
    if (status != ATTN_OK) return status;
    status = read_whole(ctx, path, descriptor, bytes, out);
    attn__input_close(descriptor);
    return status;
}

attn_status attn_vocabulary_load(attn_context *ctx, const char *path, attn_vocabulary **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, load(ctx, path, out));
}
