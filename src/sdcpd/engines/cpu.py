"""The engine numba: the same on a CPU, by changes, with the kernels of cpu_kernels.py."""

from concurrent.futures import ThreadPoolExecutor
from math import prod

import numpy as np

from .. import rbm
from ..device import blas_threads
from ..rbm import Parameters
from .plain import Chain, Engine, padded

IN_CACHE = 100_000  # weights that fit into the second-level cache of a core


class CompiledEngine(Engine):
    """float32 on the CPU, on as many threads as the products."""

    def __init__(self):
        super().__init__(np)
        import numba  # here, because it need not be installed

        from . import cpu_kernels

        self.name, self.kernels, self.version = "numba", cpu_kernels, numba.__version__
        self.threads = blas_threads()
        self.pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None

    def describe(self):
        return super().describe() | {"numba": self.version}

    def run(self, kernel, array, *arguments):
        """Share out the rows of ``array`` (R, B, N) among the threads."""
        n_replicas, n_rows, width = array.shape
        work = n_replicas * n_rows, width
        self.kernels.share_out(self.pool, self.threads, kernel, *work, *arguments)

    def capacity(self, n_hidden, n_visible, n_rows, n_images):
        """One of those models whose weights would drive each other out of the cache."""
        return 1 if n_hidden * n_visible > IN_CACHE else None

    def chain(self, theta, v, stream, base=None):
        return CompiledChain(self, theta, v, stream, base)

    def hidden_probability(self, theta, v):
        x = _Sums(self, theta.W, v.shape[1], True).receive(_bits(v))
        return rbm.sigmoid(x + theta.c[:, None])

    def statistics(self, theta, v, p_hidden):
        # Wᵀ, row by row: the sum of p(h | v) over the images in which a unit is on
        sums = _Sums(self, p_hidden / np.float32(v.shape[1]), v.shape[2])
        W = np.ascontiguousarray(sums.receive(_bits(v.transpose(0, 2, 1))).transpose(0, 2, 1))
        return Parameters(W, v.mean(1), p_hidden.mean(1))

    def ascend(self, theta, learning_rate, gradient_g, gradient_f=None):
        if gradient_f is None:
            return super().ascend(theta, learning_rate, gradient_g)
        new = []
        for arrays in zip(theta, gradient_g, gradient_f, strict=True):
            x, g, f = map(_in_rows, arrays)
            new.append(np.empty(arrays[0].shape, np.float32))
            self.run(self.kernels.ascend, x, learning_rate, x, g, f, _in_rows(new[-1]))
        return Parameters(*new)

    def ascend_scaled(
        self, theta, learning_rate, gradient_g, gradient_f, hessian, lambda_hessian, epsilon
    ):
        if hessian is None:  # with λ_H = 0 the average is the estimate, whatever was before
            hessian, lambda_hessian = gradient_f, np.zeros_like(lambda_hessian)
        new, averages = [], []
        for arrays in zip(theta, gradient_g, gradient_f, hessian, strict=True):
            x, g, f, H = map(_in_rows, arrays)
            new.append(np.empty(arrays[0].shape, np.float32))
            averages.append(np.empty(arrays[0].shape, np.float32))
            out = _in_rows(new[-1]), _in_rows(averages[-1])
            scale = learning_rate, lambda_hessian, epsilon
            self.run(self.kernels.ascend_scaled, x, *scale, x, g, f, H, *out)
        return Parameters(*new), Parameters(*averages)


def _in_rows(array):
    """In the three dimensions that a kernel wants."""
    return np.ascontiguousarray(array).reshape(len(array), -1, array.shape[-1])


def _bits(states):
    """States (R, B, N) as words, see cpu_kernels.py."""
    packed = np.packbits(np.ascontiguousarray(states != 0), axis=2, bitorder="little")
    words = np.zeros((*packed.shape[:2], padded(packed.shape[2], 8)), np.uint8)
    words[:, :, : packed.shape[2]] = packed
    return words.view(np.uint64)


