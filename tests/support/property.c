#include "support/property.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>

void property_open(property *p, int32_t ground, uint64_t seed)
{
    memset(p, 0, sizeof *p);
    p->ground = ground;
    p->dtype = ground == GROUND_FLOAT64 ? ATTN_FLOAT64 : ATTN_FLOAT32;
    p->unit = ground == GROUND_FLOAT64 ? 0x1p-53 : 0x1p-24;
    p->seed = p->random.at = seed;
    p->ctx = model_context(ground == GROUND_BLAS ? ATTN_BACKEND_BLAS : ATTN_BACKEND_REFERENCE, 2, seed);
    OK(p->ctx, attn_tape_create(p->ctx, &p->tape));
}

void property_close(property *p)
{
    property_sweep(p, 0);
    attn_tape_free(p->tape);
    attn_context_free(p->ctx);
}

void property_run(property_case *run, int seeds)
{
    for (int32_t ground = 0; ground < GROUNDS; ground++)
        for (int seed = 1; seed <= seeds; seed++) {
            property p;
            property_open(&p, ground, (uint64_t)seed);
            run(&p);
            property_close(&p);
        }
}

static attn_tensor *keep(property *p, int32_t rank, const int64_t *shape)
{
    attn_tensor *made = NULL;
    assert_true(p->count < PROPERTY_TENSORS);
    OK(p->ctx, attn_tensor_create(p->ctx, p->dtype, rank, shape, &made));
    p->made[p->count++] = made;
    return made;
}

attn_tensor *property_rows(property *p, int64_t rows, int64_t width)
{
    const int64_t shape[2] = {rows, width};
    return keep(p, 2, shape);
}

attn_tensor *property_heads(property *p, int64_t rows, int64_t heads, int64_t size)
{
    const int64_t shape[3] = {rows, heads, size};
    return keep(p, 3, shape);
}

static attn_tensor *fill(property *p, attn_tensor *x, double low, double high)
{
    for (int64_t e = 0; e < model_elements(x); e++) model_set(x, e, random_number(&p->random, low, high));
    return x;
}

attn_tensor *property_random(property *p, int64_t rows, int64_t width, double low, double high)
{
    return fill(p, property_rows(p, rows, width), low, high);
}

attn_tensor *property_random_heads(property *p, int64_t rows, int64_t heads, int64_t size, double low, double high)
{
    return fill(p, property_heads(p, rows, heads, size), low, high);
}

double property_gaussian(property *p)
{
    double radius = sqrt(-2 * log(1 - random_number(&p->random, 0, 0.99999994)));
    return radius * cos(random_number(&p->random, 0, 6.28318530717958648));
}

attn_tensor *property_normal(property *p, int64_t rows, int64_t width)
{
    attn_tensor *x = property_rows(p, rows, width);
    for (int64_t e = 0; e < model_elements(x); e++) model_set(x, e, property_gaussian(p));
    return x;
}

attn_tensor *property_identity(property *p, int64_t n)
{
    attn_tensor *x = property_rows(p, n, n);
    for (int64_t i = 0; i < n; i++) property_set(x, i, i, 1);
    return x;
}

attn_tensor *property_copy(property *p, const attn_tensor *x)
{
    int64_t shape[ATTN_MAX_RANK];
    for (int32_t i = 0; i < attn_tensor_rank(x); i++) shape[i] = attn_tensor_extent(x, i);
    attn_tensor *made = keep(p, attn_tensor_rank(x), shape);
    for (int64_t e = 0; e < model_elements(x); e++) model_set(made, e, model_get(x, e));
    return made;
}

attn_tensor *property_product(property *p, const attn_tensor *a, const attn_tensor *b)
{
    int64_t rows = attn_tensor_extent(a, 0), inner = property_width(a), width = property_width(b);
    assert_int_equal(inner, attn_tensor_extent(b, 0));
    attn_tensor *y = property_rows(p, rows, width);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < width; c++) {
            double sum = 0;
            for (int64_t i = 0; i < inner; i++) sum += property_get(a, r, i) * property_get(b, i, c);
            property_set(y, r, c, sum);
        }
    return y;
}

void property_sweep(property *p, int mark)
{
    while (p->count > mark) attn_tensor_free(p->made[--p->count]);
}

