#!/bin/sh
# attn approximate: exact attention against its cheap variants on a file made here; the table, JSON, the picture, refusals, an interrupt
. "$(dirname "$0")/support.inc"

# numbers COUNT SEED: float32 between -2 and 2 as octal escapes, the last byte's bits of the exponent the same for all
numbers() {
    LC_ALL=C awk -v n="$1" -v s="$2" 'BEGIN {
        for (i = 0; i < n; i++) {
            s = (s * 1103 + 12345) % 65521
            printf "\\%03o\\%03o\\%03o\\%03o", s % 256, int(s / 7) % 256, int(s / 31) % 256, s % 2 ? 63 : 191
        }
    }'
}
# tensors FILE HEADER DATA: a safetensors file of a header under 256 bytes and data as escapes
tensors() {
    { printf '%b' "\\0$(printf '%03o' "${#2}")\\0000\\0000\\0000\\0000\\0000\\0000\\0000" && printf '%s' "$2" && printf "$3"; } >"$1"
}
three() { # ROWS HEADS SIZE: a header of query, key and value
    b=$((4 * $1 * $2 * $3))
    printf '{"query":{"dtype":"F32","shape":[%d,%d,%d],"data_offsets":[0,%d]}' "$1" "$2" "$3" $b
    printf ',"key":{"dtype":"F32","shape":[%d,%d,%d],"data_offsets":[%d,%d]}' "$1" "$2" "$3" $b $((2 * b))
    printf ',"value":{"dtype":"F32","shape":[%d,%d,%d],"data_offsets":[%d,%d]}}' "$1" "$2" "$3" $((2 * b)) $((3 * b))
}
value() { sed -n "s/.*\"variant\": \"$2\".*\"$3\": *\\([-+0-9.e]*\\).*/\\1/p" "$1"; }
holds() { awk "BEGIN { exit !($1) }" || wrong "$2: not $1"; }

tensors qkv.safetensors "$(three 40 2 4)" "$(numbers 960 5)"
[ "$(wc -c <qkv.safetensors)" -lt 20000 ] || wrong "the example is large"
run="$attn approximate qkv.safetensors --seconds 0.001 --threads 2"

# the report by itself, with a mask and without
status 0 $run
for name in exact window-16 logarithmic linear performer-32 performer-512 linformer-16; do
    grep -q "^$name .*%.*ms.*B" out || wrong "no row for $name: $(cat out)"
done
grep -q 'nothing is trained' out || wrong "what a Linformer's projection is here is not said"
grep -q '^strided' out && wrong "a mask that is causal, without --causal"
grep -q '^window-64' out && wrong "a window past the last key"
status 0 $run --causal
for name in window-16 strided fixed linear performer-128; do grep -q "^$name " out || wrong "no causal row for $name: $(cat out)"; done
grep -q '^linformer' out && wrong "a causal Linformer"

# numbers: what equals exact attention has no error, more keys or rows have less, and the same seed gives the same
list=window-4,window-100,longformer-2,bigbird-2,linformer-5,linformer-40,performer-8,performer-4096,linear,logarithmic
status 0 $run --variants $list --json --svg picture.svg
cp out first
[ "$(wc -l <first | tr -d ' ')" = 11 ] || wrong "expected 11 lines of JSON: $(cat first)"
! command -v python3 >/dev/null || python3 -c 'import json, sys; [json.loads(line) for line in open("first")]' || wrong "no JSON: $(cat first)"
for name in exact window-100 bigbird-2 linformer-40; do holds "$(value first $name error) < 1e-5" "error of $name"; done
holds "$(value first window-4 error) > 0.01" "a narrow window"
holds "$(value first longformer-2 error) > 0.01" "a Longformer"
holds "$(value first linformer-5 error) > $(value first linformer-40 error)" "ranks of a Linformer"
holds "$(value first performer-4096 error) < 0.5 * $(value first performer-8 error)" "features of a Performer"
holds "$(value first window-4 worst_row) >= $(value first window-4 error)" "the worst row is the mean at least"
for name in exact linear; do
    holds "$(value first $name step_seconds) > 0" "time of $name"
    holds "$(value first $name step_bytes) > 0" "memory of $name"
done
grep -q '"variant": "linear".*"step_pays_from": \(null\|[0-9]\)' first || wrong "no length is said: $(cat first)"
status 0 $run --variants $list --json --threads 1
for name in window-4 linformer-5 performer-8; do
    [ "$(value first $name error)" = "$(value out $name error)" ] || wrong "another error of $name with one thread"
done
status 0 $run --variants performer-8 --json --seed 2
[ "$(value first performer-8 error)" != "$(value out performer-8 error)" ] || wrong "another seed draws the same directions"

# the picture names every variant once, and is XML
for name in exact window-4 performer-8 linear; do
    [ "$(grep -c ">$name</text>" picture.svg)" = 1 ] || wrong "the picture does not name $name"
done
tail -n 1 picture.svg | grep -q '^</svg>$' || wrong "the picture does not end"
! command -v python3 >/dev/null || python3 -c 'import xml.dom.minidom as x; x.parse("picture.svg")' || wrong "picture.svg is no XML"

# other names, keys of fewer heads
b=$((4 * 20 * 2 * 4)) c=$((4 * 30 * 1 * 4))
grouped=$(printf '{"q":{"dtype":"F32","shape":[20,2,4],"data_offsets":[0,%d]},"k":{"dtype":"F32","shape":[30,1,4],"data_offsets":[%d,%d]},"v":{"dtype":"F32","shape":[30,1,4],"data_offsets":[%d,%d]}}' \
    $b $b $((b + c)) $((b + c)) $((b + 2 * c)))
tensors grouped.safetensors "$grouped" "$(numbers $(((b + 2 * c) / 4)) 3)"
names="--query q --key k --value v --seconds 0.001"
status 0 $attn approximate grouped.safetensors $names --causal --variants window-8,linear
grep -q '20 queries, 30 keys, 2 heads of 4, causal' out || wrong "what was read is not said: $(cat out)"
fails 2 '"query" but "q", "k", "v": say by --query' $attn approximate grouped.safetensors
fails 2 'same rows' $attn approximate grouped.safetensors $names --value q

# refusals
fails 2 'FILE: needed' $attn approximate
fails 2 'nothing.safetensors' $attn approximate nothing.safetensors
fails 2 'is no file' $attn approximate .
fails 2 'text.txt' $attn approximate text.txt
for word in windov windo- window-0 window-x linear-5 linformer-41 strided "" nonsense; do
    fails 2 '\-\-variants' $run --variants "$word"
done
fails 2 'never causal' $run --causal --variants linformer
fails 2 'give --causal' $run --variants window,fixed-4
tensors short.safetensors "$(three 15 1 1)" "$(numbers 45 1)"
fails 2 '15 rows, expected at least 16' $attn approximate short.safetensors
tensors nan.safetensors "$(three 16 1 2)" "$(numbers 40 1)$(printf '\\377\\377\\377\\177')$(numbers 55 1)"
fails 2 '"key" holds .*nan.* row 4, head 0, column 0' $attn approximate nan.safetensors
tensors flat.safetensors '{"query":{"dtype":"F32","shape":[4,4],"data_offsets":[0,64]}}' "$(numbers 16 1)"
fails 2 '2 axes of float32, expected float32 \[rows, heads, size\]' $attn approximate flat.safetensors
tensors ints.safetensors '{"query":{"dtype":"I32","shape":[4,2,2],"data_offsets":[0,64]}}' "$(numbers 16 1)"
fails 2 'another type' $attn approximate ints.safetensors
head -c 1000 qkv.safetensors >cut.safetensors
fails 2 'cut.safetensors' $attn approximate cut.safetensors
zeros=$(awk 'BEGIN { for (i = 0; i < 96; i++) printf "\\000\\000\\000\\000" }')
tensors zeros.safetensors "$(three 32 1 1)" "$zeros"
fails 2 'the exact output is zero' $attn approximate zeros.safetensors
fails 1 'cannot be written' $run --variants linear --svg no/such/x.svg

# an interrupt ends it, whatever it is doing, with no more to say
for wait in 0.2 1; do
    $attn approximate qkv.safetensors --seconds 60 >out 2>err &
    process=$!
    sleep $wait
    kill -INT $process
    wait $process
    got=$?
    [ $got = 130 ] || wrong "exit status $got, expected 130 after an interrupt"
    [ ! -s err ] || wrong "an interrupt: $(cat err)"
done
done_with_tests
