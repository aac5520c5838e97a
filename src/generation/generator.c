#include "generator.h"
#include <string.h>
#include "../core/options.h"

static const attn_generator_options defaults = {.struct_size = sizeof(attn_generator_options),
                                                .sequences = 1,
                                                .beam = 1,
                                                .capacity = ATTN_DERIVED,
                                                .temperature = 1,
                                                .top_p = 1,
                                                .length_penalty = 1,
                                                .top_k = 0,
                                                .seed = 1,
                                                .stop_count = 0,
                                                .stops = NULL};

attn_status attn_generator_options_init(attn_generator_options *options, uint64_t size)
{
    return attn__options_init(options, size, &defaults, sizeof defaults);
}

static const attn__field fields[] = {ATTN__INT64(attn_generator_options, sequences, 0, 1, HUGE_VAL),
                                     ATTN__INT64(attn_generator_options, beam, 0, 1, HUGE_VAL),
                                     ATTN__INT64(attn_generator_options, capacity, ATTN__DERIVED, 1, HUGE_VAL),
                                     ATTN__REAL(attn_generator_options, temperature, 0, 0, HUGE_VAL),
                                     ATTN__REAL(attn_generator_options, top_p, ATTN__ABOVE, 0, 1),
                                     ATTN__REAL(attn_generator_options, length_penalty, 0, -HUGE_VAL, HUGE_VAL),
                                     ATTN__INT64(attn_generator_options, top_k, 0, 0, HUGE_VAL),
                                     ATTN__INT64(attn_generator_options, stop_count, 0, 0, HUGE_VAL)};

/* capacity is filled in */
static attn_status check_options(attn_context *ctx, const attn__transformer_plan *plan, attn_generator_options *o)
{
    attn_status status = ATTN__CHECK(ctx, "options", o, fields);
    if (status != ATTN_OK) return status;
    if (o->beam > 1)
        return attn__fail(ctx, ATTN_ERROR_UNSUPPORTED, "options.beam: got %lld, expected 1 as beam search is not in this version",
                          (long long)o->beam);
    if (o->stop_count > 0 && o->stops == NULL)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "options.stops: got NULL, expected %lld tokens", (long long)o->stop_count);
    int64_t positions = plan->options.context;
    if (o->capacity == ATTN_DERIVED) o->capacity = positions;
    if (plan->options.positions == ATTN_POSITIONS_LEARNED && o->capacity > positions)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                          "options.capacity: got %lld, expected at most the model's %lld learned positions", (long long)o->capacity,
                          (long long)positions);
    return ATTN_OK;
}

static attn_status check_model(attn_context *ctx, const attn__transformer_plan *plan)
{
    if (!plan->has_decoder || !plan->has_output)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "model: got one without %s, expected one that can generate",
                          plan->has_decoder ? "an output head" : "a decoder");
    for (int64_t i = 0; i < plan->decoder.side.layers; i++)
        if (plan->decoder.masks[i] != NULL && !attn__mask_fits_cache(plan->decoder.masks[i]))
            return attn__fail(
                ctx, ATTN_ERROR_UNSUPPORTED,
                "model: got a mask of decoder layer %lld that depends on where a stretch begins, expected one that a cache can keep",
                (long long)i);
    return ATTN_OK;
}

/* one allocation of `count` elements, zeroed */
static attn_status take(attn_context *ctx, attn_generator *g, int64_t count, int64_t element, void *out)
{
    int64_t bytes;
    void *memory = NULL;
    attn_status status = attn__multiply(count, element, &bytes) ? ATTN_ERROR_TOO_LARGE : attn__allocate_zero(g->memory, bytes, &memory);
    memcpy(out, &memory, sizeof memory);
    return status == ATTN_OK ? ATTN_OK : attn__fail_memory(ctx, status, "a generator's caches");
}

static int64_t key_columns(const attn__attention_module *m)
{
    return m->options.key_heads * m->options.head_size;
}
static int64_t value_columns(const attn__attention_module *m)
{
    return m->options.key_heads * m->options.value_head_size;
}

