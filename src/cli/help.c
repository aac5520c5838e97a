#include <stdio.h>
#include <string.h>
#include "commands.h"

enum { COLUMN = 30 }; /* where the words about a flag begin */

void help_program(void)
{
    printf("attn - train and run Transformers on the CPU\n\n");
    for (int i = 0; commands[i] != NULL; i++) printf("  attn %-11s %s\n", commands[i]->name, commands[i]->summary);
    printf("  attn %-11s %s\n", "help", "explain a command: attn help train");
    printf("  attn %-11s %s\n\n", "version", "print the version and how it was built");
    printf("A first model, in about a minute, from any text of more than a hundred kilobytes:\n\n"
           "  attn train --data TEXT.txt --out run --steps 1000\n"
           "  attn generate --model run --prompt \"Once\" --tokens 300\n"
           "  attn eval --model run --data OTHER.txt\n"
           "  attn info run\n\n"
           "A model is a folder: the weights with everything needed to run them (model.safetensors), all that is needed to go on with\n"
           "training (checkpoint.safetensors), the numbers (log.jsonl) and a chart (loss.svg). Every result is the same, bit for bit,\n"
           "for any number of threads.\n\n"
           "Exit status: 0 success, 1 a failure of the machine (disk, memory), 2 bad input or usage, 130 interrupted.\n");
}

static void describe(const flag *f)
{
    char left[80];
    int width =
        snprintf(left, sizeof left, "  --%s%s%s", f->name, f->kind == FLAG_SWITCH ? "" : " ", f->kind == FLAG_SWITCH ? "" : f->value);
    if (width < COLUMN)
        printf("%-*s%s", COLUMN, left, f->help);
    else
        printf("%s\n%*s%s", left, COLUMN, "", f->help);
    if (f->kind == FLAG_CHOICE) {
        printf(":\n%*s", COLUMN, "");
        for (int i = 0; f->choices[i] != NULL; i++) printf("%s%s", i > 0 ? " " : "", f->choices[i]);
    }
    if (f->otherwise != NULL)
        printf(" (%s)", f->otherwise);
    else if (f->normal != NULL)
        printf(" (default %s)", f->normal);
    printf("\n");
}

void help_command(const command *c)
{
    printf("attn %s - %s\n\n%s\n%s\nExamples\n%s", c->name, c->summary, c->usage, c->purpose, c->examples);
    for (int i = 0; i < c->flags->count; i++) {
        if (c->flags->at[i].group != NULL) printf("\n%s\n", c->flags->at[i].group);
        describe(&c->flags->at[i]);
    }
    printf("\n  --help                      this text\n");
}
