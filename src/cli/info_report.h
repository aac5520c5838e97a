#ifndef ATTN_CLI_INFO_REPORT_H
#define ATTN_CLI_INFO_REPORT_H
#include <attn/attn.h>
#include <jansson.h>

/* Parameters whose names differ only in the number of the layer and in what follows their module. */
typedef struct info_module {
    char path[256];
    int64_t parameters, tensors, layers;
} info_module;

/* What "attn info" knows of a model. */
typedef struct info_report {
    const char *name;
    attn_transformer *model; /* NULL: a preset, of which there are only options */
    attn_transformer_options options;
    json_t *settings;                               /* of its training; NULL: unknown */
    int64_t length, batch, parameters, cache_bytes; /* cache_bytes: keys and values of a full length, 0 without a decoder */
    info_module *modules;
    int64_t module_count;
    attn_cost_report training, inference; /* cost and memory at length and batch */
} info_report;

/* Heads that are left in a layer's self-attention where some were taken out, up to `room` numbers; 0: all are there. */
int64_t info_heads(attn_context *ctx, const info_report *r, int32_t decoder, int64_t layer, int64_t room, int64_t *numbers);

/* Everything but name, model, options, settings, length and batch. 0, or the exit status after one line. */
int info_collect(attn_context *ctx, info_report *r);
int info_print(attn_context *ctx, const info_report *r);
int info_print_json(attn_context *ctx, const info_report *r);
void info_free(info_report *r);
#endif
