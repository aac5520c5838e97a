#ifndef ATTN_CORE_OPTIONS_H
#define ATTN_CORE_OPTIONS_H
#include <math.h>
#include <stddef.h>
#include "context.h"

/* An options struct as a table of data: what a caller may give in each field. Checks, presets and files all go by it. */
enum { ATTN__FIELD_INT32 = 0, ATTN__FIELD_INT64 = 1, ATTN__FIELD_DOUBLE = 2 };
/* also legal: ATTN_DERIVED (-1); not legal: the ends of the range */
enum { ATTN__DERIVED = 1, ATTN__ABOVE = 2, ATTN__BELOW = 4 };
typedef struct attn__field {
    const char *name;
    int32_t kind, flags;
    uint64_t offset;
    double least, most; /* infinite: any finite number */
} attn__field;

#define ATTN__INT32(type, field, least, most) \
    { \
#field, ATTN__FIELD_INT32, 0, offsetof(type, field), least, most \
    }
#define ATTN__INT64(type, field, flags, least, most) \
    { \
#field, ATTN__FIELD_INT64, flags, offsetof(type, field), least, most \
    }
#define ATTN__REAL(type, field, flags, least, most) \
    { \
#field, ATTN__FIELD_DOUBLE, flags, offsetof(type, field), least, most \
    }

double attn__field_get(const void *options, const attn__field *field);
/* INVALID_ARGUMENT, "options.heads: got 0, expected 1 to 8", for the first field out of its range; NaN is in none */
attn_status attn__options_check(attn_context *ctx, const char *argument, const void *options, const attn__field *fields, uint64_t count);
#define ATTN__CHECK(ctx, argument, options, fields) attn__options_check(ctx, argument, options, fields, sizeof(fields) / sizeof *(fields))
#endif
