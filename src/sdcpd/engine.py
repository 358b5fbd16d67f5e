"""Engines: the operations that take the time, for one kind of device each.

    numpy, cupy_float32   Engine            the plain meaning, in the terms of rbm.py
    numba                 CompiledEngine    the same on a CPU, by changes (compiled.py)
    cupy                  SplitEngine       the same on a GPU with tensor cores (split.py)

All draw the same random numbers and differ in roundings only.
"""

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from importlib.util import find_spec
from math import prod

import numpy as np

from . import rbm
from .backend import (
    BackendError,
    Stream,
    array_module,
    blas_threads,
    describe,
    free_memory,
    gpu_problem,
    say,
)
from .rbm import Parameters


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

    def ascend_scaled(self, theta, learning_rate, gradient_g, gradient_f, hessian, weight, epsilon):
        """θ + η (∇g − f̂′) / (H + ε), elementwise, with H ← weight · H + (1 − weight) · G(1 − G).

        G is f̂′: its G(1 − G) is the new estimate of the Hessian's diagonal. ``hessian`` is None
        before the first, which is then H itself. Returns θ and H.
        """
        estimate = rbm.hessian_diagonal(gradient_f)
        if hessian is not None:
            estimate = hessian.map(partial(_average, weight), estimate)
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


def _average(weight, old, new):
    """Exponential average λ·old + (1 − λ)·new, one λ a replica."""
    weight = each(weight, new)
    return weight * old + (1 - weight) * new


def log_ratio(x, low, high):
    """Σ_i softplus(high · x_i) − softplus(low · x_i) over the last axis; low ≤ high.

    As log Π (1 + e^{−high|x|}) / (1 + e^{−low|x|}) plus the linear part: one logarithm a
    particle instead of two a unit, and no difference of large numbers. The factors lie between
    ½ and 1, so that in float64 the product cannot underflow below 1,000 units.
    """
    xp = array_module(x)
    size = xp.abs(x)
    above, below = xp.exp(size * -high), xp.exp(size * -low)
    above += 1
    below += 1
    above /= below
    linear = xp.maximum(x, 0).sum(-1, dtype=xp.float64)
    return (high - low) * linear + xp.log(above.prod(-1, dtype=xp.float64))


PLAIN = Engine()


# ----------------------------------------------------------------------------- GPU memory

PAD_HIDDEN, PAD_VISIBLE = 64, 8
SHARE = 0.8  # of the free memory that replicas side by side may take


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


# ------------------------------------------------------------------- compiled, on the CPU


IN_CACHE = 100_000  # weights that fit into the second-level cache of a core


class CompiledEngine(Engine):
    """float32 on the CPU, with the kernels of compiled.py, on as many threads as the products."""

    def __init__(self):
        super().__init__(np)
        import numba  # here, because it need not be installed

        from . import compiled

        self.name, self.kernels, self.version = "numba", compiled, numba.__version__
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

    def ascend_scaled(self, theta, learning_rate, gradient_g, gradient_f, hessian, weight, epsilon):
        if hessian is None:  # with weight 0 the average is the estimate, whatever was before
            hessian, weight = gradient_f, np.zeros_like(weight)
        new, averages = [], []
        for arrays in zip(theta, gradient_g, gradient_f, hessian, strict=True):
            x, g, f, H = map(_in_rows, arrays)
            new.append(np.empty(arrays[0].shape, np.float32))
            averages.append(np.empty(arrays[0].shape, np.float32))
            out = _in_rows(new[-1]), _in_rows(averages[-1])
            scale = learning_rate, weight, epsilon
            self.run(self.kernels.ascend_scaled, x, *scale, x, g, f, H, *out)
        return Parameters(*new), Parameters(*averages)


def _in_rows(array):
    """In the three dimensions that a kernel wants."""
    return np.ascontiguousarray(array).reshape(len(array), -1, array.shape[-1])


def _bits(states):
    """States (R, B, N) as words, see compiled.py."""
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
        """The same, and new states drawn by them: ``compiled.half_step``."""
        self.engine.run(self.engine.kernels.half_step, self.x, self._update(state), *how)

    def _update(self, state):
        self.age += 1
        return self.x, self.W, state, self.told, self.changes, self.age % self.FRESH == 0


