#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
/* after the headers it needs */
#include <cmocka.h>
#include "formats/safetensors.h"
#include "models/options.h"
#include "support/model.h"

/* The names and shapes of parameters are part of the ABI. The table below says which there are for any options, in the order of files; it
   is compared with what the library plans, with what it writes, and with the tables of docs/abi.md. */
enum { NAME = 160 };
typedef attn_transformer_options options;
typedef struct side {
    const options *o;
    int decoder;
    int64_t layers, width, heads, key_heads, head_size, feed_forward, memory_width;
    int64_t gates, way, states, read; /* of recurrent models */
} side;
/* what a line needs to be there */
enum { LEARNED = 1, TABLE_NORM = 2, SHIFT = 4, TABLE = 8, APART = 16, TOGETHER = 32, BIAS = 64, CROSS = 128, PLAIN = 256 };
enum { GATED = 512, HIDDEN_BIAS = 1024, BETA = 2048, FINAL = 4096, OUTPUT = 8192, OUTPUT_BIAS = 16384, GATED_HEADS = 32768 };
enum { HEAD_NORM = 65536, HEAD_SHIFT = 131072, BUCKETS = 262144, RELATIVE_ROWS = 524288, BOTH_WAYS = 1048576, ASKS = 2097152 };
enum { SUM_SCORE = 4194304, MATRIX_SCORE = 8388608, GLOBAL = 16777216, LINFORMER = 33554432 };
typedef struct line {
    const char *name, *shape;
    int needs;
} line;

static int has(const side *s)
{
    const options *o = s->o;
    int shared = (o->tie & ATTN_TIE_SOURCE) && o->decoder_layers > 0 && !s->decoder;
    return (o->positions == ATTN_POSITIONS_LEARNED ? LEARNED : 0) | (o->embedding_norm ? TABLE_NORM : 0) |
           (o->norm_bias && o->norm == ATTN_NORM_LAYER ? SHIFT : 0) | (shared ? 0 : TABLE) | (o->parallel_block ? TOGETHER : APART) |
           (o->attention_bias ? BIAS : 0) | (s->memory_width > 0 ? CROSS : 0) | (o->gated ? GATED : PLAIN) |
           (o->feed_forward_bias ? HIDDEN_BIAS : 0) | (o->learned_beta ? BETA : 0) |
           (o->final_norm && o->norm_placement == ATTN_PLACEMENT_PRE ? FINAL : 0) |
           (o->output_head && !(o->tie & ATTN_TIE_OUTPUT) ? OUTPUT : 0) | (o->output_head && o->output_bias ? OUTPUT_BIAS : 0) |
           (o->gated_attention ? GATED_HEADS : 0) | (o->query_key_norm ? HEAD_NORM : 0) |
           (o->query_key_norm == ATTN_QUERY_KEY_LAYER ? HEAD_SHIFT : 0) | (o->positions == ATTN_POSITIONS_T5 ? BUCKETS : 0) |
           (o->positions == ATTN_POSITIONS_RELATIVE ? RELATIVE_ROWS : 0) | (o->both_ways ? BOTH_WAYS : 0) |
           (s->memory_width > 0 && o->decoder_attention ? ASKS : 0) | (o->decoder_score == ATTN_SCORE_ADDITIVE ? SUM_SCORE : 0) |
           (o->decoder_score == ATTN_SCORE_MULTIPLICATIVE ? MATRIX_SCORE : 0) | (o->global_projections && !s->decoder ? GLOBAL : 0) |
           (o->form == ATTN_FORM_LINFORMER && !s->decoder ? LINFORMER : 0);
}

