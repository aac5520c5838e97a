#ifndef ATTN_CLI_PAIR_MODEL_H
#define ATTN_CLI_PAIR_MODEL_H
#include "translate.h"

enum { MOST_MODELS = 16 };

/* Models that decode as one, all of the same vocabularies, with the first one's sizes. */
typedef struct pair_model {
    attn_context *ctx;
    attn_transformer *at[MOST_MODELS];
    const char *place[MOST_MODELS];
    int64_t count, context;
    pair_vocabularies vocabularies;
} pair_model;

/* The models in these folders. 0, or the exit status after one line. */
int open_pair_model(int64_t threads, int64_t count, const char *const *places, pair_model *out);
void close_pair_model(pair_model *m);

/* Ready to decode with. */
translator translator_of(const pair_model *m, int64_t beam, int64_t nbest, int64_t batch, double length_penalty);
#endif