class CompiledChain(Chain):
    """Chains that keep the activations of both layers, and bring them up to date by changes."""

    def __init__(self, engine, theta, v, stream, base=None):
        self.engine, self.theta, self.stream, self.base = engine, theta, stream, base
        self.visible, self.hidden = _bits(v), _bits(np.zeros((*v.shape[:2], theta.c.shape[1])))
        self.to_visible = _Sums(engine, theta.W, v.shape[1])
        self.to_hidden = _Sums(engine, theta.W, v.shape[1], True)

    @property
    def v(self):
        n_visible = self.theta.b.shape[1]
        bits = np.unpackbits(self.visible.view(np.uint8), 2, n_visible, "little")
        return bits.astype(np.float32)

    def step(self, p_hidden=None):  # which the activations make superfluous
        self._move(np.float32(1), self.theta.b, self.theta.c)

    def hidden_probability(self):
        return rbm.sigmoid(self.to_hidden.receive(self.visible) + self.theta.c[:, None])

    def anneal(self, low, high, weights):
        low, high, (_, b, c) = np.float32(low), np.float32(high), self.theta
        self.to_hidden.receive(self.visible)
        x, add_log_ratio = self.to_hidden.x, self.engine.kernels.add_log_ratio
        slope = b - self.base
        self.engine.run(add_log_ratio, x, weights, x, c, self.visible, slope, low, high)
        self._move(high, high * b + (1 - high) * self.base, high * c)

    def _move(self, scale, visible_bias, hidden_bias):
        for sums, source, bias, target in (
            (self.to_hidden, self.visible, hidden_bias, self.hidden),
            (self.to_visible, self.hidden, visible_bias, self.visible),
        ):
            sums.draw(source, scale, bias, self.stream.device_keys, self.stream.next(), target)


class _Sums:
    """The rows of W (R, M, N), or (R, N, M) if ``transposed``, added over the M units that are on,
    in each of ``n_rows``."""

    FRESH = 64  # updates after which rounding errors could begin to add up

    def __init__(self, engine, W, n_rows, transposed=False):
        self.engine, lanes, word = engine, engine.kernels.LANES, engine.kernels.WORD
        n_replicas, (n_units, width) = len(W), W.shape[:0:-1] if transposed else W.shape[1:]
        n_blocks = padded(width, lanes) // lanes
        self.W = _aligned(n_replicas, n_blocks, n_units + 2, lanes)
        blocks = self.W.reshape(n_replicas, n_blocks, -1)
        engine.run(engine.kernels.pack, blocks, np.ascontiguousarray(W), transposed, self.W)
        # 16 more: rows of a power of 2 would drive each other out of the cache.
        self.x = _aligned(n_replicas, n_rows, n_blocks * lanes + 16)
        self.sums = self.x[:, :, :width]
        self.told = np.zeros((n_replicas, n_rows, padded(n_units, word) // word), np.uint64)
        shape = n_replicas, n_rows, n_units + engine.kernels.AT_ONCE
        self.changes, self.age = np.empty(shape, np.uint32), -1  # so the first are made anew

    def receive(self, state):
        """The sums (R, n_rows, N) at these states of the M units."""
        self.engine.run(self.engine.kernels.receive, self.x, *self._update(state))
        return self.sums

    def draw(self, state, *how):
        """The same, and new states drawn by them: ``cpu_kernels.half_step``."""
        self.engine.run(self.engine.kernels.half_step, self.x, self._update(state), *how)

    def _update(self, state):
        self.age += 1
        return self.x, self.W, state, self.told, self.changes, self.age % self.FRESH == 0


def _aligned(*shape):
    """An empty array that begins with a cache line, as loads across two take twice as long."""
    raw = np.empty(4 * prod(shape) + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + 4 * prod(shape)].view(np.float32).reshape(shape)
