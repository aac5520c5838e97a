#include <stdio.h>
#include <string.h>
#include "bench_attention.h"
#include "bench_layers.h"

static const char HELP[] =
    "attn-bench: what libattn's speed is, as ratios within one run\n"
    "\n"
    "  attn-bench step --config NAME [--threads N] [--rounds N] [--json]\n"
    "      the time of one training step over the time of its matrix products alone, measured in turns, threads pinned.\n"
    "      NAME: gpt-char, gpt-small, transformer-base, or all\n"
    "\n"
    "  attn-bench attention [--variants NAME,NAME] [--from N] [--to N] [--heads N] [--size N] [--threads N] [--json] [--svg FILE]\n"
    "      forward and backward of attention by mask and length: time, memory beyond inputs, outputs and gradients, and the power of\n"
    "      n by which time grows. NAME: full, causal, window, longformer, bigbird, fixed, logarithmic, tenth\n"
    "\n"
    "  attn-bench layers [--layers NAME,NAME] [--from N] [--to N] [--width N] [--heads N] [--window N] [--taps N] [--threads N]\n"
    "      [--seconds X] [--json] [--markdown] [--svg FILE]\n"
    "      Table 3.1 of the monograph measured: forward, and forward and backward, of layers that take and give rows of one width, by\n"
    "      length, beside their multiply-adds, sequential steps and path length. NAME: self-attention (multi-head, projections and\n"
    "      all), dot-product (its operation alone), window (causal, --window keys), tanh, lstm (input products in them), convolution\n"
    "\n"
    "The products: forward, dX and dW of every linear layer, and 2 + 5 products of every 64 by 64 block of attention on or below the\n"
    "diagonal; nothing recomputed, buffers cycled as in the step, single-threaded sgemm tiles on the same threads.\n";

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "attention") == 0) return bench_attention(argc - 2, argv + 2);
    if (argc > 1 && strcmp(argv[1], "layers") == 0) return bench_layers(argc - 2, argv + 2);
    if (argc > 1 && strcmp(argv[1], "step") == 0) return bench_step(argc - 2, argv + 2);
    int help = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0);
    fputs(HELP, help ? stdout : stderr);
    return help ? 0 : 2;
}
