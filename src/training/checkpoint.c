#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../formats/digest.h"
#include "../formats/json.h"
#include "../models/transformer_file.h"
#include "trainer.h"

/* A checkpoint is a model's file with the optimizer's moments ("optimizer.first_moment.<parameter>", "optimizer.second_moment.<parameter>")
   and, in the metadata under "attn.trainer", the counters: all that a run needs to continue bit for bit. "attn.digest" is of all the rest:
   a flipped bit must not go on as if nothing had happened. */
static const char STATE_KEY[] = "attn.trainer", DIGEST_KEY[] = "attn.digest", PREFIX[] = "optimizer.";
static const int64_t COUNTER_MOST = INT64_MAX / 2; /* so that counting on from a file's number cannot overflow */
static const char *const MOMENTS[2] = {"optimizer.first_moment.", "optimizer.second_moment."};

typedef struct state {
    int64_t steps, updates, cursor;
    uint64_t seed, fingerprint;
    double rate;
} state;

static state state_of(const attn_trainer *t)
{
    return (state){t->steps,
                   t->optimizer->step,
                   t->dataset ? attn__dataset_cursor(t->dataset) : 0,
                   t->options.seed,
                   t->dataset ? attn__dataset_fingerprint(t->dataset) : 0,
                   t->optimizer->rate};
}

/* 64-bit numbers and the rate as hexadecimal strings: JSON numbers would not carry every bit */
static attn_status write_state(attn_context *ctx, attn__writer *writer, const state *s)
{
    char text[512];
    uint64_t rate;
    memcpy(&rate, &s->rate, sizeof rate);
    snprintf(text, sizeof text,
             "{\"steps\":%" PRId64 ",\"updates\":%" PRId64 ",\"cursor\":%" PRId64 ",\"seed\":\"%016" PRIx64 "\",\"data\":\"%016" PRIx64
             "\",\"rate\":\"%016" PRIx64 "\"}",
             s->steps, s->updates, s->cursor, s->seed, s->fingerprint, rate);
    return attn__writer_metadata(ctx, writer, STATE_KEY, text);
}

static int read_integer(const json_t *object, const char *key, int64_t most, int64_t *out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > most) return 0;
    *out = json_integer_value(value);
    return 1;
}

static int read_bits(const json_t *object, const char *key, uint64_t *out)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (text == NULL || strlen(text) != 16 || strspn(text, "0123456789abcdefABCDEF") != 16) return 0;
    *out = strtoull(text, NULL, 16);
    return 1;
}

static attn_status read_state(attn_context *ctx, const attn__file *file, const char *path, state *s)
{
    const char *text = attn__file_metadata(file, STATE_KEY);
    if (text == NULL) return attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: no attn.trainer in its metadata, so it is no checkpoint", path);
    json_t *object;
    uint64_t rate = 0;
    attn_status status = attn__json_parse(ctx, path, text, (int64_t)strlen(text), 4, 100, 0, &object);
    if (status != ATTN_OK) return status;
    if (!read_integer(object, "steps", COUNTER_MOST, &s->steps) || !read_integer(object, "updates", COUNTER_MOST, &s->updates) ||
        !read_integer(object, "cursor", ATTN__MOST_CURSOR, &s->cursor) || !read_bits(object, "seed", &s->seed) ||
        !read_bits(object, "data", &s->fingerprint) || !read_bits(object, "rate", &rate))
        status = attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: attn.trainer: a counter is missing, no number or too large", path);
    memcpy(&s->rate, &rate, sizeof rate);
    if (status == ATTN_OK && !(s->rate >= 0 && isfinite(s->rate)))
        status =
            attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: attn.trainer: rate: got %g, expected a finite number of at least 0", path, s->rate);
    json_decref(object);
    return status;
}

static void *moment(const attn_trainer *t, int which, int64_t index)
{
    return (char *)(which ? t->optimizer->second : t->optimizer->first) +
           t->parameters->at[index].offset * attn__dtype_bytes(t->parameters->dtype);
}

