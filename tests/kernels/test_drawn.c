/* attention of drawn shapes, masks, biases and numbers: BLAS against the two references */
#include <stdio.h>
#include "attention_data.h"
#include "bias_data.h"
#include "support/drawn.h"

enum { DRAWS = 120, WHERE = 5 };

typedef struct drawn {
    attention_shape shape;
    bias_part bias;
    int32_t unwanted, bad; /* bits of tables without a gradient; 1 to 4: a key, value, query or gradient is no number */
    int64_t row, head;     /* where the weights that are looked at begin */
} drawn;

/* lengths around the ends of tiles and blocks, most of them small */
static int64_t draw_length(random_state *random)
{
    return AMONG(random, 0, 1, 1, 2, 3, 5, 9, 17, 63, 64, 65, 70, 129, 131, 200, 257);
}

static int one_segment(int32_t mask)
{
    return mask == MASK_BOOLEAN || mask == MASK_BOOLEAN_HEADS || mask == MASK_UNION || mask == MASK_ADDITIVE || mask == MASK_NUMBERS;
}

static attention_shape draw_shape(random_state *random)
{
    attention_shape s = {.heads = AMONG(random, 1, 2, 3, 4, 4)};
    s.key_heads = s.heads == 4 ? AMONG(random, 1, 2, 4) : AMONG(random, 1, s.heads);
    s.size = AMONG(random, 1, 2, 3, 8, 16, 17, 33);
    s.value_size = AMONG(random, 1, 3, 5, 8, 16, 24, s.size);
    s.mask = (int32_t)random_integer(random, 0, MASK_SPARSE + 1);
    s.add = (int32_t)random_integer(random, 0, 2);
    if (drawn_once_in(random, 4)) s.soft_cap = 1.5;
    if (drawn_once_in(random, 4)) s.rate = 0.3;
    s.gap = AMONG(random, 0, 0, 1, 3), s.head_gap = AMONG(random, 0, 0, 2);
    s.pairs = one_segment(s.mask) ? 1 : random_integer(random, 1, 5);
    for (int64_t i = 0; i < s.pairs; i++) {
        s.queries[i] = draw_length(random);
        s.keys[i] = i > 0 && drawn_once_in(random, 5) ? -1 : drawn_once_in(random, 2) ? s.queries[i] : draw_length(random);
    }
    /* their tables have a row that sees nothing and one that sees all */
    if (one_segment(s.mask) && s.queries[0] < 2) s.queries[0] = 2;
    if (one_segment(s.mask) && s.keys[0] < 1) s.keys[0] = 1;
    if (drawn_once_in(random, 10)) s.queries[0] = s.keys[0] = 780; /* tiles of the long kind */
    return s;
}

static bias_part draw_bias(random_state *random)
{
    bias_part b = {.both_sides = (int32_t)random_integer(random, 0, 2), .reach = AMONG(random, 0, 1, 5, 16, 300)};
    b.pair_segments = random_integer(random, 0, 2), b.pair_heads = random_integer(random, 0, 2);
    b.buckets = AMONG(random, 4, 6, 8, 32);
    if (drawn_once_in(random, 2)) return b;
    b.what = (int32_t)AMONG(random, 0, 0, LINEAR, BUCKETS) | (int32_t)AMONG(random, 0, 0, PAIR, PAIR | TURNED);
    if (drawn_once_in(random, 3))
        b.what |= ADDITIVE;
    else
        b.what |= (int32_t)AMONG(random, 0, KEYS, VALUES, KEYS | VALUES);
    if (b.what & BUCKETS && b.reach < b.buckets) b.reach = b.buckets + 1;
    return b;
}

static drawn draw(int64_t number)
{
    random_state random = {(uint64_t)number};
    drawn d = {.shape = draw_shape(&random)};
    d.bias = draw_bias(&random);
    d.unwanted = drawn_once_in(&random, 3) ? (int32_t)random_integer(&random, 0, 64) : 0;
    d.bad = drawn_once_in(&random, 3) && d.shape.rate == 0 ? (int32_t)random_integer(&random, 1, WHERE) : 0;
    /* a key that is seen with a weight of exactly 0 may or may not give its value and its gradient: 0 times what is no number */
    if (d.bad % 2 == 0 && (d.shape.mask == MASK_ADDITIVE || d.shape.mask == MASK_NUMBERS)) d.bad = 0;
    d.row = drawn_once_in(&random, 2) ? random_integer(&random, 0, d.shape.queries[0] + 1) : 0;
    d.head = drawn_once_in(&random, 2) ? random_integer(&random, 0, d.shape.heads) : 0;
    return d;
}

