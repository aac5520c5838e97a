#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "commands.h"
#include "interrupt.h"
#include "message.h"
#include "model_file.h"
#include "score.h"
#include "terminal.h"
#include "text.h"

typedef struct settings {
    const char *model, *data;
    int64_t threads;
    int32_t json;
} settings;

static const flag flags[] = {
    {"model", FLAG_TEXT, FLAG_FREE, offsetof(settings, model), "DIR", NULL, "needed", "the folder that \"attn train\" wrote", "Flags", NULL,
     0, 0},
    {"data", FLAG_TEXT, FLAG_FREE, offsetof(settings, data), "FILE", NULL, "needed", "the text to predict", NULL, NULL, 0, 0},
    {"threads", FLAG_INTEGER, FLAG_FREE, offsetof(settings, threads), "N", NULL, "default all processors", "threads that compute", NULL,
     NULL, 1, 256},
    {"json", FLAG_SWITCH, FLAG_FREE, offsetof(settings, json), "", NULL, NULL, "print a JSON object", NULL, NULL, 0, 0},
};
static const flag_set flag_table = {"eval", NULL, flags, sizeof flags / sizeof *flags};

static void print_result(const settings *s, double loss, int64_t tokens)
{
    char count[32];
    if (s->json) {
        printf("{\"loss\": %.9g, \"perplexity\": %.9g, \"tokens\": %lld}\n", loss, exp(loss), (long long)tokens);
        return;
    }
    printf("loss        %.4f nats a token\nperplexity  %.4f\ntokens      %s\n", loss, exp(loss), readable_count(tokens, count));
}

static int evaluate_file(attn_context *ctx, const void *wanted, const attn_transformer *model, const attn_vocabulary *vocabulary)
{
    const settings *s = wanted;
    text from = {NULL, 0};
    int32_t *tokens = NULL;
    int64_t count = 0, scored = 0;
    double loss;
    attn_dataset *windows = NULL;
    attn_transformer_options o;
    attn_transformer_options_init(&o, sizeof o);
    int status = read_text(s->data, &from);
    if (status == 0) status = encode_text(ctx, vocabulary, s->data, &from, &tokens, &count);
    if (status == 0 && count < 2)
        status =
            fail(EXIT_INPUT, "%s: got %lld token, expected at least 2: one to start from and one to predict", s->data, (long long)count);
    attn_status made = status == 0 ? attn_transformer_get_options(ctx, model, &o) : ATTN_OK;
    if (made != ATTN_OK) status = fail_call(ctx, made, s->model);
    if (status == 0) status = open_windows(ctx, s->data, tokens, count, 0, 1, o.context, &windows);
    if (status == 0) {
        interrupt_watch(ctx);
        made = score(ctx, model, windows, &loss, &scored);
        interrupt_end();
        if (made != ATTN_OK)
            status = fail_call(ctx, made, s->data);
        else if (!isfinite(loss))
            status = fail(EXIT_MACHINE, "%s: the loss is not finite: the weights are broken", s->model);
        else
            print_result(s, loss, scored);
    }
    attn_dataset_free(windows);
    free(tokens);
    free(from.at);
    return status;
}

static int run_eval(int argc, char **argv)
{
    settings s = {.threads = ATTN_THREADS_ALL};
    parsed from;
    int status = parse_flags(&flag_table, argc, argv, &s, &from);
    if (status == 0 && s.model == NULL)
        status = fail(EXIT_INPUT, "--model: needed, the folder of a model (\"attn help eval\" shows an example)");
    if (status == 0 && s.data == NULL)
        status = fail(EXIT_INPUT, "--data: needed, the text to predict (\"attn help eval\" shows an example)");
    return status == 0 ? with_model(s.threads, s.model, evaluate_file, &s) : status;
}

const command eval_command = {
    "eval",
    "say how well a model predicts a text",
    "  attn eval --model DIR --data FILE [--json]\n",
    "Predicts every token of the text but the first, in windows of the model's context that do not overlap, and prints the\n"
    "mean loss in nats (the negative logarithm of the probability that the model gave to what came), the perplexity\n"
    "(e to the loss: as if so many tokens were equally likely) and how many tokens were predicted.\n",
    "  attn eval --model run --data other.txt\n"
    "  attn eval --model run --data other.txt --json\n",
    &flag_table,
    run_eval};
