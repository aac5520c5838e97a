#!/bin/sh
# What cmake/quickstart.sh runs with each distribution's package manager: managers and tools of the test's own on an otherwise bare PATH.
set -eu
root=${ATTN_SOURCE:-$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
checks=0 wrong=0

# The tools that the managers "install", none of which does anything.
mkdir "$work/ready" "$work/base"
for tool in ninja cc gcc g++ clang clang-format python3 pkg-config rustc go ctest; do
    printf '#!/bin/sh\nexit 0\n' >"$work/ready/$tool"
done
printf '#!/bin/sh\necho "cmake version 3.25.1"\n' >"$work/ready/cmake"
printf '#!/bin/sh\nexit 0\n' >"$work/base/true"
chmod +x "$work"/ready/* "$work/base/true"
for tool in sh dirname getconf awk sort tr sed cat cp mkdir env; do ln -s "$(command -v $tool)" "$work/base/$tool"; done

# place MANAGER USER [SUDO]: a folder with a manager ("": none) that notes how it was called
place() {
    rm -rf "${work:?}/bin"
    cp -R "$work/base" "$work/bin"
    printf '#!/bin/sh\necho %s\n' "$2" >"$work/bin/id"
    if [ -n "$1" ]; then
        cat >"$work/bin/$1" <<MANAGER
#!/bin/sh
echo "$1 \$*" >>"$work/calls"
case " \$* " in
*" install "* | *" -S "* | *" add "*) [ -n "\${INSTALLS_NOTHING:-}" ] || cp "$work"/ready/* "$work/bin" ;;
esac
exit \${FAILS_WITH:-0}
MANAGER
    fi
    if [ -n "${3:-}" ]; then
        cat >"$work/bin/sudo" <<SUDO
#!/bin/sh
echo "sudo \$*" >>"$work/calls"
exec "\$@"
SUDO
    fi
    chmod +x "$work"/bin/*
    : >"$work/calls"
}

report() {
    echo "WRONG: $*"
    cat "$work/calls" "$work/said"
    wrong=$((wrong + 1))
}
# quickstart EXPECTED COMMAND [NAME=VALUE ...]: runs it there, and wants this exit status
quickstart() {
    expected=$1 command=$2
    shift 2
    got=0
    env -i "PATH=$work/bin" LC_ALL=C "$@" sh "$root/cmake/quickstart.sh" "$command" >"$work/said" 2>&1 </dev/null || got=$?
    checks=$((checks + 1))
    [ $got = "$expected" ] || report "exit status $got, expected $expected"
}
# calls [LINE ...]: what was run, apart from cmake, which the machine may have in /usr/bin
calls() {
    checks=$((checks + 1))
    sed -e 's/ cmake / /' -e 's/ cmake$//' -e 's/ *$//' "$work/calls" >"$work/plain"
    for line in "$@"; do echo "$line"; done >"$work/wanted"
    cmp -s "$work/plain" "$work/wanted" || report "expected the calls: $(cat "$work/wanted")"
}
says() {
    checks=$((checks + 1))
    grep -q -e "$1" "$work/said" || report "expected \"$1\""
}
called() {
    checks=$((checks + 1))
    grep -q -e "$1" "$work/calls" || report "expected the call \"$1\""
}
not_called() {
    checks=$((checks + 1))
    if grep -q -e "$1" "$work/calls"; then report "\"$1\" is not needed"; fi
}

# each manager: what the builder's test needs, as root
place apt-get 0
quickstart 0 test CI=true
calls "apt-get update -q" "apt-get install -q -y --no-install-recommends binutils clang clang-format g++ gcc golang-go libc6-dev \
libcmocka-dev libjansson-dev libopenblas-dev ninja-build pkg-config python3 python3-numpy rustc"
place dnf 0
quickstart 0 test CI=true
calls "dnf install -y binutils clang clang-tools-extra gcc gcc-c++ golang jansson-devel libcmocka-devel ninja-build openblas-devel \
pkgconf-pkg-config python3 python3-numpy rust"
place pacman 0
quickstart 0 test CI=true
calls "pacman -Sy --noconfirm" "pacman -S --needed --noconfirm binutils clang cmocka gcc go jansson ninja openblas pkgconf python \
python-numpy rust"
place apk 0
quickstart 0 test CI=true
calls "apk add binutils clang clang-extra-tools cmocka-dev g++ gcc go jansson-dev musl-dev openblas-dev pkgconf py3-numpy python3 rust samurai"

# each manager: users, with and without rights, and managers that fail or do not help
for manager in apt-get dnf pacman apk; do
    place $manager 0
    quickstart 0 test
    says "== tests"
    called cmocka
    not_called 'clang\|python\|rust'
    place $manager 0
    quickstart 1 demo INSTALLS_NOTHING=1
    says "Still missing after the installation: .*gcc.*jansson.*openblas"
    not_called cmocka
    place $manager 0
    quickstart 100 test FAILS_WITH=100 INSTALLS_NOTHING=1
    place $manager 1000
    quickstart 1 test
    says "Missing: .*cmocka"
    says "As root, run: $manager .*cmocka"
    calls
    place $manager 1000 sudo
    quickstart 0 test
    called "^sudo .*$manager .*cmocka"
done

place "" 0
quickstart 1 test
says "Missing: .*cmocka.*openblas"
says "Neither apt-get, dnf, pacman nor apk is here"
place apt-get 0
cp "$work"/ready/* "$work/bin"
quickstart 0 test CI=true
says "== format"
calls
place apt-get 0
quickstart 2 nonsense
says "quickstart.sh demo"

echo "$checks checks of quickstart.sh: $wrong wrong"
[ $wrong = 0 ]
