/* Two threads share one model, which forward calls only read; each has a context of its own. The results have the same bits.
   cc 05_share_model.c $(pkg-config --cflags --libs libattn) -pthread */
#include <attn/attn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#define TRY(call) \
    do { \
        if ((call) != ATTN_OK) return fprintf(stderr, "%s\n", attn_context_last_error(ctx)), 1; \
    } while (0)
enum { ROWS = 32, VOCABULARY = 65 };
typedef struct job {
    const attn_transformer *model;
    int32_t tokens[ROWS], failed;
    float logits[ROWS * VOCABULARY];
} job;

static int forward(attn_context *ctx, job *j)
{
    const int64_t shape[2] = {ROWS, VOCABULARY};
    attn_tensor *tokens = NULL, *logits = NULL;
    TRY(attn_tensor_wrap(ctx, ATTN_INT32, 1, shape, NULL, j->tokens, &tokens));
    TRY(attn_tensor_wrap(ctx, ATTN_FLOAT32, 2, shape, NULL, j->logits, &logits));
    const attn_batch batch = {.struct_size = sizeof batch, .target = tokens};
    TRY(attn_transformer_forward(ctx, j->model, NULL, &batch, logits));
    attn_tensor_free(tokens);
    attn_tensor_free(logits);
    return 0;
}

static void *work(void *argument)
{
    job *j = argument;
    attn_context *ctx = NULL;
    j->failed = attn_context_create(NULL, &ctx) != ATTN_OK || forward(ctx, j) != 0;
    attn_context_free(ctx);
    return NULL;
}

int main(void)
{
    static job jobs[2];
    attn_context *ctx = NULL;
    attn_transformer *model = NULL;
    attn_transformer_options options;
    pthread_t other;
    TRY(attn_context_create(NULL, &ctx));
    TRY(attn_transformer_preset(ctx, "gpt-char", &options, sizeof options));
    TRY(attn_transformer_create(ctx, &options, &model));
    jobs[0].model = jobs[1].model = model;
    if (pthread_create(&other, NULL, work, &jobs[0]) != 0) return 1;
    work(&jobs[1]);
    pthread_join(other, NULL);
    int same = !jobs[0].failed && !jobs[1].failed && memcmp(jobs[0].logits, jobs[1].logits, sizeof jobs[0].logits) == 0;
    printf("first logit %.4f, the two threads %s\n", (double)jobs[0].logits[0], same ? "agree bit for bit" : "differ");
    attn_transformer_free(model);
    return attn_context_free(ctx), !same;
}
