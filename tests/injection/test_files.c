#include <sys/stat.h>
#include <unistd.h>
#include "injection/scenario.h"

/* Files of models and vocabularies with a disk that fails and without memory: old or new, never half; what is read is whole or not there. */
enum { OLD_FILE = 1, LINK = 2, OTHER_TYPE = 4, NOT_STRICT = 8, NULL_BYTES = 16 };
static const char *const keys[] = {"vocabulary", "other"};
static const char *const values[] = {"[\"a\", \"b\\u00e9\"]", ""};

static void set_up_save(world *w)
{
    const attn_transformer_options o = model_options(0, 1);
    char target[WORLD_PATH];
    w->model = model_create(w->ctx, &o);
    world_path(w, "model.safetensors");
    if (w->variant & LINK) {
        memcpy(target, w->path, sizeof target);
        world_path(w, "link.safetensors");
        assert_int_equal(symlink("model.safetensors", w->path), 0);
    }
    if (!(w->variant & OLD_FILE)) return;
    OK(w->ctx, attn_transformer_save(w->ctx, w->model, 0, NULL, NULL, w->path));
    assert_int_equal(chmod(w->path, 0600), 0);
}

static attn_status save(world *w)
{
    attn_status status = ATTN_OK;
    AGAIN(w, status, attn_transformer_save(w->ctx, w->model, 2, keys, values, w->path));
    return status;
}

static void result_saved(world *w)
{
    note_parameters(w, attn_transformer_parameters(w->model));
}

static void set_up_load(world *w)
{
    set_up_save(w);
    OK(w->ctx, attn_transformer_save(w->ctx, w->model, 2, keys, values, w->path));
    attn_transformer_free(w->model);
    w->model = NULL;
}

static attn_status load(world *w)
{
    attn_load_options o;
    attn_status status = attn_load_options_init(&o, sizeof o);
    if (w->variant & NOT_STRICT) o.strict = 0;
    if (w->variant & OTHER_TYPE) {
        o.dtype = ATTN_FLOAT64;
        AGAIN(w, status, attn_context_set_backend(w->ctx, ATTN_BACKEND_REFERENCE));
    }
    AGAIN(w, status, attn_transformer_load(w->ctx, w->path, &o, &w->model));
    return status;
}

static void result_loaded(world *w)
{
    note_parameters(w, attn_transformer_parameters(w->model));
    for (int i = 0; i < 2; i++) {
        const char *value = attn_transformer_metadata(w->model, keys[i]);
        expect(w, value != NULL && strcmp(value, values[i]) == 0, "metadata of a loaded model");
    }
}

static void no_model(world *w)
{
    expect(w, w->model == NULL, "a model in spite of an error");
}

static attn_status metadata(world *w)
{
    char text[64] = "";
    int64_t bytes = 0;
    attn_status status = ATTN_OK;
    AGAIN(w, status, attn_file_metadata(w->ctx, w->path, keys[0], sizeof text, text, &bytes));
    if (status == ATTN_OK) note(w, text, bytes);
    return status;
}

static attn_status read_tensor(world *w)
{
    char name[160] = "";
    int64_t bytes = 0;
    attn_status status = ATTN_OK;
    AGAIN(w, status, attn_file_tensor_name(w->ctx, w->path, 1, sizeof name, name, &bytes));
    AGAIN(w, status, attn_file_read_tensor(w->ctx, w->path, name, &w->tensor[0]));
    return status;
}

static void result_tensor(world *w)
{
    note_tensor(w, w->tensor[0]);
}

static void no_tensor(world *w)
{
    expect(w, w->tensor[0] == NULL, "a tensor in spite of an error");
}

static void result_noted(world *w)
{
    (void)w; /* by act */
}

/* ---- vocabularies; the variant is the kind of symbols, and whether there is an old file */
enum { KIND = 3, OLD_TEXT = 4 };
static const char words[] = "the cat and the dog and the bird \xC3\xA9t\xC3\xA9 and so on, the end.";
static void set_up_vocabulary(world *w)
{
    world_path(w, "vocabulary.json");
    OK(w->ctx, attn_vocabulary_create(w->ctx, w->variant & KIND, words, sizeof words - 1, 2, &w->vocabulary));
    if (!(w->variant & OLD_TEXT)) return;
    OK(w->ctx, attn_vocabulary_save(w->ctx, w->vocabulary, w->path));
    attn_vocabulary_free(w->vocabulary);
    w->vocabulary = NULL;
    OK(w->ctx, attn_vocabulary_create(w->ctx, w->variant & KIND, words, sizeof words - 1, 1, &w->vocabulary));
}

