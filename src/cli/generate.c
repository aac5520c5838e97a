#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "commands.h"
#include "interrupt.h"
#include "message.h"
#include "model_file.h"
#include "terminal.h"
#include "text.h"

typedef struct settings {
    const char *model, *prompt;
    int64_t tokens, top_k, threads;
    double temperature, top_p;
    uint64_t seed;
    int32_t json;
} settings;

static const flag flags[] = {
    {"model", FLAG_TEXT, FLAG_FREE, offsetof(settings, model), "DIR", NULL, "needed", "the folder that \"attn train\" wrote", "Flags", NULL,
     0, 0},
    {"prompt", FLAG_TEXT, FLAG_FREE, offsetof(settings, prompt), "TEXT", NULL, "default a line end, which is not printed",
     "the text to go on from", NULL, NULL, 0, 0},
    {"tokens", FLAG_INTEGER, FLAG_FREE, offsetof(settings, tokens), "N", "400", NULL, "how many tokens to add", NULL, NULL, 0, 1e12},
    {"temperature", FLAG_REAL, FLAG_FREE, offsetof(settings, temperature), "X", "0.8", NULL,
     "below 1 safer, above 1 wilder; 0 takes the likeliest", NULL, NULL, 0, 1000},
    {"top-k", FLAG_INTEGER, FLAG_FREE, offsetof(settings, top_k), "N", "0", NULL, "choose among the N likeliest; 0: all", NULL, NULL, 0,
     1e9},
    {"top-p", FLAG_REAL, FLAG_FREE, offsetof(settings, top_p), "X", "1", NULL,
     "choose among the likeliest that together have probability X", NULL, NULL, 1e-9, 1},
    {"seed", FLAG_SEED, FLAG_FREE, offsetof(settings, seed), "N", "1", NULL, "another seed, another text", NULL, NULL, 0, 0},
    {"threads", FLAG_INTEGER, FLAG_FREE, offsetof(settings, threads), "N", NULL, "default all processors", "threads that compute", NULL,
     NULL, 1, 256},
    {"json", FLAG_SWITCH, FLAG_FREE, offsetof(settings, json), "", NULL, NULL,
     "print a JSON object at the end instead of the text as it comes", NULL, NULL, 0, 0},
};
static const flag_set flag_table = {"generate", NULL, flags, sizeof flags / sizeof *flags};

/* A text under way. */
typedef struct session {
    const settings *settings;
    attn_context *ctx;
    const attn_transformer *model;
    const attn_vocabulary *vocabulary;
    attn_generator *generator;
    int32_t *tokens; /* prompt and text, [count] */
    int64_t count, prompt_count, context, held;
    uint64_t slides; /* how often the window was moved on */
    char *out;       /* text that came so far; its last `held` bytes are not printed yet */
    size_t out_bytes, out_room;
} session;

/* A full cache: the last half of the context becomes the prompt of a new window. Each window draws with a seed of its own. */
static attn_status open_window(session *s, int64_t first)
{
    attn_generator_options o;
    attn_status status = attn_generator_options_init(&o, sizeof o);
    o.capacity = s->context;
    o.temperature = s->settings->temperature;
    o.top_k = s->settings->top_k;
    o.top_p = s->settings->top_p;
    o.seed = s->settings->seed + s->slides++ * 0x9E3779B97F4A7C15u;
    attn_generator_free(s->generator);
    s->generator = NULL;
    if (status == ATTN_OK) status = attn_generator_create(s->ctx, s->model, &o, &s->generator);
    if (status == ATTN_OK) status = attn_generator_prompt_tokens(s->ctx, s->generator, s->count - first, s->tokens + first);
    return status;
}

static int keep(session *s, const char *bytes, int64_t count)
{
    if (s->out_bytes + (size_t)count > s->out_room) {
        size_t room = 2 * s->out_room + (size_t)count + 256;
        char *larger = realloc(s->out, room);
        if (larger == NULL) return fail(EXIT_MACHINE, "not enough memory for the text");
        s->out = larger;
        s->out_room = room;
    }
    memcpy(s->out + s->out_bytes, bytes, (size_t)count);
    s->out_bytes += (size_t)count;
    return 0;
}

