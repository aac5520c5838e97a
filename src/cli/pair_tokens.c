#include "pair_tokens.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "files.h"
#include "message.h"
#include "model_file.h"

static int64_t side_bytes(const pair_line *line, int target)
{
    return target ? line->target_bytes : line->source_bytes;
}

static const char *side_text(const pair_line *line, int target)
{
    return target ? line->target : line->source;
}

/* all lines of one side behind one another, words kept apart */
static int make_one(attn_context *ctx, const pair_text *pairs, int target, int32_t kind, int64_t threshold, attn_vocabulary **out)
{
    size_t used = 0;
    char *joined = malloc((size_t)(pairs->from.bytes + pairs->count));
    if (joined == NULL) return fail(EXIT_MACHINE, "%s: not enough memory for its vocabulary", pairs->path);
    for (int64_t p = 0; p < pairs->count; p++) {
        size_t bytes = (size_t)side_bytes(&pairs->at[p], target);
        memcpy(joined + used, side_text(&pairs->at[p], target), bytes);
        used += bytes;
        if (kind == ATTN_SYMBOLS_WORDS) joined[used++] = ' ';
    }
    attn_status status = attn_vocabulary_create(ctx, kind, joined, (int64_t)used, threshold, out);
    free(joined);
    return status == ATTN_OK ? 0 : fail_call(ctx, status, pairs->path);
}

int vocabulary_text(attn_context *ctx, const attn_vocabulary *vocabulary, const char *place, char **out)
{
    int64_t bytes = 0;
    attn_status status = attn_vocabulary_to_text(ctx, vocabulary, 0, NULL, &bytes);
    if (status == ATTN_ERROR_FULL) {
        *out = calloc(1, (size_t)bytes + 1);
        if (*out == NULL) return fail(EXIT_MACHINE, "%s: not enough memory for its vocabulary", place);
        status = attn_vocabulary_to_text(ctx, vocabulary, bytes, *out, &bytes);
    }
    return status == ATTN_OK ? 0 : fail_call(ctx, status, place);
}

int make_vocabularies(attn_context *ctx, const pair_text *pairs, int32_t source_kind, int32_t target_kind, int64_t threshold,
                      pair_vocabularies *out)
{
    int status = make_one(ctx, pairs, 0, source_kind, threshold, &out->source);
    if (status == 0) status = make_one(ctx, pairs, 1, target_kind, threshold, &out->target);
    if (status == 0) status = vocabulary_text(ctx, out->source, pairs->path, &out->source_text);
    if (status == 0) status = vocabulary_text(ctx, out->target, pairs->path, &out->target_text);
    return status;
}

int read_vocabularies(attn_context *ctx, const char *place, char *source_text, char *target_text, pair_vocabularies *out)
{
    out->source_text = source_text;
    out->target_text = target_text;
    attn_status status = attn_vocabulary_from_text(ctx, source_text, (int64_t)strlen(source_text), &out->source);
    if (status == ATTN_OK) status = attn_vocabulary_from_text(ctx, target_text, (int64_t)strlen(target_text), &out->target);
    return status == ATTN_OK ? 0 : fail_call(ctx, status, place);
}

int load_vocabularies(attn_context *ctx, const char *place, const attn_transformer *model, pair_vocabularies *out)
{
    const char *source = attn_transformer_metadata(model, SOURCE_VOCABULARY_KEY);
    const char *target = attn_transformer_metadata(model, TARGET_VOCABULARY_KEY);
    attn_transformer_options o;
    if (source == NULL || target == NULL)
        return fail(EXIT_INPUT, "%s: has no vocabularies of a source and a target, so it is no model of \"attn train --task seq2seq\"",
                    place);
    char *source_copy = strdup(source), *target_copy = strdup(target);
    out->source_text = source_copy;
    out->target_text = target_copy;
    if (source_copy == NULL || target_copy == NULL) return fail(EXIT_MACHINE, "%s: not enough memory for its vocabularies", place);
    int failed = read_vocabularies(ctx, place, source_copy, target_copy, out);
    if (failed) return failed;
    attn_status status = attn_transformer_options_init(&o, sizeof o);
    if (status == ATTN_OK) status = attn_transformer_get_options(ctx, model, &o);
    if (status != ATTN_OK) return fail_call(ctx, status, place);
    if (o.encoder_layers == 0 || o.decoder_layers == 0 || !o.output_head || o.source_vocabulary != attn_vocabulary_size(out->source) + 1 ||
        o.target_vocabulary != attn_vocabulary_size(out->target) + 1)
        return fail(EXIT_INPUT, "%s: its vocabularies have %lld and %lld tokens, which do not fit its model", place,
                    (long long)attn_vocabulary_size(out->source), (long long)attn_vocabulary_size(out->target));
    return 0;
}

