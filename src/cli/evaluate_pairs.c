#include "evaluate_pairs.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "errors.h"
#include "interrupt.h"
#include "message.h"
#include "pair_model.h"
#include "terminal.h"

enum { BINS = 15 };

/* What the model says of the wanted tokens when it is told those before. Calibration: rows by the probability of the likeliest token, in
   bins of equal width; per bin its mean and how often that token was the wanted one. */
typedef struct told {
    double loss, confidence[BINS];
    int64_t tokens, right[BINS], rows[BINS];
} told;

typedef struct evaluation_run {
    const pair_evaluation *wanted;
    pair_model model;
    pair_text pairs;
    pair_ids source, target;
    attn_dataset *data;
    error_counts counts;
    told told;
    int64_t *room;
} evaluation_run;

static void count_row(told *t, const float *logits, int64_t classes, int64_t label)
{
    int64_t best = 0;
    double sum = 0;
    for (int64_t c = 1; c < classes; c++)
        if (logits[c] > logits[best]) best = c;
    for (int64_t c = 0; c < classes; c++) sum += exp((double)logits[c] - (double)logits[best]);
    double confidence = 1 / sum;
    int64_t bin = (int64_t)(confidence * BINS);
    if (bin >= BINS) bin = BINS - 1;
    t->loss += log(sum) - ((double)logits[label] - (double)logits[best]);
    t->tokens++;
    t->rows[bin]++;
    t->confidence[bin] += confidence;
    t->right[bin] += best == label;
}

/* expected calibration error, in per cent */
static double calibration_error(const told *t)
{
    double sum = 0;
    for (int b = 0; b < BINS; b++) sum += fabs(t->confidence[b] - (double)t->right[b]);
    return t->tokens > 0 ? 100 * sum / (double)t->tokens : 0;
}

static attn_status tell_batch(evaluation_run *r, const attn_batch *batch, int64_t classes)
{
    attn_tensor *logits = NULL;
    const int64_t shape[2] = {attn_tensor_extent(batch->target, 0), classes};
    attn_status status = attn_tensor_create(r->model.ctx, ATTN_FLOAT32, 2, shape, &logits);
    if (status == ATTN_OK) status = attn_transformer_forward(r->model.ctx, r->model.at[0], NULL, batch, logits);
    const float *row = status == ATTN_OK ? attn_tensor_data_const(logits) : NULL;
    const int32_t *labels = attn_tensor_data_const(batch->labels);
    for (int64_t i = 0; status == ATTN_OK && i < shape[0]; i++) count_row(&r->told, row + i * classes, classes, labels[i]);
    attn_tensor_free(logits);
    return status;
}

static int tell(evaluation_run *r)
{
    attn_pairs_options o;
    attn_batch batch;
    int64_t classes = attn_vocabulary_size(r->model.vocabularies.target) + 1;
    attn_status status = pair_options(&r->model.vocabularies, &o);
    o.order = ATTN_ORDER_SEQUENTIAL;
    o.batch = r->wanted->batch;
    if (status == ATTN_OK)
        status = attn_dataset_pairs(r->model.ctx, r->source.count, r->source.tokens, r->source.ends, r->target.tokens, r->target.ends, &o,
                                    &r->data);
    if (status == ATTN_OK) status = attn_batch_init(&batch, sizeof batch);
    while (status == ATTN_OK) {
        status = attn_dataset_next(r->model.ctx, r->data, &batch);
        if (status == ATTN_OK) status = tell_batch(r, &batch, classes);
    }
    if (status == ATTN_ERROR_END_OF_DATA) return 0;
    return status == ATTN_ERROR_CANCELLED ? EXIT_INTERRUPTED : fail_call(r->model.ctx, status, r->wanted->data);
}

static int take(void *user, int64_t source, int64_t rank, const int32_t *tokens, int64_t count, double score)
{
    evaluation_run *r = user;
    int64_t length = length_of(&r->target, source);
    (void)rank, (void)score;
    count_errors(&r->counts, tokens, count, r->target.tokens + r->target.ends[source] - length, length,
                 attn_vocabulary_unknown(r->model.vocabularies.target), r->room);
    return 0;
}

static int print_result(const evaluation_run *r)
{
    const error_counts *c = &r->counts;
    char a[32], b[32];
    double loss = r->told.loss / (double)r->told.tokens, calibration = calibration_error(&r->told);
    if (!isfinite(loss)) return fail(EXIT_MACHINE, "%s: the loss is not finite: the weights are broken", r->wanted->model);
    if (r->wanted->json) {
        printf(
            "{\"word_error\": %.9g, \"token_error\": %.9g, \"words\": %lld, \"wrong_words\": %lld, \"loss\": %.9g, \"perplexity\": %.9g, "
            "\"calibration_error\": %.9g, \"tokens\": %lld, \"beam\": %lld}\n",
            word_error_rate(c), token_error_rate(c), (long long)c->words, (long long)c->word_errors, loss, exp(loss), calibration,
            (long long)r->told.tokens, (long long)r->wanted->beam);
        return 0;
    }
    printf("word error   %.2f %% (%s of %s)\n", word_error_rate(c), readable_count(c->word_errors, a), readable_count(c->words, b));
    printf("token error  %.2f %% (%s edits for %s tokens)\n", token_error_rate(c), readable_count(c->token_errors, a),
           readable_count(c->tokens, b));
    printf("loss         %.4f nats a token, perplexity %.4f\n", loss, exp(loss));
    printf("calibration  %.2f %% expected error\n", calibration);
    return 0;
}

static int run(evaluation_run *r)
{
    const pair_evaluation *w = r->wanted;
    int status = read_pairs(w->data, &r->pairs);
    if (status == 0) status = open_pair_model(w->threads, 1, &w->model, &r->model);
    if (status == 0) status = encode_pairs(r->model.ctx, r->model.vocabularies.source, &r->pairs, 0, &r->source);
    if (status == 0) status = encode_pairs(r->model.ctx, r->model.vocabularies.target, &r->pairs, 1, &r->target);
    if (status == 0) status = check_lengths(&r->pairs, 0, &r->source, r->model.context);
    if (status == 0) status = check_lengths(&r->pairs, 1, &r->target, r->model.context);
    if (status != 0) return status;
    r->room = malloc((size_t)(r->target.longest + 1) * sizeof *r->room);
    if (r->room == NULL) return fail(EXIT_MACHINE, "not enough memory");
    const translator t = translator_of(&r->model, w->beam, 1, w->batch, w->length_penalty);
    interrupt_watch(r->model.ctx);
    status = tell(r);
    if (status == 0) status = translate(&t, &r->source, take, r);
    interrupt_end();
    return status == 0 ? print_result(r) : status;
}

int evaluate_pairs(const pair_evaluation *wanted)
{
    evaluation_run r = {.wanted = wanted};
    int status = run(&r);
    free(r.room);
    attn_dataset_free(r.data);
    free_ids(&r.source);
    free_ids(&r.target);
    free_pairs(&r.pairs);
    close_pair_model(&r.model);
    return status;
}
