"""The CPU kernels, compiled by Numba.

Each works on the rows ``first`` … ``last`` − 1 of all replicas, counted through, and leaves the
interpreter free, so that several threads can share the rows: ``share_out``.

Units are 0 or 1, and from one Gibbs step to the next most stay as they were. So the activations
x = bias + W · state are not computed anew: for each unit that changed, its row of W is added or
subtracted. On a trained model that is several times less work than the matrix product.
"""

from itertools import pairwise
from pathlib import Path

import numpy as np
from llvmlite import ir
from numba import float32, int32, njit, types, uint32, uint64, uintp
from numba.extending import intrinsic

AT_ONCE = 8  # rows of W added in one pass over x
_WORTH_SHARING = 200_000  # numbers; below, a second thread costs more than it saves


def share_out(pool, threads, kernel, rows, width, *arguments):
    """``kernel(first, last, *arguments)`` over all ``rows``, each of ``width`` numbers."""
    if threads == 1 or rows * width < _WORTH_SHARING:
        kernel(0, rows, *arguments)
        return
    bounds = [rows * i // threads for i in range(threads + 1)]
    parts = [pool.submit(kernel, *pair, *arguments) for pair in pairwise(bounds)]
    for part in parts:
        part.result()


def _kernel(**options):
    """Compile at first use; keep the machine code for the next process where that is possible."""

    def decorate(function):
        options.update(nogil=True, error_model="numpy")
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError:  # no folder to keep it in can be written
            return njit(**options)(function)

    return decorate


def forget():
    """Delete the machine code that is kept; whether there was any."""
    folders = {k.stats.cache_path for k in globals().values() if hasattr(k, "stats")} - {None}
    files = [file for folder in folders for file in Path(folder).glob("compiled.*.nb[ci]")]
    for file in files:
        file.unlink(missing_ok=True)
    return bool(files)


@intrinsic
def _float_of_bits(typing_context, bits):
    """The float32 whose bits are this int32."""

    def codegen(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), codegen


@njit(inline="always")
def _exp(x):
    """exp(x) to 1e-7, written so that the compiler can vectorize it; inf from 88.4 on.

    2^k · polynomial(x − k ln 2), with the coefficients of the Cephes library (Moshier).
    """
    x = min(max(x, float32(-87)), float32(89))
    k = np.floor(x * float32(1.44269504088896341) + float32(0.5))
    r = x - k * float32(0.693359375) + k * float32(2.12194440e-4)  # ln 2 in two parts
    y = float32(1.9875691500e-4)
    y = y * r + float32(1.3981999507e-3)
    y = y * r + float32(8.3334519073e-3)
    y = y * r + float32(4.1665795894e-2)
    y = y * r + float32(1.6666665459e-1)
    y = y * r + float32(5.0000001201e-1)
    y = y * r * r + r + float32(1)
    return y * _float_of_bits((int32(k) + int32(127)) << int32(23))


@_kernel()
def _philox(key, row, draw, words):
    """A row of ``backend.philox``; ``words`` has whole blocks of four."""
    low = uint64(0xFFFFFFFF)
    for j in range(words.shape[0] // 4):
        c0, c1, c2, c3 = uint64(j), uint64(row), draw & low, draw >> uint64(32)
        key0, key1 = key & low, key >> uint64(32)
        for _ in range(10):
            product0, product2 = uint64(0xD2511F53) * c0, uint64(0xCD9E8D57) * c2
            c0, c1 = (product2 >> uint64(32)) ^ c1 ^ key0, product2 & low
            c2, c3 = (product0 >> uint64(32)) ^ c3 ^ key1, product0 & low
            key0, key1 = (key0 + uint64(0x9E3779B9)) & low, (key1 + uint64(0xBB67AE85)) & low
        words[4 * j], words[4 * j + 1] = uint32(c0), uint32(c1)
        words[4 * j + 2], words[4 * j + 3] = uint32(c2), uint32(c3)


@_kernel()
def transpose(first, last, W, out):
    """out (R, m, n) = W (R, n, m) with its layers exchanged, in bands of a few rows of ``out``."""
    _, n, m = W.shape
    tile = 16
    for start in range(first, last, tile):
        for column in range(0, n, tile):
            for row in range(start, min(start + tile, last)):
                replica, j = row // m, row % m
                source, target = W[replica], out[replica, j]
                for i in range(uintp(column), uintp(min(column + tile, n))):
                    target[i] = source[i, j]


@_kernel()
def list_on(first, last, state, changed, n_changed):
    """Count every unit that is on as changed."""
    n_rows, width = state.shape[1:]
    for q in range(first, last):
        on, units = state[q // n_rows, q % n_rows], changed[q // n_rows, q % n_rows]
        n = 0
        for k in range(width):
            units[n] = k
            n += on[k] != float32(0)
        n_changed[q // n_rows, q % n_rows] = n


@_kernel()
def add_changes(first, last, x, W, state, changed, n_changed):
    """x (R, B, N) += Σ over the changed units k of a row: ±W[k] (W: (R, M, N)), + if now on.

    ``changed`` (R, B, M + AT_ONCE) lists them, ``n_changed`` (R, B) says how many.
    """
    n_rows = x.shape[1]
    for q in range(first, last):
        r, i = q // n_rows, q % n_rows
        _add_rows(x[r, i], W[r], state[r, i], changed[r, i], n_changed[r, i])


@_kernel(fastmath={"contract"})
def _add_rows(x, W, state, units, n):
    units[n : n + AT_ONCE] = 0  # fills the last pass, in which they count as 0 · W[0]
    for i in range(0, n, AT_ONCE):
        w0, w1, w2, w3 = W[units[i]], W[units[i + 1]], W[units[i + 2]], W[units[i + 3]]
        w4, w5, w6, w7 = W[units[i + 4]], W[units[i + 5]], W[units[i + 6]], W[units[i + 7]]
        s0, s1 = _sign(state[units[i]]), _sign(state[units[i + 1]]) * (i + 1 < n)
        s2, s3 = _sign(state[units[i + 2]]) * (i + 2 < n), _sign(state[units[i + 3]]) * (i + 3 < n)
        s4, s5 = _sign(state[units[i + 4]]) * (i + 4 < n), _sign(state[units[i + 5]]) * (i + 5 < n)
        s6, s7 = _sign(state[units[i + 6]]) * (i + 6 < n), _sign(state[units[i + 7]]) * (i + 7 < n)
        for k in range(x.shape[0]):
            x[k] += ((s0 * w0[k] + s1 * w1[k]) + (s2 * w2[k] + s3 * w3[k])) + (
                (s4 * w4[k] + s5 * w5[k]) + (s6 * w6[k] + s7 * w7[k])
            )


@njit(inline="always")
def _sign(state):
    return float32(2) * state - float32(1)


@_kernel()
def draw_states(first, last, x, scale, offset, keys, draw, state, changed, n_changed):
    """Draw each unit with p(1) = σ(scale · x + offset), and list those that changed.

    x, state (R, B, N); ``offset`` (R, N); ``keys`` (R,) and ``draw`` as in ``backend.philox``.
    """
    n_rows, width = x.shape[1:]
    words = np.empty((width + 3) // 4 * 4, np.uint32)
    for q in range(first, last):
        r, i = q // n_rows, q % n_rows
        _philox(keys[r], i, uint64(draw), words)
        _compare(x[r, i], scale, offset[r], words)
        n_changed[r, i] = _replace(state[r, i], words, changed[r, i])


@_kernel()
def half_step(
    first, last, x, W, other_state, other_changed, other_n,
    scale, offset, keys, draw, state, changed, n_changed,
):  # fmt: skip
    """``add_changes`` of the other layer and ``draw_states`` of this one, while x is at hand."""
    n_rows, width = x.shape[1:]
    words = np.empty((width + 3) // 4 * 4, np.uint32)
    for q in range(first, last):
        r, i = q // n_rows, q % n_rows
        _add_rows(x[r, i], W[r], other_state[r, i], other_changed[r, i], other_n[r, i])
        _philox(keys[r], i, uint64(draw), words)
        _compare(x[r, i], scale, offset[r], words)
        n_changed[r, i] = _replace(state[r, i], words, changed[r, i])


@_kernel(fastmath={"contract"})
def _compare(x, scale, offset, words):
    """Each word, as u in [0, 1), gives way to 1 if it is below σ(scale · x + offset), else to 0."""
    for k in range(x.shape[0]):
        u = float32(int32(words[k] >> uint32(8))) * float32(2.0**-24)
        # u < 1 / (1 + exp(−a)). As u < 1, p = 1 always gives 1; p = 0 (exp is inf) always 0.
        words[k] = u + u * _exp(-(scale * x[k] + offset[k])) < float32(1)


@_kernel()
def _replace(state, words, units):
    """Put ``words`` in the place of ``state``; list the units that differ, and count them."""
    n = 0
    for k in range(state.shape[0]):
        new = float32(int32(words[k]))
        units[n] = k
        n += new != state[k]
        state[k] = new
    return n


@_kernel()
def sigmoid(first, last, x, bias, out):
    """out = 1 / (1 + exp(−(x + bias))), (R, B, N); ``bias`` (R, N)."""
    n_rows, width = x.shape[1:]
    for q in range(first, last):
        r, i = q // n_rows, q % n_rows
        for k in range(width):
            out[r, i, k] = float32(1) / (float32(1) + _exp(-(x[r, i, k] + bias[r, k])))


@_kernel()
def add_log_ratio(first, last, weights, x, c, v, slope, low, high):
    """weights (R, B) += log p*(v) at β = high minus that at β = low, in float64.

    That is (high − low) slope·v + Σ softplus(high · a) − softplus(low · a), a = x + c: see
    ``engine.log_ratio``.
    """
    n_rows = x.shape[1]
    for q in range(first, last):
        r, i = q // n_rows, q % n_rows
        linear, factor = _ratio(x[r, i], c[r], v[r, i], slope[r], low, high)
        weights[r, i] += (high - low) * linear + np.log(factor)


@_kernel(fastmath={"reassoc", "contract"})
def _ratio(x, c, v, slope, low, high):
    linear, factor = float32(0), 1.0
    for j in range(v.shape[0]):
        linear += slope[j] * v[j]
    for i in range(x.shape[0]):
        a = x[i] + c[i]
        size = abs(a)
        linear += max(a, float32(0))
        factor *= (float32(1) + _exp(-high * size)) / (float32(1) + _exp(-low * size))
    return linear, factor


@_kernel(fastmath={"contract"})
def ascend(first, last, rate, W, g, f, out):
    """out = W + rate · (g − f), arrays (R, n, m); ``rate`` (R,)."""
    n_rows, width = W.shape[1:]
    for q in range(first, last):
        r, i = q // n_rows, q % n_rows
        for k in range(width):
            out[r, i, k] = W[r, i, k] + rate[r] * (g[r, i, k] - f[r, i, k])


@_kernel(fastmath={"contract"})
def ascend_scaled(first, last, rate, weight, epsilon, W, g, f, H, out, average):
    """average = weight · H + (1 − weight) · f(1 − f); out = W + rate · (g − f) / (average + ε)."""
    n_rows, width = W.shape[1:]
    for q in range(first, last):
        r, i = q // n_rows, q % n_rows
        for k in range(width):
            G = f[r, i, k]
            h = weight[r] * H[r, i, k] + (float32(1) - weight[r]) * (G * (float32(1) - G))
            average[r, i, k] = h
            out[r, i, k] = W[r, i, k] + rate[r] * ((g[r, i, k] - G) / (h + epsilon[r]))
