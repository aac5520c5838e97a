#include <string.h>
#include "generator.h"

/* One model of a decoding session: can it generate, and its caches. */
attn_status attn__member_check(attn_context *ctx, const attn_transformer *model, int64_t capacity)
{
    const attn__transformer_plan *plan = attn__transformer_plan_of(model);
    if (!plan->has_decoder || !plan->has_output)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "model: got one without %s, expected one that can generate",
                          plan->has_decoder ? "an output head" : "a decoder");
    for (int64_t i = 0; plan->recurrent == NULL && i < plan->decoder.side.layers; i++)
        if (plan->decoder.masks[i] != NULL && !attn__mask_fits_cache(plan->decoder.masks[i]))
            return attn__fail(
                ctx, ATTN_ERROR_UNSUPPORTED,
                "model: got a mask of decoder layer %lld that depends on where a stretch begins, expected one that a cache can keep",
                (long long)i);
    const int64_t positions = plan->options.context;
    if (plan->options.positions == ATTN_POSITIONS_LEARNED && capacity > positions)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                          "options.capacity: got %lld, expected at most the model's %lld learned positions", (long long)capacity,
                          (long long)positions);
    return ATTN_OK;
}

static int64_t key_columns(const attn__attention_module *m)
{
    return m->options.key_heads * m->options.head_size;
}
static int64_t value_columns(const attn__attention_module *m)
{
    return m->options.key_heads * m->options.value_head_size;
}

static view cache_view(const attn__member *m, char **at, int64_t rows, int64_t columns)
{
    int64_t element = attn__dtype_bytes(m->parameters->dtype), bytes = rows * columns * element;
    view made = {*at, rows, 1, columns, columns, 0, m->parameters->dtype, 0};
    *at += (bytes + 63) / 64 * 64;
    return made;
}

/* columns of what a recurrent model keeps of the encoder's rows */
static int64_t recurrent_columns(const attn__recurrent_model *r)
{
    return r->has_attention ? r->memory_width + (r->has_key ? r->width : 0) : 0;
}

/* bytes of `rows` rows of `columns` in two parts, 64-byte aligned each */
static attn_status parts_bytes(attn_context *ctx, const attn__member *m, int64_t rows, int64_t columns, int64_t *out)
{
    if (attn__multiply(rows, columns * attn__dtype_bytes(m->parameters->dtype), out) || attn__sum(*out, 128, out))
        return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "a generator's caches");
    return ATTN_OK;
}

/* bytes of `rows` rows of every layer's keys and values, or two states of each of `slots` slots; 64-byte aligned each */
static attn_status cache_bytes(attn_context *ctx, const attn__member *m, int cross, int64_t rows, int64_t slots, int64_t *out)
{
    const attn__transformer_plan *plan = attn__member_plan(m);
    *out = 0;
    if (plan->recurrent != NULL) return parts_bytes(ctx, m, rows, recurrent_columns(plan->recurrent), out); /* across; it has no other */
    for (int64_t i = 0; i < plan->decoder.side.layers; i++) {
        const attn__attention_module *a = cross ? &plan->decoder.layers[i].cross : &plan->decoder.layers[i].self;
        int64_t bytes = 0, state = 0;
        attn_status status = cross ? ATTN_OK : attn__attention_state_columns(ctx, a, &state);
        if (status == ATTN_OK)
            status = state > 0 ? parts_bytes(ctx, m, slots, 2 * state, &bytes)
                               : parts_bytes(ctx, m, rows, key_columns(a) + value_columns(a), &bytes);
        if (status == ATTN_OK && attn__sum(*out, bytes, out)) status = attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "a generator's caches");
        if (status != ATTN_OK) return status;
    }
    return ATTN_OK;
}

/* a state for each slot, and the next one */
static attn_status open_recurrent(attn_context *ctx, const attn_generator *g, const attn__recurrent_model *r, attn__member *m)
{
    const int64_t columns = attn__recurrent_state_width(r);
    attn_status status = parts_bytes(ctx, m, g->slots, 2 * columns, &m->self_bytes);
    if (status == ATTN_OK) status = attn__generator_take(ctx, g, m->self_bytes, 1, &m->self_cache);
    char *at = m->self_cache;
    if (status != ATTN_OK) return status;
    m->recurrent.now = cache_view(m, &at, g->slots, columns);
    m->recurrent.next = cache_view(m, &at, g->slots, columns);
    return ATTN_OK;
}

