#!/bin/sh
# sh tests/nightly.sh [NAME ...]    the long checks, whole: some hours on two cores. Names: see below; none: all.
# Each ends with its own line of counts; the last lines gather them. Exit status 1 when one failed.
set -u
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root" || exit 1
unset ATTN_SHORT ATTN_BUILD ATTN_PROGRAM ATTN_LIBRARY
folder=${ATTN_NIGHTLY:-$root/build/nightly}
mkdir -p "$folder"
all="mutation injection drawn threads tsan cost crash fuzz coverage"
failed=0 summary=

script_of() {
    case $1 in
    mutation) echo tests/mutation/run-mutation.sh ;;
    injection) echo tests/injection/run-injection.sh ;;
    drawn) echo tests/support/drawn.sh ;;
    threads) echo tests/threads/run-flavours.sh ;;
    tsan) echo tests/threads/run-tsan.sh ;;
    cost) echo tests/cost/run-cost.sh ;;
    crash) echo tests/crash/run-crash.sh ;;
    fuzz) echo tests/fuzz/run-fuzz.sh ;;
    coverage) echo tests/coverage/branches.sh ;;
    *) echo "no such check: $1; there are: $all" >&2; exit 2 ;;
    esac
}

for name in ${*:-$all}; do
    script=$(script_of "$name") || exit 2
    echo "== $name: sh $script"
    sh "$script" >"$folder/$name.log" 2>&1
    status=$?
    last=$(grep -v '^ *$' "$folder/$name.log" | tail -1)
    case $status in
    0) verdict=passed ;;
    77) verdict=skipped ;;
    *) verdict=FAILED failed=1 ;;
    esac
    echo "$verdict: $last"
    summary="$summary$name: $verdict: $last
"
done
printf '\n%s' "$summary"
exit $failed