/* prints what was held back and the new bytes, up to the last whole character; -1: the reader is gone */
static int emit(session *s, const char *bytes, int64_t count)
{
    int status = keep(s, bytes, count);
    if (status != 0 || s->settings->json) return status;
    size_t begin = s->out_bytes - (size_t)count - (size_t)s->held;
    s->held = unfinished_bytes(s->out + begin, (int64_t)(s->out_bytes - begin));
    (void)fwrite(s->out + begin, 1, s->out_bytes - begin - (size_t)s->held, stdout);
    return output_now() ? 0 : -1;
}

static int emit_token(session *s, int32_t token)
{
    char bytes[64];
    int64_t count = 0;
    attn_status status = attn_vocabulary_decode(s->ctx, s->vocabulary, &token, 1, (int64_t)sizeof bytes, bytes, &count);
    return status == ATTN_OK ? emit(s, bytes, count) : fail_call(s->ctx, status, NULL);
}

static int generate(session *s)
{
    int64_t longest = s->context - 1, half = s->context / 2, first = s->count > longest ? s->count - half : 0;
    attn_status status = open_window(s, first);
    for (int64_t i = 0; status == ATTN_OK && i < s->settings->tokens; i++) {
        int32_t next, finished;
        if (interrupted()) return EXIT_INTERRUPTED;
        if (s->count - first == s->context) {
            first = s->count - half;
            status = open_window(s, first);
            if (status != ATTN_OK) break;
        }
        status = attn_generator_step(s->ctx, s->generator, 1, &next, &finished);
        if (status != ATTN_OK) break;
        s->tokens[s->count++] = next;
        int printed = emit_token(s, next);
        if (printed < 0) return 0;
        if (printed > 0) return printed;
    }
    return status == ATTN_OK ? 0 : fail_call(s->ctx, status, NULL);
}

/* bytes that are no UTF-8 become U+FFFD, since JSON has only characters */
static json_t *json_characters(const char *at, size_t bytes)
{
    char *clean = malloc(3 * bytes + 1);
    size_t used = 0;
    if (clean == NULL) return NULL;
    for (size_t i = 0; i < bytes;) {
        int64_t n = character_bytes((const unsigned char *)at + i, (int64_t)(bytes - i));
        if (n > 0)
            memcpy(clean + used, at + i, (size_t)n);
        else
            memcpy(clean + used, "\xEF\xBF\xBD", 3);
        used += n > 0 ? (size_t)n : 3;
        i += n > 0 ? (size_t)n : 1;
    }
    json_t *made = json_stringn(clean, used);
    free(clean);
    return made;
}

static int print_json(const session *s, const char *prompt)
{
    json_t *object = json_object();
    int failed = json_object_set_new(object, "prompt", json_characters(prompt, strlen(prompt))) != 0;
    failed |= json_object_set_new(object, "text", json_characters(s->out, s->out_bytes)) != 0;
    failed |= json_object_set_new(object, "tokens", json_integer(s->count - s->prompt_count)) != 0;
    char *words = failed ? NULL : json_dumps(object, JSON_INDENT(2));
    json_decref(object);
    if (words == NULL) return fail(EXIT_MACHINE, "not enough memory");
    printf("%s\n", words);
    free(words);
    return 0;
}

static int finish(session *s, const char *prompt, int status)
{
    if (s->settings->json) return status == 0 ? print_json(s, prompt) : status;
    if (s->held > 0) (void)fwrite(s->out + s->out_bytes - (size_t)s->held, 1, (size_t)s->held, stdout);
    if (isatty(STDOUT_FILENO) && (s->out_bytes == 0 || s->out[s->out_bytes - 1] != '\n')) printf("\n");
    return status;
}

