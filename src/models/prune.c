#include <attn/heads.h>
#include <string.h>
#include "transformer.h"

/* What is to become of each head that layers were created with, [encoder layers, heads] and behind it [decoder layers, heads]. */
enum { GONE = 0, STAYS = 1, GOES = 2 };
typedef struct marks {
    const attn__transformer_plan *plan;
    unsigned char *at;
    int64_t encoder; /* how many of them are the encoder's */
    int64_t bytes;
} marks;

static const attn__stack *stack_of(const attn__transformer_plan *plan, int64_t decoder)
{
    return decoder ? &plan->decoder : &plan->encoder;
}

static unsigned char *marks_of(const marks *m, int64_t decoder, int64_t layer)
{
    return m->at + (decoder ? m->encoder : 0) + layer * stack_of(m->plan, decoder)->side.heads;
}

/* the number at creation of a layer's head */
static int64_t number_of(const attn__attention_module *self, int64_t head)
{
    return self->kept.heads != NULL ? self->kept.heads[head] : head;
}

static attn_status open_marks(attn_context *ctx, const attn__transformer_plan *plan, marks *m)
{
    void *memory = NULL;
    int64_t decoder = 0;
    *m = (marks){.plan = plan};
    if (plan->has_encoder) m->encoder = plan->encoder.side.layers * plan->encoder.side.heads; /* fewer than the model has parameters */
    if (plan->has_decoder) decoder = plan->decoder.side.layers * plan->decoder.side.heads;
    m->bytes = m->encoder + decoder;
    attn_status status = attn__allocate_zero(ctx->memory, m->bytes, &memory);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "marks of heads");
    m->at = memory;
    for (int64_t d = 0; d < 2; d++)
        for (int64_t i = 0; i < stack_of(plan, d)->side.layers; i++) {
            const attn__attention_module *self = &stack_of(plan, d)->layers[i].self;
            for (int64_t h = 0; h < self->options.heads; h++) marks_of(m, d, i)[number_of(self, h)] = STAYS;
        }
    return ATTN_OK;
}

static attn_status wrong(attn_context *ctx, attn_status status, int64_t entry, const int64_t *got, const char *expected)
{
    return attn__fail(ctx, status, "heads: got [%lld, %lld, %lld] at entry %lld, expected %s", (long long)got[0], (long long)got[1],
                      (long long)got[2], (long long)entry, expected);
}

static attn_status mark_heads(attn_context *ctx, marks *m, int64_t count, const int64_t *heads)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t *h = heads + 3 * i;
        if ((h[0] != 0 && h[0] != 1) || !(h[0] ? m->plan->has_decoder : m->plan->has_encoder))
            return wrong(ctx, ATTN_ERROR_INVALID_ARGUMENT, i, h, "a stack of the model: 0 its encoder, 1 its decoder");
        const attn__stack *stack = stack_of(m->plan, h[0]);
        if (h[1] < 0 || h[1] >= stack->side.layers) return wrong(ctx, ATTN_ERROR_INVALID_ARGUMENT, i, h, "a layer of that stack");
        const attn__attention_module *self = &stack->layers[h[1]].self;
        if (h[2] < 0 || h[2] >= self->options.heads) return wrong(ctx, ATTN_ERROR_INVALID_ARGUMENT, i, h, "a head of that layer");
        unsigned char *mark = &marks_of(m, h[0], h[1])[number_of(self, h[2])];
        if (*mark == GOES) return wrong(ctx, ATTN_ERROR_INVALID_ARGUMENT, i, h, "no head twice");
        *mark = GOES;
    }
    return ATTN_OK;
}

/* what stays in one layer, at `to` when it is not NULL; how many */
static int64_t left(const marks *m, int64_t decoder, int64_t layer, int64_t *to)
{
    int64_t count = 0;
    for (int64_t h = 0; h < stack_of(m->plan, decoder)->side.heads; h++)
        if (marks_of(m, decoder, layer)[h] == STAYS) {
            if (to != NULL) to[count] = h;
            count++;
        }
    return count;
}

