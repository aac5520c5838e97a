#ifndef TESTS_SUPPORT_SCENARIO_H
#define TESTS_SUPPORT_SCENARIO_H
#include "support/model.h"

/* Everything a context can do with a few kinds of models, large enough to be cut into many tiles, boiled down to one number: two runs that
   agree in it wrote the same bytes. Nothing here depends on the number of threads. */
enum { SCENARIOS = 5 };
typedef uint64_t digest;

const char *scenario_name(int which);
digest digest_add(digest so_far, const void *bytes, uint64_t size);
digest digest_tensor(digest so_far, const attn_tensor *tensor); /* dense */
digest digest_parameters(attn_parameters *parameters);

attn_transformer_options scenario_options(int which);
attn_transformer *scenario_model(attn_context *ctx, int which); /* scrambled, with its masks */
void scenario_batch(attn_context *ctx, int which, model_batch *made);
attn_trainer *scenario_trainer(attn_context *ctx, attn_transformer *model);
/* a sampling session after its prompt; NULL for a model that cannot generate */
attn_generator *scenario_generator(attn_context *ctx, int which, const attn_transformer *model);

/* The parts: each reads the model alone, but train. They may run in many threads at once. */
digest scenario_forward(attn_context *ctx, int which, const attn_transformer *model);    /* output without a tape */
digest scenario_gradients(attn_context *ctx, int which, const attn_transformer *model);  /* loss, dropout on, and backward */
digest scenario_generate(attn_context *ctx, int which, const attn_transformer *model);   /* tokens, logits, scores */
digest scenario_train(attn_context *ctx, int which, attn_transformer *model, int steps); /* losses, norms, parameters */
/* the reading parts together; then, with whole, a model of its own: trained, then read */
digest scenario_read(attn_context *ctx, int which, const attn_transformer *model);
digest scenario_whole(attn_context *ctx, int which);
#endif
