#include "injection/scenario.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DESCRIPTORS = 256, FAULTS_SHOWN = 12, MOST_CALLS = 100000, MOST_SCENARIOS = 32 };
/* the modes of inject.h, and once more each call that fails */
enum { MODE_AGAIN = INJECT_MODES, MODES };
static const char *const mode_names[MODES] = {"once", "from then on", "interrupted", "one byte only", "cancelled", "once, tried again"};

static long made, survived, faults;
static const scenario *now;
static int now_mode;
static long now_nth;
static inject_report now_failed;
static char folder[64];

static void fault(const char *what, const char *more)
{
    if (faults++ < FAULTS_SHOWN)
        print_error("%s, call %ld (%s) fails %s: %s%s%s\n", now->name, now_nth, now_failed.name != NULL ? now_failed.name : "none",
                    mode_names[now_mode], what, *more != 0 ? ": " : "", more);
}

void expect(world *w, int holds, const char *what)
{
    if (!holds) fault(what, w->ctx != NULL ? attn_context_last_error(w->ctx) : "");
}

void note(world *w, const void *from, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++) w->hash = (w->hash ^ ((const unsigned char *)from)[i]) * UINT64_C(0x100000001B3);
}

void note_tensor(world *w, const attn_tensor *tensor)
{
    int64_t width = attn_tensor_dtype(tensor) == ATTN_FLOAT64 || attn_tensor_dtype(tensor) == ATTN_INT64 ? 8 : 4;
    for (int32_t i = 0; i < attn_tensor_rank(tensor); i++) {
        int64_t extent = attn_tensor_extent(tensor, i);
        note(w, &extent, sizeof extent);
    }
    note(w, attn_tensor_data_const(tensor), model_elements(tensor) * width);
}

void note_parameters(world *w, attn_parameters *parameters)
{
    for (int64_t i = 0; i < attn_parameters_count(parameters); i++) {
        const char *name = attn_parameters_name(parameters, i);
        note(w, name, (int64_t)strlen(name));
        note_tensor(w, attn_parameters_tensor(parameters, i));
    }
}

void note_gradients(world *w, attn_gradients *gradients)
{
    note_tensor(w, attn_gradients_flat(gradients));
}

void world_path(world *w, const char *name)
{
    snprintf(w->path, sizeof w->path, "%s/%s", folder, name);
}

attn_context *counted_context(int32_t backend, int32_t threads)
{
    attn_context_options o;
    attn_context *made_ctx = NULL;
    const attn_allocator hooks = inject_allocator();
    assert_int_equal(attn_context_options_init(&o, sizeof o), ATTN_OK);
    o.backend = backend;
    o.threads = threads;
    o.allocator = &hooks;
    assert_int_equal(attn_context_create(&o, &made_ctx), ATTN_OK);
    return made_ctx;
}

attn_tensor *random_tensor(world *w, int seed, int32_t rank, const int64_t *shape)
{
    attn_tensor *made_tensor = NULL;
    random_state random = {(uint64_t)seed};
    OK(w->ctx, attn_tensor_create(w->ctx, ATTN_FLOAT32, rank, shape, &made_tensor));
    for (int64_t i = 0; i < model_elements(made_tensor); i++) model_set(made_tensor, i, random_number(&random, -1, 1));
    return made_tensor;
}

attn_status run_backward(world *w, attn_status before, const attn_tensor *output)
{
    if (before != ATTN_OK) return before;
    if (w->again) (void)inject_disarm();
    const attn_tensor *const outputs[] = {output, output}, *const arriving[] = {w->arriving, NULL};
    return attn_tape_backward(w->ctx, w->tape, w->arriving != NULL && !w->lent ? 2 : 1, outputs, w->arriving != NULL ? arriving : NULL,
                              w->gradients != NULL, &w->gradients);
}

