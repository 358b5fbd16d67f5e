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

import fcntl
import gzip
import hashlib
import io
import json
import math
import os
import shutil
import subprocess
import time
import zlib
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np
import pandas as pd
from tqdm import tqdm

from . import ROOT, __version__, archive, backend, data, engine, training
from .algorithms import STEPS, Hyperparameters
from .data import whole_file
from .likelihood import Evaluator
from .rbm import Parameters, initialize
from .snapshots import NAME as SNAPSHOTS
from .snapshots import Snapshots
from .training import CHECKPOINTS, train, updates_per_epoch

FORMAT = 2
# What decides a model, so that a checkpoint of another version is not used. What else does (data,
# keys, settings) is in its fingerprint itself.
TRAINING_SOURCES = (
    *("backend.py", "rbm.py", "engine.py", "compiled.py", "split.py", "kernels.cu"),
    *("algorithms.py", "training.py"),
)
FILES = ("run.json", "curve.csv", "models.npz", "wall.json")
SWEEP_FILES = ("run.json", "curve.csv.gz", "wall.json")
SOURCES = (*TRAINING_SOURCES, "likelihood.py", "data.py", "snapshots.py", "runs.py")

#: Every setting of a run, with its type.
SETTINGS = {
    "dataset": str,
    "algorithm": str,
    "n_hidden": int,
    "trials": int,
    "epochs": (int, float),
    "batch_size": int,
    "evaluate": dict,
    "n_gibbs_steps": int,
    "n_inner_iterations": int,
    "hyperparameters": dict,
    "ais": (dict, type(None)),
    "seed": int,
}
_HYPERPARAMETERS = {
    "learning_rate": (int, float),
    "epsilon": (int, float),
    "lambda_hessian": (int, float),
    "sliding_factor": (int, float),
}
_EVALUATE = {"every": (int, float), "also": list}
_AIS = {"n_particles": int, "n_temperatures": int}
_POSITIVE = {"n_hidden", "trials", "epochs", "batch_size", "n_gibbs_steps", "n_inner_iterations"}
_POSITIVE |= {"learning_rate", "every", "n_particles", "n_temperatures"}
_NEEDED = {
    "cd": {"learning_rate"},
    "pcd": {"learning_rate"},
    "cg": {"learning_rate", "sliding_factor"},
    "sdcp": {"learning_rate"},
    "sdcp_d": {"learning_rate", "epsilon", "lambda_hessian"},
}


# How long and how often: not of the identity of a trial, which can be prolonged.
_LENGTH = {"trials", "epochs", "evaluate"}
_PLAIN = ("train", "test", "valid", "log_z", "log_z_se", "ess")  # of a curve, by plain AIS or exact
_TRUSTED = (*(f"trusted_{name}" for name in _PLAIN), "bound", "trusted_agrees")
_COLUMNS = ("replica", "epoch", "update", *_PLAIN, *_TRUSTED, "status")

# Of the wall times of a run that has several parts.
_SUMS = ("training_seconds", "evaluation_seconds", "replicas_in_that_time", "resumed_at_update")


class RunError(RuntimeError):
    """A run cannot be made or read; the message says why and what to do."""


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


def execute(
    settings,
    folder=None,
    backend_name="auto",
    data_folder=ROOT / "data",
    trials=None,
    refuse_used=False,
    keep=(),
):
    """Train and evaluate the trials of a run, and write its run file.

    Its checkpoints stay, for what may fail between this and the end of a job, until
    ``clear_checkpoints``: given again, a finished run is there at once, and given with more epochs
    it is prolonged. What a trial is depends neither on how long the run is, nor on how many trials
    it has, nor on when it is evaluated.

    Parameters
    ----------
    settings : dict
        Exactly the keys of ``SETTINGS``.
    folder : path, optional
        Where the run file is written, and where an interrupted run left the checkpoint that it
        goes on from.
    backend_name : str
        Name of an engine, see ``engine.choose``.
    data_folder : path
    trials : range, optional
        Their numbers. Default: all. Fewer give a part of the run, see ``merge``.
    refuse_used : bool
        Raise RunError where ``folder`` holds a finished run, or what an interrupted one of other
        settings has left.
    keep : collection of numbers
        Epochs, of those evaluated, whose models are kept, float32; with any, so are the bases of
        the trusted estimates.

    Returns
    -------
    Run

    Raises
    ------
    RunError, data.DataError, backend.BackendError
        One line that says what is wrong and what to do.
    """
    how = {"trials": trials, "refuse_used": refuse_used, "keep": keep}
    return execute_together([settings], [folder], backend_name, data_folder, **how)[0]


