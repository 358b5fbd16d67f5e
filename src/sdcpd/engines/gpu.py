"""The GPU engine: matrix products of halves on tensor cores, nearly as exact as float32's.

States are 0 or 1, exact in fp16. A weight is the sum of two fp16 numbers, W = W_hi + W_lo, so one
product over twice the units, accumulated in float32, gives what float32 would, with about five
times its rounding (the "exact split").
The kernels around the products are in kernels.cu; their shapes, with n and m padded so that rows
are aligned, and padding that is 0 and enters no sum:

    halves  (R, n, 2, m)   W_hi and W_lo              states v  (R, B, 2, m)   both copies of v
    p       (R, B, 2, n)   p_hi and p_lo              states h  (R, B, n, 2)   both copies of h
"""

from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..rbm import Parameters
from .plain import PAD_HIDDEN, PAD_VISIBLE, Chain, Engine, padded

SINGLE, HALF = 0, 2  # CUDA_R_32F, CUDA_R_16F


def _as_c(value):
    """A kernel argument in the type of kernels.cu."""
    if value is None:
        return np.uint64(0)
    if isinstance(value, (bool, int)):
        return np.int32(value)
    return np.float32(value) if isinstance(value, float) else value


class SplitParameters(NamedTuple):
    """R models, with the halves of W that the products read."""

    W: object  # (R, n, m) float32
    b: object  # (R, m)
    c: object  # (R, n)
    halves: object  # (R, n padded, 2, m padded) fp16

    def select(self, rows):
        """The models ``rows`` alone."""
        return SplitParameters(*(array[rows] for array in self))


