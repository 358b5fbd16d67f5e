"""What is read off likelihood curves, with intervals over trials: speed, end, epochs saved.

A curve here is an array (trials, points) of average log-likelihoods at common epochs, NaN from
where a trial has diverged. Intervals are 95 % percentile intervals of a bootstrap over trials;
where two algorithms are compared the same trials of both are drawn, as a trial of both begins with
the same model and sees the images in the same order. One trial has no interval: NaN.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

from .likelihood import AGREEMENT, likelihoods

RESAMPLES = 4000
SEED = 95


class Estimate(NamedTuple):
    """A value with its 95 % interval over trials."""

    value: float
    low: float
    high: float
    trials: int


def doubts(run):
    """Why the likelihoods of a run are not to be judged; empty where they may be."""
    alive = run.curve[run.curve.status == "ok"]
    if run.settings["ais"] is None:
        return ""
    if "trusted_agrees" not in alive or alive.trusted_agrees.isna().any():
        return "likelihoods by plain AIS alone, which may miss modes"
    weak = alive[(alive.trusted_agrees != 1) & (alive.trusted_log_z - alive.bound > AGREEMENT)]
    epochs = ", ".join(f"{epoch:g}" for epoch in sorted(set(weak.epoch)))
    return f"log Z doubtful at epoch {epochs}" if epochs else ""


def curves(run, part="test"):
    """Epochs (points,) and ``likelihoods`` (trials, points) of a run."""
    alive = likelihoods(run.curve, part).where(run.curve.status == "ok")
    table = run.curve.assign(value=alive).pivot(index="trial", columns="epoch", values="value")
    return table.columns.to_numpy(float), table.to_numpy()


def areas(run, part="test"):
    """Area under the curve of each trial, divided by its length: the mean over all epochs.

    From the first evaluation after the start: all algorithms start from the same models.
    """
    epochs, values = curves(run, part)
    later = epochs > 0
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
    rows, known = [], "valid" in run.curve
    for trial, curve in run.curve.groupby("trial"):
        if (curve.status == "ok").all():
            curve = curve.assign(**{p: likelihoods(curve, p) for p in _PARTS if p in curve})
            best = curve.loc[curve.valid.idxmax(), ["epoch", *_PARTS]].to_dict() if known else {}
            row = {"trial": trial, "train_end": curve.train.iloc[-1]} | best
            rows.append(row | {"test_end": curve.test.iloc[-1]})
    return pd.DataFrame(rows, columns=["trial", "epoch", *_PARTS, "train_end", "test_end"])


_PARTS = ["train", "valid", "test"]


def first_trial(run, epochs=np.inf):
    """The first trial of a run alone, as far as ``epochs``: beside a run of one trial."""
    curve = run.curve[(run.curve.trial == run.curve.trial.min()) & (run.curve.epoch <= epochs)]
    return run._replace(curve=curve, settings=run.settings | {"trials": 1})


def roughness(run, part="test"):
    """Standard deviation of the second differences of each trial, at evenly spaced evaluations."""
    epochs, values = curves(run, part)
    step = np.diff(epochs).max()
    even = np.isclose(epochs / step, np.rint(epochs / step)) & (epochs > 0)
    return np.diff(values[:, even], 2).std(1, ddof=1)


def epochs_saved(epochs, fast, slow):
    """1 − (epoch of ``fast`` / epoch of ``slow``) at the level that ``slow`` reaches at its best.

    Parameters
    ----------
    epochs : ndarray, shape (points,)
    fast, slow : ndarray, shape (..., points)
        Mean curves.

    Returns
    -------
    ndarray (...)
        −inf where ``fast`` never gets there.
    """
    level = slow.max(-1, keepdims=True)
    return 1 - _reaches(epochs, fast, level) / _reaches(epochs, slow, level)


def _reaches(epochs, values, level):
    """The epoch at which curves (..., points) first reach a level, between points linearly."""
    above = values >= level
    point = np.where(above.any(-1), above.argmax(-1), -1)
    before = np.maximum(point - 1, 0)

    def at(where):
        return np.take_along_axis(values, where[..., None], -1)[..., 0]

    rise = at(point) - at(before)
    share = np.where(point > 0, (level[..., 0] - at(before)) / np.where(rise == 0, 1, rise), 1.0)
    reached = epochs[before] + share * (epochs[point] - epochs[before])
    return np.where(point < 0, np.inf, reached)


def saved(fast, slow, part="test"):
    """``epochs_saved`` by the mean curves of two runs."""
    epochs, f = curves(fast, part)
    others, s = curves(slow, part)
    common = np.isin(epochs, others)
    f, s = f[:, common], s[:, np.isin(others, epochs)]
    both = _both(f[:, -1], s[:, -1])
    epochs, f, s = epochs[common], f[both], s[both]
    return _paired(lambda rows: epochs_saved(epochs, f[rows].mean(-2), s[rows].mean(-2)), len(f))


def mean(values):
    """The mean over trials of one number a trial."""
    values = values[np.isfinite(values)]
    return _paired(lambda rows: values[rows].mean(-1), len(values))


def maximum(values):
    """The maximum over trials of one number a trial."""
    values = values[np.isfinite(values)]
    return _paired(lambda rows: values[rows].max(-1), len(values))


def difference(one, other, statistic=np.mean):
    """statistic(one) − statistic(other) of one number a trial, in pairs."""
    both = _both(one, other)
    one, other = one[both], other[both]
    return _paired(lambda r: statistic(one[r], -1) - statistic(other[r], -1), len(one))


def ratio(one, other, statistic=np.mean):
    """statistic(one) / statistic(other) of one number a trial, in pairs."""
    both = _both(one, other)
    one, other = one[both], other[both]
    return _paired(lambda r: statistic(one[r], -1) / statistic(other[r], -1), len(one))


def range_of_means(rows):
    """Largest minus smallest mean over trials, of several rows of one number a trial, in pairs."""
    rows = np.array(rows)
    rows = rows[:, np.isfinite(rows).all(0)]
    return _paired(lambda r: np.ptp(rows[:, r].mean(-1), 0), rows.shape[1])


def spread(values, axis):
    """Standard deviation over trials, for ``ratio``."""
    return values.std(axis, ddof=1)


def _both(one, other):
    """The trials that both have and in which neither diverged."""
    if len(one) != len(other):
        raise ValueError(f"{len(one)} and {len(other)} trials cannot be compared in pairs")
    return np.isfinite(one) & np.isfinite(other)


def _paired(function, n_trials):
    """``function`` of the trials as they are, and its interval over resampled trials.

    ``function`` takes numbers of trials, shape (..., n_trials).
    """
    if n_trials == 0:
        return Estimate(np.nan, np.nan, np.nan, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = float(function(np.arange(n_trials)))
        if n_trials == 1:
            return Estimate(value, np.nan, np.nan, 1)
        rows = np.random.default_rng(SEED).integers(n_trials, size=(RESAMPLES, n_trials))
        found = np.sort(function(rows))
    # Order statistics, not interpolated: −inf ("never") is a value like any other.
    low, high = found[int(0.025 * RESAMPLES)], found[int(0.975 * RESAMPLES) - 1]
    return Estimate(value, float(low), float(high), n_trials)
