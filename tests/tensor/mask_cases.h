#ifndef TESTS_TENSOR_MASK_CASES_H
#define TESTS_TENSOR_MASK_CASES_H
#include <math.h>
#include "core/random.h"
#include "fixture.h"
#include "tensor/layout.h"
#include "tensor/mask.h"
#include "tensor/tensor.h"

/* Masks as their definitions say, one pair at a time: what the library's answers are compared with. */
typedef enum rule_kind {
    ALL,
    CAUSAL,
    WINDOW,
    BOOLEAN,
    GLOBAL,
    RANDOM,
    LOGARITHMIC,
    ADDITIVE,
    FIXED,
    STRIDED,
    PER_HEAD,
    UNION,
    INTERSECTION
} rule_kind;
typedef struct rule {
    rule_kind kind;
    int32_t alignment;
    int64_t left, right, dilation; /* sparse kinds: stride or block; count; parts or both sides */
    int64_t extent[4];
    uint64_t seed;
    const struct rule *a, *b;
} rule;

enum { HEADS = 2, MOST_KEYS = 200 };

/* about half of all, in runs and holes of all sizes */
static int bit(int64_t s, int64_t h, int64_t i, int64_t j)
{
    uint64_t x = (uint64_t)(s * 1000003 + h * 7919 + i * 613) + (uint64_t)(j / (1 + i % 5)) * 2654435761u;
    x ^= x >> 15;
    x *= UINT64_C(0x9E3779B97F4A7C15);
    return i % 7 == 3 ? 0 : i % 7 == 4 ? 1 : (int)(x >> 40 & 1);
}

static const int64_t globals[] = {0, 2, 3, 64, 65, 100, 163, 199, INT64_MAX};

static int is_global(int64_t x, int64_t count)
{
    for (int64_t g = 0; g < count; g++)
        if (globals[g] == x) return 1;
    return 0;
}

static int is_power(int64_t distance)
{
    for (int64_t power = 1; power <= MOST_KEYS * 2; power *= 2)
        if (distance == power) return 1;
    return distance == 0;
}

/* Floyd's sampling, written anew: for top = blocks - count .. blocks - 1 the number drawn from 0 .. top, or top when that is taken */
static int is_drawn(const rule *r, int64_t q, int64_t block, int64_t blocks)
{
    uint8_t taken[MOST_KEYS + 1] = {0};
    int64_t count = r->right < blocks ? r->right : blocks;
    for (int64_t c = 0; c < count; c++) {
        uint32_t word[4];
        int64_t top = blocks - count + c;
        attn__philox(r->seed, (uint32_t)c, (uint32_t)q, 0, 0, word);
        int64_t pick = (int64_t)(((uint64_t)word[0] << 32 | word[1]) % (uint64_t)(top + 1));
        taken[taken[pick] ? top : pick] = 1;
    }
    return taken[block];
}

static int sees(const rule *r, const attn__pair *pair, int64_t head, int64_t i, int64_t j)
{
    int64_t m = pair->query->length, n = pair->key->length;
    int64_t place = r->alignment == ATTN_ALIGN_LAST    ? i + n - m
                    : r->alignment == ATTN_ALIGN_FIRST ? i
                                                       : pair->query->first_position + i - pair->key->first_position;
    int64_t delta = place - j, stride = r->left > 0 ? r->left : 1;
    while (r->left == ATTN_DERIVED && stride * stride < n) stride++;
    switch (r->kind) {
    case CAUSAL: return j <= place;
    case WINDOW:
        if (delta % r->dilation != 0) return 0;
        return (r->left < 0 || delta / r->dilation <= r->left) && (r->right < 0 || delta / r->dilation >= -r->right);
    case BOOLEAN: return bit(r->extent[0] == 1 ? 0 : pair->index, r->extent[1] == 1 ? 0 : head, i, j);
    case GLOBAL: return is_global(place, r->right) || is_global(j, r->right);
    case LOGARITHMIC: return delta >= 0 ? is_power(delta) : r->dilation && is_power(-delta);
    case STRIDED:
        return delta >= 0 &&
               (((r->dilation & ATTN_PART_LOCAL) && delta <= stride) || ((r->dilation & ATTN_PART_SUMMARY) && delta % stride == 0));
    case FIXED:
        return delta >= 0 && (((r->dilation & ATTN_PART_LOCAL) && place / stride == j / stride) ||
                              ((r->dilation & ATTN_PART_SUMMARY) && j % stride >= stride - r->right));
    case RANDOM: return place >= 0 && is_drawn(r, place / r->left, j / r->left, (n + r->left - 1) / r->left);
    case ADDITIVE: return bit(r->extent[0] == 1 ? 0 : pair->index, r->extent[1] == 1 ? 0 : head, i, j);
    case PER_HEAD: return head == 0 ? r->a == NULL || sees(r->a, pair, head, i, j) : r->b == NULL || sees(r->b, pair, head, i, j);
    case UNION: return sees(r->a, pair, head, i, j) || sees(r->b, pair, head, i, j);
    case INTERSECTION: return sees(r->a, pair, head, i, j) && sees(r->b, pair, head, i, j);
    default: return 1;
    }
}

