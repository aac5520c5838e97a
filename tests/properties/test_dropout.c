/* Dropout, section 6.3: what it keeps, that its draws are apart, and its four places. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "attend.h"

enum { ROWS = 40, WIDTH = 50, ALL = ROWS * WIDTH };

static attn_tensor *drop(property *p, const attn_tensor *x, double rate, uint64_t site, int64_t step)
{
    attn_tensor *y = property_copy(p, x);
    property_begin_training(p, p->seed, step);
    OK(p->ctx, attn_dropout(p->ctx, p->tape, x, NULL, rate, site, y));
    return y;
}

/* (6.9): 0 or x / (1 - p) and nothing else; as many zeros as a binomial gives; the mean is kept; the identity when not training. */
static void mean(property *p)
{
    const double rates[] = {0.1, 0.3, 0.5, 0.9};
    enum { STEPS = 100 };
    for (int k = 0; k < 4; k++) {
        const double rate = rates[k];
        attn_tensor *x = property_random(p, ROWS, WIDTH, 0.5, 2), *sum = property_rows(p, ROWS, WIDTH),
                    *same = property_rows(p, ROWS, WIDTH);
        double zeros = 0, total = 0, want = 0, square = 0;
        for (int64_t step = 0; step < STEPS; step++) {
            const int mark = p->count;
            attn_tensor *y = drop(p, x, rate, 7, step);
            for (int64_t e = 0; e < ALL; e++) {
                double got = model_get(y, e), from = model_get(x, e);
                zeros += got == 0;
                if (got != 0) NEAR(got, from / (1 - rate), 4 * p->unit * got);
                model_set(sum, e, model_get(sum, e) + got);
                total += got, want += from, square += from * from;
            }
            property_sweep(p, mark);
        }
        NEAR(zeros / (ALL * STEPS), rate, 4.5 * sqrt(rate * (1 - rate) / (ALL * STEPS)));
        NEAR(total, want, 4.5 * sqrt(square * rate / (1 - rate)));
        for (int64_t e = 0; e < ALL; e++) /* each place by itself */
            NEAR(model_get(sum, e) / STEPS / model_get(x, e), 1, 5.5 * sqrt(rate / (1 - rate) / STEPS));
        property_begin(p);
        OK(p->ctx, attn_dropout(p->ctx, p->tape, x, NULL, rate, 7, same));
        HOLDS(p, property_same_bits(same, x));
        OK(p->ctx, attn_dropout(p->ctx, NULL, x, NULL, rate, 7, same));
        HOLDS(p, property_same_bits(same, x));
        property_sweep(p, 0);
    }
}

static void test_mean(void **state)
{
    (void)state, property_run(mean, 1);
}

/* correlation of what is dropped, b a number of rows and columns further */
static double correlation(const attn_tensor *a, const attn_tensor *b, int64_t rows, int64_t columns, double rate)
{
    double sum = 0, n = 0;
    for (int64_t r = 0; r + rows < ROWS; r++)
        for (int64_t c = 0; c + columns < WIDTH; c++) {
            double x = property_get(a, r, c) == 0, y = property_get(b, r + rows, c + columns) == 0;
            sum += (x - rate) * (y - rate);
            n++;
        }
    return sum / (rate * (1 - rate)) / sqrt(n); /* of deviation 1 when independent */
}

/* Draws of neighbouring columns, rows, steps and sites know nothing of each other. */
static void independence(property *p)
{
    const double rate = 0.3;
    attn_tensor *x = property_rows(p, ROWS, WIDTH);
    for (int64_t e = 0; e < ALL; e++) model_set(x, e, 1);
    attn_tensor *base = drop(p, x, rate, 1, 1), *site = drop(p, x, rate, 2, 1), *step = drop(p, x, rate, 1, 2);
    HOLDS(p, property_same_bits(base, drop(p, x, rate, 1, 1)));
    for (int64_t r = 0; r < 4; r++)
        for (int64_t c = 0; c < 9; c++) {
            if (r + c > 0) HOLDS(p, fabs(correlation(base, base, r, c, rate)) < 4.5);
            HOLDS(p, fabs(correlation(base, site, r, c, rate)) < 4.5);
            HOLDS(p, fabs(correlation(base, step, r, c, rate)) < 4.5);
        }
}

static void test_independence(void **state)
{
    (void)state, property_run(independence, 2);
}

/* (6.10): on the weights: the mean over steps is the output without; kept weights are not normalised again, so that values of 1 do not
   give 1; what is dropped has no gradient. */
