#include <math.h>
#include "approximate.h"

/* What goes into a Longformer's and a BigBird's mask beside the window, and into a fixed mask's summaries. */
enum { GLOBALS = 2, RANDOM_BLOCK = 64, RANDOM_BLOCKS = 3, SUMMARIES = 4 };

static attn_status join(attn_context *ctx, attn_mask **mask, attn_mask *other, int both)
{
    attn_mask *joined = NULL;
    attn_status status = both ? attn_mask_intersection(ctx, *mask, other, &joined) : attn_mask_union(ctx, *mask, other, &joined);
    attn_mask_free(*mask);
    attn_mask_free(other);
    *mask = joined;
    return status;
}

/* `size` keys: the last ones with causal, else half of them on each side */
static attn_status window(attn_context *ctx, int64_t size, int causal, attn_mask **out)
{
    int64_t right = causal ? 0 : (size - 1) / 2;
    return attn_mask_window(ctx, ATTN_ALIGN_LAST, size - 1 - right, right, 1, out);
}

static attn_status make_mask(attn_context *ctx, form *f)
{
    static const int64_t first[GLOBALS] = {0, 1};
    const int both_parts = ATTN_PART_LOCAL | ATTN_PART_SUMMARY;
    attn_mask *other = NULL;
    attn_status status;
    switch (f->kind) {
    case EXACT: return f->causal ? attn_mask_causal(ctx, ATTN_ALIGN_LAST, &f->mask) : ATTN_OK;
    case WINDOW: return window(ctx, f->size, f->causal, &f->mask);
    case STRIDED: return attn_mask_strided(ctx, ATTN_ALIGN_LAST, f->size, both_parts, &f->mask);
    case FIXED:
        return attn_mask_fixed(ctx, ATTN_ALIGN_LAST, f->size, f->size > 0 && f->size < SUMMARIES ? f->size : SUMMARIES, both_parts,
                               &f->mask);
    case LOGARITHMIC: return attn_mask_logarithmic(ctx, ATTN_ALIGN_LAST, !f->causal, &f->mask);
    case LONGFORMER:
    case BIGBIRD:
        status = window(ctx, f->size, f->causal, &f->mask);
        if (status == ATTN_OK) status = attn_mask_global(ctx, ATTN_ALIGN_LAST, GLOBALS, first, &other);
        if (status == ATTN_OK) status = join(ctx, &f->mask, other, 0);
        if (status == ATTN_OK && f->kind == BIGBIRD) {
            status = attn_mask_random(ctx, ATTN_ALIGN_LAST, RANDOM_BLOCK, RANDOM_BLOCKS, f->seed, &other);
            if (status == ATTN_OK) status = join(ctx, &f->mask, other, 0);
        }
        if (status == ATTN_OK && f->causal) {
            status = attn_mask_causal(ctx, ATTN_ALIGN_LAST, &other);
            if (status == ATTN_OK) status = join(ctx, &f->mask, other, 1);
        }
        return status;
    default: return ATTN_OK;
    }
}

/* A Linformer learns its projection; here nothing is trained, so row i is the mean of the i-th stretch of the keys. */
static attn_status make_projection(attn_context *ctx, int64_t keys, form *f)
{
    const int64_t shape[2] = {f->size, keys};
    attn_status status = attn_tensor_create(ctx, ATTN_FLOAT32, 2, shape, &f->projection);
    if (status != ATTN_OK) return status;
    float *e = attn_tensor_data(f->projection); /* zeros */
    for (int64_t i = 0; i < f->size; i++) {
        int64_t begin = i * keys / f->size, end = (i + 1) * keys / f->size;
        for (int64_t j = begin; j < end; j++) e[i * keys + j] = 1.0f / (float)(end - begin);
    }
    return ATTN_OK;
}

attn_status form_make(attn_context *ctx, const variant *v, int causal, uint64_t seed, int64_t keys, form *out)
{
    *out = (form){.kind = v->kind, .causal = causal, .size = v->size, .seed = seed};
    attn_status status = v->kind == LINFORMER ? make_projection(ctx, keys, out) : make_mask(ctx, out);
    if (status != ATTN_OK) form_free(out);
    return status;
}

void form_free(form *f)
{
    attn_mask_free(f->mask);
    attn_tensor_free(f->projection);
    *f = (form){.kind = EXACT};
}

attn_status form_attend(attn_context *ctx, attn_tape *tape, const form *f, const operands *o)
{
    if (f->kind == LINFORMER)
        return attn_linformer_attention(ctx, tape, o->in[0], o->in[1], o->in[2], f->projection, NULL, NULL, NULL, NULL, NULL, o->output);
    if (f->kind != LINEAR && f->kind != PERFORMER)
        return attn_dot_product_attention(ctx, tape, o->in[0], o->in[1], o->in[2], NULL, NULL, f->mask, NULL, o->output);
    attn_linear_attention_options options;
    attn_status status = attn_linear_attention_options_init(&options, sizeof options);
    options.map = f->kind == LINEAR ? ATTN_FEATURES_ELU : ATTN_FEATURES_POSITIVE;
    options.causal = f->causal;
    options.features = f->size;
    options.seed = f->seed;
    if (status != ATTN_OK) return status;
    return attn_linear_attention(ctx, tape, o->in[0], o->in[1], o->in[2], NULL, NULL, &options, o->output);
}

static void fill(attn_tensor *t, uint64_t seed)
{
    int64_t count = 1;
    for (int32_t axis = 0; axis < attn_tensor_rank(t); axis++) count *= attn_tensor_extent(t, axis);
    float *x = attn_tensor_data(t);
    for (int64_t i = 0; i < count; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        x[i] = (float)(seed >> 40) / 8388608.0f - 1;
    }
}

attn_status operands_make(attn_context *ctx, operands *o, uint64_t seed)
{
    attn_status status = ATTN_OK;
    int64_t shape[3];
    for (int i = 0; status == ATTN_OK && i < 3; i++) {
        for (int32_t axis = 0; axis < 3; axis++) shape[axis] = attn_tensor_extent(o->in[i], axis);
        status = attn_tensor_create(ctx, ATTN_FLOAT32, 3, shape, &o->gradient[i]);
    }
    for (int32_t axis = 0; axis < 3; axis++) shape[axis] = attn_tensor_extent(o->in[axis < 2 ? 0 : 2], axis);
    if (status == ATTN_OK) status = attn_tensor_create(ctx, ATTN_FLOAT32, 3, shape, &o->output);
    if (status == ATTN_OK) status = attn_tensor_create(ctx, ATTN_FLOAT32, 3, shape, &o->output_gradient);
    if (status == ATTN_OK) fill(o->output_gradient, seed);
    return status;
}

attn_status operands_random(attn_context *ctx, const int64_t query[3], const int64_t key[3], const int64_t value[3], operands *o,
                            uint64_t seed)
{
    const int64_t *const shapes[3] = {query, key, value};
    attn_status status = ATTN_OK;
    for (int i = 0; status == ATTN_OK && i < 3; i++) {
        status = attn_tensor_create(ctx, ATTN_FLOAT32, 3, shapes[i], &o->in[i]);
        if (status == ATTN_OK) fill(o->in[i], seed + 1 + (uint64_t)i);
    }
    return status == ATTN_OK ? operands_make(ctx, o, seed) : status;
}

void operands_free(operands *o)
{
    for (int i = 0; i < 3; i++) {
        attn_tensor_free(o->in[i]);
        attn_tensor_free(o->gradient[i]);
    }
    attn_tensor_free(o->output);
    attn_tensor_free(o->output_gradient);
    *o = (operands){.output = NULL};
}
