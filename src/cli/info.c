#include <stdlib.h>
#include <string.h>
#include "commands.h"
#include "info_report.h"
#include "message.h"
#include "model_file.h"
#include "train_settings.h"

typedef struct settings {
    const char *preset;
    int64_t length, batch;
    int32_t json;
} settings;

static const flag flags[] = {
    {"preset", FLAG_TEXT, FLAG_FREE, offsetof(settings, preset), "NAME", NULL, "instead of DIR",
     "a known model; nothing is allocated for it", "Flags", NULL, 0, 0},
    {"length", FLAG_INTEGER, FLAG_FREE, offsetof(settings, length), "N", NULL, "default the model's context",
     "tokens of a sequence, for memory and cost", NULL, NULL, 1, 1e9},
    {"batch", FLAG_INTEGER, FLAG_FREE, offsetof(settings, batch), "N", "1", NULL, "sequences at once, for memory and cost", NULL, NULL, 1,
     1e9},
    {"json", FLAG_SWITCH, FLAG_FREE, offsetof(settings, json), "", NULL, NULL, "print a JSON object with exact numbers", NULL, NULL, 0, 0},
};
static const flag_set flag_table = {"info", "DIR", flags, sizeof flags / sizeof *flags};

static int describe(attn_context *ctx, const settings *s, const char *place, info_report *r)
{
    int status;
    attn_transformer_options_init(&r->options, sizeof r->options);
    if (place == NULL) {
        r->name = s->preset;
        status = read_preset(ctx, s->preset, &r->options);
    } else {
        r->name = place;
        status = load_model(ctx, place, &r->model);
        attn_status read = status == 0 ? attn_transformer_get_options(ctx, r->model, &r->options) : ATTN_OK;
        if (read != ATTN_OK) status = fail_call(ctx, read, place);
        if (status == 0 && attn_transformer_metadata(r->model, SETTINGS_KEY) != NULL)
            r->settings = json_loads(attn_transformer_metadata(r->model, SETTINGS_KEY), 0, NULL);
    }
    r->length = s->length > 0 ? s->length : r->options.context;
    r->batch = s->batch;
    if (status == 0) status = info_collect(ctx, r);
    if (status == 0) status = s->json ? info_print_json(ctx, r) : info_print(ctx, r);
    json_decref(r->settings);
    attn_transformer_free(r->model);
    info_free(r);
    return status;
}

static int run_info(int argc, char **argv)
{
    settings s = {.length = 0};
    parsed from;
    attn_context *ctx = NULL;
    info_report report = {.name = NULL};
    int status = parse_flags(&flag_table, argc, argv, &s, &from);
    if (status == 0 && (from.argument == NULL) == (s.preset == NULL))
        status = fail(EXIT_INPUT, "DIR, --preset: got %s, expected one of them (\"attn help info\" shows examples)",
                      s.preset != NULL ? "both" : "neither");
    if (status == 0) status = open_context(1, 0, &ctx);
    if (status == 0) status = describe(ctx, &s, from.argument, &report);
    attn_context_free(ctx);
    return status;
}

const command info_command = {
    "info",
    "describe a model: its parts, memory and cost",
    "  attn info DIR [--length N] [--batch N] [--json]\n  attn info --preset NAME [--length N] [--batch N] [--json]\n",
    "Prints the configuration, the parameters of each module, the memory that training and inference take at a given\n"
    "length and batch, and the multiply-adds of a forward and a backward pass. The presets are transformer-base,\n"
    "transformer-big, gpt2, gpt2-medium, bert-base, t5-small, llama-7b, palm-8b, vit-base, g2p, lstm-attention and gpt-char.\n",
    "  attn info run\n"
    "  attn info --preset gpt2 --length 1024 --batch 8\n"
    "  attn info --preset llama-7b --json\n",
    &flag_table,
    run_info};
