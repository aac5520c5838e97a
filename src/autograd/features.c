#include <inttypes.h>
#include <math.h>
#include "../core/options.h"
#include "linear_attention.h"

static attn_status feature_map_back(attn_context *ctx, attn_tape *tape, attn__record *record)
{
    const attn__value *x = &record->input[0], *y = &record->output[0];
    const attn__kernels *k;
    view dy, dx;
    int add = 0;
    attn_status status = attn__kernels_for(ctx, x->at.dtype, &k);
    if (status == ATTN_OK) status = attn__tape_arrived(ctx, tape, y, &dy, NULL);
    if (status == ATTN_OK) status = attn__tape_wanted(ctx, tape, x, &dx, &add);
    return status == ATTN_OK && dx.data != NULL ? k->feature_map_back(ctx, &x->at, record->saved, &y->at, &dy, add, &dx) : status;
}

attn_status attn__feature_map(attn_context *ctx, attn_tape *tape, const attn__value *x, const attn__features *features, void *log_scale,
                              attn__value *y)
{
    const attn__value *inputs[] = {x};
    attn__value *outputs[] = {y};
    const attn__kernels *k;
    attn__record *record = NULL;
    attn_status status = attn__kernels_for(ctx, x->at.dtype, &k);
    if (status == ATTN_OK) status = k->feature_map(ctx, &x->at, features, log_scale, &y->at);
    if (status == ATTN_OK) status = attn__tape_record(ctx, tape, feature_map_back, 1, inputs, 1, outputs, sizeof *features, &record);
    if (status == ATTN_OK && record != NULL) *(attn__features *)record->saved = *features;
    return status;
}

static const attn_linear_attention_options defaults = {
    .struct_size = sizeof(attn_linear_attention_options),
    .map = ATTN_FEATURES_ELU,
    .features = ATTN_DERIVED,
    .derive_scale = 1,
    .scale = 1,
};

attn_status attn_linear_attention_options_init(attn_linear_attention_options *options, uint64_t size)
{
    return attn__options_init(options, size, &defaults, sizeof defaults);
}

static attn_status wrong(attn_context *ctx, const char *field, int64_t got, const char *expected)
{
    return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "options.%s: got %" PRId64 ", expected %s", field, got, expected);
}

static const attn__field fields[] = {ATTN__INT32(attn_linear_attention_options, map, ATTN_FEATURES_IDENTITY, ATTN_FEATURES_TRIGONOMETRIC),
                                     ATTN__INT32(attn_linear_attention_options, causal, 0, 1),
                                     ATTN__INT32(attn_linear_attention_options, independent, 0, 1),
                                     ATTN__INT32(attn_linear_attention_options, derive_scale, 0, 1),
                                     ATTN__INT64(attn_linear_attention_options, features, ATTN__DERIVED, 1, HUGE_VAL)};

static int random_map(const attn_linear_attention_options *o)
{
    return o->map == ATTN_FEATURES_POSITIVE || o->map == ATTN_FEATURES_TRIGONOMETRIC;
}

attn_status attn__linear_read(attn_context *ctx, const attn_linear_attention_options *options, int64_t size,
                              attn_linear_attention_options *o)
{
    attn_status status = attn__options_read(ctx, "options", options, &defaults, sizeof defaults, sizeof defaults, o);
    if (status == ATTN_OK) status = ATTN__CHECK(ctx, "options", o, fields);
    if (status != ATTN_OK) return status;
    if (o->map == ATTN_FEATURES_TRIGONOMETRIC && o->features != ATTN_DERIVED && o->features % 2 != 0)
        return wrong(ctx, "features", o->features, "an even number: a cosine and a sine for each direction");
    if (!o->derive_scale && (!(o->scale > 0) || !isfinite(o->scale)))
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "options.scale: got %g, expected a finite number over 0", o->scale);
    if (o->key_scale != NULL && o->map != ATTN_FEATURES_IDENTITY)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                          "options.key_scale: got a tensor, expected NULL with a map that is not IDENTITY");
    if (o->directions != NULL && !random_map(o))
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "options.directions: got a tensor, expected NULL with a map that draws none");
    if (!random_map(o)) {
        o->features = size;
    } else if (o->features == ATTN_DERIVED) {
        o->features = size > 0 ? 4 * size : 2; /* fits: four bytes and more an element do */
    }
    if (o->derive_scale) o->scale = size > 0 ? 1 / sqrt((double)size) : 1;
    o->scale = random_map(o) ? sqrt(o->scale) : 1;
    return ATTN_OK;
}

