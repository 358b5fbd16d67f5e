"""The CPU kernels, compiled by Numba.

Each works on the rows ``first`` … ``last`` − 1 of all replicas, counted through, and leaves the
interpreter free, so that several threads can share the rows: ``share_out``.

Units are 0 or 1, and from one Gibbs step to the next most stay as they were. So the activations
x = bias + W · state are not computed anew: the rows of W of the units that were turned on are
added, and those of the units turned off subtracted. On a trained model that is several times less
work than the matrix product, and where all change not more. Where M units act on N:

    W      (R, blocks, M + 2, LANES)  packed: LANES columns after the others, so that a block stays
                                      in the cache for all rows of the batch; then the sum of all
                                      its rows, and zeros
    x      (R, B, N or more)          Σ of W over the units that are on
    state  (R, B, words) uint64       unit u is bit u % WORD of word u // WORD
"""

from itertools import pairwise
from pathlib import Path

import numpy as np
from llvmlite import ir
from numba import float32, int32, njit, types, uint32, uint64, uintp
from numba.core import cgutils
from numba.extending import intrinsic

from .plain import FACTORS

WORD = 64  # units in a word of a state
LANES = 32  # columns in a block of W, so few that their sums stay in registers
AT_ONCE = 4  # rows of W added without a look whether there are more
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
    files = [file for folder in folders for file in Path(folder).glob("cpu_kernels.*.nb[ci]")]
    for file in files:
        file.unlink(missing_ok=True)
    return bool(files)


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
    return y * np.int32((int32(k) + int32(127)) << int32(23)).view(np.float32)


@intrinsic
def _bits(typing_context, flags):
    """A word in which the bits are on whose ``flags`` (WORD,) are not 0."""

    def codegen(context, builder, signature, arguments):
        vector = ir.VectorType(ir.IntType(32), WORD)
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        flags = builder.load(builder.bitcast(data, vector.as_pointer()), align=4)
        on = builder.icmp_unsigned("!=", flags, vector([0] * WORD))
        return builder.bitcast(on, ir.IntType(WORD))

    return types.uint64(flags), codegen


@intrinsic
def _count(typing_context, word):
    """How many bits are on."""

    def codegen(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), codegen


@intrinsic
def _add_rows(typing_context, x, W, changes, n):
    """x (LANES,) += Σ ±W[u] over the first n, a multiple of AT_ONCE, of ``receive``.

    Said to LLVM itself, which keeps the sums in registers (two, so that no addition waits for the
    last), where a loop of Numba's would store them. It splits the vectors as the processor needs.
    """
    signature = types.void(x, W, changes, types.uint64)

    def codegen(context, builder, signature, arguments):
        index, vector = ir.IntType(64), ir.VectorType(ir.FloatType(), LANES)
        arrays = zip(signature.args[:3], arguments, strict=False)
        x, W, changes = (context.make_array(t)(context, builder, a).data for t, a in arrays)
        x, W = (builder.bitcast(data, vector.as_pointer()) for data in (x, W))
        sums = [cgutils.alloca_once(builder, vector) for _ in range(2)]
        builder.store(builder.load(x, align=4), sums[0])
        builder.store(vector([0.0] * LANES), sums[1])
        with cgutils.for_range(builder, builder.udiv(arguments[3], index(AT_ONCE))) as loop:
            first = builder.mul(loop.index, index(AT_ONCE))
            for k in range(AT_ONCE):
                change = builder.load(builder.gep(changes, [builder.add(first, index(k))]))
                row = builder.gep(W, [builder.zext(builder.lshr(change, change.type(1)), index)])
                # ±1: the bits of 1 and, where the unit is off, of the sign
                sign = builder.or_(builder.shl(change, change.type(31)), change.type(0x3F800000))
                sign = builder.bitcast(sign, ir.FloatType())
                sign = builder.insert_element(vector(ir.Undefined), sign, change.type(0))
                lanes = ir.VectorType(change.type, LANES)([0] * LANES)
                sign = builder.shuffle_vector(sign, sign, lanes)
                term = builder.fmul(builder.load(row, align=4), sign, ("contract",))
                new = builder.fadd(builder.load(sums[k % 2]), term, ("contract",))
                builder.store(new, sums[k % 2])
        builder.store(builder.fadd(*map(builder.load, sums)), x, align=4)
        return context.get_dummy_value()

    return signature, codegen


