#ifndef TESTS_KERNELS_BIAS_DATA_H
#define TESTS_KERNELS_BIAS_DATA_H
/* Position biases and the vector of additive scores for the cross-checks: numbers of one shape, for each run. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/compare.h"
#include "support/crosscheck.h"

enum { LINEAR = 1, BUCKETS = 2, KEYS = 4, VALUES = 8, PAIR = 16, ADDITIVE = 32, TURNED = 64 };

typedef struct bias_part {
    int32_t what, both_sides;
    int64_t reach, buckets, pair_segments, pair_heads; /* extents of the pair bias; 0: its own, 1: shared */
} bias_part;

/* the attention it is for: the longest query and key segments */
typedef struct bias_around {
    int64_t heads, size, value_size, pairs, queries, keys, apart; /* apart: the furthest that a query and a key stand apart */
} bias_around;

typedef struct bias_numbers {
    trio vector, d_vector, distance, d_distance, table, d_table, values, d_values, pair, d_pair;
    int64_t extent[4];
} bias_numbers;

static void make_bias(crosscheck *c, const bias_part *s, const bias_around *at, bias_numbers *d)
{
    const int64_t terms = 2 * s->reach + 1;
    d->vector = input_rows(c, at->heads, at->size, -1, 1);
    d->distance = input_rows(c, s->what & BUCKETS ? s->buckets : 1, at->heads, s->what & LINEAR ? 0.01 : -1, s->what & LINEAR ? 0.3 : 1);
    d->table = input_rows(c, terms, at->size, -1, 1);
    d->values = input_rows(c, terms, at->value_size, -1, 1);
    d->extent[0] = s->pair_segments == 0 ? at->pairs : 1;
    d->extent[1] = s->pair_heads == 0 ? at->heads : 1;
    d->extent[2] = at->queries + 1;
    d->extent[3] = at->keys + 2;
    d->pair = input_rows(c, d->extent[0] * d->extent[1] * d->extent[2], d->extent[3], -1, 1);
    d->d_vector = result_rows(c, at->heads, at->size, 1);
    d->d_distance = result_rows(c, d->distance.at[0].rows, at->heads, 1);
    d->d_table = result_rows(c, terms, at->size, 1);
    d->d_values = result_rows(c, terms, at->value_size, 1);
    d->d_pair = result_rows(c, d->pair.at[0].rows, d->extent[3], 1);
}

static attn__attention_bias bias_of(const bias_part *s, const bias_numbers *d, int run)
{
    attn__attention_bias b = {.both_sides = s->both_sides, .furthest = s->reach, .reach = s->reach};
    if (s->what & (LINEAR | BUCKETS)) {
        b.distance_kind = s->what & LINEAR ? ATTN__DISTANCE_LINEAR : ATTN__DISTANCE_BUCKETS;
        b.distance = d->distance.at[run];
        b.d_distance = d->d_distance.at[run];
    }
    if (s->what & KEYS) b.relative_keys = d->table.at[run], b.d_relative_keys = d->d_table.at[run];
    if (s->what & VALUES) b.relative_values = d->values.at[run], b.d_relative_values = d->d_values.at[run];
    if (!(s->what & PAIR)) return b;
    b.pair = d->pair.at[run];
    b.d_pair = d->d_pair.at[run];
    b.pair_stride[3] = 1;
    for (int i = 0; i < 4; i++) b.pair_extent[i] = d->extent[i];
    for (int i = 2; i >= 0; i--) b.pair_stride[i] = b.pair_stride[i + 1] * b.pair_extent[i + 1];
    if (s->what & TURNED) b.pair_stride[2] = 1, b.pair_stride[3] = b.pair_extent[2]; /* keys by queries in memory */
    return b;
}

/* terms: of a score; rows: all queries */
static void expect_bias(crosscheck *c, const bias_part *s, const bias_around *at, double terms, double rows, const bias_numbers *d)
{
    const double keys = (double)at->keys, all = terms + rows * keys * (double)at->heads;
    if (s->what & ADDITIVE) expect_close(c, "attention_bias", all, &d->d_vector);
    /* each term of a slope's gradient is a distance times numbers that cancel along a row */
    if (s->what & (LINEAR | BUCKETS)) expect_close(c, "attention_bias", s->what & LINEAR ? all * (double)at->apart : all, &d->d_distance);
    if (s->what & KEYS) expect_close(c, "attention_bias", all, &d->d_table);
    if (s->what & VALUES) expect_close(c, "attention_bias", all, &d->d_values);
    if (s->what & PAIR) expect_close(c, "attention_back", terms * (double)(at->heads * at->pairs), &d->d_pair);
}
#endif