def execute_together(
    all_settings,
    folders,
    backend_name="auto",
    data_folder=ROOT / "data",
    checkpoints_in=None,
    trials=None,
    refuse_used=False,
    keep=(),
):
    """Several runs side by side, as ``execute`` would make them one after the other.

    They may differ in algorithm, hyperparameters, seed and trials. On a GPU this is faster, as
    their Gibbs chains share launches; as many replicas as its memory holds are trained at once.

    Parameters
    ----------
    all_settings, folders : sequences
        Settings and folder of each run, as in ``execute``.
    checkpoints_in : path, optional
        Default: the first folder.
    trials : range, optional
        As in ``execute``, of every run.
    refuse_used : bool
        As in ``execute``, of ``checkpoints_in``.
    keep : collection of numbers
        As in ``execute``.

    Returns
    -------
    list of Run
    """
    checkpoints_in = checkpoints_in or folders[0]
    all_settings = [canonical(settings) for settings in all_settings]
    s = all_settings[0]
    own = {"algorithm", "n_gibbs_steps", "n_inner_iterations", "hyperparameters", "seed", "trials"}
    different = {n for t in all_settings for n in {*SETTINGS} - own if t[n] != s[n]}
    if len({_steps_of_an_update(t) for t in all_settings}) > 1:
        different.add("n_gibbs_steps × n_inner_iterations")
    if different:
        raise RunError(f"runs side by side must have the same {', '.join(sorted(different))}")
    with ExitStack() as locks:
        for folder in filter(None, dict.fromkeys([checkpoints_in, *folders])):
            locks.enter_context(alone_in(Path(folder)))
        where = folders, backend_name, data_folder, checkpoints_in
        return _execute_together(all_settings, *where, trials, refuse_used, keep)


