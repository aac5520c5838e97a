#ifndef TESTS_KERNELS_ATTENTION_DATA_H
#define TESTS_KERNELS_ATTENTION_DATA_H
/* Attention's arguments for the cross-checks: segments, masks and numbers of one shape, for each run. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/compare.h"
#include "support/crosscheck.h"

enum {
    MASK_NONE,
    MASK_CAUSAL_LAST,
    MASK_CAUSAL_FIRST,
    MASK_CAUSAL_POSITION,
    MASK_WINDOW,
    MASK_BOOLEAN,
    MASK_BOOLEAN_HEADS,
    MASK_UNION,
    MASK_DILATED,
    MASK_AHEAD,
    MASK_ADDITIVE,
    MASK_PER_HEAD,
    MASK_NUMBERS,
    MASK_SPARSE
};

typedef struct attention_shape {
    int64_t heads, key_heads, size, value_size;
    int32_t mask, add;
    double soft_cap, rate;
    int64_t gap, head_gap, pairs;
    int64_t queries[4], keys[4]; /* lengths; keys -1: the segment of the pair before, once more */
} attention_shape;

typedef struct attention_data {
    attn__segments query_segments, key_segments;
    attn_segment queries[4], keys[4];
    attn_mask *mask[RUNS];
    trio query, key, value, output, log_sum_exp, entropy, d_output, d_query, d_key, d_value;
} attention_data;

static int tight(const attention_shape *s)
{
    return s->pairs == 1 && s->mask == MASK_NONE;
}

/* queries tile their rows; key segments of shapes that are not tight have a row between them that belongs to no one and holds NaN */
static void make_segments(const attention_shape *s, attention_data *d)
{
    int64_t query_row = 0, key_row = tight(s) ? 0 : 1;
    for (int64_t i = 0; i < s->pairs; i++) {
        int64_t position = s->mask == MASK_CAUSAL_POSITION ? 25 : 100 * i;
        d->queries[i] = (attn_segment){query_row, s->queries[i], position, 1000 + i};
        query_row += s->queries[i];
        if (s->keys[i] < 0) {
            d->keys[i] = d->keys[i - 1];
            continue;
        }
        d->keys[i] = (attn_segment){key_row, s->keys[i], i % 2 == 0 ? 0 : 3, 2000 + i};
        key_row += s->keys[i] + 1;
    }
    d->query_segments = (attn__segments){s->pairs, query_row, d->queries};
    d->key_segments = (attn__segments){s->pairs, tight(s) ? key_row - 1 : key_row, d->keys};
}

static int row_is_used(const attention_data *d, int64_t row)
{
    for (int64_t i = 0; i < d->key_segments.count; i++) {
        if (row >= d->keys[i].start && row < d->keys[i].start + d->keys[i].length) return 1;
    }
    return 0;
}

static void spoil(const view *v, int64_t row, double with)
{
    for (int64_t h = 0; h < v->heads; h++) {
        for (int64_t k = 0; k < v->width; k++) element_set(v, row, h, k, with);
    }
}

static attn_mask *make_boolean(crosscheck *c, int run, const attention_shape *s, int64_t heads)
{
    int64_t shape[4] = {1, heads, s->queries[0], s->keys[0]}, n = heads * s->queries[0] * s->keys[0];
    uint8_t *allowed = take(c, n);
    random_state random = {99};
    for (int64_t i = 0; i < n; i++) allowed[i] = random_bits(&random) % 3 == 0;
    for (int64_t j = 0; j < 2 * s->keys[0]; j++) allowed[j] = j >= s->keys[0]; /* row 0 of the first head sees nothing, row 1 all */
    attn_tensor *tensor;
    attn_mask *mask;
    assert_int_equal(attn_tensor_wrap(c->ctx[run], ATTN_UINT8, 4, shape, NULL, allowed, &tensor), ATTN_OK);
    assert_int_equal(attn_mask_boolean(c->ctx[run], tensor, &mask), ATTN_OK);
    attn_tensor_free(tensor);
    return mask;
}

