#include <math.h>
#include <stdio.h>
#include "commands.h"
#include "interrupt.h"
#include "message.h"
#include "model_file.h"
#include "score.h"
#include "terminal.h"
#include "train_run.h"

enum { REPORTS = 100, SKIPPED_IN_A_ROW = 10 };

/* What the loop knows of time. Speed is over the last twenty steps or so. */
typedef struct pace {
    double tokens, seconds, step_seconds, evaluation_seconds;
} pace;

static void note_step(pace *p, int64_t tokens, double seconds)
{
    const double keep = 0.95;
    p->tokens = keep * p->tokens + (double)tokens;
    p->seconds = keep * p->seconds + seconds;
    p->step_seconds = p->seconds / p->tokens * (double)tokens;
}

static double time_left(const train_run *run, const pace *p, int64_t step)
{
    const train_settings *s = &run->settings;
    int64_t evaluations = s->steps / s->eval_every - step / s->eval_every + (s->steps % s->eval_every != 0 && step < s->steps);
    return p->step_seconds * (double)(s->steps - step) + p->evaluation_seconds * (double)evaluations;
}

/* About 20 evaluations, fewer when they would take more than a fifth of the time: a token costs a third of one in training. */
static int64_t usual_evaluation(const train_run *run)
{
    const train_settings *s = &run->settings;
    double validation = (double)(run->tokens - run->trained_tokens) / 3, step = (double)(s->batch * s->accumulate) * (double)run->context;
    double every = fmax((double)s->steps / 20, 5 * validation / step);
    double unit = every < 20 ? 1 : every < 200 ? 10 : every < 2000 ? 50 : 500;
    every = unit * ceil(every / unit - 1e-9);
    return every < (double)s->steps ? (every > 1 ? (int64_t)every : 1) : s->steps;
}

static attn_status evaluate(train_run *run, pace *p, double *loss)
{
    double begin = seconds_now();
    int64_t tokens;
    attn_status status = score(run->ctx, run->model, run->windows, loss, &tokens);
    if (status == ATTN_OK)
        p->evaluation_seconds = seconds_now() - begin;
    else
        *loss = NAN;
    return status;
}

static int is_reported(const train_settings *s, int64_t step)
{
    int64_t every = s->steps > REPORTS ? s->steps / REPORTS : 1;
    return step == 1 || step % every == 0 || step % s->eval_every == 0 || step == s->steps;
}

/* what follows a step: evaluation, log, line, files. CANCELLED when the evaluation was. */
static attn_status after_step(train_run *run, const attn_trainer_report *r, pace *p)
{
    const train_settings *s = &run->settings;
    attn_status status = ATTN_OK;
    double valid_loss = NAN;
    int evaluated = r->step % s->eval_every == 0 || r->step == s->steps, reported = is_reported(s, r->step) || interrupted();
    if (evaluated && !interrupted()) status = evaluate(run, p, &valid_loss);
    if (reported) train_report(run, &(log_entry){r->step, r->loss, valid_loss, r->rate, r->gradient_norm, p->tokens / p->seconds});
    const progress now = {r->step, s->steps, r->loss, valid_loss, p->tokens / p->seconds, time_left(run, p, r->step)};
    int reader = terminal_progress(&now, reported);
    if (status == ATTN_OK && !reader) status = ATTN_ERROR_CANCELLED; /* nobody listens any more: as if interrupted */
    if (evaluated && status == ATTN_OK && !interrupted()) train_save(run);
    return status;
}

/* the interrupted run's last step belongs into the log as well */
static void close_log(train_run *run, const attn_trainer_report *r, const pace *p)
{
    int64_t last = run->log.count > 0 ? run->log.at[run->log.count - 1].step : 0;
    if (r->step > last) train_report(run, &(log_entry){r->step, r->loss, NAN, r->rate, r->gradient_norm, p->tokens / p->seconds});
}

/* 0, or the exit status; everything is saved unless a call of the library has failed */
static int train_loop(train_run *run)
{
    pace p = {0, 0, 0, 0};
    int skipped = 0;
    attn_trainer_report r, done; /* of the step under way, of the last one that happened */
    attn_status status = attn_trainer_report_init(&r, sizeof r);
    for (done = r; status == ATTN_OK && !interrupted() && attn_trainer_steps(run->trainer) < run->settings.steps;) {
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
        status = after_step(run, &r, &p);
    }
    if (status != ATTN_OK && status != ATTN_ERROR_CANCELLED) return fail_call(run->ctx, status, NULL);
    int stopped = status == ATTN_ERROR_CANCELLED || interrupted();
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
    double valid_loss = NAN;
    for (int64_t i = 0; i < run->log.count; i++)
        if (isfinite(run->log.at[i].valid_loss)) valid_loss = run->log.at[i].valid_loss;
    printf("done      %s steps, %s; validation loss %.4f, perplexity %.2f\n", readable_count(done, a), readable_time(seconds, b),
           valid_loss, exp(valid_loss));
    printf("try       attn generate --model %s --tokens 500\n", s->out);
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
    "train a Transformer on a text",
    "  attn train --data FILE --out DIR [flags]\n  attn train --out DIR --resume [--steps N]\n",
    "Reads a text, makes a vocabulary of its characters (or takes its bytes as they are), and trains a decoder to\n"
    "predict the next one. The first 90 % of the text is for training; the loss over the rest, the validation loss, says\n"
    "how well the model does on text it has not seen. DIR gets the model (model.safetensors), all that is needed to go\n"
    "on (checkpoint.safetensors), the numbers (log.jsonl) and a chart (loss.svg), anew at every evaluation. Ctrl-C saves\n"
    "and exits with status 130; --resume goes on from there, bit for bit as if nothing had happened.\n",
    "  attn train --data input.txt --out run\n"
    "  attn train --data input.txt --out run --layers 6 --heads 6 --width 384 --context 256 --dropout 0.2 --steps 5000\n"
    "  attn train --out run --resume --steps 10000\n",
    &train_flags,
    run_train};
