#!/bin/sh
# The README's C and Python examples, as they stand there, against the built library.
set -eu
root=${ATTN_SOURCE:-$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)}
library=${ATTN_LIBRARY:-$root/build/libattn.so}
if [ -n "${ATTN_SANITIZE:-}" ]; then exit 77; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
folder=$(dirname "$library")

block() { awk -v fence="\`\`\`$1" '$0 == "```" { inside = 0 } inside { print } $0 == fence { inside = 1 }' "$root/README.md"; }
block c >"$work/example.c"
block python >"$work/example.py"

"${CC:-cc}" -std=c99 -Wall -Wextra -Werror -I"$root/include" "$work/example.c" -o "$work/example" -L"$folder" -lattn -Wl,-rpath,"$folder"
"$work/example" | tee "$work/c.txt"
# the last row is the last token of the second sequence: its value gets the gradient of one weight for each number
grep -q '^output 0\.[0-9]*, d_query -*[0-9.]*, d_value 0\.[0-9]*$' "$work/c.txt"

if command -v python3 >/dev/null && python3 -c 'import numpy' 2>/dev/null; then
    LD_LIBRARY_PATH="$folder" python3 "$work/example.py" | tee "$work/python.txt"
    grep -q '^0 \[' "$work/python.txt"
fi
