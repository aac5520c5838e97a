/* A server in small: words come in on standard input, several threads pronounce them. One model, which all of them only read; for each
   thread a context (of one thread: the words are what runs in parallel) and a generator, which it keeps from word to word.
       ./08_server say/model.safetensors 2 <words.txt
   cc 08_server.c $(pkg-config --cflags --libs libattn) -pthread */
#include <attn/attn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define TRY(call) \
    do { \
        if ((call) != ATTN_OK) return fprintf(stderr, "%s\n", attn_context_last_error(ctx)), 1; \
    } while (0)
enum { MOST = 256, MOST_THREADS = 64 };

typedef struct server {
    const attn_transformer *model;
    const attn_vocabulary *letters, *phones;
    pthread_mutex_t in, out;
    int failed;
} server;

static int vocabulary(attn_context *ctx, const attn_transformer *model, const char *key, attn_vocabulary **out)
{
    const char *text = attn_transformer_metadata(model, key);
    if (text == NULL) return fprintf(stderr, "the model has no %s\n", key), 1;
    TRY(attn_vocabulary_from_text(ctx, text, (int64_t)strlen(text), out));
    return 0;
}

static int next_word(server *s, char *line, int bytes)
{
    pthread_mutex_lock(&s->in);
    int got = fgets(line, bytes, stdin) != NULL;
    pthread_mutex_unlock(&s->in);
    line[got ? strcspn(line, "\r\n") : 0] = 0;
    return got;
}

/* one word; a word that cannot be read is answered with why, and the next one comes */
static int answer(attn_context *ctx, server *s, attn_generator *g, const char *line)
{
    int32_t word[MOST], said[MOST], newest, finished = 0, stop = (int32_t)attn_vocabulary_size(s->phones);
    int64_t length = 0, count = 0, bytes = 0, one = 1;
    char text[8 * MOST];
    attn_tensor *source = NULL, *target = NULL;
    if (attn_vocabulary_encode(ctx, s->letters, line, (int64_t)strlen(line), MOST - 1, word, &length) != ATTN_OK) {
        pthread_mutex_lock(&s->out);
        printf("%s\t(%s)\n", line, attn_context_last_error(ctx));
        pthread_mutex_unlock(&s->out);
        return 0;
    }
    word[length++] = (int32_t)attn_vocabulary_size(s->letters);
    TRY(attn_tensor_wrap(ctx, ATTN_INT32, 1, &length, NULL, word, &source));
    TRY(attn_tensor_wrap(ctx, ATTN_INT32, 1, &one, NULL, &stop, &target));
    const attn_batch batch = {.struct_size = sizeof batch, .source = source, .target = target};
    TRY(attn_generator_prompt(ctx, g, &batch));
    for (int i = 1; i < MOST && !finished; i++) TRY(attn_generator_step(ctx, g, 1, &newest, &finished));
    TRY(attn_generator_result(ctx, g, 0, 0, MOST, said, &count, NULL));
    TRY(attn_vocabulary_decode(ctx, s->phones, said, count, sizeof text, text, &bytes));
    attn_tensor_free(source);
    attn_tensor_free(target);
    pthread_mutex_lock(&s->out);
    printf("%s\t%.*s\n", line, (int)bytes, text);
    pthread_mutex_unlock(&s->out);
    return 0;
}

static int serve(attn_context *ctx, server *s)
{
    char line[MOST];
    attn_generator_options o;
    attn_generator *g = NULL;
    const int32_t stop = (int32_t)attn_vocabulary_size(s->phones);
    int failed = 0;
    TRY(attn_generator_options_init(&o, sizeof o));
    o.beam = 5;
    o.capacity = MOST;
    o.stop_count = 1;
    o.stops = &stop;
    TRY(attn_generator_create(ctx, s->model, &o, &g));
    while (!failed && next_word(s, line, sizeof line)) failed = answer(ctx, s, g, line);
    attn_generator_free(g);
    return failed;
}

static void *work(void *argument)
{
    server *s = argument;
    attn_context_options o;
    attn_context *ctx = NULL;
    int failed = attn_context_options_init(&o, sizeof o) != ATTN_OK;
    o.threads = 1;
    failed = failed || attn_context_create(&o, &ctx) != ATTN_OK || serve(ctx, s) != 0;
    attn_context_free(ctx);
    pthread_mutex_lock(&s->out);
    s->failed |= failed;
    pthread_mutex_unlock(&s->out);
    return NULL;
}

int main(int argc, char **argv)
{
    static server s = {.in = PTHREAD_MUTEX_INITIALIZER, .out = PTHREAD_MUTEX_INITIALIZER};
    attn_context *ctx = NULL;
    attn_transformer *model = NULL;
    attn_vocabulary *letters = NULL, *phones = NULL;
    pthread_t threads[MOST_THREADS];
    int count = argc > 2 ? atoi(argv[2]) : 2, started = 0;
    if (argc < 2 || count < 1 || count > MOST_THREADS) return printf("%s MODEL [THREADS] <WORDS\n", argv[0]), argc > 1;
    TRY(attn_context_create(NULL, &ctx));
    TRY(attn_transformer_load(ctx, argv[1], NULL, &model));
    if (vocabulary(ctx, model, "program.source_vocabulary", &letters) || vocabulary(ctx, model, "program.target_vocabulary", &phones))
        return 1;
    s.model = model;
    s.letters = letters;
    s.phones = phones;
    while (started < count && pthread_create(&threads[started], NULL, work, &s) == 0) started++;
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    attn_vocabulary_free(letters);
    attn_vocabulary_free(phones);
    attn_transformer_free(model);
    attn_context_free(ctx);
    return s.failed || started == 0;
}
