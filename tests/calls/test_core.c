#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "support/calls.h"
#include "support/model.h"

/* Wrong calls of status.h, context.h and tensor.h, the init functions of all options, and all frees. */
#define TYPE(value) ((int32_t)(value).i)
RELEASE(context, attn_context_free)
RELEASE(tensor, attn_tensor_free)
RELEASE(layout, attn_layout_free)
RELEASE(mask, attn_mask_free)
RELEASE(gradients, attn_gradients_free)
RELEASE(tape, attn_tape_free)
RELEASE(attention, attn_attention_free)
RELEASE(encoder, attn_encoder_free)
RELEASE(decoder, attn_decoder_free)
RELEASE(transformer, attn_transformer_free)
RELEASE(optimizer, attn_optimizer_free)
RELEASE(trainer, attn_trainer_free)
RELEASE(vocabulary, attn_vocabulary_free)
RELEASE(dataset, attn_dataset_free)
RELEASE(generator, attn_generator_free)

static void frees(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    (void)state;
    check_free(t, CONTEXT, release_context);
    check_free(t, TENSOR, release_tensor);
    check_free(t, LAYOUT, release_layout);
    check_free(t, MASK, release_mask);
    check_free(t, GRADIENTS, release_gradients);
    check_free(t, TAPE, release_tape);
    check_free(t, ATTENTION, release_attention);
    check_free(t, ENCODER, release_encoder);
    check_free(t, DECODER, release_decoder);
    check_free(t, TRANSFORMER, release_transformer);
    check_free(t, OPTIMIZER, release_optimizer);
    check_free(t, TRAINER, release_trainer);
    check_free(t, VOCABULARY, release_vocabulary);
    check_free(t, DATASET, release_dataset);
    check_free(t, GENERATOR, release_generator);
    /* tensors that belong to a set are not the caller's to free */
    attn_tensor *borrowed = attn_parameters_tensor(t->live[PARAMETERS], 0);
    attn_tensor_free(borrowed);
    assert_true(attn_tensor_rank(borrowed) == 2);
    calls_close(t);
}

INIT(context, attn_context_options_init)
INIT(attention, attn_attention_options_init)
INIT(batch, attn_batch_init)
INIT(cross_entropy, attn_cross_entropy_options_init)
INIT(dataset, attn_dataset_options_init)
INIT(dot_product, attn_dot_product_options_init)
INIT(generator, attn_generator_options_init)
INIT(load, attn_load_options_init)
INIT(optimizer, attn_optimizer_options_init)
INIT(pairs, attn_pairs_options_init)
INIT(schedule, attn_schedule_options_init)
INIT(tape, attn_tape_options_init)
INIT(trainer, attn_trainer_options_init)
INIT(trainer_report, attn_trainer_report_init)
INIT(transformer, attn_transformer_options_init)

static void inits(void **state)
{
    (void)state;
    check_init(init_context, sizeof(attn_context_options));
    check_init(init_attention, sizeof(attn_attention_options));
    check_init(init_batch, sizeof(attn_batch));
    check_init(init_cross_entropy, sizeof(attn_cross_entropy_options));
    check_init(init_dataset, sizeof(attn_dataset_options));
    check_init(init_dot_product, sizeof(attn_dot_product_options));
    check_init(init_generator, sizeof(attn_generator_options));
    check_init(init_load, sizeof(attn_load_options));
    check_init(init_optimizer, sizeof(attn_optimizer_options));
    check_init(init_pairs, sizeof(attn_pairs_options));
    check_init(init_schedule, sizeof(attn_schedule_options));
    check_init(init_tape, sizeof(attn_tape_options));
    check_init(init_trainer, sizeof(attn_trainer_options));
    check_init(init_trainer_report, sizeof(attn_trainer_report));
    check_init(init_transformer, sizeof(attn_transformer_options));
}

