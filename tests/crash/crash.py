"""crash.py PROGRAM SHIM SOURCE WORK [SEED]    ATTN_SHORT: a sample. The last line counts; exit status 1 when something is wrong."""
import os
import random as generators
import sys

import damage
import kills
from runs import Runs

program, shim, source, work = map(os.path.abspath, sys.argv[1:5])
seed = int(sys.argv[5]) if len(sys.argv) > 5 else 1
short = bool(os.environ.get("ATTN_SHORT"))
runs = Runs(program, shim, source, work)
random = generators.Random(seed)
runs.begin()
print(f"seed {seed}; the undisturbed run takes {runs.seconds:.2f} s and makes {runs.calls['any']} calls that change files", flush=True)

killed, inside, resumed = kills.kill_runs(runs, random, 5 if short else 50)
print(f"{killed} kills, {inside} of them inside a save", flush=True)
stopped, went_on = kills.stop_runs(runs, random, 2 if short else 20)
print(f"{stopped} requests to stop, {went_on} went on to the same bytes", flush=True)
disk = damage.bad_disks(runs, random, 4 if short else 40)
print(f"{disk} failing disks", flush=True)
places = damage.bad_places(runs)
print(f"{places} folders read-only, gone or full", flush=True)
cuts = damage.truncations(runs, random, 10 if short else 200)
flips, unharmed = damage.flips(runs, random, 16 if short else 400)
print(f"{cuts} truncated checkpoints refused; {flips} bit-flipped ones refused, {unharmed} without harm", flush=True)
print(f"{len(runs.failures)} failures; {stopped} stops, {disk + places} failing disks and folders, {cuts + flips + unharmed} damaged files; "
      f"kills: {killed} made, {resumed} resumed to the same bytes")
sys.exit(1 if runs.failures or killed != resumed or stopped != went_on else 0)
