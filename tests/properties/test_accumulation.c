/* k micro-batches make the gradient of the whole batch, dropout included: it is drawn by sequence and position, never by the place in a batch. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/property.h"

enum { SEQUENCES = 6 };
static const int64_t source_lengths[SEQUENCES] = {3, 5, 0, 2, 4, 1}, target_lengths[SEQUENCES] = {4, 2, 3, 5, 1, 2};

static int64_t first_row(const int64_t *lengths, int64_t sequence)
{
    int64_t row = 0;
    for (int64_t s = 0; s < sequence; s++) row += lengths[s];
    return row;
}

/* rows of some sequences, in the order given */
static attn_tensor *rows_of(property *p, const attn_tensor *all, const int64_t *lengths, int64_t count, const int64_t *which)
{
    int64_t rows = 0, to = 0;
    for (int64_t s = 0; s < count; s++) rows += lengths[which[s]];
    attn_tensor *made = model_tensor(p->ctx, ATTN_INT32, rows, 0);
    p->made[p->count++] = made;
    for (int64_t s = 0; s < count; s++)
        for (int64_t r = 0; r < lengths[which[s]]; r++) model_set(made, to++, model_get(all, first_row(lengths, which[s]) + r));
    return made;
}

static attn_layout *layout_of(property *p, const int64_t *lengths, int64_t count, const int64_t *which, int64_t first_id)
{
    attn_segment segments[SEQUENCES];
    attn_layout *made = NULL;
    int64_t row = 0;
    for (int64_t s = 0; s < count; s++) {
        segments[s] = (attn_segment){row, lengths[which[s]], 0, first_id + which[s]};
        row += lengths[which[s]];
    }
    OK(p->ctx, attn_layout_create(p->ctx, count, &made));
    OK(p->ctx, attn_layout_set(p->ctx, made, count, segments));
    return made;
}

/* adds the gradient of the summed loss over these sequences; returns that loss */
static double add_part(property *p, attn_transformer *model, const model_batch *all, int encoder, int64_t count, const int64_t *which,
                       int64_t first_id, attn_gradients *gradients)
{
    attn_batch part;
    attn_layout *source = NULL, *target = layout_of(p, target_lengths, count, which, first_id);
    attn_tensor *loss = property_rows(p, 1, 1);
    attn_loss_report report = {.struct_size = sizeof report};
    attn_cross_entropy_options o;
    OK(p->ctx, attn_cross_entropy_options_init(&o, sizeof o));
    o.label_smoothing = 0.1;
    OK(p->ctx, attn_batch_init(&part, sizeof part));
    part.target = rows_of(p, all->target, target_lengths, count, which);
    part.labels = rows_of(p, all->labels, target_lengths, count, which);
    part.target_layout = target;
    if (encoder) {
        part.source = rows_of(p, all->source, source_lengths, count, which);
        part.source_layout = source = layout_of(p, source_lengths, count, which, first_id);
    }
    property_begin_training(p, 4, 17);
    OK(p->ctx, attn_transformer_loss(p->ctx, model, p->tape, &part, &o, loss, &report));
    property_backward(p, loss, NULL, gradients);
    attn_layout_free(source);
    attn_layout_free(target);
    return report.sum;
}

static void accumulate(property *p)
{
    const int64_t sizes[] = {6, 3, 2, 1, 4}, forwards[SEQUENCES] = {0, 1, 2, 3, 4, 5}, mixed[SEQUENCES] = {4, 0, 5, 2, 1, 3};
    for (int way = 0; way < 4; way++) {
        const int encoder = way & 1;
        attn_transformer_options o = model_options(encoder, 2);
        attn_gradients *whole = NULL, *parts = NULL;
        model_batch all;
        o.dtype = p->dtype;
        o.norm_placement = way >> 1;
        o.dropout_embedding = o.dropout_attention = o.dropout_sublayer = o.dropout_activation = 0.3;
        attn_transformer *model = model_create(p->ctx, &o);
        attn_parameters *set = attn_transformer_parameters(model);
        model_batch_open(p->ctx, &all, &o, SEQUENCES, source_lengths, target_lengths, p->seed);
        OK(p->ctx, attn_gradients_create(p->ctx, set, &whole));
        OK(p->ctx, attn_gradients_create(p->ctx, set, &parts));
        const double want = add_part(p, model, &all, encoder, SEQUENCES, forwards, 7, whole);
        for (int k = 0; k < 5; k++)
            for (int order = 0; order < 2; order++) {
                double sum = 0;
                OK(p->ctx, attn_gradients_zero(p->ctx, parts));
                for (int64_t at = 0; at < SEQUENCES; at += sizes[k]) {
                    int64_t count = SEQUENCES - at < sizes[k] ? SEQUENCES - at : sizes[k];
                    sum += add_part(p, model, &all, encoder, count, (order ? mixed : forwards) + at, 7, parts);
                }
                NEAR(sum, want, 400 * p->unit * want);
                CLOSE(p, attn_gradients_flat(parts), attn_gradients_flat(whole), 400);
            }
        OK(p->ctx, attn_gradients_zero(p->ctx, parts)); /* other names of the sequences, other dropout */
        add_part(p, model, &all, encoder, SEQUENCES, forwards, 100, parts);
        HOLDS(p, property_apart(attn_gradients_flat(parts), attn_gradients_flat(whole)) > 1e-3);
        attn_gradients_free(whole);
        attn_gradients_free(parts);
        model_batch_close(&all);
        attn_transformer_free(model);
        property_sweep(p, 0);
    }
}

static void test_micro_batches(void **state)
{
    (void)state, property_run(accumulate, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_micro_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
