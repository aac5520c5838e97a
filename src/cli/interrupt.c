#include "interrupt.h"
#include <signal.h>
#include <string.h>

static const int watched_signals[] = {SIGINT, SIGTERM, SIGHUP};
enum { WATCHED = sizeof watched_signals / sizeof *watched_signals };

static volatile sig_atomic_t seen;
static attn_context *volatile running;
static volatile sig_atomic_t ours[WATCHED];

static void set_all(void (*handler)(int))
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < WATCHED; i++)
        if (ours[i]) sigaction(watched_signals[i], &action, NULL);
}

static void first(int number)
{
    (void)number;
    seen = 1;
    set_all(SIG_DFL);
    if (running != NULL) attn_context_cancel(running);
}

void interrupt_watch(attn_context *ctx)
{
    running = ctx;
    for (int i = 0; i < WATCHED; i++) {
        struct sigaction before;
        /* a shell starts background jobs with SIGINT ignored: it is taken all the same, only nohup's SIGHUP is not */
        ours[i] = sigaction(watched_signals[i], NULL, &before) == 0 && (watched_signals[i] != SIGHUP || before.sa_handler != SIG_IGN);
    }
    set_all(first);
}

int interrupted(void)
{
    return seen != 0;
}

void interrupt_end(void)
{
    set_all(SIG_DFL);
    running = NULL;
}
