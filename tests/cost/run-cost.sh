#!/bin/sh
# sh tests/cost/run-cost.sh    counts every product that reaches BLAS and holds peaks of memory against what attn/cost.h foretells, and takes
# 10,000 steps of each kind. With ATTN_BUILD, the programs there; else they are built in build/cost. ATTN_SHORT: without the two large
# configurations of the bench, which take up to 1.3 GB. The last line has the counts.
set -u
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
build=${ATTN_BUILD:-}
if [ -z "$build" ]; then
    build=$root/build/cost
    mkdir -p "$build"
    cmake=${CMAKE:-cmake}
    [ -x /usr/bin/cmake ] && cmake=${CMAKE:-/usr/bin/cmake}
    generator=
    if [ ! -f "$build/CMakeCache.txt" ] && command -v ninja >/dev/null 2>&1; then generator="-G Ninja"; fi
    # shellcheck disable=SC2086
    "$cmake" -S "$root" -B "$build" $generator -DCMAKE_BUILD_TYPE=Release -DATTN_BENCH=OFF >"$build/build.log" 2>&1 &&
        "$cmake" --build "$build" --parallel 2 --target test_cost_products test_cost_memory test_cost_steps >>"$build/build.log" 2>&1 ||
        { tail -20 "$build/build.log" >&2; exit 1; }
fi
for name in products memory steps; do
    [ -x "$build/tests/cost_$name" ] || { echo "no program at $build/tests/cost_$name: cmocka is not here"; exit 77; }
done
[ -n "${ATTN_SHORT:-}" ] || export ATTN_LONG=1
work=$(mktemp -d "${TMPDIR:-/tmp}/attn-cost.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
failed=0 summary=
for name in products memory steps; do
    "$build/tests/cost_$name" >"$work/$name" 2>&1
    status=$?
    cat "$work/$name"
    [ $status = 0 ] || [ $status = 77 ] || failed=1
    summary="$summary$(tail -1 "$work/$name"); "
done
[ $failed = 0 ] && verdict=passed || verdict=FAILED
echo "$verdict: ${summary%; }"
exit $failed
