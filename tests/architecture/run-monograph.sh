#!/bin/sh
# docs/monograph.md and docs/testing.md name only what exists (files, functions, tests, cases), and the monograph's numbers are complete.
# In backticks stand: a file or folder, a name of the code, room/stem of a test, or room/stem: case, case. Fenced blocks are not looked at.
set -eu
root=${ATTN_SOURCE:-$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)}
cd "$root"
monograph=${1:-docs/monograph.md}
testing=${2:-docs/testing.md}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

# Names of the code: every word of a source outside its comments.
find include src tests bench -name '*.[ch]' | LC_ALL=C sort >"$work/sources"
xargs awk '
    FNR == 1 { inside = 0 }
    {
        line = $0
        out = ""
        while (line != "") {
            at = index(line, inside ? "*/" : "/*")
            if (!inside) out = out " " (at ? substr(line, 1, at - 1) : line)
            if (!at) break
            line = substr(line, at + 2)
            inside = !inside
        }
        count = split(out, words, /[^A-Za-z_0-9]+/)
        for (i = 1; i <= count; i++) if (words[i] ~ /^[A-Za-z_]/ && !(words[i] in seen)) { seen[words[i]] = 1; print words[i] }
    }' <"$work/sources" >"$work/words"
grep -oh 'ATTN_[A-Z_]*' CMakeLists.txt cmake/*.cmake >>"$work/words" # options of the build

# Cases: room/stem case, one for each function that a test program registers; defined there as well.
xargs awk '
    FNR == 1 { room = stem = FILENAME; sub(/^tests\//, "", room); sub(/\/.*/, "", room); sub(/.*\/test_/, "", stem); sub(/\.c$/, "", stem) }
    FILENAME !~ /\/test_[a-z_0-9]*\.c$/ { next }
    {
        line = $0
        if (match(line, /^static void [a-z_0-9]+\(void \*\*/)) { name = substr(line, 13); sub(/\(.*/, "", name); defined[room "/" stem " " name] = 1 }
        while (match(line, /(cmocka_unit_test[a-z_]*|FIXTURE_TEST)\([a-z_0-9]+/)) {
            name = substr(line, RSTART, RLENGTH)
            sub(/.*\(/, "", name)
            registered[room "/" stem " " name] = 1
            line = substr(line, RSTART + RLENGTH)
        }
    }
    END { for (one in registered) if (one in defined) print one }' <"$work/sources" >"$work/cases"

# Tests as ctest names them: programs, scripts and python.
find tests -name 'test_*.c' -o -name 'test_*.py' -o -name 'run-*.sh' -o -path 'tests/cli/*.sh' |
    sed -e 's|^tests/||' -e 's|/run-|/|' -e 's|/test_|/|' -e 's|\.[a-z]*$||' >"$work/tests"
find include src tests docs bench cmake .ci \( -type f -o -type d \) >"$work/paths"
find . -maxdepth 1 -type f | sed 's|^\./||' >>"$work/paths"

awk -v words="$work/words" -v cases="$work/cases" -v tests="$work/tests" -v paths="$work/paths" '
    function wrong(why) { print FILENAME ":" FNR ": `" token "`: " why; bad = 1 }
    function load(file, into,    line) { while ((getline line < file) > 0) into[line] = 1; close(file) }
    BEGIN { load(words, word); load(cases, known_case); load(tests, test); load(paths, path) }
    FNR == 1 { fenced = 0; files++ }
    /^ *```/ { fenced = !fenced; next }
    fenced { next }
    {
        if (gsub(/`/, "`") % 2) { print FILENAME ":" FNR ": a backtick without its pair"; bad = 1; next }
        pieces = split($0, piece, "`")
        for (p = 2; p <= pieces; p += 2) {
            token = piece[p]
            checked++
            if (token ~ /^[a-z]+\/[a-z_0-9]+: [a-z_0-9, ]+$/) {
                name = token; sub(/:.*/, "", name)
                rest = token; sub(/^[^:]*: /, "", rest)
                count = split(rest, one, ", ")
                for (i = 1; i <= count; i++) if (!((name " " one[i]) in known_case)) wrong("no case " one[i] " in tests/" name)
            } else if (token ~ /^[A-Za-z_][A-Za-z_0-9]*$/) {
                if (!(token in word)) wrong("no such name in the code")
            } else if (token ~ /^[A-Za-z_0-9.\/-]+$/) {
                sub(/\/$/, "", token)
                if (!(token in test) && !(token in path) && !(("src/" token) in path)) wrong("no such file or test")
            } else if (token !~ /^attn_[a-z_]*…$/ && token !~ /^attn( [a-z]+)?$/) {
                wrong("neither a file, a name of the code, nor a test")
            }
        }
    }
    END { if (checked < 100) { print "only " checked + 0 " names found"; bad = 1 } else print checked " names exist"; exit bad }' \
    "$monograph" "$testing" || bad=1

# Every number of the monograph once in a first column; and a last column that says something.
awk '
    function expect(label) { expected[label] = 1; total++ }
    function expect_all(kind, list,    count, i, one) { count = split(list, one, " "); for (i = 1; i <= count; i++) expect(kind " " one[i]) }
    function wrong(why) { print FILENAME ": " why; bad = 1 }
    BEGIN {
        chapters = split("8 30 20 9 22 21", equations, " ")
        for (c = 1; c <= chapters; c++) for (i = 1; i <= equations[c]; i++) expect("(" c "." i ")")
        expect_all("Def", "2.1 3.1 3.2 4.1 5.1 5.2 5.3 6.1 6.2 6.3 6.4")
        expect_all("Thm", "2.3 3.1 4.1 4.2 5.2")
        expect_all("Prop", "2.1 2.2 3.2 3.3 3.4 4.3 5.1 6.1")
        expect_all("Cor", "2.4")
        expect_all("Ex", "3.1 3.2 3.3 3.4 4.1 4.2")
        expect_all("Alg", "1 2")
        expect_all("Table", "3.1 A.1 A.2 A.3 A.4 A.5 A.6 A.7 A.8 A.9")
        expect_all("Figure", "2.1 3.1 5.1")
    }
    /^\|/ {
        columns = split($0, cell, "|")
        if (columns != 7 || cell[2] ~ /^ number |^-+$/) next # the five columns of an item; not the head
        line = cell[2]
        gsub(/^ +| +$/, "", cell[6])
        gsub(/^ +| +$/, "", cell[4])
        rows++
        if (cell[6] == "") wrong("no last column: " $0)
        if (cell[4] ~ /^(observation|outlook)$/ && (cell[6] !~ /\.$/ || length(cell[6]) < 20)) wrong("no sentence that says why there is no test: " $0)
        if (cell[4] !~ /^(compute|property|cost|default|system|observation|picture|notation|outlook)$/) wrong("unknown kind: " $0)
        if (cell[4] ~ /^(compute|property|cost)$/ && cell[6] !~ /`|not yet|see |as \(|there/) wrong("neither a test nor \"not yet\": " $0)
        while (match(line, /\([0-9]+\.[0-9]+\)|(Def|Thm|Prop|Cor|Ex|Alg|Table|Figure) [A0-9.]*[0-9]/)) {
            label = substr(line, RSTART, RLENGTH)
            if (!(label in expected)) wrong(label " is not a number of the monograph")
            if (found[label]++) wrong(label " stands twice")
            line = substr(line, RSTART + RLENGTH)
        }
    }
    END {
        for (label in expected) if (!found[label]) { wrong(label " is missing") }
        if (!bad) print total " numbers of the monograph, each once, in " rows " rows"
        exit bad
    }' "$monograph" || bad=1
exit $bad
