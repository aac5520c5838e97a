#!/bin/sh
# sh tests/injection/run-injection.sh    lets every call fail that can: in the programs of this folder, also under the sanitizers and (one call of
# 97) under valgrind, and in the commands of the attn program. Builds in build/injection. In ctest (ATTN_SHORT) the attn program alone, a
# sample, as the other programs are tests of their own. Ends with "injections: N made, N survived"; status 1 when one was not survived.
set -u
root=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd)
cd "$root" || exit 1
programs="create operations family models training files generation"
cc=${CC:-cc}
work=$(mktemp -d "${TMPDIR:-/tmp}/attn-injection.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
made=0 survived=0 failed=0

# build FOLDER SANITIZERS
build() {
    cmake=${CMAKE:-cmake}
    [ -x /usr/bin/cmake ] && cmake=${CMAKE:-/usr/bin/cmake}
    generator=
    if [ ! -f "$1/CMakeCache.txt" ] && command -v ninja >/dev/null 2>&1; then generator="-G Ninja"; fi
    targets="attn_program"
    for program in $programs; do targets="$targets test_injection_$program"; done
    mkdir -p "$1"
    # shellcheck disable=SC2086
    "$cmake" -S "$root" -B "$1" $generator -DCMAKE_BUILD_TYPE=RelWithDebInfo -DATTN_BENCH=OFF -DATTN_SANITIZE="$2" >"$1/build.log" 2>&1 &&
        "$cmake" --build "$1" --parallel 2 --target $targets >>"$1/build.log" 2>&1 || { tail -20 "$1/build.log" >&2; exit 1; }
}

# count NAME STATUS LOG: the log's last line of counts
count() {
    line=$(grep '^injections: ' "$3" | tail -1)
    numbers=$(echo "$line" | tr -cd '0-9 ')
    # shellcheck disable=SC2086
    set -- "$1" "$2" "$3" $numbers
    if [ "$2" != 0 ] || [ -z "${5:-}" ]; then
        failed=1
        echo "FAILED: $1 (status $2)"
        grep -v '^\[ *\(RUN\|OK\)' "$3" | tail -40
    fi
    made=$((made + ${4:-0})) survived=$((survived + ${5:-0}))
    echo "$1: ${4:-0} made, ${5:-0} survived"
}

# unit FOLDER NAME COMMAND...: every program of this folder, with a command before it
unit() {
    built=$1 kind=$2
    shift 2
    for program in $programs; do
        "$@" "$built/tests/injection_$program" >"$work/log" 2>&1
        count "$program$kind" $? "$work/log"
    done
}

# commands FOLDER NAME: the attn program
commands() {
    command -v python3 >/dev/null 2>&1 || { echo "python3 is not here: the attn program is left out"; return; }
    rm -rf "$work/runs"
    mkdir "$work/runs"
    PYTHONDONTWRITEBYTECODE=1 python3 tests/injection/program.py "$1/attn" "$work/shim.so" "$root" "$work/runs" >"$work/log" 2>&1
    count "attn$2" $? "$work/log"
}

"$cc" -std=gnu11 -D_GNU_SOURCE -O1 -fPIC -ftls-model=initial-exec -shared -o "$work/shim.so" tests/injection/shim.c -ldl || exit 1

if [ -n "${ATTN_SHORT:-}" ]; then
    folder=${ATTN_BUILD:?}
    [ -x "$folder/attn" ] || { echo "no program in $folder"; exit 77; }
    case ${ATTN_SANITIZE:-} in *thread*) echo "the thread sanitizer takes the calls for itself"; exit 77 ;; esac
    command -v python3 >/dev/null 2>&1 || { echo "python3 is not here"; exit 77; }
    commands "$folder" ""
else
    folder=$root/build/injection
    build "$folder/plain" ""
    unit "$folder/plain" ""
    commands "$folder/plain" ""
    build "$folder/sanitize" address,undefined
    unit "$folder/sanitize" " (address, undefined)"
    ATTN_INJECTION_SAMPLE=${ATTN_INJECTION_SAMPLE:-25} commands "$folder/sanitize" " (address, undefined)"
    if command -v valgrind >/dev/null 2>&1; then
        ATTN_INJECTION_STEP=97
        export ATTN_INJECTION_STEP
        unit "$folder/plain" " (valgrind, one of 97)" \
            valgrind -q --error-exitcode=9 --leak-check=full --show-leak-kinds=definite,indirect --errors-for-leak-kinds=definite,indirect
        unset ATTN_INJECTION_STEP
    else
        echo "valgrind is not here"
    fi
fi
echo "injections: $made made, $survived survived"
[ "$failed" = 0 ] && [ "$made" = "$survived" ]
