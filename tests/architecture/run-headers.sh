#!/bin/sh
# Every public header compiles alone as C99 and C++17, leaves no hole in a struct, and keeps to what foreign languages can call.
set -eu
root=${ATTN_SOURCE:-$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)}
compiler=${CC:-cc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

for header in "$root"/include/attn/*.h; do
    name=${header##*/}
    printf '#include <attn/%s>\n#include <attn/%s>\ntypedef int unit;\n' "$name" "$name" >"$work/unit.c"
    cp "$work/unit.c" "$work/unit.cpp"
    "$compiler" -std=c99 -pedantic -Wall -Wextra -Wpadded -Wstrict-prototypes -Werror -I"$root/include" -fsyntax-only "$work/unit.c" ||
        { echo "$name: not clean as C99"; bad=1; }
    if command -v g++ >/dev/null; then
        g++ -std=c++17 -pedantic -Wall -Wextra -Werror -I"$root/include" -fsyntax-only "$work/unit.cpp" ||
            { echo "$name: not clean as C++17"; bad=1; }
    fi
done

# The declarations as text: comments and preprocessor lines away, one declaration a line.
cat "$root"/include/attn/*.h | sed -e '/^[[:space:]]*#/d' | tr '\n' ' ' | sed -e 's|/\*|\
/*|g' -e 's|\*/|*/\
|g' | sed -e '/^\/\*/d' | tr '\n' ' ' | sed -e 's/ATTN_BEGIN//g' -e 's/ATTN_END//g' | tr ';' '\n' >"$work/text"

awk '
    function wrong(why) { print why ": " $0; bad = 1 }
    # A parameter or a result is a pointer or one of the plain numbers.
    function plain(type) {
        gsub(/(const|struct) /, "", type)
        if (type ~ /[*\[]/) return 1
        sub(/^ +/, "", type)
        sub(/ .*/, "", type)
        return type ~ /^(void|u?int(8|16|32|64)_t|float|double|attn_status)$/
    }
    /[A-Za-z_0-9] *: *[0-9]+/ { wrong("bit-field") }
    /(^|[^A-Za-z_0-9])(bool|_Bool|long|size_t|unsigned|wchar_t|union|inline)([^A-Za-z_0-9]|$)/ { wrong("type that foreign languages spell differently") }
    /ATTN_API/ {
        sub(/.*ATTN_API */, "")
        if (/\.\.\./) wrong("variable arguments")
        if (/(^|[^A-Za-z_0-9])enum /) wrong("enum in a signature")
        open = index($0, "(")
        head = substr($0, 1, open - 1)
        sub(/[A-Za-z_0-9]+ *$/, "", head)
        if (!plain(head)) wrong("result by value")
        inside = substr($0, open + 1)
        sub(/\) *$/, "", inside)
        count = split(inside, parts, ",")
        for (i = 1; i <= count; i++) if (!plain(parts[i])) wrong("argument by value \"" parts[i] "\"")
        seen++
    }
    END { if (!seen) { print "no declaration found"; bad = 1 } else print seen " declarations"; exit bad }' "$work/text" || bad=1
exit $bad
