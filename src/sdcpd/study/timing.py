"""What training costs: counted operations, which are the same everywhere, and seconds (Table 1)."""

import datetime
import json
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .. import ROOT
from ..algorithms import ALGORITHMS, Hyperparameters
from ..data import DataError, load
from ..device import synchronize
from ..engines.plain import PLAIN
from ..files import whole_file
from ..philox import Stream, key
from ..rbm import Parameters, initialize
from ..runs import RunError, provenance
from ..runs import load as load_run
from ..runs.archive import ArchiveError

ON = 0.13  # share of the pixels that are on in the synthetic rows, as in MNIST
SMALL_STEP = 0.01  # the learning rate does not change the time
TRAINED = ROOT / "workflow/archive/runs/mnist/as_published/sdcp_d-500h"


class Update(NamedTuple):
    """An update, by whichever algorithm: its sizes, and what those that are timed begin with."""

    n_visible: int
    n_hidden: int
    batch_size: int
    n_gibbs_steps: int  # of the algorithms that have no inner loop
    n_inner_iterations: int  # of the others
    n_gibbs_steps_inner: int
    images: np.ndarray | None = None  # (N, m); without, synthetic rows of {0, 1}
    theta: Parameters | None = None  # one model; without, an initial one

    def hyperparameters(self, algorithm, mean, xp=np):
        one, inner = xp.full(1, SMALL_STEP, xp.float32), ALGORITHMS[algorithm].has_inner_loop
        return Hyperparameters(
            learning_rate=one,
            epsilon=one * 10,
            lambda_hessian=one * 0,
            n_gibbs_steps=self.n_gibbs_steps_inner if inner else self.n_gibbs_steps,
            n_inner_iterations=self.n_inner_iterations,
            sliding_factor=0.01,
            train_mean=xp.asarray(mean, xp.float32),
        )


def operations(update, algorithms=tuple(ALGORITHMS)):
    """Operations of one parameter update, not the first, counted while the plain engine makes it.

    Parameters
    ----------
    update : Update

    Returns
    -------
    dict of algorithm -> dict
        products: matrix products, as multiples of batch × visible × hidden multiply-adds; random
        numbers; all arithmetic: two operations a multiply-add, and one for each element of whatever
        is computed elementwise (exp and division included) or summed.
    """
    return {name: _operations_of(name, update) for name in algorithms}


def _operations_of(algorithm, update):
    counts = Counter()

    class Counted(np.ndarray):
        def __array_ufunc__(self, ufunc, method, *inputs, out=None, **how):
            plain = [np.asarray(x) if isinstance(x, np.ndarray) else x for x in inputs]
            if out:
                how["out"] = tuple(map(np.asarray, out))
            result = getattr(ufunc, method)(*plain, **how)
            if ufunc is np.matmul:
                counts["multiply-adds"] += result.size * plain[0].shape[-1]
            else:
                counts["elements"] += result.size if method == "__call__" else plain[0].size
            return result.view(Counted)

    class Numbers(Stream):
        def words(self, *shape):
            counts["random numbers"] += int(np.prod(shape))
            return super().words(*shape)

    stream = Numbers([key("operations")], np)
    theta = initialize(np.full(update.n_visible, ON), update.n_hidden, [key("operations")])
    theta, memory = theta.map(lambda array: array.view(Counted)), None
    v = stream.uniform(update.batch_size, update.n_visible) < ON
    v, hyper = v.astype(np.float32).view(Counted), update.hyperparameters(algorithm, ON)
    for _ in range(2):
        counts.clear()
        theta, memory = ALGORITHMS[algorithm].step(theta, memory, v, hyper, stream, PLAIN)
    of_a_product = update.batch_size * update.n_visible * update.n_hidden
    return {
        "products": counts["multiply-adds"] / of_a_product,
        "random numbers": counts["random numbers"],
        "all arithmetic": 2 * counts["multiply-adds"] + counts["elements"],
    }


