#include "approximate.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "commands.h"
#include "files.h"
#include "interrupt.h"
#include "message.h"
#include "model_file.h"
#include "terminal.h"

enum { LEAST_ROWS = 16 };

typedef struct settings {
    const char *file, *names[3], *variants, *svg;
    double seconds;
    int64_t threads;
    uint64_t seed;
    int32_t causal, json;
} settings;

#define OFFSET(field) FLAG_FREE, offsetof(settings, field)
static const flag flags[] = {
    {"query", FLAG_TEXT, OFFSET(names[0]), "NAME", "query", NULL, "tensor of the queries, [rows, heads, size]", "Flags", NULL, 0, 0},
    {"key", FLAG_TEXT, OFFSET(names[1]), "NAME", "key", NULL, "of the keys; their heads divide those of the queries", NULL, NULL, 0, 0},
    {"value", FLAG_TEXT, OFFSET(names[2]), "NAME", "value", NULL, "of the values, in the rows and heads of the keys", NULL, NULL, 0, 0},
    {"causal", FLAG_SWITCH, OFFSET(causal), "", NULL, NULL, "no query sees a later key; the last query stands at the last key", NULL, NULL,
     0, 0},
    {"variants", FLAG_TEXT, OFFSET(variants), "LIST", NULL, "default all, in a few sizes",
     "which, between commas, with a size or without: window-100,performer", NULL, NULL, 0, 0},
    {"seconds", FLAG_REAL, OFFSET(seconds), "X", "0.5", NULL, "how long exact attention may take at the longest length that is measured",
     NULL, NULL, 0, 60},
    {"json", FLAG_SWITCH, OFFSET(json), "", NULL, NULL, "print a JSON object a line", NULL, NULL, 0, 0},
    {"svg", FLAG_TEXT, OFFSET(svg), "FILE", NULL, NULL, "a picture to write: error against time", NULL, NULL, 0, 0},
    {"threads", FLAG_INTEGER, OFFSET(threads), "N", NULL, "default all processors", "threads that compute", NULL, NULL, 1, 256},
    {"seed", FLAG_SEED, OFFSET(seed), "N", "1", NULL, "of the Performer's directions and BigBird's blocks", NULL, NULL, 0, 0},
};
static const flag_set flag_table = {"approximate", "FILE", flags, sizeof flags / sizeof *flags};

/* a path that is none is the user's fault, a file that cannot be read the machine's */
static int check_file(const char *file)
{
    struct stat about;
    if (stat(file, &about) != 0) return fail(exit_of_error(errno), "%s: cannot be opened: %s", file, strerror(errno));
    return S_ISREG(about.st_mode) ? 0 : fail(EXIT_INPUT, "%s: is no file, expected one in the safetensors format", file);
}

/* the names of the file's tensors, for a message */
static void list_names(attn_context *ctx, const char *file, char *text, size_t room)
{
    char name[160];
    int64_t bytes;
    *text = 0;
    for (int64_t i = 0; i < 8 && attn_file_tensor_name(ctx, file, i, sizeof name, name, &bytes) == ATTN_OK; i++) {
        size_t used = strlen(text);
        snprintf(text + used, room - used, "%s\"%.40s\"", i > 0 ? ", " : "", name);
    }
}

static int check_finite(const settings *s, const char *name, const attn_tensor *t)
{
    const float *x = attn_tensor_data_const(t);
    int64_t heads = attn_tensor_extent(t, 1), size = attn_tensor_extent(t, 2), count = attn_tensor_extent(t, 0) * heads * size;
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(x[i]))
            return fail(EXIT_INPUT, "%s: \"%s\" holds %f at row %lld, head %lld, column %lld, expected finite numbers", s->file, name,
                        (double)x[i], (long long)(i / (heads * size)), (long long)(i / size % heads), (long long)(i % size));
    return 0;
}

static int read_input(attn_context *ctx, const settings *s, int i, attn_tensor **out)
{
    const char *name = s->names[i], *const option = flags[i].name;
    attn_status status = attn_file_read_tensor(ctx, s->file, name, out);
    if (status == ATTN_ERROR_END_OF_DATA) {
        char there[512];
        list_names(ctx, s->file, there, sizeof there);
        return fail(EXIT_INPUT, "%s: holds no \"%.160s\" but %s: say by --%s which it is", s->file, name, *there ? there : "nothing",
                    option);
    }
    if (status != ATTN_OK) return fail_call(ctx, status, NULL);
    if (attn_tensor_dtype(*out) != ATTN_FLOAT32 || attn_tensor_rank(*out) != 3)
        return fail(EXIT_INPUT, "%s: \"%.160s\" has %d axes of %s, expected float32 [rows, heads, size]", s->file, name,
                    (int)attn_tensor_rank(*out), attn_tensor_dtype(*out) == ATTN_FLOAT32 ? "float32" : "another type");
    if (attn_tensor_extent(*out, 0) < LEAST_ROWS)
        return fail(EXIT_INPUT, "%s: \"%.160s\" has %lld rows, expected at least %d", s->file, name, (long long)attn_tensor_extent(*out, 0),
                    LEAST_ROWS);
    if (attn_tensor_extent(*out, 1) < 1 || attn_tensor_extent(*out, 2) < 1)
        return fail(EXIT_INPUT, "%s: \"%.160s\" has %lld heads of %lld, expected at least one number", s->file, name,
                    (long long)attn_tensor_extent(*out, 1), (long long)attn_tensor_extent(*out, 2));
    return check_finite(s, name, *out);
}

