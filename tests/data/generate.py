#!/usr/bin/env python3
"""Makes the golden values beside this file with PyTorch: python3 generate.py

Everything is calculated in float64 from inputs and weights that are float32 numbers. Files are safetensors: inputs and weights float32
(exact), results float64. Version and seed are in the metadata. Names of parameters are those of libattn."""
import json
import math
import os
import struct

import torch
import torch.nn.functional as F
from torch import nn

SEED = 20240229
HERE = os.path.dirname(os.path.abspath(__file__))
TYPES = {torch.float32: "F32", torch.float64: "F64", torch.int32: "I32", torch.uint8: "U8"}


def write(name, tensors, **metadata):
    metadata = {"torch": torch.__version__, "seed": str(SEED), **{k: str(v) for k, v in metadata.items()}}
    header, data = {"__metadata__": metadata}, b""
    # widest elements first: every tensor is aligned
    for key, value in sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])):
        raw = value.detach().contiguous().numpy().tobytes()
        header[key] = {"dtype": TYPES[value.dtype], "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(HERE, name + ".safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    print(name, 8 + len(text) + len(data), "bytes")


def exact(*shape, scale=1.0):
    """float64 values that are float32 numbers"""
    return (torch.randn(*shape, dtype=torch.float64) * scale).float().double()


def integers(values):
    return torch.tensor(values, dtype=torch.int32)


# ---- attention ----
def attend(q, k, v, allowed):
    """one sequence: q [m, heads, size]; a query without keys gives zeros"""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    q, k, v = q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1)
    seen = allowed.any(-1, keepdim=True)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed | ~seen)
    return torch.where(seen, out, torch.zeros_like(out)).transpose(0, 1)


def attention():
    tensors = {}
    cases = {  # heads, key heads, size, value size, query lengths, key lengths, mask
        "plain": (3, 3, 4, 5, [5, 3, 0, 1], [4, 7, 2, 1], "none"),
        "causal": (2, 2, 3, 3, [5, 1, 4], [5, 1, 4], "causal"),
        "bottom_right": (2, 2, 4, 4, [2, 5, 1], [5, 2, 8], "causal"),
        "grouped": (6, 2, 4, 3, [4, 3], [6, 3], "causal"),
        "boolean": (2, 2, 4, 4, [4, 6], [5, 3], "boolean"),
        "head_of_one": (3, 1, 1, 1, [4, 2], [4, 2], "causal"),
    }
    for name, (heads, key_heads, size, value_size, m, n, mask) in cases.items():
        q, k = exact(sum(m), heads, size), exact(sum(n), key_heads, size)
        v, g = exact(sum(n), key_heads, value_size), exact(sum(m), heads, value_size)
        for x in (q, k, v):
            x.requires_grad_()
        chosen = torch.rand(len(m), heads, max(m), max(n)) < 0.6
        chosen[0, 0, 1] = False  # a query that sees nothing
        parts, i, j = [], 0, 0
        for s, (a, b) in enumerate(zip(m, n)):
            allowed = torch.ones(heads, a, b, dtype=torch.bool)
            if mask == "causal":
                allowed = allowed.tril(b - a)
            if mask == "boolean":
                allowed = chosen[s, :, :a, :b]
            if a > 0:
                parts.append(attend(q[i : i + a], k[j : j + b], v[j : j + b], allowed))
            i, j = i + a, j + b
        out = torch.cat(parts)
        out.backward(g)
        put = {"q": q.float(), "k": k.float(), "v": v.float(), "g": g.float(), "output": out, "dq": q.grad, "dk": k.grad, "dv": v.grad,
               "query_lengths": integers(m), "key_lengths": integers(n)}
        if mask == "boolean":
            put["allowed"] = chosen.to(torch.uint8)
        tensors.update({f"{name}.{key}": value for key, value in put.items()})
    write("attention", tensors)


# ---- modules under libattn's names ----
def attention_names(prefix, module, grad=False):
    take = (lambda p: p.grad) if grad else (lambda p: p)
    out = {}
    for i, part in enumerate(("query", "key", "value")):
        out[f"{prefix}.{part}.weight"] = take(module.in_proj_weight).chunk(3)[i]
        out[f"{prefix}.{part}.bias"] = take(module.in_proj_bias).chunk(3)[i]
    out[f"{prefix}.output.weight"], out[f"{prefix}.output.bias"] = take(module.out_proj.weight), take(module.out_proj.bias)
    return out


def layer_names(layer, grad=False):
    take = (lambda p: p.grad) if grad else (lambda p: p)
    cross = isinstance(layer, nn.TransformerDecoderLayer)
    out = attention_names("self_attention", layer.self_attn, grad)
    if cross:
        out.update(attention_names("cross_attention", layer.multihead_attn, grad))
    norms = ["self_attention", "cross_attention", "feed_forward"] if cross else ["self_attention", "feed_forward"]
    for norm, name in zip((layer.norm1, layer.norm2, getattr(layer, "norm3", None)), norms):
        out[f"{name}_norm.weight"], out[f"{name}_norm.bias"] = take(norm.weight), take(norm.bias)
    for linear, name in ((layer.linear1, "input"), (layer.linear2, "output")):
        out[f"feed_forward.{name}.weight"], out[f"feed_forward.{name}.bias"] = take(linear.weight), take(linear.bias)
    return out


