"""Folders into which runs are trained: one process at a time, and nothing lost that lies there."""

import fcntl
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..training import CHECKPOINTS, position_of
from .settings import RunError


@contextmanager
def alone_in(*folders):
    """Until the end of this context no other process trains into these folders (None: none).

    The system takes the lock away when a process ends, however. One that is being killed gets
    some seconds for that.
    """
    with ExitStack() as files:
        for folder in {folder.resolve() for folder in folders if folder}:
            folder.mkdir(parents=True, exist_ok=True)
            _lock(files.enter_context(open(folder / ".lock", "ab")), folder)
        yield


def _lock(file, folder):
    for _ in range(10):
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.5)
        except OSError:
            return None  # a file system that has no locks
    what = "another process trains into this folder"
    raise RunError(f"{folder}: {what}: wait for it, or choose another folder")


def refuse_used(folder, fingerprints):
    """Raise RunError where a finished run lies, or a checkpoint with none of these fingerprints."""
    if (folder / "run.json").exists():
        raise RunError(f"{folder} holds a run already: choose another folder, or delete it")
    for path in sorted(folder.glob(CHECKPOINTS)):
        position = position_of(path)
        if position and position[0] not in fingerprints:
            raise RunError(
                f"{path} is of a training of other settings, data, code or engine that was "
                "interrupted: choose another folder, or delete it"
            )


def clear_checkpoints(folder):
    """Delete all checkpoints of a run or sweep that needs them no more."""
    for checkpoint in Path(folder).glob(CHECKPOINTS):
        checkpoint.unlink()