static const line target[] = {
    {"target_embedding.weight", "[target_vocabulary, width]", 0},
    {"target_positions.weight", "[context, width]", LEARNED},
    {"target_norm.weight", "[width]", TABLE_NORM},
    {"target_norm.bias", "[width]", TABLE_NORM | SHIFT},
};
static const line source[] = {
    {"source_embedding.weight", "[source_vocabulary, width]", TABLE},
    {"source_positions.weight", "[context, width]", LEARNED},
    {"source_norm.weight", "[width]", TABLE_NORM},
    {"source_norm.bias", "[width]", TABLE_NORM | SHIFT},
};
static const line layer[] = {
    {"layers.N.norm.weight", "[width]", TOGETHER},
    {"layers.N.norm.bias", "[width]", TOGETHER | SHIFT},
    {"layers.N.self_attention_norm.weight", "[width]", APART},
    {"layers.N.self_attention_norm.bias", "[width]", APART | SHIFT},
    {"layers.N.self_attention.query.weight", "[heads * head_size, width]", 0},
    {"layers.N.self_attention.key.weight", "[key_heads * head_size, width]", 0},
    {"layers.N.self_attention.value.weight", "[key_heads * head_size, width]", 0},
    {"layers.N.self_attention.query.bias", "[heads * head_size]", BIAS},
    {"layers.N.self_attention.key.bias", "[key_heads * head_size]", BIAS},
    {"layers.N.self_attention.value.bias", "[key_heads * head_size]", BIAS},
    {"layers.N.self_attention.output.weight", "[width, heads * head_size]", 0},
    {"layers.N.self_attention.output.bias", "[width]", BIAS},
    {"layers.N.self_attention.gate.weight", "[heads * head_size, width]", GATED_HEADS},
    {"layers.N.self_attention.gate.bias", "[heads * head_size]", GATED_HEADS | BIAS},
    {"layers.N.self_attention.query_norm.weight", "[head_size]", HEAD_NORM},
    {"layers.N.self_attention.query_norm.bias", "[head_size]", HEAD_NORM | HEAD_SHIFT},
    {"layers.N.self_attention.key_norm.weight", "[head_size]", HEAD_NORM},
    {"layers.N.self_attention.key_norm.bias", "[head_size]", HEAD_NORM | HEAD_SHIFT},
    {"layers.0.self_attention.position.weight", "[position_buckets, heads]", BUCKETS},
    {"layers.0.self_attention.position.weight", "[reach, head_size]", RELATIVE_ROWS},
    {"layers.0.self_attention.position_values.weight", "[reach, head_size]", RELATIVE_ROWS},
    {"layers.N.self_attention.key_projection.weight", "[projected, context]", LINFORMER},
    {"layers.N.self_attention.global_query.weight", "[heads * head_size, width]", GLOBAL},
    {"layers.N.self_attention.global_query.bias", "[heads * head_size]", GLOBAL | BIAS},
    {"layers.N.self_attention.global_key.weight", "[key_heads * head_size, width]", GLOBAL},
    {"layers.N.self_attention.global_key.bias", "[key_heads * head_size]", GLOBAL | BIAS},
    {"layers.N.self_attention.global_value.weight", "[key_heads * head_size, width]", GLOBAL},
    {"layers.N.self_attention.global_value.bias", "[key_heads * head_size]", GLOBAL | BIAS},
    {"layers.N.cross_attention_norm.weight", "[width]", CROSS | APART},
    {"layers.N.cross_attention_norm.bias", "[width]", CROSS | APART | SHIFT},
    {"layers.N.cross_attention.query.weight", "[heads * head_size, width]", CROSS},
    {"layers.N.cross_attention.key.weight", "[key_heads * head_size, memory_width]", CROSS},
    {"layers.N.cross_attention.value.weight", "[key_heads * head_size, memory_width]", CROSS},
    {"layers.N.cross_attention.query.bias", "[heads * head_size]", CROSS | BIAS},
    {"layers.N.cross_attention.key.bias", "[key_heads * head_size]", CROSS | BIAS},
    {"layers.N.cross_attention.value.bias", "[key_heads * head_size]", CROSS | BIAS},
    {"layers.N.cross_attention.output.weight", "[width, heads * head_size]", CROSS},
    {"layers.N.cross_attention.output.bias", "[width]", CROSS | BIAS},
    {"layers.N.cross_attention.gate.weight", "[heads * head_size, width]", CROSS | GATED_HEADS},
    {"layers.N.cross_attention.gate.bias", "[heads * head_size]", CROSS | GATED_HEADS | BIAS},
    {"layers.N.cross_attention.query_norm.weight", "[head_size]", CROSS | HEAD_NORM},
    {"layers.N.cross_attention.query_norm.bias", "[head_size]", CROSS | HEAD_NORM | HEAD_SHIFT},
    {"layers.N.cross_attention.key_norm.weight", "[head_size]", CROSS | HEAD_NORM},
    {"layers.N.cross_attention.key_norm.bias", "[head_size]", CROSS | HEAD_NORM | HEAD_SHIFT},
    {"layers.N.feed_forward_norm.weight", "[width]", APART},
    {"layers.N.feed_forward_norm.bias", "[width]", APART | SHIFT},
    {"layers.N.feed_forward.input.weight", "[feed_forward, width]", PLAIN},
    {"layers.N.feed_forward.input.bias", "[feed_forward]", PLAIN | HIDDEN_BIAS},
    {"layers.N.feed_forward.gate.weight", "[feed_forward, width]", GATED},
    {"layers.N.feed_forward.up.weight", "[feed_forward, width]", GATED},
    {"layers.N.feed_forward.gate.bias", "[feed_forward]", GATED | HIDDEN_BIAS},
    {"layers.N.feed_forward.up.bias", "[feed_forward]", GATED | HIDDEN_BIAS},
    {"layers.N.feed_forward.output.weight", "[width, feed_forward]", 0},
    {"layers.N.feed_forward.output.bias", "[width]", HIDDEN_BIAS},
    {"layers.N.feed_forward.beta", "[1]", BETA},
};
static const line last[] = {
    {"final_norm.weight", "[width]", FINAL},
    {"final_norm.bias", "[width]", FINAL | SHIFT},
};
/* in place of layers and last norms: of the encoder, of the decoder, and behind the decoder's */
static const line reader[] = {
    {"layers.N.forward.input.weight", "[gates * way, width]", 0}, {"layers.N.forward.input.bias", "[gates * way]", 0},
    {"layers.N.forward.hidden.weight", "[gates * way, way]", 0},  {"layers.N.backward.input.weight", "[gates * way, width]", BOTH_WAYS},
    {"layers.N.backward.input.bias", "[gates * way]", BOTH_WAYS}, {"layers.N.backward.hidden.weight", "[gates * way, way]", BOTH_WAYS},
};
static const line writer[] = {
    {"layers.N.input.weight", "[gates * width, width]", 0},
    {"layers.N.input.bias", "[gates * width]", 0},
    {"layers.N.hidden.weight", "[gates * width, width]", 0},
};
static const line asking[] = {
    {"start.weight", "[states * width, memory_width]", CROSS},
    {"start.bias", "[states * width]", CROSS},
    {"attention.query.weight", "[width, width]", ASKS | SUM_SCORE},
    {"attention.score.weight", "[1, width]", ASKS | SUM_SCORE},
    {"attention.score.weight", "[memory_width, width]", ASKS | MATRIX_SCORE},
    {"attention.key.weight", "[width, memory_width]", ASKS | SUM_SCORE},
    {"attention.key.bias", "[width]", ASKS | SUM_SCORE},
    {"context.weight", "[gates * width, memory_width]", ASKS},
    {"readout.weight", "[width, read]", 0},
    {"readout.bias", "[width]", 0},
};
static const line head[] = {
    {"output.weight", "[target_vocabulary, width]", OUTPUT},
    {"output.bias", "[target_vocabulary]", OUTPUT_BIAS},
};
#define LINES(table) table, (int)(sizeof(table) / sizeof *(table))

