/* Programs drawn from a seed, on one tape for each ground: gradients against differences in float64, twice, and with one thing watched at a time;
   BLAS on one thread and on three against them. Draw N alone: ATTN_DRAW=N, more of them: ATTN_DRAWS=N. */
#include "autograd/drawn_run.h"

enum { DRAWS = 4000, REFERENCE = 0, ONE = 1, THREE = 2, WORLDS = 3 };
#define STEP 2e-4

static double numbers[WORLDS][VALUES][MOST]; /* gradients of each ground */
static double scratch[MOST];

static void forward(world *w, const int32_t *watched)
{
    scope s;
    attn_tape_options o;
    memset(&s, 0, sizeof s);
    w->watched = watched;
    OK(w->ctx, attn_tape_options_init(&o, sizeof o));
    o.training = w->p->training, o.seed = 5, o.step = 2;
    OK(w->ctx, attn_tape_begin(w->ctx, w->tape, &o));
    OK(w->ctx, attn__enter(w->ctx));
    OK(w->ctx, attn__leave(w->ctx, run_range(w, w->tape, &s, 0, w->p->operations, 0)));
    for (int32_t i = 0; i < w->p->asked; i++) OK(w->ctx, find(w, w->tape, &s, w->p->ask[i], 1, &w->output[i]));
}

/* sum of <arriving, output> */
static double value(const world *w)
{
    double sum = 0;
    for (int32_t i = 0; i < w->p->asked; i++) {
        const view *y = &w->output[i].at;
        const view g = w->arriving[i] != NULL ? rows_of(w->arriving[i]) : *y;
        for (int64_t r = 0; r < y->rows; r++)
            for (int64_t c = 0; c < y->width; c++) sum += element_get(y, r, 0, c) * (w->arriving[i] != NULL ? element_get(&g, r, 0, c) : 1);
    }
    return sum;
}

static void read_gradient(const world *w, int32_t i, double *to)
{
    const drawn_value *v = &w->p->value[i];
    const view at = rows_of(v->kind == PARAMETER ? attn_gradients_tensor(w->handle[v->set], w->index[i]) : w->gradient[i]);
    read_view(&at, to);
}

/* what parameters' gradients are added to */
static void prepare_handles(const world *w)
{
    for (int32_t i = 0; i < w->p->values; i++) {
        const drawn_value *v = &w->p->value[i];
        if (v->kind != PARAMETER) continue;
        random_state random = {v->seed + 77};
        const view at = rows_of(attn_gradients_tensor(w->handle[v->set], w->index[i]));
        random_view(&random, &at, -1, 1);
    }
}

/* A value without its last row is a part of it, which is no value; nor may it be written over. */
static void expect_guarded(const world *w, const int32_t *live)
{
    for (int32_t i = 0; i < w->p->values; i++) {
        attn__value part;
        if (!live[i] || w->tensor[i] == NULL || w->p->value[i].kind == PARAMETER || w->p->value[i].rows < 2) continue;
        view at = rows_of(w->tensor[i]);
        at.rows--;
        assert_int_equal(attn__tape_input(w->ctx, w->tape, "x", w->tensor[i], &at, &part), ATTN_ERROR_BAD_STATE);
        at = attn__view_rows(rows_of(w->tensor[i]), at.rows, 1);
        assert_int_equal(attn__tape_output(w->ctx, w->tape, "y", w->tensor[i], &at, &part), ATTN_ERROR_BAD_STATE);
    }
}

/* every element is one, and nothing was written between the rows */
static void expect_numbers(const world *w, const pool *of, int64_t elements, const char *what)
{
    const int64_t count = count_numbers(w, of);
    if (count != elements) fail_msg("%d numbers in %s, expected %d", (int)count, what, (int)elements);
}

