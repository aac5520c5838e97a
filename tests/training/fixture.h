#ifndef TESTS_TRAINING_FIXTURE_H
#define TESTS_TRAINING_FIXTURE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/model.h"
#include "training/trainer.h"

/* A small decoder-only model, a data set of 600 tokens and a trainer over both, dropout of all four kinds on. */
typedef struct training {
    attn_context *ctx;
    attn_transformer *model;
    attn_parameters *parameters;
    attn_dataset *dataset;
    attn_trainer *trainer;
    attn_trainer_report report;
} training;

typedef struct training_options {
    int32_t backend, dtype, threads, order;
    int64_t batch;
    attn_transformer_options model;
    attn_optimizer_options optimizer;
    attn_schedule_options schedule;
    attn_trainer_options trainer;
} training_options;

static inline training_options training_defaults(void)
{
    training_options o = {
        .backend = ATTN_BACKEND_BLAS, .dtype = ATTN_FLOAT32, .threads = 2, .order = ATTN_ORDER_RANDOM_WINDOWS, .batch = 4};
    o.model = model_options(0, 2);
    o.model.norm_placement = ATTN_PLACEMENT_PRE;
    o.model.positions = ATTN_POSITIONS_LEARNED;
    o.model.tie = ATTN_TIE_OUTPUT;
    o.model.dropout_embedding = o.model.dropout_attention = o.model.dropout_sublayer = o.model.dropout_activation = 0.2;
    assert_int_equal(attn_optimizer_options_init(&o.optimizer, sizeof o.optimizer), ATTN_OK);
    assert_int_equal(attn_schedule_options_init(&o.schedule, sizeof o.schedule), ATTN_OK);
    assert_int_equal(attn_trainer_options_init(&o.trainer, sizeof o.trainer), ATTN_OK);
    o.optimizer.optimizer = ATTN_OPTIMIZER_ADAMW;
    o.optimizer.weight_decay = 0.1;
    o.optimizer.clip = 1;
    o.schedule.schedule = ATTN_SCHEDULE_COSINE;
    o.schedule.warmup = 3;
    o.schedule.total = 20;
    o.schedule.rate = 1e-2;
    return o;
}

/* in a context that exists */
static inline void training_build(training *t, const training_options *o)
{
    enum { TOKENS = 600 };
    int32_t tokens[TOKENS];
    random_state random = {3};
    attn_dataset_options d;
    attn_transformer_options m = o->model;
    m.dtype = o->dtype;
    t->model = model_create(t->ctx, &m);
    t->parameters = attn_transformer_parameters(t->model);
    for (int i = 0; i < TOKENS; i++) tokens[i] = (int32_t)random_integer(&random, 0, 11);
    OK(t->ctx, attn_dataset_options_init(&d, sizeof d));
    d.context = 6;
    d.batch = o->batch;
    d.order = o->order;
    OK(t->ctx, attn_dataset_tokens(t->ctx, tokens, TOKENS, &d, &t->dataset));
    OK(t->ctx, attn_trainer_create(t->ctx, t->model, t->dataset, &o->optimizer, &o->schedule, &o->trainer, &t->trainer));
    OK(t->ctx, attn_trainer_report_init(&t->report, sizeof t->report));
}

static inline void training_open(training *t, const training_options *o)
{
    memset(t, 0, sizeof *t);
    t->ctx = model_context(o->backend, o->threads, 0);
    training_build(t, o);
}

static inline void training_close(training *t)
{
    attn_trainer_free(t->trainer);
    attn_dataset_free(t->dataset);
    attn_transformer_free(t->model);
    attn_context_free(t->ctx);
}

static inline void training_steps(training *t, int count)
{
    for (int i = 0; i < count; i++) OK(t->ctx, attn_trainer_step(t->ctx, t->trainer, NULL, &t->report));
}

/* parameters, moments, counters and the place in the data, bit for bit */
static inline int training_same(const training *a, const training *b)
{
    const attn_optimizer *x = a->trainer->optimizer, *y = b->trainer->optimizer;
    size_t bytes = (size_t)a->parameters->flat_elements * (a->parameters->dtype == ATTN_FLOAT64 ? 8 : 4);
    return model_same_bits(a->parameters, b->parameters) && memcmp(x->first, y->first, bytes) == 0 &&
           memcmp(x->second, y->second, bytes) == 0 && x->step == y->step && x->rate == y->rate && a->trainer->steps == b->trainer->steps &&
           attn__dataset_cursor(a->dataset) == attn__dataset_cursor(b->dataset);
}

/* the largest difference of parameters */
static inline double training_distance(const training *a, const training *b)
{
    double worst = 0;
    for (int64_t i = 0; i < attn_parameters_count(a->parameters); i++) {
        attn_tensor *x = attn_parameters_tensor(a->parameters, i), *y = attn_parameters_tensor(b->parameters, i);
        for (int64_t e = 0; e < model_elements(x); e++) {
            double d = model_get(x, e) - model_get(y, e);
            if (!(d <= worst && -d <= worst)) worst = d < 0 ? -d : d;
        }
    }
    return worst;
}
#endif
