#!/bin/sh
# A file includes only its own room and rooms on lower floors; there are no circles; files stay short; BLAS has one door.
set -eu
root=${ATTN_SOURCE:-$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)}
cd "$root"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
find src include -name '*.[ch]' | LC_ALL=C sort >"$work/files"

# One line for each #include: the file, then the file it names (inside the project) or <system/header.h>.
xargs awk '
    function clean(path,    parts, count, i, depth, out) { # a/b/../c -> a/c
        count = split(path, parts, "/")
        depth = 0
        for (i = 1; i <= count; i++) {
            if (parts[i] == "..") depth--
            else if (parts[i] != ".") stack[++depth] = parts[i]
        }
        out = stack[1]
        for (i = 2; i <= depth; i++) out = out "/" stack[i]
        return out
    }
    /^[ \t]*#[ \t]*include/ {
        if (match($0, /"[^"]*"/)) {
            folder = FILENAME
            sub(/\/[^\/]*$/, "", folder)
            print FILENAME, clean(folder "/" substr($0, RSTART + 1, RLENGTH - 2))
        } else if (match($0, /<attn\/[^>]*>/)) {
            print FILENAME, "include/" substr($0, RSTART + 1, RLENGTH - 2)
        } else if (match($0, /<[^>]*>/)) {
            print FILENAME, substr($0, RSTART, RLENGTH)
        }
    }' <"$work/files" >"$work/includes"

awk '
    BEGIN {
        floor["core"] = floor["parallel"] = 1
        floor["tensor"] = 2
        floor["formats"] = floor["kernels"] = 3
        floor["autograd"] = 4
        floor["modules"] = 5
        floor["models"] = floor["data"] = 6
        floor["training"] = floor["generation"] = 7
        floor["cli"] = 8
    }
    function wrong(why) { print $1 " includes " $2 ": " why; bad = 1 }
    function room(path,    parts) { split(path, parts, "/"); return parts[2] }
    NR == FNR { known[$1] = 1; if ($1 ~ /^src\// && !(room($1) in floor)) { print $1 ": room without a floor"; bad = 1 } next }
    $2 ~ /^</ {
        if ($2 == "<cblas.h>" && $1 != "src/kernels/blas/gemm.c") wrong("only src/kernels/blas/gemm.c speaks to BLAS")
        if ($1 ~ /^include\// && $2 !~ /^<std(def|int)\.h>$/) wrong("public headers use <stddef.h> and <stdint.h> alone")
        if ($2 ~ /^<(assert|setjmp|omp)\.h>$/ && $1 !~ /^src\/cli\//) wrong("not in the library")
        next
    }
    !($2 in known) { wrong("no such file"); next }
    $1 ~ /^include\// { if ($2 !~ /^include\//) wrong("a public header needs a private one"); next }
    $2 ~ /^include\// { next }
    {
        from = room($1); to = room($2)
        if (from == "cli" && to != "cli") wrong("the program uses the public headers alone")
        else if (from != to && floor[to] > floor[from]) wrong("a higher floor")
        else if (from != to && floor[to] == floor[from]) wrong("another room on the same floor")
        split($1, a, "/"); split($2, b, "/")
        if (from == "kernels" && to == "kernels" && a[4] != "" && b[4] != "" && a[3] != b[3]) wrong("another set of kernels")
    }
    END { exit bad }' "$work/files" "$work/includes" || exit 1

if ! grep -v '<' "$work/includes" | tsort >/dev/null 2>"$work/circle"; then
    echo "a circle of includes:"
    cat "$work/circle"
    exit 1
fi

if grep -rn cblas_ src | grep -v '^src/kernels/blas/gemm\.c:'; then
    echo "cblas_ outside src/kernels/blas/gemm.c"
    exit 1
fi

long=$(find src include tests bench cmake docs \( -name '*.[ch]' -o -name '*.py' -o -name '*.sh' -o -name '*.cmake' -o -name CMakeLists.txt \) \
    -exec awk 'END { if (NR > 500) print FILENAME ": " NR " lines" }' {} \;)
if [ -n "$long" ]; then
    echo "$long"
    echo "no source file is longer than 500 lines"
    exit 1
fi
echo "$(wc -l <"$work/files") files, $(wc -l <"$work/includes") includes: no circle, none upward, none sideways"
