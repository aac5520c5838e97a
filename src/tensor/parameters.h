#ifndef ATTN_TENSOR_PARAMETERS_H
#define ATTN_TENSOR_PARAMETERS_H
#include <attn/parameters.h>
#include "tensor.h"

/* What a parameter is: the optimizer's groups go by it. */
enum { ATTN__KIND_WEIGHT = 0, ATTN__KIND_BIAS = 1, ATTN__KIND_NORM = 2, ATTN__KIND_EMBEDDING = 3, ATTN__KIND_SCALAR = 4 };
/* How it starts: constant a; uniform in [-a, a]; normal with deviation a. Streams are keyed by the name. */
enum { ATTN__START_CONSTANT = 0, ATTN__START_UNIFORM = 1, ATTN__START_NORMAL = 2 };
enum { ATTN__MAX_NAME = 160 };

typedef struct attn__parameter {
    char *name;
    int32_t rank, kind, start, frozen;
    int64_t shape[4], elements, offset; /* offset: elements into the flat buffer */
    double amount;
} attn__parameter;

/* Numbers that a module computes once and no training changes: they are in no file and have no gradient. */
typedef struct attn__constant {
    struct attn__constant *next;
    int64_t bytes; /* with this header, which takes 64 */
} attn__constant;

/* Counted: a module's handle, its gradients, an optimizer and a tape's records hold one each. */
struct attn_parameters {
    uint64_t magic;
    attn__memory *memory;
    atomic_int references;
    int32_t dtype, finished, dry;
    int64_t count, capacity, elements; /* elements: of the parameters, without padding */
    int64_t flat_elements;             /* with padding (zero) */
    attn__parameter *at;
    int64_t *slots;       /* [2 capacity]: a hash table from names to indices, -1: free */
    attn_tensor *tensors; /* [count], borrowed by callers */
    void *flat;
    attn__constant *constants;
    int64_t constant_bytes;                         /* of all of them; dry sets have no more than this number */
    void *plan;                                     /* the module's own, lives as long as the set; or NULL */
    void (*plan_free)(attn_parameters *parameters); /* called once, when the last reference goes */
};
attn_status attn__parameters_create(attn_context *ctx, int32_t dtype, attn_parameters **out);
attn_parameters *attn__parameters_retain(attn_parameters *parameters);
void attn__parameters_release(attn_parameters *parameters); /* NULL is fine */
/* Adds one; group 1: starts at a 64-byte border, 0: lies right behind the one before (query, key, value are one group).
   *index may be NULL. Names are copied; a name twice is INVALID_ARGUMENT. */
attn_status attn__parameters_add(attn_context *ctx, attn_parameters *parameters, const char *name, int32_t group, int32_t rank,
                                 const int64_t *shape, int32_t kind, int32_t start, double amount, int64_t *index);
/* 64-byte aligned zeros that live as long as the set; of a dry set an address nobody reads */
attn_status attn__parameters_constant(attn_context *ctx, attn_parameters *parameters, int64_t bytes, void **out);
attn_status attn__parameters_finish(attn_context *ctx,
                                    attn_parameters *parameters); /* allocates the flat buffer, zero (dry: addresses only) */
/* a buffer with the places of the set (its own, or a gradient's) as one row, padding included */
attn__view attn__parameters_flat(const attn_parameters *parameters, void *buffer);
/* [shape 0, the rest]; rank 1 is one row */
attn__view attn__parameters_view(const attn_parameters *parameters, int64_t index);
/* count members of one group as one: rank 2 with rows added up, rank 1 with widths added up */
attn__view attn__parameters_joined(const attn_parameters *parameters, int64_t index, int64_t count);

struct attn_gradients {
    uint64_t magic;
    attn__memory *memory;
    attn_parameters *parameters; /* counted */
    attn_tensor *tensors;
    attn_tensor flat_tensor;
    void *flat;
};
#endif
