#include <math.h>
#include <stdio.h>
#include "commands.h"
#include "interrupt.h"
#include "message.h"
#include "model_file.h"
#include "terminal.h"
#include "train_run.h"

enum { REPORTS = 100, SKIPPED_IN_A_ROW = 10 };

/* What the loop knows of time. Speed is over the last twenty steps or so. */
typedef struct pace {
    double tokens, seconds, steps, evaluation_seconds;
} pace;

static void note_step(pace *p, int64_t tokens, double seconds)
{
    const double keep = 0.95;
    p->tokens = keep * p->tokens + (double)tokens;
    p->seconds = keep * p->seconds + seconds;
    p->steps = keep * p->steps + 1;
}

static double time_left(const train_run *run, const pace *p, int64_t step)
{
    const train_settings *s = &run->settings;
    int64_t evaluations = s->steps / s->eval_every - step / s->eval_every + (s->steps % s->eval_every != 0 && step < s->steps);
    return p->seconds / p->steps * (double)(s->steps - step) + p->evaluation_seconds * (double)evaluations;
}

/* About 20 evaluations, fewer when they would take more than a fifth of the time. */
static int64_t usual_evaluation(const train_run *run)
{
    const train_settings *s = &run->settings;
    double every = fmax((double)s->steps / 20, 5 * run->evaluation_tokens / run->step_tokens);
    double unit = every < 20 ? 1 : every < 200 ? 10 : every < 2000 ? 50 : 500;
    every = unit * ceil(every / unit - 1e-9);
    return every < (double)s->steps ? (every > 1 ? (int64_t)every : 1) : s->steps;
}

static int evaluate(train_run *run, pace *p, evaluation *out)
{
    double begin = seconds_now();
    int status = train_evaluate(run, out);
    if (status == 0)
        p->evaluation_seconds = seconds_now() - begin;
    else
        *out = (evaluation){NAN, NAN, NAN};
    return status;
}

static int is_reported(const train_settings *s, int64_t step)
{
    int64_t every = s->steps > REPORTS ? s->steps / REPORTS : 1;
    return step == 1 || step % every == 0 || step % s->eval_every == 0 || step == s->steps;
}

static log_entry entry_of(const attn_trainer_report *r, const evaluation *e, const pace *p)
{
    return (log_entry){r->step, r->loss, e->loss, r->rate, r->gradient_norm, p->tokens / p->seconds, e->word_error, e->token_error};
}

/* what follows a step: evaluation, log, line, files. 0, or the exit status: EXIT_INTERRUPTED when the evaluation was. */
static int after_step(train_run *run, const attn_trainer_report *r, pace *p)
{
    const train_settings *s = &run->settings;
    int status = 0;
    evaluation e = {NAN, NAN, NAN};
    int evaluated = r->step % s->eval_every == 0 || r->step == s->steps, reported = is_reported(s, r->step) || interrupted();
    if (evaluated && !interrupted()) status = evaluate(run, p, &e);
    if (status != 0 && status != EXIT_INTERRUPTED) return status;
    const log_entry entry = entry_of(r, &e, p);
    if (reported) train_report(run, &entry);
    const progress now = {r->step, s->steps, r->loss, e.loss, e.word_error, p->tokens / p->seconds, time_left(run, p, r->step)};
    int reader = terminal_progress(&now, reported);
    if (status == 0 && !reader) status = EXIT_INTERRUPTED; /* nobody listens any more: as if interrupted */
    if (evaluated && status == 0 && !interrupted()) train_save(run);
    return status;
}

/* the interrupted run's last step belongs into the log as well */
static void close_log(train_run *run, const attn_trainer_report *r, const pace *p)
{
    int64_t last = run->log.count > 0 ? run->log.at[run->log.count - 1].step : 0;
    const log_entry entry = entry_of(r, &(evaluation){NAN, NAN, NAN}, p);
    if (r->step > last) train_report(run, &entry);
}

/* no gain for too long: --patience */
static int is_out_of_patience(const train_run *run)
{
    int64_t since = 0;
    return run->settings.patience > 0 && train_best(run, &since) != NULL && since >= run->settings.patience;
}

