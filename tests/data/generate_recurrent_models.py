#!/usr/bin/env python3
"""Makes recurrent_models.safetensors beside this file with PyTorch: python3 generate_recurrent_models.py

Whole recurrent models: nn.LSTM or nn.RNN over packed sequences as the encoder, a cell of the same kind for each layer of the decoder, whose first
one reads the embedded token beside the context vector of the step before (input feeding). As generate.py does: float64 from inputs and weights
that are float32 numbers, results float64, names of parameters those of libattn."""
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

import generate
from generate import exact, integers, tokens_of, write
from generate_recurrent import rows_of

SMOOTHING = 0.1


class RecurrentModel(nn.Module):
    def __init__(self, kind, score, encoder, decoder, width, decoder_width, two_way, tied=False, sources=7, targets=5, output_bias=False,
                 soft_cap=0):
        super().__init__()
        real, lstm = dict(dtype=torch.float64), kind == "lstm"
        self.lstm, self.score, self.two_way, self.tied, self.width, self.soft_cap = lstm, score, two_way, tied, decoder_width, soft_cap
        self.target_table = nn.Embedding(targets, decoder_width, **real)
        self.encoder = None
        if encoder > 0:
            self.source_table = self.target_table if tied else nn.Embedding(sources, width, **real)
            self.encoder = (nn.LSTM if lstm else nn.RNN)(width, width // 2 if two_way else width, encoder, bidirectional=two_way, **real)
            self.start = nn.Linear(width, decoder * decoder_width * (2 if lstm else 1), **real)
        context = width if score else 0
        cell = nn.LSTMCell if lstm else nn.RNNCell
        self.cells = nn.ModuleList(cell(decoder_width + (context if i == 0 else 0), decoder_width, **real) for i in range(decoder))
        if score == "additive":
            self.query, self.key = nn.Linear(decoder_width, decoder_width, bias=False, **real), nn.Linear(width, decoder_width, **real)
            self.vector = nn.Linear(decoder_width, 1, bias=False, **real)
        if score == "bilinear":
            self.matrix = nn.Linear(decoder_width, width, bias=False, **real)
        self.readout = nn.Linear(decoder_width + context, decoder_width, **real)
        self.output = nn.Linear(decoder_width, targets, bias=output_bias, **real)
        if tied:
            self.output.weight = self.target_table.weight
        for p in self.parameters():
            p.data = exact(*p.shape, scale=1 / math.sqrt(p.shape[-1]) if p.dim() > 1 else 0.3)
        for recurrent in ([self.encoder] if self.encoder is not None else []) + list(self.cells):  # one bias in libattn: halves are exact
            for name, p in recurrent.named_parameters():
                if name.startswith("bias_hh"):
                    p.data = getattr(recurrent, name.replace("hh", "ih")).data.clone()

    def scores(self, state, memory):
        """state [pairs, width], memory [longest, pairs, width] to [longest, pairs]"""
        if self.score == "additive":
            return self.vector(torch.tanh(self.query(state) + self.key(memory)))[..., 0]
        s = (memory * (self.matrix(state) if self.score == "bilinear" else state)).sum(-1)
        return self.soft_cap * torch.tanh(s / self.soft_cap) if self.soft_cap > 0 else s

    def forward(self, source, target):
        """logits of the rows of all targets, one after the other"""
        pairs, layers = len(target), len(self.cells)
        hidden = [torch.zeros(pairs, self.width, dtype=torch.float64)] * layers
        cell = list(hidden)
        if self.encoder is not None:
            lengths = torch.tensor([len(s) for s in source])
            packed = pack_padded_sequence(self.source_table(pad_sequence(source)), lengths, enforce_sorted=False)
            rows, last = self.encoder(packed)
            memory = pad_packed_sequence(rows)[0]
            last = last[0] if self.lstm else last
            first = torch.tanh(self.start(torch.cat((last[-2], last[-1]), 1) if self.two_way else last[-1]))
            parts = first.split(self.width, 1)  # hidden state and cell of each layer
            hidden, cell = (list(parts[::2]), list(parts[1::2])) if self.lstm else (list(parts), cell)
            beyond = torch.arange(len(memory))[:, None] >= lengths
            context = torch.zeros(pairs, memory.shape[-1], dtype=torch.float64)
        made = []
        for word in self.target_table(pad_sequence(target)):
            below = torch.cat((word, context), 1) if self.score else word
            for i, layer in enumerate(self.cells):
                if self.lstm:
                    hidden[i], cell[i] = layer(below, (hidden[i], cell[i]))
                else:
                    hidden[i] = layer(below, hidden[i])
                below = hidden[i]
            if self.score:
                weights = self.scores(below, memory).masked_fill(beyond, -math.inf).softmax(0)
                context = (weights[..., None] * memory).sum(0)
            made.append(torch.cat((below, context), 1) if self.score else below)
        return self.output(torch.tanh(self.readout(rows_of(torch.stack(made), [len(t) for t in target]))))

    def names(self, grad=False):
        take = (lambda p: p.grad) if grad else (lambda p: p)
        bias = (lambda r, end: getattr(r, "bias_ih" + end).grad) if grad else (lambda r, end: 2 * getattr(r, "bias_ih" + end))
        out = {"target_embedding.weight": take(self.target_table.weight)}

        def linear(name, module):
            out[name + ".weight"] = take(module.weight)
            if module.bias is not None:
                out[name + ".bias"] = take(module.bias)

        if self.encoder is not None:
            if not self.tied:
                out["source_embedding.weight"] = take(self.source_table.weight)
            for i in range(self.encoder.num_layers):
                for way, end in (("forward", f"_l{i}"), ("backward", f"_l{i}_reverse"))[: 2 if self.two_way else 1]:
                    name = f"encoder.layers.{i}.{way}."
                    out[name + "input.weight"] = take(getattr(self.encoder, "weight_ih" + end))
                    out[name + "input.bias"] = bias(self.encoder, end)
                    out[name + "hidden.weight"] = take(getattr(self.encoder, "weight_hh" + end))
            linear("decoder.start", self.start)
        for i, layer in enumerate(self.cells):
            name, words = f"decoder.layers.{i}.", take(layer.weight_ih)
            out[name + "input.weight"], out[name + "input.bias"] = words[:, : self.width], bias(layer, "")
            out[name + "hidden.weight"] = take(layer.weight_hh)
            if i == 0 and self.score:
                out["decoder.context.weight"] = words[:, self.width :]
        if self.score == "additive":
            linear("decoder.attention.query", self.query)
            linear("decoder.attention.key", self.key)
            out["decoder.attention.score.weight"] = take(self.vector.weight)
        if self.score == "bilinear":
            linear("decoder.attention.score", self.matrix)
        linear("decoder.readout", self.readout)
        if not self.tied:
            out["output.weight"] = take(self.output.weight)
        if self.output.bias is not None:
            out["output.bias"] = take(self.output.bias)
        return out


def models():
    tensors = {}
    cases = {
        "lstm_additive": RecurrentModel("lstm", "additive", 1, 1, 6, 6, True),
        "lstm_bilinear": RecurrentModel("lstm", "bilinear", 2, 2, 6, 5, True, soft_cap=0.5),
        "tanh_dot": RecurrentModel("tanh", "dot", 1, 2, 5, 5, False, tied=True, targets=7),
        "lstm_no_attention": RecurrentModel("lstm", None, 2, 1, 4, 5, True),
        "lstm_decoder": RecurrentModel("lstm", None, 0, 2, 5, 5, False, tied=True, targets=7, output_bias=True),
    }
    for name, model in cases.items():
        vocabulary = model.target_table.num_embeddings
        lists = {"target": tokens_of([4, 6, 2, 1], vocabulary), "labels": tokens_of([4, 6, 2, 1], vocabulary)}
        lists["labels"][1][2] = -1  # not counted
        if model.encoder is not None:
            lists["source"] = tokens_of([5, 1, 3, 7], 7)
        logits, labels = model(lists.get("source"), lists["target"]), torch.cat(lists["labels"])
        loss = F.cross_entropy(logits, labels, ignore_index=-1, label_smoothing=SMOOTHING)
        loss.backward()
        put = {f"weight.{k}": v.float() for k, v in model.names().items()}
        assert all(torch.equal(v.double(), model.names()[k[7:]]) for k, v in put.items())
        put.update({f"gradient.{k}": v for k, v in model.names(True).items()})
        put.update({"logits": logits, "loss": loss, "unsmoothed_loss": F.cross_entropy(logits, labels, ignore_index=-1)})
        put.update({k: torch.cat(v).int() for k, v in lists.items()})
        put.update({f"{k}_lengths": integers([len(x) for x in v]) for k, v in lists.items()})
        tensors.update({f"{name}.{k}": v for k, v in put.items()})
    write("recurrent_models", tensors, smoothing=SMOOTHING)


if __name__ == "__main__":
    torch.manual_seed(generate.SEED)
    models()
