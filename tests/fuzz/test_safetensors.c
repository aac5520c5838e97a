/* Files of tensors, models and checkpoints, through the real loaders.
   Input: a file; or, when it begins with '{', a header up to a NUL and the data after it: its length is put before it, so that changes
   of the text reach what lies behind. --make FOLDER writes the model and the checkpoints of the corpus. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "data/dataset.h"
#include "formats/digest.h"
#include "support/fuzz.h"
#include "training/trainer.h"

enum { CAP = 4 << 20, TOKENS = 40, FEW = 20000 };

/* a trainer that outlives the inputs */
typedef struct subject {
    attn_context *ctx;
    attn_transformer *model;
    attn_dataset *dataset;
    attn_trainer *trainer;
    int64_t bytes; /* of the parameters, and of each moment */
    char *before;  /* [3 bytes] */
} subject;

static void make(subject *s)
{
    attn_context_options c;
    attn_transformer_options o;
    attn_dataset_options d;
    int32_t tokens[TOKENS];
    for (int i = 0; i < TOKENS; i++) tokens[i] = i * i % 5;
    fuzz_require(attn_context_options_init(&c, sizeof c) == ATTN_OK && attn_transformer_options_init(&o, sizeof o) == ATTN_OK &&
                     attn_dataset_options_init(&d, sizeof d) == ATTN_OK,
                 "options");
    c.threads = 1;
    fuzz_require(attn_context_create(&c, &s->ctx) == ATTN_OK, "a context");
    o.encoder_layers = 0;
    o.decoder_layers = 1;
    o.width = o.feed_forward = 4;
    o.heads = 1;
    o.source_vocabulary = 5;
    o.context = 6;
    o.tie = ATTN_TIE_OUTPUT;
    o.attention_bias = o.feed_forward_bias = o.norm_bias = 0;
    d.context = 6;
    d.batch = 2;
    attn_status status = attn_transformer_create(s->ctx, &o, &s->model);
    if (status == ATTN_OK) status = attn_dataset_tokens(s->ctx, tokens, TOKENS, &d, &s->dataset);
    if (status == ATTN_OK) status = attn_trainer_create(s->ctx, s->model, s->dataset, NULL, NULL, NULL, &s->trainer);
    if (status == ATTN_OK) status = attn_trainer_step(s->ctx, s->trainer, NULL, NULL);
    fuzz_require(status == ATTN_OK, "a trainer");
    s->bytes = s->trainer->parameters->flat_elements * (int64_t)sizeof(float);
    s->before = malloc(3 * (size_t)s->bytes);
    fuzz_require(s->before != NULL, "memory");
}

static void *part(const subject *s, int which)
{
    const attn_trainer *t = s->trainer;
    return which == 0 ? t->parameters->flat : which == 1 ? t->optimizer->first : t->optimizer->second;
}

/* a checkpoint that is refused leaves the trainer as it was; one that is taken goes on */
static void restore(subject *s, const char *path)
{
    int64_t steps = attn_trainer_steps(s->trainer), cursor = attn__dataset_cursor(s->dataset), updates = s->trainer->optimizer->step;
    for (int i = 0; i < 3; i++) memcpy(s->before + i * s->bytes, part(s, i), (size_t)s->bytes);
    attn_status status = attn_trainer_restore(s->ctx, s->trainer, path);
    fuzz_status(s->ctx, status, status == ATTN_OK);
    if (status == ATTN_OK) {
        status = attn_trainer_step(s->ctx, s->trainer, NULL, NULL);
        fuzz_require(status == ATTN_OK || status == ATTN_ERROR_END_OF_DATA || status == ATTN_ERROR_INVALID_ARGUMENT, "a step after it");
        return;
    }
    int same =
        steps == attn_trainer_steps(s->trainer) && cursor == attn__dataset_cursor(s->dataset) && updates == s->trainer->optimizer->step;
    for (int i = 0; i < 3; i++) same = same && memcmp(s->before + i * s->bytes, part(s, i), (size_t)s->bytes) == 0;
    fuzz_require(same, "a refused checkpoint leaves the trainer as it was");
}

static void read_tensors(attn_context *ctx, const char *path)
{
    attn__file *file = NULL;
    attn_status status = attn__file_open(ctx, path, &file);
    fuzz_status(ctx, status, file != NULL);
    if (status != ATTN_OK) return;
    int64_t sum = 0;
    for (int64_t i = 0; i < file->count; i++) {
        const attn__file_entry *entry = &file->entries[i];
        int64_t bytes = entry->end - entry->begin;
        fuzz_require(entry->begin == sum && bytes >= 0, "entries stand one after another");
        sum += bytes;
        void *to = malloc((size_t)bytes + 1);
        fuzz_require(to != NULL && attn__file_read(ctx, file, i, to, bytes) == ATTN_OK, "an entry is read");
        free(to);
        fuzz_require(attn__file_find(file, entry->name) == i, "an entry is found");
        attn_tensor *tensor = NULL;
        status = attn_file_read_tensor(ctx, path, entry->name, &tensor);
        fuzz_status(ctx, status, tensor != NULL);
        attn_tensor_free(tensor);
    }
    fuzz_require(sum == file->data_bytes, "entries fill the file");
    for (int64_t i = 0; i < file->metadata_count; i++)
        fuzz_require(attn__file_metadata(file, file->metadata[i].key) == file->metadata[i].value, "metadata is found");
    status = attn__file_verify(ctx, file, "attn.digest");
    fuzz_require(status == ATTN_OK || status == ATTN_ERROR_BAD_FILE, "the digest is looked at");
    attn__file_close(file);
}

