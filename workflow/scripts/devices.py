"""Which GPU a job uses, and how much of it: --resources gpu=N lets N jobs use a machine's GPUs."""

import fcntl
import os
import re
import subprocess
from itertools import count
from math import ceil
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
    """Let this process and its children see the GPU that the fewest other jobs use, and share it.

    It must come before anything uses CUDA. Nothing is done for a job that wants none; a job that
    sees no more than one, as one of Slurm does, need not choose. Of the SDCPD_GPU_JOBS jobs that
    may run at once, one may want the places of several. Its place is free again when this process
    ends, however: the system then takes away its lock.
    """
    names = visible() if wanted else []
    if wanted:
        places = ceil(int(os.environ.get("SDCPD_GPU_JOBS", 1)) / max(1, len(names)))
        os.environ["SDCPD_GPU_SHARE"] = str(min(1, wanted / places))  # of its memory
    if len(names) < 2:
        return
    LOCKS.mkdir(parents=True, exist_ok=True)
    next(place for place in count() if any(locked(name, place) for name in names))


def locked(name, place):
    """Whether this process got this place on the GPU ``name``, which is then all that it sees."""
    # not a file object, which would be closed, and so unlocked, when nothing refers to it
    handle = os.open(LOCKS / f"{name.replace('/', '-')}.{place}", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return False
    os.environ["CUDA_VISIBLE_DEVICES"] = name
    return True
