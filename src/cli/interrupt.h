#ifndef ATTN_CLI_INTERRUPT_H
#define ATTN_CLI_INTERRUPT_H
#include <attn/context.h>

/* From now on the first SIGINT, SIGTERM or SIGHUP asks the running call of this context to stop; the second ends the program by the
   system's default. A SIGHUP that was ignored when the program started (nohup) stays ignored. */
void interrupt_watch(attn_context *ctx);

/* Whether the first signal has come. */
int interrupted(void);

/* Puts the defaults back; the context may be freed then. */
void interrupt_end(void);
#endif
