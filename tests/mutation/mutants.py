"""Reads the lists of mutants and holds them against the source: every old text is there, every source, entry and backward has its mutants."""
import os
import re

LEAST_BLAS, LEAST_REFERENCE = 3, 2
NOTHING_TO_BREAK = {("reference", "attention_room")}  # the reference needs no room: it gives back 0
TABLE_HEADER = "src/kernels/kernels.h"
FIELD = re.compile(r"^    (?:attn_status|int64_t) \(\*(\w+)\)\(", re.M)
BACKWARD = re.compile(r"^static attn_status (\w+)\(attn_context \*ctx, attn_tape \*tape, attn__record \*record\)\n\{(.*?)^\}", re.M | re.S)
BODY = re.compile(r"\)\n\{\n", re.M)  # of a function
DIRECTIVES = {"file", "entry", "tests", "through"}


class Mutant:
    """One change of one file. place: offset of the old text; line: where that is."""

    def __init__(self, where, state, occurrence, of):
        self.where, self.file, self.entry = where, state["file"], state["entry"]
        self.tests, self.through = state["tests"], state["through"]
        self.occurrence, self.of, self.old, self.new = occurrence, of, [], []
        self.place = self.line = self.text = None

    def locate(self, source):
        """Finds the old text in the tree; a line of complaint, or None."""
        old, new = "\n".join(self.old), "\n".join(self.new)
        if not self.file or not self.old or not self.new or old == new:
            return f"{self.where}: a mutant needs a file, an old text and another new one"
        if not self.tests:
            return f"{self.where}: no test is named that should catch it"
        try:
            with open(os.path.join(source, self.file), encoding="utf-8") as file:
                text = file.read()
        except OSError as error:
            return f"{self.where}: {self.file}: {error.strerror}"
        places = [m.start() for m in re.finditer(re.escape(old), text)]
        if len(places) != self.of:
            return f"{self.where}: {self.file} has the old text {len(places)} times, expected {self.of}: {old.strip()!r}"
        self.place = places[self.occurrence - 1]
        self.line = text.count("\n", 0, self.place) + 1
        self.text = text[: self.place] + new + text[self.place + len(old):]
        return None

    def title(self):
        change = f"{' '.join(' '.join(self.old).split())}  =>  {' '.join(' '.join(self.new).split())}"
        return f"{self.file}:{self.line}  {self.entry + ': ' if self.entry else ''}{change}"


def read_list(path):
    """The mutants of one list. Lines: a directive, which holds until it is given again (file clears the others but tests);
    '- old', '-2/3 old' (the second of three); '+ new'; '#' remarks."""
    mutants, problems = [], []
    state = {"file": "", "entry": "", "tests": [], "through": []}
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")
    for number, line in enumerate(lines, 1):
        where = f"{os.path.basename(path)}:{number}"
        word, _, rest = line.partition(" ")
        start = re.fullmatch(r"-(?:(\d+)/(\d+))?", word)
        if line.startswith("#") or not line.strip():
            continue
        if word in DIRECTIVES:
            if word == "file":
                state = {"file": rest.strip(), "entry": "", "tests": state["tests"], "through": []}
            else:
                state[word] = rest.strip() if word == "entry" else rest.split()
        elif start and mutants and not mutants[-1].new and not start.group(1):
            mutants[-1].old.append(rest)
        elif start:
            mutants.append(Mutant(where, dict(state), int(start.group(1) or 1), int(start.group(2) or 1)))
            mutants[-1].old.append(rest)
        elif word == "+" and mutants:
            mutants[-1].new.append(rest)
        else:
            problems.append(f"{where}: not understood: {line}")
    return mutants, problems


def read_lists(folder):
    mutants, problems = [], []
    for name in sorted(os.listdir(folder)):
        if name.endswith(".txt"):
            some, wrong = read_list(os.path.join(folder, name))
            mutants += some
            problems += wrong
    return mutants, problems


def check_entries(source, mutants):
    """Every function of the kernel table has its mutants on both sides."""
    with open(os.path.join(source, TABLE_HEADER), encoding="utf-8") as file:
        entries = FIELD.findall(file.read())
    problems = [] if len(entries) > 20 else [f"{TABLE_HEADER}: found {len(entries)} entries only: the table's form has changed"]
    for entry in entries:
        for side, least in (("blas", LEAST_BLAS), ("reference", LEAST_REFERENCE)):
            count = sum(m.entry == entry and m.file.startswith(f"src/kernels/{side}/") for m in mutants)
            if count < least and (side, entry) not in NOTHING_TO_BREAK:
                problems.append(f"entry {entry}: {count} mutants in src/kernels/{side}, expected {least} or more")
    known = set(entries) | {""}
    problems += [f"{m.where}: {m.entry} is no entry of the kernel table" for m in mutants if m.entry not in known]
    return problems, len(entries)


def check_backwards(source, mutants):
    """Every backward function of the operations has a mutant within its own lines."""
    problems, count, folder = [], 0, os.path.join(source, "src/autograd")
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".c"):
            continue
        path = f"src/autograd/{name}"
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            text = file.read()
        for found in BACKWARD.finditer(text):
            count += 1
            inside = [m for m in mutants if m.file == path and m.place is not None and found.start() < m.place < found.end()]
            if not inside:
                problems.append(f"{path}: no mutant within {found.group(1)}")
    return problems + ([] if count else ["src/autograd: no backward was found: their form has changed"]), count


def check_sources(source, mutants):
    """Every source outside src/cli with a function in it has a mutant."""
    named, problems, count = {m.file for m in mutants}, [], 0
    for folder, _, files in sorted(os.walk(os.path.join(source, "src"))):
        for name in sorted(files):
            path = os.path.relpath(os.path.join(folder, name), source).replace(os.sep, "/")
            if not name.endswith(".c") or path.startswith("src/cli/"):
                continue
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                bodies = BODY.search(file.read()) is not None
            count += bodies
            if bodies and path not in named:
                problems.append(f"{path}: no mutant at all")
    return problems + ([] if count > 50 else [f"src: found {count} sources with functions only: their form has changed"]), count


def check(source, folder):
    """All mutants, all complaints, and how many sources, entries and backwards there are."""
    mutants, problems = read_lists(folder)
    for mutant in mutants:
        complaint = mutant.locate(source)
        if complaint:
            problems.append(complaint)
    wrong, entries = check_entries(source, mutants)
    problems += wrong
    wrong, backwards = check_backwards(source, mutants)
    problems += wrong
    wrong, sources = check_sources(source, mutants)
    return mutants, problems + wrong, (sources, entries, backwards)
