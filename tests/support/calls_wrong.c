#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>
#include "core/dtype.h"
#include "support/calls.h"
#include "support/model.h"

enum { PATTERN = 0xA5, LARGEST = 4096, BROKEN = 8192, STRIDES = 2 };

static void failed(calls *t, const char *what, const char *problem, attn_status got, attn_status want)
{
    const char *text = attn_context_last_error(t->ctx);
    print_error("%s, %s: %s; gave \"%s\", expected \"%s\"\n    text: %s\n", t->name, what, problem, attn_status_name(got),
                attn_status_name(want), text);
    t->failures++;
}

/* outputs full of the pattern; what everything is before the call */
static void prepare(calls *t)
{
    if (t->before != NULL) t->before(t);
    for (int i = 0; i < t->guards; i++) {
        guard *g = &t->guarded[i];
        if (g->output) memset(g->at, PATTERN, (size_t)g->bytes);
        if (g->struct_size > 0) memcpy(g->at, &g->struct_size, sizeof g->struct_size);
        memcpy(g->before, g->at, (size_t)g->bytes);
    }
    for (int i = 0; i < t->count; i++)
        if (t->at[i].kind == MADE) memset(t->at[i].valid.p, PATTERN, sizeof(void *));
}

static void finish(calls *t)
{
    for (int i = 0; i < t->count; i++) {
        if (t->at[i].kind != MADE) continue;
        void *made;
        memcpy(&made, t->at[i].valid.p, sizeof made);
        t->at[i].release(made);
    }
}

static void run_valid(calls *t, const slot *a, const char *what, int compare)
{
    prepare(t);
    attn_status got = t->call(a);
    if (got != ATTN_OK) {
        failed(t, what, "a valid call was refused", got, ATTN_OK);
        return;
    }
    if (attn_context_last_error(t->ctx)[0] != 0) failed(t, what, "a text after success", got, ATTN_OK);
    for (int i = 0; i < t->guards; i++) {
        guard *g = &t->guarded[i];
        if (!g->output && memcmp(g->at, g->before, (size_t)g->bytes) != 0) failed(t, what, "a valid call changed an input", got, ATTN_OK);
        if (!compare || !g->output || (t->flags & VARIES)) continue;
        if (!t->started) memcpy(g->first, g->at, (size_t)g->bytes);
        if (memcmp(g->at, g->first, (size_t)g->bytes) != 0) failed(t, what, "a valid call gave other results than before", got, ATTN_OK);
    }
    if (compare) t->started = 1;
    finish(t);
}

void accept_row(calls *t)
{
    run_valid(t, t->arguments, "the valid call", 1);
}

static int named(const calls *t, const char *text, const char *word)
{
    if (word != NULL) return strstr(text, word) != NULL;
    for (int i = 0; i < t->count; i++)
        if (strncmp(text, t->at[i].name, strlen(t->at[i].name)) == 0) return 1;
    return 0;
}

/* What was got and what was expected: not for files, whose texts tell what is wrong with them, nor for a lack of memory. */
static int tells(const char *text, attn_status status)
{
    if (status <= ATTN_ERROR_IO || status == ATTN_ERROR_TOO_LARGE || status == ATTN_ERROR_OUT_OF_MEMORY) return 1;
    return strstr(text, "got ") != NULL && strstr(text, "expected ") != NULL;
}

/* the numbers of a text up to its end, one after another: how many */
static int numbers(const char *text, const char *end, double *out, int most)
{
    int count = 0;
    while (text < end && count < most) {
        char *after = NULL;
        const int within_a_word = isalnum((unsigned char)text[-1]) || text[-1] == '_';
        const double number = isdigit((unsigned char)*text) && !within_a_word ? strtod(text, &after) : 0;
        if (after != NULL) out[count++] = text[-1] == '-' ? -number : number;
        text = after != NULL ? after : text + 1;
    }
    return count;
}

/* "got 3 segments, expected the 3 of query_layout" */
static int contradicts_itself(const char *text)
{
    double got[8], expected[8];
    const char *first = strstr(text, "got "), *second = first != NULL ? strstr(first, ", expected ") : NULL;
    if (second == NULL) return 0;
    const int count = numbers(first + 4, second, got, 8);
    return count > 0 && count == numbers(second + 11, second + strlen(second), expected, 8) &&
           memcmp(got, expected, (size_t)count * sizeof *got) == 0;
}

