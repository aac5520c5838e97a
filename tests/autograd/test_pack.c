#include <attn/attn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/drawn.h"
#include "support/model.h"

/* Packing and unpacking against plain loops, on all types, ranks and backends: layouts in any order with rows of no segment between them,
   rows with gaps in memory on either side. The whole memory is compared, so what should not be written is seen too. */
enum { DRAWS = 400, LINES = 4, LONGEST = 5, MEMORY = 4096 };

typedef struct side {
    attn_tensor *tensor;
    int64_t line, token; /* elements from one to the next */
    unsigned char bytes[MEMORY], want[MEMORY];
} side;

typedef struct drawn_case {
    attn_context *ctx;
    int32_t dtype, inner; /* inner: axes of a token */
    int64_t batch, longest, rows, extent[2], gap[2];
    attn_segment segments[LINES];
    attn_layout *layout;
    side padded, packed;
} drawn_case;

/* segments in a drawn order, apart by up to two rows */
static void draw_layout(random_state *random, drawn_case *c)
{
    int64_t order[LINES] = {0, 1, 2, 3};
    for (int64_t i = c->batch - 1; i > 0; i--) {
        const int64_t other = random_integer(random, 0, i + 1), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    for (int64_t i = 0; i < c->batch; i++) {
        c->rows += random_integer(random, 0, 3);
        c->segments[order[i]] = (attn_segment){c->rows, random_integer(random, 0, c->longest + 1), 0, order[i]};
        c->rows += c->segments[order[i]].length;
    }
    OK(c->ctx, attn_layout_create(c->ctx, c->batch, &c->layout));
    OK(c->ctx, attn_layout_set(c->ctx, c->layout, c->batch, c->segments));
}

/* lines: of a padded batch, or -1. A row of the last axis is followed by `gap` elements that belong to nobody. */
static void wrap(drawn_case *c, side *s, int64_t lines, int64_t tokens, int64_t gap)
{
    int64_t shape[4], strides[4], step = 1;
    int32_t rank = 0;
    if (lines >= 0) shape[rank++] = lines;
    shape[rank++] = tokens;
    for (int32_t i = 0; i < c->inner; i++) shape[rank++] = c->extent[i];
    for (int32_t i = rank; i-- > 0;) {
        strides[i] = step;
        step *= shape[i];
        if (i == rank - 1) step += gap;
    }
    s->line = lines >= 0 ? strides[0] : 0;
    s->token = strides[lines >= 0];
    OK(c->ctx, attn_tensor_wrap(c->ctx, c->dtype, rank, shape, strides, s->bytes, &s->tensor));
}

static int64_t element_bytes(int32_t dtype)
{
    return dtype == ATTN_FLOAT64 || dtype == ATTN_INT64 ? 8 : 4;
}

/* numbers, no two the same: floats are copied as numbers, and bytes of any kind may not be any */
static void fill(const drawn_case *c, side *s, int64_t from)
{
    for (int64_t i = 0; i < MEMORY / element_bytes(c->dtype); i++) {
        const float f = (float)(from + i);
        const double d = (double)(from + i);
        const int32_t n = (int32_t)(from + i);
        const int64_t m = from + i;
        const void *at = c->dtype == ATTN_FLOAT32 ? &f : c->dtype == ATTN_FLOAT64 ? &d : c->dtype == ATTN_INT32 ? &n : (const void *)&m;
        memcpy(s->bytes + i * element_bytes(c->dtype), at, (size_t)element_bytes(c->dtype));
    }
    memcpy(s->want, s->bytes, MEMORY);
}

/* one token's element e to where it belongs, or 0 there */
static void move(const drawn_case *c, side *to, int64_t at, const side *from, int64_t place)
{
    const int64_t bytes = element_bytes(c->dtype), width = c->inner > 0 ? c->extent[c->inner - 1] : 1,
                  groups = c->inner > 1 ? c->extent[0] : 1;
    const int64_t to_gap = c->inner > 0 ? to->token / groups : 1, from_gap = c->inner > 0 && from ? from->token / groups : 1;
    for (int64_t g = 0; g < groups; g++)
        for (int64_t e = 0; e < width; e++) {
            unsigned char *out = to->want + (at + g * to_gap + e) * bytes;
            if (from)
                memcpy(out, from->bytes + (place + g * from_gap + e) * bytes, (size_t)bytes);
            else
                memset(out, 0, (size_t)bytes);
        }
}

static void expect(const side *s, const char *what)
{
    for (int i = 0; i < MEMORY; i++)
        if (s->bytes[i] != s->want[i]) fail_msg("%s: byte %d is %d, expected %d", what, i, s->bytes[i], s->want[i]);
}

static void run_case(drawn_case *c)
{
    wrap(c, &c->padded, c->batch, c->longest, c->gap[0]);
    wrap(c, &c->packed, -1, c->rows, c->inner > 0 ? c->gap[1] : 0);
    fill(c, &c->padded, 1);
    fill(c, &c->packed, 100000);
    for (int64_t i = 0; i < c->batch; i++)
        for (int64_t t = 0; t < c->segments[i].length; t++)
            move(c, &c->packed, (c->segments[i].start + t) * c->packed.token, &c->padded, i * c->padded.line + t * c->padded.token);
    OK(c->ctx, attn_pack(c->ctx, c->padded.tensor, c->layout, c->packed.tensor));
    expect(&c->padded, "padded, which is read");
    expect(&c->packed, "packed");
    fill(c, &c->padded, 200000);
    for (int64_t i = 0; i < c->batch; i++)
        for (int64_t t = 0; t < c->longest; t++)
            move(c, &c->padded, i * c->padded.line + t * c->padded.token, t < c->segments[i].length ? &c->packed : NULL,
                 (c->segments[i].start + t) * c->packed.token);
    OK(c->ctx, attn_unpack(c->ctx, c->packed.tensor, c->layout, c->padded.tensor));
    expect(&c->padded, "padded");
    expect(&c->packed, "packed, which is read");
}

static void test_drawn(void **state)
{
    (void)state;
    for (int64_t i = drawn_first(); i < drawn_end(DRAWS); i++) {
        random_state random = {(uint64_t)i};
        static drawn_case c;
        memset(&c, 0, sizeof c);
        c.dtype = (int32_t)AMONG(&random, ATTN_FLOAT32, ATTN_FLOAT64, ATTN_INT32, ATTN_INT64);
        c.ctx = model_context(c.dtype == ATTN_FLOAT64 || drawn_once_in(&random, 2) ? ATTN_BACKEND_REFERENCE : ATTN_BACKEND_BLAS, 1, 0);
        c.inner = (int32_t)random_integer(&random, 0, 3);
        c.batch = random_integer(&random, 1, LINES + 1), c.longest = random_integer(&random, 1, LONGEST + 1);
        for (int k = 0; k < 2; k++) c.extent[k] = random_integer(&random, 1, 4), c.gap[k] = AMONG(&random, 0, 0, 1, 3);
        draw_layout(&random, &c);
        c.rows += random_integer(&random, 0, 2);
        printf("draw %d: type %d, %d axes, batch %d, longest %d, rows %d, gaps %d %d\n", (int)i, c.dtype, c.inner, (int)c.batch,
               (int)c.longest, (int)c.rows, (int)c.gap[0], (int)c.gap[1]);
        run_case(&c);
        attn_tensor_free(c.padded.tensor);
        attn_tensor_free(c.packed.tensor);
        attn_layout_free(c.layout);
        attn_context_free(c.ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_drawn)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