void free_vocabularies(pair_vocabularies *v)
{
    attn_vocabulary_free(v->source);
    attn_vocabulary_free(v->target);
    free(v->source_text);
    free(v->target_text);
    *v = (pair_vocabularies){NULL, NULL, NULL, NULL};
}

attn_status pair_options(const pair_vocabularies *v, attn_pairs_options *out)
{
    attn_status status = attn_pairs_options_init(out, sizeof *out);
    out->source_stop = (int32_t)attn_vocabulary_size(v->source);
    out->start = out->stop = (int32_t)attn_vocabulary_size(v->target);
    return status;
}

static int encode_line(attn_context *ctx, const attn_vocabulary *vocabulary, const pair_text *pairs, int64_t p, int target, pair_ids *out)
{
    const pair_line *line = &pairs->at[p];
    int64_t bytes = side_bytes(line, target), count = 0, first = p > 0 ? out->ends[p - 1] : 0;
    char place[PATH_ROOM + 32];
    attn_status status =
        bytes > 0 ? attn_vocabulary_encode(ctx, vocabulary, side_text(line, target), bytes, bytes, out->tokens + first, &count) : ATTN_OK;
    snprintf(place, sizeof place, "%s:%lld", pairs->path, (long long)line->number);
    if (status != ATTN_OK) return fail_call(ctx, status, place);
    if (target && count == 0) return fail(EXIT_INPUT, "%s: the target is empty", place);
    for (int64_t i = 0; i < count; i++) out->unknown += out->tokens[first + i] == attn_vocabulary_unknown(vocabulary);
    if (count > out->longest) out->longest = count;
    out->ends[p] = first + count;
    return 0;
}

int encode_pairs(attn_context *ctx, const attn_vocabulary *vocabulary, const pair_text *pairs, int target, pair_ids *out)
{
    int64_t bytes = 1;
    int status = 0;
    for (int64_t p = 0; p < pairs->count; p++) bytes += side_bytes(&pairs->at[p], target);
    *out = (pair_ids){malloc((size_t)bytes * sizeof *out->tokens), malloc((size_t)pairs->count * sizeof *out->ends), pairs->count, 0, 0};
    if (out->tokens == NULL || out->ends == NULL) status = fail(EXIT_MACHINE, "%s: not enough memory for its tokens", pairs->path);
    for (int64_t p = 0; status == 0 && p < pairs->count; p++) status = encode_line(ctx, vocabulary, pairs, p, target, out);
    return status;
}

int64_t length_of(const pair_ids *ids, int64_t p)
{
    return ids->ends[p] - (p > 0 ? ids->ends[p - 1] : 0);
}

int check_lengths(const pair_text *pairs, int target, const pair_ids *ids, int64_t most)
{
    for (int64_t p = 0; p < ids->count; p++)
        if (length_of(ids, p) > most)
            return fail(EXIT_INPUT, "%s:%lld: the %s has %lld tokens, expected at most the context of %lld", pairs->path,
                        (long long)pairs->at[p].number, target ? "target" : "source", (long long)length_of(ids, p), (long long)most);
    return 0;
}

void free_ids(pair_ids *ids)
{
    free(ids->tokens);
    free(ids->ends);
    *ids = (pair_ids){NULL, NULL, 0, 0, 0};
}
