"""What the stand-in for CuPy computes with: kernels compiled for the CPU, and cuBLAS in NumPy.

So every kernel runs, with every index, padding, stride and argument to cuBLAS. The threads of a
block are real ones where the kernel synchronizes them: few, as its loops go over all units however
many threads there are.
"""

import ctypes
import hashlib
import os
import re
import subprocess
from functools import cache
from pathlib import Path

import numpy as np

SHIM = r"""
#include <barrier>
#include <cmath>
#include <thread>
#include <vector>
#define EMULATED
#define __device__
#define __global__
#define __shared__ static
struct Index { unsigned x; };
static thread_local Index blockIdx, blockDim, threadIdx;
static std::barrier<>* meeting;
static void __syncthreads() { meeting->arrive_and_wait(); }
static unsigned __umulhi(unsigned a, unsigned b) { return (unsigned long long)a * b >> 32; }
#define __expf expf
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) float4 { float x, y, z, w; };
static unsigned short to_half(float x) {
  _Float16 h = (_Float16)x;
  return __builtin_bit_cast(unsigned short, h);
}
static float to_float(unsigned short h) { return (float)__builtin_bit_cast(_Float16, h); }
"""

LAUNCH = r"""
extern "C" void launch_%(name)s(int blocks, int threads, %(parameters)s) {
  if (%(synchronizes)s && threads > 4) threads = 4;
  std::barrier<> barrier(threads);
  meeting = &barrier;
  auto run = [&](int block, int thread) {
    blockIdx.x = block, blockDim.x = threads, threadIdx.x = thread;
    %(name)s(%(names)s);
  };
  for (int block = 0; block < blocks; ++block) {
    if (!%(synchronizes)s) {
      for (int thread = 0; thread < threads; ++thread) run(block, thread);
      continue;
    }
    std::vector<std::thread> all;
    for (int thread = 0; thread < threads; ++thread) all.emplace_back(run, block, thread);
    for (auto& one : all) one.join();
  }
}
"""


def signatures(source):
    """(name, its parameters as one text) of every kernel."""
    return re.findall(r"__global__ void (\w+)\(([^)]*)\)", source)


@cache
def compile_kernels(source):
    """The kernels as a library of C functions launch_<name>(blocks, threads, …).

    It is kept in the folder that EMULATED_KERNELS names, for other processes.
    """
    launchers = ""
    for name, parameters in signatures(source):
        body = source[source.index(f"__global__ void {name}(") :].split("\n}\n")[0]
        synchronizes = "__syncthreads" in body or "block_sum" in body
        names = ", ".join(re.findall(r"(\w+)(?=,|$)", " ".join(parameters.split())))
        launchers += LAUNCH % {
            "name": name,
            "parameters": parameters,
            "names": names,
            "synchronizes": str(synchronizes).lower(),
        }
    code = SHIM + source + launchers
    name = hashlib.sha256(code.encode()).hexdigest()[:16]
    library = Path(os.environ["EMULATED_KERNELS"]) / f"{name}.so"
    if not library.exists():
        part = library.with_suffix(f".{os.getpid()}")
        flags = ["-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-pthread", "-x", "c++"]
        subprocess.run(["g++", *flags, "-o", part, "-"], input=code.encode(), check=True)
        part.replace(library)
    return ctypes.CDLL(str(library))


def column_major(pointer, dtype, rows, columns, leading, stride, batch):
    """The matrices that cuBLAS sees at ``pointer``: an array (batch, rows, columns), writable."""
    size = (batch - 1) * stride + (columns - 1) * leading + rows
    item = np.dtype(dtype).itemsize
    memory = np.frombuffer((ctypes.c_char * (size * item)).from_address(pointer), dtype)
    strides = stride * item, item, leading * item
    return np.lib.stride_tricks.as_strided(memory, (batch, rows, columns), strides)


def gemm_strided_batched_ex(
    handle, trans_a, trans_b, m, n, k, alpha, a, a_type, lda, stride_a, b, b_type, ldb, stride_b,
    beta, c, c_type, ldc, stride_c, batch, compute_type, algorithm,
):  # fmt: skip
    """C = α op(A) op(B) + β C, as cuBLAS documents it: column by column, fp16 into float32."""
    assert all(type(x) is int for x in (m, n, k, lda, ldb, ldc, alpha, a, beta, c, batch))
    assert (a_type, b_type, c_type, compute_type, algorithm) == (2, 2, 0, 68, -1)
    assert lda >= (k if trans_a else m) and ldb >= (n if trans_b else k) and ldc >= m
    scale = [np.float32(ctypes.c_float.from_address(x).value) for x in (alpha, beta)]
    shape_a, shape_b = ((k, m) if trans_a else (m, k)), ((n, k) if trans_b else (k, n))
    A = column_major(a, np.float16, *shape_a, lda, stride_a, batch).astype(np.float32)
    B = column_major(b, np.float16, *shape_b, ldb, stride_b, batch).astype(np.float32)
    C = column_major(c, np.float32, m, n, ldc, stride_c, batch)
    A, B = (x.transpose(0, 2, 1) if t else x for x, t in ((A, trans_a), (B, trans_b)))
    old = scale[1] * C if scale[1] else 0  # with β = 0 cuBLAS does not read C
    with np.errstate(all="ignore"):  # as a GPU: a model that diverges is no error
        C[...] = scale[0] * (A @ B) + old