def seconds_per_update(
    update,
    n_updates,
    trials=(0,),
    engine=PLAIN,
    report=lambda done: None,
    algorithms=tuple(ALGORITHMS),
):
    """Time algorithms, evaluation not included.

    The algorithms take turns within a trial, in every second one backwards, so that a machine that
    gets slower or faster does so for all of them; a trial's first updates, not timed, warm up.

    Parameters
    ----------
    update : Update
        The mini-batch of a trial are the next of its images.
    trials : sequence of int
        Their numbers.

    Returns
    -------
    dict of algorithm -> ndarray, one value a trial
        Seconds per parameter update.
    """
    xp, size = engine.xp, update.batch_size
    seconds = {name: [] for name in algorithms}
    mean = np.full(update.n_visible, ON)
    for trial in trials:
        stream = Stream([key("timing", trial)], xp)
        if update.theta is None:
            theta = initialize(mean, update.n_hidden, [key("timing", "init", trial)], xp)
        else:
            theta = update.theta.map(xp.asarray)
        theta = engine.prepare(theta)
        if update.images is None:
            rows = (stream.uniform(size, update.n_visible) < ON)[0]
        else:
            next_ones = np.arange(size) + trial * size
            rows = xp.asarray(np.take(update.images, next_ones, 0, mode="wrap"))
        v = engine.states(rows[None])
        for name in algorithms[:: -1 if trial % 2 else 1]:
            hyper = update.hyperparameters(name, mean, xp)
            state, step = (theta, None), ALGORITHMS[name].step
            for n in (max(1, n_updates // 20), n_updates):
                synchronize(xp)
                started = time.perf_counter()
                for _ in range(n):
                    state = step(*state, v, hyper, stream, engine)
            synchronize(xp)
            seconds[name].append((time.perf_counter() - started) / n_updates)
            report(sum(map(len, seconds.values())))
    return {name: np.array(values) for name, values in seconds.items()}


def table1(
    trials, bars_and_stripes, large, whole, engine=PLAIN, report=lambda *_: None, kept_in=None
):
    """All that Table 1 shows, as a record to be stored.

    Parameters
    ----------
    bars_and_stripes, large : dict
        The sizes of an ``Update``, ``n_updates`` that are timed, and ``total_updates`` to which
        they are scaled.
    whole : list of str
        Algorithms of which one large trial is timed over all updates, which checks the scaling.
    kept_in : path, optional
        Where every trial is kept as soon as it is measured: an interrupted call goes on, if the
        settings, the code and the device are the same.

    Returns
    -------
    dict
        seconds: dataset -> algorithm -> seconds of ``total_updates`` in each trial;
        operations: dataset -> what ``operations`` finds; large_to_the_end: algorithm -> seconds;
        on_gpu; started: dataset -> images and model that the updates had; settings, device,
        provenance, date.
    """
    settings = {"bars_and_stripes": bars_and_stripes, "large": large, "trials": trials}
    given = {"Bars & Stripes": bars_and_stripes, "Large datasets": large}
    realistic = {title: _realistic(model) for title, model in given.items()}
    updates = {title: update for title, (update, _) in realistic.items()}
    about = {"settings": settings, "provenance": provenance(engine)}
    about["started"] = {title: said for title, (_, said) in realistic.items()}
    kept = _Kept(kept_in, about)
    seconds = {title: {name: [] for name in ALGORITHMS} for title in given}
    for title, model in given.items():
        for n in range(trials):
            how = engine, updates[title], model, n
            for name, value in kept.once(f"{title}, {n}", _seconds_of_trial, *how).items():
                seconds[title][name].append(value)
            report(title, (n + 1) * len(ALGORITHMS))
    in_full, to_the_end = large | {"n_updates": large["total_updates"]}, {}
    for name in whole:
        how = engine, updates["Large datasets"], in_full, 0, [name]
        to_the_end |= kept.once(f"{name} to the end, 0", _seconds_of_trial, *how)
    return {
        "seconds": seconds,
        "operations": {title: operations(update) for title, update in updates.items()},
        "on_gpu": engine.xp is not np,
        "large_to_the_end": to_the_end,
        "device": engine.describe()["device"],
        "date": str(datetime.date.today()),
    } | about


def _realistic(model):
    """Its ``Update`` with images and a model as real as there are, and what these are.

    All patterns of Bars & Stripes; MNIST, if its files are here, and an archived model of it.
    """
    update = Update(**{name: v for name, v in model.items() if name in Update._fields})
    known = {9: ("bars_and_stripes", "all patterns"), 784: ("mnist", "images of MNIST")}
    name, said = known.get(update.n_visible, ("", ""))
    try:
        update = update._replace(images=load(name).train)
    except DataError:
        said = f"synthetic rows, {ON:.0%} on"
    try:
        theta = load_run(TRAINED).theta.select(slice(1))
    except (RunError, ArchiveError):
        theta = None
    if theta is None or theta.W.shape[1:] != (update.n_hidden, update.n_visible):
        return update, f"{said}, an initial model"
    return update._replace(theta=theta), f"{said}, a trained model"


def _seconds_of_trial(engine, update, model, trial, algorithms=tuple(ALGORITHMS)):
    """algorithm -> seconds of ``total_updates``, as timed in ``n_updates``."""
    how = {"engine": engine, "algorithms": algorithms}
    found = seconds_per_update(update, model["n_updates"], [trial], **how)
    return {name: float(values[0] * model["total_updates"]) for name, values in found.items()}


class _Kept:
    """What was measured, in a file from which an interrupted call with the same ``about`` goes on;
    without a path, nowhere."""

    def __init__(self, path, about):
        self.path, self.about, self.measured = path, about, {}
        with suppress(FileNotFoundError, ValueError):
            stored = json.loads(Path(path).read_text(encoding="utf-8")) if path else {}
            if stored.get("about") == json.loads(json.dumps(about)):
                self.measured = stored["measured"]

    def once(self, what, function, *arguments):
        if what not in self.measured:
            self.measured[what] = function(*arguments)
            if self.path:
                with whole_file(Path(self.path)) as file:
                    json.dump({"about": self.about, "measured": self.measured}, file)
        return self.measured[what]
