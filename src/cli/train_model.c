#include <math.h>
#include <stdio.h>
#include <string.h>
#include "message.h"
#include "nearest.h"
#include "train_settings.h"

/* in the order of the words of --activation */
static const struct {
    int32_t activation, gated;
} activations[] = {{ATTN_ACTIVATION_RELU, 0},      {ATTN_ACTIVATION_GELU, 0},  {ATTN_ACTIVATION_GELU_TANH, 0}, {ATTN_ACTIVATION_SWISH, 0},
                   {ATTN_ACTIVATION_SIGMOID, 0},   {ATTN_ACTIVATION_TANH, 0},  {ATTN_ACTIVATION_RELU, 1},      {ATTN_ACTIVATION_GELU, 1},
                   {ATTN_ACTIVATION_GELU_TANH, 1}, {ATTN_ACTIVATION_SWISH, 1}, {ATTN_ACTIVATION_SIGMOID, 1}};

int read_preset(attn_context *ctx, const char *name, attn_transformer_options *out)
{
    attn_status status = attn_transformer_preset(ctx, name, out, sizeof *out);
    if (status == ATTN_OK) return 0;
    char words[512] = "";
    const char *best = attn_transformer_preset_name(0), *preset;
    for (int64_t i = 0; (preset = attn_transformer_preset_name(i)) != NULL; i++) {
        size_t used = strlen(words);
        snprintf(words + used, sizeof words - used, "%s%s", i > 0 ? ", " : "", preset);
        if (word_distance(preset, name) < word_distance(best, name)) best = preset;
    }
    return fail(EXIT_INPUT, "--preset: got \"%.100s\", expected one of %s; the nearest is %s", name, words, best);
}

/* an encoder and a decoder */
static int as_sequence_model(const char *preset, const attn_transformer_options *o)
{
    if (o->encoder_layers > 0 && o->decoder_layers > 0 && o->output_head && o->patch_values == 0) return 0;
    return fail(EXIT_INPUT, "--preset: \"%.100s\" has no encoder and decoder, and --task seq2seq trains both", preset);
}

/* the preset's decoder alone, which predicts the next token */
static int as_language_model(const char *preset, attn_transformer_options *o)
{
    if (o->decoder_layers == 0) return fail(EXIT_INPUT, "--preset: \"%.100s\" has no decoder, and --task lm trains one", preset);
    if (o->decoder_width != ATTN_DERIVED) o->width = o->decoder_width;
    if (o->decoder_heads != ATTN_DERIVED) o->heads = o->decoder_heads;
    if (o->decoder_feed_forward != ATTN_DERIVED) o->feed_forward = o->decoder_feed_forward;
    o->decoder_width = o->decoder_heads = o->decoder_feed_forward = ATTN_DERIVED;
    o->encoder_layers = 0;
    o->tie &= ~ATTN_TIE_SOURCE;
    return 0;
}

static int set_initialisation(const char *words, attn_transformer_options *o)
{
    double deviation;
    if (strcmp(words, "xavier") == 0) {
        o->initialisation = ATTN_INITIALISATION_XAVIER;
        return 0;
    }
    if (!read_real(words, &deviation) || deviation < 0 || deviation > 1000)
        return fail(EXIT_INPUT, "--init: got \"%.100s\", expected a deviation from 0 to 1000, or xavier", words);
    o->initialisation = ATTN_INITIALISATION_SCALED_NORMAL;
    o->initialisation_scale = deviation;
    return 0;
}

static int is_given(const train_settings *s, size_t offset)
{
    for (int i = 0; i < train_flags.count; i++)
        if (train_flags.at[i].offset == offset) return s->from.given[i];
    return 0;
}
#define GIVEN(field) is_given(s, offsetof(train_settings, field))

