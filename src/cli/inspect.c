#include "inspect.h"
#include <stdio.h>
#include <stdlib.h>
#include "commands.h"
#include "maps.h"
#include "message.h"
#include "model_file.h"
#include "text.h"

typedef inspect_settings settings;

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

static int draw(attn_context *ctx, const settings *s, const attn_transformer *model, const attn_vocabulary *vocabulary, int32_t *ids,
                maps *m)
{
    attn_batch batch;
    attn_tensor *tokens = NULL;
    attn_status status = attn_batch_init(&batch, sizeof batch);
    if (status == ATTN_OK) status = attn_tensor_wrap(ctx, ATTN_INT32, 1, &m->rows, NULL, ids, &tokens);
    batch.target = tokens;
    if (status == ATTN_OK) status = fill_maps(ctx, model, ATTN_INSPECT_DECODER, &batch, m);
    attn_tensor_free(tokens);
    if (status != ATTN_OK) return fail_call(ctx, status, s->model);
    name_tokens(ctx, vocabulary, m->rows, ids, m->row_names);
    memcpy(m->column_names, m->row_names, (size_t)m->rows * sizeof *m->row_names);
    return save_maps(m, s->out);
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
    maps m = {.layers = o.decoder_layers,
              .heads = o.decoder_heads,
              .rows = count,
              .columns = count,
              .causal = 1,
              .title = "Where the model looks",
              .legend = "a row for each token that reads, a column for each token it reads; the darker, the more; grey: not yet said"};
    int64_t most = o.positions == ATTN_POSITIONS_LEARNED && o.context < INSPECT_TOKENS ? o.context : INSPECT_TOKENS;
    if (failed == 0 && (count < 1 || count > most))
        failed = fail(EXIT_INPUT, "--text: got %lld tokens, expected 1 to %lld", (long long)count, (long long)most);
    if (failed == 0) failed = open_maps(&m, s->model);
    if (failed == 0) failed = draw(ctx, s, model, vocabulary, ids, &m);
    close_maps(&m);
    free(ids);
    return failed;
}

static int run_inspect(int argc, char **argv)
{
    settings s = {.threads = ATTN_THREADS_ALL};
    parsed from;
    int pairs = 0;
    int status = parse_flags(&flag_table, argc, argv, &s, &from);
    if (status == 0 && s.model == NULL)
        status = fail(EXIT_INPUT, "--model: needed, the folder of a model (\"attn help inspect\" shows an example)");
    if (status == 0 && s.text == NULL)
        status = fail(EXIT_INPUT, "--text: needed, what the model reads (\"attn help inspect\" shows an example)");
    if (status == 0 && s.out == NULL)
        status = fail(EXIT_INPUT, "--out: needed, the picture to write (\"attn help inspect\" shows an example)");
    if (status == 0) status = holds_pairs(s.model, &pairs);
    if (status != 0) return status;
    return pairs ? inspect_pair(&s) : with_model(s.threads, s.model, inspect_text, &s);
}

const command inspect_command = {
    "inspect",
    "draw where a model looks when it reads a text",
    "  attn inspect --model DIR --text TEXT --out FILE.svg\n",
    "Draws a map for every head of every layer: a row for each token that reads, a column for each token that is read, dark\n"
    "where the weight is large, grey where a later token may not be seen. Beside each layer stands the entropy of its heads\n"
    "along the text: 0 where a head looks at one token alone, ln(n) where it looks at n tokens alike.\n"
    "\n"
    "Of a model of pairs the text is a source: its target is decoded as \"attn decode\" does, and the maps show where in the\n"
    "source each of its tokens comes from, row by row up to the end.\n",
    "  attn inspect --model run --text \"To be, or not to be\" --out map.svg\n"
    "  attn inspect --model hun --text szabadság --out alignment.svg\n",
    &flag_table,
    run_inspect};
