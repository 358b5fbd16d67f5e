"""The CPU kernels, compiled by Numba.

Each works on the rows ``first`` … ``last`` − 1 of all replicas, counted through, and leaves the
interpreter free, so that several threads can share the rows: ``share_out``.

Units are 0 or 1, and from one Gibbs step to the next most stay as they were. So the activations
x = bias + W · state are not computed anew: the rows of W of the units that were turned on are
added, and those of the units turned off subtracted. Arrays that the sums need, of M units of the
other layer and N of this one:

    W      (R, blocks, M + 1, LANES)  packed: LANES columns after the other, so that all rows of
                                      the batch find a block in the cache; row M: sum of the others
    x      (R, B, LANES · blocks)     Σ of W over the units that are on
    state  (R, B, words) uint64       unit u is bit u % 64 of word u // 64
    lists  (R, B, 2, M), n (R, B, 2)  the units turned on since x was told, those turned off; counts
"""

from itertools import pairwise
from pathlib import Path

import numpy as np
from llvmlite import ir
from numba import float32, int32, int64, njit, types, uint32, uint64, uintp
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 32  # columns in a block of W: their sums stay in vector registers
AT_ONCE = 4  # rows of W; lists are filled up to a multiple of it
WORD = 64  # units in a word of a state
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


@intrinsic
def _bits(typing_context, flags):
    """The 64 bits of which are on that ``flags`` (64,) is not 0."""

    def codegen(context, builder, signature, arguments):
        words = ir.VectorType(ir.IntType(32), WORD)
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        flags = builder.load(builder.bitcast(data, words.as_pointer()), align=4)
        return builder.bitcast(builder.icmp_unsigned("!=", flags, words([0] * WORD)), ir.IntType(64))

    return types.uint64(flags), codegen


@intrinsic
def _lowest(typing_context, bits):
    """The number of the lowest bit that is on."""

    def codegen(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.IntType(1)(1))

    return types.uint64(types.uint64), codegen


@intrinsic
def _count(typing_context, bits):
    """How many bits are on."""

    def codegen(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), codegen


@intrinsic
def _add_rows(typing_context, x, W, changes, n):
    """x (LANES,) += Σ ±W[u] over changes[:n], see ``_list``; n is a multiple of AT_ONCE.

    Written for LLVM, which keeps sums in registers that a loop of Numba's would store: two, so
    that one addition need not wait for the other. It splits the vectors as the processor needs.
    """
    signature = types.void(x, W, changes, types.int64)

    def codegen(context, builder, signature, arguments):
        def data(k):
            return context.make_array(signature.args[k])(context, builder, arguments[k]).data

        index, vector = ir.IntType(64), ir.VectorType(ir.FloatType(), LANES)
        x, W = (builder.bitcast(data(k), vector.as_pointer()) for k in (0, 1))
        sums = [cgutils.alloca_once(builder, vector) for _ in range(2)]
        builder.store(builder.load(x, align=4), sums[0])
        builder.store(vector([0.0] * LANES), sums[1])
        with cgutils.for_range(builder, builder.udiv(arguments[3], index(AT_ONCE))) as loop:
            first = builder.mul(loop.index, index(AT_ONCE))
            for k in range(AT_ONCE):
                change = builder.load(builder.gep(data(2), [builder.add(first, index(k))]))
                row = builder.gep(W, [builder.zext(builder.lshr(change, change.type(1)), index)])
                sign = builder.or_(builder.shl(change, change.type(31)), change.type(0x3F800000))
                sign = builder.bitcast(sign, ir.FloatType())
                sign = builder.insert_element(vector(ir.Undefined), sign, change.type(0))
                sign = builder.shuffle_vector(sign, sign, ir.VectorType(ir.IntType(32), LANES)([0] * LANES))
                exact = ("contract",)
                term = builder.fmul(builder.load(row, align=4), sign, exact)
                new = builder.fadd(builder.load(sums[k % 2]), term, exact)
                builder.store(new, sums[k % 2])
        builder.store(builder.fadd(*map(builder.load, sums)), x, align=4)
        return context.get_dummy_value()

    return signature, codegen