/* a text about the argument that was given a number says which */
static int says_figure(const calls *t, const char *text)
{
    double got[8];
    const char *at = t->figure_of != NULL ? strstr(text, t->figure_of) : NULL;
    const char *first = at != NULL ? at + strlen(t->figure_of) : NULL, *end;
    if (first == NULL || strncmp(first, ": got ", 6) != 0) return 1;
    if (isnan(t->figure)) return strstr(first, "nan") != NULL;
    if (isinf(t->figure)) return strstr(first, "inf") != NULL;
    end = strstr(first, ", expected ");
    for (int i = numbers(first + 6, end != NULL ? end : first + strlen(first), got, 8); i-- > 0;)
        if (fabs(got[i] - t->figure) <= 1e-6 * fabs(t->figure)) return 1;
    return 0;
}

static void check_text(calls *t, attn_status got, attn_status want, const char *word, const char *what)
{
    const char *text = attn_context_last_error(t->ctx);
    if (!named(t, text, word)) failed(t, what, word != NULL ? word : "the text names no argument", got, want);
    if (!tells(text, got)) failed(t, what, "the text does not say what it got and what it expected", got, want);
    if (got == ATTN_ERROR_SHAPE && contradicts_itself(text)) failed(t, what, "what the text says it got is what it expected", got, want);
    if ((got == ATTN_ERROR_INVALID_ARGUMENT || got == ATTN_ERROR_DTYPE) && !says_figure(t, text))
        failed(t, what, "the text does not say the number it got", got, want);
}

static void refuse(calls *t, const slot *a, attn_status want, const char *word, const char *what, int silent)
{
    static unsigned char broken[BROKEN];
    prepare(t);
    memcpy(broken, t->broken, sizeof broken);
    attn_status got = t->call(a);
    t->wrong++;
    if (got != want) failed(t, what, "wrong status", got, want);
    if (got != ATTN_OK && !silent) check_text(t, got, want, word, what);
    if (got == ATTN_OK) finish(t);
    for (int i = 0; i < t->guards; i++) {
        guard *g = &t->guarded[i];
        if (g->at == t->loose) continue;
        if (memcmp(g->at, g->before, (size_t)g->bytes) != 0)
            failed(t, what, g->output ? "something was written" : "an input was changed", got, want);
    }
    if (memcmp(broken, t->broken, sizeof broken) != 0) failed(t, what, "the struct was written", got, want);
    for (int i = 0; got != ATTN_OK && i < t->count; i++) {
        void *made;
        if (t->at[i].kind != MADE || a[i].p == NULL) continue;
        memcpy(&made, t->at[i].valid.p, sizeof made);
        if (made != NULL) failed(t, what, "*out is not NULL after a failure", got, want);
    }
    t->loose = NULL;
    t->figure_of = NULL;
    accept_row(t);
}

/* the valid arguments, one of them in another way */
static const slot *with(calls *t, int index, slot other)
{
    static slot a[CALLS_SLOTS];
    memcpy(a, t->arguments, sizeof a);
    a[index] = other;
    return a;
}

static slot pointer(const void *p)
{
    return (slot){.p = (void *)(uintptr_t)p};
}

static void figure(calls *t, const char *of, double number)
{
    t->figure_of = of;
    t->figure = number;
}

void wrong_pointer(calls *t, int index, const void *p, attn_status status, const char *word)
{
    char what[96];
    snprintf(what, sizeof what, "%s another", t->at[index].name);
    refuse(t, with(t, index, pointer(p)), status, word, what, 0);
}

void wrong_number(calls *t, int index, int64_t value, attn_status status, const char *word)
{
    char what[96];
    snprintf(what, sizeof what, "%s = %lld", t->at[index].name, (long long)value);
    figure(t, t->at[index].name, (double)value);
    refuse(t, with(t, index, (slot){.i = value}), status, word, what, 0);
}

void wrong_real(calls *t, int index, double value, attn_status status, const char *word)
{
    char what[96];
    snprintf(what, sizeof what, "%s = %g", t->at[index].name, value);
    figure(t, t->at[index].name, value);
    refuse(t, with(t, index, (slot){.d = value}), status, word, what, 0);
}

