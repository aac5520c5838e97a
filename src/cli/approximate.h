#ifndef ATTN_CLI_APPROXIMATE_H
#define ATTN_CLI_APPROXIMATE_H
#include <attn/attn.h>

/* Exact attention against its cheap variants, on numbers of the user's. */
enum { MOST_VARIANTS = 32, DRAWS = 3 /* of a Performer, for the mean of its errors */ };

typedef enum kind { EXACT, WINDOW, LONGFORMER, BIGBIRD, STRIDED, FIXED, LOGARITHMIC, LINEAR, PERFORMER, LINFORMER } kind;

/* A row of the report: a kind, its size (of a window, features ...; ATTN_DERIVED: it has none, or one that follows from the length), and what was measured. */
typedef struct variant {
    kind kind;
    int64_t size;
    char name[32];
    double error, worst_row; /* relative to the exact output */
    double seconds[2];       /* forward alone; forward and backward */
    int64_t bytes[2];        /* beyond what the caller holds; the same */
    double pays_from[2];     /* the length; NAN: at none that was measured */
} variant;

typedef struct variants {
    variant at[MOST_VARIANTS]; /* the first one is exact */
    int count, causal;
    uint64_t seed;
    int64_t shortest, longest; /* lengths that were measured */
} variants;

/* The variants of a list such as "window-64,performer", NULL: all, that can be with or without `causal` and do not reach past the keys. 0, or the
   exit status after one line. */
int choose_variants(const char *list, int causal, int64_t keys, variants *out);

/* What attention reads and writes: query, key, value and their gradients; output, and the gradient by it. */
typedef struct operands {
    attn_tensor *in[3], *gradient[3], *output, *output_gradient;
} operands;

/* Places for gradients and output beside the three inputs, which are the caller's until operands_free. */
attn_status operands_make(attn_context *ctx, operands *o, uint64_t seed);
/* the same with random inputs of these extents */
attn_status operands_random(attn_context *ctx, const int64_t query[3], const int64_t key[3], const int64_t value[3], operands *o,
                            uint64_t seed);
void operands_free(operands *o);

/* A variant made for so many keys. */
typedef struct form {
    kind kind;
    int causal;
    int64_t size;
    uint64_t seed;
    attn_mask *mask;
    attn_tensor *projection;
} form;
attn_status form_make(attn_context *ctx, const variant *v, int causal, uint64_t seed, int64_t keys, form *out);
attn_status form_attend(attn_context *ctx, attn_tape *tape, const form *f, const operands *o);
void form_free(form *f);

/* Fills in what is measured on the operands, then at random ones of rising length, until exact attention with its backward would take longer
   than `seconds`. threads: of the contexts that memory is measured in. ctx is watched for interrupts. */
attn_status measure_errors(attn_context *ctx, variants *v, const operands *o);
attn_status measure_times(attn_context *ctx, variants *v, const operands *o);
attn_status measure_memory(attn_context *ctx, int32_t threads, variants *v, const operands *o);
attn_status measure_lengths(attn_context *ctx, variants *v, const operands *o, double seconds);

/* Error against time, as SVG; NULL when memory is short. The caller frees it. */
char *draw_variants(const variants *v, const char *title, const char *subtitle);
#endif