static int64_t or_else(int64_t given, int64_t derived)
{
    return given == ATTN_DERIVED ? derived : given;
}

static side side_of(const options *o, int decoder)
{
    int64_t heads = o->heads, width = o->width, size = or_else(o->head_size, width / heads), forward = or_else(o->feed_forward, 4 * width);
    const int64_t gates = o->recurrence == ATTN_RECURRENCE_LSTM ? 4 : 1;
    if (!decoder) {
        side s = {o, 0, o->encoder_layers, width, heads, or_else(o->key_heads, heads), size, forward, 0, gates, 0, 0, 0};
        s.way = o->both_ways ? width / 2 : width;
        return s;
    }
    side s = {.o = o, .decoder = 1, .layers = o->decoder_layers, .memory_width = o->encoder_layers > 0 ? width : 0};
    s.width = or_else(o->decoder_width, width);
    s.heads = or_else(o->decoder_heads, heads);
    s.key_heads = or_else(o->key_heads, heads) == heads ? s.heads : o->key_heads;
    s.head_size = s.width == width ? size : s.width / s.heads;
    s.feed_forward = or_else(o->decoder_feed_forward, s.width == width ? forward : 4 * s.width);
    s.gates = gates;
    s.states = s.layers * (gates == 4 ? 2 : 1);
    s.read = s.width + (has(&s) & ASKS ? s.memory_width : 0);
    return s;
}

