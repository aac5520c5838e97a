#include <attn/attention.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include "autograd/operations.h"
#include "support/random.h"

/* What a tape keeps from one call to the next: the seed and step of dropout, masks, room for values; which memory it guards; and values
   that are read in parts and as a whole. */
#define OK(call) assert_int_equal(call, ATTN_OK)
#define SHAPE(...) \
    (int64_t[]) \
    { \
        __VA_ARGS__ \
    }
enum { ROWS = 6, WIDTH = 8, MADE = 64 };

static attn_context *ctx;
static attn_tape *tape;
static random_state numbers;
static attn_tensor *made[MADE];
static int count;

static int open_all(void **state)
{
    (void)state;
    numbers.at = 12;
    count = 0;
    return attn_context_create(NULL, &ctx) != ATTN_OK || attn_tape_create(ctx, &tape) != ATTN_OK;
}

static int close_all(void **state)
{
    (void)state;
    while (count > 0) attn_tensor_free(made[--count]);
    attn_tape_free(tape);
    attn_context_free(ctx);
    return 0;
}

static attn_tensor *make(int64_t rows, int64_t width)
{
    attn_tensor *t = NULL;
    OK(attn_tensor_create(ctx, ATTN_FLOAT32, 2, SHAPE(rows, width), &t));
    random_floats(&numbers, attn_tensor_data(t), rows * width, -1, 1);
    return made[count++] = t;
}

/* `width` columns from `first` on of rows that lie `stride` apart */
static attn_tensor *columns(float *data, int64_t rows, int64_t width, int64_t stride)
{
    attn_tensor *t = NULL;
    OK(attn_tensor_wrap(ctx, ATTN_FLOAT32, 2, SHAPE(rows, width), SHAPE(stride, 1), data, &t));
    return made[count++] = t;
}

static void begin(uint64_t seed, int64_t step)
{
    attn_tape_options o;
    OK(attn_tape_options_init(&o, sizeof o));
    o.training = 1;
    o.seed = seed;
    o.step = step;
    OK(attn_tape_begin(ctx, tape, &o));
}

static void dropped(uint64_t seed, int64_t step, uint64_t site, const attn_tensor *x, attn_tensor *y)
{
    begin(seed, step);
    OK(attn_dropout(ctx, tape, x, NULL, 0.5, site, y));
}

static int same(const attn_tensor *a, const attn_tensor *b)
{
    return memcmp(attn_tensor_data_const(a), attn_tensor_data_const(b), ROWS * WIDTH * sizeof(float)) == 0;
}

static void test_dropout_is_of_seed_step_and_site(void **state)
{
    (void)state;
    attn_tensor *x = make(ROWS, WIDTH), *first = make(ROWS, WIDTH), *other = make(ROWS, WIDTH);
    dropped(1, 5, 2, x, first);
    dropped(1, 5, 2, x, other);
    assert_true(same(first, other));
    dropped(2, 5, 2, x, other);
    assert_false(same(first, other));
    dropped(1, 6, 2, x, other);
    assert_false(same(first, other));
    dropped(1, 5, 3, x, other);
    assert_false(same(first, other));
}

static attn_tensor *with_heads(void)
{
    attn_tensor *t = NULL;
    OK(attn_tensor_create(ctx, ATTN_FLOAT32, 3, SHAPE(ROWS, 2, WIDTH / 2), &t));
    random_floats(&numbers, attn_tensor_data(t), ROWS * WIDTH, -1, 1);
    return made[count++] = t;
}

static int64_t live(void)
{
    attn_memory_report report = {.struct_size = sizeof report};
    OK(attn_context_memory(ctx, &report));
    return report.live;
}

/* freed by the caller, a mask lives on as long as a record needs it */
static void test_mask_is_held(void **state)
{
    (void)state;
    attn_mask *mask = NULL;
    attn_tensor *x = with_heads(), *g = with_heads(), *y = with_heads();
    OK(attn_tape_begin(ctx, tape, NULL)); /* room for the lists is taken */
    OK(attn_tape_watch(ctx, tape, x, g));
    OK(attn_dot_product_attention(ctx, tape, x, x, x, NULL, NULL, NULL, NULL, y));
    OK(attn_tape_begin(ctx, tape, NULL));
    int64_t before = live();
    OK(attn_mask_causal(ctx, ATTN_ALIGN_LAST, &mask));
    int64_t with = live();
    OK(attn_tape_watch(ctx, tape, x, g));
    OK(attn_dot_product_attention(ctx, tape, x, x, x, NULL, NULL, mask, NULL, y));
    attn_mask_free(mask);
    int64_t held = live();
    assert_true(with > before && held >= with);
    OK(attn_tape_begin(ctx, tape, NULL));
    assert_true(live() == held - (with - before)); /* the mask and nothing else */
}