static attn_status save_vocabulary(world *w)
{
    attn_status status = ATTN_OK;
    AGAIN(w, status, attn_vocabulary_save(w->ctx, w->vocabulary, w->path));
    return status;
}

static void result_vocabulary(world *w)
{
    char text[2048];
    int64_t bytes = 0;
    OK(w->ctx, attn_vocabulary_to_text(w->ctx, w->vocabulary, sizeof text, text, &bytes));
    note(w, text, bytes);
}

static attn_status to_text(world *w)
{
    char text[2048];
    int64_t bytes = 0;
    attn_status status = ATTN_OK;
    AGAIN(w, status, attn_vocabulary_to_text(w->ctx, w->vocabulary, sizeof text, text, &bytes));
    if (status == ATTN_OK) note(w, text, bytes);
    return status;
}

static void set_up_vocabulary_file(world *w)
{
    set_up_vocabulary(w);
    OK(w->ctx, attn_vocabulary_save(w->ctx, w->vocabulary, w->path));
    attn_vocabulary_free(w->vocabulary);
    w->vocabulary = NULL;
}

static attn_status load_vocabulary(world *w)
{
    attn_status status = ATTN_OK;
    AGAIN(w, status, attn_vocabulary_load(w->ctx, w->path, &w->vocabulary));
    return status;
}

static attn_status from_text(world *w)
{
    static const char text[] =
        "{\"format\": \"attn_vocabulary\", \"version\": 1, \"symbols\": \"characters\", \"unknown\": true, \"tokens\": "
        "[\"\\n\", \"a\", \"\\u00e9\", \"b\"]}";
    attn_status status = ATTN_OK;
    AGAIN(w, status, attn_vocabulary_from_text(w->ctx, text, sizeof text - 1, &w->vocabulary));
    return status;
}

static void no_vocabulary(world *w)
{
    expect(w, w->vocabulary == NULL, "a vocabulary in spite of an error");
}

static void test_models(void **state)
{
    static const scenario all[] = {
        {"a model to a new file", set_up_save, save, result_saved, NULL, EACH_AGAIN, 0},
        {"a model over an old file", set_up_save, save, result_saved, NULL, EACH_AGAIN, OLD_FILE},
        {"a model through a link", set_up_save, save, result_saved, NULL, EACH_AGAIN, OLD_FILE | LINK},
        {"a model from a file", set_up_load, load, result_loaded, no_model, EACH_AGAIN | READS_JSON, 0},
        {"a model from a file, not strict", set_up_load, load, result_loaded, no_model, EACH_AGAIN | READS_JSON, NOT_STRICT},
        {"a model from a file, in another type", set_up_load, load, result_loaded, no_model, EACH_AGAIN | READS_JSON, OTHER_TYPE},
        {"a tensor of a file", set_up_load, read_tensor, result_tensor, no_tensor, EACH_AGAIN | READS_JSON, 0},
        {"metadata of a file", set_up_load, metadata, result_noted, NULL, EACH_AGAIN | READS_JSON, 0},
    };
    (void)state;
    run_scenarios(all, COUNT_OF(all));
}

static void test_vocabularies(void **state)
{
    static const scenario all[] = {
        {"bytes to a file", set_up_vocabulary, save_vocabulary, result_vocabulary, NULL, EACH_AGAIN, ATTN_SYMBOLS_BYTES},
        {"characters to a file", set_up_vocabulary, save_vocabulary, result_vocabulary, NULL, EACH_AGAIN,
         ATTN_SYMBOLS_CHARACTERS | OLD_TEXT},
        {"words to text", set_up_vocabulary, to_text, result_noted, NULL, EACH_AGAIN, ATTN_SYMBOLS_WORDS},
        {"characters from a file", set_up_vocabulary_file, load_vocabulary, result_vocabulary, no_vocabulary, EACH_AGAIN | READS_JSON,
         ATTN_SYMBOLS_CHARACTERS},
        {"words from a file", set_up_vocabulary_file, load_vocabulary, result_vocabulary, no_vocabulary, EACH_AGAIN | READS_JSON,
         ATTN_SYMBOLS_WORDS},
        {"bytes from a file", set_up_vocabulary_file, load_vocabulary, result_vocabulary, no_vocabulary, EACH_AGAIN | READS_JSON,
         ATTN_SYMBOLS_BYTES},
        {"characters from text", NULL, from_text, result_vocabulary, no_vocabulary, EACH_AGAIN | READS_JSON, 0},
    };
    (void)state;
    run_scenarios(all, COUNT_OF(all));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_models), cmocka_unit_test(test_vocabularies)};
    return cmocka_run_group_tests(tests, NULL, print_injections);
}
