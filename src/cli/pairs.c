#include "pairs.h"
#include <stdlib.h>
#include <string.h>
#include "message.h"

enum { FIRST_ROOM = 1024 };

static int keep_line(pair_text *out, int64_t *room, const pair_line *line)
{
    if (out->count == *room) {
        int64_t larger = *room > 0 ? 2 * *room : FIRST_ROOM;
        pair_line *at = realloc(out->at, (size_t)larger * sizeof *at);
        if (at == NULL) return fail(EXIT_MACHINE, "%s: not enough memory for its lines", out->path);
        out->at = at;
        *room = larger;
    }
    out->at[out->count++] = *line;
    return 0;
}

static int check_characters(const char *path, int64_t number, const char *at, int64_t bytes)
{
    for (int64_t i = 0, n; i < bytes; i += n) {
        n = character_bytes((const unsigned char *)at + i, bytes - i);
        if (n == 0) return fail(EXIT_INPUT, "%s:%lld: byte %lld of the line is not valid UTF-8", path, (long long)number, (long long)i + 1);
    }
    return 0;
}

/* one line without its end; both: the second column is needed */
static int split(const char *path, int both, const char *at, int64_t bytes, pair_line *line)
{
    const char *tab = memchr(at, '\t', (size_t)bytes), *end = at + bytes;
    line->source = at;
    line->source_bytes = tab != NULL ? tab - at : bytes;
    if (!both) return 0;
    if (tab == NULL)
        return fail(EXIT_INPUT, "%s:%lld: got one column, expected a source, a tab and a target", path, (long long)line->number);
    const char *next = memchr(tab + 1, '\t', (size_t)(end - tab - 1));
    line->target = tab + 1;
    line->target_bytes = (next != NULL ? next : end) - line->target;
    if (line->source_bytes == 0 || line->target_bytes == 0)
        return fail(EXIT_INPUT, "%s:%lld: the %s is empty", path, (long long)line->number, line->source_bytes == 0 ? "source" : "target");
    return 0;
}

static int read_lines(const char *path, int both, pair_text *out)
{
    *out = (pair_text){.path = path};
    int status = read_text(!both && strcmp(path, "-") == 0 ? "/dev/stdin" : path, &out->from);
    const char *at = out->from.at, *end = at + (status == 0 ? out->from.bytes : 0);
    int64_t room = 0, number = 0;
    if (status == 0 && out->from.bytes >= 3 && memcmp(at, "\xEF\xBB\xBF", 3) == 0) at += 3;
    while (status == 0 && at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at)), *next = stop != NULL ? stop + 1 : end;
        int64_t bytes = (stop != NULL ? stop : end) - at;
        if (bytes > 0 && at[bytes - 1] == '\r') bytes--;
        pair_line line = {.number = ++number};
        status = check_characters(path, number, at, bytes);
        if (status == 0 && bytes == 0 && both)
            out->empty++;
        else if (status == 0)
            status = split(path, both, at, bytes, &line);
        if (status == 0 && (bytes > 0 || !both)) status = keep_line(out, &room, &line);
        at = next;
    }
    if (status == 0 && out->count == 0) status = fail(EXIT_INPUT, "%s: has no line with a pair", path);
    if (status != 0) free_pairs(out);
    return status;
}

int read_pairs(const char *path, pair_text *out)
{
    return read_lines(path, 1, out);
}

int read_sources(const char *path, pair_text *out)
{
    return read_lines(path, 0, out);
}

void free_pairs(pair_text *pairs)
{
    free(pairs->from.at);
    free(pairs->at);
    *pairs = (pair_text){NULL, {NULL, 0}, NULL, 0, 0};
}