/* standard normal numbers by Box and Muller, two from each block of Philox, as in the kernel that fills parameters */
static double normal(uint64_t key, int64_t element)
{
    uint32_t word[4];
    uint64_t block = (uint64_t)element / 2;
    attn__philox(key, (uint32_t)block, (uint32_t)(block >> 32), 0, 0, word);
    double radius = sqrt(-2 * log1p(-attn__uniform53(word[0], word[1]))), angle = 2 * acos(-1.0) * attn__uniform53(word[2], word[3]);
    return radius * (element % 2 == 0 ? cos(angle) : sin(angle));
}

static double inner(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t c = 0; c < n; c++) sum += a[c] * b[c];
    return sum;
}

/* Row `row` of a group becomes orthogonal to those before it, which have length 1; twice, against rounding. */
static void make_orthogonal(double *group, int64_t row, int64_t size)
{
    double *w = group + row * size;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t before = 0; before < row; before++) {
            double along = inner(w, group + before * size, size);
            for (int64_t c = 0; c < size; c++) w[c] -= along * group[before * size + c];
        }
        double length = sqrt(inner(w, w, size));
        for (int64_t c = 0; c < size && length > 0; c++) w[c] /= length;
    }
}

static void store(const view *to, int64_t row, int64_t column, double value)
{
    int64_t at = row * to->row_stride + column;
    if (to->dtype == ATTN_FLOAT32)
        ((float *)to->data)[at] = (float)value;
    else
        ((double *)to->data)[at] = value;
}

/* orthogonal rows get the lengths of normal vectors drawn beside them, so that each row by itself is a normal vector */
attn_status attn__features_draw(attn_context *ctx, const attn_linear_attention_options *o, const view *to)
{
    int64_t size = to->width, bytes;
    uint64_t key = attn__mix(o->seed, attn__hash("feature directions")), lengths = attn__mix(key, 1);
    if (attn__multiply(size, o->independent ? 1 : size, &bytes) || attn__multiply(bytes, (int64_t)sizeof(double), &bytes))
        return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "directions");
    attn__mark mark = attn__arena_mark(ctx->scratch);
    double *group = attn__scratch(ctx, bytes);
    if (group == NULL) return attn__arena_status(ctx->scratch);
    for (int64_t f = 0; !ctx->dry && f < to->rows && size > 0; f++) {
        int64_t row = o->independent ? 0 : f % size;
        double *w = group + row * size, length = 0;
        for (int64_t c = 0; c < size; c++) {
            double other = o->independent ? 0 : normal(lengths, f * size + c);
            w[c] = normal(key, f * size + c);
            length += other * other;
        }
        if (!o->independent) make_orthogonal(group, row, size);
        for (int64_t c = 0; c < size; c++) store(to, f, c, o->independent ? w[c] : w[c] * sqrt(length));
    }
    attn__arena_rewind(ctx->scratch, mark);
    return ATTN_OK;
}

attn_status attn__features_of(attn_context *ctx, attn_tape *tape, const attn_linear_attention_options *o, int64_t size, int32_t dtype,
                              attn__features *out)
{
    int64_t count = o->map == ATTN_FEATURES_TRIGONOMETRIC ? o->features / 2 : o->features;
    attn__value directions;
    attn_status status;
    *out = (attn__features){.kind = o->map, .scale = o->scale, .directions = {.heads = 1, .dtype = dtype}};
    if (!random_map(o)) return ATTN_OK;
    if (o->directions == NULL) {
        status = attn__tape_temporary(ctx, tape, count, size, dtype, &directions);
        if (status == ATTN_OK) status = attn__features_draw(ctx, o, &directions.at);
    } else {
        status = attn__argument_input(ctx, tape, "options.directions", o->directions, dtype, &directions);
        if (status == ATTN_OK) status = attn__expect_shape(ctx, "options.directions", &directions.at, count, 1, size);
    }
    if (status == ATTN_OK) out->directions = directions.at;
    return status;
}

