#include <stdio.h>
#include "tape_state.h"

attn_status attn__tape_unwind(attn_context *ctx, attn_tape *tape, attn__record *last)
{
    attn_status status = ATTN_OK;
    const attn__record *outer = tape->current;
    for (attn__record *record = last; status == ATTN_OK && record != NULL; record = record->previous) {
        int arrived = 0;
        for (int32_t i = 0; i < record->outputs_count; i++) arrived |= attn__slot_arrived(tape, record->output[i].id);
        if (!arrived) continue;
        attn__mark mark = attn__arena_mark(ctx->scratch);
        int32_t fresh = tape->fresh_count;
        tape->current = record;
        status = attn__cancelled(ctx);
        if (status == ATTN_OK) status = record->backward(ctx, tape, record);
        while (tape->fresh_count > fresh) attn__block_release(tape, tape->fresh[--tape->fresh_count]);
        for (int32_t i = 0; i < record->outputs_count; i++) attn__slot_release(tape, record->output[i].id);
        attn__arena_rewind(ctx->scratch, mark);
    }
    tape->current = outer;
    return status;
}

/* Everything is looked at here, before anything is written. */
static attn_status take_handles(attn_context *ctx, attn_tape *tape, int64_t count, attn_gradients *const *gradients)
{
    if (count < 0) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "gradients_count: got %lld, expected at least 0", (long long)count);
    if (count > 0 && gradients == NULL)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "gradients: got NULL, expected %lld handles", (long long)count);
    for (int32_t s = 0; s < tape->sets.count; s++) attn__set_at(tape, s)->handle = NULL;
    for (int64_t i = 0; i < count; i++) {
        attn__tape_set *found = NULL;
        char name[48];
        snprintf(name, sizeof name, "gradients[%lld]", (long long)i);
        attn_status status = attn__expect(ctx, name, gradients[i], ATTN__MAGIC_GRADIENTS, "attn_gradients");
        if (status != ATTN_OK) return status;
        for (int32_t s = 0; s < tape->sets.count; s++)
            if (attn__set_at(tape, s)->set == gradients[i]->parameters) found = attn__set_at(tape, s);
        if (found == NULL)
            return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                              "gradients[%lld]: got a handle of a set that is not on the tape, expected one that is", (long long)i);
        if (found->handle != NULL)
            return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "gradients[%lld]: got a second handle of a set, expected one for each",
                              (long long)i);
        found->handle = gradients[i];
    }
    return ATTN_OK;
}

/* over gradients of parameters that backward adds to */
static int over_handles(const attn_tape *tape, const view *at)
{
    int over = 0;
    for (int32_t s = 0; !over && s < tape->sets.count; s++) {
        const attn_gradients *handle = attn__set_at(tape, s)->handle;
        if (handle == NULL) continue;
        const view flat = attn__parameters_flat(handle->parameters, handle->flat);
        over = attn__view_overlaps(at, &flat);
    }
    return over;
}

/* What backward writes for watched inputs lies over no parameter and over no gradient of one: sets may have been met after the watch. */
static attn_status check_watches(attn_context *ctx, const attn_tape *tape)
{
    const attn__watch *watches = tape->watches.at;
    for (int32_t i = 0; i < tape->watches.count; i++) {
        if (attn__over_parameters(tape, &watches[i].gradient) || over_handles(tape, &watches[i].gradient))
            return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                              "gradient of a watched input: got memory of parameters or of their gradients, expected memory of its own");
    }
    return ATTN_OK;
}

/* what is read to the end must not be added to meanwhile */
static attn_status check_seeds(attn_context *ctx, const attn_tape *tape, int64_t count, const view *gradients)
{
    for (int64_t i = 0; gradients != NULL && i < count; i++)
        if (gradients[i].data != NULL && over_handles(tape, &gradients[i]))
            return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                              "output_gradients[%lld]: got memory of gradients of parameters, expected memory of its own", (long long)i);
    return ATTN_OK;
}

static attn_status seed(attn_context *ctx, attn_tape *tape, const attn__value *output, const view *gradient)
{
    view to;
    int add;
    if (gradient != NULL && gradient->data != NULL) return attn__tape_lend(ctx, tape, output, gradient);
    attn_status status = attn__tape_wanted(ctx, tape, output, &to, &add);
    if (status != ATTN_OK) return status;
    if (!add) return attn__fill_view(ctx, 1, &to);
    attn__value ones;
    status = attn__tape_temporary(ctx, NULL, to.rows, to.heads * to.width, to.dtype, &ones);
    if (status != ATTN_OK) return status;
    ones.at = attn__view_shaped(ones.at.data, &to);
    status = attn__fill_view(ctx, 1, &ones.at);
    return status == ATTN_OK ? attn__copy_view(ctx, &ones.at, 1, &to) : status;
}

