#!/bin/sh
# sh tests/fuzz/run-fuzz.sh [SECONDS [TARGET ...]]    libFuzzer on each target for SECONDS (600), two at a time, with the address and
# undefined-behaviour sanitizers, in build/fuzz (or $ATTN_FUZZ). What was found there before is begun from. Needs clang with its runtime.
# ATTN_SHORT: the programs of the build at hand replay the corpus. The last line counts; exit status 1 when there is a finding.
set -u
root=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd)
here=$root/tests/fuzz
seconds=${1:-600}
[ $# -gt 0 ] && shift
targets=${*:-safetensors options vocabulary text attention}

if [ -n "${ATTN_SHORT:-}" ]; then
    ran=0 findings=0
    for target in $targets; do
        program=${ATTN_BUILD:?}/tests/fuzz_$target
        [ -x "$program" ] || continue
        ran=$((ran + 1))
        ATTN_FUZZ_SECONDS=0 "$program" || findings=$((findings + 1))
    done
    [ $ran -gt 0 ] || { echo "no program of a target in ${ATTN_BUILD:?}/tests"; exit 77; }
    echo "$ran targets replayed, $findings findings"
    [ $findings = 0 ]
    exit
fi

clang=${ATTN_CLANG:-clang}
folder=${ATTN_FUZZ:-$root/build/fuzz}
mkdir -p "$folder"
folder=$(CDPATH= cd -- "$folder" && pwd)
echo 'int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n) { return d != 0 && n > 9 ? 0 : 0; }' >"$folder/probe.c"
"$clang" -fsanitize=fuzzer,address "$folder/probe.c" -o "$folder/probe" 2>/dev/null || { echo "$clang has no libFuzzer here"; exit 77; }

cmake=${CMAKE:-cmake}
[ -x /usr/bin/cmake ] && cmake=${CMAKE:-/usr/bin/cmake}
generator=
if [ ! -f "$folder/library/CMakeCache.txt" ] && command -v ninja >/dev/null 2>&1; then generator="-G Ninja"; fi
# shellcheck disable=SC2086
"$cmake" -S "$root" -B "$folder/library" $generator -DCMAKE_C_COMPILER="$clang" -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF \
    -DATTN_BENCH=OFF -DATTN_SANITIZE=fuzzer-no-link,address,undefined >"$folder/build.log" 2>&1 &&
    "$cmake" --build "$folder/library" --target attn_static --parallel 2 >>"$folder/build.log" 2>&1 || { tail -20 "$folder/build.log" >&2; exit 1; }
libraries=$(pkg-config --libs openblas jansson cmocka) || exit 77
for target in $targets; do
    # shellcheck disable=SC2086,SC2046
    "$clang" -std=c11 -D_GNU_SOURCE -DATTN_FUZZER -DATTN_TEST_DATA="\"$root/tests\"" -g -O1 -fsanitize=fuzzer,address,undefined \
        -fno-sanitize-recover=all -I "$root/include" -I "$root/src" -I "$root/tests" $(pkg-config --cflags openblas jansson cmocka) \
        "$here/test_$target.c" "$root/tests/support/fuzz.c" "$root/tests/support/allocator.c" "$root/tests/support/random.c" \
        "$root/tests/support/compare.c" "$folder/library/libattn_static.a" $libraries -lpthread -lm -o "$folder/$target" >>"$folder/build.log" 2>&1 ||
        { tail -20 "$folder/build.log" >&2; exit 1; }
done

# One thread of BLAS: its own would outlive an input. Leaks are looked for after each one.
run_target() {
    corpus=$folder/corpus/$1
    mkdir -p "$corpus" "$folder/findings"
    OPENBLAS_NUM_THREADS=1 nice "$folder/$1" -max_total_time="$seconds" -timeout=25 -rss_limit_mb=3000 -malloc_limit_mb=1500 -max_len=8192 \
        -dict="$here/json.dict" -artifact_prefix="$folder/findings/$1-" -print_final_stats=1 "$corpus" "$here/corpus/$1" >"$folder/$1.log" 2>&1
    echo $? >"$folder/$1.status"
}

rm -f "$folder"/*.status
waiting=0
for target in $targets; do
    run_target "$target" &
    waiting=$((waiting + 1))
    if [ $waiting = 2 ]; then
        wait
        waiting=0
    fi
done
wait

total=0 findings=0 count=0
for target in $targets; do
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$folder/$target.log")
    status=$(cat "$folder/$target.status")
    count=$((count + 1))
    total=$((total + ${runs:-0}))
    verdict="no finding"
    if [ "$status" != 0 ]; then
        findings=$((findings + 1))
        verdict="FINDING: see $folder/$target.log"
    fi
    echo "$target: ${runs:-?} executions in $seconds s, $(find "$folder/corpus/$target" -type f | wc -l | tr -d ' ') inputs kept, $verdict"
done
echo "$count targets, $total executions, $findings findings"
[ $findings = 0 ]
