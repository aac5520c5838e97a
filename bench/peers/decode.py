#!/usr/bin/env python3
"""Decoding speed of a model of "attn train --task seq2seq" beside the same weights in PyTorch, in turns, and whether both give the same.

    python3 bench/peers/decode.py --program build/attn --model DIR --input WORDS [--threads 1,2] [--batch 1,64] [--beam 1] [--rounds 5] [--words N]

WORDS has a source in the first column of every line. Each side turns lists of source tokens into lists of target tokens, batch by batch in
the order of the file: libattn by its C interface from Python, one call a step; PyTorch eager, in inference mode, with the keys and values of
the target kept and those of the source projected once. Loading is not measured. Each round measures both; a ratio is the median of the rounds'.
"""
import argparse
import json
import os
import statistics
import struct
import sys
import time

try:
    import numpy
    import torch
    from torch.nn import functional as F
except ImportError as absent:
    sys.exit(f"decode.py compares with PyTorch, which wants numpy: {absent.name} is absent")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from pair_model import PairModel, binding, model_file, read_words  # noqa: E402

# what the PyTorch model below is written for: options of include/attn/transformer.h by their numbers
EXPECTED = {"dtype": 1, "norm": 0, "gated": 0, "learned_beta": 0, "parallel_block": 0, "positions": 1, "embedding_norm": 0, "output_head": 1,
            "output_bias": 0, "patch_values": 0, "segment_types": 0, "soft_cap": 0, "scaled_scores": 1, "query_key_norm": 0, "gated_attention": 0}
ACTIVATIONS = {1: torch.relu, 2: F.gelu, 3: lambda x: F.gelu(x, approximate="tanh"), 5: torch.sigmoid, 6: torch.tanh}


def read_model(path):
    """Tensors by name, those that share memory too, and the options."""
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    about = header.pop("__metadata__")
    options = json.loads(about["attn.options"])
    for name, number in EXPECTED.items():
        if options[name] != number:
            sys.exit(f"{path}: its option {name} is {options[name]}; the PyTorch model here is written for {number}")
    if options["activation"] not in ACTIVATIONS or options["key_heads"] != options["heads"] or "attn.heads" in about:
        sys.exit(f"{path}: the PyTorch model here has no such activation, or no such heads")
    if options["encoder_layers"] == 0 or options["decoder_layers"] == 0:
        sys.exit(f"{path}: expected an encoder and a decoder")
    weights = {name: torch.from_numpy(numpy.frombuffer(data, numpy.float32, (t["data_offsets"][1] - t["data_offsets"][0]) // 4,
                                                       t["data_offsets"][0]).reshape(t["shape"]).copy()) for name, t in header.items()}
    for name, of in about.items():
        if name.startswith("attn.alias."):
            weights[name[len("attn.alias."):]] = weights[of]
    return weights, options