static attn_status feature_directions(attn_context *ctx, const attn_linear_attention_options *options, attn_tensor *directions)
{
    view to;
    attn_linear_attention_options o;
    attn_status status = attn__expect(ctx, "directions", directions, ATTN__MAGIC_TENSOR, "attn_tensor");
    if (status == ATTN_OK && directions->rank != 2)
        status = attn__fail(ctx, ATTN_ERROR_SHAPE, "directions: got rank %" PRId32 ", expected 2 ([m, size])", directions->rank);
    if (status == ATTN_OK) status = attn__rows(ctx, "directions", directions, 0, &to);
    if (status == ATTN_OK) status = attn__linear_read(ctx, options, to.width, &o);
    return status == ATTN_OK ? attn__features_draw(ctx, &o, &to) : status;
}

attn_status attn_feature_directions(attn_context *ctx, const attn_linear_attention_options *options, attn_tensor *directions)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, feature_directions(ctx, options, directions));
}

/* log_scale as dense [rows, heads] */
static attn_status read_scale(attn_context *ctx, attn_tape *tape, const attn_tensor *tensor, const view *x, const view *y,
                              const attn_linear_attention_options *o, void **out)
{
    view at;
    attn__value ignored;
    *out = NULL;
    if (tensor == NULL) return ATTN_OK;
    attn_status status = attn__rows(ctx, "log_scale", tensor, x->dtype, &at);
    if (status == ATTN_OK && !random_map(o))
        status = attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "log_scale: got a tensor, expected NULL with ELU");
    if (status == ATTN_OK) status = attn__expect_shape(ctx, "log_scale", &at, x->rows, 1, x->heads);
    if (status == ATTN_OK && !attn__view_dense(&at)) status = attn__fail(ctx, ATTN_ERROR_SHAPE, "log_scale: got gaps, expected dense rows");
    if (status == ATTN_OK) status = attn__expect_apart(ctx, "log_scale", &at, "x", x);
    if (status == ATTN_OK) status = attn__expect_apart(ctx, "log_scale", &at, "y", y);
    if (status == ATTN_OK) status = attn__tape_output(ctx, tape, "log_scale", tensor, &at, &ignored);
    if (status == ATTN_OK) *out = at.data;
    return status;
}

static attn_status feature_map(attn_context *ctx, attn_tape *tape, const attn_tensor *x, const attn_linear_attention_options *options,
                               attn_tensor *log_scale, attn_tensor *y)
{
    view from, to;
    attn__value vx, vy;
    attn_linear_attention_options o;
    attn__features features;
    void *scales = NULL;
    attn_status status = attn__tape_check(ctx, tape);
    if (status == ATTN_OK) status = attn__heads(ctx, "x", x, 0, &from);
    if (status == ATTN_OK) status = attn__heads(ctx, "y", y, from.dtype, &to);
    if (status == ATTN_OK) status = attn__linear_read(ctx, options, from.width, &o);
    if (status == ATTN_OK && o.map == ATTN_FEATURES_IDENTITY) status = wrong(ctx, "map", o.map, "a map that is not IDENTITY");
    if (status == ATTN_OK) status = attn__expect_shape(ctx, "y", &to, from.rows, from.heads, o.features);
    if (status == ATTN_OK) status = attn__expect_apart(ctx, "y", &to, "x", &from);
    if (status == ATTN_OK) status = read_scale(ctx, tape, log_scale, &from, &to, &o, &scales);
    if (status == ATTN_OK) status = attn__tape_input(ctx, tape, "x", x, &from, &vx);
    if (status == ATTN_OK) status = attn__tape_output(ctx, tape, "y", y, &to, &vy);
    if (status == ATTN_OK) status = attn__features_of(ctx, tape, &o, from.width, from.dtype, &features);
    return status == ATTN_OK ? attn__feature_map(ctx, tape, &vx, &features, scales, &vy) : status;
}

attn_status attn_feature_map(attn_context *ctx, attn_tape *tape, const attn_tensor *x, const attn_linear_attention_options *options,
                             attn_tensor *log_scale, attn_tensor *y)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, feature_map(ctx, tape, x, options, log_scale, y));
}
