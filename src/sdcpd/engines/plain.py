"""The plain meaning of every operation, in the terms of rbm.py: the engines numpy, cupy_float32."""

from functools import partial

import numpy as np

from .. import rbm
from ..device import array_module, describe, free_memory

PAD_HIDDEN, PAD_VISIBLE = 64, 8  # of the arrays on a GPU
FACTORS = 512  # between ½ and 1, that are multiplied
SHARE = 0.8  # of the free memory that replicas side by side may take


class Engine:
    """The plain meaning of every operation, with NumPy or with CuPy.

    Shapes as in rbm.py. ``v`` and ``p`` may be an engine's own form of states and probabilities:
    only its methods read them.
    """

    precision = "float32"

    def __init__(self, xp=np):
        self.xp = xp
        self.name = "numpy" if xp is np else "cupy_float32"

    def describe(self):
        """Engine, precision, device and library versions, for the run file."""
        precision = f"{self.precision} training, float64 likelihood sums"
        return {"engine": self.name, "precision": precision} | describe(self.xp)

    def prepare(self, theta):
        """``theta`` in the engine's own form; it still has W, b and c."""
        return theta

    def states(self, images):
        """Rows of {0, 1} (R, B, m) in the engine's own form."""
        return images.astype(self.xp.float32)

    def chain(self, theta, v, stream, base=None):
        """Gibbs chains that start at ``v``; ``base`` (m,) is for ``anneal`` alone."""
        return Chain(theta, v, stream, base)

    def gibbs(self, theta, v, n_steps, stream, p_hidden=None):
        """``n_steps`` transitions v → h → v: the visible states ṽ after them, and p(h | ṽ).

        ``p_hidden`` is p(h | v) of the start, where the caller has it already.
        """
        chain = self.chain(theta, v, stream)
        for step in range(n_steps):
            chain.step(p_hidden if step == 0 else None)
        return chain.v, chain.hidden_probability()

    def capacity(self, n_hidden, n_visible, n_rows, n_images):
        """How many replicas of this size to train side by side at most; None: no limit is known.

        On a GPU so many as its free memory holds, by an estimate. ``n_rows`` is the larger of batch
        size and particles.
        """
        if self.xp is np:
            return None
        chunk = 4 * 2**14 * (n_hidden + n_visible) * 4  # of images, when they are evaluated
        free = SHARE * free_memory(self.xp) - n_images * n_visible - chunk
        return int(free / replica_bytes(n_hidden, n_visible, n_rows, n_images))

    def hidden_probability(self, theta, v):
        """p(h | v)."""
        return rbm.hidden_probability(theta, v)

    def statistics(self, theta, v, p_hidden):
        """∇g at data, f̂′ at samples, of models like ``theta``: see ``rbm.statistics``."""
        return rbm.statistics(v, p_hidden)

    def ascend(self, theta, learning_rate, gradient_g, gradient_f=None):
        """θ + η (∇g − f̂′), or θ + η ∇g; ``learning_rate`` (R,)."""
        if gradient_f is not None:
            gradient_g = gradient_g.map(lambda g, f: g - f, gradient_f)
        return theta.map(lambda x, dx: x + each(learning_rate, dx) * dx, gradient_g)

    def ascend_scaled(
        self, theta, learning_rate, gradient_g, gradient_f, hessian, lambda_hessian, epsilon
    ):
        """θ + η (∇g − f̂′) / (H + ε), elementwise, with H ← λ_H H + (1 − λ_H) G(1 − G).

        G is f̂′: its G(1 − G) is the new estimate of the Hessian's diagonal. ``hessian`` is None
        before the first, which is then H itself. Returns θ and H.
        """
        estimate = rbm.hessian_diagonal(gradient_f)
        if hessian is not None:
            estimate = hessian.map(partial(_average, lambda_hessian), estimate)
        difference = gradient_g.map(lambda g, f: g - f, gradient_f)
        scaled = difference.map(lambda d, H: d / (H + each(epsilon, H)), estimate)
        return theta.map(lambda x, dx: x + each(learning_rate, dx) * dx, scaled), estimate


