#!/bin/sh
# Installs to a folder, moves the folder, and builds a stranger's program against it by pkg-config, by find_package and by dlopen.
set -eu
[ -z "${ATTN_SANITIZE:-}" ] || exit 77
here=${ATTN_SOURCE:?}/tests/consumer
compiler=${CC:-cc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for component in runtime development program; do
    "$CMAKE" --install "${ATTN_BUILD:?}" --prefix "$work/first" --component $component >/dev/null
done
mv "$work/first" "$work/moved place" # a space too
prefix="$work/moved place"
pc=$(find "$prefix" -name libattn.pc)
libdir=$(dirname "$(dirname "$pc")")

if find "$prefix" \( -name '*.cmake' -o -name '*.pc' \) -exec grep -l -e "$work/first" -e "$ATTN_BUILD" -e "$ATTN_SOURCE" {} + | grep .; then
    echo "installed files name the folder they were built in"
    exit 1
fi
for header in "$ATTN_SOURCE"/include/attn/*.h; do
    cmp "$header" "$prefix/include/attn/${header##*/}"
done
for name in libattn.so libattn.so.0 libattn.so.0.0.2; do
    [ -e "$libdir/$name" ] || { echo "$name is not installed"; exit 1; }
done
if command -v readelf >/dev/null; then
    readelf -d "$libdir/libattn.so" >"$work/dynamic"
    grep -q 'SONAME.*\[libattn.so.0\]' "$work/dynamic"
    grep -Eq 'BIND_NOW|FLAGS_1.*NOW' "$work/dynamic"
    if grep -E 'RPATH|RUNPATH|TEXTREL' "$work/dynamic"; then
        echo "the installed library has a search path or text relocations"
        exit 1
    fi
    readelf -lW "$libdir/libattn.so" | awk '/GNU_STACK/ && /RWE/ { print "executable stack"; exit 1 }'
fi

LD_LIBRARY_PATH=$libdir
export LD_LIBRARY_PATH
if [ -x "$prefix/bin/attn" ]; then
    "$prefix/bin/attn" --help >/dev/null
fi

"$compiler" -std=c99 -o "$work/load" "$here/load.c" -ldl
"$work/load"

# pkg-config writes spaces with a backslash, so that its words must be evaluated.
PKG_CONFIG_PATH=$libdir/pkgconfig
export PKG_CONFIG_PATH
flags=$(pkg-config --cflags --libs libattn)
[ "$(pkg-config --modversion libattn)" = "$("$work/load")" ]
eval "\"$compiler\" -std=c99 -Wall -Wextra -Werror -o \"$work/by-pkg-config\" \"$here/program.c\" $flags"
"$work/by-pkg-config"

"$CMAKE" -S "$here" -B "$work/build" "-DCMAKE_PREFIX_PATH=$prefix" "-DCMAKE_C_COMPILER=$compiler" >"$work/log" || { cat "$work/log"; exit 1; }
"$CMAKE" --build "$work/build" >"$work/log" || { cat "$work/log"; exit 1; }
"$work/build/program"