static view cache_view(const attn_generator *g, char **at, int64_t rows, int64_t columns)
{
    int64_t element = attn__dtype_bytes(g->parameters->dtype), bytes = rows * columns * element;
    view made = {*at, rows, 1, columns, columns, 0, g->parameters->dtype, 0};
    *at += (bytes + 63) / 64 * 64;
    return made;
}

/* bytes of `rows` rows of every layer's keys and values; 64-byte aligned each */
static attn_status cache_bytes(attn_context *ctx, const attn_generator *g, int cross, int64_t rows, int64_t *out)
{
    const attn__transformer_plan *plan = attn__generator_plan(g);
    *out = 0;
    for (int64_t i = 0; i < plan->decoder.side.layers; i++) {
        const attn__attention_module *m = cross ? &plan->decoder.layers[i].cross : &plan->decoder.layers[i].self;
        int64_t columns = key_columns(m) + value_columns(m), bytes;
        if (attn__multiply(rows, columns * attn__dtype_bytes(g->parameters->dtype), &bytes) || attn__sum(bytes, 128, &bytes) ||
            attn__sum(*out, bytes, out))
            return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "a generator's caches");
    }
    return ATTN_OK;
}

static attn_status make_self_caches(attn_context *ctx, attn_generator *g)
{
    const attn__transformer_plan *plan = attn__generator_plan(g);
    int64_t rows;
    if (attn__multiply(g->options.sequences, g->options.capacity, &rows))
        return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "a generator's caches");
    attn_status status = take(ctx, g, plan->decoder.side.layers, (int64_t)sizeof(attn__layer_cache), &g->caches);
    if (status == ATTN_OK) status = cache_bytes(ctx, g, 0, rows, &g->self_bytes);
    if (status == ATTN_OK) status = take(ctx, g, g->self_bytes, 1, &g->self_cache);
    char *at = g->self_cache;
    for (int64_t i = 0; status == ATTN_OK && i < plan->decoder.side.layers; i++) {
        g->caches[i].self.key = cache_view(g, &at, rows, key_columns(&plan->decoder.layers[i].self));
        g->caches[i].self.value = cache_view(g, &at, rows, value_columns(&plan->decoder.layers[i].self));
    }
    return status;
}

attn_status attn__generator_cross_reserve(attn_context *ctx, attn_generator *g, int64_t rows)
{
    const attn__transformer_plan *plan = attn__generator_plan(g);
    if (rows <= g->cross_rows && g->cross_cache != NULL) return ATTN_OK;
    int64_t bytes;
    void *memory;
    attn_status status = cache_bytes(ctx, g, 1, rows, &bytes);
    if (status == ATTN_OK) status = take(ctx, g, bytes, 1, &memory);
    if (status != ATTN_OK) return status;
    attn__deallocate(g->memory, g->cross_cache, g->cross_bytes);
    g->cross_cache = memory;
    g->cross_bytes = bytes;
    g->cross_rows = rows;
    char *at = memory;
    for (int64_t i = 0; i < plan->decoder.side.layers; i++) {
        g->caches[i].cross.key = cache_view(g, &at, rows, key_columns(&plan->decoder.layers[i].cross));
        g->caches[i].cross.value = cache_view(g, &at, rows, value_columns(&plan->decoder.layers[i].cross));
    }
    return ATTN_OK;
}

static attn_status build(attn_context *ctx, attn_generator *g)
{
    const attn__transformer_plan *plan = attn__generator_plan(g);
    int64_t sequences = g->options.sequences, vocabulary = plan->output.out, rows = 0;
    attn_status status = make_self_caches(ctx, g);
    if (status == ATTN_OK) status = take(ctx, g, sequences, (int64_t)sizeof *g->filled, &g->filled);
    if (status == ATTN_OK) status = take(ctx, g, sequences, (int64_t)sizeof *g->made, &g->made);
    if (status == ATTN_OK) status = take(ctx, g, sequences, (int64_t)sizeof *g->finished, &g->finished);
    if (status == ATTN_OK) status = take(ctx, g, sequences, (int64_t)sizeof *g->scores, &g->scores);
    if (status == ATTN_OK) status = take(ctx, g, sequences, (int64_t)sizeof *g->memory_segments, &g->memory_segments);
    if (status == ATTN_OK) status = take(ctx, g, sequences * g->options.capacity, (int64_t)sizeof *g->tokens, &g->tokens);
    if (status == ATTN_OK) status = take(ctx, g, g->options.stop_count, (int64_t)sizeof *g->stops, &g->stops);
    if (status == ATTN_OK && attn__multiply(sequences, vocabulary, &rows)) status = attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "logits");
    if (status == ATTN_OK) status = take(ctx, g, rows, attn__dtype_bytes(plan->options.dtype), &g->logits);
    if (status != ATTN_OK) return status;
    if (g->options.stop_count > 0) memcpy(g->stops, g->options.stops, (size_t)g->options.stop_count * sizeof *g->stops);
    g->options.stops = g->stops;
    const int64_t shape[2] = {sequences, vocabulary};
    attn__tensor_borrow(&g->logits_tensor, plan->options.dtype, 2, shape, g->logits);
    return ATTN_OK;
}

