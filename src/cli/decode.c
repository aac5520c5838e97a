#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "commands.h"
#include "interrupt.h"
#include "message.h"
#include "pair_model.h"

typedef struct settings {
    flag_list models;
    const char *input;
    int64_t beam, nbest, batch, threads;
    double length_penalty;
    int32_t json, scores;
} settings;

static const flag flags[] = {
    {"model", FLAG_LIST, FLAG_FREE, offsetof(settings, models), "DIR", NULL, "needed",
     "the folder that \"attn train --task seq2seq\" wrote; several decode as one", "Flags", NULL, 1, MOST_MODELS},
    {"input", FLAG_TEXT, FLAG_FREE, offsetof(settings, input), "FILE", NULL, "needed", "a source on every line; - reads standard input",
     NULL, NULL, 0, 0},
    {"beam", FLAG_INTEGER, FLAG_FREE, offsetof(settings, beam), "N", "5", NULL, "hypotheses kept at each step; 1 is greedy", NULL, NULL, 1,
     1000},
    {"nbest", FLAG_INTEGER, FLAG_FREE, offsetof(settings, nbest), "N", "1", NULL, "hypotheses printed for each source, at most --beam",
     NULL, NULL, 1, 1000},
    {"length-penalty", FLAG_REAL, FLAG_FREE, offsetof(settings, length_penalty), "X", "1", NULL,
     "hypotheses are ranked by log p / length^X; 0: by log p", NULL, NULL, -100, 100},
    {"batch", FLAG_INTEGER, FLAG_FREE, offsetof(settings, batch), "N", "64", NULL, "sources decoded together", NULL, NULL, 1, 100000},
    {"threads", FLAG_INTEGER, FLAG_FREE, offsetof(settings, threads), "N", NULL, "default all processors", "threads that compute", NULL,
     NULL, 1, 256},
    {"scores", FLAG_SWITCH, FLAG_FREE, offsetof(settings, scores), "", NULL, NULL, "print rank and log p too", NULL, NULL, 0, 0},
    {"json", FLAG_SWITCH, FLAG_FREE, offsetof(settings, json), "", NULL, NULL, "print a JSON object for each hypothesis", NULL, NULL, 0, 0},
};
static const flag_set flag_table = {"decode", NULL, flags, sizeof flags / sizeof *flags};

typedef struct printer {
    const settings *settings;
    attn_context *ctx;
    const attn_vocabulary *vocabulary;
    const pair_text *sources;
    char *text;
    int64_t room;
} printer;

/* the text of the tokens, in p->text */
static int spell(printer *p, const int32_t *tokens, int64_t count, int64_t *bytes)
{
    attn_status status = attn_vocabulary_decode(p->ctx, p->vocabulary, tokens, count, p->room, p->text, bytes);
    if (status == ATTN_ERROR_FULL) {
        char *larger = realloc(p->text, (size_t)*bytes);
        if (larger == NULL) return fail(EXIT_MACHINE, "not enough memory for a line");
        p->text = larger;
        p->room = *bytes;
        status = attn_vocabulary_decode(p->ctx, p->vocabulary, tokens, count, p->room, p->text, bytes);
    }
    return status == ATTN_OK ? 0 : fail_call(p->ctx, status, NULL);
}

static int print_json(const printer *p, const pair_line *line, int64_t rank, int64_t bytes, double score)
{
    json_t *object = json_object();
    int failed = json_object_set_new(object, "source", json_stringn(line->source, (size_t)line->source_bytes)) != 0;
    failed |= json_object_set_new(object, "rank", json_integer(rank + 1)) != 0;
    failed |= json_object_set_new(object, "score", json_real(score)) != 0;
    /* bytes as targets need not be UTF-8 */
    json_t *target = json_stringn(bytes > 0 ? p->text : "", (size_t)bytes);
    failed |= json_object_set_new(object, "target", target != NULL ? target : json_null()) != 0;
    char *words = failed ? NULL : json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(object);
    if (words == NULL) return fail(EXIT_MACHINE, "not enough memory");
    printf("%s\n", words);
    free(words);
    return 0;
}

static int print_line(void *user, int64_t source, int64_t rank, const int32_t *tokens, int64_t count, double score)
{
    printer *p = user;
    const pair_line *line = &p->sources->at[source];
    int64_t bytes = 0;
    int status = spell(p, tokens, count, &bytes);
    if (status != 0) return status;
    if (p->settings->json) return print_json(p, line, rank, bytes, score);
    (void)fwrite(line->source, 1, (size_t)line->source_bytes, stdout);
    if (p->settings->scores || p->settings->nbest > 1) printf("\t%lld\t%.6f", (long long)rank + 1, score);
    (void)fputc('\t', stdout);
    (void)fwrite(p->text, 1, (size_t)bytes, stdout);
    (void)fputc('\n', stdout);
    return 0;
}

static int decode(const settings *s, const pair_model *m)
{
    pair_text sources;
    pair_ids ids = {NULL, NULL, 0, 0, 0};
    int status = read_sources(s->input, &sources);
    if (status != 0) return status;
    printer p = {s, m->ctx, m->vocabularies.target, &sources, NULL, 0};
    const translator t = translator_of(m, s->beam, s->nbest, s->batch, s->length_penalty);
    status = encode_pairs(m->ctx, m->vocabularies.source, &sources, 0, &ids);
    if (status == 0) status = check_lengths(&sources, 0, &ids, m->context);
    interrupt_watch(m->ctx);
    if (status == 0) status = translate(&t, &ids, print_line, &p);
    interrupt_end();
    free(p.text);
    free_ids(&ids);
    free_pairs(&sources);
    return status;
}

static int run_decode(int argc, char **argv)
{
    settings s = {.threads = ATTN_THREADS_ALL};
    parsed from;
    pair_model m = {.count = 0};
    int status = parse_flags(&flag_table, argc, argv, &s, &from);
    if (status == 0 && s.models.count == 0)
        status = fail(EXIT_INPUT, "--model: needed, the folder of a model (\"attn help decode\" shows an example)");
    if (status == 0 && s.input == NULL)
        status = fail(EXIT_INPUT, "--input: needed, a file with a source on every line (\"attn help decode\" shows an example)");
    if (status == 0 && s.nbest > s.beam)
        status = fail(EXIT_INPUT, "--nbest: got %lld, expected at most the %lld of --beam", (long long)s.nbest, (long long)s.beam);
    if (status == 0) status = open_pair_model(s.threads, s.models.count, s.models.at, &m);
    if (status == 0) status = decode(&s, &m);
    close_pair_model(&m);
    return status;
}

const command decode_command = {
    "decode",
    "turn sources into targets with a model of pairs",
    "  attn decode --model DIR [--model DIR2 ...] --input FILE [flags]\n",
    "Prints each source (the first column of its line), a tab and the best target that beam search finds, in the order of the\n"
    "input; with --nbest or --scores also the rank from 1 and the log probability. A hypothesis is ranked by its log probability\n"
    "divided by its length, the end counted, to the power of --length-penalty; among equals the earlier hypothesis and the\n"
    "lower token win. Several models decode as one: the mean of their probabilities counts. An empty line gives an empty target.\n",
    "  attn decode --model run --input words.txt\n"
    "  attn decode --model run1 --model run2 --input words.txt --beam 10 --nbest 3\n"
    "  echo hello | attn decode --model run --input -\n",
    &flag_table,
    run_decode};