static void set_sizes(const train_settings *s, attn_transformer_options *o)
{
    int by_width = fabs(o->embedding_scale - sqrt((double)o->width)) < 1e-9; /* the original's scale follows the width */
    if (GIVEN(layers)) o->decoder_layers = s->layers;
    if (GIVEN(layers) && o->encoder_layers > 0) o->encoder_layers = s->layers;
    if (GIVEN(encoder_layers)) o->encoder_layers = s->encoder_layers;
    if (GIVEN(heads)) o->heads = s->heads;
    if (GIVEN(width)) o->width = s->width;
    if (GIVEN(heads) || GIVEN(width)) o->head_size = ATTN_DERIVED;
    if (GIVEN(feed_forward)) o->feed_forward = s->feed_forward;
    if (GIVEN(decoder_width)) o->decoder_width = s->decoder_width;
    if (GIVEN(decoder_heads)) o->decoder_heads = s->decoder_heads;
    if (GIVEN(decoder_feed_forward)) o->decoder_feed_forward = s->decoder_feed_forward;
    if (GIVEN(context)) o->context = s->context;
    if (by_width && o->width != 1) o->embedding_scale = sqrt((double)o->width);
    if (o->feed_forward == ATTN_DERIVED) o->feed_forward = 4 * o->width;
}