/* freed by the caller, a watched input and its gradient live on until the tape has written there, and no longer */
static void test_watched_memory_is_held(void **state)
{
    (void)state;
    OK(attn_tape_begin(ctx, tape, NULL));
    OK(attn_tape_watch(ctx, tape, make(ROWS, WIDTH), make(ROWS, WIDTH))); /* room for the lists is taken */
    for (int freed = 0; freed < 2; freed++) {                             /* the input, then the gradient */
        attn_tensor *pair[2] = {NULL, NULL};
        OK(attn_tape_begin(ctx, tape, NULL));
        int64_t before = live();
        for (int i = 0; i < 2; i++) OK(attn_tensor_create(ctx, ATTN_FLOAT32, 2, SHAPE(ROWS, WIDTH), &pair[i]));
        OK(attn_tape_watch(ctx, tape, pair[0], pair[1]));
        int64_t all = live(), memory = ROWS * WIDTH * (int64_t)sizeof(float);
        attn_tensor_free(pair[freed]);
        int64_t handle = all - live(); /* what went: not the elements */
        OK(attn_tape_begin(ctx, tape, NULL));
        assert_true(all - handle - live() >= memory);
        attn_tensor_free(pair[1 - freed]);
        assert_true(live() == before);
    }
}

/* freed by the caller, the memory of an output that no later operation reads stays the tape's: another tensor at its address would be taken
   for the value, or refused as an output */
static void test_memory_of_outputs_is_held(void **state)
{
    (void)state;
    attn_tensor *x = make(ROWS, WIDTH), *g = make(ROWS, WIDTH), *y = NULL;
    const int64_t memory = ROWS * WIDTH * (int64_t)sizeof(float);
    for (int round = 0; round < 2; round++) { /* in the first the lists take their room */
        OK(attn_tape_begin(ctx, tape, NULL));
        const int64_t before = live();
        OK(attn_tensor_create(ctx, ATTN_FLOAT32, 2, SHAPE(ROWS, WIDTH), &y));
        OK(attn_tape_watch(ctx, tape, x, g));
        OK(attn_softmax(ctx, tape, x, y));
        attn_tensor_free(y);
        const int64_t held = live();
        OK(attn_tape_begin(ctx, tape, NULL));
        assert_true(round == 0 || (held - live() >= memory && live() == before));
    }
}

/* statistics of a norm lie on the tape: the same room in every round */
static void test_rounds_take_the_same_room(void **state)
{
    (void)state;
    attn_tensor *x = make(ROWS, WIDTH), *g = make(ROWS, WIDTH), *y = make(ROWS, WIDTH);
    int64_t first = 0, values, records, gradients;
    for (int round = 0; round < 5; round++) {
        begin(1, round);
        OK(attn_tape_watch(ctx, tape, x, g));
        OK(attn_layer_norm(ctx, tape, x, NULL, NULL, 1e-5, y));
        attn__tape_used(tape, &values, &records, &gradients);
        if (round == 0) first = values;
        assert_true(values == first && first > 0);
        OK(attn_tape_backward(ctx, tape, 1, (const attn_tensor *const *)&y, NULL, 0, NULL));
    }
}

/* one output asked for twice, and an output on the way to another */
static void test_seeds_add_up(void **state)
{
    (void)state;
    attn_tensor *x = make(ROWS, WIDTH), *g = make(ROWS, WIDTH), *y = make(ROWS, WIDTH);
    const attn_tensor *twice[2] = {y, y};
    OK(attn_tape_begin(ctx, tape, NULL));
    OK(attn_tape_watch(ctx, tape, x, g));
    OK(attn_add(ctx, tape, x, x, y));
    OK(attn_tape_backward(ctx, tape, 2, twice, NULL, 0, NULL));
    for (int i = 0; i < ROWS * WIDTH; i++) assert_true(((float *)attn_tensor_data(g))[i] == 4);
}

