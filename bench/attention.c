/* attn-bench attention: forward and backward of attention by mask and length: time, memory beyond what the caller holds, slope. */
#include <stdio.h>
#include "bench.h"
#include "bench_attention.h"

typedef struct problem {
    attn_context *ctx;
    attn_tape *tape;
    attn_mask *mask;
    attn_tensor *in[3], *gradient[3], *output, *d_output, *projection;
    int32_t form;
} problem;

static attn_tensor *filled(attn_context *ctx, const bench_attention_run *run, int64_t n, uint64_t seed)
{
    const int64_t shape[3] = {n, run->heads, run->size};
    return bench_filled(ctx, 3, shape, seed, 1);
}

static attn_mask *join(attn_context *ctx, attn_mask *a, attn_mask *b, int both)
{
    attn_mask *out;
    bench_fail(ctx, (both ? attn_mask_intersection : attn_mask_union)(ctx, a, b, &out), "mask");
    attn_mask_free(a);
    attn_mask_free(b);
    return out;
}

static attn_mask *full(attn_context *ctx)
{
    (void)ctx;
    return NULL;
}
static attn_mask *causal(attn_context *ctx)
{
    attn_mask *out;
    bench_fail(ctx, attn_mask_causal(ctx, ATTN_ALIGN_LAST, &out), "mask");
    return out;
}
static attn_mask *window(attn_context *ctx)
{
    attn_mask *out;
    bench_fail(ctx, attn_mask_window(ctx, ATTN_ALIGN_LAST, 511, 0, 1, &out), "mask");
    return out;
}
static attn_mask *longformer(attn_context *ctx)
{
    attn_mask *near, *tokens;
    const int64_t first[] = {0, 1};
    bench_fail(ctx, attn_mask_window(ctx, ATTN_ALIGN_LAST, 256, 256, 1, &near), "mask");
    bench_fail(ctx, attn_mask_global(ctx, ATTN_ALIGN_LAST, 2, first, &tokens), "mask");
    return join(ctx, near, tokens, 0);
}
static attn_mask *bigbird(attn_context *ctx)
{
    attn_mask *blocks;
    bench_fail(ctx, attn_mask_random(ctx, ATTN_ALIGN_LAST, 64, 3, 1, &blocks), "mask");
    return join(ctx, longformer(ctx), blocks, 0);
}
static attn_mask *fixed(attn_context *ctx)
{
    attn_mask *out;
    bench_fail(ctx, attn_mask_fixed(ctx, ATTN_ALIGN_LAST, ATTN_DERIVED, 8, 3, &out), "mask");
    return out;
}
static attn_mask *logarithmic(attn_context *ctx)
{
    attn_mask *out;
    bench_fail(ctx, attn_mask_logarithmic(ctx, ATTN_ALIGN_LAST, 0, &out), "mask");
    return out;
}
/* at 4,096 about a tenth of the blocks of 64 by 64 */
static attn_mask *tenth(attn_context *ctx)
{
    attn_mask *out;
    bench_fail(ctx, attn_mask_random(ctx, ATTN_ALIGN_LAST, 64, 6, 1, &out), "mask");
    return out;
}

const bench_variant bench_variants[] = {
    {"full", "n^2", full, 65536, ATTN_FORM_SOFTMAX},
    {"causal", "n^2 / 2", causal, 65536, ATTN_FORM_SOFTMAX},
    {"window", "512 n", window, 65536, ATTN_FORM_SOFTMAX},
    {"longformer", "515 n", longformer, 65536, ATTN_FORM_SOFTMAX},
    {"bigbird", "707 n", bigbird, 65536, ATTN_FORM_SOFTMAX},
    {"fixed", "n^1.5", fixed, 65536, ATTN_FORM_SOFTMAX},
    {"logarithmic", "n log n", logarithmic, 65536, ATTN_FORM_SOFTMAX},
    {"tenth", "384 n", tenth, 65536, ATTN_FORM_SOFTMAX},
    {"linear", "n", full, 65536, ATTN_FORM_LINEAR},
    {"linear-causal", "n", causal, 65536, ATTN_FORM_LINEAR},
    {"performer", "n", full, 65536, ATTN_FORM_PERFORMER},
    {"performer-causal", "n", causal, 65536, ATTN_FORM_PERFORMER},
    {"linformer", "256 n", full, 65536, ATTN_FORM_LINFORMER},
    {NULL, NULL, NULL, 0, 0},
};

