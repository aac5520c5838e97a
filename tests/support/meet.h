#ifndef TESTS_SUPPORT_MEET_H
#define TESTS_SUPPORT_MEET_H
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Threads that do something in the same moment. Beside other work each meeting can take a turn of the scheduler, so that who meets often looks
   at a clock. */
static _Atomic int64_t meet_arrivals;

/* they go on together once so many have come here since the count was set to 0 */
static inline void meet(int64_t count)
{
    atomic_fetch_add(&meet_arrivals, 1);
    for (int64_t looks = 0; atomic_load(&meet_arrivals) < count; looks++)
        if (looks > 1000) sched_yield();
}

static inline double meet_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The calling thread on a processor of its own, where there are two: threads that share one never meet in anything. Where it is refused,
   chance decides. */
static inline void meet_on(int number)
{
#ifdef CPU_COUNT
    cpu_set_t all, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < 2) return;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && number-- == 0) CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
#else
    (void)number;
#endif
}
#endif
