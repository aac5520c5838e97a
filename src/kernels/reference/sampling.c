#include <math.h>
#include <stdlib.h>
#include "real.h"

typedef struct candidate {
    double logit, probability;
    int64_t index;
} candidate;

static int by_logit(const void *left, const void *right) /* largest first, then lowest index */
{
    const candidate *a = left, *b = right;
    if (a->logit != b->logit) return a->logit > b->logit ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

static int by_index(const void *left, const void *right)
{
    const candidate *a = left, *b = right;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* minus infinity is a forbidden token; a row needs one finite logit and no NaN or plus infinity */
static attn_status check_logits(attn_context *ctx, const view *logits, const double *uniform)
{
    for (int64_t r = 0; r < logits->rows; r++) {
        double largest = -INFINITY;
        if (uniform[r] < 0) continue;
        for (int64_t c = 0; c < logits->width; c++) {
            double x = (double)row_of(logits, r)[c];
            if (x != x || x == INFINITY) {
                return attn__fail(ctx, ATTN_ERROR_NOT_FINITE,
                                  "logits: got row %lld with %s in column %lld, expected numbers to choose from", (long long)r,
                                  x == INFINITY ? "infinity" : "NaN", (long long)c);
            }
            if (x > largest) largest = x;
        }
        if (largest == -INFINITY) {
            return attn__fail(ctx, ATTN_ERROR_NOT_FINITE, "logits: row %lld allows no token, expected a finite logit", (long long)r);
        }
    }
    return ATTN_OK;
}

/* probability_i = exp((x_i - largest) / temperature) / sum; the difference is never positive, so nothing overflows */
static void softmax_of(candidate *list, int64_t n, double temperature)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        list[i].probability = list[i].logit == list[0].logit ? 1 : exp((list[i].logit - list[0].logit) / temperature);
        sum += list[i].probability;
    }
    for (int64_t i = 0; i < n; i++) list[i].probability /= sum;
}

/* the smallest number of leading candidates whose probabilities reach p */
static int64_t nucleus(const candidate *list, int64_t n, double p)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += list[i].probability;
        if (sum >= p) return i + 1;
    }
    return n;
}

/* the kept ones in index order: the first whose running sum exceeds uniform times the whole */
static int64_t draw(candidate *list, int64_t n, double uniform)
{
    double total = 0, sum = 0;
    int64_t last = 0;
    qsort(list, (size_t)n, sizeof *list, by_index);
    for (int64_t i = 0; i < n; i++) total += list[i].probability;
    for (int64_t i = 0; i < n; i++) {
        if (!(list[i].probability > 0)) continue;
        last = list[i].index;
        sum += list[i].probability;
        if (sum > uniform * total) break;
    }
    return last;
}

attn_status REFERENCE(next_token)(attn_context *ctx, const view *logits, double temperature, int64_t k, double p, const double *uniform,
                                  int32_t *tokens)
{
    int64_t width = logits->width, bytes = 0;
    if (!(temperature >= 0) || temperature == INFINITY) {
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "temperature: got %g, expected a finite number of at least 0", temperature);
    }
    if (k < 0) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "top_k: got %lld, expected at least 0 (0: off)", (long long)k);
    if (!(p > 0 && p <= 1)) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "top_p: got %g, expected more than 0 and at most 1", p);
    attn_status status = check_logits(ctx, logits, uniform);
    if (status != ATTN_OK) return status;
    attn__mark mark = attn__arena_mark(ctx->scratch);
    if (attn__multiply(width, (int64_t)sizeof(candidate), &bytes)) return attn__fail_memory(ctx, ATTN_ERROR_TOO_LARGE, "candidates");
    candidate *list = attn__scratch(ctx, bytes);
    if (list == NULL) return scratch_status(ctx);
    for (int64_t r = 0; r < logits->rows; r++) {
        tokens[r] = -1;
        if (uniform[r] < 0) continue;
        for (int64_t c = 0; c < width; c++) list[c] = (candidate){.logit = (double)row_of(logits, r)[c], .index = c};
        qsort(list, (size_t)width, sizeof *list, by_logit);
        if (temperature == 0) {
            tokens[r] = (int32_t)list[0].index;
            continue;
        }
        int64_t kept = k > 0 && k < width ? k : width;
        softmax_of(list, kept, temperature);
        if (p < 1) kept = nucleus(list, kept, p);
        tokens[r] = (int32_t)draw(list, kept, uniform[r]);
    }
    attn__arena_rewind(ctx->scratch, mark);
    return ATTN_OK;
}
