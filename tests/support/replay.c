#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "support/fuzz.h"
#include "support/random.h"

enum { MOST_FILES = 500, LARGEST = 1 << 16, CHANGES = 6 };

typedef struct input {
    uint8_t *at;
    size_t bytes;
    char name[256];
} input;

/* what is being run, for the one who finds the process dead */
static const uint8_t *volatile running;
static volatile size_t running_bytes;
static char finding[64];

static void keep_finding(void)
{
    int file = open(finding, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (file < 0 || running == NULL) return;
    ssize_t wrote = write(file, running, running_bytes);
    close(file);
    static const char words[] = "the input is in ";
    if (wrote < 0 || write(2, words, sizeof words - 1) < 0 || write(2, finding, strlen(finding)) < 0 || write(2, "\n", 1) < 0) return;
}

static void died(int number)
{
    keep_finding();
    signal(number, SIG_DFL);
    raise(number);
}

/* there under a sanitizer, which ends the process by itself */
__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)(void));

static void watch(const char *name)
{
    static char room[1 << 16]; /* of its own, for a stack that is used up */
    const stack_t stack = {.ss_sp = room, .ss_size = sizeof room};
    const int numbers[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE};
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = died;
    action.sa_flags = SA_ONSTACK;
    snprintf(finding, sizeof finding, "fuzz-%.40s.input", name);
    if (__sanitizer_set_death_callback != NULL) {
        __sanitizer_set_death_callback(keep_finding);
    } else if (sigaltstack(&stack, NULL) == 0) {
        for (int i = 0; i < 4; i++) sigaction(numbers[i], &action, NULL);
    }
}

static void run(const uint8_t *data, size_t bytes)
{
    uint8_t *exact = malloc(bytes + (bytes == 0)); /* of this size, so that a read past the end is seen */
    fuzz_require(exact != NULL, "memory for an input");
    if (bytes > 0) memcpy(exact, data, bytes);
    running = exact;
    running_bytes = bytes;
    LLVMFuzzerTestOneInput(exact, bytes);
    running = NULL;
    free(exact);
}

static int read_input(const char *path, const char *name, input *out)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) return 1;
    out->at = malloc(LARGEST);
    fuzz_require(out->at != NULL, "memory for an input");
    out->bytes = fread(out->at, 1, LARGEST, file);
    snprintf(out->name, sizeof out->name, "%s", name);
    fclose(file);
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const input *)a)->name, ((const input *)b)->name);
}

static int read_corpus(const char *name, input *corpus)
{
    char folder[4096], path[4096 + 260];
    snprintf(folder, sizeof folder, "%s/fuzz/corpus/%s", ATTN_TEST_DATA, name);
    int count = 0;
    DIR *list = opendir(folder);
    if (list == NULL) return 0;
    for (struct dirent *entry; count < MOST_FILES && (entry = readdir(list)) != NULL;) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        count += read_input(path, entry->d_name, &corpus[count]) == 0;
    }
    closedir(list);
    qsort(corpus, (size_t)count, sizeof *corpus, by_name);
    return count;
}

static void make_room(uint8_t *at, size_t *bytes, size_t place, size_t more)
{
    if (*bytes + more > LARGEST) return;
    memmove(at + place + more, at + place, *bytes - place);
    *bytes += more;
}

static void change(random_state *random, uint8_t *at, size_t *bytes, const input *other)
{
    static const uint8_t special[] = {0, 1, 0x7F, 0x80, 0xFF, '"', '\\', '{', '}', '[', ']', ',', ':', '-', '0', '9', ' ', '\n'};
    if (*bytes == 0) at[(*bytes)++] = 0;
    size_t place = (size_t)random_integer(random, 0, (int64_t)*bytes), left = *bytes - place;
    size_t length = 1 + (size_t)random_integer(random, 0, left < 16 ? (int64_t)left : 16);
    if (length > left) length = left;
    switch (random_integer(random, 0, 8)) {
    case 0: at[place] ^= (uint8_t)(1 << random_integer(random, 0, 8)); break;
    case 1: at[place] = special[random_integer(random, 0, (int64_t)sizeof special)]; break;
    case 2: at[place] = (uint8_t)random_bits(random); break;
    case 3: /* a digit becomes another */
        while (place < *bytes && (at[place] < '0' || at[place] > '9')) place++;
        if (place < *bytes) at[place] = (uint8_t)('0' + random_integer(random, 0, 10));
        break;
    case 4: /* cut out */
        memmove(at + place, at + place + length, left - length);
        *bytes -= length;
        break;
    case 5: make_room(at, bytes, place, length); break; /* said twice */
    case 6: *bytes = random_integer(random, 0, 8) == 0 ? place : *bytes; break;
    default: /* a piece of another input */
        if (other->bytes == 0) break;
        size_t from = (size_t)random_integer(random, 0, (int64_t)other->bytes);
        if (length > other->bytes - from) length = other->bytes - from;
        memcpy(at + place, other->at + from, length);
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static long run_changed(const input *corpus, int count, double seconds)
{
    random_state random = {1};
    uint8_t *at = malloc(2 * LARGEST);
    fuzz_require(at != NULL, "memory for an input");
    long runs = 0;
    for (double end = now() + seconds; now() < end; runs++) {
        const input *from = &corpus[random_integer(&random, 0, count)], *other = &corpus[random_integer(&random, 0, count)];
        size_t bytes = from->bytes;
        memcpy(at, from->at, bytes);
        for (int64_t changes = random_integer(&random, 1, CHANGES); changes > 0; changes--) change(&random, at, &bytes, other);
        run(at, bytes);
    }
    free(at);
    return runs;
}

int fuzz_replay(int argc, char **argv, const char *name)
{
    static input corpus[MOST_FILES];
    const char *text = getenv("ATTN_FUZZ_SECONDS");
    watch(name);
    int count = 0;
    for (int i = 1; i < argc && count < MOST_FILES; i++)
        if (read_input(argv[i], argv[i], &corpus[count++]) != 0) {
            fprintf(stderr, "%s: cannot be read\n", argv[i]);
            return 1;
        }
    if (argc < 2) count = read_corpus(name, corpus);
    for (int i = 0; i < count; i++) run(corpus[i].at, corpus[i].bytes);
    long changed = argc < 2 && count > 0 ? run_changed(corpus, count, text != NULL ? strtod(text, NULL) : 1.5) : 0;
    for (int i = 0; i < count; i++) free(corpus[i].at);
    printf("%s: %d inputs, %ld changed ones, no finding\n", name, count, changed);
    return count == 0; /* an empty corpus proves nothing */
}