@_kernel()
def pack(first, last, W, transposed, out):
    """Blocks ``first`` … of W (R, M, N), or (R, N, M) if ``transposed``; ``out`` (…) holds zeros."""
    n_blocks, n_units = out.shape[1], uintp(out.shape[2] - 2)
    width = W.shape[1] if transposed else W.shape[2]
    for q in range(first, last):
        r, k = q // n_blocks, q % n_blocks
        block, start = out[r, k], uintp(LANES * k)
        for u in range(n_units):
            for j in range(uintp(min(LANES, width - LANES * k))):
                w = W[r, start + j, u] if transposed else W[r, u, start + j]
                block[u, j] = w
                block[n_units, j] += w


@_kernel()
def sum_rows(first, last, W, state, lists, n, out):
    """out (R, N, M') = Σ of the packed W (M, N) over the units that are on in the rows of ``state``, transposed."""
    n_rows, width = state.shape[1], W.shape[2] - 2
    tile = np.zeros((16, LANES), np.float32)
    for r in range(uintp(first // n_rows), uintp((last - 1) // n_rows + 1)):
        start, end = max(first - r * n_rows, 0), min(last - r * n_rows, n_rows)
        for i in range(start, end):
            _list_all(state[r, i], width, lists[r, i], n[r, i])
        for k in range(W.shape[1]):
            for i in range(uintp(start), uintp(end), uintp(16)):
                number = min(uintp(16), uintp(end) - i)
                tile[:] = 0
                for t in range(number):
                    _add_rows(tile[t], W[r, k], lists[r, i + t], n[r, i + t, 0])
                for c in range(uintp(min(LANES, out.shape[1] - LANES * k))):
                    for t in range(number):
                        out[r, uintp(LANES * k) + c, i + t] = tile[t, c]


@_kernel()
def receive(first, last, x, W, state, lists, n, anew):
    """Bring x up to date with the other layer's ``state``: by what has changed, or ``anew``."""
    n_rows, width = x.shape[1], W.shape[2] - 2
    for r in range(uintp(first // n_rows), uintp((last - 1) // n_rows + 1)):
        start, end = max(first - r * n_rows, 0), min(last - r * n_rows, n_rows)
        for i in range(start, end):
            n_on = n[r, i, 1]
            if anew or n[r, i, 0] > min(n_on, width - n_on) + width // 32:
                x[r, i] = 0
                _list_all(state[r, i], width, lists[r, i], n[r, i])
        for k in range(W.shape[1]):
            for i in range(uintp(start), uintp(end)):
                sums = x[r, i, LANES * k : LANES * k + LANES]
                _add_rows(sums, W[r, k], lists[r, i], n[r, i, 0])
        n[r, start:end, 0] = 0


@_kernel()
def _list_all(state, width, changes, n):
    """As if all had been off before. Where most are on: the sum of all on, those that are not off."""
    n_on = 0
    for k in range(state.shape[0]):
        n_on += _count(state[k])
    most, n_listed = n_on > width - n_on, uintp(0)
    if most:
        changes[0], n_listed = 2 * width, uintp(1)
    for k in range(state.shape[0]):
        all_units = ~uint64(0) >> uint64(max(0, WORD * (k + 1) - width))
        which = ~state[k] & all_units if most else state[k]
        n_listed = _append(changes, n_listed, WORD * k, which, state[k])
    n[1] = n_on
    _fill_up(changes, n_listed, width, n)


@njit(inline="always")
def _append(changes, n_listed, start, which, state):
    """List the units of a word ``which`` as 2 · unit, + 1 if it is now off."""
    while which:
        bit = _lowest(which)
        which &= which - uint64(1)
        changes[n_listed] = uint64(2 * start) + uint64(2) * bit + (~state >> bit & uint64(1))
        n_listed += uintp(1)
    return n_listed


@njit(inline="always")
def _fill_up(changes, count, width, n):
    """With the row of zeros."""
    changes[count : count + uintp(AT_ONCE)] = 2 * width + 2
    n[0] = (count + uintp(AT_ONCE - 1)) // uintp(AT_ONCE) * uintp(AT_ONCE)


@_kernel(fastmath={"contract"})
def draw_states(first, last, x, scale, offset, keys, draw, state, lists, n):
    """Draw each unit with p(1) = σ(scale · x + offset), and list those that changed.

    ``offset`` (R, N); ``keys`` (R,) and ``draw`` as in ``backend.philox``.
    """
    n_rows, width = x.shape[1], offset.shape[1]
    whole = (width + LANES - 1) // LANES * LANES  # so that no loop has a rest
    words, bias = np.zeros(WORD * state.shape[2], np.uint32), np.zeros(whole, np.float32)
    for q in range(first, last):
        r, i = q // n_rows, q % n_rows
        if i == 0 or q == first:
            bias[:width] = offset[r]
        _philox(keys[r], i, uint64(draw), words[:whole])
        _compare(x[r, i], scale, bias, words)
        words[width:] = 0
        _replace(state[r, i], words, width, lists[r, i], n[r, i])


@_kernel()
def half_step(
    first, last, x, W, other_state, other_lists, other_n, anew,
    scale, offset, keys, draw, state, lists, n,
):  # fmt: skip
    """``receive`` and ``draw_states``."""
    receive(first, last, x, W, other_state, other_lists, other_n, anew)
    draw_states(first, last, x, scale, offset, keys, draw, state, lists, n)


@njit(inline="always")
def _philox(key, row, draw, words):
    """A row of ``backend.philox``; ``words`` has whole blocks of LANES."""
    low, half = uint64(0xFFFFFFFF), uint64(32)
    for j in range(words.shape[0] // LANES * (LANES // 4)):
        c0, c1, c2, c3 = uint64(j), uint64(row), draw, draw >> half
        key0, key1 = key, key >> half
        for _ in range(10):  # what the upper halves hold does not matter
            product0, product2 = uint64(0xD2511F53) * (c0 & low), uint64(0xCD9E8D57) * (c2 & low)
            c0, c1 = (product2 >> half) ^ c1 ^ key0, product2
            c2, c3 = (product0 >> half) ^ c3 ^ key1, product0
            key0, key1 = key0 + uint64(0x9E3779B9), key1 + uint64(0xBB67AE85)
        words[4 * j], words[4 * j + 1] = uint32(c0), uint32(c1)
        words[4 * j + 2], words[4 * j + 3] = uint32(c2), uint32(c3)


@njit(inline="always")
def _compare(x, scale, offset, words):
    """Each word, as u in [0, 1), gives way to 1 if it is below σ(scale · x + offset), else to 0."""
    for k in range(offset.shape[0] // LANES * LANES):
        u = float32(int32(words[k] >> uint32(8)))  # times 2^24
        # u < 1 / (1 + exp(−a)). As u < 1, p = 1 always gives 1; p = 0 (exp is inf) always 0.
        words[k] = u + u * _exp(-(scale * x[k] + offset[k])) < float32(2**24)


@njit(inline="always")
def _replace(state, words, width, lists, n):
    """Put ``words`` in the place of ``state``; list the units that change."""
    n_listed = uintp(0)
    for k in range(state.shape[0]):
        old, new = state[k], _bits(words[WORD * k : WORD * k + WORD])
        state[k] = new
        n[1] += _count(new) - _count(old)
        n_listed = _append(lists, n_listed, WORD * k, new ^ old, new)
    _fill_up(lists, n_listed, width, n)


@_kernel()
def sigmoid(first, last, x, bias, out):
    """out (R, B, N) = 1 / (1 + exp(−(x + bias))); ``bias`` (R, N)."""
    n_rows, width = out.shape[1:]
    for q in range(first, last):
        r, i = q // n_rows, q % n_rows
        for k in range(width):
            out[r, i, k] = float32(1) / (float32(1) + _exp(-(x[r, i, k] + bias[r, k])))


@_kernel()
def add_log_ratio(first, last, weights, x, c, state, slope, low, high):
    """weights (R, B) += log p*(v) at β = high minus that at β = low, in float64.

    That is (high − low) slope·v + Σ softplus(high · a) − softplus(low · a), a = x + c: see
    ``engine.log_ratio``.
    """
    n_rows = x.shape[1]
    for q in range(first, last):
        r, i = q // n_rows, q % n_rows
        linear, factor = _ratio(x[r, i], c[r], state[r, i], slope[r], low, high)
        weights[r, i] += (high - low) * linear + np.log(factor)


@_kernel(fastmath={"reassoc", "contract"})
def _ratio(x, c, state, slope, low, high):
    linear, factor = float32(0), 1.0
    for k in range(state.shape[0]):
        for u in range(min(WORD, slope.shape[0] - WORD * k)):
            is_on = int32((state[k] >> uint64(u)) & uint64(1))
            linear += slope[WORD * k + u] * float32(is_on)
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