void property_permutation(property *p, int64_t n, int64_t *order)
{
    for (int64_t i = 0; i < n; i++) order[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = random_integer(&p->random, 0, i + 1), kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
    if (n > 1 && order[0] == 0) order[0] = order[n - 1], order[n - 1] = 0; /* never the identity */
}

attn_tensor *property_reordered(property *p, const attn_tensor *x, const int64_t *order)
{
    attn_tensor *y = property_copy(p, x);
    for (int64_t r = 0; r < attn_tensor_extent(x, 0); r++)
        for (int64_t c = 0; c < property_width(x); c++) property_set(y, r, c, property_get(x, order[r], c));
    return y;
}

int64_t property_width(const attn_tensor *x)
{
    int64_t width = 1;
    for (int32_t i = 1; i < attn_tensor_rank(x); i++) width *= attn_tensor_extent(x, i);
    return width;
}

double property_get(const attn_tensor *x, int64_t row, int64_t column)
{
    return model_get(x, row * property_width(x) + column);
}

void property_set(attn_tensor *x, int64_t row, int64_t column, double value)
{
    model_set(x, row * property_width(x) + column, value);
}

double property_apart(const attn_tensor *a, const attn_tensor *b)
{
    double worst = 0, largest = 1;
    assert_int_equal(model_elements(a), model_elements(b));
    for (int64_t e = 0; e < model_elements(a); e++) {
        double x = model_get(a, e), y = model_get(b, e), d = x == y ? 0 : fabs(x - y);
        if (!(d <= worst)) worst = isfinite(d) ? d : INFINITY;
        largest = fmax(largest, fabs(y));
    }
    return isinf(worst) ? worst : worst / largest;
}

int property_same_row(const attn_tensor *a, int64_t row, const attn_tensor *b, int64_t other)
{
    size_t bytes = (size_t)property_width(a) * (attn_tensor_dtype(a) == ATTN_FLOAT64 ? 8 : 4);
    const char *x = attn_tensor_data_const(a), *y = attn_tensor_data_const(b);
    return memcmp(x + (size_t)row * bytes, y + (size_t)other * bytes, bytes) == 0;
}

int property_same_bits(const attn_tensor *a, const attn_tensor *b)
{
    if (model_elements(a) != model_elements(b)) return 0;
    for (int64_t r = 0; r < attn_tensor_extent(a, 0); r++)
        if (!property_same_row(a, r, b, r)) return 0;
    return 1;
}

void property_expect(const property *p, const attn_tensor *got, const attn_tensor *want, double terms, const char *what, const char *file,
                     int line)
{
    double apart = property_apart(got, want), most = terms * p->unit;
    if (apart <= most) return;
    print_error("%s:%d: %s: %.3g apart, at most %.3g (ground %d, seed %d)\n", file, line, what, apart, most, (int)p->ground, (int)p->seed);
    _fail(file, line);
}

void property_number(double got, double want, double within, const char *what, const char *file, int line)
{
    if (got == want || fabs(got - want) <= within) return;
    print_error("%s:%d: %s: got %.12g, expected %.12g within %.3g\n", file, line, what, got, want, within);
    _fail(file, line);
}

void property_truth(const property *p, int truth, const char *what, const char *file, int line)
{
    if (truth) return;
    print_error("%s:%d: not true: %s (ground %d, seed %d)\n", file, line, what, (int)p->ground, (int)p->seed);
    _fail(file, line);
}

void property_begin(property *p)
{
    OK(p->ctx, attn_tape_begin(p->ctx, p->tape, NULL));
}

void property_begin_training(property *p, uint64_t seed, int64_t step)
{
    attn_tape_options o;
    assert_int_equal(attn_tape_options_init(&o, sizeof o), ATTN_OK);
    o.training = 1;
    o.seed = seed;
    o.step = step;
    OK(p->ctx, attn_tape_begin(p->ctx, p->tape, &o));
}

attn_tensor *property_watch(property *p, const attn_tensor *x)
{
    attn_tensor *gradient = property_copy(p, x);
    OK(p->ctx, attn_tape_watch(p->ctx, p->tape, x, gradient));
    return gradient;
}

void property_backward(property *p, const attn_tensor *y, const attn_tensor *dy, attn_gradients *gradients)
{
    attn_gradients *const all[1] = {gradients};
    OK(p->ctx, attn_tape_backward(p->ctx, p->tape, 1, &y, dy != NULL ? &dy : NULL, gradients != NULL, gradients != NULL ? all : NULL));
}

attn_tensor *property_parameter(attn_parameters *set, const char *name)
{
    attn_tensor *found = attn_parameters_tensor(set, attn_parameters_find(set, name));
    if (found == NULL) fail_msg("no parameter %s", name);
    return found;
}

attn_layout *property_layout(property *p, int64_t count, const int64_t *lengths, int64_t first_sequence)
{
    attn_layout *made = NULL;
    OK(p->ctx, attn_layout_create(p->ctx, count, &made));
    OK(p->ctx, attn_layout_set_lengths(p->ctx, made, count, lengths, first_sequence));
    return made;
}
