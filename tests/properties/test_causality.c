/* Proposition 3.4 for every mask: what a row does not see changes no bit of it, nor of the gradients of the keys it sees. */
#include <math.h>
#include "support/property.h"
#include "tensor/mask_cases.h"

enum { SIZE = 5, MOST_ROWS = 700 };

typedef struct scene {
    attn_tensor *q, *k, *v, *dy, *y, *dq, *dk, *dv;
    attn_layout *query_layout, *key_layout;
    attn_mask *mask;
} scene;

static void run(property *p, scene *s)
{
    attn_dot_product_options o;
    OK(p->ctx, attn_dot_product_options_init(&o, sizeof o));
    s->y = property_heads(p, attn_tensor_extent(s->q, 0), HEADS, SIZE);
    property_begin(p);
    s->dq = property_watch(p, s->q);
    s->dk = property_watch(p, s->k);
    s->dv = property_watch(p, s->v);
    OK(p->ctx, attn_dot_product_attention(p->ctx, p->tape, s->q, s->k, s->v, s->query_layout, s->key_layout, s->mask, &o, s->y));
    property_backward(p, s->y, s->dy, NULL);
}

/* which keys are spoiled, which queries of a head see one, and which keys such a query sees */
typedef struct reach {
    uint8_t spoiled[MOST_ROWS], query[HEADS][MOST_ROWS], key[HEADS][MOST_ROWS], seen[HEADS][MOST_ROWS], sees[HEADS][MOST_ROWS];
} reach;

/* the definition's answer, for every pair of segments, head, query and key */
static uint8_t visible[5][HEADS][MOST_KEYS][MOST_KEYS];

static void see_all(const rule *r, const attn__segments *q, const attn__segments *k)
{
    for (int64_t s = 0; s < q->count; s++) {
        const attn__pair pair = {s, &q->at[s], &k->at[s]};
        for (int64_t h = 0; h < HEADS; h++)
            for (int64_t i = 0; i < pair.query->length; i++)
                for (int64_t j = 0; j < pair.key->length; j++) visible[s][h][i][j] = (uint8_t)sees(r, &pair, h, i, j);
    }
}

static void find_reach(const attn__segments *q, const attn__segments *k, reach *to)
{
    for (int64_t s = 0; s < q->count; s++)
        for (int64_t h = 0; h < HEADS; h++)
            for (int64_t i = 0; i < q->at[s].length; i++) {
                const int64_t row = q->at[s].start + i, first = k->at[s].start;
                const uint8_t *see = visible[s][h][i];
                for (int64_t j = 0; j < k->at[s].length; j++) {
                    to->query[h][row] |= see[j] & to->spoiled[first + j];
                    to->sees[h][row] |= see[j];
                    to->seen[h][first + j] |= see[j];
                }
                for (int64_t j = 0; to->query[h][row] && j < k->at[s].length; j++) to->key[h][first + j] |= see[j];
            }
}

/* the SIZE numbers of one row and head */
static int same_head(const attn_tensor *a, const attn_tensor *b, int64_t row, int64_t head)
{
    const size_t bytes = SIZE * (attn_tensor_dtype(a) == ATTN_FLOAT64 ? sizeof(double) : sizeof(float));
    const size_t at = (size_t)(row * HEADS + head) * bytes;
    return memcmp((const char *)attn_tensor_data_const(a) + at, (const char *)attn_tensor_data_const(b) + at, bytes) == 0;
}

static int zero_head(const attn_tensor *a, int64_t row, int64_t head)
{
    for (int64_t c = 0; c < SIZE; c++)
        if (property_get(a, row, head * SIZE + c) != 0) return 0;
    return 1;
}

static void compare(const property *p, const attn__segments *q, const attn__segments *k, const reach *found, const scene *clean,
                    const scene *spoiled)
{
    for (int64_t s = 0; s < q->count; s++)
        for (int64_t h = 0; h < HEADS; h++) {
            for (int64_t i = q->at[s].start; i < q->at[s].start + q->at[s].length; i++) {
                if (!found->sees[h][i]) HOLDS(p, zero_head(clean->y, i, h) && zero_head(clean->dq, i, h));
                if (found->query[h][i]) continue;
                HOLDS(p, same_head(clean->y, spoiled->y, i, h));
                HOLDS(p, same_head(clean->dq, spoiled->dq, i, h));
            }
            for (int64_t j = k->at[s].start; j < k->at[s].start + k->at[s].length; j++) {
                if (!found->seen[h][j]) HOLDS(p, zero_head(spoiled->dk, j, h) && zero_head(spoiled->dv, j, h));
                if (found->key[h][j]) continue;
                HOLDS(p, same_head(clean->dk, spoiled->dk, j, h));
                HOLDS(p, same_head(clean->dv, spoiled->dv, j, h));
            }
        }
}