static void attend(problem *p)
{
    attn_linear_attention_options o;
    if (p->form == ATTN_FORM_SOFTMAX) {
        bench_fail(p->ctx, attn_dot_product_attention(p->ctx, p->tape, p->in[0], p->in[1], p->in[2], NULL, NULL, p->mask, NULL, p->output),
                   "forward");
        return;
    }
    if (p->form == ATTN_FORM_LINFORMER) {
        bench_fail(
            p->ctx,
            attn_linformer_attention(p->ctx, p->tape, p->in[0], p->in[1], p->in[2], p->projection, NULL, NULL, NULL, NULL, NULL, p->output),
            "forward");
        return;
    }
    attn_linear_attention_options_init(&o, sizeof o);
    o.map = p->form == ATTN_FORM_LINEAR ? ATTN_FEATURES_ELU : ATTN_FEATURES_POSITIVE;
    o.causal = p->mask != NULL;
    bench_fail(p->ctx, attn_linear_attention(p->ctx, p->tape, p->in[0], p->in[1], p->in[2], NULL, NULL, &o, p->output), "forward");
}

static void step(void *data)
{
    problem *p = data;
    bench_fail(p->ctx, attn_tape_begin(p->ctx, p->tape, NULL), "tape");
    for (int i = 0; i < 3; i++) bench_fail(p->ctx, attn_tape_watch(p->ctx, p->tape, p->in[i], p->gradient[i]), "watch");
    attend(p);
    const attn_tensor *outputs[] = {p->output}, *seeds[] = {p->d_output};
    bench_fail(p->ctx, attn_tape_backward(p->ctx, p->tape, 1, outputs, seeds, 0, NULL), "backward");
}

static int64_t resident(void)
{
    char line[256];
    long long kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status != NULL && fgets(line, sizeof line, status) != NULL)
        if (sscanf(line, "VmHWM: %lld", &kib) == 1) break;
    if (status != NULL) fclose(status);
    return (int64_t)kib * 1024;
}

bench_point bench_attention_point(const bench_attention_run *run, const bench_variant *variant, int64_t n)
{
    problem p = {0};
    bench_context opened = bench_open(run->threads);
    attn_memory_report m = {.struct_size = sizeof m};
    bench_point out = {.n = n};
    p.ctx = opened.ctx;
    for (int i = 0; i < 3; i++) {
        p.in[i] = filled(p.ctx, run, n, (uint64_t)i + 1);
        p.gradient[i] = filled(p.ctx, run, n, 7);
    }
    p.output = filled(p.ctx, run, n, 8);
    p.d_output = filled(p.ctx, run, n, 9);
    p.mask = variant->make(p.ctx);
    p.form = variant->form;
    if (p.form == ATTN_FORM_LINFORMER) {
        const int64_t shape[2] = {256, n};
        bench_fail(p.ctx, attn_tensor_create(p.ctx, ATTN_FLOAT32, 2, shape, &p.projection), "tensor");
        float *e = attn_tensor_data(p.projection);
        for (int64_t i = 0; i < 256 * n; i++) e[i] = (float)(i * 7919 % 1013) / 1013.0f / (float)n;
    }
    bench_fail(p.ctx, attn_tape_create(p.ctx, &p.tape), "tape");
    bench_fail(p.ctx, attn_context_reset_peak(p.ctx), "memory");
    bench_fail(p.ctx, attn_context_memory(p.ctx, &m), "memory");
    int64_t held = m.live, process = resident();
    out.seconds = bench_repeat(run->seconds, step, &p);
    bench_fail(p.ctx, attn_context_memory(p.ctx, &m), "memory");
    out.bytes = m.peak - held;
    out.process_bytes = resident() - process;
    attn_layout *layout;
    const attn_segment whole = {0, n, 0, 0};
    bench_fail(p.ctx, attn_layout_create(p.ctx, 1, &layout), "layout");
    bench_fail(p.ctx, attn_layout_set(p.ctx, layout, 1, &whole), "layout");
    bench_fail(p.ctx, attn_mask_pairs(p.ctx, p.mask, 1, layout, layout, &out.seen, &out.listed), "pairs");
    attn_layout_free(layout);
    for (int i = 0; i < 3; i++) attn_tensor_free(p.in[i]), attn_tensor_free(p.gradient[i]);
    attn_tensor_free(p.output), attn_tensor_free(p.d_output), attn_tensor_free(p.projection);
    attn_mask_free(p.mask);
    attn_tape_free(p.tape);
    bench_close(&opened);
    return out;
}
