#ifndef ATTN_FORMATS_JSON_H
#define ATTN_FORMATS_JSON_H
#include <jansson.h>
#include "../core/context.h"

/* Parses hostile JSON text. Before the parser takes memory, the text is looked through: more than `values` values or nesting deeper
   than `depth` is BAD_FILE. Duplicate keys are BAD_FILE ("duplicate name"). `what` starts the message. The caller gives *out to
   json_decref before it returns. Strings may hold U+0000 only when nul is 1. */
attn_status attn__json_parse(attn_context *ctx, const char *what, const char *text, int64_t bytes, int32_t depth, int64_t values,
                             int32_t nul, json_t **out);
/* The text of a value, with a NUL after its *bytes, in the context's memory: attn__deallocate takes *bytes + 1. NULL for json is a lack of
   memory. In place of json_dumps, which leaves out what it found no memory for, and says nothing. */
attn_status attn__json_text(attn_context *ctx, const char *what, const json_t *json, size_t flags, char **text, int64_t *bytes);
#endif
