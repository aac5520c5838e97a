#include "support/fuzz.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void fuzz_check(int holds, const char *words, const char *file, int line)
{
    if (holds) return;
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, words);
    abort();
}

uint8_t fuzz_byte(fuzz_input *input)
{
    if (input->left == 0) return 0;
    input->left--;
    return *input->at++;
}

uint64_t fuzz_word(fuzz_input *input, size_t bytes)
{
    uint64_t word = 0;
    for (size_t i = 0; i < bytes; i++) word |= (uint64_t)fuzz_byte(input) << (8 * i);
    return word;
}

int64_t fuzz_between(fuzz_input *input, int64_t low, int64_t high)
{
    return low + fuzz_byte(input) % (high - low + 1);
}

int64_t fuzz_integer(fuzz_input *input)
{
    static const int64_t limits[] = {-1, INT64_MIN, INT64_MAX, INT32_MIN, INT32_MAX, (int64_t)UINT32_MAX + 1, 1 << 16, -2};
    uint8_t kind = fuzz_byte(input);
    if (kind < 160) return kind % 20; /* most options are small */
    if (kind < 200) return limits[kind % 8];
    return (int64_t)fuzz_word(input, kind < 225 ? 2 : 8);
}

double fuzz_real(fuzz_input *input)
{
    static const double limits[] = {NAN, INFINITY, -INFINITY, DBL_MAX, DBL_MIN, -0.0, 5e-324, 1e-300, 1e30, -1};
    uint8_t kind = fuzz_byte(input);
    if (kind < 160) return kind % 20 / 10.0;
    if (kind < 200) return limits[kind % 10];
    uint64_t bits = fuzz_word(input, 8);
    double number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

void fuzz_overlay(fuzz_input *input, void *options, size_t bytes, size_t room)
{
    for (int64_t changes = fuzz_between(input, 0, 7); changes > 0; changes--) {
        size_t place = fuzz_byte(input) * (size_t)4 % bytes;
        uint8_t kind = fuzz_byte(input) % 4;
        int64_t whole = kind < 2 ? fuzz_integer(input) : 0;
        double real = kind >= 2 ? fuzz_real(input) : 0;
        size_t width = kind == 0 || place + 8 > bytes ? 4 : 8;
        if (width == 8) place -= place % 8;
        memcpy((char *)options + place, kind < 2 ? (const void *)&whole : (const void *)&real, width);
    }
    uint64_t says;
    memcpy(&says, options, sizeof says);
    if (says > room && says < 1 << 20) says = room;
    memcpy(options, &says, sizeof says);
}

const char *fuzz_file(const void *data, size_t bytes)
{
    static char path[64];
    static int descriptor = -1;
    if (descriptor < 0) {
        descriptor = memfd_create("fuzz", MFD_CLOEXEC);
        fuzz_require(descriptor >= 0, "a file in memory");
        snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    }
    fuzz_require(ftruncate(descriptor, 0) == 0, "the file can be emptied");
    fuzz_require(bytes == 0 || pwrite(descriptor, data, bytes, 0) == (ssize_t)bytes, "the file can be filled");
    return path;
}

void fuzz_status(const attn_context *ctx, attn_status status, int given)
{
    const char *text = attn_context_last_error(ctx);
    fuzz_require(strcmp(attn_status_name(status), "unknown status") != 0, "a known status");
    fuzz_require((*text == 0) == (status == ATTN_OK), "a text if and only if the call failed");
    fuzz_require(given == (status == ATTN_OK), "an object if and only if the call succeeded");
}

void fuzz_open(fuzz_context *f, int32_t backend, int64_t cap)
{
    attn_context_options o;
    memset(f, 0, sizeof *f);
    const attn_allocator hooks = test_allocator_hooks(&f->allocator);
    fuzz_require(attn_context_options_init(&o, sizeof o) == ATTN_OK, "options of a context");
    o.backend = backend;
    o.threads = 1;
    o.memory_cap = cap;
    o.allocator = &hooks;
    fuzz_require(attn_context_create(&o, &f->ctx) == ATTN_OK, "a context");
}

void fuzz_close(fuzz_context *f)
{
    attn_context_free(f->ctx);
    fuzz_require(f->allocator.live_pointers == 0 && f->allocator.live_bytes == 0, "all memory was given back");
    fuzz_require(f->allocator.wrong == 0, "memory was given back by its size");
}
