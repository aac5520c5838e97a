#ifndef ATTN_CLI_PAIR_TOKENS_H
#define ATTN_CLI_PAIR_TOKENS_H
#include <attn/attn.h>
#include "pairs.h"

/* The vocabularies of a model that turns sequences into sequences. Past the last token of each stands one more: on the source's side the
   end of a source, on the target's side what begins and ends a target. So the model's vocabularies are one larger. */
typedef struct pair_vocabularies {
    attn_vocabulary *source, *target;
    char *source_text, *target_text; /* as they are stored with a model */
} pair_vocabularies;

/* Of the pairs that are learned from; kinds: ATTN_SYMBOLS_*. 0, or the exit status after one line. */
int make_vocabularies(attn_context *ctx, const pair_text *pairs, int32_t source_kind, int32_t target_kind, int64_t threshold,
                      pair_vocabularies *out);

/* From their texts, which out keeps even on failure. */
int read_vocabularies(attn_context *ctx, const char *place, char *source_text, char *target_text, pair_vocabularies *out);

/* Those stored with a model, checked against its sizes. */
int load_vocabularies(attn_context *ctx, const char *place, const attn_transformer *model, pair_vocabularies *out);
void free_vocabularies(pair_vocabularies *vocabularies);

/* The defaults of a data set of pairs, with these tokens past the vocabularies. */
attn_status pair_options(const pair_vocabularies *vocabularies, attn_pairs_options *out);

/* Ids of one side of all pairs: those of pair p end at ends[p]. */
typedef struct pair_ids {
    int32_t *tokens;
    int64_t *ends;
    int64_t count, longest, unknown; /* tokens of the longest one; unknown tokens in all */
} pair_ids;

/* target 1: the second column. 0, or the exit status after one line. */
int encode_pairs(attn_context *ctx, const attn_vocabulary *vocabulary, const pair_text *pairs, int target, pair_ids *out);

/* No line may be longer than `most` tokens. */
int check_lengths(const pair_text *pairs, int target, const pair_ids *ids, int64_t most);
int64_t length_of(const pair_ids *ids, int64_t p);
void free_ids(pair_ids *ids);

/* Text form of a vocabulary, to be freed by the caller. */
int vocabulary_text(attn_context *ctx, const attn_vocabulary *vocabulary, const char *place, char **out);
#endif