def _execute_together(
    all_settings, folders, backend_name, data_folder, checkpoints_in, trials, refuse_used, keep
):
    s = all_settings[0]
    chosen = engine.select(backend_name)
    started = datetime.now(UTC)
    dataset = data.load(s["dataset"], data_folder)
    numbers = [_trials_of(t, trials) for t in all_settings]
    replicas = [(t, n) for t, of in zip(all_settings, numbers, strict=True) for n in of]
    places = [folder for folder, of in zip(folders, numbers, strict=True) for _ in of]
    size = _side_by_side(chosen, s, dataset, len(replicas))
    groups = [replicas[first : first + size] for first in range(0, len(replicas), size)]
    points = evaluation_updates(s, len(dataset.train))
    names = "+".join(dict.fromkeys(t["algorithm"] for t in all_settings))
    title = f"{Path(s['dataset']).name} {names} {s['n_hidden']}h"
    progress = Progress(title, points[-1] * len(groups))
    all_keys = [_keys_of(group, dataset.sha256 or s["dataset"]) for group in groups]
    owners = [fingerprint(*each, dataset, chosen) for each in zip(groups, all_keys, strict=True)]
    checkpoints = [None] * len(groups)
    if checkpoints_in:  # each with a name of its own: none takes another's place
        names = [_digest([own, points, plain_updates(s, len(dataset.train))]) for own in owners]
        checkpoints = [Path(checkpoints_in) / f"checkpoint-{name[:12]}.npz" for name in names]
    if refuse_used:
        _refuse_used(Path(checkpoints_in), owners)
    try:
        results = [
            _train(group, places[i * size :], dataset, points, chosen, *of_group, progress, i, keep)
            for i, (group, *of_group) in enumerate(
                zip(groups, all_keys, owners, checkpoints, strict=True)
            )
        ]
    except Exception as error:
        if not isinstance(error, MemoryError) and type(error).__name__ != "OutOfMemoryError":
            raise
        raise RunError(_no_memory(s, size)) from error
    progress.close()
    wall = {
        "started": started.isoformat(timespec="seconds"),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "training_seconds": round(sum(result.seconds for result in results), 3),
        "evaluation_seconds": round(sum(result.evaluation_seconds for result in results), 3),
        "replicas_in_that_time": len(replicas),
        "resumed_at_update": sum(result.resumed_at for result in results),
    }
    curve = pd.concat(
        pd.DataFrame(result.curve).assign(replica=lambda c, i=i: c["replica"] + i * size)
        for i, result in enumerate(results)
    ).sort_values(["update", "replica"])
    curve = curve[[name for name in _COLUMNS if name in curve]]
    theta = Parameters(*map(np.concatenate, zip(*(r.theta for r in results), strict=True)))
    about = provenance(chosen)
    about["source"] = _joined([source for result in results for source in result.sources])
    if dataset.sha256:  # an own file: it may change, and need not be there when the run is read
        about |= {"data_sha256": dataset.sha256, "image_shape": list(dataset.image_shape)}
    finished, first = [], 0
    for settings, folder, of in zip(all_settings, folders, numbers, strict=True):
        rows = slice(first, first + len(of))
        own = curve[curve["replica"].between(rows.start, rows.stop - 1)].reset_index(drop=True)
        own = own.assign(replica=own["replica"] - first + of.start)
        own = own.rename(columns={"replica": "trial"})
        run = Run(settings, about, own, theta.select(rows), wall, tuple(of))
        if folder:
            save(run, folder)
        finished.append(run)
        first = rows.stop
    return finished


@contextmanager
def alone_in(folder):
    """Until the end of this context no other process trains into ``folder``.

    The system takes the lock away when a process ends, however. One that is being killed gets
    some seconds for that.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "ab") as file:
        for _ in range(10):
            if _locked(file):
                break
            time.sleep(0.5)
        else:
            what = "another process trains into this folder"
            raise RunError(f"{folder}: {what}: wait for it, or choose another folder")
        yield


def _locked(file):
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system that has no locks
    return True


def _refuse_used(folder, owners):
    """``owners``: fingerprints whose checkpoints are welcome."""
    if (folder / "run.json").exists():
        raise RunError(f"{folder} holds a run already: choose another folder, or delete it")
    found = {path: training.position_of(path) for path in sorted(folder.glob(CHECKPOINTS))}
    others = [path for path, at in found.items() if at and at[0] not in owners]
    if others:
        raise RunError(
            f"{others[0]} is of a training of other settings, data, code or engine that was "
            "interrupted: choose another folder, or delete it"
        )


def clear_checkpoints(folder):
    """Delete all checkpoints of a run or sweep that needs them no more."""
    for checkpoint in Path(folder).glob(CHECKPOINTS):
        checkpoint.unlink()


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
        How many trials the run has. Default: as many as the settings of the parts say, which may
        otherwise differ in it.

    Returns
    -------
    Run

    Raises
    ------
    RunError
    """
    parts = sorted(map(load, folders), key=lambda part: part.curve.trial.min())
    changes = {} if n_trials is None else {"trials": n_trials}
    settings, *others = [part.settings | changes for part in parts]
    abouts = [part.provenance for part in parts]
    trials = [trial for part in parts for trial in sorted(set(part.curve.trial))]
    if any(other != settings for other in others) or any(
        about[name] != abouts[0][name] for about in abouts for name in ("trained_by", "engine")
    ):
        raise RunError(f"{folder}: its parts differ in settings, code or engine: train them again")
    if trials != [*range(settings["trials"])]:
        raise RunError(f"{folder}: its parts have the trials {trials}: train all, each once")
    about = {  # devices and versions of other machines, where they differ
        name: _joined([about.get(name) for about in abouts]) for name in abouts[0]
    }
    wall = sum_of([part.wall for part in parts])
    curve = pd.concat(part.curve for part in parts).sort_values(["update", "trial"])
    curve = curve[[name for name in ("trial", *_COLUMNS) if name in curve]]
    theta = Parameters(*map(np.concatenate, zip(*(part.theta for part in parts), strict=True)))
    with_model = tuple(trial for part in parts for trial in part.trials)
    run = Run(settings, about, curve.reset_index(drop=True), theta, wall, with_model)
    save(run, folder)
    for part in folders:  # that with the first trial has them
        if (Path(part) / SNAPSHOTS).exists():
            shutil.copyfile(Path(part) / SNAPSHOTS, Path(folder) / SNAPSHOTS)
    return run