/* What was gathered for the watched inputs goes to the caller's tensors: zeros where nothing arrived. */
static attn_status hand_out(attn_context *ctx, attn_tape *tape)
{
    attn__watch *watches = tape->watches.at;
    attn_status status = ATTN_OK;
    for (int32_t i = 0; status == ATTN_OK && i < tape->watches.count; i++) {
        view from, to = watches[i].gradient;
        attn__value value = {.at = to, .id = watches[i].id};
        status = attn__tape_arrived(ctx, tape, &value, &from, NULL);
        if (status != ATTN_OK) return status;
        status = from.data != NULL ? attn__copy_view(ctx, &from, 0, &to) : attn__fill_view(ctx, 0, &to);
    }
    return status;
}

attn_status attn__tape_run(attn_context *ctx, attn_tape *tape, int64_t count, const attn__value *outputs, const view *output_gradients,
                           int64_t gradients_count, attn_gradients *const *gradients)
{
    attn_status status = attn__tape_check(ctx, tape);
    if (status == ATTN_OK) status = take_handles(ctx, tape, gradients_count, gradients);
    if (status == ATTN_OK) status = check_watches(ctx, tape);
    if (status == ATTN_OK) status = check_seeds(ctx, tape, count, output_gradients);
    if (status != ATTN_OK) return status;
    attn__mark mark = attn__arena_mark(ctx->scratch);
    tape->state = ATTN__TAPE_RUNNING;
    for (int64_t i = 0; status == ATTN_OK && i < count; i++)
        status = seed(ctx, tape, &outputs[i], output_gradients != NULL ? &output_gradients[i] : NULL);
    if (status == ATTN_OK) status = attn__tape_unwind(ctx, tape, tape->last);
    if (status == ATTN_OK) status = hand_out(ctx, tape);
    attn__arena_rewind(ctx->scratch, mark);
    attn__tape_forget(tape);
    tape->state = ATTN__TAPE_SPENT;
    return status;
}

static int same_shape(const attn_tensor *a, const attn_tensor *b)
{
    if (a->rank != b->rank) return 0;
    for (int32_t i = 0; i < a->rank; i++)
        if (a->shape[i] != b->shape[i]) return 0;
    return 1;
}

static attn_status output_of(attn_context *ctx, const attn_tape *tape, int64_t i, const attn_tensor *output, const attn_tensor *gradient,
                             attn__value *value, view *arriving)
{
    char name[48];
    int clash, touch;
    snprintf(name, sizeof name, "outputs[%lld]", (long long)i);
    attn_status status = attn__tensor_view(ctx, name, output, 0, &value->at);
    if (status != ATTN_OK) return status;
    attn__span_find(tape, &value->at, &value->id, &clash, &touch);
    if (value->id < 0)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "%s: got a tensor that is not on the tape, expected a value of it", name);
    *arriving = (view){.data = NULL};
    if (gradient == NULL) return ATTN_OK;
    snprintf(name, sizeof name, "output_gradients[%lld]", (long long)i);
    status = attn__tensor_view(ctx, name, gradient, value->at.dtype, arriving);
    if (status != ATTN_OK) return status;
    if (!same_shape(output, gradient))
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "%s: got another shape than that of its output, expected the same", name);
    const attn__watch *watches = tape->watches.at;
    for (int32_t w = 0; status == ATTN_OK && w < tape->watches.count; w++)
        status = attn__expect_apart(ctx, name, arriving, "the gradient of a watched input", &watches[w].gradient);
    return status;
}

