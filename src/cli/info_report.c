#include "info_report.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "message.h"

/* decoder.layers.3.self_attention.query.weight -> decoder.layers.*.self_attention, and layer 3; output.weight -> output */
static void module_of(const char *name, char path[256], long long *layer)
{
    const char *layers = strstr(name, ".layers.");
    *layer = -1;
    char *end = NULL;
    long long index = layers != NULL ? strtoll(layers + strlen(".layers."), &end, 10) : 0;
    if (end != NULL && *end == '.') {
        const char *rest = end + 1;
        *layer = index;
        snprintf(path, 256, "%.*s.layers.*.%.*s", (int)(layers - name), name, (int)strcspn(rest, "."), rest);
        return;
    }
    const char *dot = strrchr(name, '.');
    snprintf(path, 256, "%.*s", dot != NULL ? (int)(dot - name) : 255, name);
}

static info_module *find_module(info_report *r, const char *path)
{
    for (int64_t i = 0; i < r->module_count; i++)
        if (strcmp(r->modules[i].path, path) == 0) return &r->modules[i];
    info_module *larger = realloc(r->modules, (size_t)(r->module_count + 1) * sizeof *larger);
    if (larger == NULL) return NULL;
    r->modules = larger;
    info_module *made = &r->modules[r->module_count++];
    *made = (info_module){.layers = 0};
    snprintf(made->path, sizeof made->path, "%s", path);
    return made;
}

/* name and shape of parameter `index`: of the model, or of what the options describe */
static attn_status parameter_at(attn_context *ctx, const info_report *r, int64_t index, char name[256], int64_t shape[4])
{
    int32_t rank;
    if (r->model == NULL) return attn_transformer_describe(ctx, &r->options, index, 256, name, &rank, shape);
    const attn_tensor *t = attn_parameters_tensor(attn_transformer_parameters(r->model), index);
    if (t == NULL) return ATTN_ERROR_END_OF_DATA;
    snprintf(name, 256, "%s", attn_parameters_name(attn_transformer_parameters(r->model), index));
    for (int32_t axis = 0; axis < 4; axis++) shape[axis] = axis < attn_tensor_rank(t) ? attn_tensor_extent(t, axis) : 1;
    return ATTN_OK;
}

static int collect_modules(attn_context *ctx, info_report *r)
{
    attn_status status;
    char name[256], path[256];
    int64_t shape[4];
    for (int64_t i = 0; (status = parameter_at(ctx, r, i, name, shape)) == ATTN_OK; i++) {
        long long layer;
        module_of(name, path, &layer);
        info_module *m = find_module(r, path);
        if (m == NULL) return fail(EXIT_MACHINE, "%s: not enough memory", r->name);
        int64_t numbers = shape[0] * shape[1] * shape[2] * shape[3];
        m->parameters += numbers;
        m->tensors++;
        if (layer + 1 > m->layers) m->layers = layer + 1;
        r->parameters += numbers;
    }
    return status == ATTN_ERROR_END_OF_DATA ? 0 : fail_call(ctx, status, r->name);
}

static int collect_costs(attn_context *ctx, info_report *r)
{
    if (r->batch > INT64_MAX / r->length || r->batch > INT32_MAX)
        return fail(EXIT_INPUT, "--length, --batch: got %lld and %lld, expected fewer tokens", (long long)r->length, (long long)r->batch);
    if (r->options.positions == ATTN_POSITIONS_LEARNED && r->length > r->options.context)
        return fail(EXIT_INPUT, "--length: got %lld, expected at most %lld: the model's positions are learned", (long long)r->length,
                    (long long)r->options.context);
    r->training.struct_size = sizeof r->training;
    r->inference.struct_size = sizeof r->inference;
    int64_t rows = r->length * r->batch;
    attn_status status = ATTN_OK;
    for (int32_t training = r->options.output_head != 0; status == ATTN_OK && training >= 0; training--) {
        attn_cost_report *to = training ? &r->training : &r->inference;
        status = r->model != NULL ? attn_transformer_model_cost(ctx, r->model, training, rows, r->length, to)
                                  : attn_transformer_memory(ctx, &r->options, training, rows, r->length, to);
    }
    return status == ATTN_OK ? 0 : fail_call(ctx, status, r->name);
}

int64_t info_heads(attn_context *ctx, const info_report *r, int32_t decoder, int64_t layer, int64_t room, int64_t *numbers)
{
    int64_t count = 0;
    if (r->model == NULL) return 0;
    attn_status status = attn_transformer_heads(ctx, r->model, decoder, layer, room, numbers, &count);
    if (status != ATTN_OK && status != ATTN_ERROR_FULL) return 0;
    return count < (decoder ? r->options.decoder_heads : r->options.heads) ? count : 0;
}

/* keys and values of a token in all layers of a decoder, counted in numbers */
static int64_t cache_of_token(attn_context *ctx, const info_report *r)
{
    const attn_transformer_options *o = &r->options;
    int64_t key_heads = o->key_heads != ATTN_DERIVED ? o->key_heads : o->heads,
            size = o->head_size != ATTN_DERIVED ? o->head_size : o->width / o->heads, sum = 0;
    if (r->model == NULL) return 2 * o->decoder_layers * key_heads * size;
    for (int64_t i = 0; i < o->decoder_layers; i++) { /* a key head goes with the last of its queries */
        int64_t left = info_heads(ctx, r, 1, i, 0, NULL);
        sum += 2 * size * (left > 0 ? left * key_heads / o->decoder_heads : key_heads);
    }
    return sum;
}

int info_collect(attn_context *ctx, info_report *r)
{
    int status = collect_modules(ctx, r);
    if (status == 0) status = collect_costs(ctx, r);
    r->cache_bytes = cache_of_token(ctx, r) * r->length * r->batch * (r->options.dtype == ATTN_FLOAT64 ? 8 : 4);
    return status;
}

void info_free(info_report *r)
{
    free(r->modules);
    r->modules = NULL;
}
