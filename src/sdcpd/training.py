"""Training R replicas side by side: epochs, mini-batches, evaluation points, checkpoints, resume.

Time is counted in parameter updates. An epoch visits every training image once, in an order
that is drawn anew each epoch for each replica; the last mini-batch may be smaller.
"""

import time
from collections.abc import Callable
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


def _unchanged(point):
    return point


class Checkpoint(NamedTuple):
    """Where a training is kept, and what it may go on from."""

    path: Path
    fingerprint: str = ""  # of all that decides the models; one with another is not used
    source: str = ""  # version of the code, for ``Training.sources``; it decides nothing
    # (dict) -> dict or None: what ``evaluate`` would make of a stored point; None: more than it has
    as_asked: Callable = _unchanged


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
        Written atomically at every evaluation and once a minute. Training goes on from it, or
        from another ``checkpoint-*.npz`` beside it that is further: one of a shorter training,
        which is thereby prolonged. On the CPU this gives what it would have given undisturbed, to
        the bit. A checkpoint that lacks a point of ``evaluation_updates`` is not used.
    report : callable (int), optional
        Called with the number of updates done.

    Returns
    -------
    Training

    Notes
    -----
    A replica has diverged when, at an evaluation, its parameters or its train log-likelihood
    are not finite, or that log-likelihood is below −2 m ln 2, twice as far below 0 as if every
    image were equally likely. (Below its own start is no sign: S-DCP-D dives in its first
    updates and comes back.) It is marked and stopped; the others go on as if it were not there.
    """
    n_replicas = len(theta.W)
    stream = Stream(task.chain_keys, task.engine.xp)
    theta = task.engine.prepare(theta)
    state = _State(theta, None, stream, 0, np.arange(n_replicas), [], 0.0, 0.0)
    del theta  # the initial models need no memory longer than the first update
    if checkpoint:
        state = _resume(checkpoint, state, task)
        state = state._replace(sources=tuple(dict.fromkeys([*state.sources, checkpoint.source])))
    resumed_at, orders = state.update, _Orders(task)
    for target in sorted(set(task.evaluation_updates)):
        if all(point["update"] < target for point in state.curve):  # not before an interruption
            state = _train_until(target, state, task, orders, checkpoint, report)
            state = _evaluate(state, task, evaluate)
            if checkpoint:
                _save(checkpoint, state)

    final = []
    for name in "Wbc":
        models = to_host(getattr(state.theta, name))
        final.append(np.full((n_replicas, *models.shape[1:]), np.nan, np.float32))
        final[-1][state.active] = models
    times = state.seconds, state.evaluation_seconds
    return Training(Parameters(*final), state.curve, *times, resumed_at, state.sources)


class _State(NamedTuple):
    """Where training stands: all that a checkpoint stores."""

    theta: Parameters  # of the active replicas
    kept: tuple | None  # by the algorithm between mini-batches, of the active replicas
    stream: Stream  # active replicas
    update: int
    active: np.ndarray  # numbers of the replicas that have not diverged
    curve: list
    seconds: float
    evaluation_seconds: float
    sources: tuple = ()


def _train_until(target, state, task, orders, checkpoint, report):
    """The state after ``target`` updates, or as it is where no replica is left."""
    step, engine = ALGORITHMS[task.algorithm].step, task.engine
    hyper = task.hyper.select(_index(state.active, engine.xp))
    clock = saved = time.monotonic()
    while state.update < target and len(state.active):
        v = engine.states(orders.batch(state))
        theta, kept = step(state.theta, state.kept, v, hyper, state.stream, engine)
        state = state._replace(theta=theta, kept=kept, update=state.update + 1)
        report(state.update)
        if checkpoint and time.monotonic() - saved > CHECKPOINT_SECONDS:
            now = time.monotonic()
            state, clock = state._replace(seconds=state.seconds + now - clock), now
            _save(checkpoint, state)
            saved = time.monotonic()
    synchronize(engine.xp)
    return state._replace(seconds=state.seconds + time.monotonic() - clock)


class _Orders:
    """The order of the images in the present epoch, drawn once an epoch for each replica."""

    def __init__(self, task):
        self.task, self.xp, self.held = task, task.engine.xp, None

    def batch(self, state):
        """The images (R, B, m) of the next update of the active replicas."""
        images, batch_size = self.task.images, self.task.batch_size
        epoch, batch = divmod(state.update, updates_per_epoch(len(images), batch_size))
        if batch_size >= len(images):  # their order is of no consequence
            images = self.xp.broadcast_to(images, (len(state.active), *images.shape))
        else:
            rows = self.of(epoch, state.active)[:, batch * batch_size :][:, :batch_size]
            images = images[rows]
        if self.task.pixel_keys is None:
            return images
        # The number of the update is that of the draw: a resumed training draws the same.
        stream = Stream(self.task.pixel_keys[state.active], self.xp, state.update)
        return (stream.uniform(*images.shape[1:]) * 255 < images).view("uint8")

    def of(self, epoch, active):
        if self.held is None or self.held[0] != epoch or len(self.held[1]) != len(active):
            stream = Stream(self.task.order_keys[active], self.xp, epoch)
            words = stream.words(1, len(self.task.images))[:, 0]
            self.held = epoch, active, self.xp.argsort(words, axis=1, kind="stable")
        return self.held[2]


def _evaluate(state, task, evaluate):
    """Add a point of the curve; mark and drop the replicas that have diverged."""
    if not len(state.active):
        return state
    started, xp = time.monotonic(), task.engine.xp
    arrays = (getattr(state.theta, name) for name in "Wbc")
    finite = np.all([to_host(xp.isfinite(a).reshape(len(a), -1).all(1)) for a in arrays], 0)
    points = [{"train": np.nan, "test": np.nan} for _ in state.active]
    if finite.any():
        rows = np.flatnonzero(finite)
        models = state.theta.select(_index(rows, xp))
        found = evaluate(models, state.active[rows], state.update)
        for row, point in zip(rows, found, strict=True):
            points[row] = point
    bound = -DIVERGED_FACTOR * state.theta.b.shape[1] * np.log(2)
    train = [point.get("trusted_train", point.get("train")) for point in points]
    alive = [bool(np.isfinite(value) and value >= bound) for value in train]
    epoch = state.update / updates_per_epoch(len(task.images), task.batch_size)
    for row, replica in enumerate(state.active.tolist()):
        head = {"replica": replica, "epoch": epoch, "update": state.update}
        points[row] = head | points[row] | {"status": "ok" if alive[row] else "diverged"}
    seconds = state.evaluation_seconds + time.monotonic() - started
    state = state._replace(curve=state.curve + points, evaluation_seconds=seconds)
    return state if all(alive) else _only(state, np.flatnonzero(alive), xp)


def _only(state, rows, xp):
    """The state of some of the active replicas."""
    at, kept = _index(rows, xp), state.kept
    return state._replace(
        theta=state.theta.select(at),
        kept=None if kept is None else type(kept)(*(array[at] for array in kept)),
        stream=state.stream.select(rows),
        active=state.active[rows],
    )


def _index(rows, xp):
    return rows if xp is np else xp.asarray(rows)


# ------------------------------------------------------------------------- checkpoints


def _save(checkpoint, state):
    """Write a checkpoint whole, then move it into place."""
    path = Path(checkpoint.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    names = dict.fromkeys(name for point in state.curve for name in point)  # in their order
    arrays = {f"theta_{name}": to_host(getattr(state.theta, name)) for name in "Wbc"}
    if state.kept is not None:
        arrays |= {f"kept_{name}": to_host(a) for name, a in state.kept._asdict().items()}
    for name in names:
        kind = "U8" if name == "status" else None
        values = [point.get(name, np.nan) for point in state.curve]
        arrays[f"curve_{name}"] = np.array(values, dtype=kind)
    with whole_file(path, "wb") as file:
        np.savez(
            file,
            fingerprint=checkpoint.fingerprint,
            position=state.stream.position,
            update=state.update,
            active=state.active,
            seconds=state.seconds,
            evaluation_seconds=state.evaluation_seconds,
            sources=np.array(state.sources, dtype=str),
            **arrays,
        )


def position_of(path):
    """Fingerprint of a checkpoint and the number of its updates; None if it cannot be read."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return str(file["fingerprint"]), int(file["update"])
    except (OSError, ValueError, EOFError, KeyError, BadZipFile):
        return None