@_kernel()
def pack(first, last, W, transposed, out):
    """Blocks ``first`` … of W (R, M, N), or (R, N, M) if ``transposed``."""
    n_blocks, n_units = out.shape[1], uintp(out.shape[2] - 2)
    width = W.shape[1] if transposed else W.shape[2]
    for q in range(first, last):
        r, k = q // n_blocks, q % n_blocks
        block, start, n = out[r, k], uintp(LANES * k), uintp(min(LANES, width - LANES * k))
        block[n_units:], block[:, n:] = 0, 0
        for u in range(n_units):
            for j in range(n):
                w = W[r, start + j, u] if transposed else W[r, u, start + j]
                block[u, j] = w
                block[n_units, j] += w


@_kernel()
def receive(first, last, x, W, state, told, changes, anew):
    """Bring x, which is that of the states ``told``, up to date with ``state``; or make it anew.

    ``changes`` (R, B, M + AT_ONCE) takes 2 · u for a unit u to be added, 2 · u + 1 for one to be
    subtracted; filled up with the zeros of W.
    """
    n_rows, n_units = x.shape[1], uint64(W.shape[2] - 2)
    words, counts = range(uintp(state.shape[2])), np.empty(x.shape[1], np.uint64)
    for r in range(uintp(first // n_rows), uintp((last - 1) // n_rows + 1)):
        rows = range(uintp(max(first - r * n_rows, 0)), uintp(min(last - r * n_rows, n_rows)))
        for i in rows:
            n_on = n_changed = n = uint64(0)
            for k in words:
                n_on += _count(state[r, i, k])
                n_changed += _count(state[r, i, k] ^ told[r, i, k])
            if anew or n_changed > min(n_on, n_units - n_on) + n_units // uint64(32):
                x[r, i] = 0
                if n_on > n_units - n_on:  # begin with all on, the sum
                    changes[r, i, 0], n = 2 * n_units, uint64(1)
                for k in words:
                    all_on = ~uint64(0) >> uint64(max(0, WORD * (k + 1) - W.shape[2] + 2))
                    told[r, i, k] = n * all_on
            for k in words:
                on = state[r, i, k]
                word, told[r, i, k] = on ^ told[r, i, k], on
                while word:
                    bit = _count(~word & (word - uint64(1)))  # the lowest
                    unit, off = uint64(WORD * k) + bit, ~on >> bit & uint64(1)
                    changes[r, i, n] = unit << uint64(1) | off
                    n += uint64(1)
                    word &= word - uint64(1)
            for k in range(uintp(AT_ONCE)):
                changes[r, i, n + k] = 2 * n_units + uint64(2)
            counts[i] = (n + uint64(AT_ONCE - 1)) // uint64(AT_ONCE) * uint64(AT_ONCE)
        for k in range(uintp(W.shape[1])):
            for i in rows:
                _add_rows(x[r, i, LANES * k : LANES * k + LANES], W[r, k], changes[r, i], counts[i])


@_kernel(fastmath={"contract"})
def half_step(first, last, received, scale, offset, keys, draw, target):
    """``receive``, and then draw the states ``target``, 1 with probability σ(scale · x + offset).

    ``offset`` (R, N); ``keys`` (R,) and ``draw`` as in ``philox.philox``.
    """
    receive(first, last, *received)
    x, (n_rows, width) = received[0], (target.shape[1], offset.shape[1])
    whole = (width + LANES - 1) // LANES * LANES  # so that no loop over vectors has a rest
    words, bias = np.zeros(WORD * target.shape[2], np.uint32), np.zeros(whole, np.float32)
    for q in range(first, last):
        r, i = q // n_rows, q % n_rows
        if i == 0 or q == first:
            bias[:width] = offset[r]
        _philox(keys[r], i, uint64(draw), words[:whole])
        _compare(x[r, i], scale, bias, words)
        words[width:] = 0
        for k in range(target.shape[2]):
            target[r, i, k] = _bits(words[WORD * k : WORD * k + WORD])


@njit(inline="always")
def _philox(key, row, draw, words):
    """A row of ``philox.philox``; ``words`` has whole blocks of four."""
    low, half = uint64(0xFFFFFFFF), uint64(32)
    for j in range(words.shape[0] // 4):
        c0, c1, c2, c3 = uint64(j), uint64(row), draw, draw >> half
        key0, key1 = key, key >> half
        for _ in range(10):  # what is in the upper halves has no effect
            product0, product2 = uint64(0xD2511F53) * (c0 & low), uint64(0xCD9E8D57) * (c2 & low)
            c0, c1 = (product2 >> half) ^ c1 ^ key0, product2
            c2, c3 = (product0 >> half) ^ c3 ^ key1, product0
            key0, key1 = key0 + uint64(0x9E3779B9), key1 + uint64(0xBB67AE85)
        words[4 * j], words[4 * j + 1] = uint32(c0), uint32(c1)
        words[4 * j + 2], words[4 * j + 3] = uint32(c2), uint32(c3)


@njit(inline="always")
def _compare(x, scale, offset, words):
    """Each word, as u in [0, 1), gives way to 1 if it is below σ(scale · x + offset), else to 0."""
    for k in range(offset.shape[0]):
        u = float32(int32(words[k] >> uint32(8)))  # times 2^24
        # u < 1 / (1 + exp(−a)). As u < 1, p = 1 always gives 1; p = 0 (exp is inf) always 0.
        words[k] = u + u * _exp(-(scale * x[k] + offset[k])) < float32(2**24)


@_kernel()
def add_log_ratio(first, last, weights, x, c, state, slope, low, high):
    """weights (R, B) += log p*(v) at β = high minus that at β = low, in float64.

    That is (high − low) slope·v + Σ softplus(high · a) − softplus(low · a), a = x + c: see
    ``plain.log_ratio``.
    """
    n_rows = x.shape[1]
    for q in range(first, last):
        r, i = q // n_rows, q % n_rows
        linear, logs = _visible_part(state[r, i], slope[r]), 0.0
        for k in range(0, c.shape[1], FACTORS):
            linear, factor = _ratio(x[r, i, k:], c[r, k : k + FACTORS], linear, low, high)
            logs += np.log(factor)
        weights[r, i] += (high - low) * linear + logs


@_kernel(fastmath={"reassoc", "contract"})
def _visible_part(state, slope):
    linear = float32(0)
    for k in range(state.shape[0]):
        for u in range(min(WORD, slope.shape[0] - WORD * k)):
            is_on = int32((state[k] >> uint64(u)) & uint64(1))
            linear += slope[WORD * k + u] * float32(is_on)
    return linear


@_kernel(fastmath={"reassoc", "contract"})
def _ratio(x, c, linear, low, high):
    factor = 1.0
    for i in range(c.shape[0]):
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
def ascend_scaled(first, last, rate, lambda_hessian, epsilon, W, g, f, H, out, average):
    """average = λ_H H + (1 − λ_H) f(1 − f); out = W + rate · (g − f) / (average + ε)."""
    n_rows, width = W.shape[1:]
    for q in range(first, last):
        r, i = q // n_rows, q % n_rows
        for k in range(width):
            G = f[r, i, k]
            new = (float32(1) - lambda_hessian[r]) * (G * (float32(1) - G))
            h = lambda_hessian[r] * H[r, i, k] + new
            average[r, i, k] = h
            out[r, i, k] = W[r, i, k] + rate[r] * ((g[r, i, k] - G) / (h + epsilon[r]))
