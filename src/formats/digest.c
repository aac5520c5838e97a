#include "digest.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "../core/random.h"
#include "input.h"

enum { WORD = 8, READ_BYTES = 1 << 18, DIGITS = 17, METADATA_SEED = 1, TENSOR_SEED = 2 };

/* one to one in the state and in the word: two states that differ stay different, whatever follows */
static uint64_t step(uint64_t state, uint64_t word)
{
    uint64_t product = (state ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return product << 29 | product >> 35;
}

void attn__digest_start(attn__digest *digest)
{
    *digest = (attn__digest){UINT64_C(0x61747464696765), 0, 0};
}

void attn__digest_add(attn__digest *digest, const void *data, int64_t bytes)
{
    const unsigned char *at = data, *end = at + (bytes > 0 ? bytes : 0);
    uint64_t state = digest->state, word;
    while (at < end) {
        int64_t inside = (int64_t)(digest->bytes % WORD);
        if (inside == 0 && end - at >= WORD) {
            const unsigned char *stop = at + (end - at) / WORD * WORD;
            digest->bytes += (uint64_t)(stop - at);
            for (; at < stop; at += WORD) {
                memcpy(&word, at, WORD);
                state = step(state, word);
            }
        } else {
            digest->rest |= (uint64_t)*at++ << (8 * inside);
            digest->bytes++;
            if (inside < WORD - 1) continue;
            state = step(state, digest->rest);
            digest->rest = 0;
        }
    }
    digest->state = state;
}

uint64_t attn__digest_end(const attn__digest *digest)
{
    return attn__mix(step(digest->state, digest->rest), digest->bytes);
}

static void add_text(attn__digest *digest, const char *text)
{
    attn__digest_add(digest, text, (int64_t)strlen(text) + 1);
}

uint64_t attn__digest_metadata(const char *key, const char *value)
{
    attn__digest digest;
    attn__digest_start(&digest);
    attn__digest_add(&digest, &(const int64_t){METADATA_SEED}, sizeof(int64_t));
    add_text(&digest, key);
    add_text(&digest, value);
    return attn__digest_end(&digest);
}

void attn__digest_tensor(attn__digest *digest, const char *name, int32_t dtype, int32_t rank, const int64_t *shape)
{
    const int64_t head[3] = {TENSOR_SEED, dtype, rank};
    attn__digest_start(digest);
    attn__digest_add(digest, head, sizeof head);
    attn__digest_add(digest, shape, rank * (int64_t)sizeof *shape);
    add_text(digest, name);
}

static attn_status digest_entry(attn_context *ctx, const attn__file *file, const attn__file_entry *entry, void *buffer, uint64_t *sum)
{
    attn__digest digest;
    attn_status status = ATTN_OK;
    attn__digest_tensor(&digest, entry->name, entry->dtype, entry->rank, entry->shape);
    for (int64_t at = entry->begin; status == ATTN_OK && at < entry->end; at += READ_BYTES) {
        int64_t bytes = entry->end - at < READ_BYTES ? entry->end - at : READ_BYTES;
        status = attn__input_read(ctx, file->path, file->descriptor, file->data_start + at, buffer, bytes);
        if (status == ATTN_OK) attn__digest_add(&digest, buffer, bytes);
    }
    *sum += attn__digest_end(&digest);
    return status;
}

attn_status attn__file_verify(attn_context *ctx, const attn__file *file, const char *key)
{
    const char *expected = attn__file_metadata(file, key);
    if (expected == NULL) return ATTN_OK;
    uint64_t sum = 0;
    char text[DIGITS];
    void *buffer;
    attn_status status = attn__allocate(ctx->memory, READ_BYTES, &buffer);
    if (status != ATTN_OK) return attn__fail_memory(ctx, status, "digest of a file");
    for (int64_t i = 0; i < file->metadata_count; i++)
        if (strcmp(file->metadata[i].key, key) != 0) sum += attn__digest_metadata(file->metadata[i].key, file->metadata[i].value);
    for (int64_t i = 0; status == ATTN_OK && i < file->count; i++) status = digest_entry(ctx, file, &file->entries[i], buffer, &sum);
    attn__deallocate(ctx->memory, buffer, READ_BYTES);
    if (status != ATTN_OK) return status;
    snprintf(text, sizeof text, "%016" PRIx64, sum);
    if (strcmp(text, expected) == 0) return ATTN_OK;
    return attn__fail(ctx, ATTN_ERROR_BAD_FILE, "%s: damaged: the digest of what it holds is %s, expected %.16s (%s)",
                      attn__path_shown(file->path), text, expected, key);
}
