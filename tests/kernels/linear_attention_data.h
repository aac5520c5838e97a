#ifndef TESTS_KERNELS_LINEAR_ATTENTION_DATA_H
#define TESTS_KERNELS_LINEAR_ATTENTION_DATA_H
/* Linear attention's arguments for the cross-checks: segments, states and numbers of one shape, for each run. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/compare.h"
#include "support/crosscheck.h"

typedef struct linear_shape {
    int64_t heads, key_heads, features, value_size;
    int32_t causal, scaled, stated, add; /* add: bits of the gradients that are added to: query 1, key 2, value 4 */
    int64_t gap, head_gap, pairs;
    int64_t queries[4], keys[4];
} linear_shape;

typedef struct linear_data {
    attn__segments query_segments, key_segments;
    attn_segment queries[4], keys[4];
    trio query, key, value, output, normaliser, key_scale, state, d_output, d_query, d_key, d_value;
} linear_data;

/* key segments stand in reverse order, several with a row between them that belongs to no one and holds NaN */
static int64_t make_segments(const linear_shape *s, linear_data *d)
{
    int64_t query_row = 0, gap = s->pairs > 1, key_row = gap;
    for (int64_t i = 0; i < s->pairs; i++) {
        d->queries[i] = (attn_segment){query_row, s->queries[i], 0, i};
        query_row += s->queries[i];
    }
    for (int64_t i = s->pairs - 1; i >= 0; i--) {
        d->keys[i] = (attn_segment){key_row, s->keys[i], 0, i};
        key_row += s->keys[i] + gap;
    }
    d->query_segments = (attn__segments){s->pairs, query_row, d->queries};
    d->key_segments = (attn__segments){s->pairs, s->pairs > 0 ? key_row - gap : 0, d->keys};
    return key_row;
}

static void spoil_unused(const linear_data *d, const view *v)
{
    for (int64_t r = 0; r < v->rows; r++) {
        int used = 0;
        for (int64_t i = 0; i < d->key_segments.count; i++) used |= r >= d->keys[i].start && r < d->keys[i].start + d->keys[i].length;
        for (int64_t h = 0; h < v->heads && !used; h++)
            for (int64_t k = 0; k < v->width; k++) element_set(v, r, h, k, NAN);
    }
}

/* a state of earlier rows for all but the last pair: positive sums, their scale and their count */
static void make_state(crosscheck *c, const linear_shape *s, linear_data *d)
{
    int64_t lines = s->features + 1, wide = s->value_size + 1;
    d->state = input_rows(c, s->pairs * s->key_heads * lines, wide, 0.1, 1);
    for (int run = 0; run < RUNS; run++) {
        for (int64_t p = 0; p < s->pairs * s->key_heads; p++) {
            int empty = p / s->key_heads == s->pairs - 1;
            for (int64_t l = 0; l < lines; l++) {
                for (int64_t k = 0; k < wide; k++) {
                    if (empty || l == lines - 1) element_set(&d->state.at[run], p * lines + l, 0, k, 0);
                }
            }
            element_set(&d->state.at[run], p * lines + lines - 1, 0, 0, empty || !s->scaled ? 0 : 1.25);
            element_set(&d->state.at[run], p * lines + lines - 1, 0, wide - 1, empty ? 0 : 7);
        }
    }
}

static void make_data(crosscheck *c, const linear_shape *s, linear_data *d)
{
    int64_t keys = make_segments(s, d), queries = d->query_segments.rows;
    c->gap = s->gap, c->head_gap = s->head_gap;
    d->query = input_heads(c, queries, s->heads, s->features, 0.1, 1);
    d->key = input_heads(c, keys, s->key_heads, s->features, 0.1, 1);
    d->value = input_heads(c, keys, s->key_heads, s->value_size, -1, 1);
    d->d_output = input_heads(c, queries, s->heads, s->value_size, -1, 1);
    d->output = result_heads(c, queries, s->heads, s->value_size, 0);
    d->d_query = result_heads(c, queries, s->heads, s->features, s->add & 1);
    d->d_key = result_heads(c, keys, s->key_heads, s->features, s->add >> 1 & 1);
    d->d_value = result_heads(c, keys, s->key_heads, s->value_size, s->add >> 2 & 1);
    c->gap = c->head_gap = 0;
    d->normaliser = result_rows(c, s->heads, queries, 0);
    d->key_scale = input_rows(c, keys, s->key_heads, -6, 6);
    if (s->stated) make_state(c, s, d);
    for (int run = 0; run < RUNS; run++) {
        spoil_unused(d, &d->key.at[run]);
        spoil_unused(d, &d->value.at[run]);
        spoil_unused(d, &d->key_scale.at[run]);
    }
}

static attn__linear_arguments arguments_of(const linear_shape *s, linear_data *d, int run)
{
    return (attn__linear_arguments){
        .query = d->query.at[run],
        .key = d->key.at[run],
        .value = d->value.at[run],
        .output = d->output.at[run],
        .key_scale = s->scaled ? d->key_scale.at[run].data : NULL,
        .normaliser = d->normaliser.at[run].data,
        .state = s->stated ? d->state.at[run].data : NULL,
        .d_query = d->d_query.at[run],
        .d_key = d->d_key.at[run],
        .d_value = d->d_value.at[run],
        .d_output = d->d_output.at[run],
        .add_query = s->add & 1,
        .add_key = s->add >> 1 & 1,
        .add_value = s->add >> 2 & 1,
        .causal = s->causal,
        .query_segments = d->query_segments,
        .key_segments = d->key_segments,
    };
}
#endif
