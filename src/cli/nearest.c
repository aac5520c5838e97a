#include "nearest.h"
#include <string.h>

enum { LONGEST = 63 };

static int least(int a, int b)
{
    return a < b ? a : b;
}

int word_distance(const char *a, const char *b)
{
    int rows[3][LONGEST + 1]; /* of the table of distances: the one before the last, the last, this one */
    int m = (int)strnlen(a, LONGEST), n = (int)strnlen(b, LONGEST);
    for (int j = 0; j <= n; j++) rows[1][j] = j;
    for (int i = 1; i <= m; i++) {
        rows[2][0] = i;
        for (int j = 1; j <= n; j++) {
            int d = rows[1][j - 1] + (a[i - 1] != b[j - 1]);
            d = least(d, least(rows[1][j], rows[2][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) d = least(d, rows[0][j - 2] + 1);
            rows[2][j] = d;
        }
        memcpy(rows[0], rows[1], sizeof rows[0]);
        memcpy(rows[1], rows[2], sizeof rows[1]);
    }
    return rows[1][n];
}
