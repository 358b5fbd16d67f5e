"""Runs: from their settings to a run file, and from the file back to a ``Run``.

settings   names, types and the canonical form
archive    finished runs that a clone brings along
snapshots  filters and reconstructions while a model learns
runfile    what a run file holds; read, write, put together
trainer    trains what settings say and writes the run file
"""

from .runfile import (
    FILES,
    SWEEP_FILES,
    Run,
    load,
    load_sweep,
    merge,
    provenance,
    save_sweep,
    sum_of,
)
from .settings import SETTINGS, RunError, canonical
from .trainer import alone_in, clear_checkpoints, execute, execute_sweep
