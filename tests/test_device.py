"""The random stream that every number depends on, and why a GPU cannot be used."""

import os
import sys

import numpy as np
import pytest

from sdcpd import ROOT, device
from sdcpd.philox import Stream, key, random_words

KEYS = [key("test", trial) for trial in range(3)]


# --------------------------------------------------------------------------- Philox


def literal_philox(counter, key):
    """Philox-4x32-10 as Salmon et al. (2011) write it, in Python's integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * c[0], 2**32)
        high2, low2 = divmod(0xCD9E8D57 * c[2], 2**32)
        c = [high2 ^ c[1] ^ k[0], low2, high0 ^ c[3] ^ k[1], low0]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return c


def literal_words(key, draw, row, n_units):
    """A row of the draw: unit 4j + w gets word w of the block (j, row, draw)."""
    counters = [(j, row, draw % 2**32, draw >> 32) for j in range(-(-n_units // 4))]
    blocks = [literal_philox(counter, (key % 2**32, key >> 32)) for counter in counters]
    return [word for block in blocks for word in block][:n_units]


KNOWN = """\
00000000 00000000 00000000 00000000 | 00000000 00000000 | 6627e8d5 e169c58d bc57ac4c 9b00dbd8
ffffffff ffffffff ffffffff ffffffff | ffffffff ffffffff | 408f276d 41c83b0e a20bc7c6 6d5451fd
243f6a88 85a308d3 13198a2e 03707344 | a4093822 299f31d0 | d16cfe09 94fdcceb 5001e420 24126ea1
"""


def test_literal_philox_gives_the_known_answers():
    """Random123's own vectors: what ours is compared with below is Philox."""
    for line in KNOWN.splitlines():
        counter, key, answer = ([int(x, 16) for x in part.split()] for part in line.split("|"))
        assert literal_philox(counter, key) == answer


# --------------------------------------------------------------------- the random stream


def test_stream_is_the_one_of_the_published_runs():
    """Golden values: a change of the stream would change every result."""
    golden = key("golden", 1)
    assert [hex(word) for word in golden.tolist()] == ["0x2a4f2f78d64d635b", "0xa3ece10491d40708"]
    assert random_words(golden, 3).tolist() == [
        0xF254EBA2A63991A2,
        0xD35104BA09B559B0,
        0xA68C6FFA60D5220B,
    ]
    stream = Stream([golden], np)
    words = [
        [0xFA311D80, 0x4AD7A1B3, 0x37BF1AA1, 0x4D8B5730, 0x18320DF6],
        [0x15916DC0, 0x74281C9B, 0xFD4B98DF, 0x0896ED6E, 0xAC661AA6],
    ]
    assert stream.words(2, 5)[0].tolist() == words
    assert stream.words(1, 1).item() == 0xF0B36322  # the next draw
    assert Stream([golden], np, 2**40).uniform(1, 1).item() * 2.0**24 == 0xF65515


@pytest.mark.parametrize("position", [0, 2**32 - 1, 0xFEDCBA9876543210])
def test_stream_is_philox_draw_by_draw(position):
    """The n-th draw has counter n, whatever its shape: so a checkpoint stores ``position`` alone.
    A number is the upper 24 bits of its word."""
    keys = 0, 2**64 - 1, 0x299F31D0A4093822
    stream = Stream([(k, 1) for k in keys], np, position)
    for draw, shape in enumerate([(5, 9), (1, 4), (2, 1), (9, 14)], position):
        numbers = Stream(stream.keys, np, draw).uniform(*shape)
        words = stream.words(*shape)
        n_rows, n_units = shape
        expected = [[literal_words(k, draw, row, n_units) for row in range(n_rows)] for k in keys]
        assert words.dtype == np.uint32 and words.tolist() == expected
        assert numbers.dtype == np.float32
        assert (numbers * 2.0**24).tolist() == (words >> 8).tolist()
        assert stream.position == draw + 1


def test_stream_does_not_depend_on_its_neighbours():
    """A trial's numbers are the same alone, among others, and after others were dropped."""
    together, alone = Stream(KEYS, np), Stream([KEYS[2]], np)
    np.testing.assert_array_equal(together.uniform(4, 25)[2:], alone.uniform(4, 25))
    rest = together.select(np.array([0, 2]))
    np.testing.assert_array_equal(rest.uniform(4, 25), together.uniform(4, 25)[[0, 2]])
    np.testing.assert_array_equal(rest.uniform(4, 25)[1:], Stream([KEYS[2]], np, 2).uniform(4, 25))
    assert together.position == 2 and rest.position == 3  # each counts for itself