def sum_of(walls):
    """Times of what was made in several parts."""
    wall = {"started": min(w["started"] for w in walls)}
    wall |= {"finished": max(w["finished"] for w in walls)}
    return wall | {name: round(sum(w[name] for w in walls), 3) for name in _SUMS}


def _joined(values):
    """The value that all have; else those that there are, in words."""
    different = list(dict.fromkeys(values))
    return different[0] if len(different) == 1 else " + ".join(map(str, different))


def execute_sweeps(all_settings, folders, backend_name="auto", data_folder=ROOT / "data"):
    """Train and evaluate sweeps side by side, and write their files.

    Parameters
    ----------
    all_settings : sequence of dict
        As in ``execute_together``, but that ``hyperparameters`` is a list in each.
    folders : sequence of path
        Where each sweep is written; checkpoints go into the first.

    Returns
    -------
    list of list of Run
        For each sweep its runs, one a setting, without models.
    """
    parts = [
        settings | {"hyperparameters": values}
        for settings in all_settings
        for values in settings["hyperparameters"]
    ]
    Path(folders[0]).mkdir(parents=True, exist_ok=True)
    where = backend_name, data_folder, folders[0]
    found = iter(execute_together(parts, [None] * len(parts), *where))
    sweeps = []
    for settings, folder in zip(all_settings, folders, strict=True):
        sweep = [next(found)._replace(theta=None) for _ in settings["hyperparameters"]]
        save_sweep(sweep, folder)
        sweeps.append(sweep)
    return sweeps


def save_sweep(sweep, folder, wall=None, **changes):
    """Write the file of a sweep, a list of Run, one a setting.

    ``changes``: settings of the sweep that are not those of the first run.
    """
    curve = pd.concat(run.curve.assign(setting=i) for i, run in enumerate(sweep))
    values = [run.settings["hyperparameters"] for run in sweep]
    settings = sweep[0].settings | {"hyperparameters": values} | changes
    whole = Run(settings, sweep[0].provenance, curve, None, wall or sweep[0].wall)
    save(whole, folder)


def _of_chains(settings, named):
    names = "algorithm", "n_hidden", "n_gibbs_steps", "hyperparameters"
    return [named, *(settings[name] for name in names)]


def _keys_of(replicas, named):
    """The random keys of replicas, a list of (settings, trial): initial models, order of the
    images, pixels, chains. The first three are the same for every algorithm of a trial."""

    def keys(*fields):
        return [backend.key(t["seed"], *fields, trial) for t, trial in replicas]

    return {
        "init": [backend.key(t["seed"], "init", named, t["n_hidden"], n) for t, n in replicas],
        "order": keys("order", named),
        "pixels": keys("pixels", named),
        "chain": [backend.key(t["seed"], "chain", *_of_chains(t, named), n) for t, n in replicas],
    }


