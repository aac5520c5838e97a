#!/bin/sh
# sh cmake/quickstart.sh demo    installs what is missing, builds, trains a small Transformer for about a minute, shows what came out
# sh cmake/quickstart.sh test    installs what is missing, builds, runs the tests
# Everything is built in ./build. With CI=true, test also checks the format, builds with clang, and runs the unit tests under sanitizers.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root"
build=$root/build
jobs=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)

say() { printf '\n== %s\n' "$*"; }
have() { command -v "$1" >/dev/null 2>&1; }
is_there() { have pkg-config && pkg-config --exists "$1"; }

# The first cmake that is new enough; an old one may stand before it on the path.
find_cmake() {
    cmake=
    for candidate in cmake /usr/bin/cmake /usr/local/bin/cmake cmake3; do
        have "$candidate" || continue
        if "$candidate" --version | awk 'NR == 1 { split($3, v, "."); exit !(v[1] > 3 || (v[1] == 3 && v[2] >= 20)) }'; then
            cmake=$candidate
            return 0
        fi
    done
    return 1
}

# What the things are called in each distribution.
name_packages() {
    for manager in apt-get dnf pacman apk none; do
        if have $manager; then break; fi
    done
    case $manager in
    apt-get) names="cmake=cmake ninja=ninja-build gcc=gcc,libc6-dev,binutils pkg-config=pkg-config openblas=libopenblas-dev
        jansson=libjansson-dev cmocka=libcmocka-dev g++=g++ clang=clang clang-format=clang-format python3=python3 numpy=python3-numpy
        rustc=rustc go=golang-go" ;;
    dnf) names="cmake=cmake ninja=ninja-build gcc=gcc,binutils pkg-config=pkgconf-pkg-config openblas=openblas-devel jansson=jansson-devel
        cmocka=libcmocka-devel g++=gcc-c++ clang=clang clang-format=clang-tools-extra python3=python3 numpy=python3-numpy
        rustc=rust go=golang" ;;
    pacman) names="cmake=cmake ninja=ninja gcc=gcc,binutils pkg-config=pkgconf openblas=openblas jansson=jansson cmocka=cmocka g++=gcc
        clang=clang clang-format=clang python3=python numpy=python-numpy rustc=rust go=go" ;;
    apk) names="cmake=cmake ninja=samurai gcc=gcc,musl-dev,binutils pkg-config=pkgconf openblas=openblas-dev jansson=jansson-dev
        cmocka=cmocka-dev g++=g++ clang=clang clang-format=clang-extra-tools python3=python3 numpy=py3-numpy rustc=rust go=go" ;;
    *) names= ;;
    esac
}

missing() {
    find_cmake || echo cmake
    have ninja || have make || echo ninja
    have cc || have gcc || have clang || echo gcc
    have pkg-config || echo pkg-config
    is_there openblas || echo openblas
    is_there jansson || echo jansson
    [ "$1" = test ] || return 0
    is_there cmocka || echo cmocka
    [ "${CI:-}" = true ] || return 0
    for tool in gcc g++ clang clang-format python3 rustc go; do
        have $tool || echo $tool
    done
    have python3 && python3 -c 'import numpy' 2>/dev/null || echo numpy
}

install_missing() {
    wanted=$(missing "$1" | sort -u | tr '\n' ' ')
    [ -n "$(echo "$wanted" | tr -d ' ')" ] || return 0
    name_packages
    packages=
    for thing in $wanted; do
        for pair in $names; do
            if [ "${pair%%=*}" = "$thing" ]; then packages="$packages $(echo "${pair#*=}" | tr ',' ' ')"; fi
        done
    done
    packages=$(echo "$packages" | tr ' ' '\n' | sort -u | tr '\n' ' ')
    case $manager in
    apt-get) update="apt-get update -q" install="apt-get install -q -y --no-install-recommends $packages" ;;
    dnf) update=true install="dnf install -y $packages" ;;
    pacman) update="pacman -Sy --noconfirm" install="pacman -S --needed --noconfirm $packages" ;;
    apk) update=true install="apk add $packages" ;;
    *)
        echo "Missing: $wanted" >&2
        echo "Neither apt-get, dnf, pacman nor apk is here. Install these by hand and run this again." >&2
        exit 1
        ;;
    esac
    as_root=
    if [ "$(id -u)" != 0 ]; then
        if ! have sudo; then
            echo "Missing: $wanted" >&2
            echo "You are not root and there is no sudo. As root, run: $install" >&2
            exit 1
        fi
        as_root=sudo
    fi
    say "installing:$(echo " $packages" | tr -s ' ')"
    export DEBIAN_FRONTEND=noninteractive
    $as_root $update
    if [ -n "$as_root" ]; then sudo env DEBIAN_FRONTEND=noninteractive $install; else $install; fi
    left=$(missing "$1" | sort -u | tr '\n' ' ')
    if [ -n "$left" ]; then
        echo "Still missing after the installation: $left" >&2
        exit 1
    fi
}

