#include <attn/status.h>

/* The build passes both; a compiler called by hand need not. */
#ifndef ATTN__VERSION
#define ATTN__VERSION "0.0.2"
#endif
#ifndef ATTN__BLAS
#define ATTN__BLAS "unknown"
#endif

#if defined(__clang__)
#define COMPILER __VERSION__ /* "Debian Clang 14.0.6" */
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown compiler"
#endif

#if defined(__x86_64__)
#define MACHINE "x86-64"
#elif defined(__aarch64__)
#define MACHINE "aarch64"
#elif defined(__riscv)
#define MACHINE "riscv"
#elif defined(__powerpc64__)
#define MACHINE "ppc64"
#elif defined(__s390x__)
#define MACHINE "s390x"
#elif defined(__i386__)
#define MACHINE "i386"
#elif defined(__arm__)
#define MACHINE "arm"
#else
#define MACHINE "other machine"
#endif

const char *attn_status_name(attn_status status)
{
    switch (status) {
    case ATTN_OK: return "ok";
    case ATTN_ERROR_INVALID_ARGUMENT: return "invalid argument";
    case ATTN_ERROR_SHAPE: return "wrong shape";
    case ATTN_ERROR_DTYPE: return "wrong dtype";
    case ATTN_ERROR_TOO_LARGE: return "too large";
    case ATTN_ERROR_UNSUPPORTED: return "unsupported";
    case ATTN_ERROR_BAD_STATE: return "bad state";
    case ATTN_ERROR_OUT_OF_MEMORY: return "out of memory";
    case ATTN_ERROR_MEMORY_CAP: return "memory cap reached";
    case ATTN_ERROR_FULL: return "full";
    case ATTN_ERROR_IO: return "input or output failed";
    case ATTN_ERROR_BAD_FILE: return "bad file";
    case ATTN_ERROR_MISMATCH: return "mismatch";
    case ATTN_ERROR_END_OF_DATA: return "end of data";
    case ATTN_ERROR_CANCELLED: return "cancelled";
    case ATTN_ERROR_BLAS: return "unusable BLAS";
    case ATTN_ERROR_NOT_FINITE: return "not finite";
    default: return "unknown status";
    }
}

const char *attn_version(void)
{
    return ATTN__VERSION;
}

/* A constant put together by the compiler: nothing to allocate, nothing to race for. */
const char *attn_build_info(void)
{
    return "libattn " ATTN__VERSION "; " COMPILER "; " MACHINE "; BLAS: " ATTN__BLAS;
}
