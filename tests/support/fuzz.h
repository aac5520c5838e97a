#ifndef TESTS_SUPPORT_FUZZ_H
#define TESTS_SUPPORT_FUZZ_H
#include <attn/attn.h>
#include <stddef.h>
#include <stdint.h>
#include "support/allocator.h"

/* A fuzz target is a file tests/fuzz/test_<name>.c with the function of libFuzzer below. As a test it has a main that calls fuzz_replay;
   built with -DATTN_FUZZER, libFuzzer brings its own. Whatever the input: no crash, no leak, and what fuzz_require says. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the process with the words and the place unless it holds. */
#define fuzz_require(holds, words) fuzz_check((holds) != 0, words, __FILE__, __LINE__)
void fuzz_check(int holds, const char *words, const char *file, int line);

/* The input taken apart from its front; past its end everything is 0. */
typedef struct fuzz_input {
    const uint8_t *at;
    size_t left;
} fuzz_input;
uint8_t fuzz_byte(fuzz_input *input);
uint64_t fuzz_word(fuzz_input *input, size_t bytes);                /* little-endian, at most 8 bytes */
int64_t fuzz_between(fuzz_input *input, int64_t low, int64_t high); /* low <= x <= high, from one byte */
int64_t fuzz_integer(fuzz_input *input);                            /* small ones, limits, and any */
double fuzz_real(fuzz_input *input);                                /* plain ones, NaN, infinities, tiny and huge, and any */
/* writes such numbers into a struct of options; its first 8 bytes, its size, say at most `room`, or nonsense of 2^20 and more */
void fuzz_overlay(fuzz_input *input, void *options, size_t bytes, size_t room);
const char *fuzz_file(const void *data, size_t bytes);                    /* the path of a file that holds them, until the next call */
void fuzz_status(const attn_context *ctx, attn_status status, int given); /* a known status, a text if and only if it failed; given: *out */

/* A context of one thread with a cap of memory; fuzz_close sees to it that all memory was given back. */
typedef struct fuzz_context {
    attn_context *ctx;
    test_allocator allocator;
} fuzz_context;
void fuzz_open(fuzz_context *f, int32_t backend, int64_t cap);
void fuzz_close(fuzz_context *f);

/* Runs the files of tests/fuzz/corpus/NAME, and then inputs changed from them at random, the same each time, for a while
   (ATTN_FUZZ_SECONDS, by default 1.5; 0: the corpus alone). With arguments: those files alone. The result is that of main; an input that
   ends the process is written to fuzz-NAME.input in the folder at hand. */
int fuzz_replay(int argc, char **argv, const char *name);
#endif
