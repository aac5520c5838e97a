"""Training runs that are disturbed, and the undisturbed one that they are held against."""
import json
import os
import shutil
import signal
import struct
import subprocess
import time

MODEL, CHECKPOINT, LOG, CHART = "model.safetensors", "checkpoint.safetensors", "log.jsonl", "loss.svg"
STEPS, EVERY = 60, 3
SHAPE = ("--layers 1 --heads 2 --width 16 --feed-forward 32 --context 16 --batch 2 --accumulate 2 --dropout 0.1 "
         f"--seed 5 --steps {STEPS}").split()
FREE = ["--eval-every", str(EVERY), "--threads", "2"]


def content(path):
    with open(path, "rb") as file:
        return file.read()


def log_of(folder):
    """The lines of the log without what depends on the clock."""
    lines = content(os.path.join(folder, LOG)).decode().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "tokens_per_second"} for line in lines]


def whole(path):
    """Is this a safetensors file whose tensors end where it ends?"""
    data = content(path)
    if len(data) < 10:
        return False
    length = struct.unpack("<Q", data[:8])[0]
    try:
        header = json.loads(data[8:8 + length])
    except ValueError:
        return False
    end = max(v["data_offsets"][1] for k, v in header.items() if k != "__metadata__")
    return 8 + length + end == len(data)


class Runs:
    def __init__(self, program, shim, source, work):
        self.program, self.shim, self.work = program, shim, work
        self.text = os.path.join(work, "text.txt")
        self.failures, self.made = [], 0
        words = b""
        headers = os.path.join(source, "include", "attn")
        for name in sorted(os.listdir(headers)):
            words += content(os.path.join(headers, name))
        with open(self.text, "wb") as file:
            file.write(bytes(b for b in words if b in b"\t\n" or 32 <= b < 127)[:20000])

    def wrong(self, text):
        self.failures.append(text)
        print("WRONG: " + text, flush=True)

    def folder(self):
        self.made += 1
        return os.path.join(self.work, f"run{self.made}")

    def command(self, folder, again=False):
        if os.path.exists(os.path.join(folder, CHECKPOINT)) and not again:
            return [self.program, "train", "--out", folder, "--resume"] + FREE
        return [self.program, "train", "--data", self.text, "--out", folder, "--overwrite"] + SHAPE + FREE

    def environment(self, shim=None, counts=None):
        env = dict(os.environ)
        if shim or counts:
            env["LD_PRELOAD"] = self.shim
            env["ASAN_OPTIONS"] = "verify_asan_link_order=0:" + env.get("ASAN_OPTIONS", "")
        if shim:
            env["ATTN_SHIM"] = shim
        if counts:
            env["ATTN_SHIM_COUNTS"] = counts
        return env

    def start(self, folder, shim=None, counts=None, prefix=(), cwd=None):
        return subprocess.Popen(list(prefix) + self.command(folder), env=self.environment(shim, counts), cwd=cwd or self.work,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self, process):
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def run(self, folder, **how):
        return self.finish(self.start(folder, **how))

    def begin(self):
        """The undisturbed run; what it takes in seconds, and how many calls it makes."""
        self.reference = self.folder()
        begin = time.monotonic()
        status, _, err = self.run(self.reference)
        if status != 0 or err:
            raise SystemExit(f"the undisturbed run fails: {status} {err}")
        self.seconds = time.monotonic() - begin
        counted, numbers = self.folder(), os.path.join(self.work, "counts")
        self.run(counted, counts=numbers)
        self.calls = dict(zip(("any", "open", "write", "sync", "rename"), map(int, content(numbers).split())))
        self.same(counted, "the same run again")
        shutil.rmtree(counted)

    def litter(self, folder):
        return [name for name in os.listdir(folder) if name.endswith(".tmp")]

    def same(self, folder, what, extra_lines=False):
        """Is a finished run, byte for byte, the undisturbed one?"""
        before = len(self.failures)
        names = (MODEL, CHECKPOINT) if extra_lines else (MODEL, CHECKPOINT, CHART)
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.exists(path):
                self.wrong(f"{what}: there is no {name}")
            elif content(path) != content(os.path.join(self.reference, name)):
                self.wrong(f"{what}: {name} is another than the undisturbed run's")
        if os.path.exists(os.path.join(folder, LOG)):
            ours, theirs = log_of(folder), log_of(self.reference)
            if extra_lines:  # a run that was asked to stop reports its last step as well, perhaps without an evaluation
                ours = {line["step"]: line["loss"] for line in ours}
                theirs = {line["step"]: line["loss"] for line in theirs}
            if ours != theirs:
                self.wrong(f"{what}: the log is another than the undisturbed run's")
        else:
            self.wrong(f"{what}: there is no log")
        if self.litter(folder):
            self.wrong(f"{what}: temporary files are left: {self.litter(folder)}")
        return len(self.failures) == before

    def resume(self, folder, what, extra_lines=False):
        """Goes on undisturbed to the end; is it the same?"""
        status, _, err = self.run(folder)
        if status != 0 or err:
            self.wrong(f"{what}: going on gives exit status {status}: {err.strip()[:300]}")
            return False
        return self.same(folder, what, extra_lines)

    def one_line(self, err, what):
        lines = err.splitlines()
        if len(lines) != 1 or not lines[0].startswith("attn: "):
            self.wrong(f"{what}: expected one line on standard error, got {len(lines)}: {err[:500]}")
            return False
        return True

    def files_whole(self, folder, what):
        for name in (MODEL, CHECKPOINT):
            path = os.path.join(folder, name)
            if os.path.exists(path) and not whole(path):
                self.wrong(f"{what}: {name} is neither the old file nor the new one")

    def halfway(self):
        """A run that was killed in the middle, between two saves, with a checkpoint."""
        folder = self.folder()
        status, _, _ = self.run(folder, shim=f"kill:open:{self.calls['open'] // 2}")
        if status != -signal.SIGKILL or not os.path.exists(os.path.join(folder, CHECKPOINT)):
            raise SystemExit("no run could be killed halfway")
        return folder
