#include "train_settings.h"

#define AT(field) offsetof(train_settings, field)
#define BIG 9007199254740992.0 /* 2^53 */
#define SIZE 1000000.0

static const char *const tasks[] = {"lm", "seq2seq", NULL};
static const char *const token_kinds[] = {"characters", "bytes", NULL};
static const char *const side_kinds[] = {"characters", "bytes", "words", NULL};
static const char *const choices[] = {"error", "loss", "last", NULL};
static const char *const activations[] = {"relu",  "gelu",  "gelu-tanh",  "swish",  "sigmoid", "tanh",
                                          "reglu", "geglu", "geglu-tanh", "swiglu", "glu",     NULL};
static const char *const placements[] = {"post", "pre", NULL};
static const char *const positions[] = {"none", "sinusoidal", "learned", "rotary", "t5", "alibi", "relative", NULL};
static const char *const models[] = {"transformer", "recurrent", NULL};
static const char *const cells[] = {"tanh", "lstm", NULL};
static const char *const scores[] = {"dot", "scaled-dot", "bilinear", "additive", "none", NULL};
static const char *const forms[] = {"softmax", "linear", "performer", "linformer", NULL};
static const char *const ties[] = {"none", "output", NULL};
static const char *const optimizers[] = {"adam", "adamw", NULL};
static const char *const schedules[] = {"constant", "monograph", "linear", "cosine", "inverse-sqrt", NULL};

