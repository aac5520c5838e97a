#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "info_report.h"
#include "message.h"
#include "terminal.h"

/* The configuration as a table: one row for each option worth a line. */
enum { MOST_NUMBERS = 1024 }; /* of heads of one layer that are named one by one */

typedef enum row_kind { ROW_SIZE, ROW_WORD, ROW_YES, ROW_REAL } row_kind;
typedef struct row {
    const char *key, *label;
    row_kind kind;
    size_t offset;
    const char *const *words;
} row;

static const char *const dtypes[] = {"", "float32", "float64"};
static const char *const norms[] = {"layer norm", "RMS norm"};
static const char *const placements[] = {"after each part", "before each part"};
static const char *const activations[] = {"identity", "ReLU", "GELU", "GELU (tanh)", "Swish", "sigmoid", "tanh"};
static const char *const positions[] = {"none", "sinusoidal", "learned", "rotary", "T5 (relative)", "ALiBi", "relative"};
static const char *const ties[] = {"none", "output with input", "source with target", "output, source and target"};
static const char *const recurrences[] = {"none", "tanh", "LSTM"};
static const char *const scores[] = {"dot", "scaled dot", "bilinear", "additive"};
static const char *const forms[] = {"softmax", "linear", "Performer", "Linformer"};
static const char *const starts[] = {"Xavier", "scaled normal"};

#define ROW(label, kind, field, words) \
    { \
#field, label, kind, offsetof(attn_transformer_options, field), words \
    }
static const row rows[] = {ROW("recurrent layers", ROW_WORD, recurrence, recurrences),
                           ROW("encoder layers", ROW_SIZE, encoder_layers, NULL),
                           ROW("decoder layers", ROW_SIZE, decoder_layers, NULL),
                           ROW("width", ROW_SIZE, width, NULL),
                           ROW("encoder both ways", ROW_YES, both_ways, NULL),
                           ROW("decoder attends", ROW_YES, decoder_attention, NULL),
                           ROW("scores", ROW_WORD, decoder_score, scores),
                           ROW("heads", ROW_SIZE, heads, NULL),
                           ROW("key and value heads", ROW_SIZE, key_heads, NULL),
                           ROW("head size", ROW_SIZE, head_size, NULL),
                           ROW("feed-forward", ROW_SIZE, feed_forward, NULL),
                           ROW("decoder width", ROW_SIZE, decoder_width, NULL),
                           ROW("decoder heads", ROW_SIZE, decoder_heads, NULL),
                           ROW("decoder feed-forward", ROW_SIZE, decoder_feed_forward, NULL),
                           ROW("source vocabulary", ROW_SIZE, source_vocabulary, NULL),
                           ROW("target vocabulary", ROW_SIZE, target_vocabulary, NULL),
                           ROW("context", ROW_SIZE, context, NULL),
                           ROW("numbers of a patch", ROW_SIZE, patch_values, NULL),
                           ROW("segment types", ROW_SIZE, segment_types, NULL),
                           ROW("numbers", ROW_WORD, dtype, dtypes),
                           ROW("norm", ROW_WORD, norm, norms),
                           ROW("norm placement", ROW_WORD, norm_placement, placements),
                           ROW("final norm", ROW_YES, final_norm, NULL),
                           ROW("norm epsilon", ROW_REAL, norm_epsilon, NULL),
                           ROW("norm of embeddings", ROW_YES, embedding_norm, NULL),
                           ROW("activation", ROW_WORD, activation, activations),
                           ROW("gated", ROW_YES, gated, NULL),
                           ROW("learned beta", ROW_YES, learned_beta, NULL),
                           ROW("parallel parts", ROW_YES, parallel_block, NULL),
                           ROW("positions", ROW_WORD, positions, positions),
                           ROW("form of attention", ROW_WORD, form, forms),
                           ROW("features of a head", ROW_SIZE, features, NULL),
                           ROW("projected rows", ROW_SIZE, projected, NULL),
                           ROW("global projections", ROW_YES, global_projections, NULL),
                           ROW("tied embeddings", ROW_WORD, tie, ties),
                           ROW("attention biases", ROW_YES, attention_bias, NULL),
                           ROW("feed-forward biases", ROW_YES, feed_forward_bias, NULL),
                           ROW("norm biases", ROW_YES, norm_bias, NULL),
                           ROW("output bias", ROW_YES, output_bias, NULL),
                           ROW("output head", ROW_YES, output_head, NULL),
                           ROW("embedding scale", ROW_REAL, embedding_scale, NULL),
                           ROW("first weights", ROW_WORD, initialisation, starts),
                           ROW("deviation of weights", ROW_REAL, initialisation_scale, NULL),
                           ROW("dropout, embedding", ROW_REAL, dropout_embedding, NULL),
                           ROW("dropout, attention", ROW_REAL, dropout_attention, NULL),
                           ROW("dropout, parts", ROW_REAL, dropout_sublayer, NULL),
                           ROW("dropout, activation", ROW_REAL, dropout_activation, NULL)};