attn_status attn__member_open(attn_context *ctx, const attn_generator *g, const attn_transformer *model, attn__member *m)
{
    const attn__transformer_plan *plan = attn__transformer_plan_of(model);
    int64_t rows;
    m->parameters = attn__parameters_retain(model->parameters);
    if (plan->recurrent != NULL) return open_recurrent(ctx, g, plan->recurrent, m);
    if (attn__multiply(g->slots, g->options.capacity, &rows)) return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "a generator's caches");
    attn_status status = attn__generator_take(ctx, g, plan->decoder.side.layers, (int64_t)sizeof(attn__layer_cache), &m->caches);
    if (status == ATTN_OK) status = cache_bytes(ctx, m, 0, rows, g->slots, &m->self_bytes);
    if (status == ATTN_OK) status = attn__generator_take(ctx, g, m->self_bytes, 1, &m->self_cache);
    char *at = m->self_cache;
    for (int64_t i = 0; status == ATTN_OK && i < plan->decoder.side.layers; i++) {
        const attn__attention_module *self = &plan->decoder.layers[i].self;
        int64_t state;
        status = attn__attention_state_columns(ctx, self, &state);
        m->caches[i].self.key = cache_view(m, &at, state > 0 ? g->slots : rows, state > 0 ? state : key_columns(self));
        m->caches[i].self.value = cache_view(m, &at, state > 0 ? g->slots : rows, state > 0 ? state : value_columns(self));
        m->keeps_states |= state > 0;
    }
    return status;
}

void attn__member_close(const attn_generator *g, attn__member *m)
{
    if (m->parameters == NULL) return;
    attn__generator_give_back(g, m->caches, attn__member_plan(m)->decoder.side.layers, (int64_t)sizeof(attn__layer_cache));
    attn__generator_give_back(g, m->self_cache, m->self_bytes, 1);
    attn__generator_give_back(g, m->cross_cache, m->cross_bytes, 1);
    attn__parameters_release(m->parameters);
}

attn_status attn__member_cross_reserve(attn_context *ctx, const attn_generator *g, attn__member *m, int64_t rows)
{
    const attn__transformer_plan *plan = attn__member_plan(m);
    if (rows <= m->cross_rows && m->cross_cache != NULL) return ATTN_OK;
    int64_t bytes;
    void *memory;
    attn_status status = cache_bytes(ctx, m, 1, rows, 0, &bytes);
    if (status == ATTN_OK) status = attn__generator_take(ctx, g, bytes, 1, &memory);
    if (status != ATTN_OK) return status;
    attn__deallocate(g->memory, m->cross_cache, m->cross_bytes);
    m->cross_cache = memory;
    m->cross_bytes = bytes;
    m->cross_rows = rows;
    char *at = memory;
    if (plan->recurrent != NULL) {
        m->recurrent.memory = cache_view(m, &at, rows, plan->recurrent->memory_width);
        m->recurrent.keys = plan->recurrent->has_key ? cache_view(m, &at, rows, plan->recurrent->width) : m->recurrent.memory;
        return ATTN_OK;
    }
    for (int64_t i = 0; i < plan->decoder.side.layers; i++) {
        m->caches[i].cross.key = cache_view(m, &at, rows, key_columns(&plan->decoder.layers[i].cross));
        m->caches[i].cross.value = cache_view(m, &at, rows, value_columns(&plan->decoder.layers[i].cross));
    }
    return ATTN_OK;
}

static void copy_rows(const view *v, int64_t from, int64_t to, int64_t rows)
{
    const size_t row = (size_t)(v->row_stride * attn__dtype_bytes(v->dtype));
    memcpy((char *)v->data + (size_t)to * row, (const char *)v->data + (size_t)from * row, (size_t)rows * row);
}

void attn__member_copy(const attn_generator *g, const attn__member *m, int64_t from, int64_t to, int64_t rows)
{
    const int64_t capacity = g->options.capacity;
    if (attn__member_plan(m)->recurrent != NULL) {
        copy_rows(&m->recurrent.now, from, to, 1);
        return;
    }
    for (int64_t i = 0; i < attn__member_plan(m)->decoder.side.layers; i++) {
        if (m->keeps_states) {
            copy_rows(&m->caches[i].self.key, from, to, 1);
            continue;
        }
        copy_rows(&m->caches[i].self.key, from * capacity, to * capacity, rows);
        copy_rows(&m->caches[i].self.value, from * capacity, to * capacity, rows);
    }
}

void attn__member_forget(const attn__member *m)
{
    if (attn__member_plan(m)->recurrent != NULL || m->keeps_states) memset(m->self_cache, 0, (size_t)m->self_bytes);
}

static void take_over(const view *now, const view *next, int64_t slot)
{
    const size_t row = (size_t)(now->row_stride * attn__dtype_bytes(now->dtype));
    memcpy((char *)now->data + (size_t)slot * row, (const char *)next->data + (size_t)slot * row, row);
}

void attn__member_take_over(const attn__member *m, int64_t slot)
{
    if (attn__member_plan(m)->recurrent != NULL) take_over(&m->recurrent.now, &m->recurrent.next, slot);
    for (int64_t i = 0; m->keeps_states && i < attn__member_plan(m)->decoder.side.layers; i++)
        take_over(&m->caches[i].self.key, &m->caches[i].self.value, slot);
}
