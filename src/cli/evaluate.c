#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "commands.h"
#include "evaluate_pairs.h"
#include "interrupt.h"
#include "message.h"
#include "model_file.h"
#include "score.h"
#include "terminal.h"
#include "text.h"

typedef struct settings {
    const char *model, *data;
    int64_t threads, beam, batch;
    double length_penalty;
    int32_t json, task;
} settings;

enum { TASK_OF_MODEL = 0, TASK_OF_TEXT = 1, TASK_OF_PAIRS = 2 };
static const char *const tasks[] = {"auto", "lm", "seq2seq", NULL};

static const flag flags[] = {
    {"model", FLAG_TEXT, FLAG_FREE, offsetof(settings, model), "DIR", NULL, "needed", "the folder that \"attn train\" wrote", "Flags", NULL,
     0, 0},
    {"data", FLAG_TEXT, FLAG_FREE, offsetof(settings, data), "FILE", NULL, "needed",
     "the text to predict, or pairs: source, tab, target on every line", NULL, NULL, 0, 0},
    {"task", FLAG_CHOICE, FLAG_FREE, offsetof(settings, task), "NAME", "auto", NULL, "what the model must be for; auto: what it is for",
     NULL, tasks, 0, 0},
    {"beam", FLAG_INTEGER, FLAG_FREE, offsetof(settings, beam), "N", "5", NULL, "pairs: hypotheses kept at each step; 1 is greedy", NULL,
     NULL, 1, 1000},
    {"length-penalty", FLAG_REAL, FLAG_FREE, offsetof(settings, length_penalty), "X", "1", NULL, "pairs: as in \"attn decode\"", NULL, NULL,
     -100, 100},
    {"batch", FLAG_INTEGER, FLAG_FREE, offsetof(settings, batch), "N", "64", NULL, "pairs decoded together", NULL, NULL, 1, 100000},
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
    int pairs = 0;
    if (status == 0) status = holds_pairs(s.model, &pairs);
    if (status == 0 && s.task != TASK_OF_MODEL && pairs != (s.task == TASK_OF_PAIRS))
        status = fail(EXIT_INPUT, "--task: got \"%s\", but %s holds a model for %s", tasks[s.task], s.model,
                      tasks[pairs ? TASK_OF_PAIRS : TASK_OF_TEXT]);
    if (status != 0 || !pairs) return status == 0 ? with_model(s.threads, s.model, evaluate_file, &s) : status;
    const pair_evaluation wanted = {s.model, s.data, s.beam, s.batch, s.threads, s.length_penalty, s.json, 0};
    return evaluate_pairs(&wanted);
}

const command eval_command = {
    "eval",
    "say how well a model predicts a text, or turns sources into targets",
    "  attn eval --model DIR --data FILE [--json]\n",
    "Predicts every token of the text but the first, in windows of the model's context that do not overlap, and prints the\n"
    "mean loss in nats (the negative logarithm of the probability that the model gave to what came), the perplexity\n"
    "(e to the loss: as if so many tokens were equally likely) and how many tokens were predicted.\n"
    "\n"
    "Of a model of pairs: decodes every source by beam search and prints how many targets are wrong (word error), the edits\n"
    "that would mend them for each hundred tokens (token error), the loss without smoothing, and the expected calibration\n"
    "error: how far the probability of the likeliest token is from how often it is right, in 15 bins.\n",
    "  attn eval --model run --data other.txt\n"
    "  attn eval --model run --data other.txt --json\n"
    "  attn eval --model run --data test.tsv --beam 5\n",
    &flag_table,
    run_eval};
