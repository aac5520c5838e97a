#include "recurrent.h"
#include "report.h"

/* a layer reads `in` numbers of each row and its own state */
static void layer_formula(const attn__recurrent_module *m, int64_t rows, int64_t *sum)
{
    attn__grow(sum, rows, m->input.in + m->width, m->input.out);
}

void attn__recurrent_formula(const attn__recurrent_model *m, int64_t count, int64_t source_rows, int64_t target_rows, int64_t pairs,
                             int64_t *sum)
{
    const attn_attention_options *o = &m->attention.options;
    for (int64_t i = 0; i < m->readers_count; i++) {
        layer_formula(&m->readers[i].forward, source_rows, sum);
        if (m->two_way) layer_formula(&m->readers[i].backward, source_rows, sum);
    }
    for (int64_t i = 0; i < m->writers_count; i++) layer_formula(&m->writers[i].layer, target_rows, sum);
    if (m->writers_count > 0) attn__grow(sum, target_rows, m->readout.in, m->readout.out);
    if (m->writers_count > 0 && m->has_start) attn__grow(sum, count, m->start.in, m->start.out);
    if (!m->has_attention) return;
    attn__grow(sum, pairs, o->key_head_size + o->value_head_size, 1); /* additive: the tanh's products */
    if (m->has_key) attn__grow(sum, source_rows, m->key.in, m->key.out);
    if (o->project_query) attn__grow(sum, target_rows, o->query_width, o->head_size);
    if (o->score == ATTN_SCORE_MULTIPLICATIVE) attn__grow(sum, target_rows, o->head_size, o->key_head_size);
    attn__grow(sum, target_rows, m->context.in, m->context.out);
}
