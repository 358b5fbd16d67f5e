"""What computes: NumPy on a CPU or CuPy on a GPU, and whether and with what it can be used."""

import os
import platform
import tempfile
from functools import cache
from importlib.util import find_spec

import numpy as np

from . import ROOT


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
    share = total * float(os.environ.get("SDCPD_GPU_SHARE", 1))
    return min(free + pool.free_bytes(), share - pool.used_bytes())


def describe(xp):
    """What computes here: device and library versions, for the run file."""
    about = {"python": platform.python_version(), "numpy": np.__version__}
    if xp is np:
        libraries = [f"{blas['internal_api']} {blas['version']}" for blas in _blas()]
        about["device"] = f"CPU {_cpu_name()}"
        about["blas"] = ", ".join(sorted(libraries))  # in any order there
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
    return max((blas["num_threads"] for blas in _blas()), default=1)


def _blas():
    from threadpoolctl import threadpool_info

    return [library for library in threadpool_info() if library.get("user_api") == "blas"]


def _cpu_name():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
