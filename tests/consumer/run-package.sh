#!/bin/sh
# The Debian packages that cpack makes: what is in which, what they need, and a stranger's program against the unpacked ones.
set -eu
[ -z "${ATTN_SANITIZE:-}" ] || exit 77
for tool in dpkg-deb dpkg-shlibdeps pkg-config; do command -v $tool >/dev/null || exit 77; done
here=${ATTN_SOURCE:?}/tests/consumer
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0
wrong() {
    echo "WRONG: $*"
    bad=1
}

"$(dirname "${CMAKE:?}")/cpack" --config "${ATTN_BUILD:?}/CPackConfig.cmake" -G DEB -B "$work/packages" >"$work/log" 2>&1 ||
    { cat "$work/log"; exit 1; }
cd "$work/packages"
root=$work/root
for package in libattn0 libattn-dev attn; do
    file=$(echo ${package}_*.deb)
    [ -f "$file" ] || { wrong "no package $package"; cat "$work/log"; exit 1; }
    [ "$(dpkg-deb -f "$file" Package)" = $package ] || wrong "$file is the package $(dpkg-deb -f "$file" Package)"
    dpkg-deb -c "$file" | awk '{ print $6 }' | sed -n 's|^\./\(.*[^/]\)$|\1|p' >"$work/$package.list"
    dpkg-deb -x "$file" "$root"
done

# owns PACKAGE PATTERN: a file of this package, and of no other
owns() {
    grep -q -e "$2" "$work/$1.list" || wrong "$1 has no $2"
    for other in libattn0 libattn-dev attn; do
        [ $other = "$1" ] || ! grep -q -e "$2" "$work/$other.list" || wrong "$other has $2, which belongs to $1"
    done
}
owns libattn0 '/libattn\.so\.0$'
owns libattn0 '/libattn\.so\.[0-9]*\.[0-9]*\.[0-9]*$'
owns libattn-dev '/libattn\.so$'
owns libattn-dev '^usr/include/attn/attn\.h$'
owns libattn-dev '/pkgconfig/libattn\.pc$'
owns libattn-dev '/cmake/attn/attnConfig\.cmake$'
owns attn '^usr/bin/attn$'
owns attn '^usr/share/man/man1/attn\.1'
if grep -v '^usr/' "$work"/*.list; then wrong "files outside usr"; fi

version=$(dpkg-deb -f libattn0_*.deb Version)
dpkg-deb -f libattn0_*.deb Depends | grep -q libjansson || wrong "libattn0 does not depend on jansson"
dpkg-deb -f libattn0_*.deb Depends | grep -q -e openblas -e blas || wrong "libattn0 does not depend on a BLAS"
for file in libattn-dev_*.deb attn_*.deb; do
    needs=$(dpkg-deb -f "$file" Depends)
    echo "$needs" | grep -q "libattn0 (= $version)" || wrong "$file: depends on $needs, expected libattn0 (= $version)"
done
dpkg-deb -I libattn0_*.deb shlibs | grep -q "^libattn 0 libattn0" || wrong "libattn0 has no shlibs"

# A stranger's program, by the unpacked pkg-config file; the unpacked program finds its library.
libdir=$(dirname "$(find "$root" -name libattn.so)")
LD_LIBRARY_PATH=$libdir PKG_CONFIG_PATH=$libdir/pkgconfig
export LD_LIBRARY_PATH PKG_CONFIG_PATH
same=$(pkg-config --modversion libattn)
[ "$same" = "$version" ] || wrong "the version of libattn.pc is $same, of the package $version"
# shellcheck disable=SC2046 # several words
"${CC:-cc}" -std=c99 -Wall -Wextra -Werror -o "$work/program" "$here/program.c" $(pkg-config --cflags --libs libattn)
"$work/program"
"$root/usr/bin/attn" --help >/dev/null
[ $bad = 0 ] && echo "libattn0, libattn-dev and attn $version: $(cat "$work"/*.list | wc -l) files"
exit $bad
