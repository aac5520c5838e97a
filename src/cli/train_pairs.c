/* Learning to turn sources into targets. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "errors.h"
#include "files.h"
#include "message.h"
#include "model_file.h"
#include "score.h"
#include "terminal.h"
#include "train_run.h"
#include "translate.h"

enum { LEAST_CONTEXT = 8, DECODED_AT_ONCE = 64 };

static int32_t symbols_of(int32_t kind)
{
    return kind == TOKENS_WORDS ? ATTN_SYMBOLS_WORDS : kind == TOKENS_BYTES ? ATTN_SYMBOLS_BYTES : ATTN_SYMBOLS_CHARACTERS;
}

/* of the pairs, or those the checkpoint was made with */
static int open_vocabularies(train_run *run)
{
    const train_settings *s = &run->settings;
    char path[PATH_ROOM], *source = NULL, *target = NULL;
    if (!s->resume)
        return make_vocabularies(run->ctx, &run->pairs, symbols_of(s->source), symbols_of(s->target), s->threshold, &run->vocabularies);
    int failed = path_in(s->out, CHECKPOINT_FILE, path);
    if (failed == 0) failed = read_metadata(run->ctx, path, SOURCE_VOCABULARY_KEY, &source);
    if (failed == 0) failed = read_metadata(run->ctx, path, TARGET_VOCABULARY_KEY, &target);
    if (failed == 0) return read_vocabularies(run->ctx, path, source, target, &run->vocabularies);
    free(source);
    free(target);
    return failed;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int encode_all(train_run *run)
{
    const pair_vocabularies *v = &run->vocabularies;
    int status = encode_pairs(run->ctx, v->source, &run->pairs, 0, &run->source);
    if (status == 0) status = encode_pairs(run->ctx, v->target, &run->pairs, 1, &run->target);
    if (status == 0) status = encode_pairs(run->ctx, v->source, &run->valid_pairs, 0, &run->valid_source);
    if (status == 0) status = encode_pairs(run->ctx, v->target, &run->valid_pairs, 1, &run->valid_target);
    return status;
}

static int read_data(train_run *run)
{
    int status = read_pairs(run->settings.data, &run->pairs);
    if (status == 0) status = read_pairs(run->settings.valid, &run->valid_pairs);
    if (status == 0) status = open_vocabularies(run);
    if (status == 0) status = encode_all(run);
    if (status != 0) return status;
    int64_t longest = larger(run->source.longest, run->target.longest);
    longest = larger(longest, larger(run->valid_source.longest, run->valid_target.longest));
    run->context = larger(2 * longest, LEAST_CONTEXT);
    run->source_vocabulary = attn_vocabulary_size(run->vocabularies.source) + 1;
    run->target_vocabulary = attn_vocabulary_size(run->vocabularies.target) + 1;
    return 0;
}

static int compare(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x < *y) - (*x > *y);
}

/* the rows of the largest batch there can be on a side, each pair with one more */
static int64_t most_rows(const pair_ids *ids, const train_settings *s)
{
    int64_t *lengths = malloc((size_t)ids->count * sizeof *lengths), sum = 0;
    if (lengths == NULL) return -1;
    for (int64_t p = 0; p < ids->count; p++) lengths[p] = length_of(ids, p) + 1;
    qsort(lengths, (size_t)ids->count, sizeof *lengths, compare);
    for (int64_t p = 0; p < ids->count && p < s->batch; p++) sum += lengths[p];
    if (s->batch_tokens > 0 && sum > s->batch_tokens) sum = larger(s->batch_tokens, lengths[0]);
    free(lengths);
    return sum;
}

static attn_status make_sets(train_run *run, const pair_ids *source, const pair_ids *target)
{
    const train_settings *s = &run->settings;
    attn_pairs_options o;
    attn_status status = pair_options(&run->vocabularies, &o);
    o.batch = s->batch;
    o.batch_tokens = s->batch_tokens;
    o.bucket = s->bucket;
    o.seed = s->seed;
    if (status == ATTN_OK)
        status = attn_dataset_pairs(run->ctx, source->count, source->tokens, source->ends, target->tokens, target->ends, &o, &run->data);
    o.order = ATTN_ORDER_SEQUENTIAL;
    o.batch = DECODED_AT_ONCE;
    o.batch_tokens = o.bucket = 0;
    const pair_ids *vs = &run->valid_source, *vt = &run->valid_target;
    if (status == ATTN_OK) status = attn_dataset_pairs(run->ctx, vs->count, vs->tokens, vs->ends, vt->tokens, vt->ends, &o, &run->windows);
    return status;
}

static int64_t all_tokens(const pair_ids *ids)
{
    return ids->ends[ids->count - 1];
}

