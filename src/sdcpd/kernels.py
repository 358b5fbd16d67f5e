"""The GPU kernels, each beside its plain NumPy meaning.

``PHILOX`` is ordinary C, so that the tests can run it on a CPU against NumPy's own generator.
"""

from functools import cache

PHILOX = r"""
// One block of Philox-4x64-10 (Salmon et al. 2011), as numpy.random.Philox computes it.
__device__ void philox_block(unsigned long long counter, unsigned long long key0,
                             unsigned long long key1, unsigned long long out[4]) {
  unsigned long long c0 = counter, c1 = 0, c2 = 0, c3 = 0;
  for (int round = 0; round < 10; ++round) {
    unsigned long long hi0 = __umul64hi(0xD2E7470EE14C6C93ULL, c0);
    unsigned long long lo0 = 0xD2E7470EE14C6C93ULL * c0;
    unsigned long long hi1 = __umul64hi(0xCA5A826395121157ULL, c2);
    unsigned long long lo1 = 0xCA5A826395121157ULL * c2;
    c0 = hi1 ^ c1 ^ key0; c1 = lo1;
    c2 = hi0 ^ c3 ^ key1; c3 = lo0;
    key0 += 0x9E3779B97F4A7C15ULL;
    key1 += 0xBB67AE8584CAA73BULL;
  }
  out[0] = c0; out[1] = c1; out[2] = c2; out[3] = c3;
}

// The eight 24-bit uniform numbers of a block: the low half of each word, then its high half.
__device__ void philox_uniform_block(unsigned long long counter, unsigned long long key0,
                                     unsigned long long key1, float u[8]) {
  unsigned long long words[4];
  philox_block(counter, key0, key1, words);
  for (int i = 0; i < 4; ++i) {
    u[2 * i]     = (float)((unsigned int)words[i] >> 8) * (1.0f / 16777216.0f);
    u[2 * i + 1] = (float)((unsigned int)(words[i] >> 40)) * (1.0f / 16777216.0f);
  }
}
"""

_UNIFORM = (
    PHILOX
    + r"""
extern "C" __global__ void philox_uniform(const unsigned long long* keys,
                                          unsigned long long position, long long n_blocks,
                                          long long n_replicas, float* out) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n_blocks * n_replicas) return;
  long long replica = i / n_blocks;
  // NumPy increments its counter before it makes a block, hence the + 1.
  unsigned long long counter = position + (unsigned long long)(i - replica * n_blocks) + 1;
  philox_uniform_block(counter, keys[2 * replica], keys[2 * replica + 1], out + 8 * i);
}
"""
)


@cache
def _uniform_kernel():
    import cupy

    return cupy.RawKernel(_UNIFORM, "philox_uniform")


def philox_uniform(keys, position, n_blocks):
    """What ``backend.Stream`` draws with NumPy: float32, shape (R, 8 × n_blocks), on the GPU.

    ``keys`` is a CuPy array (R, 2) of uint64; ``position`` and ``n_blocks`` count blocks of eight.
    """
    import cupy

    out = cupy.empty((len(keys), 8 * n_blocks), cupy.float32)
    threads = 256
    grid = (-(-len(keys) * n_blocks // threads),)
    arguments = (keys, cupy.uint64(position), cupy.int64(n_blocks), cupy.int64(len(keys)), out)
    _uniform_kernel()(grid, (threads,), arguments)
    return out
