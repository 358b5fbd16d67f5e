"""The binary restricted Boltzmann machine: parameters, conditionals, sampling, free energy.

m visible units v and n hidden units h, all in {0, 1}; R replicas of the model (trials, or settings
of the hyperparameters) lie side by side on the first axis of every array:

    W (R, n, m)   b (R, m)   c (R, n)   v (R, B, m)   h (R, B, n)

Energy: E(v, h) = −hᵀWv − bᵀv − cᵀh (eq. 2 of the paper).
"""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from .device import array_module
from .philox import random_words

WEIGHT_STD = 0.01  # of the initial weights, section 4.1 of the paper
MEAN_CLIP = 0.001  # pixels that never change would give an infinite bias


class Parameters(NamedTuple):
    """θ = {W, b, c} of R models, or anything of that shape: a gradient, a Hessian diagonal."""

    W: object  # (R, n, m) weights
    b: object  # (R, m) visible biases
    c: object  # (R, n) hidden biases

    def map(self, function, *others):
        """``function`` applied to W, to b and to c, each together with those of ``others``."""
        return Parameters(*(function(*arrays) for arrays in zip(self, *others, strict=True)))

    def select(self, rows):
        """The models ``rows`` alone."""
        return self.map(lambda array: array[rows])


def logit_of_mean(mean):
    """The biases of the model in which every pixel is independent with this mean; float64."""
    mean = np.clip(np.asarray(mean, dtype=np.float64), MEAN_CLIP, 1 - MEAN_CLIP)
    return np.log(mean) - np.log1p(-mean)


def initialize(train_mean, n_hidden, keys, xp=np):
    """The initial models of section 4.1: W ~ N(0, .01²), b = logit of the train mean, c = 0.

    Parameters
    ----------
    train_mean : array_like, shape (m,)
        Mean of the training images.
    n_hidden : int
    keys : array_like of uint64, shape (R, 2)
        One Philox key for each replica. Computed on the host, so equal on every device.

    Returns
    -------
    Parameters
        float32 arrays of ``xp``.
    """
    b = logit_of_mean(train_mean)
    n_visible = len(b)
    W = np.empty((len(keys), n_hidden, n_visible), np.float32)
    for weights, key in zip(W, keys, strict=True):
        words = random_words(key, n_hidden * n_visible) >> np.uint64(11)
        weights.flat = WEIGHT_STD * ndtri((words + 0.5) * 2.0**-53)
    b = np.tile(b.astype(np.float32), (len(keys), 1))
    c = np.zeros((len(keys), n_hidden), np.float32)
    return Parameters(xp.asarray(W), xp.asarray(b), xp.asarray(c))


def sigmoid(x):
    """1 / (1 + exp(−x)), written over ``x``."""
    xp = array_module(x)
    with np.errstate(over="ignore"):  # exp(−x) = inf gives 0, which is right
        xp.negative(x, out=x)
        xp.exp(x, out=x)
        x += 1
        return xp.reciprocal(x, out=x)


def softplus(x):
    """log(1 + exp(x)) without overflow; several times faster than ``logaddexp(0, x)``."""
    xp = array_module(x)
    tail = xp.abs(x)
    xp.negative(tail, out=tail)
    xp.exp(tail, out=tail)
    if tail.dtype == np.float32:
        tail += 1  # NumPy has a vectorised float32 log, but no such log1p
        xp.log(tail, out=tail)
    else:
        xp.log1p(tail, out=tail)
    tail += xp.maximum(x, 0)
    return tail


def hidden_activation(theta, v):
    """c + W v, the input of each hidden unit; shape (R, B, n)."""
    activation = v @ theta.W.transpose(0, 2, 1)
    activation += theta.c[:, None, :]
    return activation


def visible_activation(theta, h):
    """b + Wᵀ h, the input of each visible unit; shape (R, B, m)."""
    activation = h @ theta.W
    activation += theta.b[:, None, :]
    return activation


def hidden_probability(theta, v):
    """p(h_i = 1 | v); shape (R, B, n)."""
    return sigmoid(hidden_activation(theta, v))


def visible_probability(theta, h):
    """p(v_j = 1 | h); shape (R, B, m)."""
    return sigmoid(visible_activation(theta, h))


def sample(probability, stream):
    """States in {0, 1} with this probability of being 1, float32, of the same shape."""
    uniform = stream.uniform(*probability.shape[1:])
    # u < 1 always and u ≥ 0: probability 1 always gives 1, probability 0 always gives 0.
    return array_module(probability).less(uniform, probability, out=uniform)


def statistics(v, p_hidden):
    """−E_{p(h|v)}[∇E(v, h)], averaged over the batch: (mean p(h|v) vᵀ, mean v, mean p(h|v)).

    At data this is ∇g, at samples of the model it is f̂′ (eqs. 6 and 7 of the paper). The hidden
    units enter by their probabilities, not by samples.
    """
    W = p_hidden.transpose(0, 2, 1) @ v
    W /= v.shape[1]
    return Parameters(W, v.mean(1), p_hidden.mean(1))


def hessian_diagonal(gradient_f):
    """Diagonal of ∇²f from ∇f: G(1 − G), elementwise, since all units are in {0, 1}."""
    return gradient_f.map(lambda G: G * (1 - G))


def log_unnormalized(theta, v):
    """log Σ_h exp(−E(v, h)) = bᵀv + Σ_i softplus(c_i + W_i v), shape (R, B), summed in float64.

    This is g(θ, v) of the paper (eq. 4), the negative free energy.
    """
    xp = array_module(v)
    linear = (v @ theta.b[:, :, None])[..., 0]
    return linear + softplus(hidden_activation(theta, v)).sum(-1, dtype=xp.float64)