def _train(
    replicas, places, dataset, points, chosen, keys, own, checkpoint, progress, groups_before, keep
):
    """Train ``replicas``, a list of (settings, trial), side by side.

    ``places``: for each of them the folder of its snapshots and kept models, or None. ``own``:
    their fingerprint.
    """
    xp, s = chosen.xp, replicas[0][0]
    train_mean = dataset.train.mean(0, dtype=np.float64)
    images = xp.asarray(dataset.train)
    test = images if dataset.test is dataset.train else xp.asarray(dataset.test)
    valid = None if dataset.valid is None else xp.asarray(dataset.valid)
    fresh = dataset.grey is not None  # binarized anew at every visit
    named = dataset.sha256 or s["dataset"]
    pictures = {
        replica: Snapshots(folder, own, dataset.test)
        for replica, (folder, (_, trial)) in enumerate(zip(places, replicas, strict=False))
        if folder and trial == 0
    }

    def ais_key(replica, update):
        settings, trial = replicas[replica]
        return backend.key(settings["seed"], "ais", *_of_chains(settings, named), trial, update)

    def hyperparameters(algorithm, n_gibbs_steps, n_inner_iterations, sliding_factor, block):
        def each(name):
            return xp.asarray([t["hyperparameters"].get(name, 0) for t, _ in block], xp.float32)

        arrays = each("learning_rate"), each("epsilon"), each("lambda_hessian")
        mean = xp.asarray(train_mean, xp.float32)
        return Hyperparameters(*arrays, n_gibbs_steps, n_inner_iterations, sliding_factor, mean)

    def kind(replica):
        settings, _ = replica
        names = "algorithm", "n_gibbs_steps", "n_inner_iterations"
        factor = settings["hyperparameters"].get("sliding_factor", 0)
        return *(settings[name] for name in names), factor

    def look(theta, numbers, update):
        epoch = update / updates_per_epoch(len(images), s["batch_size"])
        for row, replica in enumerate(numbers.tolist()):
            one = theta.select(slice(row, row + 1))
            if replica in pictures:
                pictures[replica].take(one, update, epoch)
            if epoch in keep and places[replica]:
                _keep(one, Path(places[replica]) / f"model-{epoch:g}-{replicas[replica][1]}.npz")

    def note(replica, update, found):
        """A line that tells where the weights of AIS come from."""
        if keep and places[replica]:
            line = {"trial": replicas[replica][1], "update": update, "bases": found.bases}
            with open(Path(places[replica]) / "bases.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    plain_at = plain_updates(s, len(images))
    evaluated = images, test, ais_key, s["ais"], progress.note, chosen, valid, look, plain_at, note

    def as_asked(point):
        """Without plain AIS where a run of these settings makes none."""
        if s["ais"] is None or point["status"] != "ok":
            return point
        if point["update"] in plain_at:
            return point if np.isfinite(point.get("log_z", np.nan)) else None
        return {name: value for name, value in point.items() if name not in _PLAIN}

    blocks = [(*what, list(block)) for what, block in groupby(replicas, kind)]
    return train(
        [algorithm for algorithm, *_ in blocks],
        initialize(train_mean, s["n_hidden"], keys["init"], xp),
        [hyperparameters(*block) for block in blocks],
        xp.asarray(dataset.grey) if fresh else images,
        s["batch_size"],
        points,
        Evaluator(*evaluated),
        keys["order"],
        keys["chain"],
        checkpoint,
        own,
        lambda done: progress.update(groups_before * points[-1] + done),
        chosen,
        keys["pixels"] if fresh else None,
        source_hash(),
        as_asked,
    )


def _keep(theta, path):
    """Write a model, Parameters of one replica."""
    with whole_file(path, "wb") as file:
        np.savez(file, **{name: backend.to_host(getattr(theta, name))[0] for name in "Wbc"})


def _trials_of(settings, trials):
    """The numbers of the trials to train."""
    every = range(settings["trials"])
    trials = every if trials is None else trials
    if not trials or trials[0] not in every or trials[-1] not in every:
        raise RunError(f"trials {[*trials]} are not among the {len(every)} of the run")
    return trials


def _steps_of_an_update(settings):
    """Gibbs steps; only S-DCP and S-DCP-D have inner iterations."""
    inner = settings["algorithm"] in ("sdcp", "sdcp_d")
    return settings["n_gibbs_steps"] * (settings["n_inner_iterations"] if inner else 1)


def _side_by_side(chosen, s, dataset, n_replicas):
    """How many replicas to train at once."""
    n_rows = max(min(s["batch_size"], len(dataset.train)), (s["ais"] or {}).get("n_particles", 0))
    limit = chosen.capacity(s["n_hidden"], dataset.train.shape[1], n_rows, len(dataset.train))
    if limit is not None and limit < 1:
        raise RunError(_no_memory(s, 1))
    return min(limit or n_replicas, n_replicas)


def _no_memory(s, n_replicas):
    return (
        f"not enough memory for {n_replicas} trials of {s['dataset']} with {s['n_hidden']} hidden "
        "units side by side: run with fewer trials, or fewer jobs at once (--cores 1)"
    )


def canonical(settings):
    """``settings`` in the one form that random keys, fingerprints and run files use.

    Equal settings give the same whatever the order of their names, and for 1 and 1.0.

    Raises
    ------
    RunError
        Unless ``settings`` has exactly the right names and types.
    """
    _check_names("settings", settings, SETTINGS, SETTINGS)
    if settings["algorithm"] not in STEPS:
        known = ", ".join(STEPS)
        raise RunError(f"unknown algorithm {settings['algorithm']!r}: choose one of {known}")
    needed = _NEEDED[settings["algorithm"]]
    _check_names("hyperparameters", settings["hyperparameters"], _HYPERPARAMETERS, needed)
    data.files_of(settings["dataset"])
    if settings["ais"] is not None:
        _check_names("ais", settings["ais"], _AIS, _AIS)
    _check_names("evaluate", settings["evaluate"], _EVALUATE, _EVALUATE)
    numbers = settings | settings["evaluate"] | (settings["ais"] or {})
    numbers["learning_rate"] = settings["hyperparameters"]["learning_rate"]
    for name in _POSITIVE & set(numbers):
        if not 0 < numbers[name] < float("inf"):
            raise RunError(f"{name} must be positive, not {numbers[name]!r}")
    also = settings["evaluate"]["also"]
    if not all(isinstance(e, (int, float)) and 0 <= e < float("inf") for e in also):
        raise RunError("evaluate: also must list epochs, none of them negative")
    values, ais, evaluate = (settings[name] for name in ("hyperparameters", "ais", "evaluate"))
    return {name: settings[name] for name in SETTINGS} | {
        "epochs": _plain(settings["epochs"]),
        "evaluate": {
            "every": _plain(evaluate["every"]),
            "also": sorted(map(_plain, evaluate["also"])),
        },
        "hyperparameters": {name: float(values[name]) for name in sorted(values)},
        "ais": ais and {name: ais[name] for name in _AIS},
    }


def _plain(number):
    return int(number) if number == int(number) else float(number)


def _check_names(what, given, types, needed):
    unknown, missing = set(given) - set(needed), set(needed) - set(given)
    if unknown or missing:
        parts = [f"unknown: {', '.join(sorted(unknown))}"] if unknown else []
        parts += [f"missing: {', '.join(sorted(missing))}"] if missing else []
        raise RunError(f"{what}: {'; '.join(parts)}")
    for name, value in given.items():
        if not isinstance(value, types[name]) or isinstance(value, bool):
            raise RunError(f"{what}: {name} has the wrong type: {value!r}")


def evaluation_updates(settings, n_images):
    """After how many updates a run is evaluated; the last one ends it.

    ``evaluate`` gives them in epochs: every so many, and also at those listed.
    """
    per_epoch = updates_per_epoch(n_images, settings["batch_size"])
    last, evaluate = settings["epochs"], settings["evaluate"]
    epochs = {*np.arange(evaluate["every"], last, evaluate["every"]), *evaluate["also"]}
    end = max(1, round(last * per_epoch))
    return sorted({round(epoch * per_epoch) for epoch in epochs if epoch < last} | {end})


def plain_updates(settings, n_images):
    """After how many updates plain AIS is made, too: those of ``every``, as published curves."""
    regular = settings["evaluate"] | {"also": []}
    return evaluation_updates(settings | {"evaluate": regular}, n_images)


def fingerprint(replicas, keys, dataset, chosen):
    """Of everything that decides the models of replicas, (settings, trial), at any update: settings
    but for how long and how often, random keys, images, engine, and the code that trains."""
    settings = [
        {name: value for name, value in t.items() if name not in {*_LENGTH, "dataset"}}
        for t, _ in replicas
    ]
    images = [
        hashlib.sha256(np.ascontiguousarray(part)).hexdigest()
        for part in (dataset.train, dataset.valid, dataset.test, dataset.grey)
        if part is not None
    ]
    keys = {name: np.array(values).tolist() for name, values in keys.items()}
    return _digest([settings, keys, images, source_hash(TRAINING_SOURCES), chosen.name])


def _digest(values):
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def source_hash(names=SOURCES):
    """Of the modules that a run's numbers depend on."""
    digest = hashlib.sha256()
    for name in names:
        digest.update((ROOT / "src/sdcpd" / name).read_bytes())
    return digest.hexdigest()[:16]


def provenance(chosen):
    """Code version, device and library versions: what a run file says of its origin."""
    # This project's own repository, not one around it or one that the environment names.
    command = ["git", f"--git-dir={ROOT / '.git'}", "rev-parse", "HEAD"]
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    how = {"env": own, "text": True, "timeout": 10, "stderr": subprocess.DEVNULL}
    try:
        commit = subprocess.check_output(command, **how)
    except (OSError, subprocess.SubprocessError):  # not a clone: the source hash still tells
        commit = "unknown"
    code = {"sdcpd": __version__, "commit": commit.strip(), "source": source_hash()}
    code |= {"trained_by": source_hash(TRAINING_SOURCES)}
    return code | chosen.describe()


# ---------------------------------------------------------------------------- run files


def save(run, folder):
    """Write the file of a run or sweep, each part whole and moved into place."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    about = {"format": FORMAT, "settings": run.settings, "provenance": run.provenance}
    if run.theta is not None:
        with whole_file(folder / "models.npz", "wb") as file:
            np.savez(file, W=run.theta.W, b=run.theta.b, c=run.theta.c, trials=run.trials)
    if run.theta is not None:
        with whole_file(folder / "curve.csv") as file:
            run.curve.to_csv(file, index=False, float_format="%.10g")
    else:
        text = run.curve.to_csv(index=False, float_format="%.7g")
        with whole_file(folder / "curve.csv.gz", "wb") as file:
            file.write(gzip.compress(text.encode(), mtime=0))  # the same bytes every time
    with whole_file(folder / "wall.json") as file:
        json.dump(run.wall, file, indent=2)
    with whole_file(folder / "run.json") as file:
        json.dump(about, file, indent=2, ensure_ascii=False)


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


# ----------------------------------------------------------------------------- progress


class Progress:
    """A line now and then with the share done and the time left.

    Where it goes: see ``backend.say``.

    Parameters
    ----------
    title : str
    total : int
    every : float, optional
        Seconds between lines. Default: 10, and less on a terminal, where one takes another's place.
    """

    def __init__(self, title, total, every=None):
        columns = backend.columns()
        self.width = max(columns - len(title) - 20, 20) if columns else 70  # of the meter
        self.title, self.total, self.every = title, total, every or (0.5 if columns else 10)
        self.started = self.last = time.monotonic()
        self.first = None  # where this session began: an interrupted run does not begin at 0
        self.done = 0

    def update(self, done):
        """Say that ``done`` of ``total`` are done."""
        self.first = done - 1 if self.first is None else self.first
        self.done = done
        self._line()

    def note(self, share):
        """Say how much of an evaluation is done."""
        self._line(f"evaluation {share:.0%}")

    def close(self):
        """The last line."""
        self._line("finished", force=True)

    def _line(self, note="", force=False):
        now = time.monotonic()
        if not force and now - self.last < self.every:
            return
        self.last = now
        elapsed, first = now - self.started, self.first or 0
        meter = tqdm.format_meter(self.done, self.total, elapsed, ncols=self.width, initial=first)
        backend.say(f"{self.title}: {meter} {note}".rstrip(), passing=not force)