static void world_close(world *w)
{
    attn_generator_free(w->generator);
    attn_trainer_free(w->trainer);
    attn_dataset_free(w->dataset);
    attn_vocabulary_free(w->vocabulary);
    attn_optimizer_free(w->optimizer);
    attn_gradients_free(w->gradients);
    attn_transformer_free(w->model);
    attn_decoder_free(w->decoder);
    attn_encoder_free(w->encoder);
    attn_attention_free(w->attention);
    attn_tape_free(w->tape);
    attn_layout_free(w->layout);
    for (int i = 0; i < WORLD_MASKS; i++) attn_mask_free(w->mask[i]);
    for (int i = 0; i < WORLD_TENSORS; i++) attn_tensor_free(w->tensor[i]);
    attn_tensor_free(w->arriving);
    model_batch_close(&w->batch);
    attn_context_free(w->ctx);
}

void world_arriving(world *w, const attn_tensor *output)
{
    int64_t shape[8];
    for (int32_t i = 0; i < attn_tensor_rank(output); i++) shape[i] = attn_tensor_extent(output, i);
    w->arriving = random_tensor(w, 11, attn_tensor_rank(output), shape);
}

static int open_descriptors(void)
{
    int count = 0;
    for (int i = 0; i < DESCRIPTORS; i++) count += fcntl(i, F_GETFD) >= 0;
    return count;
}

/* The file of a scenario: its bytes and permissions; 0: there is none */
static uint64_t file_hash(const char *path)
{
    world w = {.hash = UINT64_C(0xCBF29CE484222325)};
    struct stat about;
    unsigned char bytes[4096];
    FILE *file = *path != 0 ? fopen(path, "rb") : NULL;
    if (file == NULL || stat(path, &about) != 0) return 0;
    note(&w, &about.st_mode, (int64_t)sizeof about.st_mode);
    for (size_t got; (got = fread(bytes, 1, sizeof bytes, file)) > 0;) note(&w, bytes, (int64_t)got);
    (void)fclose(file);
    return w.hash;
}