static void names(void **state)
{
    (void)state;
    NOTED(attn_status_name);
    for (int32_t status = -100; status <= 100; status++) assert_true(attn_status_name(status)[0] != 0);
    static const int32_t codes[] = {ATTN_OK,
                                    ATTN_ERROR_INVALID_ARGUMENT,
                                    ATTN_ERROR_SHAPE,
                                    ATTN_ERROR_DTYPE,
                                    ATTN_ERROR_TOO_LARGE,
                                    ATTN_ERROR_UNSUPPORTED,
                                    ATTN_ERROR_BAD_STATE,
                                    ATTN_ERROR_OUT_OF_MEMORY,
                                    ATTN_ERROR_MEMORY_CAP,
                                    ATTN_ERROR_FULL,
                                    ATTN_ERROR_IO,
                                    ATTN_ERROR_BAD_FILE,
                                    ATTN_ERROR_MISMATCH,
                                    ATTN_ERROR_END_OF_DATA,
                                    ATTN_ERROR_CANCELLED,
                                    ATTN_ERROR_BLAS,
                                    ATTN_ERROR_NOT_FINITE};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) { /* each has a name, and another one */
        assert_string_not_equal(attn_status_name(codes[i]), "unknown status");
        for (size_t j = 0; j < i; j++) assert_string_not_equal(attn_status_name(codes[i]), attn_status_name(codes[j]));
    }
    assert_string_equal(attn_status_name(INT32_MIN), "unknown status");
    assert_string_equal(attn_status_name(INT32_MAX), "unknown status");
    NOTED(attn_version);
    assert_true(attn_version()[0] != 0);
    NOTED(attn_build_info);
    const char *blas = strstr(attn_build_info(), "; BLAS: ");
    assert_true(strstr(attn_build_info(), attn_version()) != NULL && blas != NULL && blas[8] != 0);
}

THUNK(create_context, attn_context_create(a[0].p, a[1].p))
THUNK(set_backend, attn_context_set_backend(a[0].p, TYPE(a[1])))
THUNK(threads, attn_context_threads(a[0].p, a[1].p))
THUNK(memory, attn_context_memory(a[0].p, a[1].p))
THUNK(reset_peak, attn_context_reset_peak(a[0].p))
THUNK(cancel, attn_context_cancel(a[0].p))

/* no context yet, so no text either: the rows are written out */
static void refuse_context(const attn_context_options *o)
{
    attn_context *ctx = (attn_context *)(uintptr_t)o;
    assert_int_equal(attn_context_create(o, &ctx), ATTN_ERROR_INVALID_ARGUMENT);
    assert_null(ctx);
}

static void *no_memory(void *user, uint64_t size, uint64_t alignment)
{
    (void)user, (void)size, (void)alignment;
    return NULL;
}
static void no_release(void *user, void *pointer, uint64_t size)
{
    (void)user, (void)pointer, (void)size;
}

static void context_options(void **state)
{
    static const attn_allocator none = {.struct_size = sizeof none}, half = {.struct_size = sizeof none, .allocate = no_memory},
                                other_half = {.struct_size = sizeof none, .release = no_release},
                                small = {.struct_size = 8, .allocate = no_memory, .release = no_release},
                                empty = {.struct_size = sizeof none, .allocate = no_memory, .release = no_release};
    const attn_allocator *const bad[] = {&none, &half, &other_half, &small};
    attn_context_options o, good;
    unsigned char tail[128] = {0};
    attn_context *ctx = NULL;
    (void)state;
    assert_int_equal(attn_context_options_init(&good, sizeof good), ATTN_OK);
    good.threads = 1;
    for (uint64_t size = 0; size < sizeof good; size += 7) {
        o = good;
        o.struct_size = size;
        refuse_context(&o);
    }
#define BAD(field, value) \
    o = good; \
    o.field = value; \
    refuse_context(&o)
    BAD(struct_size, 4097);
    BAD(struct_size, UINT64_MAX);
    BAD(backend, -1);
    BAD(backend, 2);
    BAD(threads, 0);
    BAD(threads, -2);
    BAD(threads, INT32_MIN);
    BAD(memory_cap, -2);
    BAD(memory_cap, INT64_MIN);
    BAD(guard_blas, 2);
    BAD(guard_blas, -1);
    BAD(reserved, 1);
    for (int i = 0; i < 4; i++) {
        BAD(allocator, bad[i]);
    }
    assert_int_equal(attn_context_create(&good, NULL), ATTN_ERROR_INVALID_ARGUMENT);
    good.allocator = &empty;
    assert_int_equal(attn_context_create(&good, &ctx), ATTN_ERROR_OUT_OF_MEMORY);
    assert_null(ctx);
    good.allocator = NULL;
    good.memory_cap = 0;
    assert_int_equal(attn_context_create(&good, &ctx), ATTN_ERROR_MEMORY_CAP);
    good.memory_cap = -1;
    memcpy(tail, &good, sizeof good);
    ((attn_context_options *)(void *)tail)->struct_size = sizeof tail;
    assert_int_equal(attn_context_create((const void *)tail, &ctx), ATTN_OK);
    attn_context_free(ctx);
    tail[sizeof good + 1] = 1;
    refuse_context((const void *)tail);
}

