"""Breaks the library on purpose, once for each mutant of the lists, and sees whether a test notices.

python3 mutate.py --source TREE --build BUILD --work FOLDER [--report FILE] [--jobs N] [--sample N] [WORD ...]
TREE is only read; BUILD is a finished build of it, only read too. A mutant's file is changed in a copy, compiled with the flags the
build has for it, and the tests are linked with the new object in front of the library. WORDs: only mutants that have one in their title."""
import argparse
import concurrent.futures
import json
import os
import queue
import shlex
import shutil
import subprocess
import sys
import time

import mutants as lists

COPIED = ("src", "include", "tests")
TEST_SECONDS = 60
ISA_FEATURES = (("avx512", ("avx512f", "avx512dq", "avx512bw", "avx512vl", "fma")), ("avx2", ("avx2", "fma")))


class Build:
    """What a build folder knows: how each source is compiled and how each test is linked."""

    def __init__(self, folder, source):
        self.folder, self.source, self.links = folder, os.path.realpath(source), {}
        with open(os.path.join(folder, "compile_commands.json"), encoding="utf-8") as file:
            commands = json.load(file)
        isa = self.widest({self.isa_of(c["command"]) for c in commands})
        self.compiles = {}
        for c in commands:
            if self.isa_of(c["command"]) in (None, isa):  # of the kernels on BLAS the set that users of this machine get
                name = os.path.relpath(os.path.realpath(c["file"]), self.source)
                self.compiles.setdefault(name, []).append((c["command"], c["directory"]))

    @staticmethod
    def isa_of(command):
        return next((word.partition("=")[2] for word in command.split() if word.startswith("-DATTN__ISA=")), None)

    @staticmethod
    def widest(sets):
        try:
            with open("/proc/cpuinfo", encoding="utf-8") as file:
                flags = next((set(line.split()) for line in file if line.startswith("flags")), set())
        except OSError:
            flags = set()
        return next((name for name, need in ISA_FEATURES if name in sets and flags.issuperset(need)), "baseline")

    def compile(self, name, tree, target):
        """Compiles a source of another tree as this build compiles its own; the objects, or None."""
        objects = []
        for number, (command, directory) in enumerate(self.compiles.get(name, [])):
            words = shlex.split(command)
            if not words[1].startswith("-"):  # a launcher before the compiler
                words = words[1:]
            words = [word.replace(self.source + "/", tree + "/") for word in words if not word.startswith("-ffile-prefix-map")]
            out = f"{target}/{number}-{name.replace('/', '_')}.o"
            words[words.index("-o") + 1] = out
            if subprocess.run(words + ["-w", "-g0"], cwd=directory, stderr=subprocess.DEVNULL, check=False).returncode != 0:
                return None
            objects.append(out)
        return objects or None

    def link_words(self, test):
        """The link command of a test, as words, and where it runs; None when the build has no such test."""
        if test not in self.links:
            target = "test_" + test.replace("/", "_")
            plain = os.path.join(self.folder, "tests/CMakeFiles", target + ".dir/link.txt")
            if os.path.exists(plain):
                with open(plain, encoding="utf-8") as file:
                    self.links[test] = (shlex.split(file.read()), os.path.join(self.folder, "tests"))
            else:
                told = subprocess.run(["ninja", "-C", self.folder, "-t", "commands", "-s", "tests/" + test.replace("/", "_")],
                                      capture_output=True, text=True, check=False)
                line = next((s for s in told.stdout.split("\n") if s.startswith(": && ")), "")
                words = shlex.split(line.removeprefix(": && ").removesuffix(" && :"))
                self.links[test] = (words, self.folder) if words else None
        return self.links[test]

    def link(self, test, objects, out):
        """Links a test with the objects in front of the library; those of tests replace the test's own."""
        if self.link_words(test) is None:
            return False
        words, directory = self.link_words(test)
        own = "-tests_" + test.replace("/", "_test_") + ".c.o"
        instead = next((o for o in objects if o.endswith(own)), None)
        first = next(i for i, word in enumerate(words) if word.endswith(".o"))
        rest = [o for o in objects if "-tests_" not in o]
        words = words[:first] + [instead or words[first]] + rest + words[first + 1:]
        words[words.index("-o") + 1] = out
        return subprocess.run(words, cwd=directory, stderr=subprocess.DEVNULL, check=False).returncode == 0


