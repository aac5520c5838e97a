#ifndef TESTS_GENERATION_FIXTURE_H
#define TESTS_GENERATION_FIXTURE_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "generation/generator.h"
#include "support/model.h"

/* A model, its generator and what was said so far, to be calculated again from the beginning. */
enum { MOST = 24 };
typedef struct session {
    attn_context *ctx;
    attn_transformer_options options;
    attn_transformer *model;
    attn_generator *generator;
    model_batch batch;         /* the prompts */
    int64_t count, lengths[4]; /* tokens of each sequence so far */
    int32_t tokens[4][MOST];
} session;

static inline attn_generator_options defaults(int64_t sequences, int64_t capacity)
{
    attn_generator_options o;
    assert_int_equal(attn_generator_options_init(&o, sizeof o), ATTN_OK);
    o.sequences = sequences;
    o.capacity = capacity;
    return o;
}

static inline void open_session(session *s, int32_t backend, const attn_transformer_options *model, const attn_generator_options *o,
                                const int64_t *source, const int64_t *target)
{
    int64_t row = 0;
    memset(s, 0, sizeof *s);
    s->ctx = model_context(backend, 2, 0);
    s->options = *model;
    s->model = model_create(s->ctx, model);
    s->count = o->sequences;
    OK(s->ctx, attn_generator_create(s->ctx, s->model, o, &s->generator));
    model_batch_open(s->ctx, &s->batch, model, s->count, source, target, 4);
    for (int64_t i = 0; i < s->count; i++) {
        s->lengths[i] = target[i];
        for (int64_t t = 0; t < target[i]; t++) s->tokens[i][t] = (int32_t)model_get(s->batch.target, row++);
    }
}

static inline void close_session(session *s)
{
    attn_generator_free(s->generator);
    model_batch_close(&s->batch);
    attn_transformer_free(s->model);
    attn_context_free(s->ctx);
}

static inline void prompt(session *s)
{
    OK(s->ctx, attn_generator_prompt(s->ctx, s->generator, &s->batch.batch));
}

/* the logits after every sequence's last token, all from the beginning: [count, vocabulary] */
static inline attn_tensor *recomputed(session *s)
{
    int64_t rows = 0, vocabulary = 11;
    attn_layout *layout = NULL;
    for (int64_t i = 0; i < s->count; i++) rows += s->lengths[i];
    attn_tensor *tokens = model_tensor(s->ctx, ATTN_INT32, rows, 0), *all = model_tensor(s->ctx, s->options.dtype, rows, vocabulary),
                *last = model_tensor(s->ctx, s->options.dtype, s->count, vocabulary);
    OK(s->ctx, attn_layout_create(s->ctx, s->count, &layout));
    OK(s->ctx, attn_layout_set_lengths(s->ctx, layout, s->count, s->lengths, 0));
    rows = 0;
    for (int64_t i = 0; i < s->count; i++)
        for (int64_t t = 0; t < s->lengths[i]; t++) model_set(tokens, rows++, s->tokens[i][t]);
    attn_batch batch = s->batch.batch;
    batch.target = tokens;
    batch.target_layout = layout;
    OK(s->ctx, attn_transformer_forward(s->ctx, s->model, NULL, &batch, all));
    rows = 0;
    for (int64_t i = 0; i < s->count; i++) {
        rows += s->lengths[i];
        for (int64_t v = 0; v < vocabulary; v++) model_set(last, i * vocabulary + v, model_get(all, (rows - 1) * vocabulary + v));
    }
    attn_tensor_free(tokens);
    attn_tensor_free(all);
    attn_layout_free(layout);
    return last;
}

static inline void expect_recomputed(session *s, double within, const char *when)
{
    const attn_tensor *got = NULL;
    attn_tensor *want = recomputed(s);
    OK(s->ctx, attn_generator_logits(s->ctx, s->generator, &got));
    for (int64_t e = 0; e < model_elements(want); e++)
        if (!(fabs(model_get(got, e) - model_get(want, e)) <= within))
            fail_msg("%s, sequence %d: logit %d is %.9g from the cache and %.9g from the whole", when, (int)(e / 11), (int)(e % 11),
                     model_get(got, e), model_get(want, e));
    attn_tensor_free(want);
}

#endif
