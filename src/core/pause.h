#ifndef ATTN_CORE_PAUSE_H
#define ATTN_CORE_PAUSE_H
#include <sched.h>
#include <time.h>

/* Between two looks at what another thread is to change. Soon asleep, and longer each time: whoever computes in there needs a processor, and
   so do many who wait. */
static inline void attn__pause(int tries)
{
    if (tries < 16) {
        sched_yield();
        return;
    }
    long microseconds = tries < 24 ? 50L << (tries - 16) : 10000;
    nanosleep(&(struct timespec){0, microseconds * 1000}, NULL);
}
#endif