static attn_mask *make_additive(crosscheck *c, int run, const attention_shape *s, int64_t heads)
{
    int64_t shape[4] = {1, heads, s->queries[0], s->keys[0]}, n = heads * s->queries[0] * s->keys[0];
    float *values = take(c, n * 4);
    random_state random = {98};
    for (int64_t i = 0; i < n; i++) values[i] = random_bits(&random) % 3 == 0 ? -INFINITY : (float)random_number(&random, -1, 1);
    for (int64_t i = 4; i < n; i += 5) values[i] = -1e4F; /* seen, with a weight of exactly 0 */
    for (int64_t j = 0; j < s->keys[0]; j++) values[j] = -INFINITY;
    attn_tensor *tensor;
    attn_mask *mask;
    assert_int_equal(attn_tensor_wrap(c->ctx[run], ATTN_FLOAT32, 4, shape, NULL, values, &tensor), ATTN_OK);
    assert_int_equal(attn_mask_additive(c->ctx[run], tensor, &mask), ATTN_OK);
    attn_tensor_free(tensor);
    return mask;
}

static attn_mask *make_mask(crosscheck *c, int run, const attention_shape *s)
{
    attn_context *ctx = c->ctx[run];
    attn_mask *mask = NULL, *window, *boolean;
    switch (s->mask) {
    case MASK_CAUSAL_LAST: assert_int_equal(attn_mask_causal(ctx, ATTN_ALIGN_LAST, &mask), ATTN_OK); break;
    case MASK_CAUSAL_FIRST: assert_int_equal(attn_mask_causal(ctx, ATTN_ALIGN_FIRST, &mask), ATTN_OK); break;
    case MASK_CAUSAL_POSITION: assert_int_equal(attn_mask_causal(ctx, ATTN_ALIGN_POSITION, &mask), ATTN_OK); break;
    case MASK_WINDOW: assert_int_equal(attn_mask_window(ctx, ATTN_ALIGN_LAST, 17, 3, 1, &mask), ATTN_OK); break;
    case MASK_BOOLEAN: mask = make_boolean(c, run, s, 1); break;
    case MASK_BOOLEAN_HEADS: mask = make_boolean(c, run, s, s->heads); break;
    case MASK_ADDITIVE: mask = make_additive(c, run, s, s->heads); break;
    case MASK_NUMBERS: { /* those of both masks and causal, of one, none */
        attn_mask *both, *three[4] = {NULL}, *more = make_additive(c, run, s, 1);
        assert_int_equal(attn_mask_causal(ctx, ATTN_ALIGN_LAST, &window), ATTN_OK);
        three[1] = make_additive(c, run, s, s->heads);
        assert_int_equal(attn_mask_intersection(ctx, more, three[1], &both), ATTN_OK);
        assert_int_equal(attn_mask_intersection(ctx, window, both, &three[0]), ATTN_OK);
        assert_int_equal(attn_mask_heads(ctx, s->heads, (const attn_mask *const *)three, &mask), ATTN_OK);
        attn_mask *all[] = {both, more, window, three[0], three[1]};
        for (int i = 0; i < 5; i++) attn_mask_free(all[i]);
        break;
    }
    case MASK_PER_HEAD: {
        attn_mask *three[4] = {NULL};
        assert_int_equal(attn_mask_window(ctx, ATTN_ALIGN_LAST, 5, 0, 1, &three[0]), ATTN_OK);
        assert_int_equal(attn_mask_random(ctx, ATTN_ALIGN_FIRST, 16, 1, 3, &three[1]), ATTN_OK);
        assert_int_equal(attn_mask_random(ctx, ATTN_ALIGN_FIRST, 16, 0, 3, &three[2]), ATTN_OK); /* a head that sees nothing */
        assert_int_equal(attn_mask_heads(ctx, s->heads, (const attn_mask *const *)three, &mask), ATTN_OK);
        for (int i = 0; i < 4; i++) attn_mask_free(three[i]);
        break;
    }
    case MASK_SPARSE: {
        const int64_t first[] = {0, 64, 100};
        attn_mask *far_keys;
        assert_int_equal(attn_mask_strided(ctx, ATTN_ALIGN_LAST, 9, ATTN_PART_LOCAL | ATTN_PART_SUMMARY, &window), ATTN_OK);
        assert_int_equal(attn_mask_global(ctx, ATTN_ALIGN_LAST, 3, first, &far_keys), ATTN_OK);
        assert_int_equal(attn_mask_union(ctx, window, far_keys, &mask), ATTN_OK);
        attn_mask_free(window);
        attn_mask_free(far_keys);
        break;
    }
    case MASK_UNION:
        assert_int_equal(attn_mask_window(ctx, ATTN_ALIGN_FIRST, 5, 0, 1, &window), ATTN_OK);
        boolean = make_boolean(c, run, s, 1);
        assert_int_equal(attn_mask_union(ctx, window, boolean, &mask), ATTN_OK);
        attn_mask_free(window);
        attn_mask_free(boolean);
        break;
    case MASK_DILATED: assert_int_equal(attn_mask_window(ctx, ATTN_ALIGN_LAST, 3, 0, 200, &mask), ATTN_OK); break;
    case MASK_AHEAD: assert_int_equal(attn_mask_window(ctx, ATTN_ALIGN_FIRST, 17, -1, 1, &mask), ATTN_OK); break;
    default: break;
    }
    return mask;
}