static int check_all_lengths(const train_run *run)
{
    int status = check_lengths(&run->pairs, 0, &run->source, run->context);
    if (status == 0) status = check_lengths(&run->pairs, 1, &run->target, run->context);
    if (status == 0) status = check_lengths(&run->valid_pairs, 0, &run->valid_source, run->context);
    if (status == 0) status = check_lengths(&run->valid_pairs, 1, &run->valid_target, run->context);
    return status;
}

static int open_data(train_run *run)
{
    const train_settings *s = &run->settings;
    const pair_ids *source = &run->source, *target = &run->target;
    int status = check_all_lengths(run);
    attn_status made = status == 0 ? make_sets(run, source, target) : ATTN_OK;
    if (made != ATTN_OK) status = fail_call(run->ctx, made, s->data);
    if (status != 0) return status;
    int64_t source_rows = most_rows(source, s), target_rows = most_rows(target, s);
    if (source_rows < 0 || target_rows < 0) return fail(EXIT_MACHINE, "%s: not enough memory", s->data);
    run->rows = larger(source_rows, target_rows);
    run->longest = larger(source->longest, target->longest) + 1;
    run->trained_tokens = all_tokens(source) + all_tokens(target);
    int64_t valid = all_tokens(&run->valid_source) + all_tokens(&run->valid_target);
    run->tokens = run->trained_tokens + valid;
    run->step_tokens = (double)run->trained_tokens * (double)(s->batch * s->accumulate) / (double)source->count;
    run->evaluation_tokens = 3.0 * (double)valid; /* decoded token by token */
    return 0;
}

typedef struct judge {
    const pair_ids *wanted;
    int32_t unknown, reserved;
    int64_t *room;
    error_counts counts;
} judge;

static int take(void *user, int64_t source, int64_t rank, const int32_t *tokens, int64_t count, double score_of)
{
    judge *j = user;
    int64_t first = source > 0 ? j->wanted->ends[source - 1] : 0;
    (void)score_of;
    if (rank == 0) count_errors(&j->counts, tokens, count, j->wanted->tokens + first, j->wanted->ends[source] - first, j->unknown, j->room);
    return 0;
}

static int evaluate(train_run *run, const attn_transformer *model, evaluation *out)
{
    int64_t tokens;
    const translator t = {run->ctx, &model,          1, run->context, run->source_vocabulary - 1, run->target_vocabulary - 1, 1,
                          1,        DECODED_AT_ONCE, 0};
    judge j = {&run->valid_target, attn_vocabulary_unknown(run->vocabularies.target), 0, NULL, {0, 0, 0, 0}};
    attn_status scored = score(run->ctx, model, run->windows, &out->loss, &tokens);
    if (scored == ATTN_ERROR_CANCELLED) return EXIT_INTERRUPTED;
    if (scored != ATTN_OK) return fail_call(run->ctx, scored, NULL);
    j.room = malloc((size_t)(run->valid_target.longest + 1) * sizeof *j.room);
    if (j.room == NULL) return fail(EXIT_MACHINE, "not enough memory for an evaluation");
    int status = translate(&t, &run->valid_source, take, &j);
    free(j.room);
    out->word_error = word_error_rate(&j.counts);
    out->token_error = token_error_rate(&j.counts);
    return status;
}

static void introduce(const train_run *run)
{
    char a[32], b[32], c[32], d[32], e[32];
    const pair_vocabularies *v = &run->vocabularies;
    printf("data      %s: %s pairs, %s kinds of source tokens and %s of target tokens; %s pairs to validate", run->settings.data,
           readable_count(run->pairs.count, a), readable_count(attn_vocabulary_size(v->source), b),
           readable_count(attn_vocabulary_size(v->target), c), readable_count(run->valid_pairs.count, d));
    if (run->pairs.empty + run->valid_pairs.empty > 0)
        printf("; %s empty lines left out", readable_count(run->pairs.empty + run->valid_pairs.empty, e));
    if (run->valid_source.unknown + run->valid_target.unknown > 0)
        printf("; %s tokens to validate on are unknown", readable_count(run->valid_source.unknown + run->valid_target.unknown, e));
    printf("\n");
}

static void conclude(const train_run *run, const char *time)
{
    char a[32], b[32];
    const log_entry *best = train_best(run, NULL);
    printf("done      %s steps, %s", readable_count(attn_trainer_steps(run->trainer), a), time);
    if (best != NULL)
        printf("; kept the model of step %s: word error %.2f %%, token error %.2f %%, validation loss %.4f", readable_count(best->step, b),
               best->word_error, best->token_error, best->valid_loss);
    printf("\ntry       attn decode --model %s --input WORDS --beam 5\n", run->settings.out);
}

const train_task pair_task = {read_data, open_data, evaluate, introduce, conclude, "pairs"};
