#!/usr/bin/env python3
"""Makes recurrent.safetensors and convolution.safetensors beside this file with PyTorch: python3 generate_recurrent.py

As generate.py does: float64 from inputs and weights that are float32 numbers, results float64."""
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import generate
from generate import exact, integers, write


def rows_of(padded, lengths):
    """[longest, sequences, width] to rows, one sequence after the other"""
    return torch.cat([padded[:n, s] for s, n in enumerate(lengths)])


def recurrent():
    tensors, inputs, width = {}, 5, 4
    for kind, directions in (("tanh", 1), ("tanh", 2), ("lstm", 1), ("lstm", 2)):
        module, lengths = (nn.LSTM if kind == "lstm" else nn.RNN), [3, 6, 1, 4]
        layer = module(inputs, width, bidirectional=directions == 2, dtype=torch.float64)
        put = {"lengths": integers(lengths)}
        for name, p in layer.named_parameters():
            p.data = exact(*p.shape, scale=1 / math.sqrt(width))
        for way, end in (("forward", ""), ("backward", "_reverse"))[:directions]:
            bias = exact(getattr(layer, "bias_ih_l0" + end).shape[0], scale=0.3)  # one in libattn: halves of it are exact
            for part in ("bias_ih_l0", "bias_hh_l0"):
                getattr(layer, part + end).data = bias / 2
            put[f"{way}.input"], put[f"{way}.bias"] = getattr(layer, "weight_ih_l0" + end).float(), bias.float()
            put[f"{way}.weight"] = getattr(layer, "weight_hh_l0" + end).float()
        x = exact(max(lengths), len(lengths), inputs).requires_grad_()
        states = [exact(directions, len(lengths), width).requires_grad_() for _ in range(2 if kind == "lstm" else 1)]
        packed = pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False)
        out, finals = layer(packed, tuple(states) if kind == "lstm" else states[0])
        finals = finals if kind == "lstm" else (finals,)
        y = rows_of(pad_packed_sequence(out)[0], lengths)
        g, g_finals = exact(*y.shape), [exact(*f.shape) for f in finals]
        torch.autograd.backward([y, *finals], [g, *g_finals])
        put.update({"x": rows_of(x, lengths).float(), "dx": rows_of(x.grad, lengths), "g": g.float(), "output": y})
        for d, (way, end) in enumerate((("forward", ""), ("backward", "_reverse"))[:directions]):
            put[f"{way}.dinput"] = getattr(layer, "weight_ih_l0" + end).grad
            put[f"{way}.dbias"] = getattr(layer, "bias_ih_l0" + end).grad
            put[f"{way}.dweight"] = getattr(layer, "weight_hh_l0" + end).grad
            for state, final, g_final, name in zip(states, finals, g_finals, ("hidden", "cell")):
                put[f"{way}.{name}"], put[f"{way}.d{name}"] = state[d].float(), state.grad[d]
                put[f"{way}.final_{name}"], put[f"{way}.g_{name}"] = final[d], g_final[d].float()
        tensors.update({f"{kind}_{directions}.{key}": value for key, value in put.items()})
    write("recurrent", tensors)


def convolution():
    tensors, inputs, outputs, lengths = {}, 3, 4, [5, 1, 7]
    for name, taps, dilation, causal, biased in (("centred", 3, 1, 0, 1), ("dilated", 3, 2, 0, 1), ("even", 4, 1, 0, 0), ("causal", 4, 2, 1, 1)):
        layer = nn.Conv1d(inputs, outputs, taps, dilation=dilation, bias=bool(biased), dtype=torch.float64)
        for p in layer.parameters():
            p.data = exact(*p.shape, scale=0.5)
        x = exact(sum(lengths), inputs).requires_grad_()
        reach = dilation * (taps - 1)
        before = reach if causal else reach // 2
        y = torch.cat([layer(F.pad(part.T[None], (before, reach - before)))[0].T for part in x.split(lengths)])
        if not causal:  # PyTorch's own rule of the middle
            layer.padding, layer.padding_mode, layer._reversed_padding_repeated_twice = "same", "zeros", [before, reach - before]
            assert torch.allclose(y, torch.cat([layer(part.T[None])[0].T for part in x.split(lengths)]))
        g = exact(*y.shape)
        y.backward(g)
        side_by_side = lambda w: w.permute(0, 2, 1).reshape(outputs, taps * inputs)  # [out, in, taps] to [out, taps in]
        put = {"x": x.float(), "dx": x.grad, "g": g.float(), "output": y, "lengths": integers(lengths),
               "weight": side_by_side(layer.weight).float(), "dweight": side_by_side(layer.weight.grad)}
        if biased:
            put.update({"bias": layer.bias.float(), "dbias": layer.bias.grad})
        tensors.update({f"{name}.{key}": value for key, value in put.items()})
    write("convolution", tensors)


if __name__ == "__main__":
    for part in (recurrent, convolution):
        torch.manual_seed(generate.SEED)
        part()
