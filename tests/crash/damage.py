"""Disks that fail, folders that go away or cannot be written, checkpoints that are damaged."""
import json
import os
import shutil
import struct
import subprocess
import time

from runs import CHECKPOINT, EVERY, LOG, MODEL, STEPS, content


def bad_disks(runs, random, wanted):
    """A disk that is full or sick for some calls, or from some call on for ever. Full for a while: the run ends as the undisturbed one.
    For ever: one line, exit status 1, and what was saved before is whole and goes on."""
    for number in range(wanted):
        mode, call = random.choice(["full", "sick"]), random.choice(["any", "write", "sync", "rename", "open"])
        at = random.randint(runs.calls[call] // 20 + 3, runs.calls[call] * 3 // 4)
        lasts = 0 if number % 2 else random.randint(2, 9)  # the first may be a short write; an evaluation makes at least 3 failing calls, 5 evaluations are left
        if number == 0:  # the log's own write, after that of five evaluations
            mode, call, at, lasts = "full", "write", 5 * (runs.calls["write"] // (STEPS // EVERY)) + 1, 2
        folder = runs.folder()
        status, _, err = runs.run(folder, shim=f"{mode}:{call}:{at}:{lasts}")
        what = f"{mode}:{call}:{at}:{lasts}"
        runs.one_line(err, what)
        runs.files_whole(folder, what)
        if runs.litter(folder):
            runs.wrong(f"{what}: temporary files are left: {runs.litter(folder)}")
        if lasts > 0:
            if status != 0:
                runs.wrong(f"{what}: exit status {status}, expected 0: the last save was good")
            runs.same(folder, what)
        else:
            if status != 1:
                runs.wrong(f"{what}: exit status {status}, expected 1")
            runs.resume(folder, what)
        shutil.rmtree(folder)
    return wanted


def read_only(runs):
    """A folder that may not be written, as a user who is not root. 0 where that cannot be had."""
    folder = runs.halfway()
    prefix = []
    if os.getuid() == 0:
        prefix = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        for path, _, files in os.walk(runs.work):
            os.chmod(path, 0o755)
        try:
            probe = subprocess.run(prefix + [runs.program, "version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        except OSError:
            return 0
        if probe.returncode != 0:
            return 0  # no setpriv, or the program cannot be read by others
    else:
        os.chmod(folder, 0o555)
        os.chmod(os.path.join(folder, LOG), 0o444)
    before = {name: content(os.path.join(folder, name)) for name in os.listdir(folder)}
    status, _, err = runs.run(folder, prefix=prefix)
    runs.one_line(err, "a read-only folder")
    if status != 1:
        runs.wrong(f"a read-only folder: exit status {status}, expected 1")
    if before != {name: content(os.path.join(folder, name)) for name in os.listdir(folder)}:
        runs.wrong("a read-only folder: its files are others than before")
    os.chmod(folder, 0o755)
    os.chmod(os.path.join(folder, LOG), 0o644)
    runs.resume(folder, "a folder that was read-only")
    return 1


def small_disk(runs):
    """A file system that is really full. 0 where none can be mounted."""
    place = runs.folder()
    os.mkdir(place)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100k", "none", place], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        return 0
    try:
        folder = os.path.join(place, "run")
        status, _, err = runs.run(folder)
        runs.one_line(err, "a small disk")
        if status != 1:
            runs.wrong(f"a small disk: exit status {status}, expected 1")
        runs.files_whole(folder, "a small disk")
        subprocess.run(["mount", "-o", "remount,size=10m", place], check=True)
        runs.resume(folder, "a disk that was small")
    finally:
        subprocess.run(["umount", place], check=False)
    return 1


def start_and_wait(runs, folder):
    """A run of a million steps that has saved once."""
    command = [word if word != "60" else "1000000" for word in runs.command(folder)]
    process = subprocess.Popen(command, cwd=runs.work, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_for(os.path.join(folder, MODEL))
    return process


def wait_for(path):
    for _ in range(600):
        if os.path.exists(path):
            return True
        time.sleep(0.05)
    return False


def gone(runs, blocked):
    """The folder is renamed while the run goes on. It is made again, unless its place is taken (blocked)."""
    folder, away = runs.folder(), runs.folder()
    process = start_and_wait(runs, folder)
    os.rename(folder, away)
    what = "a folder that went away" + (" and whose place is taken" if blocked else "")
    if blocked:
        try:
            open(folder, "x", encoding="ascii").close()
        except FileExistsError:  # the run was faster
            shutil.rmtree(folder)
            open(folder, "x", encoding="ascii").close()
    else:
        if not wait_for(os.path.join(folder, MODEL)):
            runs.wrong(f"{what}: nothing was saved any more")
    time.sleep(0.3)
    process.terminate()
    err = process.communicate()[1]
    if not blocked:
        runs.one_line(err, what)
    if process.returncode != (1 if blocked else 130):
        runs.wrong(f"{what}: exit status {process.returncode}, expected {1 if blocked else 130}: {err[:300]}")
    runs.files_whole(away, what)
    if blocked or not os.path.exists(os.path.join(folder, LOG)):
        return
    for place in (folder, away):
        steps = [json.loads(line)["step"] for line in content(os.path.join(place, LOG)).splitlines()]
        if not steps or steps[0] != 1 or steps != sorted(set(steps)):
            runs.wrong(f"{what}: the log in {place} is not whole: {steps[:5]}")
        status = subprocess.run([runs.program, "generate", "--model", place, "--tokens", "2"], stdout=subprocess.DEVNULL, check=False).returncode
        if status != 0:
            runs.wrong(f"{what}: no model in {place}")


def bad_places(runs):
    count = read_only(runs) + small_disk(runs)
    gone(runs, blocked=False)
    gone(runs, blocked=True)
    return count + 2


class Patient:
    """A halfway run whose checkpoint is damaged again and again."""

    def __init__(self, runs):
        self.runs, self.folder = runs, runs.halfway()
        self.path = os.path.join(self.folder, CHECKPOINT)
        shutil.rmtree(os.path.join(runs.work, "good"), ignore_errors=True)
        for name in runs.litter(self.folder):
            os.unlink(os.path.join(self.folder, name))
        shutil.copytree(self.folder, os.path.join(runs.work, "good"))
        self.good = content(self.path)
        self.header = 8 + struct.unpack("<Q", self.good[:8])[0]
        self.others = {name: content(os.path.join(self.folder, name)) for name in os.listdir(self.folder) if name != CHECKPOINT}

    def refused(self, data, what):
        """Is a checkpoint of these bytes refused in one line, and nothing touched? False when it is taken: then the end must be the same."""
        with open(self.path, "wb") as file:
            file.write(data)
        status, _, err = self.runs.run(self.folder)
        if status == 0:
            self.runs.same(self.folder, what)
            shutil.rmtree(self.folder)
            shutil.copytree(os.path.join(self.runs.work, "good"), self.folder)
            return False
        self.runs.one_line(err, what)
        if status not in (1, 2):
            self.runs.wrong(f"{what}: exit status {status}, expected 1 or 2")
        if content(self.path) != data or self.others != {name: content(os.path.join(self.folder, name)) for name in self.others}:
            self.runs.wrong(f"{what}: the refused run has changed files")
        return True

    def heal(self):
        with open(self.path, "wb") as file:
            file.write(self.good)
        self.runs.resume(self.folder, "the checkpoint that was put back")
        shutil.rmtree(self.folder)


def truncations(runs, random, wanted):
    patient = Patient(runs)
    size, header = len(patient.good), patient.header
    lengths = {0, 1, 7, 8, 9, header - 1, header, header + 1, size - 1, size // 2}
    while len(lengths) < wanted:
        lengths.add(random.randrange(header if len(lengths) % 2 else size))
    for length in sorted(lengths):
        if not patient.refused(patient.good[:length], f"a checkpoint cut to {length} bytes"):
            runs.wrong(f"a checkpoint cut to {length} bytes: was taken")
    patient.heal()
    return len(lengths)


def flips(runs, random, wanted):
    """One bit flipped. Where the file says the same all the same, going on from it must end in the same bytes."""
    patient = Patient(runs)
    refused = unharmed = 0
    for number in range(wanted):
        at = number if number < 8 else random.randrange(8, patient.header) if number % 2 else random.randrange(patient.header, len(patient.good))
        data = bytearray(patient.good)
        bit = random.randrange(8)
        data[at] ^= 1 << bit
        if patient.refused(bytes(data), f"bit {bit} of byte {at} of {patient.header} + {len(data) - patient.header} flipped"):
            refused += 1
        else:
            unharmed += 1
            if at >= patient.header:
                runs.wrong(f"a bit of the data flipped at {at} was taken")
    patient.heal()
    return refused, unharmed
