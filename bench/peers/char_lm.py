#!/usr/bin/env python3
"""nanoGPT's character-level CPU setting in plain PyTorch, under the evaluation that `attn train` uses.

    python3 bench/peers/char_lm.py input.txt --seed 1 [--threads 2] [--steps 2000]

4 layers, 4 heads, width 128, context 64, batch 12, 2,000 steps; no dropout, no biases, tied embeddings, learned positions, init 0.02,
norm epsilon 1e-5; AdamW 1e-3 to 1e-4 (cosine), warm-up 100, betas 0.9 and 0.99, decay 0.1 on matrices, clip 1. Prints one JSON line:
valid_loss over the whole validation part in windows that do not overlap, and the mean over 20 random batches.
"""
import argparse
import json
import math
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads, layers):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, eps=1e-5, bias=False)
        self.norm2 = nn.LayerNorm(width, eps=1e-5, bias=False)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)
        for layer in (self.qkv, self.up):
            nn.init.normal_(layer.weight, std=0.02)
        for layer in (self.out, self.down):
            nn.init.normal_(layer.weight, std=0.02 / math.sqrt(2 * layers))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, vocabulary, context=64, width=128, heads=4, layers=4):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(width, heads, layers) for _ in range(layers))
        self.norm = nn.LayerNorm(width, eps=1e-5, bias=False)

    def forward(self, x, y):
        h = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        logits = self.norm(h) @ self.tokens.weight.T
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), y.reshape(-1), reduction="sum")


@torch.no_grad()
def whole(model, data, context):
    """Every token of the part after its first scored once, in windows that do not overlap; the last one may be shorter."""
    total, count = 0.0, 0
    for start in range(0, len(data) - 1, context * 256):
        piece = data[start : start + context * 256 + 1]
        full = (len(piece) - 1) // context
        if full:
            x = piece[: full * context].view(full, context)
            y = piece[1 : full * context + 1].view(full, context)
            total, count = total + model(x, y).item(), count + y.numel()
        rest = piece[full * context :]
        if len(rest) > 1:
            total, count = total + model(rest[None, :-1], rest[None, 1:]).item(), count + len(rest) - 1
    return total / count, count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("text")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=2)
    a = parser.parse_args()
    torch.manual_seed(a.seed)
    torch.set_num_threads(a.threads)
    text = open(a.text, encoding="utf-8").read()
    symbols = sorted(set(text))
    index = {c: i for i, c in enumerate(symbols)}
    data = torch.tensor([index[c] for c in text])
    cut = int(0.9 * len(data))
    train, valid, context, batch, warmup = data[:cut], data[cut:], 64, 12, 100
    model = Model(len(symbols), context)
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=1e-3, betas=(0.9, 0.99), eps=1e-8)

    def draw(part):
        starts = torch.randint(len(part) - context, (batch,))
        return torch.stack([part[s : s + context] for s in starts]), torch.stack([part[s + 1 : s + context + 1] for s in starts])

    begin = time.time()
    for step in range(1, a.steps + 1):
        if step < warmup:
            rate = 1e-3 * step / warmup
        else:
            rate = 1e-4 + 0.5 * (1 + math.cos(math.pi * min(1, (step - warmup) / max(1, a.steps - warmup)))) * 9e-4
        for group in optimizer.param_groups:
            group["lr"] = rate
        x, y = draw(train)
        loss = model(x, y) / y.numel()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    seconds = time.time() - begin
    valid_loss, tokens = whole(model, valid, context)
    with torch.no_grad():
        random_batches = sum(model(*draw(valid)).item() / (batch * context) for _ in range(20)) / 20
    print(json.dumps({"seed": a.seed, "steps": a.steps, "valid_loss": valid_loss, "valid_tokens": tokens, "random_batches": random_batches, "train_loss": loss.item(), "seconds": seconds}))


main()
