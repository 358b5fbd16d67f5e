"""Seconds of training, one model at a time, as in Table 1 of the paper."""

import datetime
import time

import numpy as np

from .algorithms import STEPS, Hyperparameters
from .backend import Stream, key, synchronize
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
):
    """Time algorithms on synthetic rows of {0, 1}, evaluation not included.

    The algorithms take turns within a trial, so that a machine that gets slower or faster
    does so for all of them; a trial's first updates, not timed, warm up.

    Returns
    -------
    dict of algorithm -> ndarray (trials,)
        Seconds per parameter update.
    """
    xp = engine.xp
    seconds = {name: np.empty(trials) for name in algorithms}
    mean = np.full(n_visible, ON)
    for trial in range(trials):
        stream = Stream([key("timing", trial)], xp)
        theta = initialize(mean, n_hidden, [key("timing", "init", trial)], xp)
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


def table1(trials, bars_and_stripes, large, whole, engine=PLAIN, report=lambda title, done: None):
    """All that Table 1 shows, as a record to be stored.

    Parameters
    ----------
    bars_and_stripes, large : dict
        Parameters of ``seconds_per_update``, and ``total_updates`` to which they are scaled.
    whole : list of str
        Algorithms of which one large trial is timed over all updates, which checks the scaling.

    Returns
    -------
    dict
        seconds: dataset -> algorithm -> seconds of ``total_updates`` in each trial;
        large_to_the_end: algorithm -> seconds; settings, device, provenance, date.
    """
    seconds, models = {}, {"Bars & Stripes": bars_and_stripes, "Large datasets": large}
    for title, model in models.items():
        how = {name: value for name, value in model.items() if name != "total_updates"}
        found = seconds_per_update(
            **how, trials=trials, engine=engine, report=lambda done, t=title: report(t, done)
        )
        total = model["total_updates"]
        seconds[title] = {name: (values * total).tolist() for name, values in found.items()}
    in_full = {}
    if whole:
        how["n_updates"] = total
        found = seconds_per_update(**how, trials=1, engine=engine, algorithms=whole)
        in_full = {name: float(values[0] * total) for name, values in found.items()}
    return {
        "seconds": seconds,
        "large_to_the_end": in_full,
        "settings": {"bars_and_stripes": bars_and_stripes, "large": large, "trials": trials},
        "device": engine.describe()["device"],
        "provenance": provenance(engine),
        "date": str(datetime.date.today()),
    }