/* extents that have to be equal, or to divide */
static int check_shapes(const settings *s, const operands *o)
{
    int64_t e[3][3];
    for (int i = 0; i < 3; i++)
        for (int32_t axis = 0; axis < 3; axis++) e[i][axis] = attn_tensor_extent(o->in[i], axis);
    const char *problem = e[1][0] != e[2][0]       ? "keys and values need the same rows"
                          : e[1][1] != e[2][1]     ? "keys and values need the same heads"
                          : e[0][2] != e[1][2]     ? "queries and keys need heads of one size"
                          : e[0][1] % e[1][1] != 0 ? "the heads of the keys must divide those of the queries"
                                                   : NULL;
    if (problem == NULL) return 0;
    return fail(EXIT_INPUT, "%s: query [%lld, %lld, %lld], key [%lld, %lld, %lld], value [%lld, %lld, %lld]: %s", s->file,
                (long long)e[0][0], (long long)e[0][1], (long long)e[0][2], (long long)e[1][0], (long long)e[1][1], (long long)e[1][2],
                (long long)e[2][0], (long long)e[2][1], (long long)e[2][2], problem);
}

static const char *pays(const variants *v, double from, char text[32])
{
    char number[32];
    if (isnan(from))
        snprintf(text, 32, "not to %s", readable_count(v->longest, number));
    else
        snprintf(text, 32, "%s%s", from <= (double)v->shortest ? "<= " : "", readable_count((int64_t)llround(from), number));
    return text;
}

static void print_table(const variants *v)
{
    char memory[32], alone[32], both[32];
    printf("%-16s %10s %10s %12s %12s %10s  %14s %14s\n", "", "error", "worst row", "forward", "+ backward", "memory", "pays from",
           "+ backward");
    for (int i = 0; i < v->count; i++) {
        const variant *a = &v->at[i];
        printf("%-16s %8.2f %% %8.2f %% %9.3f ms %9.3f ms %10s", a->name, 100 * a->error, 100 * a->worst_row, 1e3 * a->seconds[0],
               1e3 * a->seconds[1], readable_bytes(a->bytes[1], memory));
        if (i > 0) printf("  %14s %14s", pays(v, a->pays_from[0], alone), pays(v, a->pays_from[1], both));
        printf("\n");
    }
    printf(
        "\nerror: length of the difference to the exact output, over the length of that; worst row: the longest difference of a row, over\n"
        "the root mean square of rows. memory: of forward and backward, beyond inputs, output and gradients. pays from: the length from\n"
        "which it is faster than exact attention here, on random numbers, lengths %lld to %lld.\n",
        (long long)v->shortest, (long long)v->longest);
    for (int i = 0, performer = 0, linformer = 0; i < v->count; i++) {
        if (v->at[i].kind == PERFORMER && !performer++) printf("performer: the mean error of %d draws of its directions.\n", DRAWS);
        if (v->at[i].kind == LINFORMER && !linformer++)
            printf("linformer: nothing is trained here, so its keys are averages of neighbours; a trained projection does better.\n");
    }
}

static void print_length(const char *name, double from)
{
    if (isnan(from))
        printf(", \"%s\": null", name);
    else
        printf(", \"%s\": %lld", name, (long long)llround(from));
}

static void print_json(const variants *v)
{
    for (int i = 0; i < v->count; i++) {
        const variant *a = &v->at[i];
        printf("{\"variant\": \"%s\", \"error\": %.6g, \"worst_row\": %.6g, \"forward_seconds\": %.6g, \"step_seconds\": %.6g, "
               "\"forward_bytes\": %lld, \"step_bytes\": %lld",
               a->name, a->error, a->worst_row, a->seconds[0], a->seconds[1], (long long)a->bytes[0], (long long)a->bytes[1]);
        if (i > 0) {
            print_length("forward_pays_from", a->pays_from[0]);
            print_length("step_pays_from", a->pays_from[1]);
        }
        printf(", \"measured_to\": %lld}\n", (long long)v->longest);
    }
}

