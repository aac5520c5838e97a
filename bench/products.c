#include <cblas.h>
#include <stdlib.h>
#include <string.h>
#include "bench.h"
#include "core/context.h"

/* One product C [m, n] = op(A) op(B), cut along the longer side of C to one part a thread. */
typedef struct product {
    int64_t m, n, k;
    int ta, tb;
    float *a, *b, *c;
} product;
/* Attention of one layer: per sequence and head, blocks of 64 by 64. */
typedef struct blocks {
    int64_t sequences, heads, size, width, length;
    int causal;
    float *q, *k, *v, *o;
} blocks;
typedef struct entry {
    int is_blocks, first, count;
    product p;
    blocks b;
} entry; /* blocks: which of the 7 kinds */

struct bench_products {
    entry *at;
    int64_t count;
    double flop;
    int32_t threads;
    float *scores;
    void *buffers[4096];
    int64_t buffers_count;
};

static float *buffer(bench_products *p, int64_t elements)
{
    float *made = aligned_alloc(64, (size_t)((elements * 4 + 63) / 64 * 64));
    for (int64_t i = 0; i < elements; i++) made[i] = 0.01f * (float)(i % 17 - 8);
    p->buffers[p->buffers_count++] = made;
    return made;
}

static void add(bench_products *p, int64_t m, int64_t n, int64_t k, int ta, int tb, float *a, float *b, float *c)
{
    p->at[p->count++] = (entry){.p = {m, n, k, ta, tb, a, b, c}};
    p->flop += 2.0 * (double)m * (double)n * (double)k;
}

typedef struct linear_buffers {
    int64_t rows, in, out;
    float *x, *w, *y, *dx, *dw, *dy;
} linear_buffers;

static linear_buffers linear(bench_products *p, int64_t rows, int64_t in, int64_t out)
{
    linear_buffers l = {rows, in, out, buffer(p, rows * in), buffer(p, out * in), buffer(p, rows * out), NULL, buffer(p, out * in), NULL};
    l.dx = buffer(p, rows * in);
    l.dy = buffer(p, rows * out);
    return l;
}

static void forward(bench_products *p, const linear_buffers *l)
{
    add(p, l->rows, l->out, l->in, 0, 1, l->x, l->w, l->y);
}

static void backward(bench_products *p, const linear_buffers *l)
{
    add(p, l->rows, l->in, l->out, 0, 0, l->dy, l->w, l->dx);
    add(p, l->out, l->in, l->rows, 1, 0, l->dy, l->x, l->dw);
}

/* the layers of one step in order: linear layers and attentions; a NULL linear is an attention */
typedef struct stage {
    int is_attention, causal;
    linear_buffers l;
    blocks b;
} stage;

static void add_blocks(bench_products *p, const stage *s, int first, int count)
{
    p->at[p->count++] = (entry){.is_blocks = 1, .first = first, .count = count, .b = s->b};
    double side = (double)((s->b.length + 63) / 64), tiles = s->b.causal ? side * (side + 1) / 2 : side * side;
    p->flop += 2.0 * count * 64 * 64 * (double)s->b.size * tiles * (double)(s->b.sequences * s->b.heads);
}

static stage attention_stage(bench_products *p, const bench_config *c, int causal)
{
    int64_t rows = c->batch * c->length;
    stage s = {.is_attention = 1, .causal = causal};
    s.b = (blocks){c->batch,
                   c->heads,
                   c->width / c->heads,
                   c->width,
                   c->length,
                   causal,
                   buffer(p, rows * c->width),
                   buffer(p, rows * c->width),
                   buffer(p, rows * c->width),
                   buffer(p, rows * c->width)};
    return s;
}

static stage linear_stage(bench_products *p, int64_t rows, int64_t in, int64_t out)
{
    return (stage){.l = linear(p, rows, in, out)};
}

static int64_t stages_of(bench_products *p, const bench_config *c, stage *s)
{
    int64_t rows = c->batch * c->length, w = c->width, n = 0;
    for (int64_t i = 0; i < c->encoder_layers + c->decoder_layers; i++) {
        int decoder = i >= c->encoder_layers;
        s[n++] = linear_stage(p, rows, w, 3 * w);
        s[n++] = attention_stage(p, c, decoder);
        s[n++] = linear_stage(p, rows, w, w);
        if (decoder && c->encoder_layers > 0) {
            s[n++] = linear_stage(p, rows, w, w);
            s[n++] = linear_stage(p, rows, w, 2 * w);
            s[n++] = attention_stage(p, c, 0);
            s[n++] = linear_stage(p, rows, w, w);
        }
        s[n++] = linear_stage(p, rows, w, c->feed_forward);
        s[n++] = linear_stage(p, rows, c->feed_forward, w);
    }
    s[n++] = linear_stage(p, rows, w, c->vocabulary);
    return n;
}

