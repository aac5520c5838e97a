#ifndef ATTN_CORE_FORKS_H
#define ATTN_CORE_FORKS_H

/* A child of fork has one thread. What another thread held of BLAS at that moment (the lock of a buffer, that of the number of threads) stays
   held in the child, which would wait for it for good. So around each call of BLAS forks are held off: fork waits until those calls have
   ended, and calls that come meanwhile wait for the fork. Never held for longer than one product; nothing is waited for in between but
   other holders. A signal handler that forks within such a stretch doesn't wait for its own thread. */
void attn__forks_hold(void);
void attn__forks_release(void);
#endif
