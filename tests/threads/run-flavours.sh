#!/bin/sh
# sh tests/threads/run-flavours.sh    The same bytes for any number of threads beside every BLAS that is installed, and results within the
# bounds. Without ATTN_BUILD it builds what it needs; with ATTN_SHORT a sample. The last line is the counts.
#
# The flavours are chosen by a folder with one link in it, named as the library that the programs ask for: nothing of the system changes.
set -u
[ -z "${ATTN_SANITIZE:-}" ] || exit 77
root=${ATTN_SOURCE:-$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)}
cmake=${CMAKE:-cmake}
short=${ATTN_SHORT:-}
work=$(mktemp -d "${TMPDIR:-/tmp}/attn-flavours.XXXXXX")
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
unset OMP_NUM_THREADS OPENBLAS_NUM_THREADS BLIS_NUM_THREADS LD_LIBRARY_PATH
runs=0 failures=0 skipped=0 tested=

say() { printf '%s\n' "$*"; }
skip() { skipped=$((skipped + 1)); say "skipped: $*"; }

# a program that hangs is ended and named, where there is a command for it
patience=
if command -v timeout >/dev/null; then
    patience="timeout 3600"
    [ -z "$short" ] || patience="timeout 100"
fi

# build FOLDER TARGET-SET OPTION...: everything the tests here need, in its own folder
build() {
    folder=$1
    shift
    $cmake -S "$root" -B "$folder" -DCMAKE_BUILD_TYPE=Release -DATTN_BENCH=OFF "$@" >"$folder.log" 2>&1 &&
        $cmake --build "$folder" --parallel 2 --target $targets >>"$folder.log" 2>&1
}
units="core_forks threads_bits threads_host threads_fork threads_refused threads_shared threads_cancel threads_many"
checks="kernels_crosscheck_linear kernels_crosscheck_attention kernels_crosscheck_rows kernels_crosscheck_elements models_transformer"
targets="attn attn_program"
for unit in $units $checks; do targets="$targets test_$unit"; done

# links NAME FILE BUILD: a folder in which FILE stands for the BLAS that the programs of BUILD ask for
links() {
    mkdir -p "$work/lib/$1"
    for soname in $(readelf -d "$3/tests/threads_bits" | sed -n 's/.*NEEDED.*\[\(lib[a-z]*\(blas\|blis\)[^]]*\)\].*/\1/p'); do
        ln -sf "$2" "$work/lib/$1/$soname"
    done
    LD_LIBRARY_PATH=$work/lib/$1 ldd "$3/tests/threads_bits" | grep -q "$work/lib/$1/"
}

# run NAME PROGRAM ENVIRONMENT...: one test program beside one BLAS
run() {
    run_name=$1 run_program=$2
    shift 2
    runs=$((runs + 1))
    if ! env LD_LIBRARY_PATH="$work/lib/$run_name" "$@" $patience "$build/tests/$run_program" >"$work/out" 2>&1; then
        failures=$((failures + 1))
        say "WRONG: $run_name, $*: $run_program"
        grep -E 'ERROR|WRONG|LINE|FAILED|rror' "$work/out" | head -8
    fi
    left=$(sed -n "/test_reference/d; s/.*SKIPPED \\] \\(test[a-z_]*\\)\$/\\1/p" "$work/out" | sort -u | tr "\\n" " ")
    [ -z "$left" ] || say "$run_name: $left not run"
    return 0
}

# bits NAME ENVIRONMENT...: the digests of all scenarios must be what the first environment gave
bits() {
    bits_name=$1
    shift
    run "$bits_name" threads_bits ATTN_BLAS_ALONE=1 "$@"
    cp "$work/out" "$work/out.flavour"
    grep '^digest blas' "$work/out" | sed 's/^digest blas [^ ]*//' >"$work/digest"
    [ "$(wc -l <"$work/digest")" -ge 5 ] || { failures=$((failures + 1)); say "WRONG: $*: no digests"; }
    [ -f "$work/$bits_name.digest" ] || cp "$work/digest" "$work/$bits_name.digest"
    cmp -s "$work/digest" "$work/$bits_name.digest" || { failures=$((failures + 1)); say "WRONG: other bytes in the environment $*"; }
}

