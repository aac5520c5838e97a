#include "transformer_file.h"
#include <string.h>
#include "../formats/input.h"
#include "../formats/json.h"
#include "../tensor/convert.h"
#include "dry.h"

/* A model's file: every parameter under its name, and in the metadata the options ("attn.options", a JSON object), the heads that are
   left where some are gone ("attn.heads"), tied parameters
   ("attn.alias.<name>": the name it is stored under) and the caller's own entries. */
static const char OPTIONS_KEY[] = "attn.options", RESERVED[] = "attn.";
enum { MOST_MISSING = 64 << 20 }; /* bytes of parameters that a file may lack beside its own size */

static attn_status options_text(attn_context *ctx, const attn_transformer_options *o, char **out, int64_t *bytes)
{
    int64_t count;
    const attn__field *fields = attn__option_fields(&count);
    json_t *object = json_object();
    int failed = object == NULL;
    for (int64_t i = 0; !failed && i < count; i++) {
        double value = attn__field_get(o, &fields[i]);
        json_t *number = fields[i].kind == ATTN__FIELD_DOUBLE ? json_real(value) : json_integer((json_int_t)value);
        failed = json_object_set_new(object, fields[i].name, number) != 0;
    }
    attn_status status =
        attn__json_text(ctx, "options as text", failed ? NULL : object, JSON_COMPACT | JSON_REAL_PRECISION(17), out, bytes);
    json_decref(object);
    return status;
}

static attn_status options_parse(attn_context *ctx, const char *path, const char *text, attn_transformer_options *o)
{
    json_t *object, *value;
    const char *name;
    attn_status status = attn__json_parse(ctx, path, text, (int64_t)strlen(text), 4, 1000, 0, &object);
    if (status != ATTN_OK) return status;
    *o = attn__transformer_defaults;
    if (!json_is_object(object)) status = attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: attn.options: expected a JSON object", path);
    json_object_foreach(object, name, value)
    {
        const attn__field *field = attn__option_field(name);
        if (field == NULL)
            status = attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: attn.options: unknown option \"%.64s\"", path, name);
        else if (!json_is_number(value) || (field->kind != ATTN__FIELD_DOUBLE && !json_is_integer(value)))
            status = attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: attn.options: %s is no %s", path, name,
                                field->kind == ATTN__FIELD_DOUBLE ? "number" : "integer");
        else {
            double number = json_number_value(value);
            if (!(number >= field->least && number <= field->most))
                status = attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: attn.options: %s: got %.17g, expected %g to %g", path, name, number,
                                    field->least, field->most);
            else
                attn__option_set(o, field, number);
        }
        if (status != ATTN_OK) break;
    }
    json_decref(object);
    return status;
}

static attn_status write_aliases(attn_context *ctx, attn__writer *writer, const attn_parameters *set)
{
    const attn__transformer_plan *plan = set->plan;
    attn_status status = ATTN_OK;
    if (plan->has_output && plan->tied_output)
        status = attn__writer_metadata(ctx, writer, "attn.alias.output.weight", set->at[plan->output.weight].name);
    if (status == ATTN_OK && plan->has_encoder && plan->has_decoder && plan->source.table == plan->target.table)
        status = attn__writer_metadata(ctx, writer, "attn.alias.source_embedding.weight", set->at[plan->source.table].name);
    return status;
}

attn_status attn__transformer_write(attn_context *ctx, attn__writer *writer, const attn_parameters *set)
{
    const attn__transformer_plan *plan = set->plan;
    char *text;
    int64_t bytes;
    attn_status status = options_text(ctx, &plan->options, &text, &bytes);
    if (status == ATTN_OK) status = attn__writer_metadata(ctx, writer, OPTIONS_KEY, text);
    attn__deallocate(ctx->memory, text, bytes + 1);
    if (status == ATTN_OK && plan->heads != NULL) {
        status = attn__left_text(ctx, plan->heads, &text, &bytes);
        if (status == ATTN_OK) status = attn__writer_metadata(ctx, writer, ATTN__HEADS_KEY, text);
        attn__deallocate(ctx->memory, text, bytes + 1);
    }
    if (status == ATTN_OK) status = write_aliases(ctx, writer, set);
    for (int64_t i = 0; status == ATTN_OK && i < set->count; i++) {
        const attn__parameter *p = &set->at[i];
        status = attn__writer_tensor(ctx, writer, p->name, set->dtype, p->rank, p->shape, attn__parameters_view(set, i).data);
    }
    return status;
}

attn_status attn__check_metadata(attn_context *ctx, int64_t count, const char *const *keys, const char *const *values, const char *path)
{
    attn_status status = attn__check_path(ctx, path);
    if (status != ATTN_OK) return status;
    if (count < 0 || (count > 0 && (keys == NULL || values == NULL)))
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                          "keys, values: got a count of %lld with NULL arrays, expected arrays of that length", (long long)count);
    for (int64_t i = 0; i < count; i++) {
        if (keys[i] == NULL || values[i] == NULL)
            return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "keys, values: got NULL at entry %lld, expected strings", (long long)i);
        if (strncmp(keys[i], RESERVED, sizeof RESERVED - 1) == 0)
            return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "keys: got \"%.64s\", expected no key that starts with \"attn.\"", keys[i]);
    }
    return ATTN_OK;
}