/* Forward and backward; 0: nothing that is asked for depends on what is watched. */
static int run(world *w, const int32_t *watched, const int32_t *handles)
{
    const drawn_program *p = w->p;
    static char before[POOL];
    int32_t is_live[VALUES], count = 0, given = 0, outside = 1;
    const attn_tensor *outputs[ASKED], *arriving[ASKED];
    attn__value values[ASKED];
    view views[ASKED];
    attn_gradients *list[SETS];
    int64_t elements = 0;
    find_live(p, watched, is_live);
    fill_nan(w, &w->gradients);
    prepare_handles(w);
    forward(w, watched);
    expect_guarded(w, is_live);
    for (int32_t i = 0; i < p->asked; i++) {
        if (!is_live[p->ask[i]]) continue;
        outputs[count] = w->tensor[p->ask[i]], arriving[count] = w->arriving[i];
        outside &= outputs[count] != NULL;
        values[count] = w->output[i];
        views[count++] = w->arriving[i] != NULL ? rows_of(w->arriving[i]) : (view){.data = NULL};
    }
    int32_t met[SETS] = {0}; /* a handle of a set that is not on the tape is refused */
    for (int32_t i = 0; i < p->operations; i++)
        for (int32_t k = 0; k < p->operation[i].inputs && !p->operation[i].detached; k++)
            if (p->operation[i].in[k] >= 0 && p->value[p->operation[i].in[k]].kind == PARAMETER)
                met[p->value[p->operation[i].in[k]].set] = 1;
    for (int s = 0; s < SETS; s++)
        if (handles[s] && met[s]) list[given++] = w->handle[s];
    if (count == 0) return 0;
    memcpy(before, w->values.at, (size_t)w->values.used);
    OK(w->ctx, attn__enter(w->ctx));
    OK(w->ctx, attn__leave(w->ctx, outside ? attn_tape_backward(w->ctx, w->tape, count, outputs, p->no_list ? NULL : arriving, given, list)
                                           : attn__tape_run(w->ctx, w->tape, count, values, p->no_list ? NULL : views, given, list)));
    assert_memory_equal(before, w->values.at, (size_t)w->values.used);
    for (int32_t i = 0; i < p->values; i++) {
        const drawn_value *v = &p->value[i];
        if (watched[i]) elements += v->rows * v->width;
        if (v->kind != PARAMETER || (handles[v->set] && !v->frozen)) continue;
        random_state random = {v->seed + 77};
        read_gradient(w, i, scratch); /* frozen, or without a handle: as it was */
        for (int64_t e = 0; e < v->rows * v->width; e++) assert_true(scratch[e] == random_number(&random, -1, 1));
    }
    expect_numbers(w, &w->gradients, elements, "gradients");
    elements = 0;
    for (int32_t i = 0; i < p->values; i++)
        if (w->tensor[i] != NULL && p->value[i].kind != PARAMETER) elements += p->value[i].rows * p->value[i].width;
    for (int32_t i = 0; i < p->asked; i++)
        if (w->arriving[i] != NULL) elements += p->value[p->ask[i]].rows * p->value[p->ask[i]].width;
    expect_numbers(w, &w->values, elements, "values");
    return 1;
}

static int wanted(const world *w, int32_t i)
{
    const drawn_value *v = &w->p->value[i];
    return v->watched || (v->kind == PARAMETER && !v->frozen && w->p->handle[v->set]);
}

static void load(const world *w, int32_t i)
{
    random_state random = {w->p->value[i].seed};
    const view at = rows_of(w->tensor[i]);
    random_view(&random, &at, -1, 1);
}

static void open_program(world *w, const drawn_program *p)
{
    w->p = p, w->again = 0;
    w->values.used = w->gradients.used = 0;
    w->values.open = w->gradients.open = NULL;
    for (int s = 0; s < SETS; s++) OK(w->ctx, attn__parameters_create(w->ctx, w->dtype, &w->set[s]));
    for (int32_t i = 0; i < p->values; i++) {
        const drawn_value *v = &p->value[i];
        char name[16];
        snprintf(name, sizeof name, "v%d", (int)i);
        if (v->kind == PARAMETER)
            OK(w->ctx, attn__parameters_add(w->ctx, w->set[v->set], name, 1, 2, (int64_t[]){v->rows, v->width}, 0, 0, 0, &w->index[i]));
    }
    for (int s = 0; s < SETS; s++) {
        OK(w->ctx, attn__parameters_finish(w->ctx, w->set[s]));
        OK(w->ctx, attn_gradients_create(w->ctx, w->set[s], &w->handle[s]));
    }
    for (int32_t i = 0; i < p->values; i++) {
        const drawn_value *v = &p->value[i];
        w->tensor[i] = w->gradient[i] = NULL;
        if (v->kind == PARAMETER) {
            char name[16];
            snprintf(name, sizeof name, "v%d", (int)i);
            w->tensor[i] = attn_parameters_tensor(w->set[v->set], w->index[i]);
            if (v->frozen) OK(w->ctx, attn_parameters_freeze(w->ctx, w->set[v->set], name, 1, NULL));
        } else if (v->outside) {
            w->tensor[i] = wrap(w, &w->values, v, v->gap);
            if (v->watched) w->gradient[i] = wrap(w, &w->gradients, v, v->gap);
        }
    }
    for (int32_t i = 0; i < p->asked; i++) {
        w->arriving[i] = p->ones[i] || p->no_list ? NULL : wrap(w, &w->values, &p->value[p->ask[i]], p->arriving_gap[i]);
    }
    fill_nan(w, &w->values);
    for (int32_t i = 0; i < p->values; i++)
        if (w->tensor[i] != NULL && p->value[i].kind != MADE) load(w, i);
    for (int32_t i = 0; i < p->asked; i++) {
        random_state random = {p->value[p->ask[i]].seed + 5 + (uint64_t)i};
        const view at = w->arriving[i] != NULL ? rows_of(w->arriving[i]) : (view){.rows = 0};
        random_view(&random, &at, -1, 1);
    }
}

