#include <attn/parameters.h>
#include "../core/dtype.h"
#include "tape_state.h"

/* Gradients of intermediates lie in blocks of a pool, found by size. Slots that have the very same gradient share one block. */

view attn__view_shaped(void *data, const view *like)
{
    view out = *like;
    out.data = data;
    out.head_stride = like->heads == 1 ? 0 : like->width;
    out.row_stride = like->heads * like->width;
    return out;
}

static int heads_dense(const view *at)
{
    return at->heads == 1 || at->head_stride == at->width;
}

attn_status attn__copy_view(attn_context *ctx, const view *x, int add, view *y)
{
    const attn__kernels *k;
    attn_status status = attn__kernels_for(ctx, y->dtype, &k);
    if (status != ATTN_OK) return status;
    if (heads_dense(x) && heads_dense(y)) {
        view from = attn__view_flat(*x), to = attn__view_flat(*y);
        return k->copy(ctx, &from, add, &to);
    }
    int64_t bytes = attn__dtype_bytes(y->dtype);
    for (int64_t h = 0; status == ATTN_OK && h < x->heads; h++) {
        view from = *x, to = *y;
        from.data = (char *)x->data + h * x->head_stride * bytes;
        to.data = (char *)y->data + h * y->head_stride * bytes;
        from.heads = to.heads = 1;
        from.head_stride = to.head_stride = 0;
        status = k->copy(ctx, &from, add, &to);
    }
    return status;
}

attn_status attn__fill_view(attn_context *ctx, double amount, view *y)
{
    const attn__kernels *k;
    attn_status status = attn__kernels_for(ctx, y->dtype, &k);
    int64_t bytes = attn__dtype_bytes(y->dtype), heads = heads_dense(y) ? 1 : y->heads;
    for (int64_t h = 0; status == ATTN_OK && h < heads; h++) {
        view to = heads_dense(y) ? attn__view_flat(*y) : *y;
        to.data = (char *)y->data + h * y->head_stride * bytes;
        to.heads = 1;
        to.head_stride = 0;
        status = k->fill(ctx, &to, ATTN__START_CONSTANT, amount, 0);
    }
    return status;
}

static attn_status class_of(attn_context *ctx, attn_tape *tape, int64_t bytes, int32_t *index)
{
    attn__size_class *classes = tape->classes.at;
    for (int32_t i = 0; i < tape->classes.count; i++) {
        if (classes[i].bytes == bytes) {
            *index = i;
            return ATTN_OK;
        }
    }
    void *memory;
    attn_status status = attn__list_add(ctx, tape, &tape->classes, sizeof(attn__size_class), &memory);
    if (status != ATTN_OK) return status;
    *(attn__size_class *)memory = (attn__size_class){.bytes = bytes, .free = -1};
    *index = tape->classes.count - 1;
    return ATTN_OK;
}

static attn_status block_new(attn_context *ctx, attn_tape *tape, void *data, int64_t bytes, int32_t size_class, int32_t *index)
{
    void *memory;
    attn_status status = attn__list_add(ctx, tape, &tape->blocks, sizeof(attn__block), &memory);
    if (status != ATTN_OK) return status;
    *(attn__block *)memory = (attn__block){.data = data, .bytes = bytes, .references = 1, .next = -1, .size_class = size_class};
    *index = tape->blocks.count - 1;
    return ATTN_OK;
}

static attn_status block_take(attn_context *ctx, attn_tape *tape, int64_t rows, int64_t width, int32_t dtype, int32_t *index)
{
    int64_t bytes = (rows * width * attn__dtype_bytes(dtype) + 63) / 64 * 64;
    int32_t size_class;
    attn_status status = class_of(ctx, tape, bytes, &size_class);
    if (status != ATTN_OK) return status;
    attn__size_class *class = (attn__size_class *)tape->classes.at + size_class;
    if (class->free >= 0) {
        *index = class->free;
        class->free = attn__block_at(tape, *index)->next;
        attn__block_at(tape, *index)->references = 1;
        return ATTN_OK;
    }
    void *data = attn__arena_take(tape->gradients, bytes);
    if (data == NULL) return attn__fail_memory(ctx, attn__arena_status(tape->gradients), "gradients");
    return block_new(ctx, tape, data, bytes, size_class, index);
}

void attn__block_release(attn_tape *tape, int32_t index)
{
    attn__block *block = attn__block_at(tape, index);
    if (--block->references > 0 || block->size_class < 0) return;
    attn__size_class *class = (attn__size_class *)tape->classes.at + block->size_class;
    block->next = class->free;
    class->free = index;
}