class Twin:
    """The model in PyTorch. Queries, keys and values of self-attention are one product, keys and values of all cross-attentions another."""

    def __init__(self, weights, options, stop):
        self.stop, self.context, self.scale = stop, options["context"], options["embedding_scale"]
        self.pre, self.epsilon, self.activation = options["norm_placement"] == 1, options["norm_epsilon"], ACTIVATIONS[options["activation"]]
        self.heads = {"encoder": options["heads"], "decoder": options["decoder_heads"]}
        self.table = {"encoder": weights.get("source_embedding.weight", weights["target_embedding.weight"]),
                      "decoder": weights["target_embedding.weight"]}
        self.output = weights["output.weight"]
        self.layers = {side: [self.layer(weights, f"{side}.layers.{i}.") for i in range(options[side + "_layers"])] for side in self.heads}
        self.final = {side: self.pair(weights, side + ".final_norm") for side in self.heads}
        crosses = [f"decoder.layers.{i}.cross_attention.{name}" for i in range(options["decoder_layers"]) for name in ("key", "value")]
        self.cross = self.stack(weights, crosses)
        self.waves = {side: self.sinusoids(self.context + 1, self.table[side].shape[1]) for side in self.heads}

    @staticmethod
    def pair(weights, name):
        return weights.get(name + ".weight"), weights.get(name + ".bias")

    @staticmethod
    def stack(weights, names):
        biases = [weights[name + ".bias"] for name in names if name + ".bias" in weights]
        return torch.cat([weights[name + ".weight"] for name in names]), torch.cat(biases) if biases else None

    def layer(self, weights, prefix):
        names = ("self_attention_norm", "self_attention.output", "cross_attention_norm", "cross_attention.query", "cross_attention.output",
                 "feed_forward_norm", "feed_forward.input", "feed_forward.output")
        found = {name: self.pair(weights, prefix + name) for name in names}
        found["self_attention"] = self.stack(weights, [f"{prefix}self_attention.{name}" for name in ("query", "key", "value")])
        return found

    @staticmethod
    def sinusoids(positions, width):
        angle = torch.arange(positions, dtype=torch.float64)[:, None] / 10000 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
        return torch.stack((angle.sin(), angle.cos()), 2).flatten(1)[:, :width].float()

    def norm(self, x, weight, bias):
        return x if weight is None else F.layer_norm(x, x.shape[-1:], weight, bias, self.epsilon)

    def add(self, x, norm, part):
        """x and what the part makes of it, the norm where the model has it"""
        return x + part(self.norm(x, *norm)) if self.pre else self.norm(x + part(x), *norm)

    def feed_forward(self, layer, x):
        def part(h):
            return F.linear(self.activation(F.linear(h, *layer["feed_forward.input"])), *layer["feed_forward.output"])
        return self.add(x, layer["feed_forward_norm"], part)

    def encode(self, sources):
        """Keys and values of all cross-attentions [layers, batch, 2, heads, length, size], and which of them are there (None: all)."""
        batch, length = len(sources), max(map(len, sources))
        tokens = torch.tensor([one + [0] * (length - len(one)) for one in sources])
        lengths, mask, heads = [len(one) for one in sources], None, self.heads["encoder"]
        if min(lengths) < length:
            mask = (torch.arange(length) < torch.tensor(lengths)[:, None])[:, None, None]
        x = F.embedding(tokens, self.table["encoder"]) * self.scale + self.waves["encoder"][:length]
        for layer in self.layers["encoder"]:
            def attend(h, layer=layer):
                q, k, v = F.linear(h, *layer["self_attention"]).view(batch, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
                y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
                return F.linear(y.transpose(1, 2).reshape(batch, length, -1), *layer["self_attention.output"])
            x = self.feed_forward(layer, self.add(x, layer["self_attention_norm"], attend))
        x = self.norm(x, *self.final["encoder"])
        both = F.linear(x, *self.cross).view(batch, length, len(self.layers["decoder"]), 2, self.heads["decoder"], -1)
        return both.permute(2, 0, 3, 4, 1, 5).contiguous(), mask

    def caches(self, rows):
        heads = self.heads["decoder"]
        size = self.layers["decoder"][0]["self_attention"][0].shape[0] // 3 // heads
        return torch.empty(len(self.layers["decoder"]), rows, 2, heads, self.context + 1, size)

    def step(self, tokens, position, caches, memory, mask):
        """Logits of what follows the newest tokens [rows], rows being hypotheses of the sequences of the memory."""
        rows, heads, sequences = len(tokens), self.heads["decoder"], memory.shape[1]
        x = F.embedding(tokens, self.table["decoder"]) * self.scale + self.waves["decoder"][position]
        newest, seen, sources = caches[..., position, :].unbind(0), caches[..., :position + 1, :].unbind(0), memory.unbind(0)
        for i, layer in enumerate(self.layers["decoder"]):
            def attend(h, layer=layer, i=i):
                q, both = F.linear(h, *layer["self_attention"]).view(rows, 3, heads, -1).split((1, 2), 1)
                newest[i].copy_(both)
                y = F.scaled_dot_product_attention(q.transpose(1, 2), *seen[i].unbind(1))
                return F.linear(y.reshape(rows, -1), *layer["self_attention.output"])

            def look(h, layer=layer, i=i):  # the hypotheses of a sequence are queries to the same keys
                q = F.linear(h, *layer["cross_attention.query"]).view(sequences, rows // sequences, heads, -1).transpose(1, 2)
                y = F.scaled_dot_product_attention(q, *sources[i].unbind(1), attn_mask=mask)
                return F.linear(y.transpose(1, 2).reshape(rows, -1), *layer["cross_attention.output"])
            x = self.add(x, layer["self_attention_norm"], attend)
            x = self.feed_forward(layer, self.add(x, layer["cross_attention_norm"], look))
        return F.linear(self.norm(x, *self.final["decoder"]), self.output)

    @torch.inference_mode()
    def greedy(self, sources):
        memory, mask = self.encode(sources)
        caches, targets, owner = self.caches(len(sources)), [[] for _ in sources], list(range(len(sources)))
        tokens = torch.full((len(sources),), self.stop)
        for position in range(self.context):
            tokens = self.step(tokens, position, caches, memory, mask).argmax(1)
            for row, token in enumerate(tokens.tolist()):
                if owner[row] is not None and token != self.stop:
                    targets[owner[row]].append(token)
                else:
                    owner[row] = None
            left = [row for row, of in enumerate(owner) if of is not None]
            if not left:
                break
            if 2 * len(left) <= len(owner):  # what has ended is carried along until half of the rows have
                tokens, caches, memory = tokens[left], caches[:, left], memory[:, left]
                mask, owner = None if mask is None else mask[left], [owner[row] for row in left]
        return targets

    @torch.inference_mode()
    def search(self, sources, beam):
        """The search that include/attn/generator.h describes, with the mean of log p as rank."""
        memory, mask = self.encode(sources)
        caches, searches = self.caches(len(sources) * beam), [Search(beam, self.stop, self.context) for _ in sources]
        live, tokens = searches, torch.full((len(sources) * beam,), self.stop)
        for position in range(self.context):
            log_p = self.step(tokens, position, caches, memory, mask).log_softmax(1).double().view(len(live), beam, -1)
            sums = torch.tensor([one.scores for one in live], dtype=torch.float64)[:, :, None] + log_p
            best, at = sums.flatten(1).topk(2 * beam)
            parents = [one.extend(*candidates, log_p.shape[2]) for one, *candidates in zip(live, best.tolist(), at.tolist())]
            kept = [i for i, one in enumerate(live) if not one.ended]
            if not kept:
                break
            if 2 * len(kept) > len(live):
                kept = list(range(len(live)))
            rows = torch.tensor([i * beam + parent for i in kept for parent in parents[i]])
            if len(kept) < len(live):
                memory, mask, live = memory[:, kept], None if mask is None else mask[kept], [live[i] for i in kept]
            seen = caches[..., :position + 1, :].index_select(1, rows)
            caches = caches[:, :len(rows)]
            caches[..., :position + 1, :] = seen
            tokens = torch.tensor([token for one in live for token in one.newest])
        return [one.finished[0][1] for one in searches]

    def decode(self, sources, beam):
        return self.greedy(sources) if beam == 1 else self.search(sources, beam)


class Search:
    """The hypotheses of one sequence; those that are not there have the score minus infinity."""

    def __init__(self, beam, stop, most):
        self.beam, self.stop, self.most, self.ended = beam, stop, most, False
        self.scores, self.texts, self.newest = [0.0] + [-float("inf")] * (beam - 1), [[]] * beam, [stop] * beam
        self.finished = []  # rank, text; the best first

    def keep(self, score, length, text):
        self.finished.append((score / length, text))
        self.finished.sort(key=lambda one: -one[0])
        del self.finished[self.beam:]

    def extend(self, best, at, vocabulary):
        """Takes the best candidates; the rows the next hypotheses come from."""
        if self.ended:
            return list(range(self.beam))
        live = []
        for i, (score, place) in enumerate(zip(best, at)):
            row, token = divmod(place, vocabulary)
            if score == -float("inf"):
                continue
            if token != self.stop and len(live) < self.beam:
                live.append((score, row, self.texts[row] + [token]))
            elif token == self.stop and i < self.beam:
                self.keep(score, len(self.texts[row]) + 1, self.texts[row])
        if live and len(live[0][2]) >= self.most:
            for score, _, text in live:
                self.keep(score, len(text), text)
            live = []
        self.ended = not live or (len(self.finished) == self.beam and not live[0][0] / (len(live[0][2]) + 1) > self.finished[-1][0])
        live += [(-float("inf"), 0, [self.stop])] * (self.beam - len(live))
        self.scores, self.texts, self.newest = [one[0] for one in live], [one[2] for one in live], [one[2][-1] for one in live]
        return [one[1] for one in live]


def words_per_second(decode, batches):
    begin = time.perf_counter()
    targets = [target for batch in batches for target in decode(batch)]
    return len(targets) / (time.perf_counter() - begin), targets


def measure(ours, theirs, words, sources, batch, rounds):
    """Medians of both speeds and of their ratio, the extremes of the ratio, and the words that come out different."""
    batches = [sources[i:i + batch] for i in range(0, len(sources), batch)]
    given = [words_per_second(decode, batches)[1] for decode in (ours, theirs)]  # warms up
    speeds = []
    for i in range(rounds):
        pair = {}
        for decode in (ours, theirs) if i % 2 == 0 else (theirs, ours):
            time.sleep(0.05)  # the other side's threads may still be looking for work
            pair[decode] = words_per_second(decode, batches)[0]
        speeds.append((pair[ours], pair[theirs]))
    ratios = [a / b for a, b in speeds]
    return ([statistics.median(side) for side in zip(*speeds)], statistics.median(ratios), min(ratios), max(ratios),
            [word for word, a, b in zip(words, *given) if a != b])


def numbers(text):
    return [int(number) for number in text.split(",")]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", default="build/attn")
    p.add_argument("--model", required=True)
    p.add_argument("--input", required=True)
    p.add_argument("--threads", type=numbers, default=[1, 2])
    p.add_argument("--batch", type=numbers, default=[1, 64])
    p.add_argument("--beam", type=int, default=1)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--words", type=int, help="only the first so many")
    a = p.parse_args()
    weights, options = read_model(model_file(a.model))
    attn, words, most = binding(a.program), read_words(a.input)[:a.words], options["context"]
    models = {threads: PairModel(attn, a.model, threads) for threads in a.threads}
    sources = [models[a.threads[0]].encode(word) for word in words]
    for word, source in zip(words, sources):
        if len(source) > most + 1:
            sys.exit(f"{a.input}: {word} has {len(source) - 1} tokens, expected at most the context of {most}")
    twin = Twin(weights, options, models[a.threads[0]].stop)
    print(f"{len(words)} words of {a.input}, beam {a.beam}, {a.rounds} rounds; libattn {attn.lib.attn_version().decode()}, PyTorch {torch.__version__}\n")
    print("| batch | threads | libattn, words/s | PyTorch, words/s | ratio | least to most | same targets |\n|---:|---:|---:|---:|---:|---|---|")
    others = set()
    for batch in a.batch:
        for threads in a.threads:
            torch.set_num_threads(threads)
            (ours, theirs), ratio, least, most_ratio, other = measure(
                lambda some: models[threads].decode(some, a.beam), lambda some: twin.decode(some, a.beam), words, sources, batch, a.rounds)
            print(f"| {batch} | {threads} | {ours:.0f} | {theirs:.0f} | {ratio:.2f} | {least:.2f} to {most_ratio:.2f} | "
                  f"{len(words) - len(other)} of {len(words)} |", flush=True)
            others.update(other)
    if others:
        print(f"\nnot the same: {', '.join(sorted(others))}")
    if len(others) > 0.001 * len(words):
        sys.exit("the two agree on fewer than 99.9 % of the words")


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")