static void close_program(world *w)
{
    for (int32_t i = 0; i < w->p->values; i++) attn_tensor_free(w->tensor[i]), attn_tensor_free(w->gradient[i]);
    for (int32_t i = 0; i < w->p->asked; i++) attn_tensor_free(w->arriving[i]);
    for (int s = 0; s < SETS; s++) attn_gradients_free(w->handle[s]), attn__parameters_release(w->set[s]);
}

static int64_t elements_of(const world *w, int32_t i)
{
    return w->p->value[i].rows * w->p->value[i].width;
}

static void expect_bits(const world *w, int32_t i, const double *want, const char *what)
{
    read_gradient(w, i, scratch);
    for (int64_t e = 0; e < elements_of(w, i); e++)
        if (scratch[e] != want[e]) fail_msg("gradient of %d, %s: %.17g at %d, expected %.17g", (int)i, what, scratch[e], (int)e, want[e]);
}

/* again, and with one thing watched at a time */
static void check_subsets(world *w, const int32_t *watched)
{
    const drawn_program *p = w->p;
    static const int32_t none[SETS] = {0};
    int32_t alone[VALUES];
    assert_true(run(w, watched, p->handle));
    for (int32_t i = 0; i < p->values; i++)
        if (wanted(w, i)) expect_bits(w, i, numbers[REFERENCE][i], "the second time");
    memset(alone, 0, sizeof alone);
    for (int32_t i = 0; i < p->values; i++) {
        if (!watched[i]) continue;
        alone[i] = 1;
        if (run(w, alone, none)) expect_bits(w, i, numbers[REFERENCE][i], "watched alone");
        alone[i] = 0;
    }
    for (int s = 0; s < SETS; s++) {
        int32_t one[SETS] = {0};
        one[s] = p->handle[s];
        if (!one[s] || !run(w, alone, one)) continue;
        for (int32_t i = 0; i < p->values; i++)
            if (wanted(w, i) && p->value[i].kind == PARAMETER && p->value[i].set == s)
                expect_bits(w, i, numbers[REFERENCE][i], "its set alone");
    }
}

static double moved(world *w, const int32_t *watched, int32_t i, const double *direction, double by)
{
    const view at = rows_of(w->tensor[i]);
    static double before[MOST];
    read_view(&at, before);
    for (int64_t e = 0; e < elements_of(w, i); e++) element_set(&at, e / at.width, 0, e % at.width, before[e] + by * direction[e]);
    forward(w, watched);
    const double sum = value(w); /* an input may be asked for itself */
    for (int64_t e = 0; e < elements_of(w, i); e++) element_set(&at, e / at.width, 0, e % at.width, before[e]);
    return sum;
}

/* what a parameter's gradient was added to is no part of it */
static double gradient_of(const world *w, const double *from, int32_t i, int64_t e)
{
    random_state random = {w->p->value[i].seed + 77 + (uint64_t)e};
    return from[e] - (w->p->value[i].kind == PARAMETER ? random_number(&random, -1, 1) : 0);
}

static double largest_gradient(const world *w)
{
    double largest = 0;
    for (int32_t i = 0; i < w->p->values; i++)
        for (int64_t e = 0; wanted(w, i) && e < elements_of(w, i); e++)
            largest = fmax(largest, fabs(gradient_of(w, numbers[REFERENCE][i], i, e)));
    return largest;
}

