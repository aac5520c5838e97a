#include <stdio.h>
#include <stdlib.h>
#include "inspect.h"
#include "maps.h"
#include "message.h"
#include "pair_model.h"
#include "text.h"

/* a source and the target that the model gives for it, as the model reads them */
typedef struct pair {
    int32_t *source, *target;
    int64_t source_count, target_count; /* without their ends */
    int cut;                            /* the target goes on */
} pair;

static int take(void *user, int64_t source, int64_t rank, const int32_t *tokens, int64_t count, double score)
{
    pair *p = user;
    (void)source, (void)rank, (void)score;
    p->target = malloc((size_t)(count + 1) * sizeof *p->target);
    if (p->target == NULL) return fail(EXIT_MACHINE, "not enough memory");
    if (count > 0) memcpy(p->target, tokens, (size_t)count * sizeof *tokens);
    p->target_count = count;
    return 0;
}

/* the source of the text, and its target */
static int read_pair(const inspect_settings *s, const pair_model *m, pair *p)
{
    const text from = {(char *)(uintptr_t)s->text, (int64_t)strlen(s->text)};
    const translator t = translator_of(m, 5, 1, 1, 1); /* as decode does */
    const int64_t most = m->context < INSPECT_TOKENS ? m->context : INSPECT_TOKENS;
    int failed = encode_text(m->ctx, m->vocabularies.source, "--text", &from, &p->source, &p->source_count);
    if (failed == 0 && (p->source_count < 1 || p->source_count > most))
        failed = fail(EXIT_INPUT, "--text: got %lld tokens, expected 1 to %lld", (long long)p->source_count, (long long)most);
    const pair_ids ids = {p->source, &p->source_count, 1, p->source_count, 0};
    if (failed == 0) failed = translate(&t, &ids, take, p);
    p->cut = failed == 0 && p->target_count > INSPECT_TOKENS;
    if (p->cut) p->target_count = INSPECT_TOKENS;
    return failed;
}

/* ids with the one that ends a source, or the one before a target that begins it */
static int32_t *with_end(const int32_t *ids, int64_t count, int32_t end, int first)
{
    int32_t *made = malloc((size_t)(count + 1) * sizeof *made);
    if (made == NULL) return NULL;
    made[first ? 0 : count] = end;
    if (count > 0) memcpy(made + (first ? 1 : 0), ids, (size_t)count * sizeof *ids);
    return made;
}

static int draw(const inspect_settings *s, const pair_model *m, const pair *p, maps *seen)
{
    attn_pairs_options ends;
    attn_status status = pair_options(&m->vocabularies, &ends);
    if (status != ATTN_OK) return fail_call(m->ctx, status, s->model);
    int32_t *source = with_end(p->source, p->source_count, ends.source_stop, 0);
    int32_t *target = with_end(p->target, p->target_count, ends.start, 1);
    attn_tensor *source_tensor = NULL, *target_tensor = NULL;
    attn_batch batch;
    if (source == NULL || target == NULL) {
        free(source);
        free(target);
        return fail(EXIT_MACHINE, "not enough memory");
    }
    status = attn_batch_init(&batch, sizeof batch);
    if (status == ATTN_OK) status = attn_tensor_wrap(m->ctx, ATTN_INT32, 1, &seen->columns, NULL, source, &source_tensor);
    if (status == ATTN_OK) status = attn_tensor_wrap(m->ctx, ATTN_INT32, 1, &seen->rows, NULL, target, &target_tensor);
    batch.source = source_tensor;
    batch.target = target_tensor;
    if (status == ATTN_OK) status = fill_maps(m->ctx, m->at[0], ATTN_INSPECT_CROSS, &batch, seen);
    attn_tensor_free(source_tensor);
    attn_tensor_free(target_tensor);
    free(source);
    free(target);
    if (status != ATTN_OK) return fail_call(m->ctx, status, s->model);
    /* row i reads what was written before and writes token i */
    name_tokens(m->ctx, m->vocabularies.source, p->source_count, p->source, seen->column_names);
    name_tokens(m->ctx, m->vocabularies.target, p->target_count, p->target, seen->row_names);
    snprintf(seen->column_names[p->source_count], MAP_NAME, "end");
    snprintf(seen->row_names[p->target_count], MAP_NAME, "%s", p->cut ? "..." : "end");
    return save_maps(seen, s->out);
}

int inspect_pair(const inspect_settings *s)
{
    pair_model m;
    pair p = {NULL, NULL, 0, 0, 0};
    attn_transformer_options o;
    int failed = open_pair_model(s->threads, 1, &s->model, &m);
    if (failed == 0) failed = read_pair(s, &m, &p);
    attn_status status = attn_transformer_options_init(&o, sizeof o);
    if (failed == 0 && status == ATTN_OK) status = attn_transformer_get_options(m.ctx, m.at[0], &o);
    if (failed == 0 && status != ATTN_OK) failed = fail_call(m.ctx, status, s->model);
    const int recurrent = o.recurrence != ATTN_RECURRENCE_NONE;
    maps seen = {.layers = recurrent ? 1 : o.decoder_layers,
                 .heads = recurrent ? 1 : o.decoder_heads,
                 .rows = p.target_count + 1,
                 .columns = p.source_count + 1,
                 .title = "Where in the source the model looks",
                 .legend = "a row for each token that is written, a column for each token of the source; the darker, the more"};
    if (failed == 0) failed = open_maps(&seen, s->model);
    if (failed == 0) failed = draw(s, &m, &p, &seen);
    close_maps(&seen);
    free(p.source);
    free(p.target);
    close_pair_model(&m);
    return failed;
}