void accept_pointer(calls *t, int index, const void *p)
{
    char what[96];
    snprintf(what, sizeof what, "%s another that is as good", t->at[index].name);
    run_valid(t, with(t, index, pointer(p)), what, 0);
}

void wrong_field(calls *t, int index, uint64_t offset, uint64_t bytes, const void *value, attn_status status, const char *field)
{
    char what[96];
    const argument *at = &t->at[index];
    memset(t->broken, 0, BROKEN);
    memcpy(t->broken, at->valid.p, (size_t)at->size);
    memcpy(t->broken + offset, value, (size_t)bytes);
    snprintf(what, sizeof what, "%s.%s", at->name, field);
    if (bytes == sizeof(int32_t)) figure(t, field, *(const int32_t *)value);
    refuse(t, with(t, index, pointer(t->broken)), status, field, what, 0);
}

/* the end of a range itself, which is wrong as what lies outside, or as good as any other */
static void check_end(calls *t, int index, uint64_t offset, double end, int wrong, const char *field)
{
    char what[96];
    if (isnan(end)) return;
    if (wrong) {
        figure(t, field, end);
        wrong_field(t, index, offset, sizeof end, &end, ATTN_ERROR_INVALID_ARGUMENT, field);
        return;
    }
    memset(t->broken, 0, BROKEN);
    memcpy(t->broken, t->at[index].valid.p, (size_t)t->at[index].size);
    memcpy(t->broken + offset, &end, sizeof end);
    snprintf(what, sizeof what, "%s.%s = %g", t->at[index].name, field, end);
    run_valid(t, with(t, index, pointer(t->broken)), what, 0);
}

void wrong_reals(calls *t, int index, uint64_t offset, double least, double most, int wrong_ends, const char *field)
{
    const double bad[5] = {NAN, INFINITY, -INFINITY, isnan(least) ? NAN : least - 0.001 - 1e-3 * fabs(least),
                           isnan(most) ? NAN : most + 0.001 + 1e-3 * fabs(most)};
    for (int i = 0; i < 5; i++) {
        figure(t, field, bad[i]);
        wrong_field(t, index, offset, sizeof bad[i], &bad[i], ATTN_ERROR_INVALID_ARGUMENT, field);
    }
    check_end(t, index, offset, least, wrong_ends & LEAST_IS_WRONG, field);
    check_end(t, index, offset, most, wrong_ends & MOST_IS_WRONG, field);
}

static void refuse_as(calls *t, int index, const void *p, attn_status status, const char *word, const char *how)
{
    char what[96];
    snprintf(what, sizeof what, "%s %s", t->at[index].name, how);
    refuse(t, with(t, index, pointer(p)), status, word, what, t->at[index].kind == CONTEXT);
}

static void check_handle(calls *t, int index)
{
    const argument *at = &t->at[index];
    int kind = at->kind == OUTPUT_KIND ? TENSOR : at->kind;
    const void *foreign = t->live[kind + 1 < HANDLE_KINDS ? kind + 1 : CONTEXT];
    if (at->flags & NULLABLE)
        accept_pointer(t, index, NULL);
    else
        refuse_as(t, index, NULL, ATTN_ERROR_INVALID_ARGUMENT, at->name, "NULL");
    refuse_as(t, index, foreign, ATTN_ERROR_INVALID_ARGUMENT, at->name, "of another kind");
    refuse_as(t, index, t->freed[kind], ATTN_ERROR_INVALID_ARGUMENT, at->name, "freed");
    if (kind != TAPE || (at->flags & ANY_FORM)) return;
    refuse_as(t, index, t->new_tape, ATTN_ERROR_BAD_STATE, at->name, "not begun");
    refuse_as(t, index, t->spent_tape, ATTN_ERROR_BAD_STATE, at->name, "consumed");
}

typedef struct form {
    int32_t dtype, rank;
    int64_t shape[ATTN_MAX_RANK];
} form;
static form form_of(const attn_tensor *tensor)
{
    form f = {attn_tensor_dtype(tensor), attn_tensor_rank(tensor), {0}};
    for (int32_t i = 0; i < f.rank; i++) f.shape[i] = attn_tensor_extent(tensor, i);
    return f;
}

