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
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np
import pandas as pd

from . import ROOT, __version__, archive, data, device, engines, philox, training
from .algorithms import ALGORITHMS, Hyperparameters
from .files import whole_file
from .likelihood import Evaluator
from .progress import Progress
from .rbm import Parameters, initialize
from .snapshots import NAME as SNAPSHOTS
from .snapshots import Snapshots
from .sources import source_hash
from .training import CHECKPOINTS, train, updates_per_epoch

FORMAT = 2
FILES = ("run.json", "curve.csv", "models.npz", "wall.json")
SWEEP_FILES = ("run.json", "curve.csv.gz", "wall.json")

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
    checkpoints_in=None,
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
        Where the run file is written.
    backend_name : str
        Name of an engine, see ``engines.choose``.
    data_folder : path
    trials : range, optional
        Their numbers. Default: all. Fewer give a part of the run, see ``merge``.
    checkpoints_in : path, optional
        Where an interrupted run leaves what it goes on from. Default: ``folder``.
    refuse_used : bool
        Raise RunError where that holds a finished run, or what an interrupted one of other
        settings has left.
    keep : collection of numbers
        Epochs, of those evaluated, whose models are kept, float32; with any, so are the bases of
        the trusted estimates.

    Returns
    -------
    Run

    Raises
    ------
    RunError, data.DataError, device.BackendError
        One line that says what is wrong and what to do.
    """
    settings = canonical(settings)
    trials = _trials_of(settings, trials)
    replicas = [(settings["hyperparameters"], trial) for trial in trials]
    checkpoints_in = checkpoints_in or folder
    with ExitStack() as locks:
        for place in {Path(each) for each in (folder, checkpoints_in) if each}:
            locks.enter_context(alone_in(place))
        trainer = _Trainer(settings, backend_name, data_folder, folder, keep)
        curve, theta, wall, about = trainer.train(replicas, checkpoints_in, refuse_used)
        run = Run(settings, about, _of(trials, curve), theta, wall, tuple(trials))
        if folder:
            save(run, folder)
    return run


def execute_sweep(
    settings, folder=None, backend_name="auto", data_folder=ROOT / "data", checkpoints_in=None
):
    """Train and evaluate a sweep side by side, and write its file.

    Parameters
    ----------
    settings : dict
        As in ``execute``, but that ``hyperparameters`` is a list.
    folder, backend_name, data_folder, checkpoints_in
        As in ``execute``.

    Returns
    -------
    list of Run
        One a setting, without models.
    """
    each = [canonical(settings | {"hyperparameters": v}) for v in settings["hyperparameters"]]
    if len({one["hyperparameters"].get("sliding_factor") for one in each}) > 1:
        raise RunError("the settings of a sweep must have the same sliding_factor")
    n, checkpoints_in = settings["trials"], Path(checkpoints_in or folder)
    replicas = [(one["hyperparameters"], trial) for one in each for trial in range(n)]
    with alone_in(checkpoints_in):
        trainer = _Trainer(each[0], backend_name, data_folder)
        curve, _, wall, about = trainer.train(replicas, checkpoints_in)
        sweep = []
        for i, one in enumerate(each):
            own = _of(range(n), curve, i * n)
            sweep.append(Run(one, about, own, None, wall, tuple(range(n))))
        if folder:
            save_sweep(sweep, folder)
    return sweep


def _of(trials, curve, first=0):
    """The curve of these trials, which are the replicas from number ``first`` on."""
    own = curve[curve["replica"].between(first, first + len(trials) - 1)].reset_index(drop=True)
    own = own.assign(replica=own["replica"] - first + trials[0])
    return own.rename(columns={"replica": "trial"})


class _Trainer:
    """Trains replicas, pairs of hyperparameters and trial, that share all other settings.

    ``folder`` is where snapshots and kept models of a run go; a sweep has none.
    """

    def __init__(self, settings, backend_name, data_folder, folder=None, keep=()):
        self.settings, self.folder, self.keep = settings, folder and Path(folder), keep
        self.engine = engines.select(backend_name)
        self.dataset = data.load(settings["dataset"], data_folder)
        self.named = self.dataset.sha256 or settings["dataset"]  # in random keys
        self.points = evaluation_updates(settings, len(self.dataset.train))
        self.plain_at = plain_updates(settings, len(self.dataset.train))
        self.train_mean = self.dataset.train.mean(0, dtype=np.float64)
        self.images_sha256 = [
            hashlib.sha256(np.ascontiguousarray(part)).hexdigest()
            for part in (*self.dataset[:3], self.dataset.grey)
            if part is not None
        ]

    def train(self, replicas, checkpoints_in=None, refuse_used=False):
        """The curve, a column ``replica`` in it; final models; times; provenance."""
        started, size = datetime.now(UTC), self._side_by_side(len(replicas))
        groups = [replicas[first : first + size] for first in range(0, len(replicas), size)]
        title = f"{Path(self.settings['dataset']).name} {self.settings['algorithm']}"
        title += f" {self.settings['n_hidden']}h"
        progress = Progress(title, self.points[-1] * len(groups))
        owners = [self._fingerprint(group) for group in groups]
        if refuse_used:
            _refuse_used(Path(checkpoints_in), owners)
        results = []
        try:
            for number, (group, owner) in enumerate(zip(groups, owners, strict=True)):
                before = number * self.points[-1]
                where = self._checkpoint(checkpoints_in, owner) if checkpoints_in else None
                results.append(self._train(group, owner, where, progress, before))
        except Exception as error:
            if not isinstance(error, MemoryError) and type(error).__name__ != "OutOfMemoryError":
                raise
            raise RunError(self._no_memory(size)) from error
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
        ).sort_values(["update", "replica"], ignore_index=True)
        curve = curve[[name for name in _COLUMNS if name in curve]]
        theta = Parameters(*map(np.concatenate, zip(*(r.theta for r in results), strict=True)))
        about = provenance(self.engine)
        about["source"] = _joined([source for result in results for source in result.sources])
        if self.dataset.sha256:  # an own file: it may change, or be gone when the run is read
            shape = list(self.dataset.image_shape)
            about |= {"data_sha256": self.dataset.sha256, "image_shape": shape}
        return curve, theta, wall, about

    def _train(self, replicas, owner, checkpoint, progress, updates_before):
        s, xp, dataset, keys = self.settings, self.engine.xp, self.dataset, self._keys(replicas)
        images, grey = xp.asarray(dataset.train), dataset.grey
        evaluator = Evaluator(
            images,
            images if dataset.test is dataset.train else xp.asarray(dataset.test),
            lambda replica, update: self._key("ais", replicas[replica], update),
            s["ais"],
            progress.note,
            self.engine,
            None if dataset.valid is None else xp.asarray(dataset.valid),
            plain_at=self.plain_at,
            note=lambda replica, update, found: self._note(replicas[replica][1], update, found),
        )
        pictures = Snapshots(self.folder, owner, dataset.test) if self.folder else None

        def evaluate(theta, numbers, update):
            for row, number in enumerate(numbers.tolist() if self.folder else ()):
                model = theta.select(slice(row, row + 1))
                self._look(model, replicas[number][1], update, pictures)
            return evaluator(theta, numbers, update)

        task = training.Task(
            s["algorithm"],
            self._hyperparameters(replicas),
            images if grey is None else xp.asarray(grey),
            s["batch_size"],
            self.points,
            keys["order"],
            keys["chain"],
            None if grey is None else keys["pixels"],
            self.engine,
        )
        theta = initialize(self.train_mean, s["n_hidden"], keys["init"], xp)
        return train(
            task, theta, evaluate, checkpoint, lambda done: progress.update(updates_before + done)
        )

    def _look(self, model, trial, update, pictures):
        """Keep what a run keeps of a model, Parameters of one replica, when it is evaluated."""
        epoch = update / updates_per_epoch(len(self.dataset.train), self.settings["batch_size"])
        if trial == 0:
            pictures.take(model, update, epoch)
        if epoch in self.keep:
            arrays = {name: device.to_host(getattr(model, name))[0] for name in "Wbc"}
            with whole_file(self.folder / f"model-{epoch:g}-{trial}.npz", "wb") as file:
                np.savez(file, **arrays)

    def _note(self, trial, update, found):
        """A line that tells where the weights of AIS come from."""
        if self.keep and self.folder:
            line = {"trial": trial, "update": update, "bases": found.bases}
            with open(self.folder / "bases.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def _hyperparameters(self, replicas):
        s, xp = self.settings, self.engine.xp

        def each(name):
            return xp.asarray([values.get(name, 0) for values, _ in replicas], xp.float32)

        return Hyperparameters(
            learning_rate=each("learning_rate"),
            epsilon=each("epsilon"),
            lambda_hessian=each("lambda_hessian"),
            n_gibbs_steps=s["n_gibbs_steps"],
            n_inner_iterations=s["n_inner_iterations"],
            sliding_factor=s["hyperparameters"].get("sliding_factor", 0),
            train_mean=xp.asarray(self.train_mean, xp.float32),
        )

    def _key(self, what, replica, *fields):
        """The random key of the chains of a replica, or of its AIS."""
        s, (values, trial) = self.settings, replica
        of_chains = s["algorithm"], s["n_hidden"], s["n_gibbs_steps"], values
        return philox.key(s["seed"], what, self.named, *of_chains, trial, *fields)

    def _keys(self, replicas):
        """Of initial models, order of the images, pixels, chains. The first three are the same for
        every algorithm of a trial."""
        seed, named, trials = self.settings["seed"], self.named, [trial for _, trial in replicas]
        n_hidden = self.settings["n_hidden"]
        return {
            "init": [philox.key(seed, "init", named, n_hidden, trial) for trial in trials],
            "order": np.array([philox.key(seed, "order", named, trial) for trial in trials]),
            "pixels": np.array([philox.key(seed, "pixels", named, trial) for trial in trials]),
            "chain": np.array([self._key("chain", replica) for replica in replicas]),
        }

    def _fingerprint(self, replicas):
        """Of everything that decides their models at any update: settings but for how long and how
        often, random keys, images, engine, and the code that trains."""
        without = {*_LENGTH, "dataset", "hyperparameters"}
        settings = {n: value for n, value in self.settings.items() if n not in without}
        keys = {name: np.array(values).tolist() for name, values in self._keys(replicas).items()}
        code = source_hash("training"), self.engine.name
        return _digest([settings, replicas, keys, self.images_sha256, *code])

    def _checkpoint(self, folder, owner):
        """With a name of its own: none takes another's place."""
        name = _digest([owner, self.points, self.plain_at])[:12]
        path = Path(folder) / f"checkpoint-{name}.npz"
        return training.Checkpoint(path, owner, source_hash("runs"), self._as_asked)

    def _as_asked(self, point):
        """Without plain AIS where a run of these settings makes none."""
        if self.settings["ais"] is None or point["status"] != "ok":
            return point
        if point["update"] in self.plain_at:
            return point if np.isfinite(point.get("log_z", np.nan)) else None
        return {name: value for name, value in point.items() if name not in _PLAIN}

    def _side_by_side(self, n_replicas):
        """How many replicas to train at once."""
        s, n_images = self.settings, len(self.dataset.train)
        n_rows = max(min(s["batch_size"], n_images), (s["ais"] or {}).get("n_particles", 0))
        n_visible = self.dataset.train.shape[1]
        limit = self.engine.capacity(s["n_hidden"], n_visible, n_rows, n_images)
        if limit is not None and limit < 1:
            raise RunError(self._no_memory(1))
        return min(limit or n_replicas, n_replicas)

    def _no_memory(self, n_replicas):
        return (
            f"not enough memory for {n_replicas} trials of {self.settings['dataset']} with "
            f"{self.settings['n_hidden']} hidden units side by side: run with fewer trials, or "
            "fewer jobs at once (--cores 1)"
        )


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
    changes, same = {}, ("trained_by", "engine")
    if n_trials is not None:
        changes, same = {"trials": n_trials}, ("engine",)
    settings, *others = [part.settings | changes for part in parts]
    abouts = [part.provenance for part in parts]
    trials = [trial for part in parts for trial in sorted(set(part.curve.trial))]
    if any(other != settings for other in others) or any(
        about[name] != abouts[0][name] for about in abouts for name in same
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
    if len(set(values)) == 1:
        return values[0]
    each = (part for value in values for part in str(value).split(" + "))
    return " + ".join(dict.fromkeys(each))


def save_sweep(sweep, folder, wall=None, **changes):
    """Write the file of a sweep, a list of Run, one a setting.

    ``changes``: settings of the sweep that are not those of the first run.
    """
    curve = pd.concat(run.curve.assign(setting=i) for i, run in enumerate(sweep))
    values = [run.settings["hyperparameters"] for run in sweep]
    settings = sweep[0].settings | {"hyperparameters": values} | changes
    whole = Run(settings, sweep[0].provenance, curve, None, wall or sweep[0].wall)
    save(whole, folder)


def _trials_of(settings, trials):
    """The numbers of the trials to train."""
    every = range(settings["trials"])
    trials = every if trials is None else trials
    if not trials or trials[0] not in every or trials[-1] not in every:
        raise RunError(f"trials {[*trials]} are not among the {len(every)} of the run")
    return trials


def canonical(settings):
    """``settings`` in the one form that random keys, fingerprints and run files use.

    Equal settings give the same whatever the order of their names, and for 1 and 1.0.

    Raises
    ------
    RunError
        Unless ``settings`` has exactly the right names and types.
    """
    _check_names("settings", settings, SETTINGS, SETTINGS)
    if settings["algorithm"] not in ALGORITHMS:
        known = ", ".join(ALGORITHMS)
        raise RunError(f"unknown algorithm {settings['algorithm']!r}: choose one of {known}")
    needed = {"learning_rate", *ALGORITHMS[settings["algorithm"]].needs}
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


def _digest(values):
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


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
    code = {"sdcpd": __version__, "commit": commit.strip(), "source": source_hash("runs")}
    code |= {"trained_by": source_hash("training")}
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