def _aligned(*shape):
    """An empty array that begins with a cache line, as loads across two take twice as long."""
    raw = np.empty(4 * prod(shape) + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + 4 * prod(shape)].view(np.float32).reshape(shape)


# ---------------------------------------------------------------------------- the choice

NAMES = ("numpy", "numba", "cupy", "cupy_float32")


@cache
def numba_problem():
    """Why the compiled engine cannot be used, as one line, or None if it can."""
    try:
        import numba
    except ImportError as error:  # not installed, or not made for this NumPy
        return f"Numba cannot be imported ({str(error).splitlines()[0]})"
    return "NUMBA_DISABLE_JIT is set" if numba.config.DISABLE_JIT else None


@cache
def tensor_core_problem():
    """Why products of halves are of no use on this GPU, as one line, or None if they are."""
    import cupy

    capability = cupy.cuda.Device().compute_capability
    if int(capability) < 70:
        return f"the GPU (compute capability {capability}) has no tensor cores"
    return None


def choose(name="auto"):
    """The name of the engine to use, and why it is not a faster one (a line, or None).

    Raises
    ------
    BackendError
        If ``name`` is unknown, or asked for and cannot be used.
    """
    if name not in ("auto", *NAMES):
        raise BackendError(f"unknown backend {name!r}: choose auto, {', '.join(NAMES)}")
    if name == "numpy":
        return name, None
    problems = []
    for candidate in ("cupy", "cupy_float32", "numba") if name == "auto" else (name,):
        if candidate == "numba":
            problem = numba_problem()
        else:
            problem = gpu_problem() or (candidate == "cupy" and tensor_core_problem())
        if not problem:
            return candidate, "; ".join(problems) or None
        if problem not in problems:
            problems.append(problem)
    if name != "auto":
        instead = "cupy_float32" if name == "cupy" and not gpu_problem() else "auto"
        raise BackendError(f"backend {name} asked for, but {problems[0]}; use backend={instead}")
    return "numpy", "; ".join(problems)


_CHOOSE = """
import json, sys
from sdcpd.engine import BackendError, choose
try:
    print(json.dumps(choose(sys.argv[1])))
except BackendError as error:
    sys.exit(str(error))
"""


def choose_apart(name="auto"):
    """As ``choose``, in a process of its own: one that has tried a GPU holds some of its memory."""
    if name == "numpy" or find_spec("cupy") is None:
        return choose(name)
    command = [sys.executable, "-c", _CHOOSE, name]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"trying the GPU failed ({done.returncode})"]
        raise BackendError(said[-1])
    return tuple(json.loads(done.stdout.splitlines()[-1]))


def select(name="auto"):
    """The engine of this name, see ``choose``, with its kernels compiled."""
    name, _ = choose(name)
    if name == "numpy":
        return PLAIN
    if name == "numba":
        engine = CompiledEngine()
    else:
        import cupy

        from .split import CupyDevice, SplitEngine

        engine = Engine(cupy) if name == "cupy_float32" else SplitEngine(CupyDevice())
    start = time.monotonic()
    try:
        _warm_up(engine)
    except Exception:  # reading what was kept of the kernels raises many types
        if name != "numba" or not engine.kernels.forget():
            raise
        say("note: the compiled kernels that were kept are damaged: compiling them again")
        _warm_up(engine)
    taken = time.monotonic() - start
    if taken > COMPILING:
        say(f"note: compiled the kernels in {taken:.0f} s; they are kept for the next time")
    return engine


COMPILING = 4  # seconds; kernels that were kept are loaded in less


def _warm_up(engine):
    """Use every kernel once, on a model of two units."""
    xp = engine.xp
    one, two = xp.ones(1, xp.float32), xp.ones((1, 2), xp.float32)
    theta = engine.prepare(Parameters(xp.ones((1, 2, 2), xp.float32), two, two))
    v, stream = engine.states(xp.ones((1, 2, 2), xp.uint8)), Stream([[0, 0]], xp)
    p = engine.hidden_probability(theta, v)
    g = engine.statistics(theta, *engine.gibbs(theta, v, 1, stream, p))
    engine.ascend_scaled(engine.ascend(theta, one, g, g), one, g, g, None, one, one)
    engine.chain(theta, v, stream, two[0]).anneal(0, 1, xp.zeros((1, 2)))
