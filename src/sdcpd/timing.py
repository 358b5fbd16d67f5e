"""Seconds of training, one model at a time, as in Table 1 of the paper."""

import datetime
import json
import time
from pathlib import Path

import numpy as np

from .algorithms import STEPS, Hyperparameters
from .backend import Stream, key, synchronize
from .data import whole_file
from .engine import PLAIN
from .rbm import initialize
from .runs import provenance

ON = 0.13  # share of the pixels that are on in the synthetic rows, as in MNIST
SMALL_STEP = 0.01  # the learning rate does not change the time


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
    algorithms=tuple(STEPS),
    first=0,
):
    """Time algorithms on synthetic rows of {0, 1}, evaluation not included.

    The algorithms take turns within a trial, so that a machine that gets slower or faster
    does so for all of them; a trial's first updates, not timed, warm up. ``first`` is the number
    of the first of the ``trials``.

    Returns
    -------
    dict of algorithm -> ndarray (trials,)
        Seconds per parameter update.
    """
    xp = engine.xp
    seconds = {name: np.empty(trials) for name in algorithms}
    mean = np.full(n_visible, ON)
    for trial in range(trials):
        stream = Stream([key("timing", first + trial)], xp)
        theta = initialize(mean, n_hidden, [key("timing", "init", first + trial)], xp)
        theta = engine.prepare(theta)
        images = (stream.uniform(batch_size, n_visible) < ON)[0]
        v = engine.states(images[None])
        for turn, name in enumerate(algorithms):
            one = xp.full(1, SMALL_STEP, xp.float32)
            inner = name in ("sdcp", "sdcp_d")
            hyper = Hyperparameters(
                learning_rate=one,
                epsilon=one * 10,
                lambda_hessian=one * 0,
                n_gibbs_steps=n_gibbs_steps_inner if inner else n_gibbs_steps,
                n_inner_iterations=n_inner_iterations,
                sliding_factor=0.01,
                train_mean=xp.asarray(mean, xp.float32),
            )
            state = theta, {}
            for n in (max(1, n_updates // 20), n_updates):
                synchronize(xp)
                started = time.perf_counter()
                if engine.is_small([name], theta, images):
                    state = engine.many_steps(name, *state, images, hyper, stream, n)
                    continue
                for _ in range(n):
                    state = STEPS[name](*state, v, hyper, stream, engine)
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
        large_to_the_end: algorithm -> seconds; settings, device, provenance, date.
    """
    settings = {"bars_and_stripes": bars_and_stripes, "large": large, "trials": trials}
    about = {"settings": settings, "provenance": provenance(engine)}
    measured = _kept(kept_in, about)

    def measure(title, model, number, **how):
        what = f"{title}, {number}"
        if what not in measured:
            how = {name: v for name, v in model.items() if name != "total_updates"} | how
            found = seconds_per_update(**how, trials=1, first=number, engine=engine)
            total = model["total_updates"]
            measured[what] = {name: float(values[0] * total) for name, values in found.items()}
            if kept_in:
                with whole_file(Path(kept_in)) as file:
                    json.dump({"about": about, "measured": measured}, file)
        return measured[what]

    seconds = {}
    for title, model in {"Bars & Stripes": bars_and_stripes, "Large datasets": large}.items():
        of_trials = []
        for number in range(trials):
            of_trials.append(measure(title, model, number))
            report(title, (number + 1) * len(STEPS))
        seconds[title] = {name: [each[name] for each in of_trials] for name in STEPS}
    in_full = {
        name: measure(
            f"{name} to the end", large, 0, n_updates=large["total_updates"], algorithms=[name]
        )[name]
        for name in whole
    }
    return {
        "seconds": seconds,
        "large_to_the_end": in_full,
        "device": engine.describe()["device"],
        "date": str(datetime.date.today()),
    } | about


def _kept(path, about):
    """What an interrupted call with the same ``about`` has measured."""
    try:
        stored = json.loads(Path(path).read_text(encoding="utf-8")) if path else {}
    except (FileNotFoundError, ValueError):
        return {}
    return stored["measured"] if stored.get("about") == json.loads(json.dumps(about)) else {}
