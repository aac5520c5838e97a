#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bench.h"

typedef struct run {
    const bench_config *config;
    int32_t threads, rounds;
    int json;
} run;
typedef struct result {
    double step, products, ratio, gflop;
    int64_t allocations;
    int32_t threads;
    double loss;
} result;

static attn_tensor *tokens(attn_context *ctx, int64_t rows, int64_t vocabulary, uint32_t seed)
{
    attn_tensor *made = NULL;
    bench_fail(ctx, attn_tensor_create(ctx, ATTN_INT32, 1, &rows, &made), "tokens");
    int32_t *at = attn_tensor_data(made);
    for (int64_t i = 0; i < rows; i++) at[i] = (int32_t)((seed = seed * 1664525u + 1013904223u) >> 8) % (int32_t)vocabulary;
    return made;
}

typedef struct session {
    attn_transformer *model;
    attn_trainer *trainer;
    attn_tensor *source, *target, *labels;
    attn_layout *layout;
    attn_batch batch;
} session;

static void open_session(attn_context *ctx, const bench_config *c, session *s)
{
    attn_transformer_options o;
    attn_optimizer_options a;
    attn_trainer_options t;
    int64_t rows = c->batch * c->length, lengths[64];
    bench_config_options(ctx, c, &o);
    bench_fail(ctx, attn_transformer_create(ctx, &o, &s->model), "model");
    attn_optimizer_options_init(&a, sizeof a);
    a.optimizer = c->adam;
    a.rate = 1e-4;
    a.clip = 1;
    if (c->adam == ATTN_OPTIMIZER_ADAMW) a.weight_decay = 0.1;
    attn_trainer_options_init(&t, sizeof t);
    t.label_smoothing = c->label_smoothing;
    bench_fail(ctx, attn_trainer_create(ctx, s->model, NULL, &a, NULL, &t, &s->trainer), "trainer");
    for (int64_t i = 0; i < c->batch; i++) lengths[i] = c->length;
    bench_fail(ctx, attn_layout_create(ctx, c->batch, &s->layout), "layout");
    bench_fail(ctx, attn_layout_set_lengths(ctx, s->layout, c->batch, lengths, 0), "layout");
    s->source = tokens(ctx, rows, c->vocabulary, 1);
    s->target = tokens(ctx, rows, c->vocabulary, 2);
    s->labels = tokens(ctx, rows, c->vocabulary, 3);
    attn_batch_init(&s->batch, sizeof s->batch);
    if (c->encoder_layers > 0) {
        s->batch.source = s->source;
        s->batch.source_layout = s->layout;
    }
    s->batch.target = s->target;
    s->batch.labels = s->labels;
    s->batch.target_layout = s->layout;
    bench_fail(ctx, attn_trainer_reserve(ctx, s->trainer, rows, c->length), "reserve");
}

static void close_session(session *s)
{
    attn_trainer_free(s->trainer);
    attn_transformer_free(s->model);
    attn_tensor_free(s->source);
    attn_tensor_free(s->target);
    attn_tensor_free(s->labels);
    attn_layout_free(s->layout);
}

static double one_step(attn_context *ctx, session *s, double *loss)
{
    attn_trainer_report report;
    attn_trainer_report_init(&report, sizeof report);
    double begin = bench_seconds();
    bench_fail(ctx, attn_trainer_step(ctx, s->trainer, &s->batch, &report), "step");
    *loss = report.loss;
    return bench_seconds() - begin;
}

static double one_pass(attn_context *ctx, bench_products *products)
{
    double begin = bench_seconds();
    bench_products_run(ctx, products);
    return bench_seconds() - begin;
}

/* Steps and products in turns; the ratio is the median of each turn's ratio. */
static result measure(const run *r)
{
    bench_context opened = bench_open(r->threads);
    attn_context *ctx = opened.ctx;
    attn_memory_report before = {.struct_size = sizeof before}, after = before;
    session s;
    result out = {.threads = opened.given};
    memset(&s, 0, sizeof s);
    open_session(ctx, r->config, &s);
    bench_products *products = bench_products_create(ctx, r->config);
    double *step = calloc(3 * (size_t)r->rounds, sizeof *step), *bare = step + r->rounds, *ratio = bare + r->rounds;
    for (int i = 0; i < 2; i++) {
        one_step(ctx, &s, &out.loss);
        one_pass(ctx, products);
    }
    bench_fail(ctx, attn_context_memory(ctx, &before), "memory");
    for (int32_t i = 0; i < r->rounds; i++) {
        step[i] = one_step(ctx, &s, &out.loss);
        bare[i] = one_pass(ctx, products);
        ratio[i] = step[i] / bare[i];
    }
    bench_fail(ctx, attn_context_memory(ctx, &after), "memory");
    out.allocations = after.allocations - before.allocations;
    out.step = bench_median(step, r->rounds);
    out.products = bench_median(bare, r->rounds);
    out.ratio = bench_median(ratio, r->rounds);
    out.gflop = bench_products_gflop(products);
    free(step);
    bench_products_free(products);
    close_session(&s);
    bench_close(&opened);
    return out;
}

static int report(const run *r)
{
    result m = measure(r);
    if (r->json)
        printf(
            "{\"config\":\"%s\",\"threads\":%d,\"rounds\":%d,\"step_ms\":%.4f,\"products_ms\":%.4f,\"ratio\":%.4f,\"products_gflop\":%.3f,"
            "\"products_gflops\":%.1f,\"allocations\":%lld}\n",
            r->config->name, (int)m.threads, (int)r->rounds, 1e3 * m.step, 1e3 * m.products, m.ratio, m.gflop, m.gflop / m.products,
            (long long)m.allocations);
    else
        printf("%-17s %d threads  step %8.2f ms  products %8.2f ms (%.0f GFLOP/s)  ratio %.3f  allocations after the second step: %lld\n",
               r->config->name, (int)m.threads, 1e3 * m.step, 1e3 * m.products, m.gflop / m.products, m.ratio, (long long)m.allocations);
    return 0;
}

int bench_step(int argc, char **argv)
{
    run r = {.rounds = 21};
    const char *name = "all";
    const bench_option options[] = {{"--json", BENCH_FLAG, &r.json},
                                    {"--config", BENCH_TEXT, &name},
                                    {"--threads", BENCH_INT32, &r.threads},
                                    {"--rounds", BENCH_INT32, &r.rounds},
                                    {NULL, 0, NULL}};
    const char *unknown = bench_options(argc, argv, options);
    if (unknown != NULL) {
        fprintf(stderr, "attn-bench: step: got \"%s\", expected --config NAME, --threads N, --rounds N or --json\n", unknown);
        return 2;
    }
    r.config = bench_config_find(name);
    if ((r.config == NULL && strcmp(name, "all") != 0) || r.rounds < 1 || r.threads < 0) {
        fprintf(stderr, "attn-bench: step: unknown configuration \"%s\", or a number out of range\n", name);
        return 2;
    }
    if (r.config != NULL) return report(&r);
    for (int64_t i = 0; (r.config = bench_config_at(i)) != NULL; i++) report(&r);
    return 0;
}