static void say(const drawn *d, int64_t number)
{
    const attention_shape *s = &d->shape;
    printf("draw %d: heads %d, %d, sizes %d, %d, mask %d, add %d, cap %g, rate %g, bias %d (reach %d), unwanted %d, bad %d, lengths",
           (int)number, (int)s->heads, (int)s->key_heads, (int)s->size, (int)s->value_size, (int)s->mask, (int)s->add, s->soft_cap, s->rate,
           (int)d->bias.what, (int)d->bias.reach, (int)d->unwanted, (int)d->bad);
    for (int64_t i = 0; i < s->pairs; i++) printf(" %d to %d", (int)s->queries[i], (int)s->keys[i]);
    printf("\n");
}

static void take_gradients_away(int32_t unwanted, attn__attention_arguments *a, attn__attention_bias *b)
{
    view *const of[] = {&b->d_distance, &b->d_relative_keys, &b->d_relative_values, &b->d_pair, &a->d_score_vector};
    for (int i = 0; i < 5; i++)
        if (unwanted >> i & 1) of[i]->data = NULL;
}

static int64_t longest_of(const int64_t *lengths, int64_t count)
{
    int64_t longest = 0;
    for (int64_t i = 0; i < count; i++) longest = lengths[i] > longest ? lengths[i] : longest;
    return longest;
}

static void make_bad(const drawn *what, const attention_data *d, int run)
{
    const trio *const of[] = {&d->key, &d->value, &d->query, &d->d_output};
    if (what->bad == 0) return;
    const view *v = &of[what->bad - 1]->at[run];
    if (v->rows > 1) spoil(v, what->bad <= 2 ? d->keys[0].start + what->shape.keys[0] * 2 / 3 : v->rows / 3, NAN);
}

static void drawn_case(crosscheck *c, const void *context)
{
    const drawn *what = context;
    const attention_shape *s = &what->shape;
    attention_data d;
    bias_numbers numbers;
    bias_around around = {.heads = s->heads, .size = s->size, .value_size = s->value_size, .pairs = s->pairs};
    around.queries = longest_of(s->queries, s->pairs), around.keys = longest_of(s->keys, s->pairs);
    around.apart = around.queries + around.keys + 100 * s->pairs; /* where the segments of make_segments begin */
    make_data(c, s, &d);
    make_bias(c, &what->bias, &around, &numbers);
    trio weights = result_heads(c, s->queries[0] - what->row, s->heads - what->head, s->keys[0], 0);
    for (int run = 0; run < RUNS; run++) {
        make_bad(what, &d, run);
        attn__attention_arguments a = arguments_of(s, &d, run);
        attn__attention_bias bias = bias_of(&what->bias, &numbers, run);
        if (what->bias.what & ~ADDITIVE) a.bias = &bias;
        if (what->bias.what & ADDITIVE) a.score_vector = numbers.vector.at[run], a.d_score_vector = numbers.d_vector.at[run];
        take_gradients_away(what->unwanted, &a, &bias);
        assert_int_equal(c->table[run]->attention(c->ctx[run], &a), ATTN_OK);
        assert_int_equal(c->table[run]->attention_back(c->ctx[run], &a), ATTN_OK);
        assert_int_equal(
            c->table[run]->attention_weights(c->ctx[run], &a, &(attn__weights_part){0, what->row, what->head}, &weights.at[run]), ATTN_OK);
    }
    free_masks(&d);
    const double terms = 16 + 2 * (double)s->size + (double)d.key_segments.rows, rows = (double)d.query_segments.rows;
    d.entropy.least = d.log_sum_exp.least = 1;
    d.d_query.least = d.d_key.least = d.d_value.least = 1;
    expect_close(c, "attention", terms, &d.output);
    expect_close(c, "log_sum_exp", terms, &d.log_sum_exp);
    expect_close(c, "entropy", terms, &d.entropy);
    expect_close(c, "attention_weights", terms, &weights);
    expect_close(c, "attention_back", terms, &d.d_query);
    expect_close(c, "attention_back", rows + terms, &d.d_key);
    expect_close(c, "attention_back", rows + terms, &d.d_value);
    bias_part compared = what->bias;
    if (what->bad) compared.what &= ~(KEYS | VALUES); /* what is no number may reach distances that its row does not have */
    if (compared.what & LINEAR) numbers.d_distance.least = 0.1 * (double)around.apart;
    expect_bias(c, &compared, &around, terms, rows, &numbers);
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