# configure_and_build FOLDER TARGET [CMAKE OPTIONS]
configure_and_build() {
    folder=$1 target=$2
    shift 2
    generator=
    if [ ! -f "$folder/CMakeCache.txt" ] && have ninja; then generator=Ninja; fi
    "$cmake" -S "$root" -B "$folder" ${generator:+-G "$generator"} "$@"
    "$cmake" --build "$folder" --target "$target" --parallel "$jobs"
}

run_tests() {
    werror=OFF
    if [ "${CI:-}" = true ]; then werror=ON; fi
    say "building in $build"
    configure_and_build "$build" all -DCMAKE_BUILD_TYPE=Release -DATTN_WERROR=$werror -DBUILD_TESTING=ON
    if [ "${CI:-}" = true ]; then
        say "format"
        "$cmake" --build "$build" --target format-check
        say "the library and the program with clang"
        configure_and_build "$build/clang" all -DCMAKE_C_COMPILER=clang -DATTN_WERROR=ON -DBUILD_TESTING=OFF
        say "unit tests under the address and undefined-behaviour sanitizers"
        configure_and_build "$build/sanitize" all -DATTN_SANITIZE=address,undefined -DBUILD_TESTING=ON -DATTN_BENCH=OFF
        ctest_of "$build/sanitize" -L unit
        say "what runs on several threads with the thread sanitizer: the test threads/tsan runs it"
        configure_and_build "$build/thread" tests_of_threads -DATTN_SANITIZE=thread -DBUILD_TESTING=ON -DATTN_BENCH=OFF
    fi
    say "tests"
    ctest_of "$build"
}

ctest_of() {
    folder=$1
    shift
    bin=$(dirname "$(command -v "$cmake")")
    "$bin/ctest" --test-dir "$folder" --output-on-failure --no-tests=error -j "$jobs" "$@"
}

# numbers FILE KEY: the values of one key of the log, a line each
numbers() { sed -n "s/.*\"$2\": *\\([-+0-9.eE]*\\).*/\\1/p" "$1"; }

run_demo() {
    say "building in $build"
    configure_and_build "$build" all -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF
    demo=$build/demo
    rm -rf "$demo"
    mkdir -p "$demo"
    find README.md LICENSE docs include src tests bench cmake -type f \( -name '*.md' -o -name '*.[ch]' -o -name '*.sh' -o -name '*.cmake' -o -name LICENSE \) |
        LC_ALL=C sort | while read -r file; do cat "$file"; done >"$demo/text.txt"
    context=64 batch=12
    set -- --data "$demo/text.txt" --task lm --tokens characters --layers 4 --heads 4 --width 128 --feed-forward 512 \
        --context $context --batch $batch --dropout 0 --optimizer adamw --lr 1e-3 --min-lr 1e-4 --beta2 0.99 --weight-decay 0.1 --clip 1 \
        --schedule cosine --seed 1

    say "measuring the machine"
    "$build/attn" train "$@" --out "$demo/trial" --steps 20 --decay-steps 20 --warmup 5 --eval-every 20 >"$demo/trial.txt" 2>&1 ||
        { cat "$demo/trial.txt"; exit 1; }
    speed=$(numbers "$demo/trial/log.jsonl" tokens_per_second | tail -n 1)
    steps=$(echo "${speed:-8000}" | awk -v tokens=$((context * batch)) '{ n = int(50 * $1 / tokens / 20) * 20; if (n < 100) n = 100; if (n > 4000) n = 4000; print n }')

    say "training on $(wc -c <"$demo/text.txt" | tr -d ' ') bytes, the text of this project: $steps steps, about a minute"
    "$build/attn" train "$@" --out "$demo/model" --steps "$steps" --decay-steps "$steps" --warmup $((steps / 20)) --eval-every $((steps / 2))

    say "the curve (nats a character)"
    log=$demo/model/log.jsonl
    awk '
        function value(key) { return match($0, "\"" key "\": *[-+0-9.eE]+") ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0 : "" }
        { line[NR] = sprintf("step %6d   loss %.3f", value("step"), value("loss")); v = value("valid_loss"); if (v != "") last = v }
        END {
            print line[1]
            if (NR > 2) print line[int((NR + 1) / 2)]
            print line[NR]
            if (last != "") printf "validation    loss %.3f\n", last
        }' "$log"
    echo "chart: $demo/model/loss.svg (open it in a browser)"

    say "what it writes after \"attn_\""
    "$build/attn" generate --model "$demo/model" --prompt "attn_" --tokens 400 --temperature 0.8 --top-k 40 --seed 1
    printf '\n'
    say "try next"
    cat <<END
build/attn generate --model build/demo/model --prompt "#include" --tokens 300 --temperature 0.7
build/attn info build/demo/model
build/attn train --data YOUR.txt --out build/mine --steps 2000      train on a text of your own
build/attn help train                                               everything that can be set
docs/examples/                                                      the same from C, in under 60 lines
END
}

case ${1:-} in
demo | test)
    install_missing "$1"
    find_cmake
    "run_$(echo "$1" | sed 's/^test$/tests/')"
    ;;
*)
    sed -n '2,4s/^# //p' "$0"
    exit 2
    ;;
esac