void attn__slot_release(attn_tape *tape, int32_t id)
{
    attn__slot *slot = attn__slot_at(tape, id);
    if (slot->kind != ATTN__SLOT_VALUE || slot->block < 0) return;
    attn__block_release(tape, slot->block);
    slot->block = -1;
    slot->complete = 0;
}

/* rows by count columns from first on of the slot's block */
static view slot_columns(const attn_tape *tape, const attn__slot *slot, int64_t first, int64_t count)
{
    view out = {.data = attn__block_at(tape, slot->block)->data,
                .rows = slot->rows,
                .heads = 1,
                .width = slot->width,
                .row_stride = slot->width,
                .dtype = slot->dtype};
    return attn__view_columns(out, first, count);
}

attn_status attn__slot_complete(attn_context *ctx, attn_tape *tape, int32_t id)
{
    attn__slot *slot = attn__slot_at(tape, id);
    attn_status status = ATTN_OK;
    for (int64_t column = 0; status == ATTN_OK && !slot->complete && column < slot->width;) {
        /* the next part that was written, and the gap before it */
        int64_t end = slot->width, next = slot->width;
        for (int32_t p = slot->parts; p >= 0; p = attn__slot_at(tape, p)->next) {
            const attn__slot *part = attn__slot_at(tape, p);
            if (!part->complete || part->first < column || part->first >= end || part->width == 0) continue;
            end = part->first;
            next = part->first + part->width;
        }
        if (end > column) {
            view gap = slot_columns(tape, slot, column, end - column);
            status = attn__fill_view(ctx, 0, &gap);
        }
        column = next;
    }
    if (status == ATTN_OK) slot->complete = 1;
    return status;
}

/* A block of the slot's own: none yet, or shared with other slots, who keep what they have. */
static attn_status slot_own(attn_context *ctx, attn_tape *tape, attn__slot *slot)
{
    int32_t old = slot->block, index = -1;
    if (old >= 0 && attn__block_at(tape, old)->references == 1) return ATTN_OK;
    attn_status status = block_take(ctx, tape, slot->rows, slot->width, slot->dtype, &index);
    if (status != ATTN_OK) return status;
    slot->block = index;
    if (old < 0) return ATTN_OK;
    view to = slot_columns(tape, slot, 0, slot->width), from = to;
    from.data = attn__block_at(tape, old)->data;
    attn__block_release(tape, old);
    return attn__copy_view(ctx, &from, 0, &to);
}

int attn__slot_arrived(const attn_tape *tape, int32_t id)
{
    const attn__slot *slot = attn__slot_at(tape, id);
    if (slot->kind == ATTN__SLOT_VALUE) return slot->block >= 0;
    const attn__slot *base = attn__slot_at(tape, slot->base);
    return base->block >= 0 && (base->complete || slot->complete);
}

/* a part's columns in the shape of the value */
static view part_view(const attn_tape *tape, const attn__slot *slot, const view *like)
{
    view columns = slot_columns(tape, attn__slot_at(tape, slot->base), slot->first, slot->width);
    return attn__view_heads(columns, like->heads);
}

attn_status attn__tape_arrived(attn_context *ctx, attn_tape *tape, const attn__value *output, view *out, int *exclusive)
{
    *out = output->at;
    out->data = NULL;
    if (exclusive != NULL) *exclusive = 0;
    if (!attn__slot_arrived(tape, output->id)) return ATTN_OK;
    attn_status status = attn__slot_complete(ctx, tape, output->id);
    if (status != ATTN_OK) return status;
    const attn__block *block = attn__block_at(tape, attn__slot_at(tape, output->id)->block);
    *out = attn__view_shaped(block->data, &output->at);
    if (exclusive != NULL) *exclusive = block->references == 1;
    return ATTN_OK;
}

attn_status attn__tape_wanted(attn_context *ctx, attn_tape *tape, const attn__value *input, view *out, int *add)
{
    *out = input->at;
    out->data = NULL;
    *add = 0;
    if (input->id < 0) return ATTN_OK;
    attn__slot *slot = attn__slot_at(tape, input->id);
    if (slot->kind == ATTN__SLOT_PARAMETER) {
        const attn_gradients *handle = attn__set_at(tape, slot->set)->handle;
        if (handle == NULL) return ATTN_OK;
        *add = 1;
        *out = attn__view_shaped((char *)handle->flat + slot->first * attn__dtype_bytes(slot->dtype), &input->at);
        return ATTN_OK;
    }
    if (slot->kind == ATTN__SLOT_PART) {
        attn__slot *base = attn__slot_at(tape, slot->base);
        *add = attn__slot_arrived(tape, input->id);
        attn_status status = slot_own(ctx, tape, base);
        if (status != ATTN_OK) return status;
        slot->complete = 1;
        *out = part_view(tape, slot, &input->at);
        return ATTN_OK;
    }
    attn_status status = ATTN_OK;
    *add = slot->block >= 0;
    if (*add) status = attn__slot_complete(ctx, tape, input->id);
    if (status == ATTN_OK) status = slot_own(ctx, tape, slot);
    if (status != ATTN_OK) return status;
    slot->complete = 1;
    *out = attn__view_shaped(attn__block_at(tape, slot->block)->data, &input->at);
    return ATTN_OK;
}

