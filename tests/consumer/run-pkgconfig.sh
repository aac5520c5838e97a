#!/bin/sh
# libattn.pc for relative and absolute library folders, from a configuration alone.
set -eu
[ -z "${ATTN_SANITIZE:-}" ] || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# value LIBDIR VARIABLE
value() {
    "${CMAKE:?}" -S "${ATTN_SOURCE:?}" -B "$work/build" -DBUILD_TESTING=OFF -DATTN_BENCH=OFF "-DCMAKE_C_COMPILER=${CC:-cc}" -DCMAKE_INSTALL_PREFIX=/opt/attn \
        "-DCMAKE_INSTALL_LIBDIR=$1" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
    mkdir -p "$work/place"
    cp "$work/build/libattn.pc" "$work/place"
    PKG_CONFIG_PATH=$work/place pkg-config --variable="$2" libattn
}
same() {
    [ "$1" = "$2" ] || { echo "libattn.pc: got $1, expected $2"; exit 1; }
}

same "$(value lib libdir)" "$work/place/../../lib"
same "$(value lib/x86_64-linux-gnu libdir)" "$work/place/../../../lib/x86_64-linux-gnu"
same "$(value /srv/attn/lib libdir)" /srv/attn/lib
same "$(value /srv/attn/lib includedir)" /opt/attn/include
same "$(PKG_CONFIG_PATH=$work/place pkg-config --libs libattn | tr -s ' ' | sed 's/ $//')" "-L/srv/attn/lib -lattn"
PKG_CONFIG_PATH=$work/place pkg-config --libs --static libattn | grep -q -e -ljansson
