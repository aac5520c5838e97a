#ifndef TESTS_INJECTION_INJECT_H
#define TESTS_INJECTION_INJECT_H
#include <attn/context.h>

/* Calls that can fail, made to fail. The programs of this folder are linked with --wrap (programs.cmake), so that every allocation, file
   operation and thread of the library comes by here; so do the context's allocator hooks and the memory of the JSON reader. */
enum {
    INJECT_ONCE,      /* the n-th call fails */
    INJECT_ALWAYS,    /* the n-th and all after it */
    INJECT_INTERRUPT, /* the n-th of those that a signal can interrupt gives EINTR: nobody may notice */
    INJECT_SHORT,     /* the n-th read or write moves one byte: nobody may notice */
    INJECT_CANCEL,    /* a cancel arrives right before the n-th look for one */
    INJECT_MODES
};

typedef struct inject_report {
    long calls, memory, files; /* calls counted since arming; what failed of them (locks count as memory) */
    long cancels, kernels;     /* cancels that arrived, tables of kernels that were refused */
    long fatal;                /* failures that must not go unreported: a success would be a lie */
    long removals;             /* removals of files that failed: a temporary file may lie about */
    const char *name;          /* of the first call that failed, or NULL */
} inject_report;

void inject_arm(int mode, long nth); /* nth from 1 */
inject_report inject_disarm(void);
long inject_live(void);                /* blocks, locks and threads that were taken and not given back */
attn_allocator inject_allocator(void); /* counted hooks, which look at sizes and alignments too */
long inject_wrong(void);               /* releases with another size, requests with another alignment */
void inject_spare_json(int spared);    /* 1: the JSON reader's memory does not fail */
void inject_spare_kernels(int spared); /* 1: no table of kernels is refused */
void inject_json(void);                /* counts the JSON reader's memory; before its first use */
#endif
