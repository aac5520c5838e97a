#include <attn/rotary.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "../core/options.h"
#include "arguments.h"

static attn_status rotate_back(attn_context *ctx, attn_tape *tape, attn__record *record)
{
    const attn__value *x = &record->input[0];
    const attn__kernels *k;
    view dy, dx;
    int exclusive, add = 0;
    attn_status status = attn__kernels_for(ctx, x->at.dtype, &k);
    if (status == ATTN_OK) status = attn__tape_arrived(ctx, tape, &record->output[0], &dy, &exclusive);
    if (status != ATTN_OK) return status;
    dx = dy;
    if (!exclusive) status = attn__tape_wanted(ctx, tape, x, &dx, &add);
    if (status != ATTN_OK || dx.data == NULL) return status;
    status = k->rotate(ctx, &dy, record->saved, 1, add, &dx);
    return status == ATTN_OK && exclusive ? attn__tape_pass(ctx, tape, x, &dx) : status;
}

attn_status attn__rotate(attn_context *ctx, attn_tape *tape, const attn__value *x, const attn__rotary *rotary, attn__value *y)
{
    const attn__value *inputs[] = {x};
    attn__value *outputs[] = {y};
    const attn__kernels *k;
    attn__record *record = NULL;
    attn_status status = attn__kernels_for(ctx, x->at.dtype, &k);
    if (status == ATTN_OK) status = k->rotate(ctx, &x->at, rotary, 0, 0, &y->at);
    if (status == ATTN_OK) status = attn__tape_record(ctx, tape, rotate_back, 1, inputs, 1, outputs, sizeof *rotary, &record);
    if (status == ATTN_OK && record != NULL) *(attn__rotary *)record->saved = *rotary;
    return status;
}

static const attn_rotary_options defaults = {
    .struct_size = sizeof(attn_rotary_options),
    .rotated = ATTN_DERIVED,
    .base = 10000,
    .factor = 1,
    .context = 2048,
    .low = 1,
    .high = 32,
};

attn_status attn_rotary_options_init(attn_rotary_options *options, uint64_t size)
{
    return attn__options_init(options, size, &defaults, sizeof defaults);
}

static const attn__field fields[] = {ATTN__INT32(attn_rotary_options, pairing, ATTN_ROTARY_HALVES, ATTN_ROTARY_PAIRS),
                                     ATTN__INT32(attn_rotary_options, scaling, ATTN_ROTARY_PLAIN, ATTN_ROTARY_LLAMA3),
                                     ATTN__REAL(attn_rotary_options, base, ATTN__ABOVE, 1, HUGE_VAL),
                                     ATTN__REAL(attn_rotary_options, factor, 0, 1, HUGE_VAL),
                                     ATTN__REAL(attn_rotary_options, context, ATTN__ABOVE, 0, HUGE_VAL),
                                     ATTN__REAL(attn_rotary_options, low, ATTN__ABOVE, 0, HUGE_VAL),
                                     ATTN__REAL(attn_rotary_options, high, ATTN__ABOVE, 0, HUGE_VAL),
                                     ATTN__REAL(attn_rotary_options, magnitude, 0, 0, HUGE_VAL)};

attn_status attn__rotary_read(attn_context *ctx, const attn_rotary_options *options, int64_t size, attn_rotary_options *o)
{
    attn_status status = attn__options_read(ctx, "options", options, &defaults, sizeof defaults, sizeof defaults, o);
    if (status == ATTN_OK) status = ATTN__CHECK(ctx, "options", o, fields);
    if (status != ATTN_OK) return status;
    if (!(o->high > o->low))
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "options.high: got %g, expected more than low, which is %g", o->high, o->low);
    if (o->rotated == ATTN_DERIVED) o->rotated = size;
    if (o->rotated < 2 || o->rotated > size || o->rotated % 2 != 0)
        return attn__fail(ctx, ATTN_ERROR_SHAPE,
                          "options.rotated: got %" PRId64 ", expected an even number from 2 to the %" PRId64 " columns of a head",
                          o->rotated, size);
    return ATTN_OK;
}

/* YaRN counts its ramp in pairs: the one that makes `turns` turns in the context */
static double pair_of(const attn_rotary_options *o, double turns)
{
    return (double)o->rotated * log(o->context / (turns * 2 * acos(-1.0))) / (2 * log(o->base));
}

static double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

