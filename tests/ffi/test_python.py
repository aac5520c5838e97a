"""Attention on numpy arrays by ctypes, forward and backward, against the formulas in numpy (float64). ATTN_LIBRARY names the library."""
import ctypes
import math
import os
import subprocess
import sys

try:
    import numpy
except ImportError:
    print("numpy is absent")
    sys.exit(77)
if os.environ.get("ATTN_SANITIZE"):
    print("a library under a sanitizer cannot be loaded into this python")
    sys.exit(77)

attn = ctypes.CDLL(os.environ["ATTN_LIBRARY"])
attn.attn_context_last_error.restype = ctypes.c_char_p
attn.attn_status_name.restype = ctypes.c_char_p
attn.attn_version.restype = ctypes.c_char_p
FLOAT32, FLOAT64, INVALID_ARGUMENT, SHAPE = 1, 2, -1, -2
TYPES = {numpy.dtype("float32"): FLOAT32, numpy.dtype("float64"): FLOAT64}
context = ctypes.c_void_p()


class DotProductOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint64), ("scale", ctypes.c_double), ("dropout", ctypes.c_double), ("soft_cap", ctypes.c_double),
                ("site", ctypes.c_uint64), ("derive_scale", ctypes.c_int32), ("reserved", ctypes.c_int32)]


class Segment(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("start", "length", "first_position", "sequence_id")]


def call(name, *arguments):
    status = getattr(attn, name)(*arguments)
    assert status == 0, f"{name}: {attn.attn_status_name(status).decode()}: {attn.attn_context_last_error(context).decode()}"


def fails(status, word, name, *arguments):
    got = getattr(attn, name)(*arguments)
    text = attn.attn_context_last_error(context).decode()
    assert got == status, f"{name}: got status {got}, expected {status}"
    assert word in text, f"{name}: no \"{word}\" in \"{text}\""


def make(name, *arguments):
    handle = ctypes.c_void_p()
    call(name, *arguments, ctypes.byref(handle))
    return handle


def integers(values):
    return (ctypes.c_int64 * len(values))(*values)