static void make_data(crosscheck *c, const attention_shape *s, attention_data *d)
{
    make_segments(s, d);
    int64_t queries = d->query_segments.rows, keys = tight(s) ? d->key_segments.rows : d->key_segments.rows + 1;
    c->gap = s->gap, c->head_gap = s->head_gap;
    d->query = input_heads(c, queries, s->heads, s->size, -1, 1);
    d->key = input_heads(c, keys, s->key_heads, s->size, -1, 1);
    d->value = input_heads(c, keys, s->key_heads, s->value_size, -1, 1);
    d->d_output = input_heads(c, queries, s->heads, s->value_size, -1, 1);
    d->output = result_heads(c, queries, s->heads, s->value_size, 0);
    d->d_query = result_heads(c, queries, s->heads, s->size, s->add);
    d->d_key = result_heads(c, keys, s->key_heads, s->size, s->add);
    d->d_value = result_heads(c, keys, s->key_heads, s->value_size, s->add);
    c->gap = c->head_gap = 0;
    d->log_sum_exp = result_rows(c, s->heads, queries, 0);
    d->entropy = result_rows(c, s->heads, queries, 0);
    for (int run = 0; run < RUNS; run++) {
        d->mask[run] = make_mask(c, run, s);
        for (int64_t r = 0; r < keys; r++) {
            if (row_is_used(d, r)) continue;
            spoil(&d->key.at[run], r, NAN);
            spoil(&d->value.at[run], r, NAN);
        }
    }
}

static attn__attention_arguments arguments_of(const attention_shape *s, attention_data *d, int run)
{
    attn__attention_arguments a = {
        .query = d->query.at[run],
        .key = d->key.at[run],
        .value = d->value.at[run],
        .output = d->output.at[run],
        .log_sum_exp = d->log_sum_exp.at[run].data,
        .entropy = d->entropy.at[run].data,
        .d_query = d->d_query.at[run],
        .d_key = d->d_key.at[run],
        .d_value = d->d_value.at[run],
        .d_output = d->d_output.at[run],
        .add_query = s->add,
        .add_key = s->add,
        .add_value = s->add,
        .query_segments = d->query_segments,
        .key_segments = d->key_segments,
        .mask = d->mask[run],
        .scale = 2 / sqrt((double)s->size),
        .soft_cap = s->soft_cap,
        .dropout = {s->rate, 8, 44, 7, {NULL, NULL}},
    };
    return a;
}

static void free_masks(attention_data *d)
{
    for (int run = 0; run < RUNS; run++) attn_mask_free(d->mask[run]);
}
#endif