static attn_status tape_backward(attn_context *ctx, attn_tape *tape, int64_t count, const attn_tensor *const *outputs,
                                 const attn_tensor *const *output_gradients, int64_t gradients_count, attn_gradients *const *gradients)
{
    if (tape == NULL) return attn__expect(ctx, "tape", tape, ATTN__MAGIC_TAPE, "attn_tape");
    attn_status status = attn__tape_check(ctx, tape);
    if (status != ATTN_OK) return status;
    if (count < 1) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "count: got %lld, expected at least 1", (long long)count);
    if (outputs == NULL) return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "outputs: got NULL, expected %lld tensors", (long long)count);
    int64_t bytes;
    if (attn__multiply(count, sizeof(attn__value) + sizeof(view), &bytes))
        return attn__fail(ctx, ATTN_ERROR_TOO_LARGE, "count: got %lld", (long long)count);
    attn__value *values = attn__scratch(ctx, bytes);
    if (values == NULL) return attn__arena_status(ctx->scratch);
    view *arriving = (view *)(values + count);
    for (int64_t i = 0; i < count; i++) {
        status = output_of(ctx, tape, i, outputs[i], output_gradients != NULL ? output_gradients[i] : NULL, &values[i], &arriving[i]);
        if (status != ATTN_OK) return status;
    }
    return attn__tape_run(ctx, tape, count, values, arriving, gradients_count, gradients);
}

attn_status attn_tape_backward(attn_context *ctx, attn_tape *tape, int64_t count, const attn_tensor *const *outputs,
                               const attn_tensor *const *output_gradients, int64_t gradients_count, attn_gradients *const *gradients)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, tape_backward(ctx, tape, count, outputs, output_gradients, gradients_count, gradients));
}

static attn_status tape_watch(attn_context *ctx, attn_tape *tape, const attn_tensor *input, attn_tensor *gradient)
{
    if (tape == NULL) return attn__expect(ctx, "tape", tape, ATTN__MAGIC_TAPE, "attn_tape");
    view from, to;
    int32_t id;
    int clash, touch;
    attn_status status = attn__tape_check(ctx, tape);
    if (status == ATTN_OK) status = attn__tensor_view(ctx, "input", input, 0, &from);
    if (status == ATTN_OK) status = attn__tensor_view(ctx, "gradient", gradient, from.dtype, &to);
    if (status != ATTN_OK) return status;
    if (!same_shape(input, gradient))
        return attn__fail(ctx, ATTN_ERROR_SHAPE, "gradient: got another shape than that of the input, expected the same");
    status = attn__expect_apart(ctx, "gradient", &to, "input", &from);
    if (status != ATTN_OK) return status;
    if (input->parameters != NULL)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                          "input: got a parameter, expected another tensor (its gradient comes in the handle of its set)");
    int empty = from.rows == 0 || from.heads == 0 || from.width == 0;
    if (attn__span_find(tape, &from, &id, &clash, &touch) && !empty)
        return attn__fail(ctx, ATTN_ERROR_BAD_STATE, "input: got a tensor that %s, expected to watch it before its use",
                          id >= 0 ? "is on the tape already" : "was used before");
    if (touch)
        return attn__fail(ctx, ATTN_ERROR_BAD_STATE, "input: got memory shared with a value on the tape, expected memory of its own");
    if (gradient->parameters != NULL)
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT, "gradient: got a parameter, expected memory of its own");
    attn__span_find(tape, &to, &id, &clash, &touch);
    if (touch || attn__over_parameters(tape, &to))
        return attn__fail(ctx, ATTN_ERROR_INVALID_ARGUMENT,
                          "gradient: got memory shared with a value, a gradient or a parameter on the tape, expected memory of its own");
    status = attn__tape_hold_storage(ctx, tape, input->storage);
    if (status == ATTN_OK) status = attn__tape_hold_storage(ctx, tape, gradient->storage);
    if (status == ATTN_OK) status = attn__slot_add(ctx, tape, ATTN__SLOT_VALUE, &from, &id);
    void *memory;
    int32_t spans = tape->spans.count;
    for (int i = 0; status == ATTN_OK && i < 2; i++) status = attn__list_add(ctx, tape, &tape->spans, sizeof(attn__span), &memory);
    tape->spans.count = spans; /* there is room for two now: nothing below fails half way */
    if (status == ATTN_OK) status = attn__list_add(ctx, tape, &tape->watches, sizeof(attn__watch), &memory);
    if (status != ATTN_OK) return status;
    *(attn__watch *)memory = (attn__watch){.gradient = to, .id = id};
    status = attn__span_insert(ctx, tape, &from, id);
    return status == ATTN_OK ? attn__span_insert(ctx, tape, &to, -1) : status;
}

attn_status attn_tape_watch(attn_context *ctx, attn_tape *tape, const attn_tensor *input, attn_tensor *gradient)
{
    attn_status status = attn__enter(ctx);
    if (status != ATTN_OK) return status;
    return attn__leave(ctx, tape_watch(ctx, tape, input, gradient));
}