class Slot:
    """A copy of the tree in which one mutant at a time lives."""

    def __init__(self, folder, source):
        self.folder, self.tree = folder, os.path.join(folder, "tree")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(os.path.join(folder, "run"))
        for part in COPIED:
            shutil.copytree(os.path.join(source, part), os.path.join(self.tree, part), ignore=shutil.ignore_patterns("__pycache__"))

    def run(self, build, test, objects):
        """'green', 'red', 'time' or 'no link'"""
        program = os.path.join(self.folder, "test")
        if not build.link(test, objects, program):
            return "no link"
        try:
            done = subprocess.run([program], cwd=os.path.join(self.folder, "run"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  timeout=TEST_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return "time"
        return "green" if done.returncode == 0 else "red"


def unit_tests(source):
    """room/stem of every unit test, the quick rooms first"""
    found, folder = [], os.path.join(source, "tests")
    for room in sorted(os.listdir(folder)):
        if os.path.isdir(os.path.join(folder, room)):
            found += [f"{room}/{f[5:-2]}" for f in sorted(os.listdir(os.path.join(folder, room))) if f.startswith("test_") and f.endswith(".c")]
    return found


def try_mutant(build, slot, mutant, everything):
    """(verdict, test, seconds)"""
    start, path = time.time(), os.path.join(slot.tree, mutant.file)
    with open(path, encoding="utf-8") as file:
        original = file.read()
    with open(path, "w", encoding="utf-8") as file:
        file.write(mutant.text)
    try:
        objects = []
        for name in mutant.through or [mutant.file]:
            made = build.compile(name, slot.tree, slot.folder)
            if made is None:
                return "not built", name, time.time() - start
            objects += made
        for test in dict.fromkeys(mutant.tests):
            told = slot.run(build, test, objects)
            if told == "no link":
                return "not built", test, time.time() - start
            if told != "green":
                return "killed", test + (" (time)" if told == "time" else ""), time.time() - start
        for test in everything:  # one that is red without the mutant, or slow, tells nothing
            if test not in mutant.tests and slot.run(build, test, objects) == "red" and slot.run(build, test, []) == "green":
                return "killed", test + " (not named)", time.time() - start
        return "survived", "", time.time() - start
    finally:
        with open(path, "w", encoding="utf-8") as file:
            file.write(original)


def check_green(build, slots, tests):
    """The named tests pass on the library as it is: else red means nothing."""
    problems = []
    for test in tests:
        told = slots[0].run(build, test, [])
        if told != "green":
            problems.append(f"{test} is not green without any mutant: {told}")
    return problems


def run_all(build, slots, chosen, everything, say):
    """Every mutant on the slot that is free; prints each as it ends. A list of (mutant, verdict)."""
    free, results = queue.Queue(), []
    for slot in slots:
        free.put(slot)

    def one(mutant):
        slot = free.get()
        try:
            return mutant, try_mutant(build, slot, mutant, everything)
        finally:
            free.put(slot)

    with concurrent.futures.ThreadPoolExecutor(len(slots)) as pool:
        for mutant, (verdict, test, seconds) in pool.map(one, chosen):
            say(f"{verdict:<10}{test:<34}{seconds:5.1f} s  {mutant.title()}")
            results.append((mutant, verdict))
    return results


def summarise(results, say):
    areas = {}
    for mutant, verdict in results:
        area = os.path.dirname(mutant.file)
        made, killed = areas.get(area, (0, 0))
        areas[area] = (made + 1, killed + (verdict == "killed"))
    say("")
    for area, (made, killed) in sorted(areas.items()):
        say(f"{area:<28}{made:4d} made {killed:4d} killed")
    for mutant, verdict in results:
        if verdict != "killed":
            say(f"{verdict}: {mutant.where}: {mutant.title()}")
    made, killed = len(results), sum(v == "killed" for _, v in results)
    survived, unbuilt = sum(v == "survived" for _, v in results), sum(v == "not built" for _, v in results)
    say(f"mutants: {made} made, {killed} killed, {survived} survived" + (f", {unbuilt} not built" if unbuilt else ""))
    return 0 if made > 0 and killed == made else 1


def sample_of(all_mutants, count):
    """Every n-th mutant, another n-th each day; ATTN_MUTATION_DAY repeats a day."""
    day = int(os.environ.get("ATTN_MUTATION_DAY", time.time() // 86400))
    step = max(1, -(-len(all_mutants) // count))
    return all_mutants[day % step::step], f"sample of day {day}"


def main():
    parser = argparse.ArgumentParser()
    for name in ("--source", "--build", "--work", "--report"):
        parser.add_argument(name, required=name == "--source")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("words", nargs="*")
    args = parser.parse_args()
    here = os.path.dirname(os.path.abspath(__file__))
    report = open(args.report, "w", encoding="utf-8") if args.report else None

    def say(line):
        print(line, flush=True)
        if report:
            print(line, file=report, flush=True)

    everything, problems, counts = lists.check(args.source, os.path.join(here, "mutants"))
    known = set(unit_tests(args.source))
    problems += [f"{m.where}: there is no test {t}" for m in everything for t in m.tests if t not in known]
    say(f"{len(everything)} mutants in the lists, for {counts[0]} sources, {counts[1]} entries of the kernel table and {counts[2]} backwards")
    for problem in problems:
        say(problem)
    if problems:
        say(f"the lists are stale: {len(problems)} complaints")
        return 1
    if not args.build:
        return 0
    chosen = [m for m in everything if not args.words or any(w in m.title() + m.where for w in args.words)]
    if args.sample:
        chosen, note = sample_of(chosen, args.sample)
        say(note)
    work = os.path.abspath(args.work)
    build = Build(os.path.abspath(args.build), args.source)
    slots = [Slot(os.path.join(work, f"slot{i}"), args.source) for i in range(max(1, args.jobs))]
    problems = check_green(build, slots, sorted({t for m in chosen for t in m.tests}))
    for problem in problems:
        say(problem)
    status = 1 if problems else summarise(run_all(build, slots, chosen, unit_tests(args.source), say), say)
    for slot in slots:
        shutil.rmtree(slot.folder, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