static attn_layout *layout_of(property *p, const attn__segments *segments)
{
    attn_layout *made = NULL;
    OK(p->ctx, attn_layout_create(p->ctx, segments->count, &made));
    OK(p->ctx, attn_layout_set(p->ctx, made, segments->count, segments->at));
    return made;
}

/* NaN, infinity and large numbers into a few keys, values or both, all rows between segments among them */
static void spoil(property *p, const scene *clean, scene *to, const attn__segments *k, int way, reach *found)
{
    const double bad[] = {NAN, INFINITY, -INFINITY, 1e30};
    *to = *clean;
    to->k = property_copy(p, clean->k);
    to->v = property_copy(p, clean->v);
    memset(found, 0, sizeof *found);
    for (int64_t s = 0; s < k->count; s++)
        for (int64_t t = 0; t < 3 && k->at[s].length > 0; t++)
            if (t < 2 || way % 2 == 0) found->spoiled[k->at[s].start + random_integer(&p->random, 0, k->at[s].length)] = 1;
    for (int64_t j = 0; j < k->rows; j++)
        for (int64_t c = 0; found->spoiled[j] && c < HEADS * SIZE; c++) {
            if (way % 3 != 1) property_set(to->k, j, c, bad[way % 4]);
            if (way % 3 != 0) property_set(to->v, j, c, bad[way % 4]);
        }
}

static void one_mask(property *p, const rule *r, const pair_sizes *of, int first_way)
{
    attn_segment query[5], key[5];
    attn__segments q, k;
    scene clean = {0}, spoiled;
    static reach found;
    make_segments(of, query, key, &q, &k);
    clean.q = property_random_heads(p, q.rows, HEADS, SIZE, -1, 1);
    clean.k = property_random_heads(p, k.rows, HEADS, SIZE, -1, 1);
    clean.v = property_random_heads(p, k.rows, HEADS, SIZE, -1, 1);
    clean.dy = property_random_heads(p, q.rows, HEADS, SIZE, -1, 1);
    clean.query_layout = layout_of(p, &q);
    clean.key_layout = layout_of(p, &k);
    clean.mask = r->kind == ALL ? NULL : make_mask(p->ctx, r);
    run(p, &clean);
    see_all(r, &q, &k);
    /* ways differ in what is written and where; those of one mask and one size are a share of the twelve, those of its sizes together all */
    for (int way = first_way % 3; way < 12; way += p->ground == GROUND_BLAS ? 3 : 6) {
        const int mark = p->count;
        spoil(p, &clean, &spoiled, &k, way, &found);
        find_reach(&q, &k, &found);
        run(p, &spoiled);
        compare(p, &q, &k, &found, &clean, &spoiled);
        property_sweep(p, mark);
    }
    attn_layout_free(clean.query_layout);
    attn_layout_free(clean.key_layout);
    attn_mask_free(clean.mask);
    property_sweep(p, 0);
}

static void all_masks(property *p)
{
    for (int r = 0; r < RULES; r++)
        for (int s = 0; s < SIZES; s++) one_mask(p, &rules[r], sizes[s], r + s);
}

static void test_blocked_keys_change_no_bit(void **state)
{
    (void)state, property_run(all_masks, 1);
}

/* Whole stacks, post and pre-norm, packed sequences: rows after row i, changed or not a number, change no bit of rows up to i; the gradient
   of row i by a later row or another sequence is exactly 0. */
