#ifndef ATTN_CLI_TRANSLATE_H
#define ATTN_CLI_TRANSLATE_H
#include "pair_tokens.h"

/* Sources to targets, many at a time. */
typedef struct translator {
    attn_context *ctx;
    const attn_transformer *const *models; /* several decode as one */
    int64_t models_count, context;         /* tokens a source and a target may have */
    int64_t source_stop, target_stop;      /* the tokens past the vocabularies */
    int64_t beam, nbest, batch;
    double length_penalty;
} translator;

/* What is given for each source in order, best hypothesis first: its place among the sources, rank, tokens, sum of log p. Another result
   than 0 ends the run with it. */
typedef int translation_taker(void *user, int64_t source, int64_t rank, const int32_t *tokens, int64_t count, double score);

/* 0, or the exit status after one line, or what the taker gave. An empty source is an empty target of score 0. */
int translate(const translator *t, const pair_ids *sources, translation_taker *take, void *user);
#endif
