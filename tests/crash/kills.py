"""Kills at any moment, and requests to stop."""
import os
import shutil
import signal
import time


def kill_by_clock(runs, random, folder):
    """Kills the process after a while; -9, or its exit status when it was done before."""
    process = runs.start(folder)
    time.sleep(random.uniform(0.02, 1) * runs.seconds)
    process.kill()
    return runs.finish(process)[0]


def kill_by_call(runs, random, folder):
    """Lets the process die at a call that changes a file: before it, or after half of it."""
    call = random.choice(["any", "write", "sync", "rename", "open"])
    mode = random.choice(["kill", "torn"])
    return runs.run(folder, shim=f"{mode}:{call}:{random.randint(1, runs.calls[call])}")[0]


def kill_runs(runs, random, wanted):
    """Runs that are killed once or several times before they end. (kills, of those inside a save, of those resumed to the same bytes)"""
    kills = inside = resumed = 0
    while kills < wanted:
        folder, here, by = runs.folder(), 0, []
        for _ in range(random.choice([1, 1, 2, 3])):
            if kills + here == wanted:
                break
            how = kill_by_clock if random.random() < 0.4 else kill_by_call
            if how(runs, random, folder) != -signal.SIGKILL:
                break  # it was done before
            here += 1
            by.append(how.__name__)
            if os.path.isdir(folder):
                inside += bool(runs.litter(folder))
                runs.files_whole(folder, f"killed ({by[-1]})")
        if here > 0:
            kills += here
            resumed += here if runs.resume(folder, f"killed {here} times ({', '.join(by)})") else 0
        shutil.rmtree(folder, ignore_errors=True)
    return kills, inside, resumed


def stop_by_clock(runs, random, folder):
    process = runs.start(folder)
    time.sleep(random.uniform(0.2, 0.9) * runs.seconds)
    process.send_signal(random.choice([signal.SIGINT, signal.SIGTERM]))
    return runs.finish(process)


def stop_by_call(runs, random, folder):
    call = random.choice(["write", "sync", "rename", "open"])
    return runs.run(folder, shim=f"term:{call}:{random.randint(3, runs.calls[call] * 3 // 4)}")


def stop_runs(runs, random, wanted):
    """Ctrl-C and SIGTERM, some of them in the middle of a save: it saves and goes on later."""
    stops = resumed = 0
    for attempt in range(4 * wanted):
        if stops == wanted:
            break
        folder = runs.folder()
        how = stop_by_clock if attempt % 2 else stop_by_call
        status, out, err = how(runs, random, folder)
        what = f"asked to stop ({how.__name__})"
        early = status in (-signal.SIGINT, -signal.SIGTERM) and not os.path.exists(os.path.join(folder, "log.jsonl"))
        if status != 0 and not early:  # neither done nor hardly begun
            stops += 1
            if status != 130 or err or "stopped" not in out:
                runs.wrong(f"{what}: exit status {status}, expected 130 and no line: {err.strip()[:300]}")
            elif not os.path.exists(os.path.join(folder, "checkpoint.safetensors")):
                runs.wrong(f"{what}: there is no checkpoint")
            elif runs.resume(folder, what, extra_lines=True):
                resumed += 1
        shutil.rmtree(folder, ignore_errors=True)
    return stops, resumed