class SplitEngine(Engine):
    """Products of halves accumulated in float32, with the kernels of kernels.cu.

    Parameters
    ----------
    xp : module
        ``cupy``.
    """

    precision = "exact split (two fp16 terms, float32 sums)"
    threads = 128  # a block

    def __init__(self, xp):
        from cupy_backends.cuda.libs import cublas

        super().__init__(xp)
        self.name, self.cublas = "cupy", cublas

    def prepare(self, theta):
        W, b, c = theta[:3]
        return SplitParameters(W, b, c, self._ascend(W, with_halves=True)[2])

    def states(self, images):
        n_replicas, n_rows, m = images.shape
        width = padded(m, PAD_VISIBLE)
        v = self.xp.empty((n_replicas, n_rows, 2, width), self.xp.float16)
        images = self.xp.ascontiguousarray(images, dtype=self.xp.uint8)
        n_rows *= n_replicas
        self.launch("load_states", n_rows * width // 4, images, np.int64(n_rows), m, width, v)
        return v

    def chain(self, theta, v, stream, base=None):
        return SplitChain(self, theta, v, stream, base)

    def hidden_probability(self, theta, v):
        x = self.hidden_sums(theta, v)
        p = self.xp.empty((*x.shape[:2], 2, x.shape[2]), self.xp.float16)
        n_rows, n = x.shape[0] * x.shape[1], theta.c.shape[1]
        shape = np.int64(n_rows), x.shape[1], n, x.shape[2]
        self.launch("probabilities", x.size, x, theta.c, *shape, p)
        return p

    def hidden_sums(self, theta, v):
        """W v, shape (R, B, n padded): v (B × 2m) times halvesᵀ (2m × n)."""
        n_replicas, n_rows, _, m = v.shape
        n = theta.halves.shape[1]
        x = self.xp.empty((n_replicas, n_rows, n), self.xp.float32)
        shape, leading = (n_replicas, n_rows, n, 2 * m), (2 * m, 2 * m, n)
        strides = 2 * m * n_rows, 2 * m * n, n * n_rows
        self._product(v, theta.halves, x, shape, leading, strides, (False, True))
        return x

    def visible_sums(self, theta, h):
        """Wᵀ h, shape (R, B, m padded): h (B × 2n) times halves, read as (2n × m)."""
        n_replicas, n_rows, n, _ = h.shape
        m = theta.halves.shape[3]
        x = self.xp.empty((n_replicas, n_rows, m), self.xp.float32)
        shape, leading = (n_replicas, n_rows, m, 2 * n), (2 * n, m, m)
        strides = 2 * n * n_rows, 2 * m * n, m * n_rows
        self._product(h, theta.halves, x, shape, leading, strides)
        return x

    def statistics(self, theta, v, p_hidden):
        """pᵀ v / B: both read as (2B × units), so that a row of v meets p_hi, and its copy p_lo."""
        n_replicas, n, m = theta.W.shape
        n_rows, width, height = v.shape[1], v.shape[3], p_hidden.shape[3]
        W = self.xp.empty((n_replicas, n, m), self.xp.float32)
        shape, leading = (n_replicas, n, m, 2 * n_rows), (height, width, m)
        strides = 2 * n_rows * height, 2 * n_rows * width, n * m
        self._product(p_hidden, v, W, shape, leading, strides, (True, False), 1 / n_rows)
        return Parameters(W, self._means(v, m, False), self._means(p_hidden, n, True))

    def ascend(self, theta, learning_rate, gradient_g, gradient_f=None):
        f = gradient_f or Parameters(None, None, None)
        W, _, halves = self._ascend(theta.W, gradient_g.W, f.W, learning_rate, with_halves=True)
        b, _, _ = self._ascend(theta.b, gradient_g.b, f.b, learning_rate)
        c, _, _ = self._ascend(theta.c, gradient_g.c, f.c, learning_rate)
        return SplitParameters(W, b, c, halves)

    def ascend_scaled(
        self, theta, learning_rate, gradient_g, gradient_f, hessian, lambda_hessian, epsilon
    ):
        old = hessian or Parameters(None, None, None)
        g, f, rate, scale = gradient_g, gradient_f, learning_rate, (lambda_hessian, epsilon)
        W, H_W, halves = self._ascend(theta.W, g.W, f.W, rate, (old.W, *scale), with_halves=True)
        b, H_b, _ = self._ascend(theta.b, g.b, f.b, rate, (old.b, *scale))
        c, H_c, _ = self._ascend(theta.c, g.c, f.c, rate, (old.c, *scale))
        return SplitParameters(W, b, c, halves), Parameters(H_W, H_b, H_c)

    def _ascend(self, x, g=None, f=None, rate=None, scale=None, with_halves=False):
        """The kernel of the same name: the new x, the new H and the halves, None where not made.

        ``scale`` is the old H, λ_H and ε.
        """
        xp, n_replicas, m = self.xp, x.shape[0], x.shape[-1]
        n = x.shape[1] if x.ndim == 3 else 1
        result = x if g is None else xp.empty_like(x)
        H = xp.empty_like(x) if scale else None
        height, width, halves = n, m, None
        if with_halves:
            height, width = padded(n, PAD_HIDDEN), padded(m, PAD_VISIBLE)
            halves = xp.empty((n_replicas, height, 2, width), xp.float16)
        shape = n_replicas, n, m, height, width
        old, *scale = scale or (None, None, None)
        inputs = x, g, f, old, rate, *scale
        self.launch("ascend", n_replicas * height * width, *inputs, *shape, result, H, halves)
        return result, H, halves

    def _means(self, values, n_units, are_split):
        n_replicas, n_rows, _, width = values.shape
        means = self.xp.empty((n_replicas, n_units), self.xp.float32)
        shape = n_replicas, n_rows, n_units, width, are_split
        self.launch("batch_means", means.size, values, *shape, means)
        return means

    def _product(self, a, b, out, shape, leading, strides, transpose=(False, False), alpha=1.0):
        """out = alpha · a b, batched: fp16 into float32, stored row by row.

        Parameters
        ----------
        shape : (batch, rows of out, columns of out, length of the sums)
        leading : length of a row in memory of a, of b and of out
        strides : elements from one matrix of the batch to the next, of a, of b and of out
        transpose : whether a and b are stored transposed
        """
        cublas, (batch, rows, columns, length) = self.cublas, shape
        scalars = np.array([alpha, 0], np.float32)
        # cuBLAS stores column by column: it sees all three transposed, and so computes bᵀ aᵀ.
        cublas.gemmStridedBatchedEx(
            self.xp.cuda.device.get_cublas_handle(),
            int(transpose[1]),  # CUBLAS_OP_N = 0, CUBLAS_OP_T = 1
            int(transpose[0]),
            *(columns, rows, length, scalars.ctypes.data),
            *(b.data.ptr, HALF, leading[1], strides[1]),
            *(a.data.ptr, HALF, leading[0], strides[0], scalars.ctypes.data + 4),
            *(out.data.ptr, SINGLE, leading[2], strides[2]),
            *(batch, cublas.CUBLAS_COMPUTE_32F, cublas.CUBLAS_GEMM_DEFAULT),
        )

    def launch(self, name, n_threads, *arguments):
        """Run a kernel of kernels.cu; Python's int and float become C's, None a null pointer."""
        blocks, arguments = -(-n_threads // self.threads), tuple(map(_as_c, arguments))
        self._kernel(name)((blocks,), (self.threads,), arguments)

    @cache  # noqa: B019 - one engine in a process
    def _kernel(self, name):
        return self._module.get_function(name)

    @cached_property
    def _module(self):
        source = Path(__file__).with_name("kernels.cu").read_text(encoding="utf-8")
        return self.xp.RawModule(code=source, options=("-std=c++17",))


class SplitChain(Chain):
    """Chains whose half steps are a product and a kernel that draws."""

    def __init__(self, engine, theta, v, stream, base=None):
        super().__init__(theta, v, stream, base)
        self.engine, xp = engine, engine.xp
        n_replicas, n_rows = v.shape[:2]
        self.h = xp.empty((n_replicas, n_rows, theta.halves.shape[1], 2), xp.float16)
        self.own = xp.empty_like(v)  # ``v`` as it was given stays as it is
        if base is not None:
            m = theta.b.shape[1]
            slope = (theta.b - base).astype(xp.float64)
            self.dot = (v[:, :, 0, :m].astype(xp.float64) @ slope[:, :, None])[..., 0].copy()

    def step(self, p_hidden=None):
        x = self.engine.hidden_sums(self.theta, self.v) if p_hidden is None else None
        self._draw(x, self.theta.c, p_hidden, self.h, 1)
        x = self.engine.visible_sums(self.theta, self.h)
        self._draw(x, self.theta.b, None, self.own, 0)
        self.v = self.own

    def _draw(self, x, bias, given, state, interleaved):
        n_replicas, n_rows = state.shape[:2]
        width = state.shape[2 if interleaved else 3]
        keys, draw = self.stream.device_keys, np.uint64(self.stream.next())
        shape = np.int64(n_replicas * n_rows), n_rows, bias.shape[1], width, interleaved
        n_threads = n_replicas * n_rows * width // 4
        self.engine.launch("sample_units", n_threads, x, bias, given, keys, draw, *shape, state)

    def hidden_probability(self):
        return self.engine.hidden_probability(self.theta, self.v)

    def images(self):
        return self.v[:, :, 0, : self.theta.b.shape[1]]

    def anneal(self, low, high, weights):
        theta, keys = self.theta, self.stream.device_keys
        n_replicas, n_rows = self.v.shape[:2]
        low, high = np.float32(low), np.float32(high)
        x = self.engine.hidden_sums(theta, self.v)
        shape = n_rows, theta.c.shape[1], x.shape[2]
        draw = np.uint64(self.stream.next())
        n_threads = n_replicas * n_rows * self.engine.threads  # a block for each chain
        arguments = x, theta.c, keys, draw, *shape, low, high, self.dot, weights, self.h
        self.engine.launch("anneal_hidden", n_threads, *arguments)
        x = self.engine.visible_sums(theta, self.h)
        shape, draw = (n_rows, theta.b.shape[1], x.shape[2]), np.uint64(self.stream.next())
        arguments = x, theta.b, self.base, keys, draw, *shape, high, self.dot, self.own
        self.engine.launch("anneal_visible", n_threads, *arguments)
        self.v = self.own