static double value_of(const row *r, const attn_transformer_options *o)
{
    const char *at = (const char *)o + r->offset;
    int64_t size;
    int32_t code;
    double real;
    if (r->kind == ROW_SIZE) return memcpy(&size, at, sizeof size), (double)size;
    if (r->kind == ROW_REAL) return memcpy(&real, at, sizeof real), real;
    return memcpy(&code, at, sizeof code), (double)code;
}

static int is_one_of(const char *key, const char *const *keys)
{
    while (*keys != NULL && strcmp(*keys, key) != 0) keys++;
    return *keys != NULL;
}

/* of Transformers alone, of recurrent models alone, of such with both parts */
static int is_of_other(const char *key, const attn_transformer_options *o)
{
    static const char *const attention[] = {
        "heads",          "key_heads",         "head_size",          "feed_forward", "decoder_heads",      "decoder_feed_forward",
        "norm_placement", "final_norm",        "activation",         "gated",        "learned_beta",       "parallel_block",
        "attention_bias", "feed_forward_bias", "dropout_activation", "form",         "global_projections", NULL};
    static const char *const of_norms[] = {"norm", "norm_epsilon", "norm_bias", NULL}; /* recurrent models have those of embeddings alone */
    static const char *const recurrent[] = {"recurrence", "both_ways", "decoder_attention", "decoder_score", NULL};
    const int both = o->encoder_layers > 0 && o->decoder_layers > 0;
    if (o->recurrence == ATTN_RECURRENCE_NONE) return is_one_of(key, recurrent);
    if (strcmp(key, "both_ways") == 0) return o->encoder_layers == 0;
    if (strcmp(key, "decoder_attention") == 0) return !both;
    if (strcmp(key, "decoder_score") == 0 || strcmp(key, "dropout_attention") == 0) return !both || !o->decoder_attention;
    return is_one_of(key, of_norms) ? !o->embedding_norm : is_one_of(key, attention);
}

/* options that say nothing here: parts that are absent, sizes that are those of the other side */
static int is_silent(const row *r, const attn_transformer_options *o)
{
    double value = value_of(r, o);
    int both = o->encoder_layers > 0 && o->decoder_layers > 0;
    if (is_of_other(r->key, o)) return 1;
    if (strcmp(r->key, "form") == 0) return o->form == ATTN_FORM_SOFTMAX;
    if (strcmp(r->key, "features") == 0) return o->form != ATTN_FORM_PERFORMER;
    if (strcmp(r->key, "projected") == 0) return o->form != ATTN_FORM_LINFORMER;
    if (strcmp(r->key, "global_projections") == 0) return !o->global_projections;
    if (strncmp(r->key, "decoder_", 8) == 0 && strcmp(r->key, "decoder_layers") != 0) return !both || value < 0;
    if (strcmp(r->key, "source_vocabulary") == 0 && o->encoder_layers == 0) return o->target_vocabulary >= 0;
    if (strcmp(r->key, "initialisation_scale") == 0) return o->initialisation == ATTN_INITIALISATION_XAVIER;
    if (strcmp(r->key, "final_norm") == 0) return o->norm_placement == ATTN_PLACEMENT_POST;
    if (r->kind == ROW_YES) return 0;
    return value == 0 && r->kind != ROW_WORD;
}

