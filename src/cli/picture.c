#include "picture.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "text.h"

void put(picture *p, const char *format, ...)
{
    char piece[1024];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(piece, sizeof piece, format, arguments);
    va_end(arguments);
    if (p->failed || length < 0 || (size_t)length >= sizeof piece) {
        p->failed = 1;
        return;
    }
    if (p->bytes + (size_t)length + 1 > p->room) {
        size_t room = 2 * p->room + sizeof piece;
        char *larger = realloc(p->at, room);
        p->failed = larger == NULL;
        if (p->failed) return;
        p->at = larger;
        p->room = room;
    }
    memcpy(p->at + p->bytes, piece, (size_t)length + 1);
    p->bytes += (size_t)length;
}

void put_text(picture *p, const char *words)
{
    const unsigned char *at = (const unsigned char *)words;
    for (int64_t left = (int64_t)strlen(words), n; left > 0; at += n, left -= n) {
        n = character_bytes(at, left);
        if (*at == '&')
            put(p, "&amp;");
        else if (*at == '<')
            put(p, "&lt;");
        else if (*at == '>')
            put(p, "&gt;");
        else if (*at == '"')
            put(p, "&quot;");
        else if (n == 0 || *at < ' ' || *at == 127)
            put(p, "?");
        else
            put(p, "%.*s", (int)n, (const char *)at);
        if (n == 0) n = 1;
    }
}
