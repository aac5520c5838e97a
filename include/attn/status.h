#ifndef ATTN_STATUS_H
#define ATTN_STATUS_H
#include "export.h"
ATTN_BEGIN

/* What every call that can fail gives back: ATTN_OK or a negative number. The numbers are fixed forever, new ones may come.
   The text that names the argument, what it got and what it expected is attn_context_last_error. A call that is refused for its arguments
   writes nothing, but for two: one that makes an object puts NULL at its *out, whatever the failure; one that is FULL says how much it
   needs. */
typedef int32_t attn_status;
enum {
    ATTN_OK = 0,
    /* the caller's arguments */
    ATTN_ERROR_INVALID_ARGUMENT = -1, /* NULL, a freed or foreign handle, a value out of range, an unknown option */
    ATTN_ERROR_SHAPE = -2,            /* ranks or extents that do not fit each other */
    ATTN_ERROR_DTYPE = -3,            /* an element type that this argument cannot have */
    ATTN_ERROR_TOO_LARGE = -4,        /* a size that overflows 64 bits, or the 32 bits of a BLAS */
    ATTN_ERROR_UNSUPPORTED = -5,      /* valid, but not in this library, build or combination */
    ATTN_ERROR_BAD_STATE = -6,        /* not now: the object is at another point of its life */
    /* memory */
    ATTN_ERROR_OUT_OF_MEMORY = -20, /* the allocator gave nothing */
    ATTN_ERROR_MEMORY_CAP = -21,    /* memory_cap of the context would be passed */
    ATTN_ERROR_FULL = -22,          /* a fixed capacity is used up */
    /* files and data */
    ATTN_ERROR_IO = -40,          /* the system could not open, read, write or rename */
    ATTN_ERROR_BAD_FILE = -41,    /* the bytes break the format */
    ATTN_ERROR_MISMATCH = -42,    /* a sound file that belongs to another model or set-up */
    ATTN_ERROR_END_OF_DATA = -43, /* the dataset is used up; not a fault */
    /* computation */
    ATTN_ERROR_CANCELLED = -60, /* attn_context_cancel; outputs are unspecified, handles and files whole */
    ATTN_ERROR_BLAS = -61,      /* the BLAS found at run time fails its test */
    ATTN_ERROR_NOT_FINITE = -62 /* NaN or infinity where it would do harm */
};

enum { ATTN_DERIVED = -1 }; /* a size that follows from the others */

/* A short English name such as "out of memory"; "unknown status" for any other number. A constant, never NULL, not to be freed.
   From any thread. Since: 0.0.1 */
ATTN_API const char *attn_status_name(attn_status status);

/* The version of the library that is loaded, "0.0.1". A constant. From any thread. Since: 0.0.1 */
ATTN_API const char *attn_version(void);

/* Version, compiler, machine and the BLAS asked for when the library was built, in one line for reports of faults. A constant. From any thread.
   Since: 0.0.1 */
ATTN_API const char *attn_build_info(void);

ATTN_END
#endif