static attn_status collect(attn_context *ctx, const marks *m, attn__left **out)
{
    int64_t layers = 0, numbers = 0, at = 0;
    for (int64_t d = 0; d < 2; d++)
        for (int64_t i = 0; i < stack_of(m->plan, d)->side.layers; i++) {
            int64_t count = left(m, d, i, NULL);
            if (count == 0)
                return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "heads: got all of %s layer %lld, expected at least one head to stay",
                                  d ? "decoder" : "encoder", (long long)i);
            layers += count < stack_of(m->plan, d)->side.heads;
            numbers += count < stack_of(m->plan, d)->side.heads ? count : 0;
        }
    attn_status status = attn__left_create(ctx, layers, numbers, out);
    int64_t *to = status == ATTN_OK ? (*out)->numbers : NULL;
    for (int64_t d = 0; status == ATTN_OK && d < 2; d++)
        for (int64_t i = 0; status == ATTN_OK && i < stack_of(m->plan, d)->side.layers; i++) {
            const attn_attention_options *self = &stack_of(m->plan, d)->layers[i].self.options;
            int64_t count = left(m, d, i, NULL), group = self->heads / self->key_heads;
            if (count == stack_of(m->plan, d)->side.heads) continue;
            left(m, d, i, to);
            (*out)->at[at++] = (attn__kept){d, i, count, to};
            if (!attn__left_grouped(to, count, group))
                status = attn__fail(
                    ctx, ATTN_ERROR_UNSUPPORTED,
                    "heads: got a part of a group of %s layer %lld, expected whole groups of the %lld heads that share a key head",
                    d ? "decoder" : "encoder", (long long)i, (long long)group);
            to += count;
        }
    return status;
}

/* The heads of one layer's module, before and after: head j was head at[j]. */
typedef struct picked {
    const attn_parameters *from, *to;
    const int64_t *at;
    int64_t count, element;
} picked;

/* a weight or bias whose rows are heads, one for each `group` of the queries'; -1: absent */
static void pick_rows(const picked *p, int64_t index, int64_t group)
{
    if (index < 0) return;
    const attn__parameter *parameter = &p->to->at[index];
    const size_t bytes = (size_t)(parameter->elements / (p->count / group) * p->element);
    const char *from = attn__parameters_view(p->from, index).data;
    char *to = attn__parameters_view(p->to, index).data;
    for (int64_t j = 0; j < p->count / group; j++) memcpy(to + (size_t)j * bytes, from + (size_t)(p->at[j * group] / group) * bytes, bytes);
}

/* the output projection, whose columns are heads */
static void pick_columns(const picked *p, int64_t index, int64_t block)
{
    const int64_t rows = p->to->at[index].shape[0], bytes = block * p->element;
    const int64_t from_width = p->from->at[index].shape[1] * p->element, to_width = p->to->at[index].shape[1] * p->element;
    const char *from = attn__parameters_view(p->from, index).data;
    char *to = attn__parameters_view(p->to, index).data;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < p->count; j++)
            memcpy(to + i * to_width + j * bytes, from + i * from_width + p->at[j] * bytes, (size_t)bytes);
}

static void pick(const picked *p, const attn__attention_module *m)
{
    const attn_attention_options *o = &m->options;
    const int64_t group = o->heads / o->key_heads;
    const int64_t by_query[4] = {m->query_weight, m->query_bias, m->gate_weight, m->gate_bias};
    const int64_t by_key[4] = {m->key_weight, m->key_bias, m->value_weight, m->value_bias};
    const attn__linear_module *const global[3] = {&m->global_query, &m->global_key, &m->global_value};
    for (int i = 0; i < 4; i++) pick_rows(p, by_query[i], 1);
    for (int i = 0; i < 4; i++) pick_rows(p, by_key[i], group);
    for (int i = 0; o->global_projections && i < 3; i++) {
        pick_rows(p, global[i]->weight, i == 0 ? 1 : group);
        pick_rows(p, global[i]->bias, i == 0 ? 1 : group);
    }
    pick_columns(p, m->output_weight, o->value_head_size);
}

/* where each head of the new layer stands in the old one */
static void places(const attn__attention_module *before, const attn__attention_module *after, int64_t *at)
{
    for (int64_t j = 0, h = 0; j < after->options.heads; j++) {
        while (number_of(before, h) != number_of(after, j)) h++;
        at[j] = h;
    }
}

/* both sets have the same parameters in the same order */
static attn_status copy_parameters(attn_context *ctx, const attn_parameters *from, attn_parameters *to)
{
    const attn__transformer_plan *before = from->plan, *after = to->plan;
    const int64_t element = attn__dtype_bytes(from->dtype);
    int64_t most = before->has_decoder ? before->decoder.side.heads : 0;
    void *at = NULL;
    if (before->has_encoder && before->encoder.side.heads > most) most = before->encoder.side.heads;
    attn_status status = attn__allocate(ctx->memory, most * (int64_t)sizeof(int64_t), &at);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "places of heads");
    for (int64_t i = 0; i < from->count; i++) {
        to->at[i].frozen = from->at[i].frozen;
        if (to->at[i].elements == from->at[i].elements)
            memcpy(attn__parameters_view(to, i).data, attn__parameters_view(from, i).data, (size_t)(from->at[i].elements * element));
    }
    for (int64_t d = 0; d < 2; d++)
        for (int64_t i = 0; i < stack_of(before, d)->side.layers; i++) {
            const attn__attention_module *now = &stack_of(after, d)->layers[i].self;
            if (now->options.heads == stack_of(before, d)->layers[i].self.options.heads) continue;
            places(&stack_of(before, d)->layers[i].self, now, at);
            pick(&(picked){from, to, at, now->options.heads, element}, now);
        }
    attn__deallocate(ctx->memory, at, most * (int64_t)sizeof(int64_t));
    return ATTN_OK;
}

