#include "support/golden.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>

void golden_open(golden *g, const char *name, int32_t backend, double within)
{
    char path[1024];
    memset(g, 0, sizeof *g);
    g->ctx = model_context(backend, 2, 0);
    g->dtype = backend == ATTN_BACKEND_BLAS ? ATTN_FLOAT32 : ATTN_FLOAT64;
    g->within = within;
    snprintf(path, sizeof path, "%s/data/%s.safetensors", ATTN_TEST_DATA, name);
    OK(g->ctx, attn__file_open(g->ctx, path, &g->file));
}

void golden_close(golden *g)
{
    attn__file_close(g->file);
    attn_context_free(g->ctx);
}

static const attn__file_entry *entry_of(const golden *g, const char *name, int64_t *index)
{
    char full[256];
    snprintf(full, sizeof full, "%s%s", g->part, name);
    *index = attn__file_find(g->file, full);
    if (*index < 0) fail_msg("no golden value \"%s\"", full);
    return &g->file->entries[*index];
}

static void *bytes_of(const golden *g, const char *name, const attn__file_entry **entry)
{
    int64_t index;
    *entry = entry_of(g, name, &index);
    int64_t bytes = (*entry)->end - (*entry)->begin;
    void *data = malloc((size_t)bytes + 1);
    assert_non_null(data);
    OK(g->ctx, attn__file_read(g->ctx, g->file, index, data, bytes));
    return data;
}

static double number_at(const attn__file_entry *e, const void *data, int64_t i)
{
    switch (e->dtype) {
    case ATTN_FLOAT32: return (double)((const float *)data)[i];
    case ATTN_FLOAT64: return ((const double *)data)[i];
    case ATTN_INT32: return ((const int32_t *)data)[i];
    default: return ((const uint8_t *)data)[i];
    }
}

static int64_t count_of(const attn__file_entry *e)
{
    int64_t n = 1;
    for (int32_t i = 0; i < e->rank; i++) n *= e->shape[i];
    return n;
}

attn_tensor *golden_tensor(const golden *g, const char *name)
{
    const attn__file_entry *e;
    void *data = bytes_of(g, name, &e);
    attn_tensor *made = NULL;
    int floats = e->dtype == ATTN_FLOAT32 || e->dtype == ATTN_FLOAT64;
    OK(g->ctx, attn_tensor_create(g->ctx, floats ? g->dtype : e->dtype, e->rank, e->shape, &made));
    if (floats)
        for (int64_t i = 0; i < count_of(e); i++) model_set(made, i, number_at(e, data, i));
    else
        memcpy(attn_tensor_data(made), data, (size_t)(e->end - e->begin));
    free(data);
    return made;
}

attn_tensor *golden_like(const golden *g, const attn_tensor *tensor)
{
    int64_t shape[ATTN_MAX_RANK];
    attn_tensor *made = NULL;
    for (int32_t i = 0; i < attn_tensor_rank(tensor); i++) shape[i] = attn_tensor_extent(tensor, i);
    OK(g->ctx, attn_tensor_create(g->ctx, g->dtype, attn_tensor_rank(tensor), shape, &made));
    return made;
}

double golden_number(const golden *g, const char *name, int64_t index)
{
    const attn__file_entry *e;
    void *data = bytes_of(g, name, &e);
    assert_true(index < count_of(e));
    double value = number_at(e, data, index);
    free(data);
    return value;
}

int64_t golden_lengths(const golden *g, const char *name, int64_t lengths[16])
{
    const attn__file_entry *e;
    void *data = bytes_of(g, name, &e);
    int64_t count = count_of(e);
    assert_true(count <= 16);
    for (int64_t i = 0; i < count; i++) lengths[i] = (int64_t)number_at(e, data, i);
    free(data);
    return count;
}

attn_layout *golden_layout(const golden *g, const char *name)
{
    int64_t lengths[16], count = golden_lengths(g, name, lengths);
    attn_layout *made = NULL;
    OK(g->ctx, attn_layout_create(g->ctx, count, &made));
    OK(g->ctx, attn_layout_set_lengths(g->ctx, made, count, lengths, 0));
    return made;
}

void golden_expect(const golden *g, const char *name, const attn_tensor *got, double least)
{
    const attn__file_entry *e;
    void *data = bytes_of(g, name, &e);
    double largest = least;
    assert_int_equal(model_elements(got), count_of(e));
    for (int64_t i = 0; i < count_of(e); i++) largest = fmax(largest, fabs(number_at(e, data, i)));
    for (int64_t i = 0; i < count_of(e); i++) {
        double want = number_at(e, data, i), have = model_get(got, i);
        if (!(fabs(have - want) <= g->within * largest))
            fail_msg("%s%s [%lld]: got %.17g, expected %.17g, largest %g", g->part, name, (long long)i, have, want, largest);
    }
    free(data);
}

void golden_load(const golden *g, attn_parameters *parameters)
{
    char name[256];
    for (int64_t i = 0; i < attn_parameters_count(parameters); i++) {
        attn_tensor *to = attn_parameters_tensor(parameters, i);
        snprintf(name, sizeof name, "weight.%s", attn_parameters_name(parameters, i));
        attn_tensor *from = golden_tensor(g, name);
        assert_int_equal(attn_tensor_rank(from), attn_tensor_rank(to));
        for (int32_t a = 0; a < attn_tensor_rank(to); a++) assert_int_equal(attn_tensor_extent(from, a), attn_tensor_extent(to, a));
        for (int64_t e = 0; e < model_elements(to); e++) model_set(to, e, model_get(from, e));
        attn_tensor_free(from);
    }
}

void golden_expect_gradients(const golden *g, attn_parameters *parameters, attn_gradients *gradients)
{
    char name[256];
    double largest = 0;
    attn_tensor *flat = attn_gradients_flat(gradients);
    for (int64_t e = 0; e < model_elements(flat); e++) largest = fmax(largest, fabs(model_get(flat, e)));
    assert_true(largest > 0 && isfinite(largest));
    for (int64_t i = 0; i < attn_parameters_count(parameters); i++) {
        snprintf(name, sizeof name, "gradient.%s", attn_parameters_name(parameters, i));
        golden_expect(g, name, attn_gradients_tensor(gradients, i), largest);
    }
}
