"""Finished runs that every clone brings along, under ``workflow/archive/``.

They are inputs of the workflow, for machines on which the large datasets would take days. Laid out
as ``results/<scale>/``, with the same parts in the same formats, but that of a run's models only
the best trial's is kept, in half precision (``runs.load`` tells which trial it is). Their checksums
are in ``SHA256SUMS``, which ``sha256sum -c SHA256SUMS`` reads, too.
"""

import hashlib
import json
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from .. import ROOT
from ..files import whole_file
from ..likelihood import likelihoods

FOLDER = ROOT / "workflow/archive"
SUMS = "SHA256SUMS"


class ArchiveError(RuntimeError):
    """An archived file is not what it was; the message says what to do."""


def holds(path):
    """Whether ``path`` lies in the archive."""
    return Path(path).resolve().is_relative_to(FOLDER.resolve())


def read(path):
    """The bytes of a file; one in the archive must have its checksum.

    Raises
    ------
    ArchiveError
    FileNotFoundError
    """
    content = Path(path).read_bytes()
    if holds(path):
        name = Path(path).resolve().relative_to(FOLDER.resolve()).as_posix()
        if _sums(FOLDER).get(name) != hashlib.sha256(content).hexdigest():
            raise ArchiveError(
                f"{path} is not the file that was archived: restore it with "
                "`git checkout workflow/archive`, or train anew with --config runs=train"
            )
    return content


@cache
def _sums(folder):
    path = folder / SUMS
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else ()
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}


def store(folder, target, keep_model=True):
    """Copy a finished run, sweep or measurement into the archive at ``target``, and list it.

    Parameters
    ----------
    folder : path
        With the parts of a run file, checkpoints apart.
    target : path
        Relative to the archive: ``runs/mnist/as_published/cd-500h``.
    keep_model : bool
        Whether a run's best model is kept, which is nearly all of its size.
    """
    folder, goal = Path(folder), FOLDER / target
    goal.mkdir(parents=True, exist_ok=True)
    for part in sorted(folder.iterdir()):
        if part.name.endswith((".json", ".csv", ".csv.gz", "images.npz")):
            shutil.copyfile(part, goal / part.name)
    if (folder / "models.npz").exists():
        _store_best(folder, goal, keep_model)
    write_sums()


def best_trial(curve):
    """Number of the trial with the highest test log-likelihood at the end; None: all diverged."""
    end = curve[(curve["update"] == curve["update"].max()) & (curve.status == "ok")]
    return None if end.empty else int(end.loc[likelihoods(end).idxmax(), "trial"])


def _store_best(folder, goal, keep_model):
    best = best_trial(pd.read_csv(folder / "curve.csv")) if keep_model else None
    with np.load(folder / "models.npz", allow_pickle=False) as models:
        rows = models["trials"] == best  # none where all diverged
        arrays = {name: models[name][rows].astype(np.float16) for name in "Wbc"}
        arrays["trials"] = models["trials"][rows]
    with whole_file(goal / "models.npz", "wb") as file:
        np.savez_compressed(file, **arrays)


def write_sums():
    """List every file of a finished run with its checksum, anew."""
    folders = (FOLDER / part for part in ("runs", "sweeps", "modes", "quality", "timing"))
    files = sorted(file for folder in folders for file in folder.rglob("*") if file.is_file())
    with whole_file(FOLDER / SUMS) as sums:
        for file in files:
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            sums.write(f"{digest}  {file.relative_to(FOLDER).as_posix()}\n")
    _sums.cache_clear()


def settings_of(folder):
    """The settings of the run that is archived at ``folder``; None if there is none."""
    path = Path(folder) / "run.json"
    return json.loads(path.read_text(encoding="utf-8"))["settings"] if path.exists() else None