static attn_status prune(attn_context *ctx, const attn_transformer *model, int64_t count, const int64_t *heads, attn_transformer **out)
{
    const attn__transformer_plan *plan = attn__transformer_plan_of(model);
    attn__left *kept = NULL;
    marks m;
    attn_status status = open_marks(ctx, plan, &m);
    if (status == ATTN_OK) status = mark_heads(ctx, &m, count, heads);
    if (status == ATTN_OK) status = collect(ctx, &m, &kept);
    attn__deallocate(ctx->memory, m.at, m.bytes);
    attn_transformer *made = NULL;
    if (status == ATTN_OK) status = attn__transformer_make(ctx, &plan->options, kept, &made);
    attn__left_free(kept);
    if (status == ATTN_OK) status = copy_parameters(ctx, model->parameters, made->parameters);
    for (const attn__metadata *entry = model->metadata; status == ATTN_OK && entry != NULL; entry = entry->next)
        status = attn__transformer_add_metadata(ctx, made, entry->key, entry->value);
    if (status == ATTN_OK)
        *out = made;
    else
        attn_transformer_free(made);
    return status;
}

attn_status attn_transformer_prune_heads(attn_context *ctx, const attn_transformer *model, int64_t count, const int64_t *heads,
                                         attn_transformer **out)
{
    if (out != NULL) *out = NULL;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = attn__expect(ctx, "model", model, ATTN__MAGIC_TRANSFORMER, "attn_transformer");
    if (status == ATTN_OK) status = attn__transformer_attends(ctx, attn__transformer_plan_of(model));
    if (status == ATTN_OK && count < 1)
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "count: got %lld, expected 1 or more heads", (long long)count);
    if (status == ATTN_OK && heads == NULL)
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "heads: got NULL, expected %lld of [stack, layer, head]", (long long)count);
    if (status == ATTN_OK && out == NULL)
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "out: got NULL, expected where to put the model");
    if (status == ATTN_OK) status = prune(ctx, model, count, heads, out);
    return attn__leave(ctx, status);
}

static attn_status list_heads(attn_context *ctx, const attn__transformer_plan *plan, int32_t decoder, int64_t layer, int64_t capacity,
                              int64_t *heads, int64_t *count)
{
    if ((decoder != 0 && decoder != 1) || !(decoder ? plan->has_decoder : plan->has_encoder))
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "decoder: got %d, expected a stack of the model: 0 its encoder, 1 its decoder",
                          (int)decoder);
    const attn__stack *stack = stack_of(plan, decoder);
    if (layer < 0 || layer >= stack->side.layers)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "layer: got %lld, expected 0 to %lld", (long long)layer,
                          (long long)stack->side.layers - 1);
    if (capacity < 0 || (capacity > 0 && heads == NULL))
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "capacity, heads: got %lld at %s, expected room", (long long)capacity,
                          heads == NULL ? "NULL" : "a place");
    if (count == NULL) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "count: got NULL, expected where to put a number");
    const attn__attention_module *self = &stack->layers[layer].self;
    *count = self->options.heads;
    if (capacity < *count)
        return attn__fail(ctx, ATTN_ERROR_FULL, "capacity: got %lld, expected at least %lld", (long long)capacity, (long long)*count);
    for (int64_t h = 0; h < *count; h++) heads[h] = number_of(self, h);
    return ATTN_OK;
}

attn_status attn_transformer_heads(attn_context *ctx, const attn_transformer *model, int32_t decoder, int64_t layer, int64_t capacity,
                                   int64_t *heads, int64_t *count)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = attn__expect(ctx, "model", model, ATTN__MAGIC_TRANSFORMER, "attn_transformer");
    if (status == ATTN_OK) status = attn__transformer_attends(ctx, attn__transformer_plan_of(model));
    if (status == ATTN_OK) status = list_heads(ctx, attn__transformer_plan_of(model), decoder, layer, capacity, heads, count);
    return attn__leave(ctx, status);
}