static void print_row(const row *r, const attn_transformer_options *o)
{
    char number[32];
    double value = value_of(r, o);
    printf("  %-22s", r->label);
    if (value < 0 && r->kind == ROW_SIZE)
        printf("follows\n");
    else if (r->kind == ROW_SIZE)
        printf("%s\n", readable_count((int64_t)value, number));
    else if (r->kind == ROW_REAL)
        printf("%g\n", value);
    else if (r->kind == ROW_YES)
        printf("%s\n", value != 0 ? "yes" : "no");
    else
        printf("%s\n", r->words[(int)value]);
}

/* sizes that follow from others, spelt out */
static attn_transformer_options spelt_out(const attn_transformer_options *from)
{
    attn_transformer_options o = *from;
    if (o.key_heads == ATTN_DERIVED) o.key_heads = o.heads;
    if (o.head_size == ATTN_DERIVED) o.head_size = o.width / o.heads;
    if (o.feed_forward == ATTN_DERIVED) o.feed_forward = 4 * o.width;
    if (o.decoder_width == ATTN_DERIVED) o.decoder_width = o.width;
    if (o.decoder_heads == ATTN_DERIVED) o.decoder_heads = o.heads;
    if (o.decoder_feed_forward == ATTN_DERIVED) o.decoder_feed_forward = o.decoder_width == o.width ? o.feed_forward : 4 * o.decoder_width;
    if (o.target_vocabulary == ATTN_DERIVED) o.target_vocabulary = o.source_vocabulary;
    return o;
}

static void print_modules(const info_report *r)
{
    char number[32];
    int wide = 10;
    for (int64_t i = 0; i < r->module_count; i++)
        if ((int)strlen(r->modules[i].path) > wide) wide = (int)strlen(r->modules[i].path);
    printf("\nparameters\n");
    for (int64_t i = 0; i < r->module_count; i++) {
        const info_module *m = &r->modules[i];
        printf("  %-*s %16s  %5.1f %%", wide, m->path, readable_count(m->parameters, number),
               r->parameters > 0 ? 100 * (double)m->parameters / (double)r->parameters : 0);
        if (m->layers > 1) printf("  %lld x %s", (long long)m->layers, readable_count(m->parameters / m->layers, number));
        printf("\n");
    }
    printf("  %-*s %16s\n", wide, "all", readable_count(r->parameters, number));
}

static void print_size(const char *label, int64_t bytes)
{
    char text[32];
    printf("  %-22s%12s\n", label, readable_bytes(bytes, text));
}

static void print_cost(const char *label, int64_t amount)
{
    char text[32];
    printf("  %-22s%s\n", label, readable_amount((double)amount, text));
}

/* layers that have lost heads */
static void print_heads(attn_context *ctx, const info_report *r)
{
    int64_t numbers[MOST_NUMBERS];
    char label[64];
    for (int32_t decoder = 0; decoder < 2; decoder++)
        for (int64_t i = 0; i < (decoder ? r->options.decoder_layers : r->options.encoder_layers); i++) {
            int64_t count = info_heads(ctx, r, decoder, i, MOST_NUMBERS, numbers);
            if (count == 0) continue;
            snprintf(label, sizeof label, "%s layer %lld", decoder ? "decoder" : "encoder", (long long)i);
            printf("  %-22s%lld of %lld heads:", label, (long long)count,
                   (long long)(decoder ? r->options.decoder_heads : r->options.heads));
            for (int64_t h = 0; h < count && count <= MOST_NUMBERS; h++) printf(" %lld", (long long)numbers[h]);
            printf("%s\n", count > MOST_NUMBERS ? " many" : "");
        }
}

int info_print(attn_context *ctx, const info_report *r)
{
    const attn_transformer_options o = spelt_out(&r->options);
    char length[32], batch[32];
    printf("%s\n\nconfiguration\n", r->name);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!is_silent(&rows[i], &o)) print_row(&rows[i], &o);
    print_heads(ctx, r);
    print_modules(r);
    readable_count(r->length, length);
    readable_count(r->batch, batch);
    printf("\nmemory for %s sequence%s of %s tokens\n", batch, r->batch == 1 ? "" : "s", length);
    print_size("weights", r->parameters * (o.dtype == ATTN_FLOAT64 ? 8 : 4));
    if (o.output_head) print_size("training", r->training.peak_bytes);
    print_size("inference, at once", r->inference.peak_bytes);
    if (r->cache_bytes > 0) print_size("keys and values kept", r->cache_bytes);
    printf("\ncost of %s sequence%s of %s tokens, in multiply-adds\n", batch, r->batch == 1 ? "" : "s", length);
    print_cost("forward", r->inference.forward);
    if (o.output_head) print_cost("forward, backward", r->training.forward + r->training.backward);
    print_cost("forward, by formula", r->inference.forward_formula);
    return EXIT_FINE;
}

