"""What training costs: counted operations, which are the same everywhere, and seconds (Table 1)."""

import datetime
import json
import time
from collections import Counter
from pathlib import Path

import numpy as np

from .. import ROOT
from ..algorithms import ALGORITHMS, Hyperparameters
from ..data import DataError, load
from ..device import synchronize
from ..engines.plain import PLAIN
from ..files import whole_file
from ..philox import Stream, key
from ..rbm import initialize
from ..runs import RunError, provenance
from ..runs import load as load_run
from ..runs.archive import ArchiveError

ON = 0.13  # share of the pixels that are on in the synthetic rows, as in MNIST
SMALL_STEP = 0.01  # the learning rate does not change the time
TRAINED = ROOT / "workflow/archive/runs/mnist/as_published/sdcp_d-500h"


def operations(
    n_visible,
    n_hidden,
    batch_size,
    n_gibbs_steps,
    n_inner_iterations,
    n_gibbs_steps_inner,
    algorithms=tuple(ALGORITHMS),
):
    """Operations of one parameter update, not the first, counted while the plain engine makes it.

    Returns
    -------
    dict of algorithm -> dict
        products: matrix products, as multiples of batch × visible × hidden multiply-adds; random
        numbers; all arithmetic: two operations a multiply-add, and one for each element of whatever
        is computed elementwise (exp and division included) or summed.
    """
    found = {}
    for name in algorithms:
        counts = Counter()

        class Counted(np.ndarray):
            def __array_ufunc__(self, ufunc, method, *inputs, out=None, counts=counts, **how):
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
            def words(self, *shape, counts=counts):
                counts["random numbers"] += int(np.prod(shape))
                return super().words(*shape)

        stream = Numbers([key("operations")], np)
        theta = initialize(np.full(n_visible, ON), n_hidden, [key("operations")])
        theta = theta.map(lambda array, kind=Counted: array.view(kind))
        v = (stream.uniform(batch_size, n_visible) < ON).astype(np.float32).view(Counted)
        hyper = _hyperparameters(name, n_gibbs_steps, n_inner_iterations, n_gibbs_steps_inner, ON)
        state = None
        for _ in range(2):
            counts.clear()
            theta, state = ALGORITHMS[name].step(theta, state, v, hyper, stream, PLAIN)
        found[name] = {
            "products": counts["multiply-adds"] / (batch_size * n_visible * n_hidden),
            "random numbers": counts["random numbers"],
            "all arithmetic": 2 * counts["multiply-adds"] + counts["elements"],
        }
    return found


def _hyperparameters(name, n_gibbs_steps, n_inner_iterations, n_gibbs_steps_inner, mean, xp=np):
    one, inner = xp.full(1, SMALL_STEP, xp.float32), ALGORITHMS[name].has_inner_loop
    return Hyperparameters(
        learning_rate=one,
        epsilon=one * 10,
        lambda_hessian=one * 0,
        n_gibbs_steps=n_gibbs_steps_inner if inner else n_gibbs_steps,
        n_inner_iterations=n_inner_iterations,
        sliding_factor=0.01,
        train_mean=xp.asarray(mean, xp.float32),
    )