class Chain:
    """B Gibbs chains of each of R models. ``v`` holds their visible states.

    With ``base``, a bias of the visible units, ``anneal`` moves them through the distributions

        p_β(v) ∝ exp(((1 − β) base + β b)ᵀ v) Π_i (1 + exp(β (c_i + W_i v))).
    """

    def __init__(self, theta, v, stream, base=None):
        self.theta, self.v, self.stream, self.base = theta, v, stream, base

    def step(self, p_hidden=None):
        """v → h → v."""
        p = self.hidden_probability() if p_hidden is None else p_hidden
        h = rbm.sample(p, self.stream)
        self.v = rbm.sample(rbm.visible_probability(self.theta, h), self.stream)

    def hidden_probability(self):
        """p(h | v) at the present states."""
        return rbm.hidden_probability(self.theta, self.v)

    def images(self):
        """The visible states as an array (R, B, m)."""
        return self.v

    def anneal(self, low, high, weights):
        """From β = ``low`` to ``high``: weigh the chains, then move them.

        Adds log p*_high(v) − log p*_low(v) to ``weights``, float64 (R, B). The chains are samples
        of p_low: they are weighed before they move with the parameters of p_high, which also is
        where they are weighed next.
        """
        low, high = np.float32(low), np.float32(high)
        x = rbm.hidden_activation(self.theta, self.v)
        slope = self.theta.b - self.base  # derivative of the visible bias in β
        weights += (high - low) * (self.v @ slope[:, :, None])[..., 0]
        weights += log_ratio(x, low, high)
        x *= high
        h = rbm.sample(rbm.sigmoid(x), self.stream)
        x = high * rbm.visible_activation(self.theta, h) + (1 - high) * self.base
        self.v = rbm.sample(rbm.sigmoid(x), self.stream)


def each(values, array):
    """``values`` (R,), one a replica, shaped so that they multiply ``array`` (R, …)."""
    return values.reshape(-1, *(1,) * (array.ndim - 1))


def _average(lambda_hessian, old, new):
    """λ_H · old + (1 − λ_H) · new, one λ_H a replica (eq. 12)."""
    lambda_hessian = each(lambda_hessian, new)
    return lambda_hessian * old + (1 - lambda_hessian) * new


def log_ratio(x, low, high):
    """Σ_i softplus(high · x_i) − softplus(low · x_i) over the last axis; low ≤ high.

    As log Π (1 + e^{−high|x|}) / (1 + e^{−low|x|}) plus the linear part: one logarithm for FACTORS
    units instead of two a unit, and no difference of large numbers. The factors lie between ½ and
    1, so that in float64 their product cannot underflow.
    """
    xp = array_module(x)
    size = xp.abs(x)
    above, below = xp.exp(size * -high), xp.exp(size * -low)
    above += 1
    below += 1
    above /= below
    linear = xp.maximum(x, 0).sum(-1, dtype=xp.float64)
    parts = [above[..., k : k + FACTORS] for k in range(0, x.shape[-1], FACTORS)]
    logs = [xp.log(part.prod(-1, dtype=xp.float64)) for part in parts]
    return (high - low) * linear + sum(logs)


PLAIN = Engine()


def padded(n, multiple):
    """n rounded up to a multiple."""
    return -(-n // multiple) * multiple


def replica_bytes(n_hidden, n_visible, n_rows, n_images):
    """An estimate, from above, of the memory that a replica takes in training and in AIS."""
    n, m = padded(n_hidden, PAD_HIDDEN), padded(n_visible, PAD_VISIBLE)
    # S-DCP-D takes most: W, its halves and H before the update, now, and after the step; and
    # g and f.
    parameters = 11 * 4 * n * m
    rows = n_rows * 4 * (4 * m + 5 * n)  # states, their sums, probabilities
    return parameters + rows + 32 * n_images  # the order of the images, and how it is found
