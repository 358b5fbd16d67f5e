"""A stand-in for CuPy that needs no GPU: arrays of NumPy that refuse what CuPy refuses.

``import cupy`` finds it where this folder is on the path: see ``strict_cupy`` in conftest.py. It
has what the project uses of CuPy and nothing else: what is new must be looked up in CuPy's
documentation and added here. Refused are NumPy's arrays as operands, indices or values, conversions
that are not asked for, and kernel arguments of another type than the kernel's, not contiguous or
not aligned. New memory holds garbage, and what is live is counted. Kernels run on the CPU.
"""

import ctypes
import weakref
from types import SimpleNamespace

import emulator
import numpy as np
from numpy import float16, float32, float64, inf, int32, int64, uint8, uint32, uint64  # noqa: F401

__version__ = "14 (stand-in)"
TOTAL = 80 * 10**9  # bytes of memory
_SAME = "shape", "dtype", "ndim", "size", "nbytes", "flags"
_ALIGNED = 512  # bytes: every allocation begins at, and takes, a multiple of so many


class ndarray:
    """An array that NumPy neither converts nor computes with."""

    __array_ufunc__ = None
    __hash__ = None

    def __init__(self, array, owner=None):
        """``owner``: the array whose memory this one views; without one, its own is a copy."""
        if owner is None:
            array = _in_own_memory(array)
            size = -(-array.nbytes // _ALIGNED) * _ALIGNED
            memory.take(size)
            weakref.finalize(self, memory.take, -size)
        self._array, self._owner = array, owner

    def __array__(self, *arguments, **options):
        raise TypeError("Implicit conversion to a NumPy array is not allowed: use .get()")

    def __getattr__(self, name):
        if name in _SAME:
            return getattr(self._array, name)
        raise AttributeError(f"the stand-in for CuPy has no ndarray.{name}: add it")

    @property
    def data(self):
        return SimpleNamespace(ptr=self._array.ctypes.data)

    @property
    def T(self):
        return self.transpose()

    def get(self):
        return self._array.copy()

    def copy(self):
        return ndarray(self._array.copy())

    def astype(self, dtype):
        return ndarray(self._array.astype(dtype))

    def view(self, dtype):
        return self._seen_as(self._array.view(dtype))

    def reshape(self, *shape):
        return self._seen_as(self._array.reshape(*shape))

    def transpose(self, *axes):
        return self._seen_as(self._array.transpose(*axes))

    def __getitem__(self, index):
        return self._seen_as(self._array[_of_index(index)])

    def __setitem__(self, index, value):
        self._array[_of_index(index)] = _opened(value)

    def _seen_as(self, array):
        """A view where NumPy made one, else a copy."""
        shared = isinstance(array, np.ndarray) and np.may_share_memory(array, self._array)
        return ndarray(array, self if shared else None)

    def __len__(self):
        return len(self._array)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __bool__(self):
        return bool(self._array)

    def __float__(self):
        return float(self._array)


def _in_own_memory(array):
    """A copy that is aligned as CuPy's are, with the same order of the axes in memory."""
    array = np.asarray(array)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"Unsupported dtype {array.dtype}")
    store = np.empty(array.nbytes + _ALIGNED, np.uint8)
    store = store[-store.ctypes.data % _ALIGNED :][: array.nbytes]
    order = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
    dense = store.view(array.dtype).reshape([array.shape[axis] for axis in order])
    copy = dense.transpose(np.argsort(order).astype(int)) if order else dense
    copy[...] = array
    return copy


def _opened(value):
    """NumPy's array in one of ours, numbers, and tuples of them; NumPy's own arrays are refused."""
    if isinstance(value, ndarray):
        return value._array
    if isinstance(value, (tuple, list)):
        return type(value)(map(_opened, value))
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    return value


def _of_index(index):
    parts = index if isinstance(index, tuple) else (index,)
    if any(isinstance(part, (list, np.ndarray)) for part in parts):
        raise TypeError("an index must be an array of the GPU, or numbers and slices")
    return _opened(index)


def _function(name):
    """NumPy's function of this name, of arrays like ours alone."""

    def function(*arguments, **options):
        opened = {name: _opened(value) for name, value in options.items()}
        result = getattr(np, name)(*_opened(arguments), **opened)
        return options["out"] if "out" in options else ndarray(result)

    return function


def _method(name, swapped=False, in_place=False):
    function = _function(name)

    def method(self, *arguments, **options):
        arguments = (*arguments, self) if swapped else (self, *arguments)
        return function(*arguments, **options | ({"out": self} if in_place else {}))

    return method


for _name in ("sum", "prod", "mean", "max", "min", "all", "argmin"):
    setattr(ndarray, _name, _method(_name))
for _name, _ufunc in {
    **{"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide"},
    **{"pow": "power", "matmul": "matmul"},
    **{"and": "bitwise_and", "xor": "bitwise_xor", "rshift": "right_shift"},
}.items():
    setattr(ndarray, f"__{_name}__", _method(_ufunc))
    setattr(ndarray, f"__r{_name}__", _method(_ufunc, swapped=True))
    setattr(ndarray, f"__i{_name}__", _method(_ufunc, in_place=True))
