"""The random stream that every number depends on, and the choice of NumPy or CuPy."""

import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from sdcpd import backend, kernels
from sdcpd.backend import BLOCK, BackendError, Stream, key, random_words, select

KEYS = [key("test", trial) for trial in range(3)]

needs_gpu = pytest.mark.skipif(
    backend.gpu_problem() is not None, reason=f"needs a GPU: {backend.gpu_problem()}"
)


def philox_uniforms(key, position, count):
    """The same numbers from NumPy's generator, by another road: 24 bits of each 32-bit half."""
    words = np.random.Philox(key=key, counter=position).random_raw(count).tolist()
    halves = [half for word in words for half in (word & 0xFFFFFFFF, word >> 32)]
    return np.array([(half >> 8) / 2**24 for half in halves[:count]], np.float64)


# --------------------------------------------------------------------- the random stream


def test_stream_is_the_one_of_the_published_runs():
    """Golden values: a library release that changes the stream would change every result."""
    golden = key("golden", 1)
    assert [hex(word) for word in golden.tolist()] == ["0x2a4f2f78d64d635b", "0xa3ece10491d40708"]
    assert random_words(golden, 3).tolist() == [
        0xF254EBA2A63991A2,
        0xD35104BA09B559B0,
        0xA68C6FFA60D5220B,
    ]
    assert random_words(golden, 1, 1000).tolist() == [0x759D73ECD7B7F622]
    stream = Stream([golden], np)
    words = [0xA63991, 0xF254EB, 0x09B559, 0xD35104, 0x60D522, 0xA68C6F]  # 24 of each 32 bits
    assert (stream.uniform(6)[0] * 2.0**24).tolist() == words
    assert stream.uniform(1).item() * 2.0**24 == 0xF61EDF  # the first of the next block


def test_stream_is_philox_at_a_position():
    """Each replica reads the Philox sequence of its own key, from the block asked for."""
    got = Stream(KEYS, np, position=7).uniform(5, 9)
    assert got.dtype == np.float32 and got.shape == (3, 5, 9)
    expected = [philox_uniforms(k, 7, 45).reshape(5, 9) for k in KEYS]
    np.testing.assert_array_equal(got, expected)


