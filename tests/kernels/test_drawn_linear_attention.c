/* linear attention of drawn shapes and numbers: BLAS against the two references */
#include <stdio.h>
#include "linear_attention_data.h"
#include "support/drawn.h"

enum { DRAWS = 120, GOOD = 0, BAD_QUERY, BAD_KEY, BAD_VALUE, BAD_SCALE, BAD_ARRIVING, WHERE };

typedef struct drawn {
    linear_shape shape;
    int32_t wanted, bad; /* bits of the gradients; where one row is no number */
} drawn;

/* lengths around the ends of chunks (64) and blocks (512) */
static int64_t draw_length(random_state *random, int more)
{
    return more ? AMONG(random, 513, 577, 1030, 1100)
                : AMONG(random, 0, 1, 1, 2, 3, 7, 31, 63, 64, 65, 128, 130, 200, 511, 512, 513, 577, 1030);
}

static drawn draw(int64_t number)
{
    random_state random = {(uint64_t)number};
    drawn d = {.wanted = drawn_once_in(&random, 3) ? (int32_t)random_integer(&random, 1, 8) : 7};
    linear_shape *s = &d.shape;
    s->heads = AMONG(&random, 1, 2, 3, 4);
    s->key_heads = s->heads == 4 ? AMONG(&random, 1, 2, 4) : AMONG(&random, 1, s->heads);
    s->features = AMONG(&random, 1, 2, 5, 8, 16, 17, 40);
    s->value_size = AMONG(&random, 1, 3, 5, 15, 16, 24, 31);
    s->causal = (int32_t)random_integer(&random, 0, 2);
    s->scaled = (int32_t)random_integer(&random, 0, 2);
    s->stated = s->causal && drawn_once_in(&random, 4);
    s->add = drawn_once_in(&random, 2) ? (int32_t)random_integer(&random, 0, 8) : 0;
    s->gap = AMONG(&random, 0, 0, 1, 3), s->head_gap = AMONG(&random, 0, 0, 2);
    s->pairs = random_integer(&random, 1, 5);
    const int more = drawn_once_in(&random, 4); /* blocks in the first segment */
    for (int64_t i = 0; i < s->pairs; i++) {
        s->keys[i] = draw_length(&random, more && i == 0);
        s->queries[i] = s->stated || drawn_once_in(&random, 2) ? s->keys[i] : draw_length(&random, 0);
    }
    if (drawn_once_in(&random, 3)) d.bad = (int32_t)random_integer(&random, 1, WHERE);
    if (d.bad == BAD_SCALE && !s->scaled) d.bad = GOOD;
    return d;
}

static void say(const drawn *d, int64_t number)
{
    const linear_shape *s = &d->shape;
    printf("draw %d: heads %d, %d, features %d, values %d, causal %d, scaled %d, stated %d, add %d, wanted %d, bad %d, lengths",
           (int)number, (int)s->heads, (int)s->key_heads, (int)s->features, (int)s->value_size, s->causal, s->scaled, s->stated, s->add,
           d->wanted, d->bad);
    for (int64_t i = 0; i < s->pairs; i++) printf(" %d to %d", (int)s->queries[i], (int)s->keys[i]);
    printf("\n");
}

/* one row of the longest segment */
static void make_bad(const drawn *what, const linear_data *d, int run)
{
    const trio *const of[] = {NULL, &d->query, &d->key, &d->value, &d->key_scale, &d->d_output};
    if (what->bad == GOOD) return;
    const int of_keys = what->bad >= BAD_KEY && what->bad <= BAD_SCALE;
    const attn_segment *segments = of_keys ? d->keys : d->queries, *longest = &segments[0];
    for (int64_t i = 1; i < what->shape.pairs; i++)
        if (segments[i].length > longest->length) longest = &segments[i];
    const view *v = &of[what->bad]->at[run];
    if (longest->length == 0) return;
    for (int64_t h = 0; h < v->heads; h++) element_set(v, longest->start + longest->length * 3 / 5, h, v->width - 1, NAN);
}

static double longest_of(const int64_t *lengths, int64_t count)
{
    int64_t longest = 1;
    for (int64_t i = 0; i < count; i++) longest = lengths[i] > longest ? lengths[i] : longest;
    return (double)longest;
}

static void drawn_case(crosscheck *c, const void *context)
{
    const drawn *what = context;
    const linear_shape *s = &what->shape;
    linear_data d;
    make_data(c, s, &d);
    for (int run = 0; run < RUNS; run++) {
        make_bad(what, &d, run);
        attn__linear_arguments a = arguments_of(s, &d, run);
        assert_int_equal(c->table[run]->linear_attention(c->ctx[run], &a), ATTN_OK);
        if (s->stated) continue;
        if (run != RUN_FLOAT64 && !(what->wanted & 1)) a.d_query.data = NULL;
        if (run != RUN_FLOAT64 && !(what->wanted & 2)) a.d_key.data = NULL;
        if (run != RUN_FLOAT64 && !(what->wanted & 4)) a.d_value.data = NULL;
        assert_int_equal(c->table[run]->linear_attention_back(c->ctx[run], &a), ATTN_OK);
    }
    const double keys = (double)s->features + longest_of(s->keys, s->pairs),
                 queries = (double)s->features + longest_of(s->queries, s->pairs);
    expect_close(c, "linear_attention", keys, &d.output);
    expect_close(c, "linear_attention", keys, &d.normaliser);
    if (s->stated) expect_close(c, "linear_attention", keys, &d.state);
    if (s->stated) return;
    d.d_query.least = d.d_key.least = s->features < 5 ? 10 : 1,
    d.d_value.least = 1; /* of few features, as small as 0.1, terms of that size cancel */
    if (what->wanted & 1) expect_close(c, "linear_attention_back", keys, &d.d_query);
    if (what->wanted & 2) expect_close(c, "linear_attention_back", keys + queries, &d.d_key);
    if (what->wanted & 4) expect_close(c, "linear_attention_back", keys + queries, &d.d_value);
}

static void test_drawn(void **state)
{
    crosscheck c;
    (void)state;
    crosscheck_open(&c);
    for (int64_t i = drawn_first(); i < drawn_end(DRAWS); i++) {
        const drawn what = draw(i);
        say(&what, i);
        crosscheck_run(&c, drawn_case, &what, 0);
    }
    crosscheck_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_drawn)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
