#ifndef ATTN_MODULES_CALL_H
#define ATTN_MODULES_CALL_H
#include "../autograd/operations.h"

/* One forward: what every module of it shares. tape NULL: inference. */
typedef struct attn__call {
    attn_context *ctx;
    attn_tape *tape;
    attn_parameters *parameters;
} attn__call;

/* The rows of one stream of tokens: which segments they form and where each row stands. Lives as long as the tape's records. */
typedef struct attn__stream {
    attn__segments segments;
    attn__places places;
} attn__stream;
/* Checks that the layout tiles the rows, and copies it to where records live. layout NULL: one segment. */
attn_status attn__stream_open(const attn__call *call, const char *argument, const attn_layout *layout, int64_t rows, attn__stream *out);
/* The same for keys: segments may repeat or leave gaps; no places. */
attn_status attn__stream_keys(const attn__call *call, const char *argument, const attn_layout *layout, int64_t rows, attn__stream *out);

/* Where a module adds its parameters: a set and a path, "decoder.layers.0." */
typedef struct attn__scope {
    attn_context *ctx;
    attn_parameters *set;
    char path[ATTN__MAX_NAME];
} attn__scope;
/* path + name + "."; a path that does not fit is cut, and the add that follows then fails by its name's length */
attn__scope attn__scope_in(const attn__scope *scope, const char *name);
attn__scope attn__scope_at(const attn__scope *scope, const char *name, int64_t index); /* "layers.3." */
uint64_t attn__scope_site(const attn__scope *scope, const char *name);                 /* the dropout site of a path */

/* How weights start. amount of XAVIER: gain 1; of SCALED_NORMAL: the deviation. */
typedef struct attn__start_rule {
    int32_t initialisation; /* ATTN_INITIALISATION_* */
    double scale;           /* deviation of the scaled normal */
} attn__start_rule;

/* A weight [out, in] (rows out), a bias [out]; group as attn__parameters_add. shrink: the weight's start is multiplied by it (1; less for
   the projections that write to the residual stream). */
attn_status attn__add_weight(const attn__scope *scope, const char *name, int32_t group, int64_t out, int64_t in,
                             const attn__start_rule *rule, double shrink, int64_t *index);
attn_status attn__add_vector(const attn__scope *scope, const char *name, int32_t group, int64_t width, int32_t kind, double start,
                             int64_t *index);
attn_status attn__add_table(const attn__scope *scope, const char *name, int64_t rows, int64_t width, const attn__start_rule *rule,
                            int64_t *index);

/* A parameter, or count adjacent members of a group, as a value on the tape. index -1: absent, *out.at.data NULL. */
attn_status attn__parameter_value(const attn__call *call, int64_t index, int64_t count, attn__value *out);
/* 1 when all count members are frozen alike, so that they can be joined to one product */
int attn__parameters_alike(const attn_parameters *set, int64_t index, int64_t count);

/* INVALID_ARGUMENT when an output lies over the parameters it is calculated from */
attn_status attn__output_apart(const attn__call *call, const char *argument, const view *at);

/* Fills a finished set by its starts; the streams are keyed by the context's seed and the parameters' names. */
attn_status attn__initialise(attn_context *ctx, attn_parameters *set);
#endif