def test_draws_do_not_depend_on_read_ahead():
    """Small, large and odd-sized draws in a row continue the same sequence, block by block."""
    stream, position = Stream(KEYS[:1], np), 0
    for count in (3, 8, 5000, 1, 17, 4096 * 3, 40):
        np.testing.assert_array_equal(
            stream.uniform(count)[0], philox_uniforms(KEYS[0], position, count)
        )
        position += -(-count // BLOCK)
        assert stream.position == position


@pytest.mark.parametrize("before", [1, 8, 4095, 5000])
def test_stream_resumes_at_its_position(before):
    """A checkpoint stores ``position`` alone: a stream made anew from it goes on unchanged."""
    stream = Stream(KEYS, np)
    stream.uniform(before)
    resumed = Stream(KEYS, np, stream.position)
    for count in (11, 6000):
        np.testing.assert_array_equal(resumed.uniform(count), stream.uniform(count))


def test_stream_does_not_depend_on_its_neighbours():
    """A trial's numbers are the same alone, among others, and after others were dropped."""
    together, alone = Stream(KEYS, np), Stream([KEYS[2]], np)
    np.testing.assert_array_equal(together.uniform(100)[2:], alone.uniform(100))
    rest = together.select(np.array([0, 2]))
    np.testing.assert_array_equal(rest.uniform(100), together.uniform(100)[[0, 2]])
    np.testing.assert_array_equal(rest.uniform(100)[1:], Stream([KEYS[2]], np, 26).uniform(100))


def test_draws_differ_and_are_uniform():
    """A restarted or shared generator repeats itself: successive draws, trials, and fields."""
    stream = Stream(KEYS, np)
    draws = np.concatenate([stream.uniform(5000) for _ in range(4)])
    assert draws.min() >= 0 and draws.max() < 1
    assert np.abs(np.corrcoef(draws) - np.eye(12)).max() < 0.06  # 4 σ
    assert abs(draws.mean() - 0.5) < 0.005 and abs(draws.var() - 1 / 12) < 0.002
    keys = [key(1, 2), key(12), key("1", 2), key(2, 1), key(1, 2, 0), key([1, 2])]
    assert len({tuple(k.tolist()) for k in keys}) == len(keys)


def test_uniform_never_rounds_up_to_one():
    """float32(2³² − 1)/2³² is 1.0 (cupy#1614): p = 1 would then give 0 once in a while."""
    stream = Stream(KEYS[:1], np)
    stream._generators = [SimpleNamespace(random_raw=lambda n: np.full(n, 2**64 - 1, np.uint64))]
    assert (stream.uniform(50) == 1 - 2.0**-24).all()


# ------------------------------------------------------------------------------ kernels

# CUDA's names, for a C++ compiler; then each block of each replica in turn, and a known answer.
SHIM = r"""
#include <cstdio>
#include <cstdlib>
#define __device__
#define __global__
struct { unsigned x; } blockIdx, blockDim, threadIdx;
static unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
"""
MAIN = r"""
int main(int argc, char** argv) {
  unsigned long long keys[6], zero[4];
  for (int i = 0; i < 6; ++i) keys[i] = strtoull(argv[2 + i], 0, 10);
  static float out[3 * 5 * 8];
  blockDim.x = 4;
  for (blockIdx.x = 0; blockIdx.x < 4; ++blockIdx.x)  // one thread more than there are blocks
    for (threadIdx.x = 0; threadIdx.x < 4; ++threadIdx.x)
      philox_uniform(keys, strtoull(argv[1], 0, 10), 5, 3, out);
  fwrite(out, sizeof out, 1, stdout);
  philox_block(0, 0, 0, zero);
  fwrite(zero, sizeof zero, 1, stdout);
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_gpu_kernel_source_gives_the_numbers_of_numpy(tmp_path):
    """The CUDA source itself, run on the CPU: wrong constants, counter, half or replica."""
    (tmp_path / "philox.cpp").write_text(SHIM + kernels._UNIFORM + MAIN)
    subprocess.run(["g++", "-O1", "-w", "-o", "philox", "philox.cpp"], cwd=tmp_path, check=True)
    for position in (0, 123456789012345):
        words = [str(word) for k in KEYS for word in k.tolist()]
        raw = subprocess.check_output([tmp_path / "philox", str(position), *words])
        got = np.frombuffer(raw[:-32], np.float32).reshape(3, 40)
        assert got.tobytes() == Stream(KEYS, np, position).uniform(40).tobytes()
    # Random123's known answer for Philox-4x64-10, counter 0 and key 0.
    answer = "16554d9eca36314c db20fe9d672d0fdc d7e772cee186176b 7e68b68aec7ba23b"
    assert [f"{word:016x}" for word in np.frombuffer(raw[-32:], np.uint64)] == answer.split()


@needs_gpu
def test_gpu_draws_the_same_numbers():
    """Results may not depend on the device."""
    cupy = select("cupy")
    streams = Stream(KEYS, np, 5), Stream(KEYS, cupy, 5)
    for shape in ((7, 13), (100_000,), (1,)):
        on_cpu, on_gpu = (backend.to_host(s.uniform(*shape)) for s in streams)
        assert on_gpu.dtype == np.float32
        np.testing.assert_array_equal(on_cpu, on_gpu)
    assert streams[0].position == streams[1].position
    rows = np.array([0, 2])
    on_cpu, on_gpu = (backend.to_host(s.select(rows).uniform(9)) for s in streams)
    np.testing.assert_array_equal(on_cpu, on_gpu)


# ----------------------------------------------------------------------- NumPy or CuPy


def test_select_refuses_an_unknown_backend():
    with pytest.raises(BackendError, match="torch.*choose auto, numpy or cupy"):
        select("torch")


def test_select_without_a_gpu(monkeypatch):
    """auto falls back; cupy asked for by name must not silently become NumPy."""
    monkeypatch.setattr(backend, "gpu_problem", lambda: "there is no CUDA device")
    assert select() is np and select("numpy") is np
    with pytest.raises(BackendError, match="no CUDA device.*use backend=numpy") as error:
        select("cupy")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("cupy", "says"),
    [
        (None, "not installed"),
        (SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False)), "no CUDA device"),
        (SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: True)), "cannot use the GPU"),
    ],
)
def test_gpu_problem_is_one_line(monkeypatch, cupy, says):
    """No CuPy, no device, and a device that fails when used (here: without ``zeros``)."""
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    problem = backend.gpu_problem.__wrapped__()
    assert says in problem and "\n" not in problem


def test_select_auto_is_the_gpu_where_there_is_one():
    assert select("auto").__name__ == ("numpy" if backend.gpu_problem() else "cupy")


def test_describe_names_device_and_precision():
    """A run file has to say what computed it, and in which precision."""
    about = backend.describe(np)
    assert about["backend"] == "numpy" and about["device"].startswith("CPU ")
    assert "float32" in about["precision"] and about["threads"] >= 1