static void contexts(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    (void)state;
    ROW(t, attn_context_create, create_context);
    arg_pointer(t, "options", NULL, NULLABLE);
    arg_made(t, "out", release_context);
    accept_row(t);
    ROW(t, attn_context_set_backend, set_backend);
    arg_context(t);
    arg_number(t, "backend", ATTN_BACKEND_BLAS);
    check_row(t);
    wrong_number(t, 1, 2, ATTN_ERROR_INVALID_ARGUMENT, "backend");
    wrong_number(t, 1, -1, ATTN_ERROR_INVALID_ARGUMENT, "backend");
    ROW(t, attn_context_threads, threads);
    arg_context(t);
    arg_result(t, "out", sizeof(int32_t), 0);
    check_row(t);
    ROW(t, attn_context_memory, memory);
    t->flags = VARIES;
    arg_context(t);
    arg_report(t, "report", sizeof(attn_memory_report), 0);
    check_row(t);
    ROW(t, attn_context_reset_peak, reset_peak);
    arg_context(t);
    check_row(t);
    ROW(t, attn_context_cancel, cancel);
    arg_context(t);
    check_row(t);
    NOTED(attn_context_last_error);
    assert_string_equal(attn_context_last_error(NULL), "");
    assert_string_equal(attn_context_last_error(t->live[TENSOR]), "");
    assert_string_equal(attn_context_last_error(t->freed[CONTEXT]), "");
    /* the request to cancel is still there: the next long call sees it, and only that one */
    attn_tensor *x = FLOATS(t, 4, 4), *y = FLOATS(t, 4, 4);
    FAILS(t->ctx, attn_softmax(t->ctx, NULL, x, y), ATTN_ERROR_CANCELLED, "");
    OK(t->ctx, attn_softmax(t->ctx, NULL, x, y));
    calls_close(t);
}

THUNK(create_tensor, attn_tensor_create(a[0].p, TYPE(a[1]), TYPE(a[2]), a[3].p, a[4].p))
THUNK(wrap, attn_tensor_wrap(a[0].p, TYPE(a[1]), TYPE(a[2]), a[3].p, a[4].p, a[5].p, a[6].p))
THUNK(rebind, attn_tensor_rebind(a[0].p, a[1].p, a[2].p, a[3].p, a[4].p))

static const int64_t plain[2] = {2, 3}, negative[2] = {2, -1}, least[2] = {INT64_MIN, 3}, huge[2] = {INT64_MAX / 2, 3},
                     hidden[2] = {0, INT64_MAX}, tall[2] = {INT64_MAX / 8, 2};

static void wrong_forms(calls *t, int index)
{
    wrong_number(t, 1, 0, ATTN_ERROR_DTYPE, "dtype");
    wrong_number(t, 1, 8, ATTN_ERROR_DTYPE, "dtype");
    wrong_number(t, 1, INT32_MIN, ATTN_ERROR_DTYPE, "dtype");
    wrong_number(t, 1, ATTN_FLOAT16, ATTN_ERROR_UNSUPPORTED, "dtype");
    wrong_number(t, 1, ATTN_BFLOAT16, ATTN_ERROR_UNSUPPORTED, "dtype");
    wrong_number(t, 2, -1, ATTN_ERROR_SHAPE, "rank");
    wrong_number(t, 2, 9, ATTN_ERROR_SHAPE, "rank");
    wrong_number(t, 2, INT32_MAX, ATTN_ERROR_SHAPE, "rank");
    wrong_pointer(t, index, negative, ATTN_ERROR_SHAPE, "shape");
    wrong_pointer(t, index, least, ATTN_ERROR_SHAPE, "shape");
    wrong_pointer(t, index, huge, ATTN_ERROR_TOO_LARGE, "shape");
    wrong_pointer(t, index, hidden, ATTN_ERROR_TOO_LARGE, "shape");
}

static void wrong_strides(calls *t, int index)
{
    static const int64_t minus[2] = {3, -1}, shared[2] = {2, 1}, zero[2] = {0, 1}, same[2] = {1, 1}, far[2] = {INT64_MAX, 1},
                         span[2] = {INT64_MAX / 2, 1};
    wrong_pointer(t, index, minus, ATTN_ERROR_SHAPE, "strides");
    wrong_pointer(t, index, shared, ATTN_ERROR_SHAPE, "strides");
    wrong_pointer(t, index, zero, ATTN_ERROR_SHAPE, "strides");
    wrong_pointer(t, index, same, ATTN_ERROR_SHAPE, "strides");
    wrong_pointer(t, index, far, ATTN_ERROR_TOO_LARGE, "strides");
    wrong_pointer(t, index, span, ATTN_ERROR_TOO_LARGE, "strides");
}

