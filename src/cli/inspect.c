#include <stdio.h>
#include <stdlib.h>
#include "commands.h"
#include "files.h"
#include "maps.h"
#include "message.h"
#include "model_file.h"
#include "text.h"

enum { MOST_TOKENS = 64, MOST_MAPS = 1024 };

typedef struct settings {
    const char *model, *text, *out;
    int64_t threads;
} settings;

static const flag flags[] = {
    {"model", FLAG_TEXT, FLAG_FREE, offsetof(settings, model), "DIR", NULL, "needed", "the folder that \"attn train\" wrote", "Flags", NULL,
     0, 0},
    {"text", FLAG_TEXT, FLAG_FREE, offsetof(settings, text), "TEXT", NULL, "needed", "what the model reads, up to 64 tokens", NULL, NULL, 0,
     0},
    {"out", FLAG_TEXT, FLAG_FREE, offsetof(settings, out), "FILE", NULL, "needed", "the picture to write, map.svg, say", NULL, NULL, 0, 0},
    {"threads", FLAG_INTEGER, FLAG_FREE, offsetof(settings, threads), "N", NULL, "default all processors", "threads that compute", NULL,
     NULL, 1, 256},
};
static const flag_set flag_table = {"inspect", NULL, flags, sizeof flags / sizeof *flags};

/* heads that were read one behind another go to their places, the last one first: none has a smaller number than its place */
static void spread(maps *m, int64_t layer, const int64_t *numbers, int64_t count)
{
    const int64_t squares = m->tokens * m->tokens;
    float *w = m->weights + layer * m->heads * squares, *e = m->entropy + layer * m->heads * m->tokens;
    memset(m->gone + layer * m->heads, 1, (size_t)m->heads);
    for (int64_t h = count - 1; h >= 0; h--) {
        m->gone[layer * m->heads + numbers[h]] = 0;
        memmove(w + numbers[h] * squares, w + h * squares, (size_t)squares * sizeof *w);
        memmove(e + numbers[h] * m->tokens, e + h * m->tokens, (size_t)m->tokens * sizeof *e);
    }
}

/* weights [heads, n, n] and entropies [heads, n] of every layer */
static attn_status look(attn_context *ctx, const attn_transformer *model, attn_tensor *tokens, maps *m)
{
    attn_batch batch;
    attn_inspect_request r;
    int64_t numbers[MOST_MAPS], shape[3] = {0, m->tokens, m->tokens};
    attn_status status = attn_batch_init(&batch, sizeof batch);
    if (status == ATTN_OK) status = attn_inspect_request_init(&r, sizeof r);
    batch.target = tokens;
    r.part = ATTN_INSPECT_DECODER;
    for (r.layer = 0; status == ATTN_OK && r.layer < m->layers; r.layer++) {
        attn_tensor *weights = NULL, *entropy = NULL;
        status = attn_transformer_heads(ctx, model, 1, r.layer, MOST_MAPS, numbers, &shape[0]);
        if (status == ATTN_OK)
            status = attn_tensor_wrap(ctx, ATTN_FLOAT32, 3, shape, NULL, m->weights + r.layer * m->heads * m->tokens * m->tokens, &weights);
        if (status == ATTN_OK)
            status = attn_tensor_wrap(ctx, ATTN_FLOAT32, 2, shape, NULL, m->entropy + r.layer * m->heads * m->tokens, &entropy);
        r.weights = weights;
        r.entropy = entropy;
        if (status == ATTN_OK) status = attn_transformer_inspect(ctx, model, &batch, &r);
        if (status == ATTN_OK) spread(m, r.layer, numbers, shape[0]);
        attn_tensor_free(weights);
        attn_tensor_free(entropy);
    }
    return status;
}

