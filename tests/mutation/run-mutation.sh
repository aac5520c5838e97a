#!/bin/sh
# sh tests/mutation/run-mutation.sh [WORD ...]    breaks the library once for each mutant of mutants/*.txt; each must make a test red.
# Builds a copy of the tree in build/mutation (or $ATTN_MUTATION). WORDs: only mutants with one of them in their title.
# sh tests/mutation/run-mutation.sh drawn [--count N] [--seed N] [WORD ...]    the same with faults that are drawn (draw.py), in the same folder.
# Under ctest (ATTN_SHORT) the lists are checked whole, and some dozen mutants run against the build at hand. The report: report.txt there.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd)
here=$root/tests/mutation
command -v python3 >/dev/null 2>&1 || { echo "python3 is not here" >&2; exit 77; }

if [ -n "${ATTN_SHORT:-}" ] && [ -n "${ATTN_BUILD:-}" ]; then
    # what a sanitizer or a counter of branches adds would be compiled into each mutant: the plain build runs this
    if [ -n "${ATTN_SANITIZE:-}" ] || [ -n "${ATTN_COVERAGE:-}" ] || [ ! -f "$ATTN_BUILD/compile_commands.json" ]; then
        exec python3 "$here/mutate.py" --source "$root"
    fi
    work=$(mktemp -d "${TMPDIR:-/tmp}/attn-mutation.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    trap 'exit 1' HUP INT TERM
    python3 "$here/mutate.py" --source "$root" --build "$ATTN_BUILD" --work "$work" --report "$ATTN_BUILD/mutation-report.txt" --sample 12
    exit 0
fi

program=mutate.py
if [ "${1:-}" = drawn ]; then
    program=draw.py
    shift
fi
work=${ATTN_MUTATION:-$root/build/mutation}
cmake=${CMAKE:-cmake}
[ -x /usr/bin/cmake ] && cmake=${CMAKE:-/usr/bin/cmake}
mkdir -p "$work"
work=$(CDPATH= cd -- "$work" && pwd)
rm -rf "$work/tree"
mkdir -p "$work/tree"
for part in CMakeLists.txt README.md LICENSE include src tests bench cmake docs; do
    cp -Rp "$root/$part" "$work/tree/"
done
generator=
command -v ninja >/dev/null 2>&1 && generator="-G Ninja"
# shellcheck disable=SC2086
"$cmake" -S "$work/tree" -B "$work/build" $generator -DCMAKE_BUILD_TYPE=Release -DATTN_BENCH=OFF >"$work/build.log" 2>&1 &&
    "$cmake" --build "$work/build" --parallel 2 >>"$work/build.log" 2>&1 || { tail -20 "$work/build.log" >&2; exit 1; }
python3 "$here/$program" --source "$work/tree" --build "$work/build" --work "$work" --report "$work/report.txt" "$@"