static attn_status make(attn_context *ctx, const attn_transformer *model, const attn_generator_options *options, attn_generator **out)
{
    attn_generator_options o;
    void *memory;
    attn_status status = attn__expect(ctx, "model", model, ATTN__MAGIC_TRANSFORMER, "attn_transformer");
    if (status == ATTN_OK) status = attn__options_read(ctx, "options", options, &defaults, sizeof o, sizeof o, &o);
    if (status != ATTN_OK) return status;
    status = check_options(ctx, attn__transformer_plan_of(model), &o);
    if (status == ATTN_OK) status = check_model(ctx, attn__transformer_plan_of(model));
    if (status != ATTN_OK) return status;
    status = attn__allocate_zero(ctx->memory, (int64_t)sizeof(attn_generator), &memory);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "generator");
    attn_generator *g = memory;
    g->magic = ATTN__MAGIC_GENERATOR;
    g->memory = attn__memory_retain(ctx->memory);
    g->parameters = attn__parameters_retain(model->parameters);
    g->options = o;
    status = build(ctx, g);
    if (status == ATTN_OK)
        *out = g;
    else
        attn_generator_free(g);
    return status;
}

attn_status attn_generator_create(attn_context *ctx, const attn_transformer *model, const attn_generator_options *options,
                                  attn_generator **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    if (out == NULL)
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL, expected where to put the generator");
    else
        status = make(ctx, model, options, out);
    return attn__leave(ctx, status);
}

/* what was never taken has a size that may not even be a number */
static void give_back(const attn_generator *g, void *pointer, int64_t rows, int64_t columns, int64_t element)
{
    if (pointer != NULL) attn__deallocate(g->memory, pointer, rows * columns * element);
}

void attn_generator_free(attn_generator *g)
{
    if (!attn__is(g, ATTN__MAGIC_GENERATOR)) return;
    attn__memory *memory = g->memory;
    const attn__transformer_plan *plan = attn__generator_plan(g);
    int64_t sequences = g->options.sequences;
    give_back(g, g->caches, plan->decoder.side.layers, 1, (int64_t)sizeof(attn__layer_cache));
    give_back(g, g->self_cache, g->self_bytes, 1, 1);
    give_back(g, g->cross_cache, g->cross_bytes, 1, 1);
    give_back(g, g->filled, sequences, 1, (int64_t)sizeof *g->filled);
    give_back(g, g->made, sequences, 1, (int64_t)sizeof *g->made);
    give_back(g, g->finished, sequences, 1, (int64_t)sizeof *g->finished);
    give_back(g, g->scores, sequences, 1, (int64_t)sizeof *g->scores);
    give_back(g, g->memory_segments, sequences, 1, (int64_t)sizeof *g->memory_segments);
    give_back(g, g->tokens, sequences, g->options.capacity, (int64_t)sizeof *g->tokens);
    give_back(g, g->stops, g->options.stop_count, 1, (int64_t)sizeof *g->stops);
    give_back(g, g->logits, sequences, plan->output.out, attn__dtype_bytes(plan->options.dtype));
    attn__parameters_release(g->parameters);
    g->magic = 0;
    attn__deallocate(memory, g, (int64_t)sizeof *g);
    attn__memory_release(memory);
}
