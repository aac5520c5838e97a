#include <attn/recurrent.h>
#include "../core/options.h"
#include "arguments.h"

/* the kernel writes in the order x, weight, bias: inputs may be one tensor */
static attn_status convolution_back(attn_context *ctx, attn_tape *tape, attn__record *record)
{
    const attn__value *x = &record->input[0], *weight = &record->input[1], *bias = &record->input[2];
    const attn__kernels *k;
    view dy, dx, dw, db;
    int add = 0;
    attn_status status = attn__kernels_for(ctx, x->at.dtype, &k);
    if (status == ATTN_OK) status = attn__tape_arrived(ctx, tape, &record->output[0], &dy, NULL);
    if (status == ATTN_OK) status = attn__tape_wanted(ctx, tape, x, &dx, &add);
    if (status == ATTN_OK) status = attn__tape_added(ctx, tape, weight, &dw);
    if (status == ATTN_OK) status = attn__tape_added(ctx, tape, bias, &db);
    if (status != ATTN_OK) return status;
    return k->convolution_back(ctx, &x->at, &weight->at, record->saved, &dy, add, dx.data != NULL ? &dx : NULL,
                               dw.data != NULL ? &dw : NULL, db.data != NULL ? &db : NULL);
}

attn_status attn__convolve(attn_context *ctx, attn_tape *tape, const attn__value *x, const attn__value *weight, const attn__value *bias,
                           const attn__convolution *shape, attn__value *y)
{
    const attn__value *inputs[] = {x, weight, bias};
    attn__value *outputs[] = {y};
    const attn__kernels *k;
    attn__record *record = NULL;
    attn_status status = attn__kernels_for(ctx, x->at.dtype, &k);
    if (status == ATTN_OK) status = k->convolution(ctx, &x->at, &weight->at, attn__at(bias), shape, &y->at);
    if (status == ATTN_OK) status = attn__tape_record(ctx, tape, convolution_back, 3, inputs, 1, outputs, sizeof *shape, &record);
    if (status == ATTN_OK && record != NULL) *(attn__convolution *)record->saved = *shape;
    return status;
}

static const attn_convolution_options defaults = {.struct_size = sizeof(attn_convolution_options), .taps = 3, .dilation = 1};

static const attn__field fields[] = {ATTN__INT32(attn_convolution_options, taps, 1, INT32_MAX),
                                     ATTN__INT32(attn_convolution_options, causal, 0, 1),
                                     ATTN__INT64(attn_convolution_options, dilation, 0, 1, INT32_MAX)};

attn_status attn_convolution_options_init(attn_convolution_options *options, uint64_t size)
{
    return attn__options_init(options, size, &defaults, sizeof defaults);
}

/* taps and dilation are below 2^31 each: their product has room */
static attn_status read_options(attn_context *ctx, const attn_convolution_options *options, attn__convolution *shape)
{
    attn_convolution_options o;
    attn_status status = attn__options_read(ctx, "options", options, &defaults, sizeof defaults, sizeof defaults, &o);
    if (status == ATTN_OK) status = ATTN__CHECK(ctx, "options", &o, fields);
    if (status != ATTN_OK) return status;
    int64_t reach = (o.taps - 1) * o.dilation;
    *shape = (attn__convolution){.taps = o.taps, .dilation = o.dilation, .first = o.causal ? -reach : -(reach / 2)};
    return ATTN_OK;
}

static attn_status convolution(attn_context *ctx, attn_tape *tape, const attn_tensor *x, const attn_tensor *weight, const attn_tensor *bias,
                               const attn_layout *layout, const attn_convolution_options *options, attn_tensor *y)
{
    attn__value vx, vw, vb, vy;
    const attn__value *b = NULL;
    attn__convolution shape;
    int64_t wide = 0;
    attn_status status = attn__tape_check(ctx, tape);
    if (status == ATTN_OK) status = read_options(ctx, options, &shape);
    if (status == ATTN_OK) status = attn__argument_input(ctx, tape, "x", x, 0, &vx);
    if (status == ATTN_OK) status = attn__argument_matrix(ctx, tape, "weight", weight, vx.at.dtype, &vw);
    if (status == ATTN_OK && attn__multiply(shape.taps, vx.at.width, &wide))
        status = attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "convolution");
    if (status == ATTN_OK) status = attn__expect_shape(ctx, "weight", &vw.at, -1, 1, wide);
    if (status == ATTN_OK) status = attn__argument_vector(ctx, tape, "bias", bias, vx.at.dtype, vw.at.rows, &vb, &b);
    if (status == ATTN_OK) status = attn__layout_tiling(ctx, "layout", layout, vx.at.rows, &shape.segments);
    if (status == ATTN_OK && tape != NULL)
        status = attn__segments_copy(ctx, attn__tape_records(ctx, tape), shape.segments, &shape.segments);
    if (status != ATTN_OK) return status;
    const attn__value *inputs[] = {&vx, &vw, b};
    status = attn__argument_output(ctx, tape, "y", y, vx.at.dtype, vx.at.rows, vw.at.rows, 3, inputs, &vy);
    return status == ATTN_OK ? attn__convolve(ctx, tape, &vx, &vw, b, &shape, &vy) : status;
}

attn_status attn_convolution(attn_context *ctx, attn_tape *tape, const attn_tensor *x, const attn_tensor *weight, const attn_tensor *bias,
                             const attn_layout *layout, const attn_convolution_options *options, attn_tensor *y)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, convolution(ctx, tape, x, weight, bias, layout, options, y));
}
