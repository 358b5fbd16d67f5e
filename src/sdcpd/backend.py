"""NumPy or CuPy, and the random numbers that both share.

Random numbers are counter-based (Philox-4x32-10, Salmon et al. 2011): the number of a unit is a
function of the replica's key, of the number of the draw, of the row (chain) and of the unit alone.
So a trial's numbers depend neither on the device, nor on which trials run beside it, nor on where
a run was resumed; and a kernel makes each number where it is needed. Initial weights and our
binarizations of datasets, which are always made on the host, are drawn by NumPy's Philox-4x64-10.
"""

import hashlib
import json
import os
import platform
import shutil
import sys
import tempfile
from contextlib import suppress
from functools import cache
from importlib.util import find_spec

import numpy as np

from . import ROOT

BLOCK = 4  # numbers that one Philox counter gives
_ROUNDS = 10


class BackendError(RuntimeError):
    """The requested device or engine cannot be used; the message says why and what to do."""


_PROBE = 'extern "C" __global__ void probe(float* x) { x[threadIdx.x] = threadIdx.x; }'


@cache
def gpu_problem():
    """Why no GPU can be used, as one line, or None if one can.

    It tries the driver, the compiler and a matrix product. Where there is a GPU, this process has
    then begun to use it.
    """
    if find_spec("cupy") is None:
        return "CuPy is not installed (uv run --extra cuda12 …, or --extra cuda13)"
    driver = 0
    try:
        _find_cache()
        import cupy

        driver = cupy.cuda.runtime.driverGetVersion()
        if not driver:
            return "CuPy is installed but finds no NVIDIA driver"
        cupy.cuda.runtime.getDeviceCount()
        x = cupy.empty((2, 2), "float32")
        cupy.RawModule(code=_PROBE).get_function("probe")((1,), (4,), (x,))
        if (x @ x).get().tolist() != [[2, 3], [6, 11]]:
            return "CuPy is installed but its results are wrong on this GPU"
    except Exception as error:  # many types; every one of them means "no GPU"
        lines = [line.strip() for line in str(error).splitlines() if line.strip(" =")]
        line = lines[0] if lines else type(error).__name__
        if "cudaErrorInsufficientDriver" in line:
            version = f"{driver // 1000}.{driver % 1000 // 10}"
            return f"the NVIDIA driver, for CUDA {version}, is too old for CuPy: try --extra cuda12"
        if "cudaErrorNoDevice" in line:
            return "CuPy is installed but finds no CUDA device"
        return f"CuPy cannot use the GPU: {line}"
    return None


def _find_cache():
    """CuPy keeps what it compiles in the home folder; here where that cannot be written to."""
    home = os.path.expanduser("~/.cupy/kernel_cache")
    try:
        os.makedirs(home, exist_ok=True)
        tempfile.TemporaryFile(dir=home).close()
    except OSError:
        os.environ.setdefault("CUPY_CACHE_DIR", str(ROOT / ".snakemake/cupy"))


def columns():
    """Of the terminal that ``say`` writes to; None where it is none."""
    live = not os.environ.get("SDCPD_PROGRESS_LOG") and sys.stderr.isatty()
    return shutil.get_terminal_size().columns if live else None


def say(line, passing=False):
    """A line for whoever waits: to the file that SDCPD_PROGRESS_LOG names, else to standard error.

    A notebook's own output is for its reader. On a terminal the next line takes the place of one
    that is ``passing``.
    """
    log = os.environ.get("SDCPD_PROGRESS_LOG")
    if not log:
        width = columns()
        if width:
            line = "\r\033[K" + (line[: width - 1] if passing else line)
        sys.stderr.write(line + ("" if width and passing else "\n"))
        sys.stderr.flush()
        return
    with suppress(OSError), open(log, "a", encoding="utf-8") as file:  # it ends no training
        file.write(line + "\n")


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


def free_memory(xp):
    """Bytes of the GPU's memory that this process may still take.

    SDCPD_GPU_SHARE, a number up to 1, is what it may have of a GPU that other jobs use, too: they
    may not have taken theirs yet.
    """
    free, total = xp.cuda.runtime.memGetInfo()
    pool = xp.get_default_memory_pool()
    own = total * float(os.environ.get("SDCPD_GPU_SHARE", 1))
    return min(free + pool.free_bytes(), own - pool.used_bytes())