attn_status attn_transformer_save(attn_context *ctx, const attn_transformer *model, int64_t count, const char *const *keys,
                                  const char *const *values, const char *path)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    attn__writer *writer = NULL;
    status = attn__expect(ctx, "model", model, ATTN__MAGIC_TRANSFORMER, "attn_transformer");
    if (status == ATTN_OK) status = attn__check_metadata(ctx, count, keys, values, path);
    if (status == ATTN_OK) status = attn__writer_create(ctx, &writer);
    if (status == ATTN_OK) status = attn__transformer_write(ctx, writer, model->parameters);
    for (int64_t i = 0; status == ATTN_OK && i < count; i++) status = attn__writer_metadata(ctx, writer, keys[i], values[i]);
    if (status == ATTN_OK) status = attn__file_write(ctx, writer, path);
    attn__writer_free(writer);
    return attn__leave(ctx, status);
}

/* *at: the entry of a parameter's name, of its shape; -1: there is none, and none is needed */
static attn_status find_parameter(attn_context *ctx, const attn__file *file, const char *path, const attn__parameter *p, int strict,
                                  int64_t *at_entry)
{
    int64_t at = *at_entry = attn__file_find(file, p->name);
    if (at < 0) return strict ? attn__fail(ctx, ATTN_ERROR_MISMATCH, "%s: missing parameter \"%s\"", path, p->name) : ATTN_OK;
    const attn__file_entry *e = &file->entries[at];
    int same = e->rank == p->rank;
    for (int32_t i = 0; same && i < p->rank; i++) same = e->shape[i] == p->shape[i];
    if (!same)
        return attn__fail(ctx, ATTN_ERROR_MISMATCH, "%s: parameter \"%s\" has rank %d and first extent %lld, expected rank %d and %lld",
                          path, p->name, (int)e->rank, (long long)(e->rank > 0 ? e->shape[0] : 1), (int)p->rank, (long long)p->shape[0]);
    return ATTN_OK;
}

/* one parameter from the entry of its name */
static attn_status read_parameter(attn_context *ctx, const attn__file *file, const char *path, attn_parameters *set, int64_t index,
                                  int strict)
{
    const attn__parameter *p = &set->at[index];
    int64_t at;
    attn_status status = find_parameter(ctx, file, path, p, strict, &at);
    if (status != ATTN_OK || at < 0) return status;
    const attn__file_entry *e = &file->entries[at];
    void *to = attn__parameters_view(set, index).data;
    if (e->dtype == set->dtype) return attn__file_read(ctx, file, at, to, e->end - e->begin);
    if (e->dtype != ATTN_FLOAT32 && e->dtype != ATTN_FLOAT64)
        return attn__fail(ctx, ATTN_ERROR_MISMATCH, "%s: parameter \"%s\" is %s, expected float32 or float64", path, p->name,
                          attn__dtype_name(e->dtype));
    attn__mark mark = attn__arena_mark(ctx->scratch);
    void *raw = attn__scratch(ctx, e->end - e->begin);
    if (raw == NULL) return attn__arena_status(ctx->scratch);
    status = attn__file_read(ctx, file, at, raw, e->end - e->begin);
    if (status == ATTN_OK) attn__convert(raw, e->dtype, to, set->dtype, p->elements);
    attn__arena_rewind(ctx->scratch, mark);
    return status;
}

/* strict: none missing, none unexpected (a checkpoint's moments are not the model's business) */
static attn_status read_parameters(attn_context *ctx, const attn__file *file, const char *path, attn_parameters *set, int strict)
{
    attn_status status = ATTN_OK;
    for (int64_t i = 0; status == ATTN_OK && i < set->count; i++) status = read_parameter(ctx, file, path, set, i, strict);
    for (int64_t i = 0; status == ATTN_OK && strict && i < file->count; i++) {
        const char *name = file->entries[i].name;
        if (strncmp(name, "optimizer.", 10) == 0) continue;
        if (attn_parameters_find(set, name) < 0)
            status = attn__fail(ctx, ATTN_ERROR_MISMATCH, "%s: unexpected tensor \"%s\" that the model does not have", path, name);
    }
    return status;
}

/* The options of the file are no argument of the caller: what they break is the file. */
static attn_status resolve_file(attn_context *ctx, const char *path, attn_transformer_options *options)
{
    attn_status status = attn__transformer_resolve(ctx, options, options);
    if (status == ATTN_ERROR_INVALID_ARGUMENT || status == ATTN_ERROR_SHAPE || status == ATTN_ERROR_TOO_LARGE)
        status = attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: attn.%s", path, attn_context_last_error(ctx));
    return status;
}