static json_t *configuration(const attn_transformer_options *o)
{
    json_t *object = json_object();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        double value = value_of(r, o);
        json_t *made = r->kind == ROW_SIZE   ? json_integer((json_int_t)value)
                       : r->kind == ROW_REAL ? json_real(value)
                       : r->kind == ROW_YES  ? json_boolean((int)value)
                                             : json_string(r->words[(int)value]);
        if (json_object_set_new(object, r->key, made) != 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

static json_t *modules(const info_report *r)
{
    json_t *array = json_array();
    for (int64_t i = 0; i < r->module_count; i++) {
        const info_module *m = &r->modules[i];
        if (json_array_append_new(array, json_pack("{s:s, s:I, s:I, s:I}", "module", m->path, "parameters", (json_int_t)m->parameters,
                                                   "tensors", (json_int_t)m->tensors, "layers", (json_int_t)m->layers)) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

/* {"decoder.layers.1": [0, 2]}: the layers that have lost heads, null when none has */
static json_t *heads_left(attn_context *ctx, const info_report *r)
{
    int64_t numbers[MOST_NUMBERS];
    char name[64];
    json_t *object = json_object();
    for (int32_t decoder = 0; object != NULL && decoder < 2; decoder++)
        for (int64_t i = 0; i < (decoder ? r->options.decoder_layers : r->options.encoder_layers); i++) {
            int64_t count = info_heads(ctx, r, decoder, i, MOST_NUMBERS, numbers);
            if (count == 0 || count > MOST_NUMBERS) continue;
            json_t *array = json_array();
            for (int64_t h = 0; h < count; h++) json_array_append_new(array, json_integer((json_int_t)numbers[h]));
            snprintf(name, sizeof name, "%s.layers.%lld", decoder ? "decoder" : "encoder", (long long)i);
            json_object_set_new(object, name, array);
        }
    if (object == NULL || json_object_size(object) > 0) return object;
    json_decref(object);
    return json_null();
}

/* numbers of training are null for a model without an output head, which has no loss */
static json_t *number(const info_report *r, int64_t value)
{
    return r->options.output_head ? json_integer(value) : json_null();
}

int info_print_json(attn_context *ctx, const info_report *r)
{
    const attn_transformer_options o = spelt_out(&r->options);
    json_t *settings = r->settings != NULL ? json_incref(r->settings) : json_null();
    json_t *object = json_pack("{s:s*, s:o, s:o, s:o, s:I, s:o, s:I, s:I, s:{s:I, s:o, s:I, s:I}, s:{s:I, s:o, s:I, s:o}}", "name", r->name,
                               "configuration", configuration(&o), "heads", heads_left(ctx, r), "settings", settings, "parameters",
                               (json_int_t)r->parameters, "modules", modules(r), "length", (json_int_t)r->length, "batch",
                               (json_int_t)r->batch, "memory", "weights", (json_int_t)(r->parameters * (o.dtype == ATTN_FLOAT64 ? 8 : 4)),
                               "training", number(r, r->training.peak_bytes), "inference", (json_int_t)r->inference.peak_bytes,
                               "keys_and_values", (json_int_t)r->cache_bytes, "multiply_adds", "forward", (json_int_t)r->inference.forward,
                               "backward", number(r, r->training.backward), "forward_formula", (json_int_t)r->inference.forward_formula,
                               "backward_formula", number(r, r->training.backward_formula));
    char *words = object != NULL ? json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(object);
    if (words == NULL) return fail(EXIT_MACHINE, "not enough memory for the JSON object");
    printf("%s\n", words);
    free(words);
    return EXIT_FINE;
}
