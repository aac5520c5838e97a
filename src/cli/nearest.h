#ifndef ATTN_CLI_NEAREST_H
#define ATTN_CLI_NEAREST_H

/* How many insertions, removals, replacements and swaps of neighbours lead from one word to the other; long words are compared by
   their first 63 bytes. */
int word_distance(const char *a, const char *b);
#endif
