#include <stdio.h>
#include <string.h>
#include "approximate.h"
#include "message.h"
#include "nearest.h"

/* Which of the two a kind can be. */
enum { EITHER, CAUSAL_ONLY, NEVER_CAUSAL };

static const struct {
    const char *name;
    kind kind;
    int when;
    int64_t sizes[4]; /* those of the report without --variants; 0 ends them */
    int64_t most;     /* 0: it has no size */
} kinds[] = {
    {"window", WINDOW, EITHER, {16, 64, 256, 1024}, 1 << 30},
    {"longformer", LONGFORMER, EITHER, {64, 256, 0, 0}, 1 << 30},
    {"bigbird", BIGBIRD, EITHER, {64, 0, 0, 0}, 1 << 30},
    {"strided", STRIDED, CAUSAL_ONLY, {ATTN_DERIVED, 0, 0, 0}, 1 << 30},
    {"fixed", FIXED, CAUSAL_ONLY, {ATTN_DERIVED, 0, 0, 0}, 1 << 30},
    {"logarithmic", LOGARITHMIC, EITHER, {ATTN_DERIVED, 0, 0, 0}, 0},
    {"linear", LINEAR, EITHER, {ATTN_DERIVED, 0, 0, 0}, 0},
    {"performer", PERFORMER, EITHER, {32, 128, 512, 0}, 1 << 16},
    {"linformer", LINFORMER, NEVER_CAUSAL, {16, 64, 256, 0}, 1 << 30},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static int add(variants *out, int k, int64_t size)
{
    variant *v = &out->at[out->count];
    for (int i = 0; i < out->count; i++)
        if (out->at[i].kind == kinds[k].kind && out->at[i].size == size) return 0;
    if (out->count == MOST_VARIANTS) return fail(EXIT_INPUT, "--variants: got more than %d variants", MOST_VARIANTS - 1);
    *v = (variant){.kind = kinds[k].kind, .size = size};
    if (size == ATTN_DERIVED)
        snprintf(v->name, sizeof v->name, "%s", kinds[k].name);
    else
        snprintf(v->name, sizeof v->name, "%s-%lld", kinds[k].name, (long long)size);
    out->count++;
    return 0;
}

/* the report's own sizes, without those that would only be exact attention again */
static int add_sizes(variants *out, int k, int64_t keys)
{
    int failed = 0;
    for (int i = 0; failed == 0 && i < 4 && kinds[k].sizes[i] != 0; i++)
        if (kinds[k].sizes[i] < keys || kinds[k].kind == PERFORMER) failed = add(out, k, kinds[k].sizes[i]);
    return failed;
}

static int unknown(const char *word)
{
    char names[256] = "";
    int best = 0;
    for (int k = 0; k < KINDS; k++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", k > 0 ? ", " : "", kinds[k].name);
        if (word_distance(kinds[k].name, word) < word_distance(kinds[best].name, word)) best = k;
    }
    if (word_distance(kinds[best].name, word) <= 2)
        return fail(EXIT_INPUT, "--variants: got \"%.40s\", did you mean %s?", word, kinds[best].name);
    return fail(EXIT_INPUT, "--variants: got \"%.40s\", expected some of %s, alone or with a size as in window-64", word, names);
}

/* one word of the list: "window" or "window-64" */
static int add_word(variants *out, const char *word, int64_t keys)
{
    const char *dash = strchr(word, '-');
    size_t length = dash != NULL ? (size_t)(dash - word) : strlen(word);
    int64_t size = 0;
    int k = 0;
    while (k < KINDS && (strlen(kinds[k].name) != length || strncmp(kinds[k].name, word, length) != 0)) k++;
    if (k == KINDS) return unknown(word);
    if (kinds[k].when == CAUSAL_ONLY && !out->causal)
        return fail(EXIT_INPUT, "--variants: %s looks back only: give --causal with it", kinds[k].name);
    if (kinds[k].when == NEVER_CAUSAL && out->causal)
        return fail(EXIT_INPUT, "--variants: %s is never causal: each of its keys mixes later ones", kinds[k].name);
    if (dash == NULL) {
        int before = out->count, failed = add_sizes(out, k, keys);
        if (failed == 0 && out->count == before) failed = add(out, k, keys); /* a short text: the largest size that is one */
        return failed;
    }
    int64_t most = kinds[k].kind == LINFORMER && keys < kinds[k].most ? keys : kinds[k].most;
    if (most == 0) return fail(EXIT_INPUT, "--variants: got \"%.40s\", but %s has no size", word, kinds[k].name);
    if (sscanf(dash + 1, "%9lld", (long long *)&size) != 1 || strspn(dash + 1, "0123456789") != strlen(dash + 1) || strlen(dash + 1) > 9 ||
        size < 1 || size > most)
        return fail(EXIT_INPUT, "--variants: got \"%.40s\", expected a size from 1 to %lld after the dash", word, (long long)most);
    return add(out, k, size);
}

int choose_variants(const char *list, int causal, int64_t keys, variants *out)
{
    out->count = 1;
    out->causal = causal;
    out->at[0] = (variant){.kind = EXACT, .size = ATTN_DERIVED, .name = "exact"};
    int failed = 0;
    for (int k = 0; list == NULL && failed == 0 && k < KINDS; k++)
        if (kinds[k].when == EITHER || (kinds[k].when == CAUSAL_ONLY) == causal) failed = add_sizes(out, k, keys);
    while (list != NULL && failed == 0) {
        char word[64];
        size_t length = strcspn(list, ",");
        snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1), list);
        failed = add_word(out, word, keys);
        if (list[length] == 0) break;
        list += length + 1;
    }
    return failed;
}
