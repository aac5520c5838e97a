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
    json_error_t error;
    *out = json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES | (nul ? JSON_ALLOW_NUL : 0), &error);
    if (*out != NULL) return ATTN_OK;
    enum json_error_code code = json_error_code(&error);
    if (code == json_error_out_of_memory || error.text[0] == 0) return attn__fail_memory(ctx, ATTN_ERROR_OUT_OF_MEMORY, what);
    if (code == json_error_duplicate_key) return attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: duplicate name: %s", what, error.text);
    return attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: not valid JSON at byte %d: %s", what, error.position, error.text);
}