/* 0, or the exit status; everything is saved unless a call of the library has failed */
static int train_loop(train_run *run)
{
    pace p = {0, 0, 0, 0};
    int skipped = 0, after = 0;
    attn_trainer_report r, done; /* of the step under way, of the last one that happened */
    attn_status status = attn_trainer_report_init(&r, sizeof r);
    for (done = r; status == ATTN_OK && after == 0 && !interrupted() && !is_out_of_patience(run) &&
                   attn_trainer_steps(run->trainer) < run->settings.steps;) {
        double begin = seconds_now();
        status = attn_trainer_step(run->ctx, run->trainer, NULL, &r);
        if (status != ATTN_OK) break;
        done = r;
        note_step(&p, r.tokens, seconds_now() - begin);
        skipped = r.skipped ? skipped + 1 : 0;
        if (skipped == SKIPPED_IN_A_ROW)
            return fail(EXIT_MACHINE,
                        "the gradient was not finite in %d steps in a row, up to step %lld; a smaller --lr or --clip may help", skipped,
                        (long long)r.step);
        after = after_step(run, &r, &p);
    }
    if (status != ATTN_OK && status != ATTN_ERROR_CANCELLED) return fail_call(run->ctx, status, NULL);
    if (after != 0 && after != EXIT_INTERRUPTED) return after;
    int stopped = status == ATTN_ERROR_CANCELLED || after == EXIT_INTERRUPTED || interrupted();
    close_log(run, &done, &p);
    if (stopped || done.step == 0) train_save(run); /* done.step 0: a finished run was resumed */
    return stopped ? EXIT_INTERRUPTED : 0;
}

static void conclude(const train_run *run, int status, double seconds)
{
    char a[32], b[32];
    const train_settings *s = &run->settings;
    int64_t done = attn_trainer_steps(run->trainer);
    terminal_close_line();
    if (status == EXIT_INTERRUPTED) {
        printf("stopped   after step %s of %s; go on with: attn train --out %s --resume\n", readable_count(done, a),
               readable_count(s->steps, b), s->out);
        return;
    }
    run->task->conclude(run, readable_time(seconds, b));
}

static int train_settled(train_run *run)
{
    double begin = seconds_now();
    int status = train_open(run);
    if (status == 0) status = train_open_folder(run);
    if (status != 0) return status;
    if (run->settings.eval_every == BY_ITSELF) run->settings.eval_every = usual_evaluation(run);
    train_introduce(run);
    interrupt_watch(run->ctx);
    status = train_loop(run);
    interrupt_end();
    if (run->save_failed) return EXIT_MACHINE; /* a line has said so */
    if (status == 0 || status == EXIT_INTERRUPTED) conclude(run, status, seconds_now() - begin);
    return status;
}

static int run_train(int argc, char **argv)
{
    train_run run = {.log = {0}};
    attn_context *ctx = NULL; /* one thread is enough for settings; the run's own context needs them */
    int status = open_context(1, 0, &ctx);
    if (status == 0) status = read_settings(ctx, argc, argv, &run.settings);
    attn_context_free(ctx);
    if (status == 0) status = open_context(run.settings.threads, run.settings.seed, &run.ctx);
    if (status == 0) status = train_settled(&run);
    train_close(&run);
    return status;
}

const command train_command = {
    "train",
    "train a Transformer on a text, or on pairs of sequences",
    "  attn train --data FILE --out DIR [flags]\n  attn train --task seq2seq --data PAIRS --valid PAIRS --out DIR [flags]\n  attn train --out DIR --resume [--steps N]\n",
    "Reads a text, makes a vocabulary of its characters (or takes its bytes as they are), and trains a decoder to\n"
    "predict the next one. The first 90 % of the text is for training; the loss over the rest, the validation loss, says\n"
    "how well the model does on text it has not seen. DIR gets the model (model.safetensors), all that is needed to go\n"
    "on (checkpoint.safetensors), the numbers (log.jsonl) and a chart (loss.svg), anew at every evaluation. Ctrl-C saves\n"
    "and exits with status 130; --resume goes on from there, bit for bit as if nothing had happened.\n"
    "\n"
    "With --task seq2seq the files have a source, a tab and a target on every line (UTF-8; what follows a second tab is\n"
    "not read, empty lines are left out and counted), and an encoder and a decoder learn to turn one into the other. At\n"
    "every evaluation the validation pairs are decoded, and the model with the fewest wrong targets is kept; error.svg\n"
    "shows how many are wrong.\n",
    "  attn train --data input.txt --out run\n"
    "  attn train --data input.txt --out run --layers 6 --heads 6 --width 384 --context 256 --dropout 0.2 --steps 5000\n"
    "  attn train --out run --resume --steps 10000\n"
    "  attn train --task seq2seq --data train.tsv --valid dev.tsv --source characters --target words --out run\n",
    &train_flags,
    run_train};