static const flag flags[] = {
    {"data", FLAG_TEXT, FLAG_KEPT, AT(data), "FILE", NULL, "needed",
     "the text to learn from, its last tenth to validate; seq2seq: lines of source, tab, target", "What and where", NULL, 0, 0},
    {"out", FLAG_TEXT, FLAG_FREE, AT(out), "DIR", NULL, "needed", "the folder for the model, its log and its chart", NULL, NULL, 0, 0},
    {"task", FLAG_CHOICE, FLAG_KEPT, AT(task), "NAME", "lm", NULL,
     "what to learn; lm: the next token; seq2seq: to turn a source into a target", NULL, tasks, 0, 0},
    {"valid", FLAG_TEXT, FLAG_KEPT, AT(valid), "FILE", NULL, "seq2seq: needed", "pairs to validate on", NULL, NULL, 0, 0},
    {"source", FLAG_CHOICE, FLAG_KEPT, AT(source), "KIND", "characters", NULL, "seq2seq: what a token of a source is", NULL, side_kinds, 0,
     0},
    {"target", FLAG_CHOICE, FLAG_KEPT, AT(target), "KIND", "words", NULL,
     "seq2seq: what a token of a target is; words are parted by spaces", NULL, side_kinds, 0, 0},
    {"threshold", FLAG_INTEGER, FLAG_KEPT, AT(threshold), "N", "2", NULL,
     "seq2seq: symbols seen fewer times become one unknown token; 1: none does", NULL, NULL, 1, BIG},
    {"tokens", FLAG_CHOICE, FLAG_KEPT, AT(tokens), "KIND", "characters", NULL, "what a token is; bytes takes any file", NULL, token_kinds,
     0, 0},
    {"resume", FLAG_SWITCH, FLAG_FREE, AT(resume), "", NULL, NULL, "go on from DIR's checkpoint, with its settings; --steps may be raised",
     NULL, NULL, 0, 0},
    {"overwrite", FLAG_SWITCH, FLAG_FREE, AT(overwrite), "", NULL, NULL, "replace a model that is in DIR", NULL, NULL, 0, 0},

    {"preset", FLAG_TEXT, FLAG_KEPT, AT(preset), "NAME", NULL, "default gpt-char; g2p",
     "a known model to start from; the flags below change it", "The model (what is not given is the preset's)", NULL, 0, 0},
    {"model", FLAG_CHOICE, FLAG_MODEL, AT(model), "NAME", NULL, NULL,
     "what layers are made of; recurrent: the preset is lstm-attention where none is given", NULL, models, 0, 0},
    {"cell", FLAG_CHOICE, FLAG_MODEL, AT(cell), "NAME", NULL, NULL, "of recurrent layers", NULL, cells, 0, 0},
    {"score", FLAG_CHOICE, FLAG_MODEL, AT(score), "NAME", NULL, NULL,
     "of a recurrent decoder's attention; none: it knows the encoder's last state alone", NULL, scores, 0, 0},
    {"one-way", FLAG_SWITCH, FLAG_MODEL, AT(one_way), "", NULL, NULL, "recurrent: the encoder reads from first to last alone", NULL, NULL,
     0, 0},
    {"layers", FLAG_INTEGER, FLAG_MODEL, AT(layers), "N", NULL, NULL, "decoder layers; of the encoder too", NULL, NULL, 1, 10000},
    {"encoder-layers", FLAG_INTEGER, FLAG_MODEL, AT(encoder_layers), "N", NULL, NULL, "of the encoder, where they differ", NULL, NULL, 1,
     10000},
    {"decoder-width", FLAG_INTEGER, FLAG_MODEL, AT(decoder_width), "N", NULL, NULL, "--width of the decoder, where it differs", NULL, NULL,
     1, SIZE},
    {"decoder-heads", FLAG_INTEGER, FLAG_MODEL, AT(decoder_heads), "N", NULL, NULL, "--heads of the decoder, where they differ", NULL, NULL,
     1, SIZE},
    {"decoder-feed-forward", FLAG_INTEGER, FLAG_MODEL, AT(decoder_feed_forward), "N", NULL, NULL, "--feed-forward of the decoder", NULL,
     NULL, 1, SIZE},
    {"heads", FLAG_INTEGER, FLAG_MODEL, AT(heads), "N", NULL, NULL, "attention heads of a layer", NULL, NULL, 1, SIZE},
    {"width", FLAG_INTEGER, FLAG_MODEL, AT(width), "N", NULL, NULL, "numbers that stand for a token; a multiple of the heads", NULL, NULL,
     1, SIZE},
    {"feed-forward", FLAG_INTEGER, FLAG_MODEL, AT(feed_forward), "N", NULL, NULL, "hidden numbers of the feed-forward part", NULL, NULL, 1,
     SIZE},
    {"context", FLAG_INTEGER, FLAG_MODEL, AT(context), "N", NULL, NULL,
     "tokens the model sees at once, and the length of a window of training; seq2seq: default twice the longest line", NULL, NULL, 2, SIZE},
    {"activation", FLAG_CHOICE, FLAG_MODEL, AT(activation), "NAME", NULL, NULL, "of the feed-forward part; those that end in glu are gated",
     NULL, activations, 0, 0},
    {"norm-placement", FLAG_CHOICE, FLAG_MODEL, AT(norm_placement), "NAME", NULL, NULL, "norm after or before each part of a layer", NULL,
     placements, 0, 0},
    {"norm-epsilon", FLAG_REAL, FLAG_MODEL, AT(norm_epsilon), "X", NULL, NULL, "added to the variance in norms", NULL, NULL, 0, 1},
    {"positions", FLAG_CHOICE, FLAG_MODEL, AT(positions), "NAME", NULL, NULL, "how a token's place is told", NULL, positions, 0, 0},
    {"tie", FLAG_CHOICE, FLAG_MODEL, AT(tie), "NAME", NULL, NULL, "output: one table for reading and predicting tokens", NULL, ties, 0, 0},
    {"init", FLAG_TEXT, FLAG_MODEL, AT(initialisation), "X", NULL, NULL, "deviation of the first weights (scaled normal), or xavier", NULL,
     NULL, 0, 0},
    {"form", FLAG_CHOICE, FLAG_MODEL, AT(form), "NAME", NULL, NULL, "of self-attention; linformer: of the encoder's", NULL, forms, 0, 0},
    {"features", FLAG_INTEGER, FLAG_MODEL, AT(features), "N", NULL, NULL, "performer: of a head", NULL, NULL, 1, 65536},
    {"projected", FLAG_INTEGER, FLAG_MODEL, AT(projected), "N", NULL, NULL, "linformer: rows that keys and values are projected to", NULL,
     NULL, 1, SIZE},
    {"no-bias", FLAG_SWITCH, FLAG_MODEL, AT(no_bias), "", NULL, NULL, "no biases in attention, feed-forward, norms and output", NULL, NULL,
     0, 0},
    {"dropout", FLAG_REAL, FLAG_MODEL, AT(dropout), "P", NULL, NULL, "of embeddings, attention weights and parts of layers", NULL, NULL, 0,
     0.999},
    {"attention-dropout", FLAG_REAL, FLAG_MODEL, AT(dropout_attention), "P", NULL, NULL, "of attention weights, where it differs", NULL,
     NULL, 0, 0.999},
    {"activation-dropout", FLAG_REAL, FLAG_MODEL, AT(dropout_activation), "P", NULL, NULL, "inside the feed-forward part", NULL, NULL, 0,
     0.999},

    {"batch", FLAG_INTEGER, FLAG_KEPT, AT(batch), "N", NULL, "default 12; seq2seq 256", "windows, or pairs, in a batch", "Training", NULL,
     1, SIZE},
    {"batch-tokens", FLAG_INTEGER, FLAG_KEPT, AT(batch_tokens), "N", "0", NULL, "seq2seq: most tokens of a batch on a side; 0: any", NULL,
     NULL, 0, BIG},
    {"bucket", FLAG_INTEGER, FLAG_KEPT, AT(bucket), "N", "0", NULL,
     "seq2seq: pairs sorted by length together, so that batches are alike; 0: none", NULL, NULL, 0, BIG},
    {"accumulate", FLAG_INTEGER, FLAG_KEPT, AT(accumulate), "N", "1", NULL, "batches that make one step", NULL, NULL, 1, SIZE},
    {"steps", FLAG_INTEGER, FLAG_KEPT, AT(steps), "N", NULL, "default 2000; seq2seq 4000", "updates of the weights", NULL, NULL, 1, BIG},
    {"optimizer", FLAG_CHOICE, FLAG_KEPT, AT(optimizer), "NAME", "adamw", NULL, "how gradients change weights", NULL, optimizers, 0, 0},
    {"lr", FLAG_REAL, FLAG_KEPT, AT(rate), "X", "1e-3", NULL, "learning rate, after warm-up", NULL, NULL, 0, 1000},
    {"min-lr", FLAG_REAL, FLAG_KEPT, AT(final_rate), "X", NULL, "default a tenth of --lr", "learning rate at the end of linear and cosine",
     NULL, NULL, 0, 1000},
    {"schedule", FLAG_CHOICE, FLAG_KEPT, AT(schedule), "NAME", "cosine", NULL,
     "how the rate changes; monograph follows from --width and --warmup", NULL, schedules, 0, 0},
    {"warmup", FLAG_INTEGER, FLAG_KEPT, AT(warmup), "N", NULL, "default a twentieth of --decay-steps, at most 100",
     "steps in which the rate rises", NULL, NULL, 0, BIG},
    {"decay-steps", FLAG_INTEGER, FLAG_KEPT, AT(decay_steps), "N", NULL, "default --steps",
     "the step at which the rate has fallen to --min-lr", NULL, NULL, 1, BIG},
    {"beta1", FLAG_REAL, FLAG_KEPT, AT(beta1), "X", "0.9", NULL, "decay of the mean of gradients", NULL, NULL, 0, 0.999999999},
    {"beta2", FLAG_REAL, FLAG_KEPT, AT(beta2), "X", "0.99", NULL, "decay of the mean of their squares", NULL, NULL, 0, 0.999999999},
    {"epsilon", FLAG_REAL, FLAG_KEPT, AT(epsilon), "X", "1e-8", NULL, "added to the root of that mean", NULL, NULL, 0, 1},
    {"weight-decay", FLAG_REAL, FLAG_KEPT, AT(weight_decay), "X", NULL, "default 0.1; 0 with adam",
     "decay of weights, biases and norms apart (adamw)", NULL, NULL, 0, 1000},
    {"l2", FLAG_REAL, FLAG_KEPT, AT(l2), "X", "0", NULL, "penalty on squared weights in the loss", NULL, NULL, 0, 1000},
    {"clip", FLAG_REAL, FLAG_KEPT, AT(clip), "X", "1", NULL, "longest gradient over all weights; 0: any", NULL, NULL, 0, 1e30},
    {"label-smoothing", FLAG_REAL, FLAG_KEPT, AT(label_smoothing), "X", NULL, "default 0; seq2seq 0.1",
     "part of the probability that is spread over all tokens", NULL, NULL, 0, 1},
    {"seed", FLAG_SEED, FLAG_KEPT, AT(seed), "N", "1", NULL, "of first weights, order of data and dropout", NULL, NULL, 0, 0},

    {"eval-every", FLAG_INTEGER, FLAG_FREE, AT(eval_every), "N", NULL, "default about 20 in a run, fewer when they take long",
     "steps between evaluations, which also save", "The run", NULL, 1, BIG},
    {"choose", FLAG_CHOICE, FLAG_KEPT, AT(choose), "BY", "error", NULL,
     "seq2seq: the model that is kept: least error or loss in validation, or the last", NULL, choices, 0, 0},
    {"average", FLAG_INTEGER, FLAG_KEPT, AT(average), "N", "1", NULL, "seq2seq: the kept model is the mean of the last N evaluated ones",
     NULL, NULL, 1, 100},
    {"patience", FLAG_INTEGER, FLAG_KEPT, AT(patience), "N", "0", NULL, "seq2seq: stop after N evaluations without gain; 0: never", NULL,
     NULL, 0, BIG},
    {"threads", FLAG_INTEGER, FLAG_FREE, AT(threads), "N", NULL, "default all processors",
     "threads that compute; the result is the same for any number", NULL, NULL, 1, 256},
};

const flag_set train_flags = {"train", NULL, flags, sizeof flags / sizeof *flags};
_Static_assert(sizeof flags / sizeof *flags <= MOST_FLAGS, "more flags than parsed.given has room for");
