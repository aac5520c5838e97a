#!/usr/bin/env python3
"""The training steps of `attn-bench step` in plain PyTorch: the same shapes, losses and optimizers.

    python3 bench/peers/step.py [--config gpt-char|gpt-small|transformer-base|all] [--threads N] [--rounds N]

Prints one JSON line for each configuration: step_ms, the median time of one step (forward, backward, clip, update), and products_ms, the
median time of the step's matrix products alone (forward, dX and dW of every linear layer, 2 + 5 products of attention), in turns.
"""
import argparse
import json
import math
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

# encoder layers, decoder layers, width, heads, feed-forward, vocabulary, batch, length
CONFIGS = {
    "gpt-char": (0, 4, 128, 4, 512, 65, 12, 64),
    "gpt-small": (0, 6, 384, 6, 1536, 65, 8, 256),
    "transformer-base": (6, 6, 512, 8, 2048, 8000, 8, 64),
}


class Attention(nn.Module):
    def __init__(self, width, heads, bias, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.q, self.kv, self.out = nn.Linear(width, width, bias), nn.Linear(width, 2 * width, bias), nn.Linear(width, width, bias)

    def forward(self, x, memory):
        b, n, c = x.shape
        split = lambda y: y.view(b, -1, self.heads, c // self.heads).transpose(1, 2)
        k, v = self.kv(memory).chunk(2, dim=2)
        y = F.scaled_dot_product_attention(split(self.q(x)), split(k), split(v), is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(b, n, c))


class Layer(nn.Module):
    def __init__(self, width, heads, hidden, decoder, cross, gpt):
        super().__init__()
        self.gpt, self.cross = gpt, Attention(width, heads, not gpt, False) if cross else None
        self.self_attention = Attention(width, heads, not gpt, decoder)
        self.up, self.down = nn.Linear(width, hidden, not gpt), nn.Linear(hidden, width, not gpt)
        self.norms = nn.ModuleList(nn.LayerNorm(width, eps=1e-5 if gpt else 1e-6, bias=not gpt) for _ in range(3 if cross else 2))

    def forward(self, x, memory=None):
        if self.gpt:
            h = self.norms[0](x)
            x = x + self.self_attention(h, h)
            return x + self.down(F.gelu(self.up(self.norms[1](x)), approximate="tanh"))
        x = self.norms[0](x + self.self_attention(x, x))
        if self.cross is not None:
            x = self.norms[1](x + self.cross(x, memory))
        return self.norms[-1](x + self.down(F.relu(self.up(x))))


class Model(nn.Module):
    def __init__(self, encoder, decoder, width, heads, hidden, vocabulary, length):
        super().__init__()
        self.gpt = encoder == 0
        self.source = None if self.gpt else nn.Embedding(vocabulary, width)
        self.target = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.encoder = nn.ModuleList(Layer(width, heads, hidden, False, False, False) for _ in range(encoder))
        self.decoder = nn.ModuleList(Layer(width, heads, hidden, True, encoder > 0, self.gpt) for _ in range(decoder))
        self.norm = nn.LayerNorm(width, eps=1e-5, bias=False) if self.gpt else nn.Identity()
        self.output = nn.Linear(width, vocabulary, bias=False)
        if self.gpt:
            self.output.weight = self.target.weight
        else:  # sinusoids are not trained
            self.positions.weight.requires_grad_(False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, source, target, labels, smoothing):
        where = self.positions.weight[: target.shape[1]]
        memory = None
        if not self.gpt:
            memory = self.source(source) * math.sqrt(where.shape[1]) + where
            for layer in self.encoder:
                memory = layer(memory)
        x = self.target(target) + where
        for layer in self.decoder:
            x = layer(x, memory)
        logits = self.output(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1), label_smoothing=smoothing)


def products(encoder, decoder, width, heads, hidden, vocabulary, batch, length):
    """Closures that run the products of one step."""
    rows, size, jobs = batch * length, width // heads, []
    linear = []
    for i in range(encoder + decoder):
        linear += [(width, 3 * width), (width, width), (width, hidden), (hidden, width)]
        if i >= encoder > 0:
            linear += [(width, width), (width, 2 * width), (width, width)]
    for inner, outer in linear + [(width, vocabulary)]:
        x, w, dy = torch.randn(rows, inner), torch.randn(outer, inner), torch.randn(rows, outer)
        jobs += [lambda x=x, w=w: x @ w.T, lambda dy=dy, w=w: dy @ w, lambda dy=dy, x=x: dy.T @ x]
    attentions = encoder + decoder * (2 if encoder else 1)
    for _ in range(attentions):
        q, s = torch.randn(batch * heads, length, size), torch.randn(batch * heads, length, length)
        jobs += [lambda q=q: q @ q.transpose(1, 2)] * 3 + [lambda q=q, s=s: s @ q] * 4
    return jobs


def timed(function):
    begin = time.perf_counter()
    function()
    return 1e3 * (time.perf_counter() - begin)


def measure(name, rounds):
    encoder, decoder, width, heads, hidden, vocabulary, batch, length = CONFIGS[name]
    model = Model(encoder, decoder, width, heads, hidden, vocabulary, length)
    trained = [p for p in model.parameters() if p.requires_grad]
    if encoder:
        optimizer, smoothing = torch.optim.Adam(trained, lr=1e-4), 0.1
    else:
        optimizer, smoothing = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.1), 0.0
    tokens = [torch.randint(vocabulary, (batch, length)) for _ in range(3)]
    jobs = products(encoder, decoder, width, heads, hidden, vocabulary, batch, length)

    def step():
        optimizer.zero_grad()
        model(*tokens, smoothing).backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()

    def bare():
        for job in jobs:
            job()

    for _ in range(2):
        step(), bare()
    pairs = [(timed(step), timed(bare)) for _ in range(rounds)]
    steps, bares = zip(*pairs)
    print(json.dumps({"config": name, "threads": torch.get_num_threads(), "step_ms": statistics.median(steps), "products_ms": statistics.median(bares), "ratio": statistics.median(a / b for a, b in pairs)}))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default="all", choices=[*CONFIGS, "all"])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=11)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    for name in CONFIGS if a.config == "all" else [a.config]:
        measure(name, a.rounds)


main()