static int measure(attn_context *ctx, const settings *s, variants *v, operands *o, int32_t threads)
{
    attn_status status = operands_make(ctx, o, s->seed);
    if (status != ATTN_OK) return fail_call(ctx, status, s->file);
    interrupt_watch(ctx);
    status = measure_errors(ctx, v, o);
    int silent = status == ATTN_OK && v->count > 1 && !isfinite(v->at[1].error); /* relative to nothing */
    if (status == ATTN_OK && !silent) status = measure_memory(ctx, threads, v, o);
    if (status == ATTN_OK && !silent) status = measure_times(ctx, v, o);
    if (status == ATTN_OK && !silent) status = measure_lengths(ctx, v, o, s->seconds);
    interrupt_end();
    if (status != ATTN_OK) return fail_call(ctx, status, s->file);
    return silent ? fail(EXIT_INPUT, "%s: the exact output is zero, so that no error is relative to it", s->file) : 0;
}

static int draw(const settings *s, const variants *v, const char *subtitle)
{
    const char *problem = NULL;
    char *picture = draw_variants(v, "What cheap attention costs, and how far off it is", subtitle);
    if (picture == NULL) return fail(EXIT_MACHINE, "no memory for the picture");
    int bad = replace_file(s->svg, picture, (int64_t)strlen(picture), &problem);
    free(picture);
    return bad ? fail(EXIT_MACHINE, "%s: cannot be written: %s", s->svg, problem) : 0;
}

static int report(attn_context *ctx, const settings *s, operands *o)
{
    variants v = {.seed = s->seed};
    int32_t threads = 1;
    char queries[32], keys[32], line[512];
    int failed = choose_variants(s->variants, s->causal, attn_tensor_extent(o->in[1], 0), &v);
    attn_status status = attn_context_threads(ctx, &threads);
    if (failed == 0 && status != ATTN_OK) failed = fail_call(ctx, status, s->file);
    if (failed) return failed;
    snprintf(line, sizeof line, "%.300s: %s queries, %s keys, %lld heads of %lld%s, on %d thread%s", s->file,
             readable_count(attn_tensor_extent(o->in[0], 0), queries), readable_count(attn_tensor_extent(o->in[1], 0), keys),
             (long long)attn_tensor_extent(o->in[0], 1), (long long)attn_tensor_extent(o->in[0], 2), s->causal ? ", causal" : "",
             (int)threads, threads == 1 ? "" : "s");
    if (!s->json) printf("%s\n\n", line);
    if (!output_now()) return finish_output(EXIT_FINE); /* said at once: measuring takes some seconds */
    failed = measure(ctx, s, &v, o, threads);
    if (failed) return failed;
    (s->json ? print_json : print_table)(&v);
    return s->svg != NULL ? draw(s, &v, line) : 0;
}

static int run_approximate(int argc, char **argv)
{
    settings s = {.threads = ATTN_THREADS_ALL};
    parsed from;
    attn_context *ctx = NULL;
    operands o = {.output = NULL};
    int failed = parse_flags(&flag_table, argc, argv, &s, &from);
    if (failed == 0 && from.argument == NULL)
        failed = fail(EXIT_INPUT, "FILE: needed, a safetensors file (\"attn help approximate\" shows how to make one)");
    s.file = from.argument;
    if (failed == 0) failed = check_file(s.file);
    if (failed == 0) failed = open_context(s.threads, s.seed, &ctx);
    for (int i = 0; failed == 0 && i < 3; i++) failed = read_input(ctx, &s, i, &o.in[i]);
    if (failed == 0) failed = check_shapes(&s, &o);
    if (failed == 0) failed = report(ctx, &s, &o);
    operands_free(&o);
    attn_context_free(ctx);
    return failed;
}

const command approximate_command = {
    "approximate",
    "hold cheap forms of attention against the exact one, on your numbers",
    "  attn approximate FILE.safetensors [--causal] [--variants LIST] [--svg FILE.svg] [--json]\n",
    "Reads queries, keys and values (float32, [rows, heads, size], one sequence) and computes softmax attention exactly and by its\n"
    "cheap variants: how far off each one is, the time and the memory of forward and backward, and the length from which it is\n"
    "faster on this machine. Errors are of your numbers, so take those of a trained model: random ones have nothing to attend to.\n"
    "\n"
    "  window-N       the N nearest keys                        logarithmic    keys at distance 0, 1, 2, 4, 8 ...\n"
    "  longformer-N   and two global tokens                     linear         elu + 1 in place of the exponential\n"
    "  bigbird-N      and three random blocks of 64             performer-N    N random features that stand for it\n"
    "  strided, fixed (causal) the parts of the Sparse          linformer-N    (never causal) keys and values averaged\n"
    "                 Transformer, by the root of the length                   to N rows\n"
    "\n"
    "A file can be made in Python: safetensors.numpy.save_file({\"query\": q, \"key\": k, \"value\": v}, \"qkv.safetensors\")\n",
    "  attn approximate qkv.safetensors --causal\n"
    "  attn approximate qkv.safetensors --variants window,performer-256 --svg errors.svg\n"
    "  attn approximate layer.safetensors --query q --key k --value v --json\n",
    &flag_table,
    run_approximate};
