"""Breaks the library where chance says, so that nobody has chosen what the tests know, and sees how many of the faults a unit test notices.

python3 draw.py --source TREE --build BUILD --work FOLDER [--report FILE] [--jobs N] [--count N] [--seed N] [WORD ...]
A line of src/ (not of src/cli/) is drawn, then one of the changes below that it can have. What compiles to the same code is drawn again.
WORDs: only sources that have one in their name. Those that survive are there to be read: one may change nothing that anybody could see."""
import argparse
import os
import random
import re
import shutil
import sys

import mutants as lists
import mutate

LEAST_NOTICED = 0.9
FIRST_TESTS = 12  # of those that the lists name for a source; then all others
SWAPPED = (("<", "<="), ("<=", "<"), (">", ">="), (">=", ">"), ("==", "!="), ("!=", "=="), ("&&", "||"), ("||", "&&"), ("+", "-"), ("-", "+"),
           ("*", "/"), ("%", "/"), ("+=", "-="), ("-=", "+="), ("+=", "="), ("&", "|"))
SIBLINGS = (("rows", "columns"), ("queries", "keys"), ("query", "key"), ("key", "value"), ("in", "out"), ("first", "last"), ("heads", "key_heads"),
            ("sources", "targets"), ("begin", "end"), ("i", "j"), ("row", "column"), ("from", "to"), ("low", "high"), ("k", "v"), ("q", "k"))
REPLACED = [(rf"(?<=[\w)\]] ){re.escape(a)}(?= [\w(!-])", b) for a, b in SWAPPED] + \
           [(rf"\b{x}\b", y) for pair in SIBLINGS for x, y in (pair, pair[::-1])] + \
           [(r"(?<![\w.])\d+(?![\w.])", lambda m: str(int(m.group()) + 1)),
            (r"(?<![\w.])[1-9]\d*(?![\w.])", lambda m: str(int(m.group()) - 1)),
            (r"(?<![\w.])\d+\.\d*f?(?!\w)", lambda m: f"({m.group()} * 1.001)"),
            (r" [+*-] [\w>.\[\]-]+(?=[;,)\]])", ""),  # the last term of a sum or factor of a product
            (r", (\w+), (\w+)(?=[,)])", r", \2, \1"),  # two arguments, one for the other
            (r"\bcontinue\b", "break"), (r"\bbreak;", ";"), (r"(?<=if \()(?=.*\) )", "0 && "), (r"(?<=while \()(?=.*\) )", "0 && ")]
DECLARES = re.compile(r"\s+(const|static|struct|enum|return|else|case|\w+_t|int|float|double|char|view|attn_\w+|attn__\w+|real|T) ")


def terms_dropped(line):
    """The line without one term of the condition of its if or return."""
    found = re.search(r"\bif \((?P<c>.*)\) (?!.*\) \{)|\breturn (?P<r>.*);", line)
    if not found:
        return
    begin, end = found.span("c" if found.group("c") is not None else "r")
    depth, cuts = 0, [begin - 4]
    for at in range(begin, end):
        depth += (line[at] in "([") - (line[at] in ")]")
        if depth < 0:
            return
        if depth == 0 and line[at:at + 4] in (" || ", " && "):
            cuts.append(at)
    cuts.append(end)
    for a, b in zip(cuts, cuts[1:]):
        if len(cuts) > 2:
            yield line[:begin] + line[b + 4:] if a < begin else line[:a] + line[b:]


def changes(line):
    """Every change that a line can have, as the line after it."""
    code = re.sub(r"\s*/\*.*", "", line)
    found = [code[: m.start()] + m.expand(to) + code[m.end():] if isinstance(to, str) else code[: m.start()] + to(m) + code[m.end():]
             for pattern, to in REPLACED for m in re.finditer(pattern, code)]
    found += terms_dropped(code)
    if re.fullmatch(r"\s+\w[^{}]*;", code) and not DECLARES.match(code) and not re.search(r"\b(if|for|while|break|continue|return|goto)\b", code):
        found.append(re.match(r"\s*", code).group() + ";")  # a statement that is not there
    return sorted(set(found) - {code})


def lines_of(build, source, words):
    """(file, line number, text) of all lines within functions that can be changed."""
    for name in sorted(build.compiles):
        if not name.startswith("src/") or name.startswith("src/cli/") or (words and not any(w in name for w in words)):
            continue
        with open(os.path.join(source, name), encoding="utf-8") as file:
            remark = False
            for number, line in enumerate(file.read().split("\n")):
                inside, remark = remark, ("/*" in line or remark) and "*/" not in line
                if not inside and line.startswith("    ") and '"' not in line and changes(line):
                    yield name, number, line


def make(source, place, named, rng):
    """A mutant of mutate.py's kind."""
    name, number, line = place
    mutant = lists.Mutant("drawn", {"file": name, "entry": "", "tests": named.get(name, [])[:FIRST_TESTS], "through": []}, 1, 1)
    with open(os.path.join(source, name), encoding="utf-8") as file:
        text = file.read().split("\n")
    mutant.old, mutant.new, mutant.line = [line], [rng.choice(changes(line))], number + 1
    mutant.text = "\n".join(text[:number] + mutant.new + text[number + 1:])
    return mutant


def compiled(build, slot, name, text):
    """The code of a source whose text is this one, None when it does not compile."""
    path = os.path.join(slot.tree, name)
    with open(path, encoding="utf-8") as file:
        original = file.read()
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text if text is not None else original)
        objects = build.compile(name, slot.tree, slot.folder)
    finally:
        with open(path, "w", encoding="utf-8") as file:
            file.write(original)
    if objects is None:
        return None
    code = []
    for each in objects:
        with open(each, "rb") as file:
            code.append(file.read())
    return code


def main():
    parser = argparse.ArgumentParser()
    for name in ("--source", "--build", "--work", "--report"):
        parser.add_argument(name, required=name != "--report")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("words", nargs="*")
    args = parser.parse_args()
    report = open(args.report, "w", encoding="utf-8") if args.report else None

    def say(line):
        print(line, flush=True)
        if report:
            print(line, file=report, flush=True)

    everything, _, _ = lists.check(args.source, os.path.join(os.path.dirname(os.path.abspath(__file__)), "mutants"))
    named = {}
    for m in everything:
        named.setdefault(m.file, []).extend(t for t in m.tests if t not in named.get(m.file, []))
    work, rng = os.path.abspath(args.work), random.Random(args.seed)
    build = mutate.Build(os.path.abspath(args.build), args.source)
    slots = [mutate.Slot(os.path.join(work, f"slot{i}"), args.source) for i in range(max(1, args.jobs))]
    places, chosen = list(lines_of(build, args.source, args.words)), []
    while places and len(chosen) < args.count:
        mutant = make(args.source, rng.choice(places), named, rng)
        code = compiled(build, slots[0], mutant.file, mutant.text)
        if code is not None and code != compiled(build, slots[0], mutant.file, None):
            chosen.append(mutant)
    say(f"{len(chosen)} faults drawn from {len(places)} lines with the seed {args.seed}")
    results = mutate.run_all(build, slots, chosen, mutate.unit_tests(args.source), say)
    mutate.summarise(results, say)
    noticed = sum(verdict == "killed" for _, verdict in results)
    say(f"drawn: {len(results)} made, {noticed} noticed, {len(results) - noticed} survived")
    for slot in slots:
        shutil.rmtree(slot.folder, ignore_errors=True)
    return 0 if noticed >= LEAST_NOTICED * len(results) > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