static attn_mask *boolean_mask(attn_context *ctx, const int64_t *extent)
{
    attn_tensor *allowed;
    attn_mask *mask;
    EXPECT_OK(attn_tensor_create(ctx, ATTN_UINT8, 4, extent, &allowed));
    uint8_t *at = attn_tensor_data(allowed);
    for (int64_t s = 0; s < extent[0]; s++)
        for (int64_t h = 0; h < extent[1]; h++)
            for (int64_t i = 0; i < extent[2]; i++)
                for (int64_t j = 0; j < extent[3]; j++) *at++ = (uint8_t)(bit(s, h, i, j) ? 1 + j % 255 : 0);
    EXPECT_OK(attn_mask_boolean(ctx, allowed, &mask));
    attn_tensor_free(allowed);
    return mask;
}

static attn_mask *additive_mask(attn_context *ctx, const int64_t *extent)
{
    attn_tensor *values;
    attn_mask *mask;
    EXPECT_OK(attn_tensor_create(ctx, ATTN_FLOAT64, 4, extent, &values));
    double *at = attn_tensor_data(values);
    for (int64_t s = 0; s < extent[0]; s++)
        for (int64_t h = 0; h < extent[1]; h++)
            for (int64_t i = 0; i < extent[2]; i++)
                for (int64_t j = 0; j < extent[3]; j++) *at++ = bit(s, h, i, j) ? (double)(i - j) : -INFINITY;
    EXPECT_OK(attn_mask_additive(ctx, values, &mask));
    attn_tensor_free(values);
    return mask;
}

static attn_mask *make_mask(attn_context *ctx, const rule *r)
{
    attn_mask *mask = NULL;
    if (r == NULL) return NULL;
    if (r->kind == ADDITIVE) mask = additive_mask(ctx, r->extent);
    if (r->kind == CAUSAL) EXPECT_OK(attn_mask_causal(ctx, r->alignment, &mask));
    if (r->kind == WINDOW) EXPECT_OK(attn_mask_window(ctx, r->alignment, r->left, r->right, r->dilation, &mask));
    if (r->kind == BOOLEAN) mask = boolean_mask(ctx, r->extent);
    if (r->kind == GLOBAL) EXPECT_OK(attn_mask_global(ctx, r->alignment, r->right, globals, &mask));
    if (r->kind == STRIDED) EXPECT_OK(attn_mask_strided(ctx, r->alignment, r->left, (int32_t)r->dilation, &mask));
    if (r->kind == FIXED) EXPECT_OK(attn_mask_fixed(ctx, r->alignment, r->left, r->right, (int32_t)r->dilation, &mask));
    if (r->kind == RANDOM) EXPECT_OK(attn_mask_random(ctx, r->alignment, r->left, r->right, r->seed, &mask));
    if (r->kind == LOGARITHMIC) EXPECT_OK(attn_mask_logarithmic(ctx, r->alignment, (int32_t)r->dilation, &mask));
    if (r->kind < PER_HEAD) return mask;
    attn_mask *a = make_mask(ctx, r->a), *b = make_mask(ctx, r->b);
    const attn_mask *const both[HEADS] = {a, b};
    if (r->kind == PER_HEAD)
        EXPECT_OK(attn_mask_heads(ctx, HEADS, both, &mask));
    else
        EXPECT_OK((r->kind == UNION ? attn_mask_union : attn_mask_intersection)(ctx, a, b, &mask));
    attn_mask_free(a); /* the parts live on in the whole */
    attn_mask_free(b);
    return mask;
}