def wrap(array):
    strides = integers([s // array.itemsize for s in array.strides])
    data = array.ctypes.data_as(ctypes.c_void_p)
    return make("attn_tensor_wrap", context, TYPES[array.dtype], array.ndim, integers(array.shape), strides, data)


def layout_of(segments):
    layout = make("attn_layout_create", context, ctypes.c_int64(len(segments)))
    array = (Segment * len(segments))(*[Segment(*s) for s in segments])
    call("attn_layout_set", context, layout, ctypes.c_int64(len(segments)), array)
    return layout


def formula(query, key, value, d_output, queries, keys, causal, scale, soft_cap):
    """(2.24) and (6.13) to (6.18), head by head and segment by segment."""
    query, key, value, d_output = (a.astype(numpy.float64) for a in (query, key, value, d_output))
    output = numpy.zeros(query.shape[:2] + value.shape[2:])
    d_query, d_key, d_value = numpy.zeros_like(query), numpy.zeros_like(key), numpy.zeros_like(value)
    group = query.shape[1] // key.shape[1]
    for (q_start, m, _, _), (k_start, n, _, _) in zip(queries, keys):
        for head in range(query.shape[1]):
            q, k, v = query[q_start:q_start + m, head], key[k_start:k_start + n, head // group], value[k_start:k_start + n, head // group]
            seen = numpy.tril(numpy.ones((m, n)), n - m) if causal else numpy.ones((m, n))
            scores = scale * q @ k.T
            slope = numpy.ones_like(scores)
            if soft_cap > 0:
                scores = soft_cap * numpy.tanh(scores / soft_cap)
                slope = 1 - (scores / soft_cap) ** 2
            e = numpy.exp(scores - scores.max()) * seen
            total = e.sum(axis=1, keepdims=True)
            weights = numpy.divide(e, total, out=numpy.zeros_like(e), where=total > 0)
            g = d_output[q_start:q_start + m, head]
            d_weights = g @ v.T
            d_scores = weights * (d_weights - (weights * d_weights).sum(axis=1, keepdims=True)) * slope
            output[q_start:q_start + m, head] = weights @ v
            d_query[q_start:q_start + m, head] += scale * d_scores @ k
            d_key[k_start:k_start + n, head // group] += scale * d_scores.T @ q
            d_value[k_start:k_start + n, head // group] += weights.T @ g
    return output, d_query, d_key, d_value


def check(name, dtype, queries, keys, heads, key_heads, size, value_size, causal, scale=None, soft_cap=0.0, side_by_side=False):
    random = numpy.random.default_rng(7)
    rows, key_rows = sum(s[1] for s in queries), sum(s[1] for s in keys)
    query, key, value = (random.standard_normal(shape).astype(dtype) for shape in
                         ((rows, heads, size), (key_rows, key_heads, size), (key_rows, key_heads, value_size)))
    if side_by_side:  # three parts of one array, with strides
        joined = random.standard_normal((rows, 3, heads, size)).astype(dtype)
        query, key, value = (joined[:, i] for i in range(3))
    d_output = random.standard_normal((rows, heads, value_size)).astype(dtype)
    output = numpy.full_like(d_output, numpy.nan)
    gradients = [numpy.full(a.shape, numpy.nan, dtype) for a in (query, key, value)]
    options = DotProductOptions()
    call("attn_dot_product_options_init", ctypes.byref(options), ctypes.c_uint64(ctypes.sizeof(options)))
    options.soft_cap = soft_cap
    if scale is not None:
        options.scale, options.derive_scale = scale, 0
    inputs, wrapped = [wrap(a) for a in (query, key, value)], [wrap(g) for g in gradients]
    out, d_out = wrap(output), wrap(d_output)
    query_layout, key_layout, tape = layout_of(queries), layout_of(keys), make("attn_tape_create", context)
    mask = make("attn_mask_causal", context, 0) if causal else None

    call("attn_tape_begin", context, tape, None)
    for tensor, gradient in zip(inputs, wrapped):
        call("attn_tape_watch", context, tape, tensor, gradient)
    call("attn_dot_product_attention", context, tape, *inputs, query_layout, key_layout, mask, ctypes.byref(options), out)
    call("attn_tape_backward", context, tape, ctypes.c_int64(1), ctypes.byref(out), ctypes.byref(d_out), ctypes.c_int64(0), None)

    want = formula(query, key, value, d_output, queries, keys, causal, scale if scale is not None else 1 / math.sqrt(size), soft_cap)
    bound = 1e-5 if dtype == "float32" else 1e-13
    for part, got, expected in zip(("output", "d_query", "d_key", "d_value"), [output] + gradients, want):
        error = numpy.abs(got - expected).max() / max(1, numpy.abs(expected).max())
        assert error < bound, f"{name}: {part} is off by {error:.3g}, bound {bound:.3g}"
    for tensor in inputs + wrapped + [out, d_out]:
        attn.attn_tensor_free(tensor)
    attn.attn_layout_free(query_layout)
    attn.attn_layout_free(key_layout)
    attn.attn_mask_free(mask)
    attn.attn_tape_free(tape)


def check_errors():
    good, narrow = numpy.zeros((4, 1, 8), numpy.float32), numpy.zeros((4, 1, 6), numpy.float32)
    tensors = [wrap(good), wrap(narrow), wrap(good.copy())]
    kept = tensors[2]
    fails(SHAPE, "key", "attn_dot_product_attention", context, None, tensors[0], tensors[1], tensors[0], None, None, None, None, kept)
    fails(INVALID_ARGUMENT, "query", "attn_dot_product_attention", context, None, None, tensors[0], tensors[0], None, None, None, None, kept)
    for tensor in tensors:
        attn.attn_tensor_free(tensor)


call("attn_context_create", None, ctypes.byref(context))
print("libattn", attn.attn_version().decode())
two, unequal = [(0, 3, 0, 0), (3, 70, 0, 1)], [(0, 9, 0, 0), (9, 100, 0, 1)]
for backend, dtype in ((0, "float32"), (1, "float32"), (1, "float64")):
    call("attn_context_set_backend", context, backend)
    check("full", dtype, [(0, 5, 0, 0)], [(0, 7, 0, 0)], 2, 2, 8, 8, causal=False)
    check("causal, two sequences", dtype, two, two, 2, 2, 16, 16, causal=True)
    check("grouped heads, more keys", dtype, two, unequal, 4, 2, 8, 12, causal=True)
    check("more queries than keys", dtype, [(0, 9, 0, 0)], [(0, 4, 0, 0)], 1, 1, 8, 8, causal=True)
    check("scale and soft cap", dtype, two, unequal, 2, 1, 8, 8, causal=False, scale=0.5, soft_cap=3.0)
    check("side by side", dtype, two, two, 3, 3, 8, 8, causal=True, side_by_side=True)
    check_errors()
attn.attn_context_free(context)

# the example of the documents, as a user would run it
example = os.path.join(os.environ.get("ATTN_SOURCE", os.path.join(os.path.dirname(__file__), "..", "..")), "docs", "examples", "attention.py")
shown = subprocess.run([sys.executable, example], capture_output=True, text=True, check=False)
assert shown.returncode == 0 and "output equals value: True" in shown.stdout, shown.stdout + shown.stderr
print("all equal")
