#ifndef ATTN_AUTOGRAD_ARGUMENTS_H
#define ATTN_AUTOGRAD_ARGUMENTS_H
#include "../tensor/tensor.h"
#include "operations.h"

/* Arguments of public operations as values, checked by name. dtype: a number, or 0 for any float. */
attn_status attn__argument_input(attn_context *ctx, attn_tape *tape, const char *argument, const attn_tensor *tensor, int32_t dtype,
                                 attn__value *out);
/* rank 2 */
attn_status attn__argument_matrix(attn_context *ctx, attn_tape *tape, const char *argument, const attn_tensor *tensor, int32_t dtype,
                                  attn__value *out);
/* rank 1 of width elements. tensor NULL: *present is NULL, else *present is out. */
attn_status attn__argument_vector(attn_context *ctx, attn_tape *tape, const char *argument, const attn_tensor *tensor, int32_t dtype,
                                  int64_t width, attn__value *out, const attn__value **present);
/* rows by width, apart from the count inputs (NULL entries are absent) */
attn_status attn__argument_output(attn_context *ctx, attn_tape *tape, const char *argument, const attn_tensor *tensor, int32_t dtype,
                                  int64_t rows, int64_t width, int32_t count, const attn__value *const *inputs, attn__value *out);
/* int32 or int64 of any shape as [count, 1] */
attn_status attn__argument_integers(attn_context *ctx, const char *argument, const attn_tensor *tensor, view *out);
/* finite and not negative; a rate in [0, 1] */
attn_status attn__argument_positive(attn_context *ctx, const char *argument, double value);
attn_status attn__argument_rate(attn_context *ctx, const char *argument, double value);
attn_status attn__argument_activation(attn_context *ctx, int32_t activation);

static inline const view *attn__at(const attn__value *value)
{
    return value != NULL ? &value->at : NULL;
}
static inline const attn__dropout *attn__active(const attn__dropout *drop)
{
    return drop != NULL && drop->rate > 0 ? drop : NULL;
}
static inline int attn__identity(const attn__activation *act)
{
    return act == NULL || act->kind == ATTN_ACTIVATION_IDENTITY;
}

/* What an operation with an activation and dropout keeps. */
typedef struct attn__kept_activation {
    attn__activation act;
    view beta; /* act.learned_beta points here */
    attn__dropout drop;
} attn__kept_activation;
static inline void attn__keep_activation(attn__kept_activation *kept, const attn__activation *act, const attn__value *beta,
                                         const attn__dropout *drop)
{
    kept->act = act != NULL ? *act : (attn__activation){.kind = ATTN_ACTIVATION_IDENTITY};
    kept->act.learned_beta = NULL;
    if (beta != NULL) {
        kept->beta = beta->at;
        kept->act.learned_beta = &kept->beta;
    }
    if (attn__active(drop) != NULL) kept->drop = *drop;
}
#endif
