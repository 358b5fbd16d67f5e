"""Training R replicas side by side: epochs, mini-batches, evaluation points, checkpoints, resume.

Time is counted in parameter updates. An epoch visits every training image once, in an order
that is drawn anew each epoch for each replica; the last mini-batch may be smaller.

A replica has diverged when, at an evaluation, its parameters or its train log-likelihood are not
finite, or that log-likelihood is below −2 m ln 2, twice as far below 0 as if every image were
equally likely. (Below its own start is no sign: S-DCP-D dives in its first updates and comes back.)
It is marked and stopped; the others go on as if it were not there.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np

from .algorithms import ALGORITHMS, Hyperparameters
from .device import synchronize, to_host
from .engines.plain import PLAIN, Engine
from .files import whole_file
from .philox import Stream
from .rbm import Parameters

CHECKPOINTS = "checkpoint-*.npz"  # what they are called
CHECKPOINT_SECONDS = 60  # a kill loses at most about a minute of work
PAUSE_SECONDS = 1  # small models are evaluated many times a second
DIVERGED_FACTOR = 2  # diverged: this many times as far below 0 as the uniform distribution


class Task(NamedTuple):
    """What R replicas learn, how, and when they are evaluated."""

    algorithm: str  # a name of algorithms.ALGORITHMS
    hyper: Hyperparameters
    images: object  # training images, uint8 (N, m), on the engine's device
    batch_size: int  # B; N or more is full-batch training
    evaluation_updates: list  # after how many updates to evaluate; training ends at the last
    order_keys: np.ndarray  # (R, 2) Philox keys of the order of the images
    chain_keys: np.ndarray  # (R, 2) and of the Gibbs chains
    # (R, 2) and, where ``images`` are grey levels up to 255, of the pixels: drawn anew at every
    # visit of an image, 1 with probability level / 255.
    pixel_keys: np.ndarray | None = None
    engine: Engine = PLAIN


class Checkpoint(NamedTuple):
    """Where a training is kept, and what it may go on from.

    Written atomically after an evaluation, if the last is a second ago, and once a minute. Training
    goes on from it, or from another ``checkpoint-*.npz`` beside it that is further: one of a
    shorter training, which is thereby prolonged. On the CPU this gives what it would have given
    undisturbed, to the bit. A checkpoint that lacks a point of ``evaluation_updates`` is not used.
    """

    path: Path
    fingerprint: str = ""  # of all that decides the models; one with another is not used
    source: str = ""  # version of the code, for ``Training.sources``; it decides nothing
    # (dict) -> dict or None: what ``evaluate`` would make of a stored point; None: more than it has
    as_asked: Callable = dict  # as it is


class Training(NamedTuple):
    """A finished training."""

    theta: Parameters  # final models of all R replicas; NaN where diverged
    curve: list  # a dict for each replica and evaluation point, as ``evaluate`` gives it
    seconds: float  # spent on updates, without evaluation, over all interruptions
    evaluation_seconds: float
    resumed_at: int  # number of updates in the checkpoint that it went on from; 0 if from none
    sources: tuple  # versions of the code that made it, the present one last


def updates_per_epoch(n_images, batch_size):
    """⌈N / B⌉."""
    return -(-n_images // batch_size)


def train(task, theta, evaluate, checkpoint=None, report=lambda done: None):
    """Train R models and evaluate them on the way.

    Parameters
    ----------
    task : Task
    theta : Parameters
        Initial models of the R replicas.
    evaluate : callable (theta, replicas, update) -> list of dict
        One dict for each of the models given, with at least the average train log-likelihood,
        ``trusted_train`` or, without that, ``train``. ``replicas`` are their numbers among all R.
    checkpoint : Checkpoint, optional
    report : callable (int), optional
        Called with the number of updates done.

    Returns
    -------
    Training
    """
    engine, step, n_replicas = task.engine, ALGORITHMS[task.algorithm].step, len(theta.W)
    state = _State(engine.prepare(theta), Stream(task.chain_keys, engine.xp), np.arange(n_replicas))
    del theta  # the initial models need no memory longer than the first update
    state = _resume(checkpoint, state, task) if checkpoint else state
    resumed_at, batches = state.update, _Batches(task)
    evaluated = max((point["update"] for point in state.curve), default=-1)
    to_come = [update for update in sorted(set(task.evaluation_updates)) if update > evaluated]
    saved = -np.inf
    while to_come and len(state.active):
        started, hyper = time.monotonic(), task.hyper.select(engine.xp.asarray(state.active))
        while state.update < to_come[0]:
            v = engine.states(batches.of(state))
            state.theta, state.kept = step(state.theta, state.kept, v, hyper, state.stream, engine)
            state.update += 1
            report(state.update)
            if checkpoint and time.monotonic() - started > CHECKPOINT_SECONDS:
                break
        synchronize(engine.xp)
        state.seconds += time.monotonic() - started
        if state.update == to_come[0]:
            _evaluate(state, task, evaluate)
            del to_come[0]
        at_the_end = not (to_come and len(state.active))
        if checkpoint and (at_the_end or time.monotonic() - saved > PAUSE_SECONDS):
            _save(checkpoint, state)
            saved = time.monotonic()

    final = [np.full((n_replicas, *a.shape[1:]), np.nan, np.float32) for a in state.theta[:3]]
    for models, alive in zip(final, state.theta, strict=False):
        models[state.active] = to_host(alive)
    times = state.seconds, state.evaluation_seconds
    return Training(Parameters(*final), state.curve, *times, resumed_at, state.sources)


@dataclass
class _State:
    """Where training stands: all that a checkpoint stores."""

    theta: Parameters  # of the active replicas, in the engine's own form
    stream: Stream  # of the active replicas
    active: np.ndarray  # numbers of the replicas that have not diverged
    update: int = 0
    kept: tuple | None = None  # by the algorithm between mini-batches, of the active replicas
    curve: tuple = ()
    seconds: float = 0.0
    evaluation_seconds: float = 0.0
    sources: tuple = ()

    def keep(self, rows):
        """Go on with some of the active replicas alone."""
        at = self.stream.xp.asarray(rows)
        self.theta, self.stream = self.theta.select(at), self.stream.select(rows)
        if self.kept is not None:
            self.kept = type(self.kept)(*(array[at] for array in self.kept))
        self.active = self.active[rows]


class _Batches:
    """Mini-batches. The order of the images is drawn once an epoch, for all active replicas."""

    def __init__(self, task):
        self.task, self.drawn, self.rows = task, None, None

    def of(self, state):
        """The images (R, B, m) of the next update of the active replicas."""
        images, batch_size, xp = self.task.images, self.task.batch_size, self.task.engine.xp
        epoch, batch = divmod(state.update, updates_per_epoch(len(images), batch_size))
        if batch_size >= len(images):  # their order is of no consequence
            images = xp.broadcast_to(images, (len(state.active), *images.shape))
        else:
            if self.drawn != (epoch, len(state.active)):
                self.drawn = epoch, len(state.active)
                words = Stream(self.task.order_keys[state.active], xp, epoch).words(1, len(images))
                self.rows = xp.argsort(words[:, 0], axis=1, kind="stable")
            images = images[self.rows[:, batch * batch_size :][:, :batch_size]]
        if self.task.pixel_keys is None:
            return images
        # The number of the update is that of the draw: a resumed training draws the same.
        stream = Stream(self.task.pixel_keys[state.active], xp, state.update)
        return (stream.uniform(*images.shape[1:]) * 255 < images).view("uint8")


def _evaluate(state, task, evaluate):
    """Add a point of the curve; mark and drop the replicas that have diverged."""
    started, xp = time.monotonic(), task.engine.xp
    finite = [to_host(xp.isfinite(a).reshape(len(a), -1).all(1)) for a in state.theta[:3]]
    rows = np.flatnonzero(np.all(finite, 0))
    points = [{} for _ in state.active]
    if len(rows):
        found = evaluate(state.theta.select(xp.asarray(rows)), state.active[rows], state.update)
        for row, point in zip(rows, found, strict=True):
            points[row] = point
    bound = -DIVERGED_FACTOR * state.theta.b.shape[1] * np.log(2)
    train = [point.get("trusted_train", point.get("train", np.nan)) for point in points]
    alive = [bool(np.isfinite(value) and value >= bound) for value in train]
    epoch = state.update / updates_per_epoch(len(task.images), task.batch_size)
    for row, replica in enumerate(state.active.tolist()):
        head = {"replica": replica, "epoch": epoch, "update": state.update}
        head |= {"train": np.nan, "test": np.nan}  # the columns that every curve has
        points[row] = head | points[row] | {"status": "ok" if alive[row] else "diverged"}
    state.curve = [*state.curve, *points]
    state.evaluation_seconds += time.monotonic() - started
    if not all(alive):
        state.keep(np.flatnonzero(alive))


# ------------------------------------------------------------------------- checkpoints


def _save(checkpoint, state):
    """Write a checkpoint whole, then move it into place."""
    path = Path(checkpoint.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {f"theta_{name}": to_host(getattr(state.theta, name)) for name in "Wbc"}
    if state.kept is not None:
        arrays |= {f"kept_{name}": to_host(a) for name, a in state.kept._asdict().items()}
    with whole_file(path, "wb") as file:
        np.savez(
            file,
            fingerprint=checkpoint.fingerprint,
            position=state.stream.position,
            update=state.update,
            active=state.active,
            curve=json.dumps(state.curve),
            seconds=state.seconds,
            evaluation_seconds=state.evaluation_seconds,
            sources=np.array(state.sources, dtype=str),
            **arrays,
        )


def _read(path, *names):
    """These arrays of a checkpoint, all without ``names``; None if it cannot be read."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in names or file}
    except (OSError, ValueError, EOFError, KeyError, BadZipFile):
        return None


