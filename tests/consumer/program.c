/* A stranger's program: the public header alone, an installed library. Uniform scores give the mean of the values. */
#include <attn/attn.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    float query[2] = {0, 0}, key[6] = {1, 2, 3, 4, 5, 6}, value[6] = {1, 10, 2, 20, 3, 30}, output[2] = {0, 0};
    const int64_t one[3] = {1, 1, 2}, three[3] = {3, 1, 2};
    const attn_segment first = {0, 1, 0, 0}, all = {0, 3, 0, 0};
    attn_context *ctx = NULL;
    attn_tensor *q = NULL, *k = NULL, *v = NULL, *o = NULL;
    attn_layout *queries = NULL, *keys = NULL;
    int good = attn_context_create(NULL, &ctx) == ATTN_OK;
    good = good && attn_tensor_wrap(ctx, ATTN_FLOAT32, 3, one, NULL, query, &q) == ATTN_OK;
    good = good && attn_tensor_wrap(ctx, ATTN_FLOAT32, 3, three, NULL, key, &k) == ATTN_OK;
    good = good && attn_tensor_wrap(ctx, ATTN_FLOAT32, 3, three, NULL, value, &v) == ATTN_OK;
    good = good && attn_tensor_wrap(ctx, ATTN_FLOAT32, 3, one, NULL, output, &o) == ATTN_OK;
    good = good && attn_layout_create(ctx, 1, &queries) == ATTN_OK && attn_layout_create(ctx, 1, &keys) == ATTN_OK;
    good = good && attn_layout_set(ctx, queries, 1, &first) == ATTN_OK && attn_layout_set(ctx, keys, 1, &all) == ATTN_OK;
    good = good && attn_dot_product_attention(ctx, NULL, q, k, v, queries, keys, NULL, NULL, o) == ATTN_OK;
    if (!good) {
        printf("failed: %s\n", ctx != NULL ? attn_context_last_error(ctx) : "no context");
        return 1;
    }
    printf("%s %.3f %.3f\n", attn_version(), (double)output[0], (double)output[1]);
    attn_context_free(ctx); /* any order */
    attn_layout_free(queries);
    attn_layout_free(keys);
    attn_tensor_free(q);
    attn_tensor_free(k);
    attn_tensor_free(v);
    attn_tensor_free(o);
    return output[0] > 1.999f && output[0] < 2.001f && output[1] > 19.99f && output[1] < 20.01f ? 0 : 1;
}
