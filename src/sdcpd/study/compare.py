"""What is read off likelihood curves: speed, end, epochs saved; with intervals.Estimate.

A curve here is an array (trials, points) of average log-likelihoods at common epochs, NaN from
where a trial has diverged. Two algorithms are compared trial by trial, in pairs.
"""

import numpy as np
import pandas as pd

from ..likelihood import likelihoods
from ..trusted import AGREEMENT, refuted
from .intervals import NONE, Estimate, jackknife, quantile_of

PARTS = ("train", "valid", "test")


def doubts(run, at_end=False):
    """Why the likelihoods of a run, or the last of each trial alone, are not to be judged; empty
    where they may be."""
    alive = run.curve[run.curve.status == "ok"]
    if run.settings["ais"] is None:
        return ""
    if "trusted_agrees" not in alive:
        return "likelihoods by plain AIS alone, which may miss modes"
    near = abs(alive.trusted_log_z - alive.bound) <= AGREEMENT
    asked = alive.epoch == run.curve.epoch.max() if at_end else True
    weak = alive[(alive.trusted_agrees != 1) & ~near & asked]
    epochs = ", ".join(f"{epoch:g}" for epoch in sorted(set(weak.epoch)))
    return f"log Z doubtful at epoch {epochs}" if epochs else ""


def curves(run, part="test"):
    """Epochs (points,) and ``likelihoods`` (trials, points) of a run."""
    alive = likelihoods(run.curve, part).where(run.curve.status == "ok")
    table = run.curve.assign(value=alive).pivot(index="trial", columns="epoch", values="value")
    return table.columns.to_numpy(float), table.to_numpy()


def summarize(run, trusted=False):
    """Mean, maximum and spread over trials at each evaluation point of a run.

    Diverged trials leave the mean and the maximum at the point where they diverged; ``trials``
    counts those that are left.

    Parameters
    ----------
    trusted : bool
        Of what a run is judged by (``likelihood.likelihoods``), instead of what the paper shows,
        plain AIS where it was made.

    Returns
    -------
    DataFrame
        epoch, update, trials, ess (the smallest), train_mean, train_max, train_low, train_high and
        the same for test, and for valid where there are validation images. low … high is the 95 %
        interval (Student's t) of the mean over trials; NaN where one trial is left. Of plain AIS
        also train_mean_at_most, train_max_at_most and so on, which the bounds on log Z allow; and
        refuted_by: by how many nats a trial is above that, the largest, 0 where it may be.
    """
    alive = run.curve[run.curve.status == "ok"]
    if trusted:
        alive = alive.assign(**{part: likelihoods(alive, part) for part in parts_of(run)})
        alive = alive.assign(ess=alive.get("trusted_ess", alive.ess))
    alive = alive[alive.train.notna()]
    over = alive.bound - alive.log_z if "bound" in alive else pd.Series(np.nan, alive.index)
    alive = alive.assign(over=over.where(refuted(0, over), 0))
    alive = alive.assign(**{f"{p}_at_most": alive[p] - alive.over for p in parts_of(run)})
    groups = alive.groupby(["epoch", "update"])
    table = groups.agg(trials=("trial", "size"), ess=("ess", "min"), refuted_by=("over", "max"))
    quantile = quantile_of(table.trials)
    for part in parts_of(run):
        half = quantile * groups[part].std(ddof=1) / np.sqrt(table.trials)
        table[f"{part}_mean"] = groups[part].mean()
        table[f"{part}_max"] = groups[part].max()
        table[f"{part}_low"] = table[f"{part}_mean"] - half
        table[f"{part}_high"] = table[f"{part}_mean"] + half
        if not trusted:
            table[f"{part}_mean_at_most"] = groups[f"{part}_at_most"].mean()
            table[f"{part}_max_at_most"] = groups[f"{part}_at_most"].max()
    table = table.reset_index()
    return table.drop(columns="refuted_by") if trusted else table


def parts_of(run):
    return [part for part in PARTS if part in run.curve]


def areas(run, part="test", since=0):
    """Area under the curve of each trial, divided by its length: the mean over all epochs.

    From the first evaluation after the start, as all algorithms start from the same models; and
    not before epoch ``since``.
    """
    epochs, values = curves(run, part)
    later = (epochs > 0) & (epochs >= since)
    with np.errstate(invalid="ignore"):  # evaluated once only: NaN
        return np.trapezoid(values[:, later], epochs[later]) / np.ptp(epochs[later])


