#include <attn/loss.h>
#include "../core/options.h"
#include "arguments.h"

typedef struct loss_saved {
    view gradient; /* of the sum by the logits, in the memory of the logits: [rows, classes] */
    double factor; /* 1, or 1 / count for a mean */
} loss_saved;

static attn_status loss_back(attn_context *ctx, attn_tape *tape, attn__record *record)
{
    const loss_saved *saved = record->saved;
    const attn__value *logits = &record->input[0];
    const attn__kernels *k;
    view dy, gradient = saved->gradient;
    attn_status status = attn__kernels_for(ctx, logits->at.dtype, &k);
    if (status == ATTN_OK) status = attn__tape_arrived(ctx, tape, &record->output[0], &dy, NULL);
    if (status != ATTN_OK) return status;
    if (saved->factor != 1) { /* factor * dy */
        attn__value product;
        status = attn__tape_temporary(ctx, NULL, 1, 1, dy.dtype, &product);
        if (status == ATTN_OK) status = attn__fill_view(ctx, saved->factor, &product.at);
        if (status == ATTN_OK) status = k->scale(ctx, &dy, &product.at);
        if (status != ATTN_OK) return status;
        dy = product.at;
    }
    status = k->scale(ctx, &dy, &gradient);
    return status == ATTN_OK ? attn__tape_adopt(ctx, tape, logits, &gradient) : status;
}

attn_status attn__cross_entropy(attn_context *ctx, attn_tape *tape, attn__value *logits, const view *labels, double smoothing, int32_t form,
                                int64_t ignored, int32_t mean, attn__value *loss, attn__loss_sums *sums)
{
    const attn__value *inputs[] = {logits};
    attn__value *outputs[] = {loss};
    const attn__kernels *k;
    attn__record *record = NULL;
    int gradient = loss != NULL && attn__tape_keeps(tape, 1, inputs);
    *sums = (attn__loss_sums){0};
    attn_status status = attn__kernels_for(ctx, logits->at.dtype, &k);
    if (status == ATTN_OK) status = k->loss(ctx, &logits->at, labels, smoothing, form, ignored, gradient, sums);
    if (status != ATTN_OK || loss == NULL) return status;
    double factor = mean && sums->count > 0 ? 1 / (double)sums->count : 1;
    status = attn__fill_view(ctx, sums->loss * factor, &loss->at);
    if (status == ATTN_OK) status = attn__tape_record(ctx, tape, loss_back, 1, inputs, 1, outputs, sizeof(loss_saved), &record);
    if (status == ATTN_OK && record != NULL) *(loss_saved *)record->saved = (loss_saved){.gradient = logits->at, .factor = factor};
    return status;
}

static const attn_cross_entropy_options defaults = {.struct_size = sizeof(attn_cross_entropy_options), .ignored_label = -1};

static const attn__field fields[] = {ATTN__REAL(attn_cross_entropy_options, label_smoothing, 0, 0, 1),
                                     ATTN__INT32(attn_cross_entropy_options, mean, 0, 1),
                                     ATTN__INT32(attn_cross_entropy_options, smoothing_form, 0, 1)};

attn_status attn_cross_entropy_options_init(attn_cross_entropy_options *options, uint64_t size)
{
    return attn__options_init(options, size, &defaults, sizeof defaults);
}

attn_status attn__cross_entropy_read(attn_context *ctx, const attn_cross_entropy_options *options, attn_cross_entropy_options *o)
{
    attn_status status = attn__options_read(ctx, "options", options, &defaults, sizeof defaults, sizeof defaults, o);
    return status == ATTN_OK ? ATTN__CHECK(ctx, "options", o, fields) : status;
}

/* The caller's logits are only read: a copy becomes the gradient. */
static attn_status logits_copy(attn_context *ctx, attn_tape *tape, attn__value *logits)
{
    attn__value copy;
    attn_status status = attn__tape_temporary(ctx, tape, logits->at.rows, logits->at.width, logits->at.dtype, &copy);
    if (status == ATTN_OK) status = attn__copy_view(ctx, &logits->at, 0, &copy.at);
    copy.id = logits->id;
    *logits = copy;
    return status;
}

static attn_status cross_entropy(attn_context *ctx, attn_tape *tape, const attn_tensor *logits, const attn_tensor *labels,
                                 const attn_cross_entropy_options *options, attn_tensor *loss, attn_loss_report *report)
{
    attn_cross_entropy_options o;
    attn__value vx, vy;
    view ids;
    attn__loss_sums sums;
    attn_status status = attn__tape_check(ctx, tape);
    if (status == ATTN_OK) status = attn__cross_entropy_read(ctx, options, &o);
    if (status == ATTN_OK && report != NULL) status = attn__report_check(ctx, "report", report, sizeof *report);
    if (status == ATTN_OK) status = attn__argument_input(ctx, tape, "logits", logits, 0, &vx);
    if (status == ATTN_OK) status = attn__argument_integers(ctx, "labels", labels, &ids);
    if (status == ATTN_OK && ids.rows != vx.at.rows)
        status = attn__fail(ctx, ATTN_ERROR_SHAPE, "labels: got %lld elements, expected one for each of the %lld rows of logits",
                            (long long)ids.rows, (long long)vx.at.rows);
    if (status == ATTN_OK && loss == NULL && report == NULL)
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "loss: got NULL, expected a tensor of one element when report is NULL too");
    if (status != ATTN_OK) return status;
    const attn__value *inputs[] = {&vx};
    if (loss != NULL) status = attn__argument_output(ctx, tape, "loss", loss, vx.at.dtype, 1, 1, 1, inputs, &vy);
    if (status == ATTN_OK && loss != NULL) status = attn__expect_apart(ctx, "loss", &vy.at, "labels", &ids);
    if (status == ATTN_OK && loss != NULL && attn__tape_keeps(tape, 1, inputs)) status = logits_copy(ctx, tape, &vx);
    if (status != ATTN_OK) return status;
    status = attn__cross_entropy(ctx, tape, &vx, &ids, o.label_smoothing, o.smoothing_form, o.ignored_label, o.mean,
                                 loss != NULL ? &vy : NULL, &sums);
    if (status != ATTN_OK || report == NULL) return status;
    const attn_loss_report values = {
        .struct_size = sizeof values, .sum = sums.loss, .unsmoothed_sum = sums.unsmoothed, .count = sums.count};
    return attn__report_write(ctx, "report", report, &values, sizeof values, sizeof values);
}

attn_status attn_cross_entropy(attn_context *ctx, attn_tape *tape, const attn_tensor *logits, const attn_tensor *labels,
                               const attn_cross_entropy_options *options, attn_tensor *loss, attn_loss_report *report)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, cross_entropy(ctx, tape, logits, labels, options, loss, report));
}
