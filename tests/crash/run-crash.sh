#!/bin/sh
# sh tests/crash/run-crash.sh [SEED]    kills training runs at any moment, inside saves too, fills their disk, damages their files: what goes
# on ends in the bytes of an undisturbed run. With ATTN_BUILD, the program there; else one is built in build/crash. ATTN_SHORT: a sample.
set -u
root=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd)
command -v python3 >/dev/null 2>&1 || { echo "python3 is not here"; exit 77; }
cc=${CC:-cc}
build=${ATTN_BUILD:-}
if [ -z "$build" ]; then
    build=$root/build/crash
    mkdir -p "$build"
    cmake=${CMAKE:-cmake}
    [ -x /usr/bin/cmake ] && cmake=${CMAKE:-/usr/bin/cmake}
    generator=
    if [ ! -f "$build/CMakeCache.txt" ] && command -v ninja >/dev/null 2>&1; then generator="-G Ninja"; fi
    # shellcheck disable=SC2086
    "$cmake" -S "$root" -B "$build" $generator -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF -DATTN_BENCH=OFF >"$build/build.log" 2>&1 &&
        "$cmake" --build "$build" --parallel 2 >>"$build/build.log" 2>&1 || { tail -20 "$build/build.log" >&2; exit 1; }
fi
program=${ATTN_PROGRAM:-$build/attn}
[ -x "$program" ] || { echo "no program at $program"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/attn-crash.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
"$cc" -std=gnu11 -D_GNU_SOURCE -O1 -fPIC -shared -o "$work/shim.so" "$root/tests/crash/shim.c" -ldl || exit 1
PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 python3 "$root/tests/crash/crash.py" "$program" "$work/shim.so" "$root" "$work" "${1:-1}"