/* flags of what a recurrent model has not */
static int refuse_attention(const train_settings *s)
{
    const struct {
        const char *name;
        int given;
    } flags[] = {{"heads", GIVEN(heads)},
                 {"decoder-heads", GIVEN(decoder_heads)},
                 {"feed-forward", GIVEN(feed_forward)},
                 {"decoder-feed-forward", GIVEN(decoder_feed_forward)},
                 {"activation", GIVEN(activation)},
                 {"activation-dropout", GIVEN(dropout_activation)},
                 {"norm-placement", GIVEN(norm_placement)},
                 {"form", GIVEN(form)}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (flags[i].given) return fail(EXIT_INPUT, "--%s: goes with --model transformer alone", flags[i].name);
    return 0;
}

/* a preset of either kind becomes the other's: sizes, tables and dropout stay */
static int set_recurrence(const train_settings *s, attn_transformer_options *o)
{
    if (GIVEN(model) && s->model == 0 && o->recurrence != ATTN_RECURRENCE_NONE) {
        o->recurrence = ATTN_RECURRENCE_NONE;
        o->positions = ATTN_POSITIONS_SINUSOIDAL; /* attention alone knows no order */
    }
    if (GIVEN(model) && s->model == 1 && o->recurrence == ATTN_RECURRENCE_NONE) {
        o->recurrence = ATTN_RECURRENCE_LSTM;
        o->positions = ATTN_POSITIONS_NONE;
    }
    if (o->recurrence == ATTN_RECURRENCE_NONE && (GIVEN(cell) || GIVEN(score) || GIVEN(one_way)))
        return fail(EXIT_INPUT, "--%s: goes with --model recurrent alone", GIVEN(cell) ? "cell" : GIVEN(score) ? "score" : "one-way");
    if (GIVEN(cell)) o->recurrence = s->cell == 0 ? ATTN_RECURRENCE_TANH : ATTN_RECURRENCE_LSTM;
    if (GIVEN(score)) {
        o->decoder_attention = s->score <= ATTN_SCORE_ADDITIVE;
        if (o->decoder_attention) o->decoder_score = s->score;
    }
    if (GIVEN(one_way)) o->both_ways = 0;
    if (o->recurrence != ATTN_RECURRENCE_NONE && o->both_ways && o->encoder_layers > 0 && o->width % 2 != 0)
        return fail(EXIT_INPUT, "--width: got %lld, expected an even number, half of it for each direction", (long long)o->width);
    if (o->recurrence == ATTN_RECURRENCE_NONE) return 0;
    o->heads = 1;
    return refuse_attention(s);
}

/* linear forms know no caps, and positions in the embedding or rotary ones */
static int set_form(const train_settings *s, attn_transformer_options *o)
{
    if (GIVEN(form)) o->form = s->form;
    if (GIVEN(features)) o->features = s->features;
    if (GIVEN(projected)) o->projected = s->projected;
    if (GIVEN(features) && o->form != ATTN_FORM_PERFORMER) return fail(EXIT_INPUT, "--features: goes with --form performer alone");
    if (GIVEN(projected) && o->form != ATTN_FORM_LINFORMER) return fail(EXIT_INPUT, "--projected: goes with --form linformer alone");
    if (o->form == ATTN_FORM_LINFORMER && o->projected < 1)
        return fail(EXIT_INPUT, "--projected: needed with --form linformer, the rows that keys and values are projected to");
    if (o->form == ATTN_FORM_LINFORMER && o->encoder_layers == 0)
        return fail(EXIT_INPUT, "--form: got linformer, which no decoder has, expected another with --task lm");
    return 0;
}

static void set_parts(const train_settings *s, attn_transformer_options *o)
{
    if (GIVEN(activation)) {
        o->activation = activations[s->activation].activation;
        o->gated = activations[s->activation].gated;
        if (o->activation != ATTN_ACTIVATION_SWISH) o->learned_beta = 0;
    }
    if (GIVEN(norm_placement)) o->norm_placement = s->norm_placement;
    if (GIVEN(norm_epsilon)) o->norm_epsilon = s->norm_epsilon;
    if (GIVEN(positions)) o->positions = s->positions;
    if (GIVEN(tie)) o->tie = s->tie;
    if (s->task == TASK_SEQ2SEQ) o->tie &= ~ATTN_TIE_SOURCE; /* two vocabularies */
    if (GIVEN(no_bias)) o->attention_bias = o->feed_forward_bias = o->norm_bias = o->output_bias = 0;
    if (GIVEN(dropout)) o->dropout_embedding = o->dropout_attention = o->dropout_sublayer = s->dropout;
    if (GIVEN(dropout_attention)) o->dropout_attention = s->dropout_attention;
    if (GIVEN(dropout_activation)) o->dropout_activation = s->dropout_activation;
}

int model_of_settings(attn_context *ctx, const train_settings *s, int64_t source_vocabulary, int64_t target_vocabulary, int64_t context,
                      attn_transformer_options *out)
{
    attn_transformer_options o;
    int status = read_preset(ctx, s->preset, &o);
    if (status == 0) status = s->task == TASK_SEQ2SEQ ? as_sequence_model(s->preset, &o) : as_language_model(s->preset, &o);
    if (status != 0) return status;
    if (context > 0) o.context = context;
    set_sizes(s, &o);
    status = set_recurrence(s, &o);
    if (status != 0) return status;
    set_parts(s, &o);
    status = set_form(s, &o);
    if (status != 0) return status;
    if (GIVEN(initialisation)) status = set_initialisation(s->initialisation, &o);
    if (status != 0) return status;
    if (o.width % o.heads != 0 && o.head_size == ATTN_DERIVED)
        return fail(EXIT_INPUT, "--width: got %lld, expected a multiple of the %lld heads", (long long)o.width, (long long)o.heads);
    if (o.head_size == ATTN_DERIVED && s->task == TASK_LM) o.head_size = o.width / o.heads;
    o.source_vocabulary = source_vocabulary;
    o.target_vocabulary = target_vocabulary;
    *out = o;
    return 0;
}

void optimizer_of_settings(const train_settings *s, attn_optimizer_options *out)
{
    attn_optimizer_options_init(out, sizeof *out);
    out->optimizer = s->optimizer;
    out->no_decay = ATTN_NO_DECAY_BIAS | ATTN_NO_DECAY_NORM;
    out->rate = s->rate;
    out->beta1 = s->beta1;
    out->beta2 = s->beta2;
    out->epsilon = s->epsilon;
    out->weight_decay = s->weight_decay;
    out->l2 = s->l2;
    out->clip = s->clip;
}

void schedule_of_settings(const train_settings *s, int64_t width, attn_schedule_options *out)
{
    attn_schedule_options_init(out, sizeof *out);
    out->schedule = s->schedule;
    out->warmup = s->warmup;
    out->total = s->decay_steps;
    out->width = width;
    out->rate = s->rate;
    out->final_rate = s->final_rate;
}
