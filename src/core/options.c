#include "options.h"
#include <string.h>

#define LARGEST_STRUCT 4096 /* a larger struct_size is not a newer version but an uninitialised struct */

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t size_of(const void *options)
{
    uint64_t size;
    memcpy(&size, options, sizeof size);
    return size;
}

attn_status attn__options_init(void *options, uint64_t size, const void *defaults, uint64_t own_size)
{
    if (options == NULL || size < sizeof size || size > LARGEST_STRUCT) return ATTN_ERROR_INVALID_ARGUMENT;
    memset(options, 0, (size_t)size);
    memcpy(options, defaults, (size_t)smaller(size, own_size));
    memcpy(options, &size, sizeof size);
    return ATTN_OK;
}

static attn_status check_size(attn_context *ctx, const char *argument, uint64_t size, uint64_t smallest)
{
    if (size >= smallest && size <= LARGEST_STRUCT) return ATTN_OK;
    return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "%s: got struct_size %llu, expected %llu to %d (set it before the call)", argument,
                      (unsigned long long)size, (unsigned long long)smallest, LARGEST_STRUCT);
}

attn_status attn__options_read(attn_context *ctx, const char *argument, const void *options, const void *defaults, uint64_t own_size,
                               uint64_t smallest, void *out)
{
    memcpy(out, defaults, (size_t)own_size);
    if (options != NULL) {
        uint64_t size = size_of(options);
        attn_status status = check_size(ctx, argument, size, smallest);
        if (status != ATTN_OK) return status;
        for (uint64_t i = own_size; i < size; i++) {
            if (((const unsigned char *)options)[i] == 0) continue;
            return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                              "%s: got a field at byte %llu that this library does not know, it is older than its caller (expected zeros)",
                              argument, (unsigned long long)i);
        }
        memcpy(out, options, (size_t)smaller(size, own_size));
    }
    memcpy(out, &own_size, sizeof own_size);
    return ATTN_OK;
}

attn_status attn__report_check(attn_context *ctx, const char *argument, const void *report, uint64_t smallest)
{
    if (report == NULL) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "%s: got NULL, expected a struct to fill", argument);
    return check_size(ctx, argument, size_of(report), smallest);
}

attn_status attn__report_write(attn_context *ctx, const char *argument, void *report, const void *values, uint64_t own_size,
                               uint64_t smallest)
{
    attn_status status = attn__report_check(ctx, argument, report, smallest);
    if (status != ATTN_OK) return status;
    uint64_t size = size_of(report);
    memset(report, 0, (size_t)size);
    memcpy(report, values, (size_t)smaller(size, own_size));
    memcpy(report, &size, sizeof size);
    return ATTN_OK;
}

double attn__field_get(const void *options, const attn__field *field)
{
    const char *at = (const char *)options + field->offset;
    int32_t code;
    int64_t size;
    double real;
    switch (field->kind) {
    case ATTN__FIELD_INT32: memcpy(&code, at, sizeof code); return code;
    case ATTN__FIELD_INT64: memcpy(&size, at, sizeof size); return (double)size;
    default: memcpy(&real, at, sizeof real); return real;
    }
}

static int fits(double value, const attn__field *f)
{
    if ((f->flags & ATTN__DERIVED) && value == ATTN_DERIVED) return 1;
    if ((f->flags & ATTN__ABOVE) && value == f->least) return 0;
    if ((f->flags & ATTN__BELOW) && value == f->most) return 0;
    return isfinite(value) && value >= f->least && value <= f->most;
}

static attn_status out_of_range(attn_context *ctx, const char *argument, double value, const attn__field *f)
{
    const char *derived = f->flags & ATTN__DERIVED ? ", or -1" : "";
    if (isinf(f->least))
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "%s.%s: got %.17g, expected a finite number", argument, f->name, value);
    if (isinf(f->most))
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "%s.%s: got %.17g, expected a finite number of at least %g%s", argument,
                          f->name, value, f->least, derived);
    return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "%s.%s: got %.17g, expected %s%.10g to %s%.10g%s", argument, f->name, value,
                      f->flags & ATTN__ABOVE ? "above " : "", f->least, f->flags & ATTN__BELOW ? "below " : "", f->most, derived);
}

attn_status attn__options_check(attn_context *ctx, const char *argument, const void *options, const attn__field *fields, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        double value = attn__field_get(options, &fields[i]);
        if (!fits(value, &fields[i])) return out_of_range(ctx, argument, value, &fields[i]);
    }
    return ATTN_OK;
}
