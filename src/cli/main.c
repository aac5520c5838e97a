#include <attn/attn.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "commands.h"
#include "message.h"
#include "nearest.h"

const command *const commands[] = {&train_command, &generate_command, &decode_command,      &eval_command,
                                   &info_command,  &inspect_command,  &approximate_command, NULL};

static const command *find_command(const char *name)
{
    for (int i = 0; commands[i] != NULL; i++)
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
    return NULL;
}

static int unknown_command(const char *name)
{
    const char *best = "help";
    for (int i = 0; commands[i] != NULL; i++)
        if (word_distance(commands[i]->name, name) < word_distance(best, name)) best = commands[i]->name;
    return fail(EXIT_INPUT, "\"%.100s\": unknown command; the nearest is \"%s\" (\"attn help\" lists them all)", name, best);
}

static int help(int argc, char **argv)
{
    if (argc > 1) return fail(EXIT_INPUT, "\"%.100s\": unexpected argument; \"attn help COMMAND\" explains one command", argv[1]);
    if (argc == 0 || strcmp(argv[0], "help") == 0) {
        help_program();
        return EXIT_FINE;
    }
    const command *c = find_command(argv[0]);
    if (c == NULL) return unknown_command(argv[0]);
    help_command(c);
    return EXIT_FINE;
}

static int asks_for_help(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return 1;
    return 0;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        help_program();
        return EXIT_INPUT;
    }
    const char *name = argv[1];
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) return help(argc - 2, argv + 2);
    if (strcmp(name, "version") == 0 || strcmp(name, "--version") == 0) {
        printf("attn %s\n%s\n", attn_version(), attn_build_info());
        return EXIT_FINE;
    }
    const command *c = find_command(name);
    if (c == NULL) return unknown_command(name);
    if (asks_for_help(argc - 2, argv + 2)) {
        help_command(c);
        return EXIT_FINE;
    }
    return c->run(argc - 2, argv + 2);
}

/* The JSON library takes memory in places where it does not look whether it got any, and then drops bytes: better no text than a wrong one. */
static void *json_memory(size_t bytes)
{
    void *memory = malloc(bytes > 0 ? bytes : 1);
    if (memory != NULL) return memory;
    fail(EXIT_MACHINE, "not enough memory");
    _exit(EXIT_MACHINE);
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN); /* a reader that goes away shows as an error of the write, */
    signal(SIGXFSZ, SIG_IGN); /* and so does a file that may grow no more */
    json_set_alloc_funcs(json_memory, free);
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    return finish_output(dispatch(argc, argv));
}