# train NAME ENVIRONMENT...: the program's model file for each number of threads, and in a process that may have no second thread
train() {
    train_name=$1
    shift
    for threads in $train_threads limited; do
        out=$work/trained/$train_name.$threads
        rm -rf "$out"
        one=
        # OpenBLAS with pthreads starts its threads when it is loaded, and ends a process that cannot; so it is told beforehand
        [ "$threads" = limited ] && one="OPENBLAS_NUM_THREADS=1 BLIS_NUM_THREADS=1"
        command="env LD_LIBRARY_PATH=$work/lib/$train_name $* $one $build/attn train --data $work/text.txt --out $out --layers 1 --heads 2 --width 64
            --feed-forward 130 --context 32 --batch 4 --dropout 0.1 --steps $train_steps"
        if [ "$threads" = limited ]; then
            [ -n "$limit" ] || continue
            command="$limit $command --threads 4"
        else
            command="$command --threads $threads"
        fi
        runs=$((runs + 1))
        if ! $command >"$work/out" 2>&1; then
            failures=$((failures + 1))
            say "WRONG: $train_name, $*: attn train, threads $threads: $(head -c 300 "$work/out")"
        fi
        [ -f "$work/$train_name.model" ] || cp "$out/model.safetensors" "$work/$train_name.model"
        cmp "$out/model.safetensors" "$work/$train_name.model" ||
            { failures=$((failures + 1)); say "WRONG: $train_name, $*: threads $threads give another model file"; }
    done
}

# A user of its own with one thread to its name, when we may become one (root is not bound by the limit), and the program can be run so.
limit=
prepare_limit() {
    mkdir -p "$work/trained"
    chmod 777 "$work/trained"
    tr -cd '\011\012\040-\176' <"$root/include/attn/operations.h" >"$work/text.txt"
    command -v prlimit >/dev/null || return 0
    limit="prlimit --nproc=1:1"
    if [ "$(id -u)" = 0 ]; then limit="$limit setpriv --reuid=$((61000 + $$ % 4000)) --regid=65534 --clear-groups"; fi
    $limit "$build/attn" --version >/dev/null 2>&1 || $limit env OPENBLAS_NUM_THREADS=1 "$build/attn" --version >/dev/null 2>&1 || limit=
    [ -n "$limit" ] || skip "a process without threads of its own: prlimit and setpriv do not get that far here"
}

# whole NAME FILE: all tests beside one BLAS whose threads can be held to one
whole() {
    tested="$tested $1"
    if [ -n "$short" ]; then
        bits "$1"
        bits "$1" OMP_NUM_THREADS=8 OPENBLAS_NUM_THREADS=4
        run "$1" threads_host OMP_NUM_THREADS=8
        run "$1" threads_fork ATTN_FORKS=3
        run "$1" threads_refused OMP_NUM_THREADS=8
        [ "$1" != openblas-openmp ] || run "$1" threads_many
        train "$1" OMP_NUM_THREADS=8
        return
    fi
    for environment in ATTN=0 OMP_NUM_THREADS=8 OPENBLAS_NUM_THREADS=4 "OMP_NUM_THREADS=8 OPENBLAS_NUM_THREADS=4"; do
        bits "$1" $environment
        run "$1" threads_host $environment
        run "$1" threads_fork ATTN_FORKS=40 $environment
        run "$1" core_forks $environment
        run "$1" threads_refused $environment
        run "$1" threads_shared $environment
        run "$1" threads_cancel ATTN_CANCELS=2 $environment
        run "$1" threads_many $environment
        train "$1" $environment
    done
    for check in $checks; do run "$1" "$check"; done
}

# within NAME: results within the bounds beside a BLAS of other bits, and the same bytes for any number of threads
within() {
    tested="$tested $1"
    bits "$1"
    run "$1" kernels_crosscheck_linear
    [ -z "$short" ] || return 0
    for check in $checks; do run "$1" "$check"; done
    for unit in core_forks threads_host threads_fork threads_shared threads_cancel; do run "$1" $unit; done
    # A libblas.so.3 that is BLIS inside hides its threads, so nobody can hold them to one: another number of them may give other bytes, though
    # the same ones for any number of ours. And they spin while they wait, so that eight of them on a few processors take hours: it gets as
    # many as there are processors.
    case $1 in
    *-as-blas)
        most=$(getconf _NPROCESSORS_ONLN)
        run "$1" threads_bits ATTN_BLAS_ALONE=1 OMP_NUM_THREADS="$most"
        ;;
    *)
        most=8
        bits "$1" OMP_NUM_THREADS=$most
        ;;
    esac
    run "$1" threads_host OMP_NUM_THREADS="$most"
}