def scramble(module):
    """weights of no special form, biases and norms included"""
    for name, p in module.named_parameters():
        if p.dim() > 1:
            p.data = exact(*p.shape, scale=1 / math.sqrt(p.shape[-1]))
        else:
            p.data = exact(*p.shape, scale=0.1) + (1 if "norm" in name and "weight" in name else 0)
        p.data = p.data.float().double()


def causal(n):
    return torch.ones(n, n, dtype=torch.bool).triu(1)


def layers():
    tensors, width, heads, hidden = {}, 8, 2, 12
    for name, cross, pre, act in (("encoder_post_relu", 0, 0, "relu"), ("encoder_pre_gelu", 0, 1, "gelu"), ("decoder_post_gelu", 1, 0, "gelu"),
                                  ("decoder_pre_relu", 1, 1, "relu")):
        kind = nn.TransformerDecoderLayer if cross else nn.TransformerEncoderLayer
        layer = kind(width, heads, hidden, 0.0, act, 1e-5, norm_first=bool(pre), dtype=torch.float64)
        scramble(layer)
        lengths, memory_lengths = [3, 5], [4, 2]
        x, memory, g = exact(8, width), exact(6, width), exact(8, width)
        x.requires_grad_()
        memory.requires_grad_()
        if cross:
            out = torch.cat([layer(a, b, tgt_mask=causal(len(a))) for a, b in zip(x.split(lengths), memory.split(memory_lengths))])
        else:
            out = torch.cat([layer(a) for a in x.split(lengths)])
        out.backward(g)
        put = {"x": x.float(), "g": g.float(), "output": out, "dx": x.grad, "lengths": integers(lengths)}
        if cross:
            put.update({"memory": memory.float(), "dmemory": memory.grad, "memory_lengths": integers(memory_lengths)})
        put.update({"weight.layers.0." + k: v.float() for k, v in layer_names(layer).items()})
        put.update({"gradient.layers.0." + k: v for k, v in layer_names(layer, True).items()})
        tensors.update({f"{name}.{key}": value for key, value in put.items()})
    write("layers", tensors, width=width, heads=heads, feed_forward=hidden)


# ---- whole models ----
class EncoderDecoder(nn.Module):
    """the Transformer of 2017: post-norm, sinusoids, scaled and shared embeddings"""

    def __init__(self, vocabulary, width, heads, hidden, count):
        super().__init__()
        options = dict(dropout=0.0, activation="relu", layer_norm_eps=1e-6, dtype=torch.float64)
        self.width, self.table = width, nn.Embedding(vocabulary, width, dtype=torch.float64)
        self.encoder = nn.ModuleList(nn.TransformerEncoderLayer(width, heads, hidden, **options) for _ in range(count))
        self.decoder = nn.ModuleList(nn.TransformerDecoderLayer(width, heads, hidden, **options) for _ in range(count))
        scramble(self)
        self.table.weight.data = exact(vocabulary, width, scale=1 / math.sqrt(width))

    def embed(self, tokens):
        position = torch.arange(len(tokens), dtype=torch.float64)[:, None]
        angle = position / 10000 ** (torch.arange(0, self.width, 2, dtype=torch.float64) / self.width)
        wave = torch.stack((angle.sin(), angle.cos()), -1).reshape(len(tokens), self.width)
        return self.table(tokens) * math.sqrt(self.width) + wave

    def forward(self, source, target):
        memory, x = self.embed(source), self.embed(target)
        for layer in self.encoder:
            memory = layer(memory)
        for layer in self.decoder:
            x = layer(x, memory, tgt_mask=causal(len(x)))
        return x @ self.table.weight.T

    def names(self, grad=False):
        out = {"target_embedding.weight": self.table.weight.grad if grad else self.table.weight}
        for side, stack in (("encoder", self.encoder), ("decoder", self.decoder)):
            for i, layer in enumerate(stack):
                out.update({f"{side}.layers.{i}.{k}": v for k, v in layer_names(layer, grad).items()})
        return out


class Gpt(nn.Module):
    """GPT-2: pre-norm, learned positions, tanh GELU, tied"""

    def __init__(self, vocabulary, width, heads, hidden, count, context):
        super().__init__()
        self.table, self.positions = nn.Embedding(vocabulary, width, dtype=torch.float64), nn.Embedding(context, width, dtype=torch.float64)
        gelu = lambda x: F.gelu(x, approximate="tanh")
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(width, heads, hidden, 0.0, gelu, 1e-5, norm_first=True, dtype=torch.float64)
                                    for _ in range(count))
        self.final_norm = nn.LayerNorm(width, 1e-5, dtype=torch.float64)
        scramble(self)

    def forward(self, tokens):
        x = self.table(tokens) + self.positions.weight[: len(tokens)]
        for layer in self.layers:
            x = layer(x, src_mask=causal(len(x)))
        return self.final_norm(x) @ self.table.weight.T

    def names(self, grad=False):
        take = (lambda p: p.grad) if grad else (lambda p: p)
        out = {"target_embedding.weight": take(self.table.weight), "target_positions.weight": take(self.positions.weight),
               "decoder.final_norm.weight": take(self.final_norm.weight), "decoder.final_norm.bias": take(self.final_norm.bias)}
        for i, layer in enumerate(self.layers):
            out.update({f"decoder.layers.{i}.{k}": v for k, v in layer_names(layer, grad).items()})
        return out