static void moment_name(const attn_trainer *t, int which, int64_t index, char name[2 * ATTN__MAX_NAME])
{
    snprintf(name, 2 * ATTN__MAX_NAME, "%s%s", MOMENTS[which], t->parameters->at[index].name);
}

static attn_status collect(attn_context *ctx, attn__writer *writer, const attn_trainer *t)
{
    const state s = state_of(t);
    char name[2 * ATTN__MAX_NAME];
    attn_status status = write_state(ctx, writer, &s);
    if (status == ATTN_OK) status = attn__transformer_write(ctx, writer, t->parameters);
    for (int which = 0; which < 2; which++)
        for (int64_t i = 0; status == ATTN_OK && i < t->parameters->count; i++) {
            const attn__parameter *p = &t->parameters->at[i];
            moment_name(t, which, i, name);
            status = attn__writer_tensor(ctx, writer, name, t->parameters->dtype, p->rank, p->shape, moment(t, which, i));
        }
    return status;
}

attn_status attn_trainer_save(attn_context *ctx, const attn_trainer *trainer, int64_t count, const char *const *keys,
                              const char *const *values, const char *path)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    attn__writer *writer = NULL;
    status = attn__expect(ctx, "trainer", trainer, ATTN__MAGIC_TRAINER, "attn_trainer");
    if (status == ATTN_OK) status = attn__check_metadata(ctx, count, keys, values, path);
    if (status == ATTN_OK) status = attn__writer_create(ctx, &writer);
    if (status == ATTN_OK) status = collect(ctx, writer, trainer);
    for (int64_t i = 0; status == ATTN_OK && i < count; i++) status = attn__writer_metadata(ctx, writer, keys[i], values[i]);
    if (status == ATTN_OK) status = attn__writer_seal(ctx, writer, DIGEST_KEY);
    if (status == ATTN_OK) status = attn__file_write(ctx, writer, path);
    attn__writer_free(writer);
    return attn__leave(ctx, status);
}

/* what a checkpoint says against what the trainer is */
static attn_status check_state(attn_context *ctx, const attn_trainer *t, const attn__file *file, const char *path, const state *s)
{
    attn_transformer_options saved;
    attn_status status = attn__transformer_file_options(ctx, file, path, &saved);
    if (status != ATTN_OK) return status;
    const attn_transformer_options *own = &attn__trainer_plan(t)->options;
    int64_t count;
    const attn__field *fields = attn__option_fields(&count);
    for (int64_t i = 0; i < count; i++)
        if (attn__field_get(&saved, &fields[i]) != attn__field_get(own, &fields[i]))
            return attn__fail(ctx, ATTN_ERROR_MISMATCH, "%s: %s is %.17g in the checkpoint and %.17g in the model", path, fields[i].name,
                              attn__field_get(&saved, &fields[i]), attn__field_get(own, &fields[i]));
    attn__left *heads;
    status = attn__transformer_file_heads(ctx, file, path, own, &heads);
    if (status == ATTN_OK && !attn__left_same(heads, attn__trainer_plan(t)->heads))
        status = attn__fail(ctx, ATTN_ERROR_MISMATCH, "%s: the checkpoint has other heads than the model", path);
    attn__left_free(heads);
    if (status != ATTN_OK) return status;
    if (s->seed != t->options.seed)
        return attn__fail(ctx, ATTN_ERROR_MISMATCH, "%s: the checkpoint's seed is %" PRIu64 ", the trainer's %" PRIu64, path, s->seed,
                          t->options.seed);
    if (t->dataset != NULL && s->fingerprint != attn__dataset_fingerprint(t->dataset))
        return attn__fail(ctx, ATTN_ERROR_MISMATCH, "%s: the checkpoint was made with another data set, batch size or seed", path);
    return ATTN_OK;
}

typedef struct block {
    void *at;
    int64_t bytes;
} block; /* parameters and both moments, read aside */