def test_other_fields_give_other_keys():
    keys = [key(1, 2), key(12), key("1", 2), key(2, 1), key(1, 2, 0), key([1, 2])]
    assert len({int(k[0]) for k in keys}) == len(keys)  # the half that the stream reads
    assert len({int(k[1]) for k in keys}) == len(keys)


def test_uniform_never_rounds_up_to_one(monkeypatch):
    """float32(2³² − 1)/2³² is 1.0 (cupy#1614): p = 1 would then give 0 once in a while."""
    largest = np.full((1, 2, 50), 2**32 - 1, np.uint32)
    monkeypatch.setattr("sdcpd.philox.philox", lambda *arguments: largest.copy())
    assert (Stream(KEYS[:1], np).uniform(2, 50) == 1 - 2.0**-24).all()


NO_GPU = device.gpu_problem()


@pytest.mark.skipif(bool(NO_GPU), reason=f"needs a GPU: {NO_GPU}")
def test_gpu_draws_the_same_numbers():
    """Results may not depend on the device."""
    import cupy

    on_cpu, on_gpu = Stream(KEYS, np, 2**32 - 1), Stream(KEYS, cupy, 2**32 - 1)
    for shape in ((7, 13), (1000, 100), (1, 1)):
        for name in ("words", "uniform"):
            expected, got = getattr(on_cpu, name)(*shape), getattr(on_gpu, name)(*shape).get()
            assert got.dtype == expected.dtype
            np.testing.assert_array_equal(got, expected)
    rows = np.array([0, 2])
    expected, got = (stream.select(rows).uniform(9, 9) for stream in (on_cpu, on_gpu))
    np.testing.assert_array_equal(got.get(), expected)


# ------------------------------------------------------------------------------ device


def problem():
    found = device.gpu_problem.__wrapped__()
    assert found is None or "\n" not in found
    return found


def test_no_cupy_is_a_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert problem().startswith("CuPy is not installed")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"driverGetVersion": lambda: 0}, "CuPy is installed but finds no NVIDIA driver"),
        ({"getDeviceCount": "cudaErrorNoDevice: no CUDA-capable device is detected"},
         "CuPy is installed but finds no CUDA device"),
        ({"getDeviceCount": "cudaErrorInsufficientDriver: CUDA driver version is insufficient",
          "driverGetVersion": lambda: 12040},
         "the NVIDIA driver, for CUDA 12.4, is too old for CuPy: try --extra cuda12"),
        ({"getDeviceCount": "\n=====\n  cudaErrorUnknown: unknown error\nmore"},
         "CuPy cannot use the GPU: cudaErrorUnknown: unknown error"),
        ({"getDeviceCount": ""}, "CuPy cannot use the GPU: CUDARuntimeError"),
    ],
)  # fmt: skip
def test_gpu_that_cannot_be_used_is_a_line(strict_cupy, changes, says, monkeypatch):
    """As CuPy 14.2 says it: no driver, no device, a driver that is too old, anything else."""
    runtime = strict_cupy.cuda.runtime
    assert problem() is None
    for name, change in changes.items():
        if isinstance(change, str):

            def change(text=change):
                raise runtime.CUDARuntimeError(text)

        monkeypatch.setattr(runtime, name, change)
    assert problem() == says


def test_compiler_and_products_are_tried(strict_cupy, monkeypatch):
    """They are libraries of their own, which may be missing where the driver is not."""
    with monkeypatch.context() as changed:
        changed.delattr(strict_cupy.ndarray, "__matmul__")
        assert problem().startswith("CuPy cannot use the GPU: unsupported operand")
    with monkeypatch.context() as changed:
        changed.setattr(strict_cupy.ndarray, "__matmul__", lambda a, b: a)
        assert problem() == "CuPy is installed but its results are wrong on this GPU"

    def missing(**how):
        raise RuntimeError("CuPy failed to load libnvrtc.so.13: OSError: no such file")

    monkeypatch.setattr(strict_cupy, "RawModule", missing)
    assert problem().startswith("CuPy cannot use the GPU: CuPy failed to load libnvrtc.so.13")


def test_cupy_that_cannot_be_imported_is_a_line(strict_environment, monkeypatch, tmp_path):
    (tmp_path / "cupy.py").write_text("raise OSError('libcudart.so.13: no such file')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    assert problem() == "CuPy cannot use the GPU: libcudart.so.13: no such file"


def test_home_folder_that_cannot_be_written_to(strict_cupy, monkeypatch, tmp_path):
    """CuPy would end with a traceback when it is imported."""
    monkeypatch.delenv("CUPY_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert problem() is None and "CUPY_CACHE_DIR" not in os.environ
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    assert problem() is None and os.environ["CUPY_CACHE_DIR"] == str(ROOT / ".snakemake/cupy")
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path))
    assert problem() is None and os.environ["CUPY_CACHE_DIR"] == str(tmp_path)
