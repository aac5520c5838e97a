#!/bin/sh
# attn info, generate, eval and inspect of a model that heads were taken out of, by the library from Python, as the program takes none out
. "$(dirname "$0")/support.inc"
command -v python3 >/dev/null || { echo "python3 is not here"; exit 77; }
[ -z "${ATTN_SANITIZE:-}" ] || { echo "a library under a sanitizer cannot be loaded into this python"; exit 77; }

status 0 $attn train --data text.txt --out run $tiny --layers 2 --heads 4 --positions t5 --steps 3 --eval-every 3
cat >take.py <<'PY'
import ctypes, os, sys
attn = ctypes.CDLL(os.environ["ATTN_LIBRARY"])
attn.attn_transformer_metadata.restype = attn.attn_context_last_error.restype = ctypes.c_char_p
context, model, less = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
def ok(status):
    if status != 0: sys.exit(attn.attn_context_last_error(context).decode())
ok(attn.attn_context_create(None, ctypes.byref(context)))
ok(attn.attn_transformer_load(context, b"run/model.safetensors", None, ctypes.byref(model)))
gone = (ctypes.c_int64 * 6)(1, 1, 0, 1, 1, 2)
ok(attn.attn_transformer_prune_heads(context, model, ctypes.c_int64(2), gone, ctypes.byref(less)))
keys = (ctypes.c_char_p * 1)(b"program.vocabulary")
values = (ctypes.c_char_p * 1)(attn.attn_transformer_metadata(less, keys[0]))
ok(attn.attn_transformer_save(context, less, ctypes.c_int64(1), keys, values, b"less/model.safetensors"))
PY
mkdir less
status 0 python3 take.py
[ "$(wc -c <less/model.safetensors)" -lt "$(wc -c <run/model.safetensors)" ] || wrong "the file is no smaller"

status 0 $attn info run --json
grep -q '"heads": null' out || wrong "heads are missing from a whole model: $(cat out)"
cp out whole
status 0 $attn info less --json
python3 - whole out <<'PY' || wrong "attn info --json of a model with fewer heads: $(cat out)"
import json, sys
whole, less = (json.load(open(name)) for name in sys.argv[1:])
gone = whole["parameters"] - less["parameters"]
assert less["heads"] == {"decoder.layers.1": [1, 3]}, less["heads"]
assert gone in (2 * 4 * 4 * 16, 2 * 4 * (4 * 16 + 3)), gone  # rows of query, key, value, columns of the output; with biases
assert less["configuration"]["heads"] == 4
for what, key in (("memory", "training"), ("memory", "inference"), ("multiply_adds", "forward_formula")):
    assert less[what][key] < whole[what][key], (what, key)
assert less["memory"]["keys_and_values"] * 4 == whole["memory"]["keys_and_values"] * 3
PY
status 0 $attn info less
grep -q 'decoder layer 1 *2 of 4 heads: 1 3' out || wrong "the heads that are left are not named: $(cat out)"
status 0 $attn generate --model less --prompt "the" --tokens 20 --temperature 0
status 0 $attn eval --model less --data text.txt --json
status 0 $attn inspect --model less --text "int64_t rows" --out map.svg
grep -q '6 maps of 12 tokens' out || wrong "what was drawn is not said: $(cat out)"
[ "$(grep -c '>head [02] was taken out</text>' map.svg)" = 2 ] || wrong "heads that are gone are not marked"
[ "$(grep -c '>head [0-3]</text>' map.svg)" = 12 ] || wrong "expected 6 maps and 6 lines of entropy"
done_with_tests
