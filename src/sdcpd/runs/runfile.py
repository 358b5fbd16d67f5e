"""One run, from its settings to its run file.

A run trains all trials of one dataset × algorithm × hidden size × hyperparameters. Its run file
is a folder of plain files, each written whole and moved into place:

    run.json     settings, seed, code version, device, library versions
    curve.csv    trial, epoch, update, log-likelihood of the train and test images and of the
                 validation images where there are any, log Z, its standard error and effective
                 sample size, all this by plain AIS or exact; where there is AIS the same by the
                 trusted estimate (trusted_…, trusted_agrees) and the bound on log Z; status. Empty:
                 not made, as plain AIS is where an evaluation is not one of ``every``. Archived
                 runs have the trusted columns at the end only, or not at all
    models.npz   W (R, n, m), b (R, m), c (R, n): the final models; NaN where diverged
    wall.json    when it ran and how long it took; apart, so that the others are reproducible

Where it is asked for, ``model-E-T.npz`` has W (n, m), b (m,), c (n,) of trial T after E epochs, and
``bases.jsonl`` a line for each trusted estimate, in the order in which they were made: trial,
update, and for each base of AIS log Z by it alone, its standard error, its effective sample size
and its part of log Z.

Beside it lies ``snapshots.npz``, see snapshots.py.

A sweep trains one algorithm with many values of its hyperparameters. Its file is the same without
models: ``hyperparameters`` is a list, and a column ``setting`` of the curve, which is compressed,
counts in it. With ``rounds``, see tuning.py, its settings ran for different times.
"""

import gzip
import io
import json
import math
import os
import shutil
import subprocess
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np
import pandas as pd

from .. import ROOT, __version__
from ..files import whole_file
from ..rbm import Parameters
from ..sources import source_hash
from . import archive
from .settings import RunError
from .snapshots import NAME as SNAPSHOTS

FORMAT = 2
FILES = ("run.json", "curve.csv", "models.npz", "wall.json")
SWEEP_FILES = ("run.json", "curve.csv.gz", "wall.json")
PLAIN = ("train", "test", "valid", "log_z", "log_z_se", "ess")  # of a curve, by plain AIS or exact
TRUSTED = (*(f"trusted_{name}" for name in PLAIN), "bound", "trusted_agrees")
COLUMNS = ("trial", "epoch", "update", *PLAIN, *TRUSTED, "status")
# Of the wall times of a run that has several parts.
SUMS = ("training_seconds", "evaluation_seconds", "replicas_in_that_time", "resumed_at_update")


class Run(NamedTuple):
    """A finished run, as read from its run file."""

    settings: dict
    provenance: dict
    curve: pd.DataFrame  # a row for each trial and evaluation point
    theta: Parameters | None  # final models, NumPy float32; a sweep keeps none
    wall: dict
    trials: tuple = ()  # the numbers of the trials whose models theta holds, in its order
    archived: bool = False

    @property
    def image_shape(self):
        """Rows and columns of an image: square ones, unless an own file has others."""
        side = math.isqrt(self.theta.b.shape[1])
        return tuple(self.provenance.get("image_shape", (side, side)))

    def best(self):
        """The model of the trial with the highest test log-likelihood at the end, and its number.

        Returns
        -------
        Parameters of one replica, int
            Both None where all trials diverged, or the archive does not keep the model.
        """
        trial = archive.best_trial(self.curve)
        if trial not in self.trials:
            return None, None
        row = self.trials.index(trial)
        return self.theta.select(slice(row, row + 1)), trial


def provenance(engine):
    """Code version, device and library versions: what a run file says of its origin."""
    # This project's own repository, not one around it or one that the environment names.
    command = ["git", f"--git-dir={ROOT / '.git'}", "rev-parse", "HEAD"]
    environment = {n: value for n, value in os.environ.items() if not n.startswith("GIT_")}
    how = {"env": environment, "text": True, "timeout": 10, "stderr": subprocess.DEVNULL}
    try:
        commit = subprocess.check_output(command, **how).strip()
    except (OSError, subprocess.SubprocessError):  # not a clone: the source hash still tells
        commit = "unknown"
    code = {"sdcpd": __version__, "commit": commit, "source": source_hash("runs")}
    return code | {"trained_by": source_hash("training")} | engine.describe()


