#!/bin/sh
# sh tests/threads/run-tsan.sh    ThreadSanitizer over the rooms that run on several threads. Builds in a folder of its own (ATTN_TSAN_BUILD,
# or a temporary one). With ATTN_SHORT those alone that are in the folder `thread` of the build, where cmake/quickstart.sh puts the target
# tests_of_threads when CI=true.
#
# BLAS is not instrumented: what it reads and writes is not seen, its locks are. Tests run beside OpenBLAS without threads where that is
# installed, so that every thread is the library's or the test's; then the threads' tests beside the BLAS of the system, with tsan.supp
# for what is OpenBLAS's own. A test that forks is skipped by itself: ThreadSanitizer does not allow threads in the child.
set -u
root=${ATTN_SOURCE:-$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)}
cmake=${CMAKE:-cmake}
build=
if [ -n "${ATTN_SHORT:-}" ]; then
    build=$ATTN_BUILD/thread
    [ -x "$build/tests/threads_shared" ] || { echo "skipped: sh tests/threads/run-tsan.sh does this"; exit 77; }
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/attn-tsan.XXXXXX")
trap 'rm -rf "$work"' EXIT
runs=0 failures=0 skipped=0

if [ -z "$build" ]; then
    build=${ATTN_TSAN_BUILD:-$work/build}
    mkdir -p "$build"
    $cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DATTN_BENCH=OFF -DATTN_SANITIZE=thread >"$build/log" 2>&1 || {
        tail -20 "$build/log"
        echo "the configuration failed"
        exit 1
    }
fi

# every unit test of a room, built when the folder is ours
programs=
for room in core tensor kernels autograd modules models training generation threads; do
    for source in "$root/tests/$room"/test_*.c; do
        stem=$(basename "$source" .c)
        programs="$programs ${room}_${stem#test_}"
    done
done
if [ -z "${ATTN_SHORT:-}" ]; then
    targets=
    for program in $programs; do targets="$targets test_$program"; done
    # shellcheck disable=SC2086
    $cmake --build "$build" --parallel 2 --target $targets >>"$build/log" 2>&1 || { tail -20 "$build/log"; echo "the build failed"; exit 1; }
fi

# run PROGRAM NAME VARIABLE...
run() {
    program=$1 name=$2
    shift 2
    runs=$((runs + 1))
    env "$@" ATTN_DRAWS="${ATTN_DRAWS:-20}" TSAN_OPTIONS="suppressions=$root/tests/threads/tsan.supp:halt_on_error=0:exitcode=66:history_size=4" \
        $fixed "$build/tests/$program" >"$work/out" 2>&1
    status=$?
    if [ $status != 0 ]; then
        failures=$((failures + 1))
        echo "WRONG: $program, $name: exit status $status: $(tail -n 1 "$work/out" | head -c 200)"
        grep -E 'WARNING: Thread|SUMMARY|ERROR|Failure|FATAL' "$work/out" | sort | uniq -c | head -12
    fi
}

# tests write their files where they run
build=$(CDPATH='' cd -- "$build" && pwd)
cd "$work" || exit 1

# beside more random addresses than it knows the sanitizer does not start
fixed=
if ! "$build/tests/core_random" >/dev/null 2>&1; then
    fixed="setarch $(uname -m) -R"
    $fixed "$build/tests/core_random" >/dev/null 2>&1 || { echo "skipped: ThreadSanitizer does not start here"; exit 77; }
fi

serial=
for folder in /usr/lib/*/openblas-serial; do [ -e "$folder/libopenblas.so.0" ] && serial=$folder; done
if [ -n "${ATTN_SHORT:-}" ]; then
    for program in $programs; do
        if [ -x "$build/tests/$program" ]; then run "$program" "the system's BLAS"; fi
    done
else
    if [ -n "$serial" ]; then
        for program in $programs; do run "$program" "OpenBLAS without threads" LD_LIBRARY_PATH="$serial"; done
    else
        skipped=$((skipped + 1))
        echo "skipped: OpenBLAS without threads is not installed"
    fi
    for program in $programs; do
        case $program in
        threads_* | core_* | kernels_crosscheck_* | models_transformer | training_trainer) run "$program" "the system's BLAS" ;;
        esac
    done
fi
echo "ThreadSanitizer: $runs runs, $failures wrong, $skipped skipped"
[ "$failures" = 0 ]
