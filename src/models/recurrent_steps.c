#include "recurrent_steps.h"
#include <string.h>

/* numbers and segments for each row, and where the steps begin; lists: the caller's, rounded up */
static attn_status bytes_of(attn_context *ctx, int64_t rows, int64_t steps, int64_t step_bytes, int64_t more_bytes, int64_t *lists,
                            int64_t *out)
{
    int64_t each, firsts;
    if (attn__multiply(rows, 5 * (int64_t)sizeof(int64_t) + 2 * (int64_t)sizeof(attn_segment), &each) ||
        attn__multiply(steps + 1, (int64_t)sizeof(int64_t), &firsts) || attn__sum(each, firsts, out) ||
        attn__multiply(steps, step_bytes, lists) || attn__sum(*lists, more_bytes + 64, lists) || attn__sum(*out, *lists, out))
        return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "steps of a recurrent decoder");
    *out -= *lists % 64;
    *lists -= *lists % 64;
    return ATTN_OK;
}

attn_status attn__recurrent_steps_open(const attn__call *call, attn__segments segments, attn__segments memory, int64_t step_bytes,
                                       int64_t more_bytes, attn__recurrent_steps *out)
{
    int64_t lists = 0, bytes = 0;
    memset(out, 0, sizeof *out);
    for (int64_t s = 0; s < segments.count; s++) {
        if (segments.at[s].length > out->count) out->count = segments.at[s].length;
        out->rows += segments.at[s].length;
    }
    attn_status status = bytes_of(call->ctx, out->rows, out->count, step_bytes, more_bytes, &lists, &bytes);
    if (status == ATTN_OK) status = attn__lists_open(call->ctx, call->tape, bytes, "steps of a recurrent decoder", &out->lists);
    if (status != ATTN_OK) return status;
    attn_segment *one = (attn_segment *)((char *)out->lists.at + lists), *seen = one + out->rows;
    int64_t *row = (int64_t *)(seen + out->rows), *segment = row + out->rows, *before = segment + out->rows, *first = before + out->rows;
    int64_t *sequence = first + out->count + 1, *position = sequence + out->rows;
    int64_t at = 0;
    for (int64_t t = 0; t < out->count; t++) {
        int64_t place = 0; /* in the step before */
        first[t] = at;
        for (int64_t s = 0; s < segments.count; s++) {
            const attn_segment *whole = &segments.at[s];
            if (whole->length > t) {
                one[at] = (attn_segment){at - first[t], 1, whole->first_position + t, whole->sequence_id};
                seen[at] = memory.count > 0 ? memory.at[s] : (attn_segment){0, 0, 0, 0};
                sequence[at] = whole->sequence_id;
                position[at] = whole->first_position + t;
                row[at] = whole->start + t;
                segment[at] = s;
                before[at++] = place;
            }
            place += t == 0 || whole->length >= t; /* had a row t - 1 */
        }
    }
    first[out->count] = at;
    out->one = one;
    out->memory = seen;
    out->row = row;
    out->segment = segment;
    out->before = before;
    out->first = first;
    out->places = (attn__places){sequence, position};
    return ATTN_OK;
}