static void refuse_form(calls *t, int index, form f, const int64_t *strides, attn_status status, const char *word, const char *how)
{
    refuse_as(t, index, calls_over(t, f.dtype, f.rank, f.shape, strides, t->spare), status, word, how);
}

static void check_types(calls *t, int index, form f)
{
    const argument *at = &t->at[index];
    static const int32_t types[5] = {ATTN_FLOAT32, ATTN_FLOAT64, ATTN_INT32, ATTN_INT64, ATTN_UINT8};
    for (int i = 0; i < 5; i++) {
        int whole = types[i] == ATTN_INT32 || types[i] == ATTN_INT64;
        if (types[i] == f.dtype || (at->flags & INTEGERS ? whole : (at->flags & LEADS) && i < 2)) continue;
        form other = f;
        other.dtype = types[i];
        refuse_form(t, index, other, NULL, ATTN_ERROR_DTYPE, at->name, attn__dtype_name(types[i]));
    }
}

static void check_extents(calls *t, int index, form f)
{
    const argument *at = &t->at[index];
    const char *word = at->flags & LEADS ? NULL : at->name;
    int64_t strides[ATTN_MAX_RANK], stride = STRIDES;
    if (f.rank == 0) return;
    int32_t last = f.rank - 1;
    form other = f;
    other.shape[last]++;
    if (!(at->flags & ANY_WIDTH)) refuse_form(t, index, other, NULL, ATTN_ERROR_SHAPE, word, "a column wider");
    other = f;
    other.shape[0]++;
    if (f.rank > 1 && !(at->flags & ANY_ROWS)) refuse_form(t, index, other, NULL, ATTN_ERROR_SHAPE, word, "a row longer");
    for (int32_t i = last; i >= 0; i--) {
        strides[i] = stride;
        stride *= f.shape[i];
    }
    if (f.shape[last] > 1 && !(at->flags & INTEGERS))
        refuse_form(t, index, f, strides, ATTN_ERROR_SHAPE, at->name, "with gaps on its last axis");
    if (at->flags & IS_MATRIX) refuse_form(t, index, (form){f.dtype, 1, {f.shape[1]}}, NULL, ATTN_ERROR_SHAPE, at->name, "of rank 1");
    if (at->flags & IS_MATRIX)
        refuse_form(t, index, (form){f.dtype, 3, {1, f.shape[0], f.shape[1]}}, NULL, ATTN_ERROR_SHAPE, at->name, "of rank 3");
    if (at->flags & IS_VECTOR) refuse_form(t, index, (form){f.dtype, 2, {1, f.shape[0]}}, NULL, ATTN_ERROR_SHAPE, at->name, "of rank 2");
    if (at->flags & IS_HEADS)
        refuse_form(t, index, (form){f.dtype, 2, {f.shape[0], f.shape[1] * f.shape[2]}}, NULL, ATTN_ERROR_SHAPE, at->name, "of rank 2");
}

/* an output over each input: from its first element, and from its last */
static void check_overlaps(calls *t, int index, form f)
{
    for (int i = 0; i < t->count; i++) {
        const attn_tensor *input = t->at[i].valid.p;
        char how[64];
        if (t->at[i].kind != TENSOR || input == NULL) continue;
        int64_t elements = 1;
        for (int32_t axis = 0; axis < attn_tensor_rank(input); axis++) elements *= attn_tensor_extent(input, axis);
        char *data = (char *)(uintptr_t)attn_tensor_data_const(input);
        char *last = data + elements * attn__dtype_bytes(attn_tensor_dtype(input)) - attn__dtype_bytes(f.dtype);
        snprintf(how, sizeof how, "over %s", t->at[i].name);
        refuse_as(t, index, calls_over(t, f.dtype, f.rank, f.shape, NULL, data), ATTN_ERROR_INVALID_ARGUMENT, t->at[index].name, how);
        snprintf(how, sizeof how, "over the end of %s", t->at[i].name);
        refuse_as(t, index, calls_over(t, f.dtype, f.rank, f.shape, NULL, last), ATTN_ERROR_INVALID_ARGUMENT, t->at[index].name, how);
    }
}