for _name, _ufunc in {
    **{"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"},
    **{"eq": "equal", "ne": "not_equal", "neg": "negative", "abs": "abs"},
}.items():
    setattr(ndarray, f"__{_name}__", _method(_ufunc))
for _name in (
    *("abs", "arange", "argsort", "concatenate", "exp", "full_like", "isfinite", "less", "log"),
    *("log1p", "logaddexp", "matmul", "maximum", "negative", "reciprocal", "repeat"),
    *("where", "zeros_like"),
):
    globals()[_name] = _function(_name)


def asarray(values, dtype=None):
    """A copy of NumPy's arrays and of numbers; the same array where it is one already."""
    if isinstance(values, ndarray):
        return values if dtype in (None, values.dtype) else values.astype(dtype)
    return ndarray(np.array(values, dtype))


def ascontiguousarray(array, dtype=None):
    if not isinstance(array, ndarray):
        raise TypeError(f"Argument 'a' has incorrect type {type(array)}")
    if array.flags.c_contiguous and dtype in (None, array.dtype):
        return array
    return ndarray(np.ascontiguousarray(array._array, dtype))


def broadcast_to(array, shape):
    return ndarray(np.broadcast_to(array._array, shape), array)


def full(shape, value, dtype=None):
    return ndarray(np.full(shape, _opened(value), dtype))


def zeros(shape, dtype=float):
    return full(shape, 0, dtype)


def ones(shape, dtype=float):
    return full(shape, 1, dtype)


def empty(shape, dtype=float):
    """Garbage: what is read before it was written shows."""
    return full(shape, np.nan if np.dtype(dtype).kind == "f" else 77, dtype)


def empty_like(array):
    garbage = ndarray(np.empty_like(array._array))
    garbage[...] = np.nan if array.dtype.kind == "f" else 77
    return garbage


def get_array_module(*arrays):
    import cupy

    return cupy if any(isinstance(array, ndarray) for array in arrays) else np


# --------------------------------------------------------------------- memory and kernels


class _Memory:
    """What lives, and the most that has lived at once, in bytes."""

    def __init__(self):
        self.live = self.peak = 0

    def take(self, size):
        self.live += size
        self.peak = max(self.peak, self.live)

    def used_bytes(self):
        return self.live

    def total_bytes(self):
        return self.peak

    def free_bytes(self):  # that a pool keeps for later: this one keeps none
        return 0

    def free_all_blocks(self):
        self.peak = self.live


memory = _Memory()


def get_default_memory_pool():
    return memory


_TYPES = {"float": "f4", "double": "f8", "half": "f2", "u64": "u8", "unsigned char": "u1"}
_NUMBERS = {"int": np.int32, "long long": np.int64, "u64": np.uint64, "float": np.float32}
_VECTORS = 16  # bytes: kernels read and write halves in vectors of so many


def _in_c(parameter, value):
    """A kernel's argument, of the type that ``parameter``, a C declaration, has."""
    kind = parameter.removeprefix("const ").rsplit(" ", 1)[0]
    if not kind.endswith("*"):
        assert type(value) is _NUMBERS[kind], f"{parameter} got {type(value)}"
        return np.ctypeslib.as_ctypes_type(value.dtype)(value.item())
    if not isinstance(value, ndarray):
        assert type(value) is np.uint64 and value == 0, f"{parameter} got {type(value)}"
        return ctypes.c_void_p(None)
    assert value.dtype == _TYPES[kind[:-1]], f"{parameter} got {value.dtype}"
    assert value.flags.c_contiguous, f"{parameter}: a kernel reads memory, not strides"
    aligned = _VECTORS if kind == "half*" else value.dtype.itemsize
    assert value.data.ptr % aligned == 0, f"{parameter}: not aligned"
    return ctypes.c_void_p(value.data.ptr)


class RawModule:
    """Kernels that g++ compiles."""

    def __init__(self, code, options=()):
        code.encode("ascii")  # as NVRTC is given it
        self.library = emulator.compile_kernels(code)
        self.parameters = {
            name: [" ".join(each.split()) for each in listed.split(",")]
            for name, listed in emulator.signatures(code)
        }

    def get_function(self, name):
        launcher, parameters = getattr(self.library, f"launch_{name}"), self.parameters[name]

        def launch(grid, block, arguments):
            (n_blocks,), (n_threads,) = grid, block
            assert 0 < n_blocks < 2**31 and 0 < n_threads <= 1024
            pairs = zip(parameters, arguments, strict=True)
            launcher(n_blocks, n_threads, *(_in_c(*pair) for pair in pairs))

        return launch


class CUDARuntimeError(RuntimeError):
    """Of ``cuda.runtime``."""


class Device:
    id, compute_capability = 0, "90"


cuda = SimpleNamespace(
    Device=Device,
    device=SimpleNamespace(get_cublas_handle=lambda: 1),
    get_current_stream=lambda: SimpleNamespace(synchronize=lambda: None),
    runtime=SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        driverGetVersion=lambda: 13000,
        getDeviceCount=lambda: 1,
        getDeviceProperties=lambda number: {"name": b"none (stand-in for CuPy)"},
        memGetInfo=lambda: (TOTAL - memory.live, TOTAL),
        runtimeGetVersion=lambda: 13000,
    ),
)