static const rule causal_last = {.kind = CAUSAL, .alignment = ATTN_ALIGN_LAST};
static const rule causal_first = {.kind = CAUSAL, .alignment = ATTN_ALIGN_FIRST};
static const rule band = {.kind = WINDOW, .left = 3, .right = 2, .dilation = 1};
static const rule step_5 = {.kind = WINDOW, .left = -1, .right = 0, .dilation = 5};
static const rule head_keys = {.kind = WINDOW, .alignment = ATTN_ALIGN_FIRST, .left = 70, .right = -1, .dilation = 1};
static const rule far_keys = {.kind = WINDOW, .alignment = ATTN_ALIGN_LAST, .left = 0, .right = -1, .dilation = 60};
static const rule late_keys = {.kind = WINDOW, .alignment = ATTN_ALIGN_LAST, .left = 3, .right = -1, .dilation = 1};
static const rule bits = {.kind = BOOLEAN, .extent = {1, 1, 200, 200}};
static const rule bits_of_pairs = {.kind = BOOLEAN, .extent = {5, HEADS, 200, 200}};
static const rule band_or_causal_first = {.kind = UNION, .a = &band, .b = &causal_first};
static const rule causal_band = {.kind = INTERSECTION, .a = &causal_last, .b = &band};
static const rule causal_bits = {.kind = INTERSECTION, .a = &causal_last, .b = &bits};
static const rule bits_causal = {.kind = INTERSECTION, .a = &bits, .b = &causal_first};
static const rule strided = {.kind = UNION, .a = &band, .b = &step_5};

static const rule tokens = {.kind = GLOBAL, .right = 8};
static const rule far_blocks = {.kind = RANDOM, .left = 16, .right = 2, .seed = 7};
static const rule numbers = {.kind = ADDITIVE, .extent = {1, HEADS, 200, 200}};
static const rule per_head = {.kind = PER_HEAD, .a = &far_blocks, .b = &tokens};
static const rule band_or_tokens = {.kind = UNION, .a = &band, .b = &tokens};
static const rule fixed = {.kind = FIXED, .left = 16, .right = 2, .dilation = 3};

static const rule rules[] = {
    {.kind = ALL},
    {.kind = CAUSAL, .alignment = ATTN_ALIGN_LAST},
    {.kind = CAUSAL, .alignment = ATTN_ALIGN_FIRST},
    {.kind = CAUSAL, .alignment = ATTN_ALIGN_POSITION},
    {.kind = WINDOW, .left = 3, .right = 2, .dilation = 1},
    {.kind = WINDOW, .left = 0, .right = 0, .dilation = 1},
    {.kind = WINDOW, .alignment = ATTN_ALIGN_FIRST, .left = 64, .right = 0, .dilation = 1},
    {.kind = WINDOW, .alignment = ATTN_ALIGN_POSITION, .left = 5, .right = -1, .dilation = 1},
    {.kind = WINDOW, .alignment = ATTN_ALIGN_POSITION, .left = -1, .right = 7, .dilation = 1},
    {.kind = WINDOW, .left = -1, .right = -1, .dilation = 1},
    {.kind = WINDOW, .left = 4, .right = 1, .dilation = 3},
    {.kind = WINDOW, .alignment = ATTN_ALIGN_FIRST, .left = -1, .right = -1, .dilation = 64},
    {.kind = WINDOW, .alignment = ATTN_ALIGN_POSITION, .left = 2, .right = -1, .dilation = 7},
    {.kind = WINDOW, .left = INT64_MAX, .right = INT64_MAX, .dilation = INT64_MAX},
    {.kind = WINDOW, .left = INT64_MAX / 2, .right = INT64_MAX / 2, .dilation = 3}, /* as a product that wraps they would be negative */
    {.kind = GLOBAL, .right = 8},
    {.kind = GLOBAL, .right = 0},
    {.kind = GLOBAL, .alignment = ATTN_ALIGN_FIRST, .right = 9},
    {.kind = GLOBAL, .alignment = ATTN_ALIGN_POSITION, .right = 3},
    {.kind = STRIDED, .left = 8, .dilation = 1},
    {.kind = STRIDED, .left = 8, .dilation = 2},
    {.kind = STRIDED, .left = ATTN_DERIVED, .dilation = 3},
    {.kind = STRIDED, .alignment = ATTN_ALIGN_FIRST, .left = 1, .dilation = 3},
    {.kind = STRIDED, .alignment = ATTN_ALIGN_POSITION, .left = 70, .dilation = 3},
    {.kind = STRIDED, .left = INT64_MAX, .dilation = 3},
    {.kind = FIXED, .left = 8, .right = 1, .dilation = 1},
    {.kind = FIXED, .left = 8, .right = 3, .dilation = 2},
    {.kind = FIXED, .left = ATTN_DERIVED, .right = 1, .dilation = 3},
    {.kind = FIXED, .alignment = ATTN_ALIGN_FIRST, .left = 65, .right = 65, .dilation = 2},
    {.kind = FIXED, .alignment = ATTN_ALIGN_FIRST, .left = 1, .right = 1, .dilation = 3},
    {.kind = FIXED, .left = INT64_MAX, .right = INT64_MAX, .dilation = 3},
    {.kind = RANDOM, .left = 1, .right = 3, .seed = 1},
    {.kind = RANDOM, .left = 16, .right = 2, .seed = 7},
    {.kind = RANDOM, .alignment = ATTN_ALIGN_FIRST, .left = 64, .right = 64, .seed = 7},
    {.kind = RANDOM, .alignment = ATTN_ALIGN_FIRST, .left = 7, .right = 0, .seed = 7},
    {.kind = RANDOM, .left = INT64_MAX / 2, .right = 2, .seed = 7},
    {.kind = LOGARITHMIC, .dilation = 0},
    {.kind = LOGARITHMIC, .dilation = 1},
    {.kind = LOGARITHMIC, .alignment = ATTN_ALIGN_FIRST, .dilation = 1},
    {.kind = LOGARITHMIC, .alignment = ATTN_ALIGN_POSITION, .dilation = 0},
    {.kind = ADDITIVE, .extent = {1, 1, 200, 200}},
    {.kind = ADDITIVE, .extent = {5, HEADS, 200, 200}},
    {.kind = INTERSECTION, .a = &numbers, .b = &causal_last},
    {.kind = PER_HEAD, .a = &band, .b = &step_5},
    {.kind = PER_HEAD, .a = NULL, .b = &bits_of_pairs},
    {.kind = INTERSECTION, .a = &per_head, .b = &causal_last},
    {.kind = UNION, .a = &band, .b = &per_head},
    {.kind = UNION, .a = &band_or_tokens, .b = &far_blocks}, /* BigBird */
    {.kind = INTERSECTION, .a = &band_or_tokens, .b = &causal_last},
    {.kind = UNION, .a = &fixed, .b = &far_blocks},
    {.kind = BOOLEAN, .extent = {1, 1, 200, 200}},
    {.kind = BOOLEAN, .extent = {1, HEADS, 200, 200}},
    {.kind = BOOLEAN, .extent = {5, 1, 200, 200}},
    {.kind = UNION, .a = &band, .b = &causal_first},
    {.kind = UNION, .a = &band, .b = &head_keys},
    {.kind = UNION, .a = &band, .b = &far_keys},
    {.kind = UNION, .a = &band, .b = &step_5},
    {.kind = UNION, .a = &causal_last, .b = &bits},
    {.kind = UNION, .a = &bits_of_pairs, .b = &strided},
    {.kind = INTERSECTION, .a = &causal_last, .b = &band},
    {.kind = INTERSECTION, .a = &causal_last, .b = &step_5},
    {.kind = INTERSECTION, .a = &causal_first, .b = &late_keys}, /* apart in most rows that have more keys than queries */
    {.kind = INTERSECTION, .a = &bits_of_pairs, .b = &causal_last},
    {.kind = INTERSECTION, .a = &bits, .b = &bits_of_pairs},
    {.kind = INTERSECTION, .a = &band_or_causal_first, .b = &bits_of_pairs},
    {.kind = UNION, .a = &causal_band, .b = &far_keys},
    {.kind = INTERSECTION, .a = &causal_band, .b = &strided},
    {.kind = INTERSECTION, .a = &causal_bits, .b = &band}, /* three at once: causal, padding, window */
    {.kind = INTERSECTION, .a = &bits_causal, .b = &head_keys},
    {.kind = UNION, .a = &causal_bits, .b = &far_keys},
};
enum { RULES = sizeof rules / sizeof *rules };

