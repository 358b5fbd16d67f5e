"""From settings to a run file: trains and evaluates the trials of a run, or a sweep."""

import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

from .. import ROOT
from ..device import to_host
from ..files import whole_file
from ..likelihood import Evaluator, images_of
from ..progress import Progress
from ..training import train, updates_per_epoch
from . import folders
from .runfile import COLUMNS, Run, concatenated, save, save_sweep
from .settings import RunError, canonical
from .setup import Replica, Setup
from .snapshots import Snapshots


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
    it has, nor, unless it diverges, on when it is evaluated.

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
        the trusted estimates. Not of epochs before a checkpoint that is gone on from.

    Returns
    -------
    Run

    Raises
    ------
    RunError, data.DataError, device.BackendError
        One line that says what is wrong and what to do.
    """
    settings = canonical(settings)
    trials = _known(trials, range(settings["trials"]))
    folder, checkpoints_in = (each and Path(each) for each in (folder, checkpoints_in or folder))
    with folders.alone_in(folder, checkpoints_in):
        setup = Setup(settings, backend_name, data_folder)
        groups = _groups(setup, [settings], trials)
        if refuse_used:
            folders.refuse_used(checkpoints_in, [setup.fingerprint(group) for group in groups])
        (run,) = _train(setup, [settings], groups, checkpoints_in, folder, keep)
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
    folder, checkpoints_in = (each and Path(each) for each in (folder, checkpoints_in or folder))
    with folders.alone_in(folder, checkpoints_in):
        setup = Setup(each[0], backend_name, data_folder)
        groups = _groups(setup, each, range(settings["trials"]))
        trained = _train(setup, each, groups, checkpoints_in)
        sweep = [run._replace(theta=None) for run in trained]
        if folder:
            save_sweep(sweep, folder)
    return sweep


def _known(trials, every):
    trials = every if trials is None else trials
    if not trials or trials[0] not in every or trials[-1] not in every:
        raise RunError(f"trials {[*trials]} are not among the {len(every)} of the run")
    return trials


def _groups(setup, each, trials):
    """The replicas, all trials of the first of these settings first; in groups that memory holds.

    Settings differ in hyperparameters only.
    """
    replicas = [Replica(one["hyperparameters"], trial) for one in each for trial in trials]
    size = setup.side_by_side(len(replicas))
    return [replicas[first : first + size] for first in range(0, len(replicas), size)]


def _train(setup, each, groups, checkpoints_in, folder=None, keep=()):
    """A Run for each of the settings; a ``folder`` is where snapshots and kept models go."""
    started, n_updates = datetime.now(UTC), setup.points[-1]
    progress, finished = Progress(setup.title, n_updates * len(groups)), []
    try:
        for number, group in enumerate(groups):
            evaluation = _Evaluation(setup, group, folder, keep, progress)
            finished.append(
                train(
                    setup.task(group, evaluation.images["train"]),
                    setup.initial_models(group),
                    evaluation,
                    setup.checkpoint(group, checkpoints_in),
                    lambda done, before=number * n_updates: progress.update(before + done),
                )
            )
    except Exception as error:
        if not isinstance(error, MemoryError) and type(error).__name__ != "OutOfMemoryError":
            raise
        raise setup.no_memory(len(groups[0])) from error
    progress.close()
    about = setup.provenance([source for training in finished for source in training.sources])
    wall = {
        "started": started.isoformat(timespec="seconds"),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "training_seconds": round(sum(training.seconds for training in finished), 3),
        "evaluation_seconds": round(sum(t.evaluation_seconds for t in finished), 3),
        "replicas_in_that_time": sum(map(len, groups)),
        "resumed_at_update": sum(training.resumed_at for training in finished),
    }
    return _runs(each, groups, finished, about, wall)


class _Evaluation:
    """What happens to the models of a group of replicas at an evaluation point."""

    def __init__(self, setup, replicas, folder, keep, progress):
        self.setup, self.replicas, self.folder, self.keep = setup, replicas, folder, keep
        self.images, self.pictures = images_of(setup.dataset, setup.engine.xp), None
        if folder:
            fingerprint = setup.fingerprint(replicas)
            self.pictures = Snapshots(folder, fingerprint, setup.dataset.test)
        ais, engine = setup.settings["ais"], setup.engine
        self.likelihoods = Evaluator(
            *(self.images, self.key, ais, progress.note, engine, setup.plain_at, self.note)
        )

    def __call__(self, theta, numbers, update):
        for row, number in enumerate(numbers.tolist() if self.folder else ()):
            self.look(theta.select(slice(row, row + 1)), self.replicas[number].trial, update)
        return self.likelihoods(theta, numbers, update)

    def key(self, number, update):
        """Of AIS."""
        return self.setup.key("ais", self.replicas[number], update)

    def look(self, model, trial, update):
        """Keep what a run keeps of a model, Parameters of one replica."""
        n_images, batch_size = len(self.setup.dataset.train), self.setup.settings["batch_size"]
        epoch = update / updates_per_epoch(n_images, batch_size)
        if trial == 0:
            self.pictures.take(model, update, epoch)
        if epoch in self.keep:
            arrays = {name: to_host(getattr(model, name))[0] for name in "Wbc"}
            path = self.folder / f"model-{epoch:g}-{trial}.npz"
            with whole_file(path, "wb") as file:
                np.savez(file, **arrays)

    def note(self, number, update, found):
        """A line that tells where the weights of AIS come from."""
        if self.keep and self.folder:
            line = {"trial": self.replicas[number].trial, "update": update, "bases": found.bases}
            with open(self.folder / "bases.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


def _runs(each, groups, finished, about, wall):
    """A Run for each of the settings, from the Trainings of the groups."""
    trials = np.array([replica.trial for group in groups for replica in group])
    n, size = len(trials) // len(each), len(groups[0])
    curves = [pd.DataFrame(training.curve) for training in finished]
    curve = pd.concat(c.assign(replica=c["replica"] + i * size) for i, c in enumerate(curves))
    curve = curve.sort_values(["update", "replica"])
    setting, curve["trial"] = curve["replica"] // n, trials[curve["replica"]]
    curve = curve[[name for name in COLUMNS if name in curve]]
    theta = concatenated([training.theta for training in finished])
    return [
        Run(
            settings=one,
            provenance=about,
            curve=curve[setting == i].reset_index(drop=True),
            theta=theta.select(slice(i * n, (i + 1) * n)),
            wall=wall,
            trials=tuple(trials[:n].tolist()),
        )
        for i, one in enumerate(each)
    ]
