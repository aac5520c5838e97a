#ifndef ATTN_CLI_PICTURE_H
#define ATTN_CLI_PICTURE_H
#include <stddef.h>

/* A picture that is being written as SVG; failed: memory was short, and `at` is what came before. */
typedef struct picture {
    char *at;
    size_t bytes, room;
    int failed;
} picture;

void put(picture *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* text as XML: what means something there is escaped, what is no character becomes '?' */
void put_text(picture *p, const char *words);
#endif