static attn_status read_one(attn_context *ctx, const attn__file *file, const char *path, const attn__parameter *p, const char *name,
                            int32_t dtype, void *to)
{
    int64_t at = attn__file_find(file, name);
    if (at < 0) return attn__fail(ctx, ATTN_ERROR_MISMATCH, "%s: missing tensor \"%s\"", path, name);
    const attn__file_entry *e = &file->entries[at];
    int same = e->rank == p->rank && e->dtype == dtype;
    for (int32_t i = 0; same && i < p->rank; i++) same = e->shape[i] == p->shape[i];
    if (!same) return attn__fail(ctx, ATTN_ERROR_MISMATCH, "%s: tensor \"%s\" has another shape or type than the model's", path, name);
    return attn__file_read(ctx, file, at, to, e->end - e->begin);
}

static attn_status read_all(attn_context *ctx, const attn__file *file, const char *path, const attn_trainer *t, block *aside)
{
    const attn_parameters *set = t->parameters;
    int64_t element = attn__dtype_bytes(set->dtype), flat = set->flat_elements * element;
    char name[2 * ATTN__MAX_NAME];
    attn_status status = ATTN_OK;
    for (int64_t i = 0; status == ATTN_OK && i < set->count; i++) {
        const attn__parameter *p = &set->at[i];
        char *to = (char *)aside->at + p->offset * element;
        status = read_one(ctx, file, path, p, p->name, set->dtype, to);
        for (int which = 0; status == ATTN_OK && which < 2; which++) {
            moment_name(t, which, i, name);
            status = read_one(ctx, file, path, p, name, set->dtype, to + (which + 1) * flat);
        }
    }
    for (int64_t i = 0; status == ATTN_OK && i < file->count; i++)
        if (strncmp(file->entries[i].name, PREFIX, sizeof PREFIX - 1) != 0 && attn_parameters_find(set, file->entries[i].name) < 0)
            status = attn__fail(ctx, ATTN_ERROR_MISMATCH, "%s: unexpected tensor \"%s\"", path, file->entries[i].name);
    return status;
}

/* everything is read aside first: a trainer is what it was, or what the file says */
static attn_status restore(attn_context *ctx, attn_trainer *t, const attn__file *file, const char *path)
{
    int64_t flat = t->parameters->flat_elements * attn__dtype_bytes(t->parameters->dtype);
    block aside = {NULL, 0};
    state s = {0};
    attn_status status = read_state(ctx, file, path, &s);
    if (status == ATTN_OK) status = check_state(ctx, t, file, path, &s);
    if (status != ATTN_OK) return status;
    if (attn__multiply(flat, 3, &aside.bytes)) return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "checkpoint");
    status = attn__allocate_zero(ctx->memory, aside.bytes, &aside.at);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "checkpoint");
    status = read_all(ctx, file, path, t, &aside);
    if (status == ATTN_OK) status = attn__file_verify(ctx, file, DIGEST_KEY);
    if (status == ATTN_OK && t->dataset != NULL) status = attn__dataset_seek(ctx, t->dataset, s.cursor);
    if (status == ATTN_OK) {
        memcpy(t->parameters->flat, aside.at, (size_t)flat);
        memcpy(t->optimizer->first, (char *)aside.at + flat, (size_t)flat);
        memcpy(t->optimizer->second, (char *)aside.at + 2 * flat, (size_t)flat);
        t->steps = s.steps;
        t->optimizer->step = s.updates;
        t->optimizer->rate = s.rate;
    }
    attn__deallocate(ctx->memory, aside.at, aside.bytes);
    return status;
}

attn_status attn_trainer_restore(attn_context *ctx, attn_trainer *trainer, const char *path)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    attn__file *file = NULL;
    status = attn__expect(ctx, "trainer", trainer, ATTN__MAGIC_TRAINER, "attn_trainer");
    if (status == ATTN_OK) status = attn__check_metadata(ctx, 0, NULL, NULL, path);
    if (status == ATTN_OK) status = attn__file_open(ctx, path, &file);
    if (status == ATTN_OK) status = restore(ctx, trainer, file, path);
    attn__file_close(file);
    return attn__leave(ctx, status);
}