def finals(run, part="test"):
    """The last value of each trial."""
    return curves(run, part)[1][:, -1]


def maxima(run, part="test"):
    """The highest value of each trial."""
    return np.nanmax(curves(run, part)[1], 1)


def early_stopping(run):
    """Each trial where its validation likelihood is highest, and at its end.

    Returns
    -------
    DataFrame
        trial, epoch of the best validation, train, valid and test there, train_end and test_end.
        Diverged trials are left out. NaN where a run has no validation likelihood.
    """
    rows, parts = [], parts_of(run)
    for trial, curve in run.curve.groupby("trial"):
        if (curve.status == "ok").all():
            curve = curve.assign(**{part: likelihoods(curve, part) for part in parts})
            last = curve.iloc[-1]
            row = {"trial": trial, "train_end": last.train, "test_end": last.test}
            best = curve.loc[curve.valid.idxmax(), ["epoch", *parts]] if "valid" in parts else {}
            rows.append(row | dict(best))
    return pd.DataFrame(rows, columns=["trial", "epoch", *PARTS, "train_end", "test_end"])


def missed_by_plain(run):
    """What plain AIS misses of log Z where both estimates were made.

    Returns
    -------
    DataFrame
        epoch, missed (nats by which the trusted log Z is above that of plain AIS, mean over
        trials) and refuted, whether the bound says so in any trial.
    """
    alive = run.curve[run.curve.status == "ok"]
    both = alive.reindex(columns=["epoch", "log_z", "trusted_log_z", "bound"]).dropna()
    both = both.assign(missed=both.trusted_log_z - both.log_z)
    both = both.assign(refuted=refuted(both.log_z, both.bound))
    return both.groupby("epoch", as_index=False).agg({"missed": "mean", "refuted": "max"})


def until(run, epochs=np.inf, trials=None):
    """The run as far as ``epochs``, with its first ``trials`` (all): beside a shorter one."""
    numbers = sorted(set(run.curve.trial))[:trials]
    curve = run.curve[run.curve.trial.isin(numbers) & (run.curve.epoch <= epochs)]
    budget = {"trials": len(numbers), "epochs": min(epochs, run.settings["epochs"])}
    return run._replace(curve=curve, settings=run.settings | budget)


def roughness(run, part="test", since=0):
    """Variance of the second differences of each trial (nats²), less that of the estimates' noise.

    Of evenly spaced evaluations from epoch ``since`` on. Estimates with independent errors of the
    recorded standard errors of log Z add to the variance what a quadratic form of these says, some
    six times their square; it is subtracted. A smooth curve has about 0, a single one maybe less.
    """
    epochs, values = curves(run, part)
    step = np.diff(epochs).max()
    even = np.isclose(epochs / step, np.rint(epochs / step)) & (epochs > 0) & (epochs >= since)
    found = np.diff(values[:, even], 2).var(1, ddof=1)
    name = likelihoods(run.curve, part).name.removesuffix(part) + "log_z_se"
    if name not in run.curve:  # exact
        return found
    errors = run.curve.pivot(index="trial", columns="epoch", values=name).to_numpy()[:, even]
    second = np.diff(np.eye(errors.shape[1]), 2, axis=0)  # of each evaluation's share in them
    second -= second.mean(0)
    return found - errors**2 @ (second**2).sum(0) / (len(second) - 1)


def epochs_saved(epochs, fast, slow, below=0.0):
    """1 − (epoch of ``fast`` / epoch of ``slow``) where they are ``below`` less than slow's best.

    Parameters
    ----------
    epochs, fast, slow : ndarray, shape (points,)
        Mean curves.
    below : float
        Nats.

    Returns
    -------
    float
        −inf where ``fast`` never gets there; NaN where ``slow`` is there from the start.
    """
    level = slow.max() - below
    there = _reaches(epochs, slow, level)
    return 1 - _reaches(epochs, fast, level) / there if there > epochs[0] else np.nan


