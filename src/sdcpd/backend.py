"""NumPy or CuPy, chosen once, and the random numbers that both share.

Random numbers are counter-based (Philox-4x64-10): number ``i`` of a stream is a function of the
stream's key and of ``i`` alone. So a trial's numbers depend neither on the device, nor on which
trials run beside it, nor on where a run was resumed.
"""

import hashlib
import json
import os
import platform
from functools import cache

import numpy as np

BLOCK = 8  # a 256-bit Philox block holds eight 32-bit numbers
_READ_AHEAD = 512  # blocks; so that a small model does not pay a call per draw


class BackendError(RuntimeError):
    """The requested backend cannot be used; the message says why and what to do."""


@cache
def gpu_problem():
    """Why no GPU can be used, as one line, or None if one can."""
    try:
        import cupy
    except ImportError:
        return "CuPy is not installed (uv run --extra cuda12 …, or --extra cuda13)"
    try:
        if not cupy.cuda.is_available():
            return "CuPy is installed but finds no CUDA device"
        cupy.zeros(1).sum().item()  # needs a working driver and compiler, not only a device
    except Exception as error:  # CuPy raises many types here; every one of them means "no GPU"
        return f"CuPy cannot use the GPU: {str(error).splitlines()[0]}"
    return None


def select(name="auto"):
    """The array module to compute with.

    Parameters
    ----------
    name : {"auto", "numpy", "cupy"}
        "auto" is CuPy where a GPU can be used and NumPy elsewhere.

    Returns
    -------
    xp : module
        ``numpy`` or ``cupy``.

    Raises
    ------
    BackendError
        If ``name`` is unknown, or "cupy" is asked for and cannot be used.
    """
    if name not in ("auto", "numpy", "cupy"):
        raise BackendError(f"unknown backend {name!r}: choose auto, numpy or cupy")
    problem = None if name == "numpy" else gpu_problem()
    if name == "numpy" or (name == "auto" and problem):
        return np
    if problem:
        raise BackendError(f"backend cupy asked for, but {problem}; use backend=numpy for the CPU")
    import cupy

    return cupy


def array_module(array):
    """The module that ``array`` belongs to: ``numpy`` or ``cupy``."""
    if isinstance(array, np.ndarray):
        return np
    import cupy

    return cupy.get_array_module(array)


def to_host(array):
    """``array`` as a NumPy array."""
    return array if isinstance(array, np.ndarray) else array.get()


def synchronize(xp):
    """Wait until the device has finished, so that a clock read now is honest."""
    if xp is not np:
        xp.cuda.get_current_stream().synchronize()


def describe(xp):
    """What computes here: device, library versions and precision, for the run file."""
    about = {
        "backend": xp.__name__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "precision": "float32 training, float64 likelihood sums",
    }
    if xp is np:
        from threadpoolctl import threadpool_info

        blas = [i for i in threadpool_info() if i.get("user_api") == "blas"]
        about["device"] = f"CPU {_cpu_name()}"
        about["blas"] = ", ".join(f"{i['internal_api']} {i['version']}" for i in blas)
        about["threads"] = max((i["num_threads"] for i in blas), default=1)
    else:
        properties = xp.cuda.runtime.getDeviceProperties(xp.cuda.Device().id)
        about["device"] = f"GPU {properties['name'].decode()}"
        about["cupy"] = xp.__version__
        about["cuda"] = str(xp.cuda.runtime.runtimeGetVersion())
        about["tf32"] = os.environ.get("CUPY_TF32", "0")
    return about


def _cpu_name():
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def key(*fields):
    """A 128-bit Philox key, shape (2,) uint64, from numbers and names.

    Different fields give independent streams; equal fields the same stream everywhere.
    """
    digest = hashlib.blake2b(json.dumps(fields).encode(), digest_size=16).digest()
    return np.frombuffer(digest, dtype="<u8").astype(np.uint64)


def random_words(key, n, position=0):
    """``n`` random 64-bit words of the stream ``key`` from block ``position`` on, on the host."""
    return np.random.Philox(key=key, counter=int(position)).random_raw(n)


class Stream:
    """Uniform random numbers for R replicas that advance together.

    Replica r reads the Philox-4x64-10 sequence of ``keys[r]``, eight 24-bit numbers to a block.

    Parameters
    ----------
    keys : array_like of uint64, shape (R, 2)
    xp : module
        ``numpy`` or ``cupy``.
    position : int
        Number of blocks already used: what a checkpoint stores.
    """

    def __init__(self, keys, xp, position=0):
        self.keys = np.asarray(keys, dtype=np.uint64).reshape(-1, 2)
        self.xp = xp
        self.position = int(position)
        if xp is np:
            self._generators = [np.random.Philox(key=k, counter=self.position) for k in self.keys]
            self._ahead = np.empty((len(self.keys), 0), np.float32)
        else:
            self._device_keys = xp.asarray(self.keys)

    def uniform(self, *shape):
        """The next numbers, float32 in [0, 1), shape (R, *shape). 1.0 itself never occurs."""
        count = int(np.prod(shape))
        n_blocks = -(-count // BLOCK)  # whole blocks, so that every draw starts at one
        if self.xp is np:
            flat = self._take(n_blocks)
        else:
            from .kernels import philox_uniform

            flat = philox_uniform(self._device_keys, self.position, n_blocks)
        self.position += n_blocks
        return flat[:, :count].reshape(len(self.keys), *shape)

    def _take(self, n_blocks):
        width = n_blocks * BLOCK
        if self._ahead.shape[1] < width:
            fresh_blocks = max(n_blocks, _READ_AHEAD)
            fresh = np.empty((len(self.keys), fresh_blocks * BLOCK), np.float32)
            for row, generator in zip(fresh, self._generators, strict=True):
                words = generator.random_raw(fresh_blocks * BLOCK // 2).view(np.uint32)
                words >>= 8  # 24 bits are exact in float32, and cannot round up to 1.0
                row[:] = words.view(np.int32)  # of which the conversion is faster
            fresh *= np.float32(2.0**-24)
            had = self._ahead.shape[1]
            self._ahead = np.concatenate([self._ahead, fresh], axis=1) if had else fresh
        flat, self._ahead = self._ahead[:, :width], self._ahead[:, width:]
        return flat

    def select(self, rows):
        """The stream of the replicas ``rows`` alone, from here on."""
        return Stream(self.keys[rows], self.xp, self.position)