static void stacks(property *p)
{
    enum { ROWS = 20, WIDTH = 8 };
    const int64_t lengths[3] = {9, 0, 11};
    for (int way = 0; way < 4; way++) {
        attn_transformer_options o = model_options(2, 0);
        attn_encoder *encoder = NULL;
        attn_mask *causal = NULL;
        attn_layout *layout = property_layout(p, 3, lengths, 0);
        o.dtype = p->dtype;
        o.norm_placement = way & 1;
        o.parallel_block = way >> 1;
        OK(p->ctx, attn_encoder_create(p->ctx, &o, &encoder));
        model_scramble(attn_encoder_parameters(encoder), p->seed);
        OK(p->ctx, attn_mask_causal(p->ctx, ATTN_ALIGN_LAST, &causal));
        attn_tensor *x = property_random(p, ROWS, WIDTH, -1, 1), *y = property_rows(p, ROWS, WIDTH), *z = property_rows(p, ROWS, WIDTH);
        OK(p->ctx, attn_encoder_forward(p->ctx, encoder, NULL, x, layout, causal, y));
        for (int64_t i = 0; i < ROWS; i++) {
            const int mark = p->count;
            const int64_t end = i < 9 ? 9 : ROWS;
            attn_tensor *later = property_copy(p, x), *only = property_rows(p, ROWS, WIDTH), *out = property_rows(p, ROWS, WIDTH);
            for (int64_t r = i + 1; r < end; r++)
                for (int64_t c = 0; c < WIDTH; c++) property_set(later, r, c, i % 2 ? NAN : 100);
            OK(p->ctx, attn_encoder_forward(p->ctx, encoder, NULL, later, layout, causal, z));
            for (int64_t r = 0; r < ROWS; r++) HOLDS(p, (r > i && r < end) || property_same_row(z, r, y, r));
            for (int64_t c = 0; c < WIDTH; c++) property_set(only, i, c, 1 + (double)c);
            property_begin(p);
            attn_tensor *dx = property_watch(p, x);
            OK(p->ctx, attn_encoder_forward(p->ctx, encoder, p->tape, x, layout, causal, out));
            property_backward(p, out, only, NULL);
            for (int64_t r = 0; r < ROWS; r++) {
                double size = 0;
                for (int64_t c = 0; c < WIDTH; c++) size += fabs(property_get(dx, r, c));
                HOLDS(p, r <= i && (r < 9) == (i < 9) ? size > 0 : size == 0);
            }
            property_sweep(p, mark);
        }
        attn_mask_free(causal);
        attn_layout_free(layout);
        attn_encoder_free(encoder);
        property_sweep(p, 0);
    }
}

static void test_stacks(void **state)
{
    (void)state, property_run(stacks, 1);
}

/* Length of paths, Table 3.1: with a causal window of w keys the last of n rows hears of the first after ceil((n - 1) / (w - 1)) layers and
   not before; without a mask after one. */
static void paths(property *p)
{
    const int64_t cases[][2] = {{5, 2}, {6, 3}, {9, 4}, {12, 5}, {10, 10}, {8, 0}}; /* rows, window; 0: no mask */
    for (int s = 0; s < 6; s++)
        for (int64_t layers = 1; layers <= 5; layers++) {
            const int64_t rows = cases[s][0], window = cases[s][1], needed = window == 0 ? 1 : (rows - 2 + window - 1) / (window - 1);
            attn_transformer_options o = model_options(layers, 0);
            attn_encoder *encoder = NULL;
            attn_mask *mask = NULL;
            o.dtype = p->dtype;
            OK(p->ctx, attn_encoder_create(p->ctx, &o, &encoder));
            if (window > 0) OK(p->ctx, attn_mask_window(p->ctx, ATTN_ALIGN_LAST, window - 1, 0, 1, &mask));
            attn_tensor *x = property_random(p, rows, 8, -1, 1), *y = property_rows(p, rows, 8), *only = property_rows(p, rows, 8);
            for (int64_t c = 0; c < 8; c++) property_set(only, rows - 1, c, 1 + (double)c);
            property_begin(p);
            attn_tensor *dx = property_watch(p, x);
            OK(p->ctx, attn_encoder_forward(p->ctx, encoder, p->tape, x, NULL, mask, y));
            property_backward(p, y, only, NULL);
            double size = 0;
            for (int64_t c = 0; c < 8; c++) size += fabs(property_get(dx, 0, c));
            HOLDS(p, (size > 0) == (layers >= needed));
            attn_mask_free(mask);
            attn_encoder_free(encoder);
            property_sweep(p, 0);
        }
}

/* in a context whose allocator looks for leaks: masks die with the last that holds them */
static void test_masks_leave_nothing(void **state)
{
    fixture *f = *state;
    for (int r = 0; r < RULES; r++) attn_mask_free(rules[r].kind == ALL ? NULL : make_mask(f->ctx, &rules[r]));
}

static void test_paths(void **state)
{
    (void)state, property_run(paths, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocked_keys_change_no_bit),
        cmocka_unit_test(test_stacks),
        cmocka_unit_test(test_paths),
        FIXTURE_TEST(test_masks_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