def describe(xp):
    """What computes here: device and library versions, for the run file."""
    about = {"python": platform.python_version(), "numpy": np.__version__}
    if xp is np:
        from threadpoolctl import threadpool_info

        blas = [i for i in threadpool_info() if i.get("user_api") == "blas"]
        names = sorted(f"{i['internal_api']} {i['version']}" for i in blas)  # in any order there
        about["device"] = f"CPU {_cpu_name()}"
        about["blas"] = ", ".join(names)
        about["threads"] = blas_threads()
    else:
        properties = xp.cuda.runtime.getDeviceProperties(xp.cuda.Device().id)
        about["device"] = f"GPU {properties['name'].decode()}"
        about["cupy"] = xp.__version__
        about["cuda"] = str(xp.cuda.runtime.runtimeGetVersion())
        about["tf32"] = os.environ.get("CUPY_TF32", "0")
    return about


def blas_threads():
    """How many threads NumPy's matrix products may use."""
    from threadpoolctl import threadpool_info

    blas = [i["num_threads"] for i in threadpool_info() if i.get("user_api") == "blas"]
    return max(blas, default=1)


def _cpu_name():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def key(*fields):
    """A key, shape (2,) uint64, from numbers and names.

    NumPy's Philox-4x64 takes all 128 bits, the Philox-4x32 of a ``Stream`` the first 64. Different
    fields give independent streams; equal fields, whatever the order of names in them, the same
    stream everywhere.
    """
    text = json.dumps(fields, sort_keys=True)
    digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
    return np.frombuffer(digest, dtype="<u8").astype(np.uint64)


def random_words(key, n, position=0):
    """``n`` random 64-bit words of NumPy's Philox-4x64-10 from block ``position`` on."""
    return np.random.Philox(key=key, counter=int(position)).random_raw(n)


def philox(keys, draw, n_rows, n_units, xp=np):
    """The random words of one draw: uint32, shape (R, n_rows, n_units).

    Word w of block j of a row is word w of Philox-4x32-10 with counter (j, row, low and high half
    of ``draw``) and the 64 bits of ``keys`` (R,) as the key; unit 4j + w gets it.
    """
    mask, shift = xp.uint64(0xFFFFFFFF), xp.uint64(32)
    blocks = -(-n_units // BLOCK)
    out = xp.empty((len(keys), n_rows, BLOCK * blocks), xp.uint32)
    counter = xp.empty((BLOCK, len(keys), n_rows, blocks), xp.uint64)
    counter[0], counter[1] = xp.arange(blocks), xp.arange(n_rows)[:, None]
    counter[2], counter[3] = draw & 0xFFFFFFFF, draw >> 32
    c0, c1, c2, c3 = counter
    key = keys[:, None, None]
    key0, key1 = key & mask, key >> shift
    for _ in range(_ROUNDS):
        c0 *= xp.uint64(0xD2511F53)
        c2 *= xp.uint64(0xCD9E8D57)
        c1 ^= key0
        c3 ^= key1
        c1 ^= c2 >> shift  # the new c0; the low half of c2 is the new c1 …
        c3 ^= c0 >> shift  # … and likewise
        c0 &= mask
        c2 &= mask
        c0, c1, c2, c3 = c1, c2, c3, c0
        key0, key1 = (key0 + xp.uint64(0x9E3779B9)) & mask, (key1 + xp.uint64(0xBB67AE85)) & mask
    for word, values in enumerate((c0, c1, c2, c3)):
        out[..., word::BLOCK] = values
    return out[..., :n_units]


class Stream:
    """Random numbers for R replicas that advance together, draw by draw.

    Parameters
    ----------
    keys : array_like of uint64, shape (R, 2)
        As ``key`` makes them.
    xp : module
        ``numpy`` or ``cupy``.
    position : int
        Number of draws already made: what a checkpoint stores.
    """

    def __init__(self, keys, xp, position=0):
        self.keys = np.asarray(keys, dtype=np.uint64).reshape(-1, 2)
        self.xp = xp
        self.position = int(position)
        self.device_keys = xp.asarray(np.ascontiguousarray(self.keys[:, 0]))

    def next(self):
        """The number of the next draw, which is then taken: for a kernel that draws itself."""
        self.position += 1
        return self.position - 1

    def words(self, n_rows, n_units):
        """The next draw, uint32, shape (R, n_rows, n_units)."""
        return philox(self.device_keys, self.next(), n_rows, n_units, self.xp)

    def uniform(self, n_rows, n_units):
        """The next draw, float32 in [0, 1), shape (R, n_rows, n_units). 1.0 never occurs."""
        words = self.words(n_rows, n_units)
        words >>= self.xp.uint32(8)  # 24 bits are exact in float32, and cannot round up to 1.0
        return words.view(self.xp.int32).astype(self.xp.float32) * self.xp.float32(2.0**-24)

    def select(self, rows):
        """The stream of the replicas ``rows`` alone, from here on."""
        return Stream(self.keys[rows], self.xp, self.position)