static void read_metadata(attn_context *ctx, const char *path, const char *key)
{
    char text[64];
    int64_t bytes = -1;
    attn_status status = attn_file_metadata(ctx, path, key, sizeof text, text, &bytes);
    fuzz_status(ctx, status, status == ATTN_OK);
    if (status == ATTN_OK) fuzz_require(bytes == (int64_t)strlen(text) + 1, "the length is told");
    if (status == ATTN_ERROR_FULL) fuzz_require(bytes > (int64_t)sizeof text, "the room is told");
}

static attn_tensor *zeros(attn_context *ctx, int32_t dtype, int64_t width)
{
    const int64_t shape[2] = {2, width};
    attn_tensor *made = NULL;
    return attn_tensor_create(ctx, dtype, width > 0 ? 2 : 1, shape, &made) == ATTN_OK ? made : NULL;
}

/* two tokens through a model that was taken, whatever its numbers are */
static void run_model(attn_context *ctx, const attn_transformer *model)
{
    attn_transformer_options o = {.struct_size = sizeof o};
    attn_batch batch;
    fuzz_require(attn_transformer_get_options(ctx, model, &o) == ATTN_OK && attn_batch_init(&batch, sizeof batch) == ATTN_OK, "options");
    if (attn_parameters_elements(attn_transformer_parameters(model)) > FEW) return;
    attn_tensor *tokens = zeros(ctx, ATTN_INT32, 0);
    attn_tensor *output = zeros(ctx, o.dtype, o.output_head ? o.target_vocabulary : o.decoder_layers > 0 ? o.decoder_width : o.width);
    if (o.encoder_layers > 0) batch.source = tokens;
    if (o.decoder_layers > 0) batch.target = tokens;
    if (tokens != NULL && output != NULL) {
        attn_status status = attn_transformer_forward(ctx, model, NULL, &batch, output);
        int small = status == ATTN_ERROR_MEMORY_CAP || status == ATTN_ERROR_INVALID_ARGUMENT; /* a learned table of one position */
        fuzz_require(status == ATTN_OK || small, "a model that was loaded runs");
    }
    attn_tensor_free(tokens);
    attn_tensor_free(output);
}

static void load(attn_context *ctx, const char *path, int32_t strict, int32_t dtype)
{
    attn_load_options o;
    attn_transformer *model = NULL;
    fuzz_require(attn_load_options_init(&o, sizeof o) == ATTN_OK, "options");
    o.strict = strict;
    o.dtype = dtype;
    attn_status status = attn_transformer_load(ctx, path, &o, &model);
    fuzz_status(ctx, status, model != NULL);
    if (status == ATTN_OK) run_model(ctx, model);
    attn_transformer_free(model);
}

static void read_file(const char *path)
{
    static subject s;
    fuzz_context f, reference;
    if (s.ctx == NULL) make(&s);
    fuzz_open(&f, ATTN_BACKEND_BLAS, CAP);
    read_tensors(f.ctx, path);
    read_metadata(f.ctx, path, "attn.options");
    read_metadata(f.ctx, path, "a");
    load(f.ctx, path, 1, 0);
    load(f.ctx, path, 0, ATTN_FLOAT32);
    fuzz_close(&f);
    fuzz_open(&reference, ATTN_BACKEND_REFERENCE, CAP);
    load(reference.ctx, path, 0, ATTN_FLOAT64);
    fuzz_close(&reference);
    restore(&s, path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || data[0] != '{') {
        read_file(fuzz_file(data, size));
        return 0;
    }
    const uint8_t *nul = memchr(data, 0, size);
    size_t header = nul != NULL ? (size_t)(nul - data) : size, tail = nul != NULL ? size - header - 1 : 0;
    uint8_t *file = malloc(8 + header + tail);
    fuzz_require(file != NULL, "memory");
    for (int i = 0; i < 8; i++) file[i] = (uint8_t)((uint64_t)header >> (8 * i));
    memcpy(file + 8, data, header);
    if (tail > 0) memcpy(file + 8 + header, nul + 1, tail);
    read_file(fuzz_file(file, 8 + header + tail));
    free(file);
    return 0;
}

#ifndef ATTN_FUZZER
static int write_corpus(const char *folder)
{
    subject s;
    char path[4096];
    make(&s);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    attn_status status = attn_transformer_save(s.ctx, s.model, 1, (const char *const[]){"a"}, (const char *const[]){"b"}, path);
    snprintf(path, sizeof path, "%s/checkpoint.safetensors", folder);
    if (status == ATTN_OK) status = attn_trainer_save(s.ctx, s.trainer, 0, NULL, NULL, path);
    return status != ATTN_OK;
}

int main(int argc, char **argv)
{
    return argc == 3 && strcmp(argv[1], "--make") == 0 ? write_corpus(argv[2]) : fuzz_replay(argc, argv, "safetensors");
}
#endif