/* struct_size too small, too large with a tail that is not zero, and with one that is */
static void check_struct(calls *t, int index)
{
    const argument *at = &t->at[index];
    const uint64_t bad[6] = {0, 7, 8, at->smallest - 1, LARGEST + 1, UINT64_MAX};
    char how[64];
    memset(t->broken, 0, BROKEN);
    memcpy(t->broken, at->valid.p, (size_t)at->size);
    for (int i = 0; i < 6; i++) {
        memcpy(t->broken, &bad[i], sizeof bad[i]);
        snprintf(how, sizeof how, "of %llu bytes", (unsigned long long)bad[i]);
        refuse_as(t, index, t->broken, ATTN_ERROR_INVALID_ARGUMENT, at->name, how);
    }
    const uint64_t larger = at->size + 24;
    memcpy(t->broken, &larger, sizeof larger);
    accept_pointer(t, index, t->broken);
    if (at->kind == REPORT) return;
    t->broken[at->size + 9] = 1;
    refuse_as(t, index, t->broken, ATTN_ERROR_INVALID_ARGUMENT, at->name, "with a field that nobody knows");
}

void check_row(calls *t)
{
    accept_row(t);
    if (!t->started) return; /* nothing can be learnt from it */
    for (int i = 0; i < t->count; i++) {
        const argument *at = &t->at[i];
        if (at->kind <= OUTPUT_KIND) check_handle(t, i);
        if ((at->kind == TENSOR || at->kind == OUTPUT_KIND) && at->valid.p != NULL && !(at->flags & ANY_FORM)) {
            form f = form_of(at->valid.p);
            check_types(t, i, f);
            check_extents(t, i, f);
            if (at->kind == OUTPUT_KIND) check_overlaps(t, i, f);
        }
        if (at->kind == POINTER || at->kind == MADE || at->kind == REPORT) {
            if (at->flags & NULLABLE)
                accept_pointer(t, i, NULL);
            else
                refuse_as(t, i, NULL, ATTN_ERROR_INVALID_ARGUMENT, at->name, "NULL");
        }
        if (at->kind == OPTIONS || at->kind == REPORT) check_struct(t, i);
    }
}

attn_layout *calls_layout(calls *t, int64_t count, const attn_segment *segments)
{
    attn_layout *layout = NULL;
    OK(t->ctx, attn_layout_create(t->ctx, count, &layout));
    OK(t->ctx, attn_layout_set(t->ctx, layout, count, segments));
    return layout;
}

void wrong_layout(calls *t, int index, int64_t count, const attn_segment *segments, attn_status status, const char *word)
{
    attn_layout *layout = calls_layout(t, count, segments);
    wrong_pointer(t, index, layout, status, word);
    attn_layout_free(layout);
}

void wrong_layout_handles(calls *t, int index)
{
    wrong_pointer(t, index, t->live[MASK], ATTN_ERROR_INVALID_ARGUMENT, t->at[index].name);
    wrong_pointer(t, index, t->freed[LAYOUT], ATTN_ERROR_INVALID_ARGUMENT, t->at[index].name);
}

void check_free(calls *t, int kind, void (*release)(void *))
{
    release(NULL);
    release(t->freed[kind]);
    for (int i = 0; i < HANDLE_KINDS; i++)
        if (i != kind) release(t->live[i]);
    t->rows++;
}

void check_init(attn_status (*init)(void *options, uint64_t size), uint64_t size)
{
    unsigned char at[LARGEST + 8], before[LARGEST + 8];
    const uint64_t bad[4] = {0, 7, LARGEST + 1, UINT64_MAX}, good[5] = {8, size - 1, size, size + 24, LARGEST};
    uint64_t written;
    assert_int_equal(init(NULL, size), ATTN_ERROR_INVALID_ARGUMENT);
    memset(at, PATTERN, sizeof at);
    memcpy(before, at, sizeof at);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(init(at, bad[i]), ATTN_ERROR_INVALID_ARGUMENT);
        assert_memory_equal(at, before, sizeof at);
    }
    for (int i = 0; i < 5; i++) {
        memset(at, PATTERN, sizeof at);
        assert_int_equal(init(at, good[i]), ATTN_OK);
        memcpy(&written, at, sizeof written);
        assert_true(written == good[i]);
        for (uint64_t byte = size; byte < good[i]; byte++) assert_true(at[byte] == 0);
        assert_memory_equal(at + good[i], before + good[i], sizeof at - good[i]);
    }
}
