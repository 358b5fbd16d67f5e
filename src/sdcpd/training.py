"""Training R replicas side by side: epochs, mini-batches, evaluation points, checkpoints, resume.

Time is counted in parameter updates. An epoch visits every training image once, in an order
that is drawn anew each epoch for each replica; the last mini-batch may be smaller.
"""

import time
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np

from .algorithms import STEPS, together
from .backend import Stream, synchronize, to_host
from .data import whole_file
from .engine import PLAIN
from .rbm import Parameters

AT_ONCE = 500  # updates of a small model that a GPU makes by itself
CHECKPOINTS = "checkpoint-*.npz"  # what they are called
CHECKPOINT_SECONDS = 60  # a kill loses at most about a minute of work
DIVERGED_FACTOR = 2  # diverged: this many times as far below 0 as the uniform distribution


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


def train(
    algorithm,
    theta,
    hyper,
    images,
    batch_size,
    evaluation_updates,
    evaluate,
    order_keys,
    chain_keys,
    checkpoint=None,
    fingerprint="",
    report=lambda done: None,
    engine=PLAIN,
    pixel_keys=None,
    source="",
    as_asked=lambda point: point,
):
    """Train R models and evaluate them on the way.

    Parameters
    ----------
    algorithm : str or list of str
        Name of the step in ``algorithms.STEPS``; or of several, each for a block of the replicas,
        which are then trained by ``algorithms.together``.
    theta : Parameters
        Initial models of the R replicas.
    hyper : algorithms.Hyperparameters, or a list of them, one a block
    images : array of uint8, shape (N, m)
        Training images, on the device of ``theta``.
    batch_size : int
        B; N or more is full-batch training.
    evaluation_updates : sequence of int
        After how many updates to evaluate; training ends at the last.
    evaluate : callable (theta, replicas, update) -> list of dict
        One dict for each of the models given, with at least the average train log-likelihood,
        ``trusted_train`` or, without that, ``train``. ``replicas`` are their numbers among all R.
    order_keys, chain_keys : array_like of uint64, shape (R, 2)
        Philox keys of the order of the images and of the Gibbs chains.
    checkpoint : path, optional
        Written atomically at every evaluation and once a minute. Training goes on from it, or
        from another ``checkpoint-*.npz`` beside it that is further: one of a shorter training,
        which is thereby prolonged. On the CPU this gives what it would have given undisturbed, to
        the bit. A checkpoint that lacks a point of ``evaluation_updates`` is not used.
    fingerprint : str
        Of all that decides the models; a checkpoint with another one is not used.
    report : callable (int), optional
        Called with the number of updates done.
    engine : engine.Engine
        What computes; ``theta`` and ``images`` are arrays of its ``xp``.
    pixel_keys : array_like of uint64, shape (R, 2), optional
        Then ``images`` are grey levels up to 255, and at every visit of an image each pixel is
        drawn anew, 1 with probability level / 255.
    source : str
        Version of the code, for ``Training.sources``; it decides nothing.
    as_asked : callable (dict) -> dict or None, optional
        What ``evaluate`` would have made of a stored point; None: more than is stored.

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
    xp = engine.xp
    names = [algorithm] if isinstance(algorithm, str) else list(algorithm)
    hypers = [hyper] if isinstance(algorithm, str) else list(hyper)
    theta, memories = engine.prepare(theta), [{} for _ in names]
    everyone, stream = np.arange(len(theta.W)), Stream(chain_keys, xp)
    ends = np.cumsum([len(h.learning_rate) for h in hypers])
    block_of = np.searchsorted(ends, everyone, side="right")  # replica -> block
    state = _State(theta, memories, stream, 0, everyone, [], 0.0, 0.0)
    del theta  # the initial models need no memory longer than the first update
    targets = sorted(set(evaluation_updates))
    if checkpoint:
        state = _resume(checkpoint, fingerprint, state, engine, targets, as_asked)
    state = state._replace(sources=tuple(dict.fromkeys([*state.sources, source])))
    resumed_at = state.update
    per_epoch = updates_per_epoch(len(images), batch_size)
    orders = _Orders(order_keys, images, xp, pixel_keys)

    for target in targets:
        if any(point["update"] >= target for point in state.curve):
            continue  # done before the interruption
        active = [
            hyper.select(_index(state.active[block_of[state.active] == number] - start, xp))
            for number, (hyper, start) in enumerate(zip(hypers, [0, *ends], strict=False))
        ]
        clock = saved = time.monotonic()
        while state.update < target and len(state.active):
            state = _advance(state, names, active, orders, batch_size, target, engine)
            report(state.update)
            if checkpoint and time.monotonic() - saved > CHECKPOINT_SECONDS:
                now = time.monotonic()
                state, clock = state._replace(seconds=state.seconds + now - clock), now
                _save(checkpoint, fingerprint, state)
                saved = time.monotonic()
        synchronize(xp)
        trained = time.monotonic()
        state = _evaluate(state, target, target / per_epoch, evaluate, block_of, xp)
        state = state._replace(
            seconds=state.seconds + trained - clock,
            evaluation_seconds=state.evaluation_seconds + time.monotonic() - trained,
        )
        if checkpoint:
            _save(checkpoint, fingerprint, state)

    shapes = [(len(order_keys), *getattr(state.theta, name).shape[1:]) for name in "Wbc"]
    final = [np.full(shape, np.nan, np.float32) for shape in shapes]
    for whole, name in zip(final, "Wbc", strict=True):
        whole[state.active] = to_host(getattr(state.theta, name))
    times = state.seconds, state.evaluation_seconds
    return Training(Parameters(*final), state.curve, *times, resumed_at, state.sources)


class _State(NamedTuple):
    """Where training stands: all that a checkpoint stores."""

    theta: Parameters  # of the active replicas
    memories: list  # of the algorithm of each block, active replicas
    stream: Stream  # active replicas
    update: int
    active: np.ndarray  # numbers of the replicas that have not diverged
    curve: list
    seconds: float
    evaluation_seconds: float
    sources: tuple = ()


def _advance(state, names, hypers, orders, batch_size, target, engine):
    """The state after one update, or after several where the engine makes them by itself."""
    memories, done = list(state.memories), 1
    living = [n for n, hyper in enumerate(hypers) if len(hyper.learning_rate)]
    names, hypers = [names[n] for n in living], [hypers[n] for n in living]
    own = [memories[n] for n in living]
    if (
        len(orders.images) <= batch_size
        and orders.pixel_keys is None
        and engine.is_small(names, state.theta, orders.images)
    ):
        done = min(target - state.update, AT_ONCE)
        thetas, own = _many_steps(state, names, hypers, own, orders.images, done, engine)
        theta = engine.join(thetas)
    else:
        v = engine.states(orders.batch(state, batch_size))
        if len(living) == 1:
            step = STEPS[names[0]]
            theta, memory = step(state.theta, own[0], v, hypers[0], state.stream, engine)
            own = [memory]
        else:
            theta, own = together(names, state.theta, own, v, hypers, state.stream, engine)
    for n, memory in zip(living, own, strict=True):
        memories[n] = memory
    return state._replace(theta=theta, memories=memories, update=state.update + done)


def _many_steps(state, names, hypers, memories, images, n_updates, engine):
    """``n_updates`` full-batch updates of each block, each in one go: models and memories."""
    found, first = [], 0
    for name, hyper, memory in zip(names, hypers, memories, strict=True):
        block = slice(first, first := first + len(hyper.learning_rate))
        models, stream = state.theta.select(block), state.stream.select(block)
        found.append(engine.many_steps(name, models, memory, images, hyper, stream, n_updates))
    state.stream.position = stream.position
    return zip(*found, strict=True)


class _Orders:
    """The order of the images in the present epoch, drawn once an epoch for each replica."""

    def __init__(self, keys, images, xp, pixel_keys=None):
        self.keys, self.images, self.xp = np.asarray(keys), images, xp
        self.pixel_keys = None if pixel_keys is None else np.asarray(pixel_keys)
        self.held = None

    def batch(self, state, batch_size):
        """The images (R, B, m) of the next update of the active replicas."""
        epoch, batch = divmod(state.update, updates_per_epoch(len(self.images), batch_size))
        if batch_size >= len(self.images):  # their order is of no consequence
            images = self.xp.broadcast_to(self.images, (len(state.active), *self.images.shape))
        else:
            rows = self.of(epoch, state.active)[:, batch * batch_size :][:, :batch_size]
            images = self.images[rows]
        if self.pixel_keys is None:
            return images
        # The number of the update is that of the draw: a resumed training draws the same.
        stream = Stream(self.pixel_keys[state.active], self.xp, state.update)
        return (stream.uniform(*images.shape[1:]) * 255 < images).view("uint8")

    def of(self, epoch, active):
        if self.held is None or self.held[0] != epoch or len(self.held[1]) != len(active):
            words = Stream(self.keys[active], self.xp, epoch).words(1, len(self.images))[:, 0]
            self.held = epoch, active, self.xp.argsort(words, axis=1, kind="stable")
        return self.held[2]


def _evaluate(state, update, epoch, evaluate, block_of, xp):
    """Add a point of the curve; mark and drop the replicas that have diverged."""
    if not len(state.active):
        return state
    arrays = (getattr(state.theta, name) for name in "Wbc")
    finite = np.all([to_host(xp.isfinite(a).reshape(len(a), -1).all(1)) for a in arrays], 0)
    points = [{"train": np.nan, "test": np.nan} for _ in state.active]
    if finite.any():
        rows = np.flatnonzero(finite)
        found = evaluate(state.theta.select(_index(rows, xp)), state.active[rows], update)
        for row, point in zip(rows, found, strict=True):
            points[row] = point
    bound = -DIVERGED_FACTOR * state.theta.b.shape[1] * np.log(2)
    train = [point.get("trusted_train", point.get("train")) for point in points]
    alive = [bool(np.isfinite(value) and value >= bound) for value in train]
    for row, replica in enumerate(state.active.tolist()):
        head = {"replica": replica, "epoch": epoch, "update": update}
        points[row] = head | points[row] | {"status": "ok" if alive[row] else "diverged"}
    state = state._replace(curve=state.curve + points)
    if all(alive):
        return state
    rows = np.flatnonzero(alive)
    memories = []
    for number, memory in enumerate(state.memories):
        own = _index(np.flatnonzero(np.array(alive)[block_of[state.active] == number]), xp)
        memories.append({name: array[own] for name, array in memory.items()})
    return state._replace(
        theta=state.theta.select(_index(rows, xp)),
        memories=memories,
        stream=state.stream.select(rows),
        active=state.active[rows],
    )


def _index(rows, xp):
    return rows if xp is np else xp.asarray(rows)


# ------------------------------------------------------------------------- checkpoints


def _save(path, fingerprint, state):
    """Write a checkpoint whole, then move it into place."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    names = dict.fromkeys(name for point in state.curve for name in point)  # in their order
    arrays = {f"theta_{name}": to_host(getattr(state.theta, name)) for name in "Wbc"}
    for number, memory in enumerate(state.memories):
        arrays |= {f"memory{number}_{name}": to_host(array) for name, array in memory.items()}
    for name in names:
        kind = "U8" if name == "status" else None
        values = [point.get(name, np.nan) for point in state.curve]
        arrays[f"curve_{name}"] = np.array(values, dtype=kind)
    with whole_file(path, "wb") as file:
        np.savez(
            file,
            fingerprint=fingerprint,
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


def _resume(path, fingerprint, state, engine, targets, as_asked):
    """The furthest state that is stored at ``path`` or beside it and belongs to this training;
    else ``state``."""
    found = {each: position_of(each) for each in {path, *Path(path).parent.glob(CHECKPOINTS)}}
    own = [each for each, at in found.items() if at and at[0] == fingerprint]
    for each in sorted(own, key=found.get, reverse=True):
        if found[each][1] <= targets[-1]:
            stored = _stored(each, state, engine)
            curve = stored and _curve_as_asked(stored, targets, as_asked)
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


def _stored(path, state, engine):
    """The state in a checkpoint; None if it cannot be read: then start anew."""
    try:
        with np.load(path, allow_pickle=False) as file:
            stored = dict(file)
    except (OSError, ValueError, EOFError, BadZipFile):
        return None
    curve = {k.removeprefix("curve_"): v for k, v in stored.items() if k.startswith("curve_")}
    memories = [{} for _ in state.memories]
    for name, array in stored.items():
        if name.startswith("memory"):
            number, _, what = name.removeprefix("memory").partition("_")
            memories[int(number)][what] = engine.xp.asarray(array)
    rows = zip(*(array.tolist() for array in curve.values()), strict=True)
    points = [dict(zip(curve, row, strict=True)) for row in rows]
    active, xp = stored["active"], engine.xp
    stream = Stream(state.stream.keys[active], xp, int(stored["position"]))
    return _State(
        theta=engine.prepare(Parameters(*(xp.asarray(stored[f"theta_{n}"]) for n in "Wbc"))),
        memories=memories,
        stream=stream,
        update=int(stored["update"]),
        active=active,
        curve=points,
        seconds=float(stored["seconds"]),
        evaluation_seconds=float(stored["evaluation_seconds"]),
        sources=tuple(stored["sources"].tolist()),
    )
