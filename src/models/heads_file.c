#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../formats/json.h"
#include "heads.h"
#include "layer.h"

enum { NAME = 64, MOST_VALUES = 1 << 20 };

static void name_of(int64_t decoder, int64_t layer, char name[NAME])
{
    snprintf(name, NAME, "%s.layers.%lld", decoder ? "decoder" : "encoder", (long long)layer);
}

static json_t *array_of(const attn__kept *kept)
{
    json_t *array = json_array();
    for (int64_t i = 0; array != NULL && i < kept->count; i++)
        if (json_array_append_new(array, json_integer((json_int_t)kept->heads[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

attn_status attn__left_text(attn_context *ctx, const attn__left *heads, char **text, int64_t *bytes)
{
    char name[NAME];
    json_t *object = json_object();
    int failed = object == NULL;
    for (int64_t i = 0; !failed && i < heads->count; i++) {
        name_of(heads->at[i].decoder, heads->at[i].layer, name);
        failed = json_object_set_new(object, name, array_of(&heads->at[i])) != 0;
    }
    attn_status status = attn__json_text(ctx, "heads as text", failed ? NULL : object, JSON_COMPACT, text, bytes);
    json_decref(object);
    return status;
}

/* decoder and layer of a name, as it would be written */
static int read_name(const char *name, attn__kept *out)
{
    char again[NAME];
    const char *dot = strrchr(name, '.');
    if (dot == NULL) return 0;
    out->decoder = *name == 'd';
    out->layer = strtoll(dot + 1, NULL, 10);
    name_of(out->decoder, out->layer, again);
    return strcmp(name, again) == 0;
}

/* the numbers of one layer, written to `to` (room for all of the array) */
static attn_status read_layer(attn_context *ctx, const char *path, const char *name, const json_t *array, const attn_transformer_options *o,
                              int64_t *to, attn__kept *out)
{
    const attn__side encoder = attn__encoder_side(o), decoder = attn__decoder_side(o);
    if (!read_name(name, out) || out->layer < 0 || out->layer >= (out->decoder ? decoder : encoder).layers)
        return attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: " ATTN__HEADS_KEY ": got \"%.64s\", expected a layer of the model", path, name);
    const int64_t heads = out->decoder ? decoder.heads : encoder.heads, key_heads = o->key_heads == o->heads ? heads : o->key_heads;
    out->count = json_is_array(array) ? (int64_t)json_array_size(array) : 0;
    if (out->count < 1 || out->count >= heads)
        return attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: " ATTN__HEADS_KEY ": \"%s\" has %lld heads, expected 1 to %lld", path, name,
                          (long long)out->count, (long long)heads - 1);
    for (int64_t i = 0, before = -1; i < out->count; i++) {
        const json_t *number = json_array_get(array, (size_t)i);
        to[i] = json_is_integer(number) ? (int64_t)json_integer_value(number) : -1;
        if (to[i] <= before || to[i] >= heads)
            return attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: " ATTN__HEADS_KEY ": \"%s\" has no rising integers below %lld", path, name,
                              (long long)heads);
        before = to[i];
    }
    if (!attn__left_grouped(to, out->count, heads / key_heads))
        return attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: " ATTN__HEADS_KEY ": \"%s\" has a part of a group of %lld heads", path, name,
                          (long long)(heads / key_heads));
    out->heads = to;
    return ATTN_OK;
}

static int rising(const void *a, const void *b)
{
    const attn__kept *x = a, *y = b;
    if (x->decoder != y->decoder) return x->decoder < y->decoder ? -1 : 1;
    return x->layer < y->layer ? -1 : x->layer > y->layer;
}

attn_status attn__left_parse(attn_context *ctx, const char *path, const char *text, const attn_transformer_options *options,
                             attn__left **out)
{
    json_t *object, *array;
    const char *name;
    int64_t numbers = 0, count = 0;
    *out = NULL;
    if (text == NULL) return ATTN_OK;
    attn_status status = attn__json_parse(ctx, path, text, (int64_t)strlen(text), 3, MOST_VALUES, 0, &object);
    if (status != ATTN_OK) return status;
    if (!json_is_object(object) || json_object_size(object) == 0)
        status = attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: " ATTN__HEADS_KEY ": expected a JSON object of layers", path);
    json_object_foreach(object, name, array) numbers += (int64_t)json_array_size(array); /* 0 for what is no array */
    if (status == ATTN_OK) status = attn__left_create(ctx, (int64_t)json_object_size(object), numbers, out);
    numbers = 0;
    if (status == ATTN_OK) {
        json_object_foreach(object, name, array)
        {
            status = read_layer(ctx, path, name, array, options, (*out)->numbers + numbers, &(*out)->at[count]);
            if (status != ATTN_OK) break;
            numbers += (*out)->at[count++].count;
        }
    }
    json_decref(object);
    if (status == ATTN_OK) {
        qsort((*out)->at, (size_t)count, sizeof *(*out)->at, rising);
        return ATTN_OK;
    }
    attn__left_free(*out);
    *out = NULL;
    return status;
}