attn_status attn__transformer_file_options(attn_context *ctx, const attn__file *file, const char *path, attn_transformer_options *out)
{
    const char *text = attn__file_metadata(file, OPTIONS_KEY);
    if (text == NULL) return attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: no attn.options in its metadata, so it is no libattn model", path);
    attn_status status = options_parse(ctx, path, text, out);
    return status == ATTN_OK ? resolve_file(ctx, path, out) : status;
}

attn_status attn__transformer_file_heads(attn_context *ctx, const attn__file *file, const char *path,
                                         const attn_transformer_options *options, attn__left **out)
{
    return attn__left_parse(ctx, path, attn__file_metadata(file, ATTN__HEADS_KEY), options, out);
}

/* A file that names a large model need not hold one: its shapes are compared before memory is taken for them, and what is missing from it
   may be as large as the file and a little more. */
static attn_status check_shapes(attn_context *ctx, const attn__file *file, const char *path, const attn_transformer_options *options,
                                const attn__left *heads, int strict)
{
    attn__dry dry;
    int64_t at, missing = 0;
    attn_status status = attn__dry_open(ctx, options, heads, &dry);
    if (status != ATTN_OK) return status;
    const attn_parameters *set = dry.model->parameters;
    for (int64_t i = 0; status == ATTN_OK && i < set->count; i++) {
        status = find_parameter(ctx, file, path, &set->at[i], strict, &at);
        if (at < 0) missing += set->at[i].elements * attn__dtype_bytes(set->dtype); /* all of them fit into 63 bits */
    }
    attn__dry_close(&dry);
    if (status == ATTN_OK && missing > file->data_bytes + MOST_MISSING)
        status = attn__fail(ctx, ATTN_ERROR_MISMATCH, "%s: %lld bytes of parameters are missing in a file that holds %lld", path,
                            (long long)missing, (long long)file->data_bytes);
    return status;
}

static attn_status load(attn_context *ctx, const attn__file *file, const char *path, const attn_load_options *o, attn_transformer **out)
{
    attn_transformer_options options;
    attn__left *heads = NULL;
    const attn__kernels *kernels; /* of this backend and type: there are none for float64 with BLAS */
    attn_status status = attn__transformer_file_options(ctx, file, path, &options);
    if (status == ATTN_OK && o->dtype != 0) options.dtype = o->dtype;
    if (status == ATTN_OK) status = attn__transformer_supported(ctx, &options);
    if (status == ATTN_OK) status = attn__kernels_for(ctx, options.dtype, &kernels);
    if (status == ATTN_OK) status = attn__transformer_file_heads(ctx, file, path, &options, &heads);
    if (status == ATTN_OK) status = check_shapes(ctx, file, path, &options, heads, o->strict);
    if (status == ATTN_OK) status = attn__transformer_make(ctx, &options, heads, out);
    attn__left_free(heads);
    if (status != ATTN_OK) return status;
    if (!o->strict) status = attn__initialise(ctx, (*out)->parameters);
    if (status == ATTN_OK) status = read_parameters(ctx, file, path, (*out)->parameters, o->strict);
    for (int64_t i = 0; status == ATTN_OK && i < file->metadata_count; i++)
        if (strncmp(file->metadata[i].key, RESERVED, sizeof RESERVED - 1) != 0)
            status = attn__transformer_add_metadata(ctx, *out, file->metadata[i].key, file->metadata[i].value);
    if (status == ATTN_OK) return ATTN_OK;
    attn_transformer_free(*out);
    *out = NULL;
    return status;
}

static const attn_load_options load_defaults = {.struct_size = sizeof(attn_load_options), .strict = 1, .dtype = 0};

attn_status attn_load_options_init(attn_load_options *options, uint64_t size)
{
    return attn__options_init(options, size, &load_defaults, sizeof load_defaults);
}

attn_status attn_transformer_load(attn_context *ctx, const char *path, const attn_load_options *options, attn_transformer **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    attn_load_options o;
    attn__file *file = NULL;
    if (out == NULL) status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL, expected where to put the model");
    if (status == ATTN_OK) status = attn__check_metadata(ctx, 0, NULL, NULL, path);
    if (status == ATTN_OK) status = attn__options_read(ctx, "options", options, &load_defaults, sizeof o, sizeof o, &o);
    if (status == ATTN_OK && o.strict != 0 && o.strict != 1)
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "strict: got %d, expected 0 or 1", (int)o.strict);
    if (status == ATTN_OK && o.dtype != 0 && o.dtype != ATTN_FLOAT32 && o.dtype != ATTN_FLOAT64)
        status = attn__fail(ctx, ATTN_ERROR_DTYPE, "dtype: got %d (%s), expected float32, float64 or 0 (as in the file)", (int)o.dtype,
                            attn__dtype_name(o.dtype));
    if (status == ATTN_OK) status = attn__file_open(ctx, path, &file);
    if (status == ATTN_OK) status = load(ctx, file, path, &o, out);
    attn__file_close(file);
    return attn__leave(ctx, status);
}