/* columns of one buffer beside each other may be values and outputs of one call; where they share a column they may not */
static void test_columns_beside_each_other(void **state)
{
    (void)state;
    static float data[(ROWS + 1) * WIDTH];
    static const struct {
        int first, width, fits;
    } outputs[] = {{3, 3, 1}, {2, 3, 0}, {5, 3, 1}, {6, 3, 0}, {5, 4, 0}, {0, 3, 0}, {3, 5, 1}};
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++) {
        attn_tensor *x = columns(data, ROWS, 3, WIDTH), *g = make(ROWS, 3), *y = make(ROWS, 3);
        attn_tensor *a = make(ROWS, outputs[i].width), *out = columns(data + outputs[i].first, ROWS, outputs[i].width, WIDTH);
        OK(attn_tape_begin(ctx, tape, NULL));
        OK(attn_tape_watch(ctx, tape, x, g));
        OK(attn_softmax(ctx, tape, x, y));
        attn_status status = attn_softmax(ctx, tape, a, out);
        if (status != (outputs[i].fits ? ATTN_OK : ATTN_ERROR_BAD_STATE))
            fail_msg("columns %d to %d: %s", outputs[i].first, outputs[i].first + outputs[i].width, attn_status_name(status));
    }
}

/* a value can be watched whole before it is used; a piece of one that is there already cannot */
static void test_pieces_are_not_watched(void **state)
{
    (void)state;
    attn_tensor *x = make(ROWS, WIDTH), *g = make(ROWS, WIDTH), *y = make(ROWS, WIDTH), *g_piece = make(2, WIDTH);
    attn_tensor *piece = columns((float *)attn_tensor_data(x) + WIDTH, 2, WIDTH, WIDTH);
    OK(attn_tape_begin(ctx, tape, NULL));
    OK(attn_tape_watch(ctx, tape, x, g));
    assert_int_equal(attn_tape_watch(ctx, tape, piece, g_piece), ATTN_ERROR_BAD_STATE);
    assert_int_equal(attn_tape_watch(ctx, tape, x, y), ATTN_ERROR_BAD_STATE);
    OK(attn_softmax(ctx, tape, x, y));
    assert_int_equal(attn_tape_watch(ctx, tape, piece, g_piece), ATTN_ERROR_BAD_STATE);
}

/* parameters on the tape are not written over, through whatever tensor */
static void test_parameters_are_guarded(void **state)
{
    (void)state;
    attn_parameters *set = NULL;
    OK(attn__parameters_create(ctx, ATTN_FLOAT32, &set));
    OK(attn__parameters_add(ctx, set, "a", 1, 2, SHAPE(WIDTH, WIDTH), ATTN__KIND_WEIGHT, ATTN__START_CONSTANT, 0, NULL));
    OK(attn__parameters_add(ctx, set, "b", 1, 2, SHAPE(WIDTH, WIDTH), ATTN__KIND_WEIGHT, ATTN__START_CONSTANT, 0, NULL));
    OK(attn__parameters_finish(ctx, set));
    attn_tensor *x = make(ROWS, WIDTH), *y = make(ROWS, WIDTH), *a = attn_parameters_tensor(set, 0);
    attn_tensor *inside = columns((float *)attn_tensor_data(attn_parameters_tensor(set, 1)), ROWS, WIDTH, WIDTH);
    OK(attn_tape_begin(ctx, tape, NULL));
    OK(attn_softmax(ctx, tape, x, inside)); /* not on the tape yet */
    OK(attn_tape_begin(ctx, tape, NULL));
    OK(attn_linear(ctx, tape, x, a, NULL, y));
    assert_int_equal(attn_softmax(ctx, tape, x, inside), ATTN_ERROR_BAD_STATE);
    OK(attn_tape_begin(ctx, tape, NULL));
    attn__parameters_release(set);
}

/* nor are gradients of parameters, the first's or a later one's, by what a watched input gets: its set may come onto the tape after the
   watch */
