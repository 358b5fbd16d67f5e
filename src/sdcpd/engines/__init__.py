"""Engines: the operations that take the time, for one kind of device each.

    numpy, cupy_float32   plain.Engine        the plain meaning, in the terms of rbm.py
    numba                 cpu.CompiledEngine  the same on a CPU, by changes
    cupy                  gpu.SplitEngine     the same on a GPU with tensor cores

All draw the same random numbers and differ in roundings only.
"""

import json
import subprocess
import sys
import time
from functools import cache
from importlib.util import find_spec

from ..device import BackendError, gpu_problem
from ..philox import Stream
from ..progress import say
from ..rbm import Parameters
from .plain import PLAIN, Engine

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
from sdcpd.engines import BackendError, choose
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
        from .cpu import CompiledEngine

        engine = CompiledEngine()
    else:
        import cupy

        from .gpu import SplitEngine

        engine = Engine(cupy) if name == "cupy_float32" else SplitEngine(cupy)
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
