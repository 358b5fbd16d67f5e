"""Average log-likelihood of a model: exact for small ones, by annealed importance sampling else.

average log-likelihood = mean over images of log Σ_h exp(−E(v, h)) − log Z
"""

from typing import NamedTuple

import numpy as np

from .backend import Stream, array_module, to_host
from .engine import PLAIN
from .rbm import Parameters, log_unnormalized, logit_of_mean, sample, sigmoid, softplus

MAX_ENUMERATED = 24  # units of the smaller layer; 2^24 states take about a minute a model
MIN_ESS = 10  # an AIS estimate with a smaller effective sample size is doubtful
_CHUNK = 2**14  # states or images at a time, to bound memory


class LogZ(NamedTuple):
    """Estimates of log Z for R models; float64 arrays of shape (R,) on the host."""

    value: np.ndarray
    standard_error: np.ndarray  # 0 where exact
    effective_sample_size: np.ndarray  # of the importance weights; inf where exact


def exact_log_z(theta):
    """log Z of R models by enumeration of the smaller layer, in float64.

    Raises
    ------
    ValueError
        If the smaller layer has more than MAX_ENUMERATED units.
    """
    xp = array_module(theta.W)
    W, b, c = (array.astype(xp.float64) for array in theta)
    if W.shape[1] > W.shape[2]:  # enumerate the visible units: the model with layers exchanged
        W, b, c = W.transpose(0, 2, 1), c, b
    n = W.shape[1]
    if n > MAX_ENUMERATED:
        raise ValueError(f"cannot enumerate a layer of {n} units; use annealed_log_z")
    total = xp.full(len(W), -xp.inf)
    for start in range(0, 2**n, _CHUNK):
        codes = xp.arange(start, min(start + _CHUNK, 2**n))
        states = ((codes[:, None] >> xp.arange(n)) & 1).astype(xp.float64)  # (S, n)
        terms = (states @ c[:, :, None])[..., 0] + softplus(states @ W + b[:, None, :]).sum(-1)
        total = xp.logaddexp(total, _log_sum_exp(terms, xp))
    total = to_host(total)
    return LogZ(total, np.zeros(len(total)), np.full(len(total), np.inf))


def annealed_log_z(
    theta, train_mean, keys, n_particles=100, n_temperatures=10_000, report=None, engine=PLAIN
):
    """log Z of R models by annealed importance sampling (Neal 2001), all side by side.

    The intermediate distributions, for β from 0 to 1 on a linear scale, are

        p_β(v) ∝ exp(((1 − β) a + β b)ᵀ v) Π_i (1 + exp(β (c_i + W_i v))),

    from the model at β = 0 of independent pixels with the mean of the training data, a its
    logit, to the model θ at β = 1. A uniform base is several nats too optimistic on MNIST.

    Parameters
    ----------
    theta : Parameters
    train_mean : array_like, shape (m,)
    keys : array_like of uint64, shape (R, 2)
        Philox keys, one a model.
    n_particles : int
    n_temperatures : int
        Number of intermediate distributions, the two ends not counted as one.
    report : callable (float), optional
        Called now and then with the share that is done.
    engine : engine.Engine
        What moves and weighs the particles, by ``Chain.anneal``.

    Returns
    -------
    LogZ
        The standard error is that of the logarithm of the mean weight (delta method). A weight
        that dwarfs the others makes it meaningless: look at the effective sample size too.
    """
    xp = array_module(theta.W)
    n_models, n_hidden, n_visible = theta.W.shape
    stream = Stream(keys, xp)
    base64 = logit_of_mean(train_mean)
    base = xp.asarray(base64.astype(np.float32))
    beta = np.linspace(0, 1, n_temperatures + 1)

    start = xp.broadcast_to(base, (n_models, n_particles, n_visible)).copy()
    v = engine.states(sample(sigmoid(start), stream))
    chain = engine.chain(theta, v, stream, base)
    weights = xp.zeros((n_models, n_particles))  # log, float64
    for k in range(n_temperatures):
        chain.anneal(beta[k], beta[k + 1], weights)
        if report and k % 100 == 0:
            report(k / n_temperatures)

    base_log_z = n_hidden * np.log(2) + np.logaddexp(0, base64).sum()
    log_mean = to_host(_log_sum_exp(weights, xp)) - np.log(n_particles)
    relative = np.exp(to_host(weights) - log_mean[:, None])  # mean 1
    error = relative.std(1, ddof=1) / np.sqrt(n_particles)
    return LogZ(base_log_z + log_mean, error, relative.sum(1) ** 2 / (relative**2).sum(1))


def average_log_likelihood(theta, images, log_z):
    """Average log-likelihood of R models on the rows of ``images`` (N, m); float64 (R,).

    Computed in the precision of ``theta``, summed in float64.
    """
    xp = array_module(theta.W)
    total = np.zeros(len(theta.W))
    for start in range(0, len(images), _CHUNK):
        v = images[start : start + _CHUNK].astype(theta.W.dtype)[None]
        for model in range(len(theta.W)):  # one at a time: v is shared, W is not
            one = theta.select(slice(model, model + 1))
            total[model] += float(log_unnormalized(one, v).sum(dtype=xp.float64))
    return total / len(images) - log_z


class Evaluator:
    """What ``training.train`` calls at an evaluation point.

    Parameters
    ----------
    train, test, valid : array of uint8, (N, m)
        ``valid`` may be None.
    keys : callable (replica, update) -> array of uint64, shape (2,)
        Philox key of an AIS estimate.
    ais : dict or None
        ``n_particles`` and ``n_temperatures``; None enumerates, in float64.
    look : callable (theta, replicas, update), optional
        Called with what is evaluated, before that.
    """

    def __init__(
        self, train, test, keys, ais=None, report=None, engine=PLAIN, valid=None, look=None
    ):
        self.train, self.test, self.valid = train, test, valid
        self.keys, self.ais, self.look = keys, ais, look
        self.report, self.engine = report, engine
        self.train_mean = to_host(train.mean(0, dtype=np.float64))

    def __call__(self, theta, replicas, update):
        """A dict for each model: train, test, valid if there is one, log_z, log_z_se, ess."""
        if self.look:
            self.look(theta, replicas, update)
        if self.ais is None:
            theta = Parameters(*(a.astype(np.float64) for a in (theta.W, theta.b, theta.c)))
            log_z = exact_log_z(theta)
        else:
            keys = [self.keys(int(replica), update) for replica in replicas]
            how = self.ais | {"report": self.report, "engine": self.engine}
            log_z = annealed_log_z(theta, self.train_mean, keys, **how)
        train = average_log_likelihood(theta, self.train, log_z.value)
        same = self.test is self.train
        test = train if same else average_log_likelihood(theta, self.test, log_z.value)
        found = {"train": train, "test": test}
        if self.valid is not None:
            found["valid"] = average_log_likelihood(theta, self.valid, log_z.value)
        names = (*found, "log_z", "log_z_se", "ess")
        rows = zip(*(array.tolist() for array in (*found.values(), *log_z)), strict=True)
        return [dict(zip(names, row, strict=True)) for row in rows]


def _log_sum_exp(terms, xp):
    """log Σ exp over the last axis."""
    largest = terms.max(-1)
    return largest + xp.log(xp.exp(terms - largest[..., None]).sum(-1))