static int64_t size_of(const side *s, const char *word)
{
    const struct size {
        const char *word;
        int64_t value;
    } sizes[] = {{"width", s->width},
                 {"heads", s->heads},
                 {"key_heads", s->key_heads},
                 {"head_size", s->head_size},
                 {"feed_forward", s->feed_forward},
                 {"memory_width", s->memory_width},
                 {"projected", s->o->projected},
                 {"gates", s->gates},
                 {"way", s->way},
                 {"states", s->states},
                 {"read", s->read},
                 {"context", s->o->context},
                 {"position_buckets", s->o->position_buckets},
                 {"reach", 2 * s->o->position_reach + 1},
                 {"source_vocabulary", s->o->source_vocabulary},
                 {"target_vocabulary", or_else(s->o->target_vocabulary, s->o->source_vocabulary)},
                 {"1", 1}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (strcmp(sizes[i].word, word) == 0) return sizes[i].value;
    fail_msg("%s is no size", word);
    return 0;
}

typedef struct parameter {
    char name[NAME];
    int32_t rank;
    int64_t shape[4], elements;
} parameter;
typedef struct list {
    int64_t count, elements;
    parameter at[400];
} list;

/* the shape is read as written in the table: "[heads * head_size, width]" */
static void add(list *to, const side *s, const char *name, const char *shape)
{
    parameter *p = &to->at[to->count++];
    *p = (parameter){.rank = 1, .shape = {1, 1, 1, 1}};
    assert_true(to->count <= 400);
    snprintf(p->name, sizeof p->name, "%s", name);
    for (const char *at = shape; *at; at++) {
        char word[32] = "";
        int used = 0;
        for (; isalnum((unsigned char)*at) || *at == '_'; at++) word[used++] = *at;
        if (used > 0) p->shape[p->rank - 1] *= size_of(s, word);
        p->rank += *at == ',';
    }
    p->elements = p->shape[0] * p->shape[1];
    to->elements += p->elements;
}

static void add_lines(list *to, const side *s, const line *lines, int count, const char *prefix, int64_t index)
{
    char name[NAME], number[32];
    snprintf(number, sizeof number, "layers.%lld", (long long)index);
    for (int i = 0; i < count; i++) {
        if ((lines[i].needs & has(s)) != lines[i].needs) continue;
        int numbered = strncmp(lines[i].name, "layers.N", 8) == 0, first = strncmp(lines[i].name, "layers.0", 8) == 0;
        if (first && index > 0) continue; /* the first layer's table serves the stack */
        snprintf(name, sizeof name, "%s%s%s", prefix, numbered ? number : "", lines[i].name + (numbered ? 8 : 0));
        add(to, s, name, lines[i].shape);
    }
}

static void add_stack(list *to, const side *s, const char *prefix)
{
    if (s->o->recurrence != ATTN_RECURRENCE_NONE) {
        for (int64_t i = 0; i < s->layers; i++) {
            if (s->decoder) add_lines(to, s, LINES(writer), prefix, i);
            if (!s->decoder) add_lines(to, s, LINES(reader), prefix, i);
        }
        if (s->decoder) add_lines(to, s, LINES(asking), prefix, 0);
        return;
    }
    for (int64_t i = 0; i < s->layers; i++) add_lines(to, s, LINES(layer), prefix, i);
    add_lines(to, s, LINES(last), prefix, 0);
}

static void expand(const options *o, list *to)
{
    side encoder = side_of(o, 0), decoder = side_of(o, 1);
    to->count = to->elements = 0;
    if (decoder.layers > 0) add_lines(to, &decoder, LINES(target), "", 0);
    if (encoder.layers > 0) add_lines(to, &encoder, LINES(source), "", 0);
    if (encoder.layers > 0) add_stack(to, &encoder, "encoder.");
    if (decoder.layers > 0) add_stack(to, &decoder, "decoder.");
    add_lines(to, decoder.layers > 0 ? &decoder : &encoder, LINES(head), "", 0);
}

static list expected;

static void expect_described(attn_context *ctx, const options *o)
{
    char name[NAME];
    int32_t rank;
    int64_t shape[4];
    expand(o, &expected);
    for (int64_t i = 0; i < expected.count; i++) {
        const parameter *p = &expected.at[i];
        OK(ctx, attn_transformer_describe(ctx, o, i, NAME, name, &rank, shape));
        assert_string_equal(name, p->name);
        assert_int_equal(rank, p->rank);
        for (int axis = 0; axis < 4; axis++) assert_int_equal(shape[axis], p->shape[axis]);
    }
    FAILS(ctx, attn_transformer_describe(ctx, o, expected.count, NAME, name, &rank, shape), ATTN_ERROR_END_OF_DATA, "parameters");
}

static void expect_set(attn_parameters *set)
{
    assert_int_equal(attn_parameters_count(set), expected.count);
    assert_int_equal(attn_parameters_elements(set), expected.elements);
    for (int64_t i = 0; i < expected.count; i++) {
        const parameter *p = &expected.at[i];
        const attn_tensor *tensor = attn_parameters_tensor(set, i);
        assert_string_equal(attn_parameters_name(set, i), p->name);
        assert_int_equal(attn_tensor_rank(tensor), p->rank);
        for (int axis = 0; axis < p->rank; axis++) assert_int_equal(attn_tensor_extent(tensor, axis), p->shape[axis]);
    }
}

/* the option sets: what each changes in a model of 2 + 2 layers, 4 heads, width 16 */
typedef struct setting {
    const char *field;
    double value;
} setting;
enum { SETTINGS = 5, TIED = 14 };
static const setting sets[][SETTINGS] = {
    {{"dtype", ATTN_FLOAT32}},
    {{"encoder_layers", 0}},
    {{"decoder_layers", 0}},
    {{"decoder_layers", 0}, {"output_head", 0}},
    {{"gated", 1}, {"learned_beta", 1}, {"activation", ATTN_ACTIVATION_SWISH}},
    {{"attention_bias", 0}, {"feed_forward_bias", 0}, {"norm_bias", 0}, {"gated", 1}},
    {{"norm", ATTN_NORM_RMS}, {"norm_placement", ATTN_PLACEMENT_PRE}},
    {{"norm_placement", ATTN_PLACEMENT_PRE}},
    {{"norm_placement", ATTN_PLACEMENT_PRE}, {"final_norm", 0}},
    {{"parallel_block", 1}, {"norm_placement", ATTN_PLACEMENT_PRE}},
    {{"parallel_block", 1}, {"norm_bias", 0}},
    {{"positions", ATTN_POSITIONS_LEARNED}, {"embedding_norm", 1}, {"target_vocabulary", 29}},
    {{"positions", ATTN_POSITIONS_NONE}, {"output_bias", 1}},
    {{"tie", ATTN_TIE_OUTPUT}},
    {{"tie", ATTN_TIE_OUTPUT | ATTN_TIE_SOURCE}, {"output_bias", 1}}, /* TIED */
    {{"tie", ATTN_TIE_OUTPUT | ATTN_TIE_SOURCE}, {"decoder_layers", 0}},
    {{"key_heads", 2}, {"head_size", 6}, {"feed_forward", 20}},
    {{"decoder_width", 24}, {"decoder_heads", 6}, {"feed_forward", 40}},
    {{"positions", ATTN_POSITIONS_T5}, {"gated_attention", 1}, {"query_key_norm", ATTN_QUERY_KEY_LAYER}},
    {{"positions", ATTN_POSITIONS_RELATIVE}, {"gated_attention", 1}, {"query_key_norm", ATTN_QUERY_KEY_RMS}, {"attention_bias", 0}},
    {{"recurrence", ATTN_RECURRENCE_LSTM}},
    {{"recurrence", ATTN_RECURRENCE_TANH}, {"both_ways", 0}, {"decoder_score", ATTN_SCORE_MULTIPLICATIVE}, {"decoder_width", 24}},
    {{"recurrence", ATTN_RECURRENCE_LSTM}, {"decoder_attention", 0}, {"tie", ATTN_TIE_OUTPUT | ATTN_TIE_SOURCE}},
    {{"recurrence", ATTN_RECURRENCE_TANH}, {"decoder_score", ATTN_SCORE_SCALED_DOT}, {"target_vocabulary", 29}},
    {{"recurrence", ATTN_RECURRENCE_LSTM}, {"encoder_layers", 0}, {"positions", ATTN_POSITIONS_LEARNED}, {"embedding_norm", 1}},
    {{"recurrence", ATTN_RECURRENCE_LSTM}, {"decoder_layers", 0}, {"output_bias", 1}},
    {{"global_projections", 1}, {"positions", ATTN_POSITIONS_SINUSOIDAL}, {"key_heads", 2}},
    {{"global_projections", 1}, {"attention_bias", 0}},
    {{"form", ATTN_FORM_LINFORMER}, {"projected", 3}},
    {{"form", ATTN_FORM_PERFORMER}, {"features", 5}},
};

static options set_of(size_t index)
{
    options o;
    attn_transformer_options_init(&o, sizeof o);
    o.encoder_layers = o.decoder_layers = 2;
    o.width = 16;
    o.heads = 4;
    o.source_vocabulary = 31;
    o.context = 7;
    for (int i = 0; i < SETTINGS && sets[index][i].field != NULL; i++)
        attn__option_set(&o, attn__option_field(sets[index][i].field), sets[index][i].value);
    return o;
}

/* every set of options: described, made, and made as a stack of its own */
static void option_sets(void **state)
{
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    (void)state;
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        options o = set_of(i);
        attn_transformer *model = NULL;
        attn_encoder *encoder = NULL;
        attn_decoder *decoder = NULL;
        expect_described(ctx, &o);
        OK(ctx, attn_transformer_create(ctx, &o, &model));
        expect_set(attn_transformer_parameters(model));
        attn_transformer_free(model);
        if (o.recurrence != ATTN_RECURRENCE_NONE) continue; /* no stack of its own */
        OK(ctx, attn_encoder_create(ctx, &o, &encoder));
        side s = side_of(&o, 0);
        expected.count = expected.elements = 0;
        add_stack(&expected, &s, "");
        expect_set(attn_encoder_parameters(encoder));
        OK(ctx, attn_decoder_create(ctx, &o, &decoder));
        s = side_of(&o, 1);
        expected.count = expected.elements = 0;
        add_stack(&expected, &s, "");
        expect_set(attn_decoder_parameters(decoder));
        attn_decoder_free(decoder);
        attn_encoder_free(encoder);
    }
    attn_context_free(ctx);
}

