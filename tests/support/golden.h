#ifndef TESTS_SUPPORT_GOLDEN_H
#define TESTS_SUPPORT_GOLDEN_H
#include "formats/safetensors.h"
#include "support/model.h"

/* The golden values of tests/data/<name>.safetensors, made by generate.py. Every entry is read under "<part>.<name>". */
typedef struct golden {
    attn_context *ctx;
    attn__file *file;
    int32_t dtype; /* of the tensors made from it */
    double within; /* bound of differences, relative to the largest number of a tensor */
    char part[64]; /* "" or "causal." */
} golden;

/* backend BLAS: float32; reference: float64 */
void golden_open(golden *g, const char *name, int32_t backend, double within);
void golden_close(golden *g);

/* a tensor of the file in g->dtype (integers and bytes as they are), to be freed by the caller */
attn_tensor *golden_tensor(const golden *g, const char *name);
attn_tensor *golden_like(const golden *g, const attn_tensor *tensor); /* zeros */
double golden_number(const golden *g, const char *name, int64_t index);
int64_t golden_lengths(const golden *g, const char *name, int64_t lengths[16]); /* how many */
attn_layout *golden_layout(const golden *g, const char *name);

/* fails the test when a number differs by more than g->within times the largest (least: what that counts as at least) */
void golden_expect(const golden *g, const char *name, const attn_tensor *got, double least);
/* parameters from "weight.<name>", and every gradient against "gradient.<name>", relative to the largest of all */
void golden_load(const golden *g, attn_parameters *parameters);
void golden_expect_gradients(const golden *g, attn_parameters *parameters, attn_gradients *gradients);
#endif
