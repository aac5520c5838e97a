#include "forks.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>
#include "pause.h"

/* Threads count themselves in lanes, each on a line of the cache to itself, so that those who compute at the same time don't take the line from
   each other at every product. */
enum { LANES = 32, LINE = 64 };

static struct {
    struct {
        _Alignas(LINE) _Atomic int32_t holders;
    } lanes[LANES];
    _Atomic int32_t forking; /* forks under way */
    _Atomic int32_t watched, pid, next_lane;
} forks;

static _Thread_local int32_t own_lane = -1, own_holds;

/* of other threads than this one */
static int32_t holders(void)
{
    int32_t sum = 0;
    for (int i = 0; i < LANES; i++) sum += atomic_load(&forks.lanes[i].holders);
    return sum - own_holds;
}

/* in a new process, whose only thread this is */
static void begin_process(void)
{
    for (int i = 0; i < LANES; i++) atomic_store(&forks.lanes[i].holders, i == own_lane ? own_holds : 0);
    atomic_store(&forks.forking, 0);
    atomic_store(&forks.pid, (int32_t)getpid());
}

/* a child that no handler has seen begin (_Fork, clone) */
static void look_at_process(void)
{
    if (atomic_load(&forks.pid) != (int32_t)getpid()) begin_process();
}

static void before_fork(void)
{
    look_at_process();
    atomic_fetch_add(&forks.forking, 1);
    for (int tries = 1; holders() > 0; tries++) attn__pause(tries);
}

static void after_fork(void)
{
    atomic_fetch_sub(&forks.forking, 1);
}

/* The handlers go when the library does. Where the system refuses them, the next call tries again; twice does no harm. */
static void watch(void)
{
    atomic_store(&forks.pid, (int32_t)getpid());
    if (pthread_atfork(before_fork, after_fork, begin_process) == 0) atomic_store(&forks.watched, 1);
}

void attn__forks_hold(void)
{
    if (!atomic_load_explicit(&forks.watched, memory_order_relaxed)) watch();
    if (own_lane < 0) own_lane = atomic_fetch_add_explicit(&forks.next_lane, 1, memory_order_relaxed) & (LANES - 1);
    for (int tries = 1;; tries++) {
        own_holds++;
        atomic_fetch_add(&forks.lanes[own_lane].holders, 1);
        if (own_holds > 1 || !atomic_load(&forks.forking)) return;
        attn__forks_release();
        look_at_process();
        attn__pause(tries);
    }
}

void attn__forks_release(void)
{
    atomic_fetch_sub_explicit(&forks.lanes[own_lane].holders, 1, memory_order_release);
    own_holds--;
}