static void tensors(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    char *data = calls_memory(t);
    (void)state;
    ROW(t, attn_tensor_create, create_tensor);
    arg_context(t);
    arg_number(t, "dtype", ATTN_FLOAT32);
    arg_number(t, "rank", 2);
    arg_pointer(t, "shape", plain, 0);
    arg_made(t, "out", release_tensor);
    check_row(t);
    wrong_forms(t, 3);
    wrong_pointer(t, 3, tall, ATTN_ERROR_TOO_LARGE, "shape");

    ROW(t, attn_tensor_wrap, wrap);
    arg_context(t);
    arg_number(t, "dtype", ATTN_FLOAT32);
    arg_number(t, "rank", 2);
    arg_pointer(t, "shape", plain, 0);
    arg_pointer(t, "strides", NULL, NULLABLE);
    arg_pointer(t, "data", data, 0);
    arg_made(t, "out", release_tensor);
    guard_memory(t, data, 256);
    check_row(t);
    wrong_forms(t, 3);
    wrong_strides(t, 4);
    wrong_pointer(t, 5, data + 1, ATTN_ERROR_INVALID_ARGUMENT, "data");
    wrong_pointer(t, 5, data + 2, ATTN_ERROR_INVALID_ARGUMENT, "data");

    attn_tensor *wrapped = calls_over(t, ATTN_FLOAT32, 2, plain, NULL, data), *owned = t->live[TENSOR];
    ROW(t, attn_tensor_rebind, rebind);
    arg_context(t);
    arg_handle(t, "wrapped", TENSOR, wrapped, ANY_FORM);
    arg_pointer(t, "shape", plain, 0);
    arg_pointer(t, "strides", NULL, NULLABLE);
    arg_pointer(t, "data", data, 0);
    guard_memory(t, wrapped, 64);
    check_row(t);
    wrong_pointer(t, 1, owned, ATTN_ERROR_BAD_STATE, "wrapped");
    wrong_pointer(t, 1, attn_parameters_tensor(t->live[PARAMETERS], 0), ATTN_ERROR_BAD_STATE, "wrapped");
    wrong_pointer(t, 2, negative, ATTN_ERROR_SHAPE, "shape");
    wrong_pointer(t, 2, huge, ATTN_ERROR_TOO_LARGE, "shape");
    wrong_strides(t, 3);
    wrong_pointer(t, 4, data + 3, ATTN_ERROR_INVALID_ARGUMENT, "data");
    calls_close(t);
}

static void accessors(void **state)
{
    calls *t = calls_open(ATTN_BACKEND_BLAS);
    attn_tensor *good = FLOATS(t, 2, 3);
    attn_tensor *const bad[] = {NULL, t->live[LAYOUT], t->freed[TENSOR]};
    static const int32_t axes[] = {-1, 2, 7, 8, INT32_MIN, INT32_MAX};
    (void)state;
    NOTED(attn_tensor_dtype);
    NOTED(attn_tensor_rank);
    NOTED(attn_tensor_extent);
    NOTED(attn_tensor_stride);
    NOTED(attn_tensor_data);
    NOTED(attn_tensor_data_const);
    for (int i = 0; i < 3; i++) {
        assert_true(attn_tensor_dtype(bad[i]) == 0 && attn_tensor_rank(bad[i]) == 0);
        assert_true(attn_tensor_extent(bad[i], 0) == 0 && attn_tensor_stride(bad[i], 0) == 0);
        assert_true(attn_tensor_data(bad[i]) == NULL && attn_tensor_data_const(bad[i]) == NULL);
    }
    for (int i = 0; i < 6; i++) assert_true(attn_tensor_extent(good, axes[i]) == 0 && attn_tensor_stride(good, axes[i]) == 0);
    assert_true(attn_tensor_extent(good, 1) == 3 && attn_tensor_stride(good, 0) == 3);
    calls_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(frees),    cmocka_unit_test(inits),   cmocka_unit_test(names),
                                       cmocka_unit_test(contexts), cmocka_unit_test(tensors), cmocka_unit_test(context_options),
                                       cmocka_unit_test(accessors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
