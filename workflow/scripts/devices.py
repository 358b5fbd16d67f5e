"""Which GPU a job uses, where a machine has several and --resources gpu=N lets N jobs use them."""

import fcntl
import os
import re
import subprocess
import sys
import time
from pathlib import Path

LOCKS = Path(".snakemake/devices")  # of this folder's jobs; others' jobs are not known here


def visible():
    """What CUDA_VISIBLE_DEVICES can name: those in it already, or all of the machine."""
    known = os.environ.get("CUDA_VISIBLE_DEVICES")
    if known is not None:
        return [name for name in known.split(",") if name]
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    except OSError:
        return []
    return re.findall(r"\(UUID: (GPU-\S+)\)", listed)


def take(wanted):
    """Let this process and its children see one GPU that no other job uses; wait until one is free.

    It must come before anything uses CUDA. Nothing is done for a job that wants none, or that sees
    no more than one, as a job of Slurm does. The GPU is free again when this process ends, however:
    the system then takes away its lock.
    """
    names = visible() if wanted else []
    if len(names) < 2:
        return
    LOCKS.mkdir(parents=True, exist_ok=True)
    said = False
    while not any(locked(name) for name in names):
        if not said:
            print(f"note: {len(names)} GPUs, all in use: waiting for one", file=sys.stderr)
            said = True
        time.sleep(0.5)


def locked(name):
    """Whether this process got the GPU ``name``, which is then all that it sees."""
    # not a file object, which would be closed, and so unlocked, when nothing refers to it
    handle = os.open(LOCKS / name.replace("/", "-"), os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return False
    os.environ["CUDA_VISIBLE_DEVICES"] = name
    return True
