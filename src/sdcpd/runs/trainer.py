"""From settings to a run file: trains and evaluates the trials of a run, or a sweep."""

import fcntl
import hashlib
import json
import time
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

from .. import ROOT, data, device, engines, philox, training
from ..algorithms import Hyperparameters
from ..files import whole_file
from ..likelihood import Evaluator, images_of
from ..progress import Progress
from ..rbm import Parameters, initialize
from ..sources import source_hash
from ..training import CHECKPOINTS, train, updates_per_epoch
from .runfile import COLUMNS, PLAIN, Run, joined, provenance, save, save_sweep
from .settings import RunError, canonical, evaluation_updates, plain_updates
from .snapshots import Snapshots

# How long and how often: not of the identity of a trial, which can be prolonged.
_LENGTH = {"trials", "epochs", "evaluate"}


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


def _trials_of(settings, trials):
    """The numbers of the trials to train."""
    every = range(settings["trials"])
    trials = every if trials is None else trials
    if not trials or trials[0] not in every or trials[-1] not in every:
        raise RunError(f"trials {[*trials]} are not among the {len(every)} of the run")
    return trials


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
        curve = curve[[name for name in COLUMNS if name in curve]]
        theta = Parameters(*map(np.concatenate, zip(*(r.theta for r in results), strict=True)))
        about = provenance(self.engine)
        about["source"] = joined([source for result in results for source in result.sources])
        if self.dataset.sha256:  # an own file: it may change, or be gone when the run is read
            shape = list(self.dataset.image_shape)
            about |= {"data_sha256": self.dataset.sha256, "image_shape": shape}
        return curve, theta, wall, about

    def _train(self, replicas, owner, checkpoint, progress, updates_before):
        s, xp, dataset, keys = self.settings, self.engine.xp, self.dataset, self._keys(replicas)
        parts, grey = images_of(dataset, xp), dataset.grey
        images = parts["train"]
        evaluator = Evaluator(
            parts,
            lambda replica, update: self._key("ais", replicas[replica], update),
            s["ais"],
            progress.note,
            self.engine,
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
        return {name: value for name, value in point.items() if name not in PLAIN}

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


def _digest(values):
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