def save(run, folder):
    """Write the file of a run or sweep, each part whole and moved into place."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    about = {"format": FORMAT, "settings": run.settings, "provenance": run.provenance}
    if run.theta is None:
        text = run.curve.to_csv(index=False, float_format="%.7g")
        with whole_file(folder / "curve.csv.gz", "wb") as file:
            file.write(gzip.compress(text.encode(), mtime=0))  # the same bytes every time
    else:
        with whole_file(folder / "models.npz", "wb") as file:
            np.savez(file, **run.theta._asdict(), trials=np.array(run.trials, int))
        with whole_file(folder / "curve.csv") as file:
            run.curve.to_csv(file, index=False, float_format="%.10g")
    for name, content in (("wall.json", run.wall), ("run.json", about)):
        with whole_file(folder / name) as file:
            json.dump(content, file, indent=2, ensure_ascii=False)


def save_sweep(sweep, folder, wall=None):
    """Write the file of a sweep, a list of Run, one a setting."""
    curve = pd.concat(run.curve.assign(setting=i) for i, run in enumerate(sweep))
    values = [run.settings["hyperparameters"] for run in sweep]
    settings = sweep[0].settings | {"hyperparameters": values}
    save(Run(settings, sweep[0].provenance, curve, None, wall or sweep[0].wall), folder)


def load(folder):
    """Read a run file.

    Raises
    ------
    RunError, archive.ArchiveError
        If a part is missing or damaged, or of another format version.
    """
    folder = Path(folder)
    with _reading(folder):
        run = _load_all_but_models(folder, "curve.csv")
        content = io.BytesIO(archive.read(folder / "models.npz"))
        with np.load(content, allow_pickle=False) as arrays:
            theta = Parameters(*(arrays[name].astype(np.float32) for name in "Wbc"))
            trials = arrays["trials"] if "trials" in arrays else range(len(theta.W))
        return run._replace(theta=theta, trials=tuple(map(int, trials)))


def load_sweep(folder):
    """Read the file of a sweep: a list of Run, one a setting, no models; raises as ``load``."""
    folder = Path(folder)
    with _reading(folder):
        sweep = _load_all_but_models(folder, "curve.csv.gz")
        return [
            sweep._replace(
                settings=sweep.settings | {"hyperparameters": values},
                curve=sweep.curve[sweep.curve["setting"] == i].drop(columns="setting"),
            )
            for i, values in enumerate(sweep.settings["hyperparameters"])
        ]


def _load_all_but_models(folder, curve_name):
    about = json.loads(archive.read(folder / "run.json"))
    if about["format"] != FORMAT:
        found = about["format"]
        raise RunError(f"{folder}: run file format {found}, expected {FORMAT}: run it again")
    content = archive.read(folder / curve_name)
    content = gzip.decompress(content) if curve_name.endswith(".gz") else content
    curve = pd.read_csv(io.BytesIO(content))
    if not {"trial", "epoch", "update", "train", "test", "status"} <= set(curve.columns):
        raise ValueError("curve.csv lacks columns")
    wall = json.loads(archive.read(folder / "wall.json"))
    archived = archive.holds(folder)
    return Run(about["settings"], about["provenance"], curve, None, wall, archived=archived)


@contextmanager
def _reading(folder):
    """Turn what goes wrong in reading a run file into one line."""
    try:
        yield
    except FileNotFoundError as error:
        raise RunError(f"{folder}: {Path(error.filename).name} is missing: run it again") from error
    except (ValueError, KeyError, TypeError, OSError, EOFError, BadZipFile, zlib.error) as error:
        raise RunError(f"{folder}: damaged run file: delete it and run again") from error


def merge(folders, folder, n_trials=None):
    """Put a run together whose trials were trained apart, and write its run file.

    Its curve and models are what ``execute`` would have made at once, on a CPU to the bit; its
    times are sums.

    Parameters
    ----------
    folders : sequence of path
        Of the parts: runs of the same settings, training code and engine, each with some of the
        trials, and together with each of them once. One of the archive brings its best model only.
    folder : path
    n_trials : int, optional
        How many trials the run has. Default: as many as the settings of the parts say. Where it is
        given, parts may differ in that, and in the version of the code: a study of many days has
        trials of several, and names them.

    Returns
    -------
    Run

    Raises
    ------
    RunError
    """
    parts = sorted(map(load, folders), key=lambda part: part.curve.trial.min())
    changes = {} if n_trials is None else {"trials": n_trials}
    same = ("trained_by", "engine") if n_trials is None else ("engine",)
    abouts = [part.provenance for part in parts]
    settings, *others = [part.settings | changes for part in parts]
    identity, *identities = [[about[name] for name in same] for about in abouts]
    if any(other != settings for other in others) or any(i != identity for i in identities):
        raise RunError(f"{folder}: its parts differ in settings, code or engine: train them again")
    trials = [trial for part in parts for trial in sorted(set(part.curve.trial))]
    if trials != [*range(settings["trials"])]:
        raise RunError(f"{folder}: its parts have the trials {trials}: train all, each once")
    curve = pd.concat(part.curve for part in parts).sort_values(["update", "trial"])
    curve = curve[[name for name in COLUMNS if name in curve]].reset_index(drop=True)
    # devices and versions of other machines, where they differ
    about = joined_all(abouts)
    theta, wall = concatenated([p.theta for p in parts]), sum_of([p.wall for p in parts])
    with_model = tuple(trial for part in parts for trial in part.trials)
    run = Run(settings, about, curve, theta, wall, with_model)
    save(run, folder)
    for part in folders:  # that with the first trial has them
        if (Path(part) / SNAPSHOTS).exists():
            shutil.copyfile(Path(part) / SNAPSHOTS, Path(folder) / SNAPSHOTS)
    return run


def concatenated(thetas):
    """The models of several Parameters, NumPy, as one."""
    return Parameters(*map(np.concatenate, zip(*thetas, strict=True)))


def sum_of(walls):
    """Times of what was made in several parts."""
    wall = {"started": min(w["started"] for w in walls)}
    wall |= {"finished": max(w["finished"] for w in walls)}
    return wall | {name: round(sum(w[name] for w in walls), 3) for name in SUMS}


def joined_all(abouts):
    """What several provenances say: ``joined``, name by name."""
    return {name: joined([about.get(name) for about in abouts]) for name in abouts[0]}


def joined(values):
    """The value that all have; else those that there are, in words."""
    if all(value == values[0] for value in values):
        return values[0]
    each = (part for value in values for part in str(value).split(" + "))
    return " + ".join(dict.fromkeys(each))