def _reaches(epochs, values, level):
    """The epoch at which a curve first reaches a level; inf: never."""
    above = np.flatnonzero(values >= level)
    if len(above) == 0:
        return np.inf
    if above[0] == 0:
        return float(epochs[0])
    around, scale = slice(above[0] - 1, above[0] + 1), _scale(epochs)
    at = np.interp(level, values[around], scale(epochs[around]))
    return float(np.exp(at) - np.exp(scale(0.0)))


def _scale(epochs):
    """A function of epochs in which curves are taken for linear between points: log(epoch + first),
    as what is learned slows down. (Linear in the epoch itself, a saving of 25 % comes out as 11 %
    to 41 % of the same curves where they have points at 0, 1, 5, 10, 20 and 40.)"""
    first = epochs[epochs > 0][0]
    return lambda epoch: np.log(epoch + first)


def saved(fast, slow, part="test", below=0.0):
    """``epochs_saved`` by the mean curves of two runs; −inf is a value, and an end of intervals.

    The slow one reaches the level with some epoch. Of the fast one at any epoch minus the slow one
    at that epoch, trial by trial, there is a t interval; the fast one gets there at the latest when
    this is first above zero, at the earliest when its upper end first is.
    """
    epochs, f, s = _common(fast, slow, part)
    if len(f) == 0:
        return NONE
    mean = s.mean(0)
    value = epochs_saved(epochs, f.mean(0), mean, below)
    there = _reaches(epochs, mean, mean.max() - below)
    if len(f) == 1 or np.isnan(value):
        return Estimate(value, len(f))
    scale = _scale(epochs)
    at_level = [[np.interp(scale(there), scale(epochs), values)] for values in s]
    difference = f - np.array(at_level)
    middle, error = difference.mean(0), difference.std(0, ddof=1) / np.sqrt(len(f))

    def bounds(quantile):
        low, high = middle - quantile * error, middle + quantile * error
        return tuple(1 - _reaches(epochs, side, 0) / there for side in (low, high))

    return Estimate(value, len(f), bounds)


def best_difference(fast, slow, part="test"):
    """The best of the mean curve of one run minus that of the other, at common epochs (nats)."""
    _, f, s = _common(fast, slow, part)
    return jackknife(lambda rows: f[rows].mean(0).max() - s[rows].mean(0).max(), len(f))


def mean(values):
    """The mean over trials of one number a trial."""
    values = values[np.isfinite(values)]
    return jackknife(lambda rows: values[rows].mean(), len(values))


def difference(one, other):
    """mean(one) − mean(other) of one number a trial, in pairs."""
    one, other = _pairs(one, other)
    return jackknife(lambda rows: (one[rows] - other[rows]).mean(), len(one))


def ratio(one, other, statistic=np.mean):
    """statistic(one) / statistic(other) of one positive number a trial, in pairs."""
    one, other = _pairs(one, other)

    def logarithm(rows):
        return np.log(statistic(one[rows]) / statistic(other[rows]))

    return jackknife(logarithm, len(one), np.exp)


def range_of_means(rows):
    """Largest minus smallest mean over trials, of several rows of one number a trial, in pairs."""
    rows = np.array(rows)
    rows = rows[:, np.isfinite(rows).all(0)]
    return jackknife(lambda trials: np.ptp(rows[:, trials].mean(1)), rows.shape[1])


def geometric_mean(values):
    """For ``ratio``: that of two geometric means is the mean of the ratios of the pairs."""
    return np.exp(np.log(values).mean())


def spread(values):
    """Standard deviation over trials, for ``ratio``."""
    return values.std(ddof=1)


def _pairs(one, other):
    """Numbers, or curves, of the trials that both have and in which neither diverged."""
    if len(one) != len(other):
        raise ValueError(f"{len(one)} and {len(other)} trials cannot be compared in pairs")
    last = (np.atleast_2d(values.T)[-1] for values in (one, other))
    alive = np.logical_and(*map(np.isfinite, last))
    return one[alive], other[alive]


def _common(fast, slow, part):
    """Common epochs of two runs, and their curves in trials that diverged in neither."""
    epochs, f = curves(fast, part)
    others, s = curves(slow, part)
    common = np.isin(epochs, others)
    return epochs[common], *_pairs(f[:, common], s[:, np.isin(others, epochs)])
