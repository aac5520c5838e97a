"""The program's commands with calls that fail: python3 program.py PROGRAM SHIM SOURCE WORK. ATTN_SHORT: a sample; ATTN_INJECTION_STEP=K: every
K-th call; ATTN_INJECTION_PREFIX: put before the program, valgrind say.

Each run ends with status 0 and what an undisturbed run gives, or with status 1 and one line; files are old or new, and the same command,
undisturbed, goes on from there to the result of an undisturbed run."""
import concurrent.futures
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys

MODEL, CHECKPOINT, LOG, CHART = "model.safetensors", "checkpoint.safetensors", "log.jsonl", "loss.svg"
FILES = (MODEL, CHECKPOINT, CHART)
SHAPE = "--layers 1 --heads 2 --width 8 --feed-forward 8 --context 8 --batch 2 --seed 5 --threads 2".split()
STEPS, EVERY = 4, 2
SECONDS = 120
TRIES_AGAIN = "(training goes on, and the next evaluation tries to save again)"
KINDS = ("any", "memory", "files", "threads")
made = survived = faults = 0


def content(path):
    with open(path, "rb") as file:
        return file.read()


def log_of(folder):
    """The lines of the log without what depends on the clock."""
    lines = content(os.path.join(folder, LOG)).decode().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "tokens_per_second"} for line in lines]


def whole(path):
    """A safetensors file whose tensors end where it ends."""
    data = content(path)
    if len(data) < 10:
        return False
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    return 8 + length + max(v["data_offsets"][1] for k, v in header.items() if k != "__metadata__") == len(data)