static void weights(property *p)
{
    enum { QUERIES = 6, KEYS = 9, STEPS = 600 };
    const double rate = 0.4;
    attn_tensor *q = property_random_heads(p, QUERIES, 1, KEYS, -1, 1), *units = attend_units(p, KEYS),
                *want = attend(p, NULL, q, units, units, 1);
    attn_tensor *sum = property_heads(p, QUERIES, 1, KEYS), *y = property_heads(p, QUERIES, 1, KEYS);
    attn_dot_product_options o;
    OK(p->ctx, attn_dot_product_options_init(&o, sizeof o));
    o.derive_scale = 0, o.scale = 1, o.dropout = rate;
    int other = 0;
    for (int64_t step = 0; step < STEPS; step++) {
        property_begin_training(p, p->seed, step);
        OK(p->ctx, attn_dot_product_attention(p->ctx, p->tape, q, units, units, NULL, NULL, NULL, &o, y));
        for (int64_t i = 0; i < QUERIES; i++) {
            double total = 0;
            for (int64_t j = 0; j < KEYS; j++) {
                double got = property_get(y, i, j);
                if (got != 0) NEAR(got, property_get(want, i, j) / (1 - rate), 32 * p->unit);
                property_set(sum, i, j, property_get(sum, i, j) + got / STEPS);
                total += got;
            }
            other += fabs(total - 1) > 0.05;
        }
    }
    HOLDS(p, other > QUERIES * STEPS / 2);
    for (int64_t e = 0; e < QUERIES * KEYS; e++) NEAR(model_get(sum, e) / model_get(want, e), 1, 4.5 * sqrt(rate / (1 - rate) / STEPS));
}

static void test_weights(void **state)
{
    (void)state, property_run(weights, 2);
}

enum { EMBEDDING, ATTENTION, SUBLAYER, ACTIVATION, PLACES };

static double *rate_at(attn_transformer_options *o, int place)
{
    double *const rates[PLACES] = {&o->dropout_embedding, &o->dropout_attention, &o->dropout_sublayer, &o->dropout_activation};
    return rates[place];
}

/* What a place that drops everything leaves: the same as zeros in the weights that read it. */
static void silence(attn_parameters *set, int place)
{
    const char *const parts[PLACES] = {"source_embedding.weight", "attention.output.weight", "output.", "feed_forward.output.weight"};
    for (int64_t i = 0; i < attn_parameters_count(set); i++) {
        const char *name = attn_parameters_name(set, i);
        if (strstr(name, parts[place]) == NULL || strcmp(name, "output.weight") == 0) continue;
        attn_tensor *t = attn_parameters_tensor(set, i);
        for (int64_t e = 0; e < model_elements(t); e++) model_set(t, e, 0);
    }
}

static attn_tensor *logits(property *p, const attn_transformer_options *o, int zeros, int training, int64_t step)
{
    const int64_t lengths[2] = {5, 4};
    model_batch batch;
    attn_transformer *model = model_create(p->ctx, o);
    attn_tensor *y = property_rows(p, 9, 11);
    if (zeros >= 0) silence(attn_transformer_parameters(model), zeros);
    model_batch_open(p->ctx, &batch, o, 2, lengths, lengths, p->seed);
    if (training)
        property_begin_training(p, 9, step);
    else
        property_begin(p);
    OK(p->ctx, attn_transformer_forward(p->ctx, model, p->tape, &batch.batch, y));
    model_batch_close(&batch);
    attn_transformer_free(model);
    return y;
}

/* Section 6.3.1: each of the four places alone. At rate 1 it is the model whose weights behind that place are zero, and no other; at a
   third it changes the output from step to step, each place in its own way; without training nothing is changed by a bit. */
static void places(property *p)
{
    for (int32_t placement = 0; placement < 2; placement++) {
        attn_transformer_options o = model_options(2, 0);
        attn_tensor *one[PLACES], *without;
        o.dtype = p->dtype;
        o.norm_placement = placement;
        o.positions = ATTN_POSITIONS_NONE;
        without = logits(p, &o, -1, 1, 1);
        for (int place = 0; place < PLACES; place++) {
            *rate_at(&o, place) = 1;
            attn_tensor *all = logits(p, &o, -1, 1, 1);
            HOLDS(p, property_same_bits(logits(p, &o, -1, 0, 1), without));
            *rate_at(&o, place) = 0;
            for (int zeros = 0; zeros < PLACES; zeros++) {
                attn_tensor *want = logits(p, &o, zeros, 1, 1);
                if (zeros == place)
                    CLOSE(p, all, want, 100);
                else
                    HOLDS(p, property_apart(all, want) > 1e-3);
            }
            *rate_at(&o, place) = 0.3;
            one[place] = logits(p, &o, -1, 1, 1);
            HOLDS(p, property_apart(one[place], logits(p, &o, -1, 1, 2)) > 1e-4);
            HOLDS(p, property_same_bits(one[place], logits(p, &o, -1, 1, 1)));
            HOLDS(p, property_apart(one[place], without) > 1e-4);
            for (int before = 0; before < place; before++) HOLDS(p, property_apart(one[place], one[before]) > 1e-4);
            *rate_at(&o, place) = 0;
        }
        property_sweep(p, 0);
    }
}

static void test_places(void **state)
{
    (void)state, property_run(places, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mean),
        cmocka_unit_test(test_independence),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
