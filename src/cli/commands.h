#ifndef ATTN_CLI_COMMANDS_H
#define ATTN_CLI_COMMANDS_H
#include "options.h"

/* A command of the program: what help says, which flags it has, and what it does. */
typedef struct command {
    const char *name, *summary;
    const char *usage;   /* one line for each way to call it */
    const char *purpose; /* lines of at most 100 columns */
    const char *examples;
    const flag_set *flags;
    int (*run)(int argc, char **argv); /* without the command's name; the exit status */
} command;

extern const command train_command, generate_command, decode_command, eval_command, info_command, inspect_command, approximate_command;

/* All commands, ended by NULL. */
extern const command *const commands[];

void help_program(void);
void help_command(const command *c);
#endif