/* five pairs of segments at a time: queries, keys; the numbers are lengths and first positions */
typedef struct pair_sizes {
    int64_t m, n, query_position, key_position;
} pair_sizes;
static const pair_sizes sizes[][5] = {
    {{0, 0, 0, 0}, {0, 5, 0, 0}, {5, 0, 0, 0}, {1, 1, 0, 0}, {1, 8, 7, 0}},
    {{2, 5, 3, 0}, {5, 2, 0, 0}, {7, 7, 0, 0}, {13, 13, 4, 4}, {11, 3, 0, 9}},
    {{31, 97, 66, 0}, {97, 31, 0, 60}, {64, 64, 0, 0}, {65, 63, 0, 1}, {3, 200, 500, 303}},
    {{127, 129, 2, 0}, {129, 127, 0, 0}, {1, 131, 0, 200}, {192, 1, 100, 200}, {200, 200, 0, 0}},
};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void make_segments(const pair_sizes *of, attn_segment query[5], attn_segment key[5], attn__segments *q, attn__segments *k)
{
    int64_t rows = 0, keys = 0;
    for (int s = 0; s < 5; s++) {
        query[s] = (attn_segment){rows, of[s].m, of[s].query_position, s};
        key[s] = (attn_segment){keys, of[s].n, of[s].key_position, s};
        rows += of[s].m;
        keys += of[s].n + 2; /* unused rows between */
    }
    *q = (attn__segments){5, rows, query};
    *k = (attn__segments){5, keys - 2, key};
}
#endif