def position_of(path):
    """Fingerprint of a checkpoint and the number of its updates; None if it cannot be read."""
    found = _read(path, "fingerprint", "update")
    return found and (str(found["fingerprint"]), int(found["update"]))


def _resume(checkpoint, state, task):
    """The furthest state that is stored at the checkpoint's path or beside it and belongs to this
    training; else ``state``."""
    path, targets = Path(checkpoint.path), sorted(set(task.evaluation_updates))
    found = {each: position_of(each) for each in {path, *path.parent.glob(CHECKPOINTS)}}
    usable = [each for each, at in found.items() if at and at[0] == checkpoint.fingerprint]
    for each in sorted(usable, key=found.get, reverse=True):
        if found[each][1] <= targets[-1] and (stored := _read(each)):
            curve = json.loads(str(stored["curve"]))
            curve = _curve_as_asked(curve, int(stored["update"]), targets, checkpoint.as_asked)
            if curve is not None:
                state = _restored(stored, curve, state, task)
                break
    state.sources = tuple(dict.fromkeys([*state.sources, checkpoint.source]))
    return state


def _curve_as_asked(curve, update, targets, as_asked):
    """What a training that is evaluated after ``targets`` would have of a curve by ``update``.

    None where that is more than there is, or where a replica was stopped at another point.
    """
    if any(p["status"] != "ok" for p in curve if p["update"] not in targets):
        return None
    curve = [as_asked(point) for point in curve if point["update"] in targets]
    made = {point["update"] for point in curve if point}
    complete = all(target in made for target in targets if target < update)
    return curve if complete and None not in curve else None


def _restored(stored, curve, state, task):
    """The state that a checkpoint's arrays are; ``state`` is that at the start."""
    xp, of_type = task.engine.xp, ALGORITHMS[task.algorithm].state
    models = Parameters(*(xp.asarray(stored[f"theta_{name}"]) for name in "Wbc"))
    names = [name for name in stored if name.startswith("kept_")]
    kept = {name.removeprefix("kept_"): xp.asarray(stored[name]) for name in names}
    return _State(
        theta=task.engine.prepare(models),
        stream=Stream(state.stream.keys[stored["active"]], xp, int(stored["position"])),
        active=stored["active"],
        update=int(stored["update"]),
        kept=of_type(**kept) if kept else None,
        curve=curve,
        seconds=float(stored["seconds"]),
        evaluation_seconds=float(stored["evaluation_seconds"]),
        sources=tuple(stored["sources"].tolist()),
    )
