#ifndef ATTN_CLI_OPTIONS_H
#define ATTN_CLI_OPTIONS_H
#include <stddef.h>
#include <stdint.h>

/* Flags as a table: "--name value" or "--name=value"; a switch has no value. The last one wins when a flag is given twice. */
typedef enum flag_kind {
    FLAG_TEXT,    /* const char * */
    FLAG_LIST,    /* flag_list: each time the flag is given it takes one more text, up to `most` */
    FLAG_INTEGER, /* int64_t */
    FLAG_SEED,    /* uint64_t */
    FLAG_REAL,    /* double */
    FLAG_CHOICE,  /* int32_t, the index of the word */
    FLAG_SWITCH   /* int32_t, 1 when given */
} flag_kind;

/* Whether a run keeps a flag for its resumption. */
enum { FLAG_FREE = 0, FLAG_KEPT = 1, FLAG_MODEL = 2 /* kept when given; changes the preset */ };

enum { MOST_LISTED = 16 };
typedef struct flag_list {
    const char *at[MOST_LISTED];
    int64_t count;
} flag_list;

typedef struct flag {
    const char *name; /* without dashes */
    flag_kind kind;
    int role;
    size_t offset;              /* of the value in the command's struct */
    const char *value;          /* what help calls the value */
    const char *normal;         /* the default, written as on the command line; NULL: none, or one that follows from others */
    const char *otherwise;      /* what happens without the flag, in words; NULL: normal says it */
    const char *help;           /* one line */
    const char *group;          /* heading in help, at the first flag of a group */
    const char *const *choices; /* words, ended by NULL */
    double least, most;         /* of a number */
} flag;

enum { MOST_FLAGS = 64 };
typedef struct flag_set {
    const char *command;
    const char *argument; /* what may stand without a flag, such as "DIR"; NULL: nothing */
    const flag *at;
    int count;
} flag_set;

typedef struct parsed {
    unsigned char given[MOST_FLAGS]; /* by index in the table */
    const char *argument;
} parsed;

/* Writes the defaults into values, then what the command line says. 0, or the exit status after one line about what is wrong. */
int parse_flags(const flag_set *set, int argc, char **argv, void *values, parsed *out);

/* Checks the text and writes the value of one flag. 0, or the exit status after one line. */
int set_flag(const flag *f, const char *text, void *values);

/* The index of a name, -1: unknown. */
int find_flag(const flag_set *set, const char *name);

/* The whole text as a finite decimal number or whole number. 0 when it is none. */
int read_real(const char *text, double *out);
int read_integer(const char *text, int64_t *out);
#endif
