#ifndef ATTN_TRAINING_SCHEDULE_H
#define ATTN_TRAINING_SCHEDULE_H
#include <attn/optimizer.h>
#include "../core/context.h"

attn_status attn__schedule_read(attn_context *ctx, const attn_schedule_options *options,
                                attn_schedule_options *out);                    /* checked; NULL: defaults */
double attn__schedule_rate(const attn_schedule_options *options, int64_t step); /* step from 1 */
#endif
