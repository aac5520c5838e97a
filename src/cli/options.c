#include "options.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "message.h"
#include "nearest.h"

/* "1e-3" and "-.5" are numbers; "0x10", "inf", " 1" and "1 " are not */
int read_real(const char *text, double *out)
{
    if (*text == 0 || text[strspn(text, "0123456789.eE+-")] != 0) return 0;
    char *end;
    *out = strtod(text, &end);
    return *end == 0 && isfinite(*out);
}

int read_integer(const char *text, int64_t *out)
{
    size_t sign = *text == '-' || *text == '+';
    if (text[sign] == 0 || text[sign + strspn(text + sign, "0123456789")] != 0) return 0;
    errno = 0;
    long long value = strtoll(text, NULL, 10);
    *out = value;
    return errno == 0;
}

static int read_seed(const char *text, uint64_t *out)
{
    if (*text == 0 || text[strspn(text, "0123456789")] != 0) return 0;
    errno = 0;
    *out = strtoull(text, NULL, 10);
    return errno == 0;
}

static int set_choice(const flag *f, const char *text, char *at)
{
    char words[512] = "";
    int32_t best = 0;
    for (int32_t i = 0; f->choices[i] != NULL; i++) {
        if (strcmp(f->choices[i], text) == 0) {
            memcpy(at, &i, sizeof i);
            return 0;
        }
        if (word_distance(f->choices[i], text) < word_distance(f->choices[best], text)) best = i;
        size_t used = strlen(words);
        snprintf(words + used, sizeof words - used, "%s%s", i == 0 ? "" : f->choices[i + 1] != NULL ? ", " : " or ", f->choices[i]);
    }
    const char *near = f->choices[best];
    if (word_distance(near, text) <= 2)
        return fail(EXIT_INPUT, "--%s: got \"%.100s\", expected %s; did you mean %s?", f->name, text, words, near);
    return fail(EXIT_INPUT, "--%s: got \"%.100s\", expected %s", f->name, text, words);
}

static int add_to_list(const flag *f, const char *text, flag_list *list)
{
    if (list->count >= (int64_t)f->most || list->count >= MOST_LISTED)
        return fail(EXIT_INPUT, "--%s: given more than %.0f times", f->name, f->most);
    list->at[list->count++] = text;
    return 0;
}

int set_flag(const flag *f, const char *text, void *values)
{
    char *at = (char *)values + f->offset;
    int64_t whole;
    uint64_t seed;
    double real;
    switch (f->kind) {
    case FLAG_TEXT: memcpy(at, &text, sizeof text); return 0;
    case FLAG_LIST: return add_to_list(f, text, (flag_list *)(void *)at);
    case FLAG_INTEGER:
        if (!read_integer(text, &whole) || (double)whole < f->least || (double)whole > f->most)
            return fail(EXIT_INPUT, "--%s: got \"%.100s\", expected a whole number from %.0f to %.0f", f->name, text, f->least, f->most);
        memcpy(at, &whole, sizeof whole);
        return 0;
    case FLAG_SEED:
        if (!read_seed(text, &seed))
            return fail(EXIT_INPUT, "--%s: got \"%.100s\", expected a whole number from 0 to 18446744073709551615", f->name, text);
        memcpy(at, &seed, sizeof seed);
        return 0;
    case FLAG_REAL:
        if (!read_real(text, &real) || real < f->least || real > f->most)
            return fail(EXIT_INPUT, "--%s: got \"%.100s\", expected a number from %g to %g", f->name, text, f->least, f->most);
        memcpy(at, &real, sizeof real);
        return 0;
    case FLAG_CHOICE: return set_choice(f, text, at);
    case FLAG_SWITCH: break;
    }
    memcpy(at, &(int32_t){1}, sizeof(int32_t));
    return 0;
}

int find_flag(const flag_set *set, const char *name)
{
    for (int i = 0; i < set->count; i++)
        if (strcmp(set->at[i].name, name) == 0) return i;
    return -1;
}

static int unknown_flag(const flag_set *set, const char *name)
{
    int best = 0;
    for (int i = 1; i < set->count; i++)
        if (word_distance(set->at[i].name, name) < word_distance(set->at[best].name, name)) best = i;
    return fail(EXIT_INPUT, "--%.100s: unknown flag; the nearest of \"attn %s\" is --%s (\"attn help %s\" lists them all)", name,
                set->command, set->at[best].name, set->command);
}

static int is_flag(const flag_set *set, const char *text)
{
    return strncmp(text, "--", 2) == 0 && find_flag(set, text + 2) >= 0;
}

/* the flag at argv[*i], with its value there or after it */
static int parse_one(const flag_set *set, int argc, char **argv, int *i, void *values, parsed *out)
{
    char name[128];
    const char *text = argv[*i] + 2, *value = strchr(text, '=');
    size_t length = value != NULL ? (size_t)(value - text) : strlen(text);
    snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), text);
    int index = find_flag(set, name);
    if (index < 0) return unknown_flag(set, name);
    const flag *f = &set->at[index];
    out->given[index] = 1;
    if (f->kind == FLAG_SWITCH) {
        if (value != NULL) return fail(EXIT_INPUT, "--%s: got \"%.100s\", expected no value", name, value + 1);
        return set_flag(f, "", values);
    }
    if (value == NULL) {
        if (*i + 1 >= argc || is_flag(set, argv[*i + 1]))
            return fail(EXIT_INPUT, "--%s: its value is missing, expected %s", name, f->value);
        return set_flag(f, argv[++*i], values);
    }
    return set_flag(f, value + 1, values);
}

static int plain_argument(const flag_set *set, const char *text, parsed *out)
{
    if (set->argument != NULL && out->argument == NULL) {
        out->argument = text;
        return 0;
    }
    if (*text == '-' && text[1] != 0)
        return fail(EXIT_INPUT, "\"%.100s\": unknown flag; flags begin with two dashes (\"attn help %s\" lists them all)", text,
                    set->command);
    return fail(EXIT_INPUT, "\"%.100s\": unexpected argument; \"attn help %s\" shows how the command is called", text, set->command);
}

int parse_flags(const flag_set *set, int argc, char **argv, void *values, parsed *out)
{
    int status = 0, only_plain = 0;
    memset(out, 0, sizeof *out);
    for (int i = 0; status == 0 && i < set->count; i++)
        if (set->at[i].normal != NULL) status = set_flag(&set->at[i], set->at[i].normal, values);
    for (int i = 0; status == 0 && i < argc; i++) {
        if (!only_plain && strcmp(argv[i], "--") == 0)
            only_plain = 1;
        else if (!only_plain && strncmp(argv[i], "--", 2) == 0)
            status = parse_one(set, argc, argv, &i, values, out);
        else
            status = only_plain || argv[i][0] != '-' || set->argument == NULL
                         ? plain_argument(set, argv[i], out)
                         : plain_argument(&(flag_set){.command = set->command}, argv[i], out);
    }
    return status;
}