/* removes what the folder holds; the number of temporary files that lay about */
static int sweep(int remove_all)
{
    int temporaries = 0;
    char path[WORLD_PATH + 256];
    DIR *open_folder = opendir(folder);
    for (struct dirent *e; open_folder != NULL && (e = readdir(open_folder)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        int temporary = strncmp(e->d_name, ".attn-", 6) == 0;
        temporaries += temporary;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (temporary || remove_all) (void)remove(path);
    }
    if (open_folder != NULL) (void)closedir(open_folder);
    return temporaries;
}

/* What the undisturbed run gave. */
typedef struct baseline {
    uint64_t hash, old_file, new_file;
} baseline;

static void start(world *w, const scenario *s)
{
    memset(w, 0, sizeof *w);
    w->variant = s->variant;
    w->hash = UINT64_C(0xCBF29CE484222325);
    w->again = now_mode == MODE_AGAIN;
    w->lent = s->flags & ON_REFERENCE;
    if (!(s->flags & NO_CONTEXT)) w->ctx = counted_context(s->flags & ON_REFERENCE ? ATTN_BACKEND_REFERENCE : ATTN_BACKEND_BLAS, 1);
    if (s->set_up != NULL) s->set_up(w);
}

/* the result of a success against the undisturbed one */
static void check_result(world *w, const scenario *s, const baseline *base)
{
    s->result(w);
    if (w->hash != base->hash) fault("a success with another result", "");
    if (file_hash(w->path) != base->new_file) fault("a success with another file", w->path);
}

static void check_failure(world *w, const scenario *s, attn_status status, const baseline *base)
{
    const char *text = attn_context_last_error(w->ctx);
    int memory = status == ATTN_ERROR_OUT_OF_MEMORY && now_failed.memory > 0, file = status == ATTN_ERROR_IO && now_failed.files > 0;
    int cancelled = status == ATTN_ERROR_CANCELLED && now_failed.cancels > 0, kernels = status == ATTN_ERROR_BLAS && now_failed.kernels > 0;
    if (now_mode == INJECT_INTERRUPT || now_mode == INJECT_SHORT || now_mode == MODE_AGAIN)
        fault("not to be noticed", attn_status_name(status));
    if (!memory && !file && !cancelled && !kernels) fault(attn_status_name(status), text);
    if (w->ctx != NULL && memory && strstr(text, "memory") == NULL) fault("a text that names no memory", text);
    if (w->ctx != NULL && file && (w->path[0] == 0 || strstr(text, w->path) == NULL)) fault("a text that names no file", text);
    uint64_t left = file_hash(w->path);
    if (left != base->old_file && left != base->new_file) fault("a file neither old nor new", w->path);
    if (sweep(0) > 0 && now_failed.removals == 0) fault("a temporary file lies about", "");
    if (s->after_failure != NULL) s->after_failure(w);
}

/* One run. 1: a call was disturbed, so there may be a next one. */
static int run_once(const scenario *s, const baseline *base)
{
    world w;
    long live = inject_live(), wrong = inject_wrong();
    int descriptors = open_descriptors();
    start(&w, s);
    inject_spare_json(s->flags & READS_JSON);
    inject_spare_kernels(s->flags & FORETELLS);
    inject_arm(now_mode == MODE_AGAIN ? INJECT_ONCE : now_mode, now_nth);
    attn_status status = s->act(&w);
    now_failed = inject_disarm();
    if (status == ATTN_OK) {
        if (now_failed.fatal > 0 && now_mode != MODE_AGAIN) fault("a success that hides the failure", "");
        check_result(&w, s, base);
    } else {
        check_failure(&w, s, status, base);
        w.again = 0;
        if (now_mode != MODE_AGAIN) {
            status = s->act(&w);
            if (status != ATTN_OK)
                fault("the repeated call fails", w.ctx != NULL ? attn_context_last_error(w.ctx) : attn_status_name(status));
            else
                check_result(&w, s, base);
        }
    }
    world_close(&w);
    sweep(1);
    if (inject_live() != live) fault("a leak of memory, threads or locks", "");
    if (inject_wrong() != wrong) fault("an allocation or release of another size", "");
    if (open_descriptors() != descriptors) fault("a leak of file descriptors", "");
    return now_failed.name != NULL;
}

static void undisturbed(const scenario *s, baseline *base)
{
    world w;
    now_mode = INJECT_ONCE;
    start(&w, s);
    base->old_file = file_hash(w.path);
    inject_arm(INJECT_ONCE, MOST_CALLS);
    attn_status status = s->act(&w);
    (void)inject_disarm();
    if (status != ATTN_OK) fault("the undisturbed call fails", w.ctx != NULL ? attn_context_last_error(w.ctx) : attn_status_name(status));
    base->new_file = file_hash(w.path);
    s->result(&w);
    base->hash = w.hash;
    world_close(&w);
    sweep(1);
}

/* every n, or with ATTN_INJECTION_STEP one of so many */
static long every(void)
{
    const char *text = getenv("ATTN_INJECTION_STEP");
    long step = text != NULL ? atol(text) : 1;
    return step > 0 ? step : 1;
}

static void run_scenario(const scenario *s)
{
    static const baseline none = {0, 0, 0};
    baseline base = none;
    now = s;
    now_nth = 0;
    now_failed = (inject_report){.name = NULL};
    undisturbed(s, &base);
    long step = every();
    for (now_mode = 0; now_mode < MODES; now_mode++) {
        if (now_mode == MODE_AGAIN && !(s->flags & EACH_AGAIN)) continue;
        int more = 1;
        for (now_nth = 1; more && now_nth < MOST_CALLS; now_nth += step) {
            long before = faults;
            more = run_once(s, &base);
            made += more;
            survived += more && faults == before;
        }
    }
}

void run_scenarios(const scenario *all, int count)
{
    long before = faults;
    snprintf(folder, sizeof folder, "/tmp/attn-injection-XXXXXX");
    assert_non_null(mkdtemp(folder));
    inject_json();
    for (int i = 0; i < count; i++) run_scenario(&all[i]);
    (void)rmdir(folder);
    if (faults > before) fail_msg("%ld faults", faults - before);
}

void run_on_both(const scenario *all, int count)
{
    scenario on_reference[MOST_SCENARIOS];
    assert_true(count <= MOST_SCENARIOS);
    run_scenarios(all, count);
    for (int i = 0; i < count; i++) {
        on_reference[i] = all[i];
        on_reference[i].flags |= ON_REFERENCE;
    }
    run_scenarios(on_reference, count);
}

int print_injections(void **state)
{
    (void)state;
    print_message("injections: %ld made, %ld survived\n", made, survived);
    return 0;
}
