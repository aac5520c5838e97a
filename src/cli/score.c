#include "score.h"
#include "message.h"

enum { ROWS = 2048 }; /* of a batch: enough for the products to run at full speed */

int open_windows(attn_context *ctx, const char *path, const int32_t *tokens, int64_t count, double first, double last, int64_t context,
                 attn_dataset **out)
{
    attn_dataset_options o;
    attn_dataset_options_init(&o, sizeof o);
    o.context = context;
    o.batch = context < ROWS ? ROWS / context : 1;
    o.order = ATTN_ORDER_SEQUENTIAL;
    o.first = first;
    o.last = last;
    attn_status status = attn_dataset_tokens(ctx, tokens, count, &o, out);
    return status == ATTN_OK ? 0 : fail_call(ctx, status, path);
}

attn_status score(attn_context *ctx, const attn_transformer *model, attn_dataset *windows, double *loss, int64_t *tokens)
{
    double sum = 0;
    int64_t count = 0;
    attn_batch batch;
    attn_status status = attn_dataset_rewind(ctx, windows);
    if (status == ATTN_OK) status = attn_batch_init(&batch, sizeof batch);
    while (status == ATTN_OK) {
        attn_loss_report report = {.struct_size = sizeof report};
        status = attn_dataset_next(ctx, windows, &batch);
        if (status == ATTN_OK) status = attn_transformer_loss(ctx, model, NULL, &batch, NULL, NULL, &report);
        if (status != ATTN_OK) break;
        sum += report.unsmoothed_sum;
        count += report.count;
    }
    if (status != ATTN_ERROR_END_OF_DATA) return status;
    *loss = count > 0 ? sum / (double)count : 0;
    *tokens = count;
    return ATTN_OK;
}
