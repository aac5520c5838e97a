#include "pair_model.h"
#include <string.h>
#include "message.h"
#include "model_file.h"

static int open_one(pair_model *m, int64_t i)
{
    pair_vocabularies other = {NULL, NULL, NULL, NULL}, *v = i == 0 ? &m->vocabularies : &other;
    int status = load_model(m->ctx, m->place[i], &m->at[i]);
    if (status == 0) status = load_vocabularies(m->ctx, m->place[i], m->at[i], v);
    if (status == 0 && i > 0 &&
        (strcmp(other.source_text, m->vocabularies.source_text) != 0 || strcmp(other.target_text, m->vocabularies.target_text) != 0))
        status = fail(EXIT_INPUT, "%s: has other vocabularies than %s, so the two cannot decode together", m->place[i], m->place[0]);
    free_vocabularies(&other);
    return status;
}

int open_pair_model(int64_t threads, int64_t count, const char *const *places, pair_model *out)
{
    attn_transformer_options o;
    *out = (pair_model){.count = count};
    for (int64_t i = 0; i < count; i++) out->place[i] = places[i];
    int status = open_context(threads, 0, &out->ctx);
    for (int64_t i = 0; status == 0 && i < count; i++) {
        status = open_one(out, i);
        attn_status found = status == 0 ? attn_transformer_options_init(&o, sizeof o) : ATTN_OK;
        if (status == 0 && found == ATTN_OK) found = attn_transformer_get_options(out->ctx, out->at[i], &o);
        if (found != ATTN_OK) status = fail_call(out->ctx, found, places[i]);
        if (status == 0 && (i == 0 || o.context < out->context)) out->context = o.context;
    }
    return status;
}

void close_pair_model(pair_model *m)
{
    free_vocabularies(&m->vocabularies);
    for (int64_t i = 0; i < m->count; i++) attn_transformer_free(m->at[i]);
    attn_context_free(m->ctx);
}

translator translator_of(const pair_model *m, int64_t beam, int64_t nbest, int64_t batch, double length_penalty)
{
    return (translator){m->ctx,
                        (const attn_transformer *const *)m->at,
                        m->count,
                        m->context,
                        attn_vocabulary_size(m->vocabularies.source),
                        attn_vocabulary_size(m->vocabularies.target),
                        beam,
                        nbest,
                        batch,
                        length_penalty};
}
