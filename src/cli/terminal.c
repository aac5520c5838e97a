#include "terminal.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "message.h"

static int line_open; /* the cursor stands on a line that will be rewritten */
static double last_shown;

double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

const char *readable_count(int64_t count, char text[32])
{
    char digits[32];
    snprintf(digits, sizeof digits, "%lld", (long long)count);
    char *out = text;
    size_t length = strlen(digits);
    for (size_t i = 0; i < length; i++) {
        size_t left = length - i;
        if (i > 0 && left % 3 == 0 && digits[i - 1] != '-') *out++ = ',';
        *out++ = digits[i];
    }
    *out = 0;
    return text;
}

static const char *scaled(double amount, double step, const char *const *units, char text[32])
{
    int unit = 0;
    while (amount >= step * 0.9995 && unit < 5) {
        amount /= step;
        unit++;
    }
    snprintf(text, 32, unit == 0 || amount >= 99.95 ? "%.0f %s" : amount >= 9.995 ? "%.1f %s" : "%.2f %s", amount, units[unit]);
    return text;
}

const char *readable_bytes(int64_t bytes, char text[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    return scaled((double)bytes, 1024, units, text);
}

const char *readable_amount(double amount, char text[32])
{
    static const char *const units[] = {"", "thousand", "million", "billion", "trillion", "quadrillion"};
    return scaled(amount, 1000, units, text);
}

const char *readable_time(double seconds, char text[32])
{
    if (!isfinite(seconds) || seconds < 0) seconds = 0;
    if (seconds > 1e9) seconds = 1e9;
    long long whole = (long long)(seconds + 0.5);
    if (whole >= 3600)
        snprintf(text, 32, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
    else
        snprintf(text, 32, "%lld:%02lld", whole / 60, whole % 60);
    return text;
}

int terminal_progress(const progress *p, int report)
{
    int on_terminal = isatty(STDOUT_FILENO), standing = !isnan(p->valid_loss) || p->step == p->steps;
    double now = seconds_now();
    if (!on_terminal && !report) return 1;
    if (on_terminal && !standing && now - last_shown < 0.1) return 1;
    last_shown = now;
    char step[32], steps[32], speed[32], left[32], valid[32] = "              ";
    readable_count(p->step, step);
    readable_count(p->steps, steps);
    if (!isnan(p->valid_loss)) snprintf(valid, sizeof valid, "  valid %6.4f", p->valid_loss);
    if (!isnan(p->word_error)) snprintf(valid + strlen(valid), sizeof valid - strlen(valid), "  wrong %5.2f %%", p->word_error);
    readable_count((int64_t)p->tokens_per_second, speed);
    readable_time(p->seconds_left, left);
    printf("%sstep %*s/%s  loss %6.4f%s  %9s tokens/s  %s left%s", on_terminal ? "\r" : "", (int)strlen(steps), step, steps, p->loss, valid,
           speed, left, on_terminal ? "\033[K" : "\n");
    if (on_terminal && standing) printf("\n");
    line_open = on_terminal && !standing;
    return output_now();
}

void terminal_close_line(void)
{
    if (line_open) printf("\n");
    line_open = 0;
    (void)fflush(stdout);
}