def _resume(checkpoint, state, task):
    """The furthest state that is stored at the checkpoint's path or beside it and belongs to this
    training; else ``state``."""
    path, targets = Path(checkpoint.path), sorted(set(task.evaluation_updates))
    found = {each: position_of(each) for each in {path, *path.parent.glob(CHECKPOINTS)}}
    usable = [each for each, at in found.items() if at and at[0] == checkpoint.fingerprint]
    for each in sorted(usable, key=found.get, reverse=True):
        if found[each][1] <= targets[-1]:
            stored = _stored(each, state, task)
            curve = stored and _curve_as_asked(stored, targets, checkpoint.as_asked)
            if curve is not None:
                return stored._replace(curve=curve)
    return state


def _curve_as_asked(state, targets, as_asked):
    """What a training that is evaluated after ``targets`` would have of a curve by now.

    None where that is more than there is, or where a replica was stopped at another point.
    """
    if any(p["status"] != "ok" for p in state.curve if p["update"] not in targets):
        return None
    curve = [as_asked(point) for point in state.curve if point["update"] in targets]
    made = {point["update"] for point in curve if point}
    complete = all(target in made for target in targets if target < state.update)
    return curve if complete and None not in curve else None


def _stored(path, state, task):
    """The state in a checkpoint; None if it cannot be read: then start anew."""
    try:
        with np.load(path, allow_pickle=False) as file:
            stored = dict(file)
    except (OSError, ValueError, EOFError, BadZipFile):
        return None

    def part(name):
        return {k.removeprefix(name): a for k, a in stored.items() if k.startswith(name)}

    curve, kept, xp = part("curve_"), part("kept_"), task.engine.xp
    rows = zip(*(array.tolist() for array in curve.values()), strict=True)
    active = stored["active"]
    of_type = ALGORITHMS[task.algorithm].state
    models = Parameters(*(xp.asarray(stored[f"theta_{name}"]) for name in "Wbc"))
    return _State(
        theta=task.engine.prepare(models),
        kept=of_type(**{name: xp.asarray(a) for name, a in kept.items()}) if kept else None,
        stream=Stream(state.stream.keys[active], xp, int(stored["position"])),
        update=int(stored["update"]),
        active=active,
        curve=[dict(zip(curve, row, strict=True)) for row in rows],
        seconds=float(stored["seconds"]),
        evaluation_seconds=float(stored["evaluation_seconds"]),
        sources=tuple(stored["sources"].tolist()),
    )
