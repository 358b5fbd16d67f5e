"""Runs: from their settings to a run file, and from the file back to a ``Run``.

settings   names, types and the canonical form
archive    finished runs that a clone brings along
snapshots  filters and reconstructions while a model learns
runfile    what a run file holds; read, write, put together
folders    one training at a time; checkpoints that may stay, and that are cleared
setup      what replicas share, what tells them apart, their random keys
trainer    trains what settings say and writes the run file
"""

from .folders import alone_in, clear_checkpoints
from .runfile import (
    FILES,
    SWEEP_FILES,
    Run,
    joined_all,
    load,
    load_sweep,
    merge,
    provenance,
    save_sweep,
    sum_of,
)
from .settings import SETTINGS, RunError, canonical
from .trainer import execute, execute_sweep
