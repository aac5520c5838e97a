#include "json.h"

/* What the parser would take memory for: values (an upper bound, from the commas, colons and brackets outside strings) and depth. */
static void measure(const char *text, int64_t bytes, int64_t *values, int64_t *deepest)
{
    int64_t count = 1, depth = 0, most = 0;
    int in_string = 0;
    for (int64_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\') i++;
            in_string = c != '"';
        } else if (c == '"') {
            in_string = 1;
        } else if (c == ',' || c == ':') {
            count++;
        } else if (c == '[' || c == '{') {
            count++;
            if (++depth > most) most = depth;
        } else if (c == ']' || c == '}') {
            depth--;
        }
    }
    *values = count;
    *deepest = most;
}

attn_status attn__json_text(attn_context *ctx, const char *what, const json_t *json, size_t flags, char **text, int64_t *bytes)
{
    void *memory;
    size_t length = json != NULL ? json_dumpb(json, NULL, 0, flags) : 0;
    *text = NULL;
    *bytes = 0;
    attn_status status = length > 0 ? attn__allocate(ctx->memory, (int64_t)length + 1, &memory) : ATTN_ERROR_OUT_OF_MEMORY;
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, what);
    if (json_dumpb(json, memory, length, flags) != length) {
        attn__deallocate(ctx->memory, memory, (int64_t)length + 1);
        return attn__fail_memory(ctx, ATTN_ERROR_OUT_OF_MEMORY, what);
    }
    *text = memory;
    *bytes = (int64_t)length;
    (*text)[length] = 0;
    return ATTN_OK;
}

/* What the parser takes at most, with a string as long as the text: the old and the doubled buffer of a token, the string, and the values.
   It looks at no failure while that buffer grows, and reads past its end then: it does not begin without having been able to have it all. */
static int64_t need(int64_t bytes, int64_t values)
{
    enum { BUFFERS = 4, VALUE_BYTES = 128 };
    return BUFFERS * bytes + VALUE_BYTES * values;
}

/* Does the parser get memory for a string of so many bytes? */
static int has_memory(int64_t bytes)
{
    json_malloc_t take;
    json_free_t give_back;
    json_get_alloc_funcs(&take, &give_back);
    void *memory = take((size_t)bytes + 1);
    if (memory == NULL) return 0;
    give_back(memory);
    return 1;
}

attn_status attn__json_parse(attn_context *ctx, const char *what, const char *text, int64_t bytes, int32_t depth, int64_t values,
                             int32_t nul, json_t **out)
{
    *out = NULL;
    int64_t found, deepest;
    measure(text, bytes, &found, &deepest);
    if (deepest > depth)
        return attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: JSON nested %lld deep, expected at most %d", what, (long long)deepest, (int)depth);
    if (found > values)
        return attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: JSON of about %lld values, expected at most %lld", what, (long long)found,
                          (long long)values);
    if (!has_memory(need(bytes, found))) return attn__fail_memory(ctx, ATTN_ERROR_OUT_OF_MEMORY, what);
    json_error_t error;
    size_t flags = JSON_REJECT_DUPLICATES | (nul ? JSON_ALLOW_NUL : 0);
    *out = json_loadb(text, (size_t)bytes, flags, &error);
    /* the parser calls a string that it has no memory for an invalid token */
    if (*out == NULL && json_error_code(&error) == json_error_invalid_syntax) {
        if (!has_memory(bytes)) return attn__fail_memory(ctx, ATTN_ERROR_OUT_OF_MEMORY, what);
        *out = json_loadb(text, (size_t)bytes, flags, &error);
    }
    if (*out != NULL) return ATTN_OK;
    enum json_error_code code = json_error_code(&error);
    if (code == json_error_out_of_memory || error.text[0] == 0) return attn__fail_memory(ctx, ATTN_ERROR_OUT_OF_MEMORY, what);
    if (code == json_error_duplicate_key) return attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: duplicate name: %s", what, error.text);
    return attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: not valid JSON at byte %d: %s", what, error.position, error.text);
}
