#ifndef ATTN_CORE_UTF8_H
#define ATTN_CORE_UTF8_H
#include <stdint.h>

/* Length in bytes of the character at text (bytes > 0 are there); 0 when it is not valid UTF-8: overlong, a surrogate, above U+10FFFF
   or cut off. */
static inline int32_t attn__utf8_length(const unsigned char *text, int64_t bytes)
{
    unsigned char first = text[0];
    if (first < 0x80) return 1;
    int32_t length = first >= 0xC2 && first <= 0xDF ? 2 : first >= 0xE0 && first <= 0xEF ? 3 : first >= 0xF0 && first <= 0xF4 ? 4 : 0;
    if (length == 0 || length > bytes) return 0;
    unsigned char low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    unsigned char high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (text[1] < low || text[1] > high) return 0;
    for (int32_t i = 2; i < length; i++)
        if (text[i] < 0x80 || text[i] > 0xBF) return 0;
    return length;
}

/* Offset of the first byte that is not valid UTF-8, or -1. */
static inline int64_t attn__utf8_invalid(const void *text, int64_t bytes)
{
    const unsigned char *at = text;
    for (int64_t i = 0; i < bytes;) {
        int32_t length = attn__utf8_length(at + i, bytes - i);
        if (length == 0) return i;
        i += length;
    }
    return -1;
}
#endif
