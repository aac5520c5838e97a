"""Forward and backward of causal attention in PyTorch, naive (softmax of whole matrices) and by its fused kernel, to be held beside
attn-bench attention --variants causal --from N --to N --heads H --size D --threads T in the same minute.

    python3 bench/peers/attention.py [--length 4096] [--heads 8] [--size 64] [--threads 2] [--rounds 5]
"""
import argparse
import math
import time

import torch


def median_ms(call, leaves, gradient, rounds):
    times = []
    for _ in range(rounds + 1):  # the first one warms up
        for x in leaves:
            x.grad = None
        begin = time.perf_counter()
        call().backward(gradient)
        times.append(time.perf_counter() - begin)
    return 1e3 * sorted(times[1:])[rounds // 2]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("length", 4096), ("heads", 8), ("size", 64), ("threads", 2), ("rounds", 5)):
        p.add_argument("--" + name, type=int, default=value)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    shape = (1, a.heads, a.length, a.size)
    q, k, v = (torch.randn(shape, requires_grad=True) for _ in range(3))
    gradient, seen = torch.randn(shape), torch.ones(a.length, a.length, dtype=torch.bool).tril()

    def naive():
        scores = (q @ k.transpose(-1, -2) / math.sqrt(a.size)).masked_fill(~seen, -math.inf)
        return torch.softmax(scores, -1) @ v

    def fused():
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    for name, call in (("fused", fused), ("naive", naive)):
        print(f"{name:6} n {a.length} heads {a.heads} size {a.size} threads {a.threads}: {median_ms(call, (q, k, v), gradient, a.rounds):.1f} ms")


if __name__ == "__main__":
    main()