bench_products *bench_products_create(attn_context *ctx, const bench_config *c)
{
    static stage s[512];
    bench_products *p = calloc(1, sizeof *p);
    p->at = calloc(4096, sizeof *p->at);
    attn_context_threads(ctx, &p->threads);
    p->scores = buffer(p, 64 * 64 * 64);
    int64_t n = stages_of(p, c, s);
    for (int64_t i = 0; i < n; i++) { /* attention forward: 2 products a block */
        if (!s[i].is_attention)
            forward(p, &s[i].l);
        else
            add_blocks(p, &s[i], 0, 2);
    }
    for (int64_t i = n - 1; i >= 0; i--) { /* and 5 backward */
        if (!s[i].is_attention)
            backward(p, &s[i].l);
        else
            add_blocks(p, &s[i], 2, 5);
    }
    return p;
}

typedef struct job {
    const entry *e;
    int32_t parts;
    float *scores;
} job;

static void product_tile(void *data, int64_t tile, int32_t worker)
{
    const job *j = data;
    const product *p = &j->e->p;
    (void)worker;
    int64_t side = p->m >= p->n ? p->m : p->n, first = side * tile / j->parts / 16 * 16,
            end = tile + 1 == j->parts ? side : side * (tile + 1) / j->parts / 16 * 16;
    int64_t m = p->m >= p->n ? end - first : p->m, n = p->m >= p->n ? p->n : end - first, row = p->m >= p->n ? first : 0,
            column = p->m >= p->n ? 0 : first;
    int64_t lda = p->ta ? p->m : p->k, ldb = p->tb ? p->k : p->n;
    const float *a = p->ta ? p->a + row : p->a + row * lda, *b = p->tb ? p->b + column * ldb : p->b + column;
    if (m > 0 && n > 0)
        cblas_sgemm(CblasRowMajor, p->ta ? CblasTrans : CblasNoTrans, p->tb ? CblasTrans : CblasNoTrans, (int)m, (int)n, (int)p->k, 1, a,
                    (int)lda, b, (int)ldb, 0, p->c + row * p->n + column, (int)p->n);
}

/* S, PV; S, dP, dQ, dK, dV: scores-like (64 by 64, inner size), output-like (64 by size, inner 64), and transposed */
static const int kinds[7] = {0, 1, 0, 0, 1, 2, 2};

/* one (sequence, head), block by block */
static void block_tile(void *data, int64_t tile, int32_t worker)
{
    const job *j = data;
    const blocks *b = &j->e->b;
    int64_t sequence = tile / b->heads, head = tile % b->heads, base = sequence * b->length * b->width + head * b->size;
    float *s = j->scores + worker * 64 * 64;
    int w = (int)b->width, d = (int)b->size;
    for (int64_t i = 0; i < b->length; i += 64)
        for (int64_t k = 0; k < b->length && (!b->causal || k <= i); k += 64)
            for (int n = j->e->first; n < j->e->first + j->e->count; n++) {
                float *q = b->q + base + i * w, *key = b->k + base + k * w, *o = b->o + base + i * w, *v = b->v + base + k * w;
                if (kinds[n] == 0)
                    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, 64, 64, d, 1, q, w, key, w, 0, s, 64);
                else if (kinds[n] == 1)
                    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 64, d, 64, 1, s, 64, key, w, k > 0, o, w);
                else
                    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, 64, d, 64, 1, s, 64, q, w, i > 0, v, w);
            }
}

void bench_products_run(attn_context *ctx, bench_products *p)
{
    attn__enter(ctx);
    for (int64_t i = 0; i < p->count; i++) {
        const entry *e = &p->at[i];
        job j = {e, p->threads, p->scores};
        if (e->is_blocks)
            attn__run(ctx, e->b.sequences * e->b.heads, block_tile, &j);
        else
            attn__run(ctx, p->threads, product_tile, &j);
    }
    attn__leave(ctx, ATTN_OK);
}

double bench_products_gflop(const bench_products *p)
{
    return p->flop * 1e-9;
}

void bench_products_free(bench_products *p)
{
    for (int64_t i = 0; i < p->buffers_count; i++) free(p->buffers[i]);
    free(p->at);
    free(p);
}
