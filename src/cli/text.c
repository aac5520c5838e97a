#include "text.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "message.h"

static int no_memory(const char *path)
{
    return fail(EXIT_MACHINE, "%s: not enough memory to read it", path);
}

static int read_all(const char *path, int descriptor, int64_t guess, text *out)
{
    int64_t room = guess > 0 ? guess + 1 : 1 << 16; /* one byte more, to see the end without growing */
    out->bytes = 0;
    out->at = malloc((size_t)room);
    while (out->at != NULL) {
        if (out->bytes == room) {
            char *larger = room <= INT64_MAX / 4 ? realloc(out->at, (size_t)room * 2) : NULL;
            if (larger == NULL) return no_memory(path);
            out->at = larger;
            room *= 2;
        }
        ssize_t got = read(descriptor, out->at + out->bytes, (size_t)(room - out->bytes));
        if (got == 0) return out->bytes > 0 ? 0 : fail(EXIT_INPUT, "%s: is empty, expected text", path);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail(exit_of_error(errno), "%s: cannot be read: %s", path, strerror(errno));
        out->bytes += got;
    }
    return no_memory(path);
}

int read_text(const char *path, text *out)
{
    struct stat about;
    *out = (text){NULL, 0};
    if (*path == 0) return fail(EXIT_INPUT, "\"\": no file has an empty name");
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return fail(exit_of_error(errno), "%s: cannot be opened: %s", path, strerror(errno));
    int status;
    if (fstat(descriptor, &about) != 0)
        status = fail(EXIT_MACHINE, "%s: %s", path, strerror(errno));
    else if (S_ISDIR(about.st_mode))
        status = fail(EXIT_INPUT, "%s: is a folder, expected a text file", path);
    else
        status = read_all(path, descriptor, S_ISREG(about.st_mode) ? (int64_t)about.st_size : 0, out);
    close(descriptor);
    if (status == 0) return 0;
    free(out->at);
    *out = (text){NULL, 0};
    return status;
}

int encode_text(attn_context *ctx, const attn_vocabulary *vocabulary, const char *path, const text *from, int32_t **tokens, int64_t *count)
{
    /* no symbol is shorter than a byte: room for every byte is enough */
    *tokens = from->bytes <= INT64_MAX / 4 ? malloc((size_t)from->bytes * sizeof **tokens) : NULL;
    if (*tokens == NULL) return no_memory(path);
    attn_status status = attn_vocabulary_encode(ctx, vocabulary, from->at, from->bytes, from->bytes, *tokens, count);
    return status == ATTN_OK ? 0 : fail_call(ctx, status, path);
}

int64_t character_bytes(const unsigned char *at, int64_t bytes)
{
    if (bytes < 1) return 0;
    int64_t length = at[0] < 0x80                    ? 1
                     : at[0] >= 0xC2 && at[0] < 0xE0 ? 2
                     : at[0] >= 0xE0 && at[0] < 0xF0 ? 3
                     : at[0] >= 0xF0 && at[0] < 0xF5 ? 4
                                                     : 0;
    if (length == 0 || length > bytes) return 0;
    for (int64_t i = 1; i < length; i++)
        if ((at[i] & 0xC0) != 0x80) return 0;
    /* overlong forms, surrogates, past U+10FFFF */
    if ((at[0] == 0xE0 && at[1] < 0xA0) || (at[0] == 0xED && at[1] > 0x9F) || (at[0] == 0xF0 && at[1] < 0x90) ||
        (at[0] == 0xF4 && at[1] > 0x8F))
        return 0;
    return length;
}

int64_t unfinished_bytes(const char *text_at, int64_t bytes)
{
    const unsigned char *at = (const unsigned char *)text_at;
    for (int64_t back = 1; back <= 3 && back <= bytes; back++) {
        unsigned char c = at[bytes - back];
        if ((c & 0xC0) == 0x80) continue;
        int64_t length = c >= 0xF0 && c < 0xF5 ? 4 : c >= 0xE0 ? 3 : c >= 0xC2 ? 2 : 1;
        return c < 0xF5 && length > back ? back : 0;
    }
    return 0;
}