static void check_differences(world *w, const int32_t *watched)
{
    const drawn_program *p = w->p;
    static double direction[MOST];
    const double largest = largest_gradient(w);
    for (int32_t i = 0; i < p->values; i++) {
        if (!wanted(w, i)) continue;
        random_state random = {p->value[i].seed + 999};
        double along = 0, length = 0, norm = 0;
        const int64_t n = elements_of(w, i);
        random_doubles(&random, direction, n, -1, 1);
        for (int64_t e = 0; e < n; e++) length += direction[e] * direction[e];
        for (int64_t e = 0; e < n; e++) {
            const double g = gradient_of(w, numbers[REFERENCE][i], i, e);
            direction[e] /= sqrt(length);
            along += direction[e] * g, norm += g * g;
        }
        const double near = moved(w, watched, i, direction, STEP) - moved(w, watched, i, direction, -STEP);
        const double far = moved(w, watched, i, direction, 2 * STEP) - moved(w, watched, i, direction, -2 * STEP);
        const double difference = (8 * near - far) / (12 * STEP), bound = 1e-6 * (sqrt(norm) + 1e-3 * largest) + 1e-9;
        if (!(fabs(difference - along) <= bound))
            fail_msg("gradient of %d: %.9g along a direction, by differences %.9g, more apart than %g", (int)i, along, difference, bound);
    }
}

static void check_blas(world *w)
{
    const drawn_program *p = w[REFERENCE].p;
    const double largest = fmax(0.1, largest_gradient(w)); /* a gradient that is zero is a sum of what is not */
    for (int32_t i = 0; i < p->values; i++) {
        if (!wanted(w, i)) continue;
        for (int64_t e = 0; e < elements_of(w, i); e++) {
            const double want = numbers[REFERENCE][i][e], got = numbers[ONE][i][e];
            if (got != numbers[THREE][i][e])
                fail_msg("gradient of %d on three threads: %.9g at %d, on one %.9g", (int)i, numbers[THREE][i][e], (int)e, got);
            if (!(fabs(got - want) <= 1e-4 * largest))
                fail_msg("gradient of %d by BLAS: %.9g at %d, expected %.9g", (int)i, got, (int)e, want);
        }
    }
    for (int32_t i = 0; i < p->asked; i++) {
        static double y[WORLDS][MOST];
        int64_t n = 0;
        double most = 1;
        for (int k = 0; k < WORLDS; k++) n = read_view(&w[k].output[i].at, y[k]);
        for (int64_t e = 0; e < n; e++) most = fmax(most, fabs(y[REFERENCE][e]));
        for (int64_t e = 0; e < n; e++)
            if (y[ONE][e] != y[THREE][e] || !(fabs(y[ONE][e] - y[REFERENCE][e]) <= 1e-4 * most))
                fail_msg("value %d: %.9g on one thread, %.9g on three, expected %.9g", (int)p->ask[i], y[ONE][e], y[THREE][e],
                         y[REFERENCE][e]);
    }
}

static void check(world *w, const drawn_program *p)
{
    int32_t watched[VALUES];
    for (int32_t i = 0; i < p->values; i++) watched[i] = p->value[i].watched;
    for (int k = 0; k < WORLDS; k++) {
        open_program(&w[k], p);
        assert_true(run(&w[k], watched, p->handle));
        for (int32_t i = 0; i < p->values; i++)
            if (wanted(&w[k], i)) read_gradient(&w[k], i, numbers[k][i]);
    }
    check_blas(w);
    check_subsets(&w[REFERENCE], watched);
    w[REFERENCE].again = 1;
    check_differences(&w[REFERENCE], watched);
    for (int k = 0; k < WORLDS; k++) close_program(&w[k]);
}

static void test_drawn(void **state)
{
    static double memory[WORLDS][2][POOL / 8];
    static world w[WORLDS];
    (void)state;
    for (int k = 0; k < WORLDS; k++) {
        w[k].ctx = model_context(k == REFERENCE ? ATTN_BACKEND_REFERENCE : ATTN_BACKEND_BLAS, k == ONE ? 1 : 3, 0);
        w[k].dtype = k == REFERENCE ? ATTN_FLOAT64 : ATTN_FLOAT32;
        w[k].values.at = (char *)memory[k][0], w[k].gradients.at = (char *)memory[k][1];
        OK(w[k].ctx, attn_tape_create(w[k].ctx, &w[k].tape));
        OK(w[k].ctx, attn_mask_causal(w[k].ctx, ATTN_ALIGN_LAST, &w[k].causal));
    }
    for (int64_t i = drawn_first(); i < drawn_end(DRAWS); i++) {
        static drawn_program p;
        draw_program(&p, i);
        say(&p, i);
        fflush(stdout);
        if (p.asked > 0) check(w, &p);
    }
    for (int k = 0; k < WORLDS; k++) {
        attn_mask_free(w[k].causal);
        attn_tape_free(w[k].tape);
        attn_context_free(w[k].ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_drawn)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