static int draw(attn_context *ctx, const settings *s, const attn_transformer *model, const attn_vocabulary *vocabulary, int32_t *ids,
                maps *m)
{
    attn_tensor *tokens = NULL;
    const char *problem = NULL;
    int64_t squares = m->layers * m->heads * m->tokens;
    m->weights = calloc((size_t)(squares * m->tokens + 1), sizeof(float));
    m->entropy = calloc((size_t)(squares + 1), sizeof(float));
    m->gone = calloc((size_t)(m->layers * m->heads + 1), 1);
    if (m->weights == NULL || m->entropy == NULL || m->gone == NULL) return fail(EXIT_MACHINE, "no memory for the maps");
    attn_status status = attn_tensor_wrap(ctx, ATTN_INT32, 1, &m->tokens, NULL, ids, &tokens);
    if (status == ATTN_OK) status = look(ctx, model, tokens, m);
    attn_tensor_free(tokens);
    if (status != ATTN_OK) return fail_call(ctx, status, s->model);
    char *picture = draw_maps(ctx, m, vocabulary, ids);
    if (picture == NULL) return fail(EXIT_MACHINE, "no memory for the picture");
    int bad = replace_file(s->out, picture, (int64_t)strlen(picture), &problem);
    free(picture);
    if (bad) return fail(EXIT_MACHINE, "%s: cannot be written: %s", s->out, problem);
    int64_t count = 0;
    for (int64_t i = 0; i < m->layers * m->heads; i++) count += !m->gone[i];
    printf("%s: %lld maps of %lld tokens\n", s->out, (long long)count, (long long)m->tokens);
    return 0;
}

static int inspect_text(attn_context *ctx, const void *wanted, const attn_transformer *model, const attn_vocabulary *vocabulary)
{
    const settings *s = wanted;
    int32_t *ids = NULL;
    int64_t count = 0;
    attn_transformer_options o;
    attn_transformer_options_init(&o, sizeof o);
    const text from = {(char *)(uintptr_t)s->text, (int64_t)strlen(s->text)};
    attn_status status = attn_transformer_get_options(ctx, model, &o);
    if (status != ATTN_OK) return fail_call(ctx, status, s->model);
    if (o.recurrence != ATTN_RECURRENCE_NONE)
        return fail(EXIT_INPUT, "%s: holds a recurrent model, expected one whose layers are attention", s->model);
    int failed = check_decoder(s->model, &o);
    if (failed == 0) failed = encode_text(ctx, vocabulary, "--text", &from, &ids, &count);
    maps m = {.layers = o.decoder_layers, .heads = o.decoder_heads, .tokens = count};
    int64_t most = o.positions == ATTN_POSITIONS_LEARNED && o.context < MOST_TOKENS ? o.context : MOST_TOKENS;
    if (failed == 0 && (count < 1 || count > most))
        failed = fail(EXIT_INPUT, "--text: got %lld tokens, expected 1 to %lld", (long long)count, (long long)most);
    if (failed == 0 && m.layers * m.heads > MOST_MAPS)
        failed = fail(EXIT_INPUT, "%s: got %lld layers of %lld heads, expected at most %d maps", s->model, (long long)m.layers,
                      (long long)m.heads, MOST_MAPS);
    if (failed == 0) failed = draw(ctx, s, model, vocabulary, ids, &m);
    free(m.weights);
    free(m.entropy);
    free(m.gone);
    free(ids);
    return failed;
}

static int run_inspect(int argc, char **argv)
{
    settings s = {.threads = ATTN_THREADS_ALL};
    parsed from;
    int status = parse_flags(&flag_table, argc, argv, &s, &from);
    if (status == 0 && s.model == NULL)
        status = fail(EXIT_INPUT, "--model: needed, the folder of a model (\"attn help inspect\" shows an example)");
    if (status == 0 && s.text == NULL)
        status = fail(EXIT_INPUT, "--text: needed, what the model reads (\"attn help inspect\" shows an example)");
    if (status == 0 && s.out == NULL)
        status = fail(EXIT_INPUT, "--out: needed, the picture to write (\"attn help inspect\" shows an example)");
    return status == 0 ? with_model(s.threads, s.model, inspect_text, &s) : status;
}

const command inspect_command = {
    "inspect",
    "draw where a model looks when it reads a text",
    "  attn inspect --model DIR --text TEXT --out FILE.svg\n",
    "Draws a map for every head of every layer: a row for each token that reads, a column for each token that is read, dark\n"
    "where the weight is large, grey where a later token may not be seen. Beside each layer stands the entropy of its heads\n"
    "along the text: 0 where a head looks at one token alone, ln(n) where it looks at n tokens alike.\n",
    "  attn inspect --model run --text \"To be, or not to be\" --out map.svg\n",
    &flag_table,
    run_inspect};
