#!/bin/sh
# Writes cmake/attn.map from the ATTN_API declarations of the public headers; with --names prints the names alone.
# A release adds its new names in a node of its own and never moves a name: from 0.1 on, edit by hand.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
names() {
    # Comments and preprocessor lines go, the rest becomes one line; a declaration's name stands before its first bracket.
    cat "$root"/include/attn/*.h | sed -e '/^[[:space:]]*#/d' | tr '\n' ' ' | sed -e 's|/\*|\
/*|g' -e 's|\*/|*/\
|g' | sed -e '/^\/\*/d' | tr '\n' ' ' | awk '{
        count = split($0, parts, "ATTN_API")
        for (i = 2; i <= count; i++) {
            head = substr(parts[i], 1, index(parts[i], "(") - 1)
            if (match(head, /[A-Za-z_0-9]+[ ]*$/)) { name = substr(head, RSTART, RLENGTH); gsub(/ /, "", name); print name }
        }
    }' | LC_ALL=C sort -u
}
if [ "${1:-}" = --names ]; then
    names
    exit 0
fi
{
    echo "ATTN_0.0 {"
    echo "global:"
    names | sed -e 's/^/    /' -e 's/$/;/'
    echo "local:"
    echo "    *;"
    echo "};"
} >"$root/cmake/attn.map.new"
mv "$root/cmake/attn.map.new" "$root/cmake/attn.map"