/* presets of published sizes, without allocating them; the counts are those of the papers' models */
static void presets(void **state)
{
    const struct known {
        const char *name;
        int64_t elements;
    } all[] = {{"gpt2", 124439808}, {"gpt2-medium", 354823168}, {"llama-7b", 6738415616}, {"transformer-base", 0}, {"palm-8b", 0},
               {"gpt-char", 0},     {"lstm-attention", 0}};
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        options o;
        OK(ctx, attn_transformer_preset(ctx, all[i].name, &o, sizeof o));
        expect_described(ctx, &o);
        if (all[i].elements > 0) assert_int_equal(expected.elements, all[i].elements);
    }
    attn_context_free(ctx);
}

static const char *metadata(attn_context *ctx, const char *path, const char *key)
{
    static char text[4096];
    int64_t bytes;
    OK(ctx, attn_file_metadata(ctx, path, key, sizeof text, text, &bytes));
    return text;
}

/* a model's file and a checkpoint: tensors in the order of the set, then the moments; aliases, options and counters in the metadata */
static void files(void **state)
{
    static const char path[] = "test_names.safetensors";
    attn_context *ctx = model_context(ATTN_BACKEND_BLAS, 1, 0);
    options o = set_of(TIED);
    attn_transformer *model = model_create(ctx, &o);
    attn_trainer *trainer = NULL;
    attn__file *file = NULL;
    (void)state;
    OK(ctx, attn_trainer_create(ctx, model, NULL, NULL, NULL, NULL, &trainer));
    expand(&o, &expected);
    for (int checkpoint = 0; checkpoint < 2; checkpoint++) {
        char name[2 * NAME];
        if (checkpoint)
            OK(ctx, attn_trainer_save(ctx, trainer, 0, NULL, NULL, path));
        else
            OK(ctx, attn_transformer_save(ctx, model, 0, NULL, NULL, path));
        OK(ctx, attn__file_open(ctx, path, &file));
        assert_int_equal(file->count, (checkpoint ? 3 : 1) * expected.count);
        for (int64_t i = 0; i < file->count; i++) {
            static const char *const kinds[3] = {"", "optimizer.first_moment.", "optimizer.second_moment."};
            const parameter *p = &expected.at[i % expected.count];
            snprintf(name, sizeof name, "%s%s", kinds[i / expected.count], p->name);
            assert_string_equal(file->entries[i].name, name);
            assert_int_equal(file->entries[i].rank, p->rank);
            for (int axis = 0; axis < p->rank; axis++) assert_int_equal(file->entries[i].shape[axis], p->shape[axis]);
        }
        attn__file_close(file);
        assert_non_null(strstr(metadata(ctx, path, "attn.options"), "\"decoder_layers\":2"));
        assert_string_equal(metadata(ctx, path, "attn.alias.output.weight"), "target_embedding.weight");
        assert_string_equal(metadata(ctx, path, "attn.alias.source_embedding.weight"), "target_embedding.weight");
        if (checkpoint) assert_non_null(strstr(metadata(ctx, path, "attn.trainer"), "\"steps\":0"));
    }
    assert_int_equal(unlink(path), 0);
    attn_trainer_free(trainer);
    attn_transformer_free(model);
    attn_context_free(ctx);
}

