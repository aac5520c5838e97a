#!/bin/sh
# The ABI against its stored baseline, tests/abi/baseline.txt: nothing of it is gone or changed. With --update, additions are written to it.
# Then the comparison itself: each kind of break, made in a copy of the headers, is found, and each kind of addition passes.
set -eu
root=${ATTN_SOURCE:-$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)}
library=${ATTN_LIBRARY:-$root/build/libattn.so}
here=$root/tests/abi
for tool in python3 nm "${CC:-cc}"; do command -v "$tool" >/dev/null || exit 77; done
[ "$(getconf LONG_BIT)" = 64 ] || exit 77
if [ ! -e "$library" ]; then
    echo "$library is not there: build it, or set ATTN_LIBRARY"
    exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE

python3 "$here/baseline.py" --library "$library" "$@"
status=0
python3 "$here/library.py" "$library" "$here/baseline.txt" || status=$?
[ $status = 0 ] || [ $status = 77 ] || exit 1

found=0 passed=0 wrong=0
# compare EXPECTED NAME PATTERN: the copy of the headers against the baseline; EXPECTED is the exit status, PATTERN stands in what it prints
compare() {
    got=0
    python3 "$here/baseline.py" --include "$work/include" --library "${other:-$library}" >"$work/said" 2>&1 || got=$?
    if [ $got != "$1" ] || ! grep -q -e "$3" "$work/said"; then
        echo "WRONG: $2: exit status $got, expected $1, and \"$3\" in:"
        cat "$work/said"
        wrong=$((wrong + 1))
    fi
}
# edit FILE SCRIPT: a fresh copy of the headers, and one change
edit() {
    rm -rf "$work/include"
    cp -R "$root/include" "$work/include"
    sed -e "$2" "$root/include/attn/$1" >"$work/include/attn/$1"
    if cmp -s "$root/include/attn/$1" "$work/include/attn/$1"; then
        echo "WRONG: $1: \"$2\" changes nothing"
        wrong=$((wrong + 1))
    fi
}
# red NAME PATTERN FILE SCRIPT; green NAME PATTERN FILE SCRIPT
red() {
    edit "$3" "$4"
    compare 1 "$1" "$2"
    found=$((found + 1))
}
green() {
    edit "$3" "$4"
    compare 0 "$1" "$2"
    passed=$((passed + 1))
}

red "changed order of fields" "broken: field attn_dot_product_options.dropout" \
    attention.h 's/double dropout, soft_cap;/double soft_cap, dropout;/'
red "changed type of a field" "broken: field attn_segment.length" \
    layout.h 's/int64_t length; /uint64_t length;/'
red "a field of half the size" "broken: attn_tape_options.*expected" tape.h 's/int64_t step;/int32_t step;/'
red "a field taken out" "broken: field attn_loss_report.count: gone" loss.h 's/^    int64_t count;$//'
red "a field put in the middle" "broken: field attn_load_options.strict" \
    transformer.h 's/int32_t strict, dtype;/int32_t more, other, strict, dtype;/'
red "a field added to a frozen struct" "broken: struct attn_segment" \
    layout.h 's|int64_t sequence_id;|int64_t sequence_id, more;|'
red "struct_size not first" "expected uint64_t struct_size" \
    attention.h 's/^    double scale; .*//
s/^    uint64_t struct_size;$/    double scale;\
    uint64_t struct_size;/'
red "a hole" "there is a hole before it" layout.h 's/^    int64_t start; /    int32_t start; /'
red "changed number of a status" "broken: constant ATTN_ERROR_IO: got -44, expected -40" \
    status.h 's/ATTN_ERROR_IO = -40/ATTN_ERROR_IO = -44/'
red "changed number of an enumeration" "broken: constant ATTN_ACTIVATION_GELU:" \
    operations.h 's/ATTN_ACTIVATION_GELU = 2/ATTN_ACTIVATION_GELU = 9/'
red "a constant taken out" "broken: constant ATTN_UINT8: gone" tensor.h 's/, ATTN_UINT8 = 7//'
red "a function taken out" "broken: function attn_tape_free: gone" tape.h '/attn_tape_free/d'
red "changed type of an argument" "broken: function attn_mask_causal" \
    mask.h 's/attn_mask_causal(attn_context \*ctx, int32_t alignment/attn_mask_causal(attn_context *ctx, int64_t alignment/'
red "an argument added" "broken: function attn_trace" \
    measures.h 's/attn_trace(attn_context \*ctx, /attn_trace(attn_context *ctx, int32_t more, /'
red "an argument no more const" "broken: function attn_norm" \
    measures.h 's/attn_norm(attn_context \*ctx, const /attn_norm(attn_context *ctx, /'
red "changed type of a result" "broken: function attn_layout_count" \
    layout.h 's/int64_t attn_layout_count/int32_t attn_layout_count/'
red "changed type of a status" "broken: type attn_status" \
    status.h 's/typedef int32_t attn_status/typedef int64_t attn_status/'
red "a handle that became a struct" "broken: handle attn_mask: gone" \
    mask.h 's/typedef struct attn_mask attn_mask;/typedef struct attn_mask {\
    uint64_t struct_size;\
} attn_mask;/'

green "a function added" "function attn_more" \
    mask.h 's/^ATTN_END$/ATTN_API attn_status attn_more(attn_context *ctx, int64_t count);\
ATTN_END/'
green "a constant added" "constant ATTN_POSITIONS_MORE" \
    embedding.h 's/ATTN_POSITIONS_ALIBI = 5/ATTN_POSITIONS_ALIBI = 5, ATTN_POSITIONS_MORE = 6/'
green "a field added at the end" "struct attn_load_options grown" \
    transformer.h 's/int32_t strict, dtype;/int32_t strict, dtype, more, reserved;/'
green "a reserved field used" "field attn_context_options.more" \
    context.h 's/int32_t reserved;  /int32_t more;/'
green "a struct added" "struct attn_more_options" mask.h 's/^ATTN_END$/typedef struct attn_more_options {\
    uint64_t struct_size;\
} attn_more_options;\
ATTN_END/'

# a library with the same names under another version, and one without one of the names
sh "$root/cmake/update-map.sh" --names >"$work/names"
awk '{ print "void " $1 "(void);\nvoid " $1 "(void) {}" }' "$work/names" >"$work/stub.c"
sed -e 's/^ATTN_0\.0 /ATTN_0.1 /' "$root/cmake/attn.map" >"$work/stub.map"
"${CC:-cc}" -shared -fPIC -o "$work/stub.so" "$work/stub.c" "-Wl,--version-script=$work/stub.map"
rm -rf "$work/include"
cp -R "$root/include" "$work/include"
other=$work/stub.so
compare 1 "another version" "broken: function attn_version: got ATTN_0.1 .* expected ATTN_0.0"
sed -e '/attn_version;/d' "$root/cmake/attn.map" >"$work/stub.map"
"${CC:-cc}" -shared -fPIC -o "$work/stub.so" "$work/stub.c" "-Wl,--version-script=$work/stub.map"
compare 1 "not exported" "broken: function attn_version: got - "
found=$((found + 2))

echo "$found breaks to be found, $passed additions to pass: $wrong wrong"
[ $wrong = 0 ]
