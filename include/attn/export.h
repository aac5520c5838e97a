#ifndef ATTN_EXPORT_H
#define ATTN_EXPORT_H
#include <stddef.h>
#include <stdint.h>

/* ATTN_API marks what the library exports; everything else stays inside it. ATTN_BEGIN and ATTN_END give C linkage to a C++ caller. */
#if defined(__GNUC__) && defined(ATTN_BUILDING)
#define ATTN_API __attribute__((visibility("default")))
#else
#define ATTN_API
#endif
#ifdef __cplusplus
#define ATTN_BEGIN extern "C" {
#define ATTN_END }
#else
#define ATTN_BEGIN
#define ATTN_END
#endif
#endif
