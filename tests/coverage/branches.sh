#!/bin/sh
# sh tests/coverage/branches.sh [BUILD FOLDER]
# Branch coverage of src/ without src/cli: builds without optimisation, runs the tests, prints each branch that was never taken with the
# reason that reasons.txt gives, and ends with the counts. Exit status 1: under 90 %, a branch without a reason, or a
# red test (its output: tests.log in the folder). 77: no gcovr.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd)
build=${1:-$root/build/coverage}
command -v gcovr >/dev/null 2>&1 && command -v python3 >/dev/null 2>&1 || { echo "gcovr or python3 is not here" >&2; exit 77; }
cmake=${CMAKE:-cmake}
[ -x /usr/bin/cmake ] && cmake=${CMAKE:-/usr/bin/cmake}
ctest=$(dirname "$(command -v "$cmake")")/ctest

# An always_inline function has its branches once per place it is inlined in, each with a constant kind: as a plain function they count once.
CC=gcc "$cmake" -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Coverage -DATTN_BENCH=OFF -DATTN_TEST_PATIENCE=10 \
    "-DCMAKE_C_FLAGS_COVERAGE=-O0 --coverage -fprofile-update=atomic -Dalways_inline=" >/dev/null
"$cmake" --build "$build" --parallel "$(getconf _NPROCESSORS_ONLN)" | tail -1
find "$build" -name '*.gcda' -delete
# Not run: what looks at the library's imports, makes the program's files fail (the counters are files too), or builds the library anew.
red=0
ATTN_COVERAGE=1 "$ctest" --test-dir "$build" -j "$(getconf _NPROCESSORS_ONLN)" --output-on-failure \
    -E 'architecture/|cli/failures|consumer/|mutation/|fuzz/|crash/|injection/injection|threads/tsan|threads/flavours' >"$build/tests.log" 2>&1 || red=1
tail -12 "$build/tests.log"
# ctest takes a sample of the largest of these: here every call fails once.
for program in files models training; do
    ATTN_INJECTION_STEP=1 "$build/tests/injection_$program" >"$build/injection.log" 2>&1 || red=1
    grep '^injections' "$build/injection.log" || true
done

# Counters of processes that were killed may not add up: gcovr is told to go on.
cd "$build"
# threads.c with a call before each atomic operation: other branches than the library's
find . -path '*threads_gaps*' -name '*.gc??' -delete
gcovr --root "$root" --object-directory "$build" --gcov-ignore-parse-errors --filter "$root/src/" --exclude "$root/src/cli/" \
    --exclude-unreachable-branches --branches --json "$build/coverage.json" --txt "$build/coverage.txt" "$build" 2>"$build/gcovr.log"
python3 "$root/tests/coverage/branches.py" "$root" "$build/coverage.json" || red=1
exit $red