class Scenario:
    """A command, the folder that it begins with, and the one that it leads to."""

    def __init__(self, bench, name, arguments, begin=None, writes=False):
        self.bench, self.name, self.arguments, self.writes = bench, name, arguments, writes
        self.begin = begin
        self.reference = self.folder("reference")
        status, self.output, err, counts = self.run(self.reference)
        if status != 0 or err:
            raise SystemExit(f"{name}: the undisturbed run fails: {status} {err}")
        self.counts = counts

    def folder(self, name):
        path = os.path.join(self.bench.work, name + "-" + self.name.replace(" ", "-"))
        shutil.rmtree(path, ignore_errors=True)
        if self.begin:
            shutil.copytree(self.begin, path)
        return path

    def run(self, folder, inject=None, arguments=None):
        numbers = folder + ".counts"
        env = dict(os.environ, LD_PRELOAD=self.bench.shim, ATTN_INJECT_COUNT=numbers, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1",
                   ASAN_OPTIONS="verify_asan_link_order=0:allocator_may_return_null=1:" + os.environ.get("ASAN_OPTIONS", ""))
        env.pop("ATTN_INJECT", None)
        if inject:
            env["ATTN_INJECT"] = inject
        command = [part.replace("FOLDER", folder) for part in self.bench.prefix + [self.bench.program] + (arguments or self.arguments)]
        try:
            done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return None, "", "", None
        counts = None
        if os.path.exists(numbers):
            counts = [int(n) for n in content(numbers).split()]
            os.unlink(numbers)
        output = done.stdout.decode(errors="replace").replace(folder, "FOLDER")
        output = re.sub(r" *[\d,]+ tokens/s +\S+ left|steps, \S+;", "", output)
        output = re.sub(r'"(forward|step)_\w+": [^,}]*', "", output)  # times, what follows from them, and memory by threads
        output = re.sub(r"on \d+ threads?", "", output)  # a refused thread is lived with
        return done.returncode, output, done.stderr.decode(errors="replace"), counts

    def differs(self, folder):
        """What of a finished folder is not as in the undisturbed one; None: nothing."""
        for name in FILES if self.writes else ():
            path = os.path.join(folder, name)
            if not os.path.exists(path):
                return f"there is no {name}"
            if content(path) != content(os.path.join(self.reference, name)):
                return f"{name} is another"
        if self.writes and log_of(folder) != log_of(self.reference):
            return "the log is another"
        return None

    def look(self, folder, result, removals_failed):
        """The faults of one disturbed run."""
        status, output, err, _ = result
        if status is None:
            return ["it hangs"]
        lines = err.splitlines()
        if status == 0:
            if len(lines) == 1 and TRIES_AGAIN in err:
                err = ""  # an evaluation later, it was saved
            if err:
                return [f"status 0 with a message: {err[:300]}"]
            if output != self.output:
                return [f"status 0 with other output: {output[-300:]}"]
            other = self.differs(folder)
            return [f"status 0, but {other}"] if other else []
        found = []
        for other in ("attn: standard output: ", TRIES_AGAIN):  # a line of its own each
            if len(lines) > 1:
                lines = [line for line in lines if other not in line] or lines[:1]
        if status != 1:
            found.append(f"status {status}: {err[:300]}")
        elif len(lines) != 1 or not lines[0].startswith("attn: "):
            found.append(f"{len(lines)} lines: {err[:400]}")
        if not os.path.isdir(folder):
            return found
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if name.endswith(".tmp") and not removals_failed:
                found.append(f"{name} is left")
            if name.endswith(".safetensors") and not whole(path):
                found.append(f"{name} is neither old nor new")
        if not self.writes:
            return found
        return found + self.recover(folder)

    def recover(self, folder):
        """Goes on undisturbed, with --resume where there is a checkpoint."""
        again = self.arguments
        if os.path.exists(os.path.join(folder, CHECKPOINT)):
            again = self.bench.resume
        elif os.path.isdir(folder):
            again = self.arguments + ["--overwrite"]
        status, _, err, _ = self.run(folder, arguments=again)
        if status != 0:
            return [f"going on gives status {status}: {err[:300]}"]
        other = self.differs(folder)
        return [f"after going on, {other}"] if other else []

    def inject(self, what):
        """One disturbed run; its faults."""
        folder = self.folder(what.replace(":", "-"))
        result = self.run(folder, what)
        counts = result[3]
        found = self.look(folder, result, counts is None or counts[-1] > 0)
        shutil.rmtree(folder, ignore_errors=True)
        return what, found

    def numbers(self, count, short, step):
        """Which calls: all, every step-th, or a sample with first and last."""
        if not short:
            return range(1, count + 1, step)
        wanted = min(count, short)
        return sorted({1 + i * (count - 1) // max(wanted - 1, 1) for i in range(wanted)}) if count else []

    def run_all(self, short, step):
        global made, survived, faults
        before = made, survived
        if short:
            plan = [("memory", short), ("files", short), ("threads", 1)]
        else:
            plan = [("any", 0)]
        all_of_them = [f"{kind}:{mode}:{nth}" for kind, sample in plan for mode in ("once", "always")
                       for nth in self.numbers(self.counts[KINDS.index(kind)], sample, step)]
        with concurrent.futures.ThreadPoolExecutor(max_workers=2) as two:
            for what, found in two.map(self.inject, all_of_them):
                made += 1
                survived += not found
                faults += len(found)
                for line in found:
                    print(f"WRONG: {self.name}, {what}: {line}", flush=True)
        counts = ", ".join(f"{n} {kind}" for kind, n in zip(KINDS[1:], self.counts[1:]))
        print(f"{self.name}: {made - before[0]} made, {survived - before[1]} survived; {counts}", flush=True)


class Bench:
    def __init__(self, program, shim, source, work):
        self.program, self.shim, self.work = program, shim, work
        self.prefix = shlex.split(os.environ.get("ATTN_INJECTION_PREFIX", ""))
        self.text = os.path.join(work, "text.txt")
        headers = os.path.join(source, "include", "attn")
        words = b"".join(content(os.path.join(headers, name)) for name in sorted(os.listdir(headers)))
        with open(self.text, "wb") as file:
            file.write(bytes(b for b in words if b in b"\t\n" or 32 <= b < 127)[:1500])
        free = ["--eval-every", str(EVERY)]
        self.numbers = os.path.join(work, "qkv.safetensors")
        header = json.dumps({name: {"dtype": "F32", "shape": [20, 1, 4], "data_offsets": [320 * i, 320 * i + 320]}
                             for i, name in enumerate(("query", "key", "value"))}).encode()
        with open(self.numbers, "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header + struct.pack("<240f", *(i * i % 17 / 8 - 1 for i in range(240))))
        self.resume = ["train", "--out", "FOLDER", "--resume", "--steps", str(STEPS), "--threads", "2"] + free
        self.train = ["train", "--data", self.text, "--out", "FOLDER", "--decay-steps", "4", "--steps", str(STEPS)] + SHAPE + free

    def scenarios(self):
        yield Scenario(self, "train", self.train, writes=True)
        half = [part if part != str(STEPS) or self.train[i - 1] != "--steps" else str(EVERY) for i, part in enumerate(self.train)]
        begun = Scenario(self, "half a run", half, writes=True)
        model = begun.reference
        yield Scenario(self, "train --resume", self.resume, begin=model, writes=True)
        yield Scenario(self, "generate", ["generate", "--model", "FOLDER", "--prompt", "the ", "--tokens", "20"], begin=model)
        yield Scenario(self, "generate --json", ["generate", "--model", "FOLDER", "--tokens", "12", "--json"], begin=model)
        yield Scenario(self, "eval", ["eval", "--model", "FOLDER", "--data", self.text], begin=model)
        yield Scenario(self, "info", ["info", "FOLDER"], begin=model)
        yield Scenario(self, "approximate", ["approximate", self.numbers, "--json", "--seconds", "0", "--threads", "2", "--variants",
                                             "window-8,bigbird-4,linear,performer-8,linformer-4"], begin=model)
        yield Scenario(self, "info --json", ["info", "FOLDER", "--json"], begin=model)


def main():
    short = int(os.environ.get("ATTN_INJECTION_SAMPLE", "3" if os.environ.get("ATTN_SHORT") else "0"))
    step = int(os.environ.get("ATTN_INJECTION_STEP", "1"))
    only = os.environ.get("ATTN_INJECTION_ONLY")
    for scenario in Bench(*sys.argv[1:5]).scenarios():
        if not only or only == scenario.name:
            scenario.run_all(short, step)
    print(f"injections: {made} made, {survived} survived")
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