static void test_gradients_are_guarded(void **state)
{
    (void)state;
    attn_parameters *set = NULL;
    attn_gradients *gradients = NULL;
    OK(attn__parameters_create(ctx, ATTN_FLOAT32, &set));
    OK(attn__parameters_add(ctx, set, "a", 1, 2, SHAPE(WIDTH, WIDTH), ATTN__KIND_WEIGHT, ATTN__START_CONSTANT, 0, NULL));
    OK(attn__parameters_add(ctx, set, "b", 1, 2, SHAPE(WIDTH, WIDTH), ATTN__KIND_WEIGHT, ATTN__START_CONSTANT, 0, NULL));
    OK(attn__parameters_finish(ctx, set));
    OK(attn_gradients_create(ctx, set, &gradients));
    attn_tensor *x = make(ROWS, WIDTH), *y = make(ROWS, WIDTH), *a = attn_parameters_tensor(set, 0);
    float *const places[] = {attn_tensor_data(attn_gradients_flat(gradients)),
                             (float *)attn_tensor_data(attn_gradients_tensor(gradients, 0)) + WIDTH,
                             attn_tensor_data(attn_gradients_tensor(gradients, 1))};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        attn_tensor *inside = columns(places[i], ROWS, WIDTH, WIDTH);
        OK(attn_tape_begin(ctx, tape, NULL));
        OK(attn_tape_watch(ctx, tape, x, inside));
        OK(attn_linear(ctx, tape, x, a, NULL, y));
        assert_int_equal(attn_tape_backward(ctx, tape, 1, (const attn_tensor *const *)&y, NULL, 1, &gradients),
                         ATTN_ERROR_INVALID_ARGUMENT);
        OK(attn_tape_backward(ctx, tape, 1, (const attn_tensor *const *)&y, NULL, 0, NULL)); /* not asked for: nothing is shared */
    }
    attn_gradients_free(gradients);
    attn__parameters_release(set);
}

/* nor may an output's gradient lie over them: it is read while they are added to */
static void test_gradients_are_no_seeds(void **state)
{
    (void)state;
    attn_parameters *set = NULL;
    attn_gradients *gradients = NULL;
    OK(attn__parameters_create(ctx, ATTN_FLOAT32, &set));
    for (int i = 0; i < 2; i++)
        OK(attn__parameters_add(ctx, set, i ? "b" : "a", 1, 2, SHAPE(WIDTH, WIDTH), ATTN__KIND_WEIGHT, ATTN__START_CONSTANT, 1, NULL));
    OK(attn__parameters_finish(ctx, set));
    OK(attn_gradients_create(ctx, set, &gradients));
    attn_tensor *x = make(WIDTH, WIDTH), *y = make(WIDTH, WIDTH), *z = make(WIDTH, WIDTH), *seed = make(WIDTH, WIDTH);
    const attn_tensor *outputs[] = {z, y};
    for (int64_t i = 0; i < 2; i++) {
        const attn_tensor *seeds[] = {seed, attn_gradients_tensor(gradients, i)};
        OK(attn_tape_begin(ctx, tape, NULL));
        OK(attn_linear(ctx, tape, x, attn_parameters_tensor(set, 0), NULL, y));
        OK(attn_linear(ctx, tape, y, attn_parameters_tensor(set, 1), NULL, z));
        assert_int_equal(attn_tape_backward(ctx, tape, 2, outputs, seeds, 1, &gradients), ATTN_ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(attn_context_last_error(ctx), "output_gradients[1]"));
        OK(attn_tape_backward(ctx, tape, 2, outputs, seeds, 0, NULL)); /* not added to: may be read */
    }
    attn_gradients_free(gradients);
    attn__parameters_release(set);
}

/* the end of a long value is guarded too, when shorter ones came before it or come after it */
static void test_long_beside_short(void **state)
{
    (void)state;
    attn_tensor *x = make(1, WIDTH), *g = make(1, WIDTH), *y = make(20 * ROWS, WIDTH), *gy = make(20 * ROWS, WIDTH), *z = make(1, WIDTH);
    attn_tensor *end = columns((float *)attn_tensor_data(y) + (20 * ROWS - 1) * WIDTH, 1, WIDTH, WIDTH);
    for (int after = 0; after < 2; after++) {
        OK(attn_tape_begin(ctx, tape, NULL));
        OK(attn_tape_watch(ctx, tape, after ? y : x, after ? gy : g));
        OK(attn_tape_watch(ctx, tape, after ? x : y, after ? g : gy));
        assert_int_equal(attn_softmax(ctx, tape, x, end), ATTN_ERROR_BAD_STATE);
        OK(attn_softmax(ctx, tape, x, z));
    }
}

/* Rows of keys in no segment have a gradient of zero, also when the segments that repeat others make up their number. What the gradients of
   the round before left in memory does not show. */
