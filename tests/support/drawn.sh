#!/bin/sh
# sh tests/support/drawn.sh [PROGRAM ...]    the tests that draw their cases (kernels_drawn and the like), ATTN_DRAWS cases each (20000) in
# place of the few hundred of the suite. Builds in a folder of its own (ATTN_DRAWN, or build/drawn). The last line is the counts.
set -u
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
build=${ATTN_DRAWN:-$root/build/drawn}
draws=${ATTN_DRAWS:-20000}
programs=${*:-kernels_drawn kernels_drawn_linear_attention kernels_crosscheck_recurrent kernels_crosscheck_convolution autograd_drawn
    models_drawn cost_drawn training_drawn autograd_pack autograd_overlap tensor_mask_drawn}
mkdir -p "$build"
targets=
for program in $programs; do targets="$targets test_$program"; done
# shellcheck disable=SC2086
if ! { "${CMAKE:-cmake}" -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DATTN_BENCH=OFF &&
    "${CMAKE:-cmake}" --build "$build" --parallel 2 --target $targets; } >"$build/log" 2>&1; then
    tail -20 "$build/log"
    exit 1
fi
# tests write their files where they run
build=$(CDPATH='' cd -- "$build" && pwd)
cd "$build" || exit 1
held=0 failed=0
for program in $programs; do
    ATTN_DRAWS=$draws "$build/tests/$program" >"$build/$program.log" 2>&1
    status=$?
    drawn=$(grep -c '^draw ' "$build/$program.log")
    if [ $status = 0 ]; then
        held=$((held + drawn))
    else
        failed=$((failed + 1))
        echo "WRONG: $program: $(grep '^draw ' "$build/$program.log" | tail -1)"
        grep -E 'ERROR|FAIL|got' "$build/$program.log" | head -3
    fi
    echo "$program: $drawn drawn"
done
echo "drawn: $held cases held, $failed programs failed"
[ $failed = 0 ]
