#ifndef ATTN_MODELS_OPTIONS_H
#define ATTN_MODELS_OPTIONS_H
#include <attn/transformer.h>
#include "../core/options.h"

/* The options struct as a table of data: presets, checks and files all go by it. */
const attn__field *attn__option_fields(int64_t *count);
const attn__field *attn__option_field(const char *name); /* NULL: none */
void attn__option_set(attn_transformer_options *options, const attn__field *field, double value);

extern const attn_transformer_options attn__transformer_defaults;
enum { ATTN__TRANSFORMER_OPTIONS_SMALLEST = 8 + 14 * 8 }; /* bytes of the first version's leading sizes */
/* Reads the caller's struct, checks every field and what they mean together, and fills in what follows: no ATTN_DERIVED is left. */
attn_status attn__transformer_resolve(attn_context *ctx, const attn_transformer_options *options, attn_transformer_options *out);
/* UNSUPPORTED, naming the part, for what can be described but not yet created */
attn_status attn__transformer_supported(attn_context *ctx, const attn_transformer_options *options);
#endif