static void test_rows_in_no_segment(void **state)
{
    (void)state;
    const attn_segment halves[2] = {{0, ROWS / 2, 0, 0}, {ROWS / 2, ROWS / 2, 0, 1}}, again[2] = {{0, ROWS / 2, 0, 0}, {0, ROWS / 2, 0, 0}};
    attn_tensor *query = with_heads(), *key = with_heads(), *value = with_heads(), *dk = with_heads(), *dv = with_heads(),
                *y = with_heads();
    attn_tensor *seed = with_heads();
    attn_layout *queries = NULL, *keys = NULL;
    OK(attn_layout_create(ctx, 2, &queries));
    OK(attn_layout_create(ctx, 2, &keys));
    OK(attn_layout_set(ctx, queries, 2, halves));
    for (int round = 0; round < 2; round++) {
        OK(attn_layout_set(ctx, keys, 2, round == 0 ? halves : again));
        OK(attn_tape_begin(ctx, tape, NULL));
        OK(attn_tape_watch(ctx, tape, key, dk));
        OK(attn_tape_watch(ctx, tape, value, dv));
        OK(attn_dot_product_attention(ctx, tape, query, key, value, queries, keys, NULL, NULL, y));
        OK(attn_tape_backward(ctx, tape, 1, (const attn_tensor *const *)&y, (const attn_tensor *const *)&seed, 0, NULL));
        for (int i = 0; i < ROWS * WIDTH; i++) {
            int used = round == 0 || i < ROWS / 2 * WIDTH;
            assert_true((((float *)attn_tensor_data(dk))[i] != 0) == used && (((float *)attn_tensor_data(dv))[i] != 0) == used);
        }
    }
    attn_layout_free(queries);
    attn_layout_free(keys);
}

/* tensors without rows have an address too */
static void test_empty(void **state)
{
    (void)state;
    attn_tensor *x = make(0, WIDTH), *g = make(0, WIDTH), *y = make(0, WIDTH);
    OK(attn_tape_begin(ctx, tape, NULL));
    OK(attn_tape_watch(ctx, tape, x, g));
    OK(attn_softmax(ctx, tape, x, y));
    OK(attn_tape_backward(ctx, tape, 1, (const attn_tensor *const *)&y, NULL, 0, NULL));
}

/* dx of f(joined) + h(part of joined), with joined = x W^T; which: 1 the whole, 2 the part, 3 both */
static void part_and_whole(int which, const attn_tensor *x, attn_tensor *g, const attn_tensor *w, float *out)
{
    attn__value vx, vw, joined, part, whole, some;
    view at;
    attn__value asked[2];
    int64_t n = 0;
    OK(attn_tape_begin(ctx, tape, NULL));
    OK(attn_tape_watch(ctx, tape, x, g));
    OK(attn__enter(ctx));
    OK(attn__rows(ctx, "x", x, 0, &at));
    OK(attn__tape_input(ctx, tape, "x", x, &at, &vx));
    OK(attn__rows(ctx, "w", w, 0, &at));
    OK(attn__tape_input(ctx, tape, "w", w, &at, &vw));
    OK(attn__tape_temporary(ctx, tape, ROWS, WIDTH, ATTN_FLOAT32, &joined));
    OK(attn__linear(ctx, tape, &vx, &vw, NULL, NULL, NULL, NULL, &joined));
    OK(attn__tape_temporary(ctx, tape, ROWS, WIDTH, ATTN_FLOAT32, &whole));
    OK(attn__tape_temporary(ctx, tape, ROWS, 3, ATTN_FLOAT32, &some));
    OK(attn__softmax(ctx, tape, 1, &joined, &whole)); /* before the part: its backward comes after */
    OK(attn__tape_part(ctx, tape, &joined, 2, 3, &part));
    OK(attn__softmax(ctx, tape, 1, &part, &some));
    if (which & 1) asked[n++] = whole;
    if (which & 2) asked[n++] = some;
    view seeds[2];
    for (int64_t i = 0; i < n; i++) { /* of one row: a log-softmax has no gradient along ones */
        OK(attn__tape_temporary(ctx, tape, ROWS, asked[i].at.width, ATTN_FLOAT32, &vw));
        seeds[i] = vw.at;
        for (int64_t e = 0; e < ROWS * asked[i].at.width; e++) ((float *)seeds[i].data)[e] = (float)(e % 5) - 1;
    }
    /* what is taken next held other numbers before */
    OK(attn__tape_run(ctx, tape, n, asked, seeds, 0, NULL));
    OK(attn__leave(ctx, ATTN_OK));
    memcpy(out, attn_tensor_data(g), ROWS * WIDTH * sizeof *out);
}