first_of() {
    for candidate in "$@"; do
        if [ -e "$candidate" ]; then
            echo "$candidate"
            return 0
        fi
    done
    return 1
}

# installed KIND NAME FILE...: the first of the files that is there is tested
installed() {
    kind=$1 name=$2
    shift 2
    if ! file=$(first_of "$@"); then
        skip "$name is not installed"
    elif ! links "$name" "$file" "$build"; then
        skip "$name: the programs do not load $file in place of their own BLAS"
    else
        $kind "$name"
        case $name in
        openblas-*) grep -q "^digest blas $name " "$work/out.flavour" || { failures=$((failures + 1)); say "WRONG: $name was not what ran"; } ;;
        esac
    fi
}

build=${ATTN_BUILD:-}
if [ -z "$build" ]; then
    build=$work/build
    build "$build" || { tail -20 "$build.log"; echo "the build failed"; exit 1; }
fi
[ -x "$build/tests/threads_bits" ] || { echo "no test programs: cmocka is absent"; exit 77; }
train_threads="1 2 3 4" train_steps=30
[ -z "$short" ] || train_threads="1 3" train_steps=8
prepare_limit

installed whole openblas-pthread /usr/lib/*/openblas-pthread/libopenblas.so.0 /usr/lib64/libopenblasp.so.0
installed whole openblas-openmp /usr/lib/*/openblas-openmp/libopenblas.so.0 /usr/lib64/libopenblaso.so.0
installed whole openblas-serial /usr/lib/*/openblas-serial/libopenblas.so.0 /usr/lib64/libopenblas.so.0
installed within blis /usr/lib/*/blis-openmp/libblis.so.4 /usr/lib/*/blis-pthread/libblis.so.4 /usr/lib64/libblis.so.4
installed within blis-as-blas /usr/lib/*/blis-pthread/libblas.so.3 /usr/lib/*/blis-openmp/libblas.so.3
installed within netlib /usr/lib/*/blas/libblas.so.3 /usr/lib64/libcblas.so.3

# configured BLAS NAME MODULE FILE LIBRARY: a build of its own with ATTN_BLAS=BLAS, whose pkg-config module is made here
configured() {
    mkdir -p "$work/pc.$2"
    printf 'Name: %s\nDescription: for a test\nVersion: 1\nLibs: -L%s -l%s\n' "$3" "$(dirname "$4")" "$5" >"$work/pc.$2/$3.pc"
    build=$work/build.$2
    if ! PKG_CONFIG_PATH=$work/pc.$2 build "$build" -DATTN_BLAS="$1"; then
        failures=$((failures + 1))
        say "WRONG: ATTN_BLAS=$1 ($2) does not build: $(tail -3 "$build.log")"
        return 1
    fi
    mkdir -p "$work/lib/$2"
    ln -sf "$4" "$work/lib/$2/$(readelf -d "$4" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')"
}

configurations() {
    if file=$(first_of /usr/lib/*/blas/libblas.so) && configured blas configured-blas cblas "$file" blas; then
        within configured-blas
    else
        skip "ATTN_BLAS=blas: no libblas to link with"
    fi
    # FlexiBLAS itself where it is, else what stands for it, with each flavour behind it
    if pkg-config --exists flexiblas 2>/dev/null; then
        build=$work/build.flexiblas
        build "$build" -DATTN_BLAS=flexiblas && mkdir -p "$work/lib/flexiblas" && within flexiblas
        return
    fi
    skip "FlexiBLAS is not installed: a stand-in takes its place"
    ${CC:-cc} -shared -fPIC -Wl,-soname,libflexiblas.so.3 -o "$work/libflexiblas.so.3" "$root/tests/threads/flexiblas.c" -ldl || return
    ln -sf libflexiblas.so.3 "$work/libflexiblas.so"
    for flavour in openblas-pthread openblas-openmp blis; do
        [ -d "$work/lib/$flavour" ] || continue
        FLEXIBLAS=$(readlink "$work/lib/$flavour"/*)
        export FLEXIBLAS
        [ -d "$work/build.flexiblas" ] || configured flexiblas flexiblas flexiblas "$work/libflexiblas.so" flexiblas || return
        ln -sfn "$work/lib/flexiblas" "$work/lib/flexiblas-$flavour"
        within "flexiblas-$flavour"
    done
}
[ -n "$short" ] || configurations

echo "beside$tested: $runs runs, $failures wrong, $skipped skipped"
[ "$failures" = 0 ]