/* how much of pair c is stretched: 0 none, 1 all */
static double stretched(const attn_rotary_options *o, int64_t c, double frequency)
{
    if (o->scaling == ATTN_ROTARY_LLAMA3) return 1 - clamp((o->context * frequency / (2 * acos(-1.0)) - o->low) / (o->high - o->low), 0, 1);
    double first = clamp(floor(pair_of(o, o->high)), 0, (double)o->rotated - 1),
           last = clamp(ceil(pair_of(o, o->low)), 0, (double)o->rotated - 1);
    if (last <= first) last = first + 0.001;
    return clamp(((double)c - first) / (last - first), 0, 1);
}

static double frequency_of(const attn_rotary_options *o, int64_t c)
{
    double base = o->base, part = 1;
    if (o->scaling == ATTN_ROTARY_NTK && o->rotated > 2) base *= pow(o->factor, (double)o->rotated / (double)(o->rotated - 2));
    double frequency = pow(base, -2.0 * (double)c / (double)o->rotated);
    if (o->scaling == ATTN_ROTARY_PLAIN || o->scaling == ATTN_ROTARY_NTK) return frequency;
    if (o->scaling != ATTN_ROTARY_LINEAR) part = stretched(o, c, frequency);
    return frequency * (1 - part) + frequency / o->factor * part;
}

static double magnitude_of(const attn_rotary_options *o)
{
    if (o->scaling != ATTN_ROTARY_YARN) return 1;
    return o->magnitude > 0 ? o->magnitude : 0.1 * log(o->factor) + 1;
}

attn_status attn_rotary_frequencies(attn_context *ctx, const attn_rotary_options *options, int64_t size, double *frequencies,
                                    double *magnitude)
{
    attn_rotary_options o;
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    status = attn__rotary_read(ctx, options, size, &o);
    for (int64_t c = 0; status == ATTN_OK && frequencies != NULL && c < o.rotated / 2; c++) frequencies[c] = frequency_of(&o, c);
    if (status == ATTN_OK && magnitude != NULL) *magnitude = magnitude_of(&o);
    return attn__leave(ctx, status);
}

attn_status attn__rotary_of(attn_context *ctx, attn__arena *arena, const attn_rotary_options *o, attn__rotary *out)
{
    double *frequency = attn__take(ctx, arena, o->rotated / 2 * (int64_t)sizeof *frequency, "frequencies");
    if (frequency == NULL) return attn__arena_status(arena);
    for (int64_t c = 0; !ctx->dry && c < o->rotated / 2; c++) frequency[c] = frequency_of(o, c);
    *out = (attn__rotary){frequency, o->rotated, magnitude_of(o), o->pairing, 0, {NULL, NULL}};
    return ATTN_OK;
}

static attn_status rotary(attn_context *ctx, attn_tape *tape, const attn_tensor *x, const attn_layout *layout,
                          const attn_rotary_options *options, attn_tensor *y)
{
    view from, to;
    attn__value vx, vy;
    attn_rotary_options o;
    attn__segments segments;
    attn_status status = attn__tape_check(ctx, tape);
    if (status == ATTN_OK) status = attn__heads(ctx, "x", x, 0, &from);
    if (status == ATTN_OK) status = attn__heads(ctx, "y", y, from.dtype, &to);
    if (status == ATTN_OK) status = attn__expect_shape(ctx, "y", &to, from.rows, from.heads, from.width);
    if (status == ATTN_OK) status = attn__rotary_read(ctx, options, from.width, &o);
    if (status == ATTN_OK) status = attn__layout_tiling(ctx, "layout", layout, from.rows, &segments);
    if (status == ATTN_OK && (tape != NULL || memcmp(&from, &to, sizeof from) != 0)) status = attn__expect_apart(ctx, "y", &to, "x", &from);
    if (status == ATTN_OK) status = attn__tape_input(ctx, tape, "x", x, &from, &vx);
    if (status == ATTN_OK) status = attn__tape_output(ctx, tape, "y", y, &to, &vy);
    if (status != ATTN_OK) return status;
    attn__rotary r;
    status = attn__rotary_of(ctx, attn__tape_records(ctx, tape), &o, &r);
    if (status == ATTN_OK) status = attn__places_expand(ctx, attn__tape_records(ctx, tape), segments, from.rows, &r.places);
    return status == ATTN_OK ? attn__rotate(ctx, tape, &vx, &r, &vy) : status;
}

attn_status attn_rotary(attn_context *ctx, attn_tape *tape, const attn_tensor *x, const attn_layout *layout,
                        const attn_rotary_options *options, attn_tensor *y)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, rotary(ctx, tape, x, layout, options, y));
}