static void test_part_and_whole(void **state)
{
    (void)state;
    static float one[ROWS * WIDTH], other[ROWS * WIDTH], both[ROWS * WIDTH];
    attn_tensor *x = make(ROWS, WIDTH), *g = make(ROWS, WIDTH), *w = make(WIDTH, WIDTH);
    part_and_whole(1, x, g, w, one);
    part_and_whole(2, x, g, w, other);
    part_and_whole(3, x, g, w, both);
    for (int i = 0; i < ROWS * WIDTH; i++) {
        assert_true(one[i] != 0 && other[i] != 0);
        assert_true(fabsf(both[i] - one[i] - other[i]) < 1e-5f);
    }
}

/* dx through parts of joined = x W^T, taken in this order; those of `used` are asked for */
enum { PARTS = 5 };
static const int64_t part_first[PARTS] = {5, 0, 2, 4, 4}, part_width[PARTS] = {3, 2, 2, 0, 1};
static void parts(int used, const attn_tensor *x, attn_tensor *g, const attn_tensor *w, float *out)
{
    attn__value vx, vw, joined, part[PARTS], asked[PARTS], seed;
    view at, seeds[PARTS];
    int64_t n = 0;
    OK(attn_tape_begin(ctx, tape, NULL));
    OK(attn_tape_watch(ctx, tape, x, g));
    OK(attn__enter(ctx));
    OK(attn__rows(ctx, "x", x, 0, &at));
    OK(attn__tape_input(ctx, tape, "x", x, &at, &vx));
    OK(attn__rows(ctx, "w", w, 0, &at));
    OK(attn__tape_input(ctx, tape, "w", w, &at, &vw));
    OK(attn__tape_temporary(ctx, tape, ROWS, WIDTH, ATTN_FLOAT32, &joined));
    OK(attn__linear(ctx, tape, &vx, &vw, NULL, NULL, NULL, NULL, &joined));
    for (int i = 0; i < PARTS; i++) OK(attn__tape_part(ctx, tape, &joined, part_first[i], part_width[i], &part[i]));
    for (int i = 0; i < PARTS; i++) {
        if (!(used >> i & 1)) continue;
        OK(attn__tape_temporary(ctx, tape, ROWS, part_width[i], ATTN_FLOAT32, &asked[n]));
        OK(attn__multiply_elements(ctx, tape, &part[i], &part[i], &asked[n]));
        OK(attn__tape_temporary(ctx, tape, ROWS, part_width[i], ATTN_FLOAT32, &seed));
        for (int64_t e = 0; e < ROWS * part_width[i]; e++) ((float *)seed.at.data)[e] = (float)(e % 5) - 1;
        seeds[n++] = seed.at;
    }
    OK(attn__tape_run(ctx, tape, n, asked, seeds, 0, NULL));
    OK(attn__leave(ctx, ATTN_OK));
    memcpy(out, attn_tensor_data(g), ROWS * WIDTH * sizeof *out);
}

/* columns that no part has, or whose part nobody asks for, are zeros */
static void test_parts(void **state)
{
    (void)state;
    static float one[PARTS][ROWS * WIDTH], some[ROWS * WIDTH];
    attn_tensor *x = make(ROWS, WIDTH), *g = make(ROWS, WIDTH), *w = make(WIDTH, WIDTH);
    for (int i = 0; i < PARTS; i++) parts(1 << i, x, g, w, one[i]);
    for (int used = 1; used < 1 << PARTS; used++) {
        parts(used, x, g, w, some);
        for (int e = 0; e < ROWS * WIDTH; e++) {
            float sum = 0;
            for (int i = 0; i < PARTS; i++) sum += used >> i & 1 ? one[i][e] : 0;
            assert_true(fabsf(some[e] - sum) < 1e-5f);
        }
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_all, close_all)
    const struct CMUnitTest tests[] = {
        TEST(test_dropout_is_of_seed_step_and_site),
        TEST(test_mask_is_held),
        TEST(test_watched_memory_is_held),
        TEST(test_memory_of_outputs_is_held),
        TEST(test_rounds_take_the_same_room),
        TEST(test_seeds_add_up),
        TEST(test_columns_beside_each_other),
        TEST(test_pieces_are_not_watched),
        TEST(test_parameters_are_guarded),
        TEST(test_gradients_are_guarded),
        TEST(test_gradients_are_no_seeds),
        TEST(test_long_beside_short),
        TEST(test_rows_in_no_segment),
        TEST(test_empty),
        TEST(test_part_and_whole),
        TEST(test_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