attn_status attn__tape_added(attn_context *ctx, attn_tape *tape, const attn__value *input, view *out)
{
    int add;
    attn_status status = attn__tape_wanted(ctx, tape, input, out, &add);
    if (status != ATTN_OK || out->data == NULL || add) return status;
    return attn__fill_view(ctx, 0, out);
}

attn_status attn__tape_fresh(attn_context *ctx, attn_tape *tape, const view *like, view *out)
{
    int32_t index = -1;
    if (tape->fresh_count == ATTN__TAPE_FRESH) return attn__fail(ctx, ATTN_ERROR_BAD_STATE, "tape: a record asked for too many buffers");
    attn_status status = block_take(ctx, tape, like->rows, like->heads * like->width, like->dtype, &index);
    if (status != ATTN_OK) return status;
    tape->fresh[tape->fresh_count++] = index;
    *out = attn__view_shaped(attn__block_at(tape, index)->data, like);
    return ATTN_OK;
}

static int is_block(const attn_tape *tape, int32_t index, const void *data)
{
    return index >= 0 && attn__block_at(tape, index)->data == data;
}

/* The block a gradient lies in: a fresh one or of an output of the running record, -1 when it is none of them. */
static int32_t block_of(const attn_tape *tape, const void *data)
{
    const attn__record *record = tape->current;
    for (int32_t i = 0; i < tape->fresh_count; i++)
        if (is_block(tape, tape->fresh[i], data)) return tape->fresh[i];
    for (int32_t i = 0; i < record->outputs_count; i++) {
        int32_t block = attn__slot_at(tape, record->output[i].id)->block;
        if (is_block(tape, block, data)) return block;
    }
    return -1;
}

static attn_status add_copy(attn_context *ctx, attn_tape *tape, const attn__value *input, const view *gradient)
{
    view out, from = attn__view_dense(gradient) ? attn__view_shaped(gradient->data, &input->at) : *gradient;
    int add;
    attn_status status = attn__tape_wanted(ctx, tape, input, &out, &add);
    if (status != ATTN_OK || out.data == NULL) return status;
    return attn__copy_view(ctx, &from, add, &out);
}

attn_status attn__tape_pass(attn_context *ctx, attn_tape *tape, const attn__value *input, const view *gradient)
{
    if (input->id < 0) return ATTN_OK;
    attn__slot *slot = attn__slot_at(tape, input->id);
    int32_t block = block_of(tape, gradient->data);
    if (block < 0 || slot->kind != ATTN__SLOT_VALUE || slot->block >= 0) return add_copy(ctx, tape, input, gradient);
    attn__block_at(tape, block)->references++;
    slot->block = block;
    slot->complete = 1;
    return ATTN_OK;
}

attn_status attn__tape_lend(attn_context *ctx, attn_tape *tape, const attn__value *input, const view *gradient)
{
    attn__slot *slot = attn__slot_at(tape, input->id);
    if (!attn__view_dense(gradient) || slot->block >= 0) return add_copy(ctx, tape, input, gradient);
    attn_status status = block_new(ctx, tape, gradient->data, 0, -1, &slot->block);
    if (status != ATTN_OK) return status;
    attn__block_at(tape, slot->block)->references++; /* the lender's: nobody writes to it */
    slot->complete = 1;
    return ATTN_OK;
}

attn_status attn__tape_adopt(attn_context *ctx, attn_tape *tape, const attn__value *input, const view *gradient)
{
    attn__slot *slot = attn__slot_at(tape, input->id);
    /* what a stretch has of the arena goes with it, the gradient may be of a value that stays */
    if (slot->kind != ATTN__SLOT_VALUE || slot->block >= 0 || tape->rerunning > 0) return add_copy(ctx, tape, input, gradient);
    attn_status status = block_new(ctx, tape, gradient->data, 0, -1, &slot->block);
    if (status == ATTN_OK) slot->complete = 1;
    return status;
}
