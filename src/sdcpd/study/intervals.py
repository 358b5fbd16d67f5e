"""The one kind of interval of this project: Student's t over trials, in pairs.

Of a mean, or of the mean difference of pairs, it is the paired t interval. Of what is no mean (a
ratio, a standard deviation, a range) it is that of the jackknife, which is the same for a mean: the
statistic is computed from all n trials and n times with one left out; the spread of the latter
gives its standard error, with n − 1 degrees of freedom. Ratios get theirs on the logarithm, where
it is more nearly symmetric. Where curves reach a level, which the jackknife is too rough for, the t
interval of their difference is inverted, as Fieller did (``compare.saved``). Where two algorithms
are compared the same trial of both is left out: it begins with the same model and sees the images
in the same order. (A percentile bootstrap of a mean covers 80 % with 4 trials, 90 % with 10.)
"""

from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit  # scipy.stats takes most of a second to import

ERROR = 0.05  # of an interval
MIN_TRIALS = 5  # below, an interval is shown, but decides only what is far beyond the spread:
FEW, FAR = 3, 10  # of 3 or 4 trials what is so many standard deviations over trials away
# (t = 17 and 20, one-sided p < .002: so few trials cannot tell whether they are normal, and ten
# standard deviations need no such assumption). One or two trials decide nothing.


def quantile_of(n_trials, error=ERROR):
    """How many standard errors an interval of a mean over trials reaches; NaN for one trial."""
    return stdtrit(np.asarray(n_trials) - 1, 1 - error / 2)


class Estimate(NamedTuple):
    """A statistic of ``trials``; infinitely many where it is exact."""

    value: float
    trials: float
    bounds: object = lambda quantile: (np.nan, np.nan)  # of the interval by a quantile of t
    note: str = ""

    def interval(self):
        """The 95 % interval (low, high), as shown; NaN from fewer than two trials."""
        return self._bounds(ERROR)

    def decisive(self, comparisons=1):
        """The interval that decides, of each of several ``comparisons`` at 1 − .05/comparisons."""
        if self.trials < FEW:
            return np.nan, np.nan
        least = FAR * np.sqrt(self.trials) if self.trials < MIN_TRIALS else 0
        return self._bounds(ERROR / comparisons, least)

    def _bounds(self, error, least=0):
        if self.trials < 2:
            return np.nan, np.nan
        quantile = max(quantile_of(self.trials, error), least)
        return tuple(map(float, self.bounds(quantile)))


NONE = Estimate(np.nan, 0)


def exact(value, trials=np.inf, **how):
    """What does not vary over trials: counted, or proved."""
    return Estimate(float(value), trials, lambda _: (value, value), **how)


def jackknife(function, n_trials, back=float):
    """The Estimate of ``function(rows)``, a number from those trials, on the scale of intervals.

    Parameters
    ----------
    function : callable (ndarray of int) -> float
        Takes the numbers of the trials that count.
    back : callable (float) -> float, optional
        From that scale to the value's: ``np.exp`` if the function gives the logarithm of a ratio.
    """
    rows = np.arange(n_trials)
    if n_trials == 0:
        return NONE
    with np.errstate(invalid="ignore", divide="ignore"):
        middle = float(function(rows))
        if n_trials == 1:
            return Estimate(float(back(middle)), 1)
        left = np.array([function(np.delete(rows, k)) for k in rows], float)
    error = np.sqrt((n_trials - 1) * left.var())
    if error < 1e-12 * (1 + abs(middle)):  # roundings
        return exact(back(middle), n_trials)

    def bounds(quantile):
        return back(middle - quantile * error), back(middle + quantile * error)

    return Estimate(float(back(middle)), n_trials, bounds)