def tokens_of(lengths, vocabulary):
    return [torch.randint(vocabulary, (n,)) for n in lengths]


def encoder_decoder():
    vocabulary, width, heads, hidden, count, smoothing = 13, 16, 4, 32, 2, 0.1
    model = EncoderDecoder(vocabulary, width, heads, hidden, count)
    source, target = tokens_of([5, 3, 7], vocabulary), tokens_of([4, 6, 2], vocabulary)
    labels = [torch.randint(vocabulary, t.shape) for t in target]
    labels[1][2] = -1  # not counted
    start = {k: v.detach().clone() for k, v in model.named_parameters()}
    everything = torch.cat(labels)

    def loss_of():
        logits = torch.cat([model(s, t) for s, t in zip(source, target)])
        plain = F.cross_entropy(logits, everything, ignore_index=-1)
        return logits, F.cross_entropy(logits, everything, ignore_index=-1, label_smoothing=smoothing), plain

    put = {f"weight.{k}": v.float() for k, v in model.names().items()}
    logits, loss, plain = loss_of()
    loss.backward()
    put.update({f"gradient.{k}": v.clone() for k, v in model.names(True).items()})
    put.update({"logits": logits, "loss": loss, "unsmoothed_loss": plain})
    before = {k: v.detach().clone() for k, v in model.names().items()}
    recipe = dict(lr=2e-3, betas=(0.9, 0.98), eps=1e-6)
    for name, make in (("adam", lambda p: torch.optim.Adam(p, **recipe)), ("adamw", lambda p: torch.optim.AdamW(p, weight_decay=0.1, **recipe))):
        for k, v in model.named_parameters():
            v.data.copy_(start[k])
        optimizer, losses = make(model.parameters()), []
        for _ in range(10):
            optimizer.zero_grad()
            loss = loss_of()[1]
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        losses.append(loss_of()[1].item())
        put[f"{name}.losses"] = torch.tensor(losses, dtype=torch.float64)
        put.update({f"{name}.change.{k}": (v.detach() - before[k]).float() for k, v in model.names().items()})
    lists = {"source": source, "target": target, "labels": labels}
    put.update({k: torch.cat(v).int() for k, v in lists.items()})
    put.update({f"{k}_lengths": integers([len(x) for x in v]) for k, v in lists.items()})
    write("encoder_decoder", put, **recipe, weight_decay=0.1, smoothing=smoothing)


def gpt():
    vocabulary, width, heads, context = 11, 12, 3, 8
    model = Gpt(vocabulary, width, heads, 4 * width, 2, context)
    target = tokens_of([8, 1, 5], vocabulary)
    labels = [torch.randint(vocabulary, t.shape) for t in target]
    put = {f"weight.{k}": v.float() for k, v in model.names().items()}
    logits = torch.cat([model(t) for t in target])
    loss = F.cross_entropy(logits, torch.cat(labels))
    loss.backward()
    put.update({f"gradient.{k}": v for k, v in model.names(True).items()})
    put.update({"logits": logits, "loss": loss, "target": torch.cat(target).int(), "labels": torch.cat(labels).int(),
                "target_lengths": integers([len(t) for t in target])})
    write("gpt", put)


def points():
    put = {}
    x = torch.cat((torch.linspace(-8, 8, 65, dtype=torch.float64), torch.tensor([-30.0, -1e-3, 1e-3, 30.0]))).float().double()
    functions = {"gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "swish": F.silu, "sigmoid": torch.sigmoid,
                 "tanh": torch.tanh, "relu": F.relu}
    put["x"] = x.float()
    for name, function in functions.items():
        at = x.clone().requires_grad_()
        y = function(at)
        y.sum().backward()
        put[name], put[name + ".slope"] = y, at.grad
    rows, weight, bias, g = exact(5, 7), exact(7), exact(7), exact(5, 7)
    rows[1] = 3.25  # a constant row
    rows[2] += 1000
    rows = rows.float().double()
    put.update({"rows": rows.float(), "weight": weight.float(), "bias": bias.float(), "g": g.float()})
    for name, function in (("layer_norm", lambda r, w, b: F.layer_norm(r, (7,), w, b, 1e-5)), ("rms_norm", lambda r, w, b: F.rms_norm(r, (7,), w, 1e-5) + 0 * b)):
        r, w, b = (t.clone().requires_grad_() for t in (rows, weight, bias))
        y = function(r, w, b)
        y.backward(g)
        put.update({name: y, name + ".dx": r.grad, name + ".dweight": w.grad, name + ".dbias": b.grad})
    write("points", put)


if __name__ == "__main__":
    for part in (attention, layers, encoder_decoder, gpt, points):
        torch.manual_seed(SEED)
        part()
