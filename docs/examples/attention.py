"""Attention on numpy arrays by ctypes, forward and backward: python3 attention.py (ATTN_LIBRARY names the library when it is not installed)."""
import ctypes
import os

import numpy

attn = ctypes.CDLL(os.environ.get("ATTN_LIBRARY", "libattn.so.0"))
attn.attn_context_last_error.restype = ctypes.c_char_p


def call(name, *arguments):
    """Calls a function of the library; anything but 0 becomes an exception with the text of the context."""
    status = getattr(attn, name)(*arguments)
    if status != 0:
        raise RuntimeError(f"{name}: {status}: {attn.attn_context_last_error(context).decode()}")


def make(name, *arguments):
    handle = ctypes.c_void_p()
    call(name, *arguments, ctypes.byref(handle))
    return handle


def numbers(values):
    return (ctypes.c_int64 * len(values))(*values)


def wrap(array):
    """The array's memory as a float32 tensor (1), strides and all; the array must outlive it."""
    strides = numbers([s // array.itemsize for s in array.strides])
    return make("attn_tensor_wrap", context, 1, array.ndim, numbers(array.shape), strides, array.ctypes.data_as(ctypes.c_void_p))


context = ctypes.c_void_p()
call("attn_context_create", None, ctypes.byref(context))

# Two sequences of 3 and 4 tokens, two heads of size 8; query, key and value are parts of one array.
rows, heads, size = 7, 2, 8
qkv = numpy.random.default_rng(1).standard_normal((rows, 3, heads, size), dtype=numpy.float32)
arrays = [qkv[:, i] for i in range(3)]
gradients = [numpy.zeros((rows, heads, size), numpy.float32) for _ in range(3)]
output = numpy.zeros((rows, heads, size), numpy.float32)
tensors, wrapped, out = [wrap(a) for a in arrays], [wrap(g) for g in gradients], wrap(output)

layout = make("attn_layout_create", context, ctypes.c_int64(2))
call("attn_layout_set_lengths", context, layout, ctypes.c_int64(2), numbers([3, 4]), ctypes.c_int64(0))
causal = make("attn_mask_causal", context, 0)  # 0: the last query at the last key
tape = make("attn_tape_create", context)
call("attn_tape_begin", context, tape, None)
for tensor, gradient in zip(tensors, wrapped):
    call("attn_tape_watch", context, tape, tensor, gradient)
call("attn_dot_product_attention", context, tape, *tensors, layout, layout, causal, None, out)
call("attn_tape_backward", context, tape, ctypes.c_int64(1), ctypes.byref(out), None, ctypes.c_int64(0), None)  # of the output's sum

# The first token of a sequence sees itself alone: its output is its value.
print("output equals value:", numpy.allclose(output[3], arrays[2][3]), " sum of value gradients:", gradients[2].sum())
for kind, handles in (("tensor", tensors + wrapped + [out]), ("tape", [tape]), ("mask", [causal]), ("layout", [layout]), ("context", [context])):
    for handle in handles:
        getattr(attn, f"attn_{kind}_free")(handle)