def seconds_per_update(
    n_visible,
    n_hidden,
    batch_size,
    n_gibbs_steps,
    n_inner_iterations,
    n_gibbs_steps_inner,
    n_updates,
    trials,
    engine=PLAIN,
    report=lambda done: None,
    algorithms=tuple(ALGORITHMS),
    first=0,
    images=None,
    theta=None,
):
    """Time algorithms, evaluation not included.

    The algorithms take turns within a trial, in every second one backwards, so that a machine that
    gets slower or faster does so for all of them; a trial's first updates, not timed, warm up.

    Parameters
    ----------
    first : int
        The number of the first of the ``trials``.
    images : ndarray (N, m), optional
        The mini-batch of a trial are the next of these; without, synthetic rows of {0, 1}.
    theta : Parameters of one model, optional
        Where each trial begins; without, at an initial model.

    Returns
    -------
    dict of algorithm -> ndarray (trials,)
        Seconds per parameter update.
    """
    xp = engine.xp
    seconds = {name: np.empty(trials) for name in algorithms}
    mean = np.full(n_visible, ON)
    for trial in range(trials):
        number = first + trial
        stream = Stream([key("timing", number)], xp)
        if theta is None:
            start = initialize(mean, n_hidden, [key("timing", "init", number)], xp)
        else:
            start = theta.map(xp.asarray)
        start = engine.prepare(start)
        if images is None:
            rows = (stream.uniform(batch_size, n_visible) < ON)[0]
        else:
            rows = xp.asarray(
                np.take(images, np.arange(batch_size) + number * batch_size, 0, mode="wrap")
            )
        v = engine.states(rows[None])
        for turn, name in enumerate(algorithms[:: -1 if number % 2 else 1]):
            steps = n_gibbs_steps, n_inner_iterations, n_gibbs_steps_inner
            hyper = _hyperparameters(name, *steps, mean, xp)
            state, step = (start, None), ALGORITHMS[name].step
            for n in (max(1, n_updates // 20), n_updates):
                synchronize(xp)
                started = time.perf_counter()
                for _ in range(n):
                    state = step(*state, v, hyper, stream, engine)
            synchronize(xp)
            seconds[name][trial] = (time.perf_counter() - started) / n_updates
            report(trial * len(algorithms) + turn + 1)
    return seconds


def table1(
    trials,
    bars_and_stripes,
    large,
    whole,
    engine=PLAIN,
    report=lambda title, done: None,
    kept_in=None,
):
    """All that Table 1 shows, as a record to be stored.

    Parameters
    ----------
    bars_and_stripes, large : dict
        Parameters of ``seconds_per_update``, and ``total_updates`` to which they are scaled.
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
    models = {"Bars & Stripes": bars_and_stripes, "Large datasets": large}
    settings = {"bars_and_stripes": bars_and_stripes, "large": large, "trials": trials}
    given = {title: _realistic(model) for title, model in models.items()}
    about = {"settings": settings, "provenance": provenance(engine)}
    about["started"] = {title: said for title, (_, said) in given.items()}
    measured = _kept(kept_in, about)

    def measure(title, model, number, **how):
        what = f"{title}, {number}"
        if what not in measured:
            how = {name: v for name, v in model.items() if name != "total_updates"} | how
            how |= given[title][0] if title in given else given["Large datasets"][0]
            found = seconds_per_update(**how, trials=1, first=number, engine=engine)
            total = model["total_updates"]
            measured[what] = {name: float(values[0] * total) for name, values in found.items()}
            if kept_in:
                with whole_file(Path(kept_in)) as file:
                    json.dump({"about": about, "measured": measured}, file)
        return measured[what]

    seconds = {}
    for title, model in models.items():
        of_trials = []
        for number in range(trials):
            of_trials.append(measure(title, model, number))
            report(title, (number + 1) * len(ALGORITHMS))
        seconds[title] = {name: [each[name] for each in of_trials] for name in ALGORITHMS}
    in_full = {
        name: measure(
            f"{name} to the end", large, 0, n_updates=large["total_updates"], algorithms=[name]
        )[name]
        for name in whole
    }
    not_counted = "n_updates", "total_updates"
    return {
        "seconds": seconds,
        "operations": {
            title: operations(**{n: v for n, v in model.items() if n not in not_counted})
            for title, model in models.items()
        },
        "on_gpu": engine.xp is not np,
        "large_to_the_end": in_full,
        "device": engine.describe()["device"],
        "date": str(datetime.date.today()),
    } | about


def _realistic(model):
    """Images and a model for ``seconds_per_update``, as real ones as there are, and their names.

    All patterns of Bars & Stripes; MNIST, if its files are here, and an archived model of it.
    """
    given, said = {}, []
    name = {9: "bars_and_stripes", 784: "mnist"}.get(model["n_visible"], "")
    try:
        given["images"] = load(name).train
        said.append({9: "all patterns", 784: "images of MNIST"}[model["n_visible"]])
    except DataError:
        said.append(f"synthetic rows, {ON:.0%} on")
    try:
        theta = load_run(TRAINED).theta.select(slice(1))
        if theta.W.shape[1:] != (model["n_hidden"], model["n_visible"]):
            raise RunError("of another size")
        given["theta"] = theta
        said.append("a trained model")
    except (RunError, ArchiveError):
        said.append("an initial model")
    return given, ", ".join(said)


def _kept(path, about):
    """What an interrupted call with the same ``about`` has measured."""
    try:
        stored = json.loads(Path(path).read_text(encoding="utf-8")) if path else {}
    except (FileNotFoundError, ValueError):
        return {}
    return stored["measured"] if stored.get("about") == json.loads(json.dumps(about)) else {}
