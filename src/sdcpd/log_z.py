"""log Z of a model: exact for small ones, by annealed importance sampling else."""

from typing import NamedTuple

import numpy as np

from .device import array_module, to_host
from .engines.plain import PLAIN
from .philox import Stream
from .rbm import Parameters, logit_of_mean, sample, sigmoid, softplus

MAX_ENUMERATED = 24  # units of the smaller layer; 2^24 states take minutes a model
MIN_ESS = 10  # an AIS estimate with a smaller effective sample size is doubtful
CHUNK = 2**14  # states at a time, of all models together, to bound memory


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
    W, b, c = converted(theta, np.float64)
    if W.shape[1] > W.shape[2]:  # enumerate the visible units: the model with layers exchanged
        W, b, c = W.transpose(0, 2, 1), c, b
    n = W.shape[1]
    if n > MAX_ENUMERATED:
        raise ValueError(f"cannot enumerate a layer of {n} units; use annealed_log_z")
    total, at_once = xp.full(len(W), -xp.inf), max(1, CHUNK // len(W))
    for start in range(0, 2**n, at_once):
        codes = xp.arange(start, min(start + at_once, 2**n))
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
    engine : engines.plain.Engine
        What moves and weighs the particles, by ``Chain.anneal``.

    Returns
    -------
    LogZ
        The standard error is that of the logarithm of the mean weight (delta method). A weight
        that dwarfs the others makes it meaningless: look at the effective sample size too.
    """
    return annealed(theta, train_mean, keys, n_particles, n_temperatures, report, engine)[0]


def annealed(theta, train_mean, keys, n_particles, n_temperatures, report, engine):
    """The estimates; the particles in the end, (R, n_particles, m), and their log-weights."""
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
    ess = relative.sum(1) ** 2 / (relative**2).sum(1)
    value = LogZ(base_log_z + log_mean, error, ess)
    return value, chain.images(), base_log_z + to_host(weights)


def _log_sum_exp(terms, xp):
    """log Σ exp over the last axis."""
    largest = terms.max(-1)
    return largest + xp.log(xp.exp(terms - largest[..., None]).sum(-1))


def converted(theta, dtype):
    """W, b and c of ``theta`` in another precision."""
    return Parameters(*(array.astype(dtype) for array in theta[:3]))
