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
    if (o->stop_count > 0 && o->stops == NULL)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "options.stops: got NULL, expected %lld tokens", (long long)o->stop_count);
    if (o->capacity == ATTN_DERIVED) o->capacity = plan->options.context;
    return ATTN_OK;
}

attn_status attn__generator_take(attn_context *ctx, const attn_generator *g, int64_t count, int64_t element, void *out)
{
    int64_t bytes;
    void *memory = NULL;
    attn_status status = attn__multiply(count, element, &bytes) ? ATTN_ERROR_TOO_LARGE : attn__allocate_zero(g->memory, bytes, &memory);
    memcpy(out, &memory, sizeof memory);
    return status == ATTN_OK ? ATTN_OK : attn__fail_memory(ctx, status, "a generator's caches");
}

void attn__generator_give_back(const attn_generator *g, void *pointer, int64_t count, int64_t element)
{
    if (pointer != NULL) attn__deallocate(g->memory, pointer, count * element);
}

static attn_status build(attn_context *ctx, attn_generator *g, const attn_transformer *model)
{
    int64_t sequences = g->options.sequences, vocabulary = attn__transformer_plan_of(model)->output.out, numbers = 0;
    if (attn__multiply(sequences, g->options.beam, &g->slots)) return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "a generator's caches");
    attn_status status = attn__member_open(ctx, g, model, &g->model);
    if (status == ATTN_OK && g->options.beam > 1) status = attn__beam_open(ctx, g);
    if (status == ATTN_OK) status = attn__generator_take(ctx, g, sequences, (int64_t)sizeof *g->filled, &g->filled);
    if (status == ATTN_OK) status = attn__generator_take(ctx, g, sequences, (int64_t)sizeof *g->made, &g->made);
    if (status == ATTN_OK) status = attn__generator_take(ctx, g, sequences, (int64_t)sizeof *g->finished, &g->finished);
    if (status == ATTN_OK) status = attn__generator_take(ctx, g, sequences, (int64_t)sizeof *g->scores, &g->scores);
    if (status == ATTN_OK) status = attn__generator_take(ctx, g, sequences, (int64_t)sizeof *g->memory_segments, &g->memory_segments);
    if (status == ATTN_OK) status = attn__generator_take(ctx, g, sequences * g->options.capacity, (int64_t)sizeof *g->tokens, &g->tokens);
    if (status == ATTN_OK) status = attn__generator_take(ctx, g, g->options.stop_count, (int64_t)sizeof *g->stops, &g->stops);
    if (status == ATTN_OK && attn__multiply(g->slots, vocabulary, &numbers))
        status = attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "logits");
    if (status == ATTN_OK) status = attn__generator_take(ctx, g, numbers, attn__dtype_bytes(g->model.parameters->dtype), &g->logits);
    if (status != ATTN_OK) return status;
    if (g->options.stop_count > 0) memcpy(g->stops, g->options.stops, (size_t)g->options.stop_count * sizeof *g->stops);
    g->options.stops = g->stops;
    const int64_t shape[2] = {g->slots, vocabulary};
    attn__tensor_borrow(&g->logits_tensor, g->model.parameters->dtype, 2, shape, g->logits);
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
    if (status == ATTN_OK) status = attn__member_check(ctx, model, o.capacity);
    if (status != ATTN_OK) return status;
    status = attn__allocate_zero(ctx->memory, (int64_t)sizeof(attn_generator), &memory);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "generator");
    attn_generator *g = memory;
    g->magic = ATTN__MAGIC_GENERATOR;
    g->memory = attn__memory_retain(ctx->memory);
    g->options = o;
    status = build(ctx, g, model);
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

void attn_generator_free(attn_generator *g)
{
    if (!attn__is(g, ATTN__MAGIC_GENERATOR)) return;
    attn__memory *memory = g->memory;
    int64_t sequences = g->options.sequences, numbers = g->slots;
    if (g->logits != NULL) numbers *= g->logits_tensor.shape[1];
    attn__generator_give_back(g, g->filled, sequences, (int64_t)sizeof *g->filled);
    attn__generator_give_back(g, g->made, sequences, (int64_t)sizeof *g->made);
    attn__generator_give_back(g, g->finished, sequences, (int64_t)sizeof *g->finished);
    attn__generator_give_back(g, g->scores, sequences, (int64_t)sizeof *g->scores);
    attn__generator_give_back(g, g->memory_segments, sequences, (int64_t)sizeof *g->memory_segments);
    if (g->tokens != NULL) attn__generator_give_back(g, g->tokens, sequences * g->options.capacity, (int64_t)sizeof *g->tokens);
    attn__generator_give_back(g, g->stops, g->options.stop_count, (int64_t)sizeof *g->stops);
    attn__generator_give_back(g, g->logits, numbers, attn__dtype_bytes(g->logits_tensor.dtype));
    attn__beam_close(g);
    for (attn__member *m = g->model.next, *next; m != NULL; m = next) {
        next = m->next;
        attn__member_close(g, m);
        attn__generator_give_back(g, m, 1, (int64_t)sizeof *m);
    }
    attn__member_close(g, &g->model);
    g->magic = 0;
    attn__deallocate(memory, g, (int64_t)sizeof *g);
    attn__memory_release(memory);
}
