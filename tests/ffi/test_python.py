"""Attention on numpy arrays through python/libattn.py, forward and backward, against the formulas in numpy (float64)."""
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
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "python"))
import libattn as attn


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


def check(context, name, dtype, queries, keys, heads, key_heads, size, value_size, causal, scale=None, soft_cap=0.0, side_by_side=False):
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
    options = {"soft_cap": soft_cap}
    if scale is not None:
        options.update(scale=scale, derive_scale=0)

    with attn.Tape(context) as tape, attn.Layout(context, queries) as query_layout, attn.Layout(context, keys) as key_layout:
        inputs, wrapped = [attn.Tensor(context, a) for a in (query, key, value)], [attn.Tensor(context, g) for g in gradients]
        out, d_out = attn.Tensor(context, output), attn.Tensor(context, d_output)
        mask = attn.Mask(context) if causal else None
        tape.begin()
        for tensor, gradient in zip(inputs, wrapped):
            tape.watch(tensor, gradient)
        attn.attention(context, tape, *inputs, query_layout, key_layout, mask, out, **options)
        tape.backward([out], [d_out])

    want = formula(query, key, value, d_output, queries, keys, causal, scale if scale is not None else 1 / math.sqrt(size), soft_cap)
    bound = 1e-5 if dtype == "float32" else 1e-13
    for part, got, expected in zip(("output", "d_query", "d_key", "d_value"), [output] + gradients, want):
        error = numpy.abs(got - expected).max() / max(1, numpy.abs(expected).max())
        assert error < bound, f"{name}: {part} is off by {error:.3g}, bound {bound:.3g}"


def fails(status, word, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except attn.Error as error:
        assert error.status == status, f"got status {error.status}, expected {status}: {error}"
        assert word in error.text, f"no \"{word}\" in \"{error.text}\""
        return
    assert False, f"no error, expected {status}"


def check_errors(context):
    good, narrow, output = (attn.Tensor(context, numpy.zeros((4, 1, n), numpy.float32)) for n in (8, 6, 8))
    fails(attn.SHAPE, "key", attn.attention, context, None, good, narrow, good, None, None, None, output)
    fails(attn.INVALID_ARGUMENT, "query", attn.attention, context, None, None, good, good, None, None, None, output)
    fails(attn.INVALID_ARGUMENT, "soft_cap", attn.attention, context, None, good, good, good, None, None, None, output, soft_cap=-1.0)
    fails(attn.BAD_STATE, "tape", attn.Tape(context).watch, good, output)
    closed = attn.Tensor(context, numpy.zeros((4, 1, 8), numpy.float32))
    closed.close()
    for wrong, function in (("Tape", lambda: attn.attention(context, good, good, good, good, None, None, None, output)),
                            ("colour", lambda: attn.DotProductOptions(colour=1)),
                            ("closed", lambda: attn.attention(context, None, good, good, good, None, None, None, closed))):
        try:
            function()
        except (TypeError, ctypes.ArgumentError) as error:
            assert wrong in str(error), error
            continue
        assert False, f"{wrong}: no error"


context = attn.Context()
print("libattn", attn.lib.attn_version().decode())
two, unequal = [(0, 3, 0, 0), (3, 70, 0, 1)], [(0, 9, 0, 0), (9, 100, 0, 1)]
for backend, dtype in ((attn.BACKEND_BLAS, "float32"), (attn.BACKEND_REFERENCE, "float32"), (attn.BACKEND_REFERENCE, "float64")):
    context.set_backend(backend)
    check(context, "full", dtype, [(0, 5, 0, 0)], [(0, 7, 0, 0)], 2, 2, 8, 8, causal=False)
    check(context, "causal, two sequences", dtype, two, two, 2, 2, 16, 16, causal=True)
    check(context, "grouped heads, more keys", dtype, two, unequal, 4, 2, 8, 12, causal=True)
    check(context, "more queries than keys", dtype, [(0, 9, 0, 0)], [(0, 4, 0, 0)], 1, 1, 8, 8, causal=True)
    check(context, "scale and soft cap", dtype, two, unequal, 2, 1, 8, 8, causal=False, scale=0.5, soft_cap=3.0)
    check(context, "side by side", dtype, two, two, 3, 3, 8, 8, causal=True, side_by_side=True)
    check_errors(context)
context.close()

# the example of the documents, as a user would run it
root = os.environ.get("ATTN_SOURCE", os.path.join(os.path.dirname(__file__), "..", ".."))
example = os.path.join(root, "docs", "examples", "attention.py")
shown = subprocess.run([sys.executable, example], capture_output=True, text=True, check=False)
assert shown.returncode == 0 and "output equals value: True" in shown.stdout, shown.stdout + shown.stderr
print("all equal")
