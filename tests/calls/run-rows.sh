#!/bin/sh
# Every exported function has a row of wrong calls: its name stands in ROW(t, name, ...) or NOTED(name) in tests/calls, or, for frees and
# init functions, in RELEASE(.., name) or INIT(.., name).
set -eu
source=${ATTN_SOURCE:-$(cd "$(dirname "$0")/../.." && pwd)}
exported=0
missing=0
rows=$(cat "$source"/tests/calls/*.c | grep -oE '(ROW\(t, |NOTED\(|RELEASE\([a-z_]+, |INIT\([a-z_]+, )attn_[a-z0-9_]+' | sed 's/.*[( ]//' | sort -u)
for name in $(grep -oE '^ +attn_[a-z0-9_]+;' "$source/cmake/attn.map" | tr -d ' ;'); do
    exported=$((exported + 1))
    if ! printf '%s\n' "$rows" | grep -qx "$name"; then
        echo "no row of wrong calls for $name in tests/calls"
        missing=$((missing + 1))
    fi
done
if [ "$exported" -eq 0 ]; then
    echo "no exported names in $source/cmake/attn.map"
    exit 1
fi
echo "$exported exported functions, $missing without a row of wrong calls"
[ "$missing" -eq 0 ]