/* docs/abi.md has every line of the tables above, as "| `name` | `shape` |", in this order and no other */
static void document(void **state)
{
    const struct part {
        const line *at;
        int count;
    } parts[] = {{LINES(target)}, {LINES(source)}, {LINES(layer)},  {LINES(last)},
                 {LINES(reader)}, {LINES(writer)}, {LINES(asking)}, {LINES(head)}};
    FILE *file = fopen(ATTN_TEST_DATA "/../docs/abi.md", "r");
    size_t part = 0;
    int i = 0, inside = 0;
    char text[1024], want[400];
    (void)state;
    assert_non_null(file);
    while (fgets(text, sizeof text, file) != NULL) {
        if (text[0] == '#') inside = strstr(text, "Parameter names") != NULL;
        if (!inside || strncmp(text, "| `", 3) != 0) continue;
        assert_true(part < sizeof parts / sizeof *parts);
        snprintf(want, sizeof want, "| `%s` | `%s` |", parts[part].at[i].name, parts[part].at[i].shape);
        if (strncmp(text, want, strlen(want)) != 0) fail_msg("docs/abi.md: got %s, expected %s", text, want);
        if (++i == parts[part].count) part++, i = 0;
    }
    fclose(file);
    assert_int_equal(part, sizeof parts / sizeof *parts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(option_sets), cmocka_unit_test(presets), cmocka_unit_test(files),
                                       cmocka_unit_test(document)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