static int read_prompt(session *s, const char *prompt)
{
    int64_t bytes = (int64_t)strlen(prompt);
    if (bytes == 0) return fail(EXIT_INPUT, "--prompt: got \"\", expected at least one token to go on from");
    if (s->context < 2)
        return fail(EXIT_INPUT, "%s: its context of %lld has no room for a prompt and a next token", s->settings->model,
                    (long long)s->context);
    s->tokens = s->settings->tokens < INT64_MAX / 8 - bytes ? malloc((size_t)(bytes + s->settings->tokens) * sizeof *s->tokens) : NULL;
    if (s->tokens == NULL) return fail(EXIT_MACHINE, "not enough memory for %lld tokens", (long long)s->settings->tokens);
    attn_status status = attn_vocabulary_encode(s->ctx, s->vocabulary, prompt, bytes, bytes, s->tokens, &s->count);
    if (status != ATTN_OK) return fail_call(s->ctx, status, "--prompt");
    s->prompt_count = s->count;
    return 0;
}

/* a text without line ends has no such token: then the first token of all */
static const char *usual_prompt(const session *s, char room[64])
{
    int32_t token = 0;
    int64_t count = 0;
    if (attn_vocabulary_encode(s->ctx, s->vocabulary, "\n", 1, 1, &token, &count) == ATTN_OK) return "\n";
    if (attn_vocabulary_decode(s->ctx, s->vocabulary, &token, 1, 63, room, &count) != ATTN_OK) return "\n";
    room[count] = 0;
    return room;
}

static int start(session *s)
{
    attn_transformer_options o;
    char room[64];
    attn_transformer_options_init(&o, sizeof o);
    attn_status status = attn_transformer_get_options(s->ctx, s->model, &o);
    if (status != ATTN_OK) return fail_call(s->ctx, status, s->settings->model);
    s->context = o.context;
    const char *prompt = s->settings->prompt != NULL ? s->settings->prompt : usual_prompt(s, room);
    int failed = read_prompt(s, prompt);
    if (failed) return failed;
    interrupt_watch(s->ctx);
    if (s->settings->prompt != NULL && !s->settings->json) failed = emit(s, prompt, (int64_t)strlen(prompt));
    if (failed == 0) failed = generate(s);
    interrupt_end();
    return finish(s, prompt, failed < 0 ? 0 : failed);
}

static int run_generate(int argc, char **argv)
{
    settings options = {.threads = ATTN_THREADS_ALL};
    parsed from;
    attn_transformer *model = NULL;
    attn_vocabulary *vocabulary = NULL;
    session s = {.settings = &options};
    int status = parse_flags(&flag_table, argc, argv, &options, &from);
    if (status == 0 && options.model == NULL)
        status = fail(EXIT_INPUT, "--model: needed, the folder of a model (\"attn help generate\" shows an example)");
    if (status == 0) status = open_context(options.threads, 0, &s.ctx);
    if (status == 0) status = load_model(s.ctx, options.model, &model);
    if (status == 0) status = load_vocabulary(s.ctx, options.model, model, &vocabulary);
    s.model = model;
    s.vocabulary = vocabulary;
    if (status == 0) status = start(&s);
    attn_generator_free(s.generator);
    attn_vocabulary_free(vocabulary);
    attn_transformer_free(model);
    attn_context_free(s.ctx);
    free(s.tokens);
    free(s.out);
    return status;
}

const command generate_command = {
    "generate",
    "write text with a model",
    "  attn generate --model DIR [--prompt TEXT] [flags]\n",
    "Goes on from the prompt, token by token, and prints the text as it comes. The same seed gives the same text. When the\n"
    "model's context is full, the last half of it becomes the start of a new window, and the text goes on.\n",
    "  attn generate --model run --prompt \"Once upon a time\" --tokens 300\n"
    "  attn generate --model run --temperature 1 --top-p 0.9 --seed 7\n",
    &flag_table,
    run_generate};
