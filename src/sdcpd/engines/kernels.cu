// The GPU kernels of gpu.py: R replicas side by side, B rows (chains) each.
//
// Apart from the two conversions below this is plain C++ without any header, so that the GPU's
// compiler needs nothing but itself, and so that the tests can run every kernel on a CPU.
//
// The exact split: x = hi + lo with two fp16 numbers, of which lo is stored times 2^11, so that it
// keeps its 11 bits whatever the size of x. States are stored twice, s and s * 2^-11, and a product
// over both copies accumulates s * hi + s * lo in float32.

typedef unsigned short half;  // the bits of an fp16 number
typedef unsigned int u32;
typedef unsigned long long u64;

#ifndef EMULATED
__device__ half to_half(float x) {
  half h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}
__device__ float to_float(half h) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  return x;
}
#endif

#define MAX_THREADS 256  // a block

static const half ONE = 0x3C00, SCALED_ONE = 0x1000;  // 1 and 2^-11
static const float UP = 2048.0f, DOWN = 1.0f / 2048.0f;

__device__ void split(float x, half* hi, half* lo) {
  *hi = to_half(x);
  *lo = to_half((x - to_float(*hi)) * UP);
}

__device__ float unsplit(half hi, half lo) { return to_float(hi) + to_float(lo) * DOWN; }

__device__ float sigmoid(float x) { return 1.0f / (1.0f + __expf(-x)); }

// The four random numbers in [0, 1) of units 4j ... 4j + 3: see philox.py.
__device__ void philox(u64 key, u64 draw, u32 row, u32 j, float u[4]) {
  u32 key0 = (u32)key, key1 = (u32)(key >> 32);
  u32 c0 = j, c1 = row, c2 = (u32)draw, c3 = (u32)(draw >> 32);
  for (int round = 0; round < 10; ++round) {
    u32 hi0 = __umulhi(0xD2511F53u, c0), lo0 = 0xD2511F53u * c0;
    u32 hi2 = __umulhi(0xCD9E8D57u, c2), lo2 = 0xCD9E8D57u * c2;
    c0 = hi2 ^ c1 ^ key0;
    c1 = lo2;
    c2 = hi0 ^ c3 ^ key1;
    c3 = lo0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  const float step = 1.0f / 16777216.0f;
  u[0] = (float)(c0 >> 8) * step;
  u[1] = (float)(c1 >> 8) * step;
  u[2] = (float)(c2 >> 8) * step;
  u[3] = (float)(c3 >> 8) * step;
}

// Store the states of units 4j ... 4j + 3 of row q, bit w of `on` that of unit 4j + w. The two
// copies lie side by side as layers (R, B, 2, padded), or, interleaved, unit by unit
// (R, B, padded, 2). Units beyond the real ones are 0.
__device__ void put_states(half* state, long long q, int j, int padded, int interleaved, u32 on) {
  u32 bit0 = on & 1, bit1 = on >> 1 & 1, bit2 = on >> 2 & 1, bit3 = on >> 3 & 1;
  half* row = state + 2 * q * padded;
  if (interleaved) {
    const u32 both = SCALED_ONE << 16 | ONE;
    uint4 copies = {bit0 * both, bit1 * both, bit2 * both, bit3 * both};
    *(uint4*)(row + 8 * j) = copies;
  } else {
    u32 first = bit0 | bit1 << 16, second = bit2 | bit3 << 16;
    uint2 ones = {first * ONE, second * ONE}, scaled = {first * SCALED_ONE, second * SCALED_ONE};
    *(uint2*)(row + 4 * j) = ones;
    *(uint2*)(row + padded + 4 * j) = scaled;
  }
}

// States (R, B, units) of 0 and 1 as bytes -> both copies, as layers.
extern "C" __global__ void load_states(const unsigned char* images, long long n_rows, int n_units,
                                       int padded, half* state) {
  long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  int blocks = padded / 4;
  if (index >= n_rows * blocks) return;
  long long q = index / blocks;
  int j = (int)(index - q * blocks);
  u32 on = 0;
  for (int w = 0; w < 4; ++w)
    if (4 * j + w < n_units && images[q * n_units + 4 * j + w]) on |= 1u << w;
  put_states(state, q, j, padded, 0, on);
}

// Draw units with p = sigmoid(x + bias), or with the probabilities `given` where there are some.
// x (R, B, padded), bias (R, n_units), given (R, B, 2, padded).
extern "C" __global__ void sample_units(const float* x, const float* bias, const half* given,
                                        const u64* keys, u64 draw, long long n_rows, int batch,
                                        int n_units, int padded, int interleaved, half* state) {
  long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  int blocks = padded / 4;
  if (index >= n_rows * blocks) return;
  long long q = index / blocks, replica = q / batch;
  int j = (int)(index - q * blocks);
  float u[4];
  philox(keys[replica], draw, (u32)(q - replica * batch), j, u);
  float4 sums = {0, 0, 0, 0};
  if (!given) sums = *(const float4*)(x + q * padded + 4 * j);
  const float a[4] = {sums.x, sums.y, sums.z, sums.w};
  u32 on = 0;
  for (int w = 0; w < 4; ++w) {
    int i = 4 * j + w;
    if (i >= n_units) break;
    float p = given ? unsplit(given[2 * q * padded + i], given[(2 * q + 1) * padded + i])
                    : sigmoid(a[w] + bias[replica * n_units + i]);
    if (u[w] < p) on |= 1u << w;
  }
  put_states(state, q, j, padded, interleaved, on);
}

// sigmoid(x + bias), split: (R, B, 2, padded), hi and lo side by side.
extern "C" __global__ void probabilities(const float* x, const float* bias, long long n_rows,
                                         int batch, int n_units, int padded, half* p) {
  long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= n_rows * padded) return;
  long long q = index / padded;
  int i = (int)(index - q * padded);
  float value = i < n_units ? sigmoid(x[index] + bias[q / batch * n_units + i]) : 0.0f;
  half* row = p + 2 * q * padded;
  split(value, row + i, row + padded + i);
}

// Means over the batch of states or probabilities (R, B, 2, padded): (R, n_units).
extern "C" __global__ void batch_means(const half* values, int n_replicas, int batch, int n_units,
                                       int padded, int split_values, float* means) {
  int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= n_replicas * n_units) return;
  int replica = index / n_units, i = index - replica * n_units;
  const half* column = values + (long long)replica * batch * 2 * padded + i;
  float sum = 0;
  for (int row = 0; row < batch; ++row, column += 2 * padded)
    sum += split_values ? unsplit(column[0], column[padded]) : to_float(column[0]);
  means[index] = sum / batch;
}

// x + rate * (g - f), or with H: x + rate * (g - f) / (H + epsilon), with
// H = lambda_hessian * old + (1 - lambda_hessian) * f (1 - f); without f: x + rate * g. Arrays (R, n, m);
// halves (R, n_padded, 2, m_padded) of the result, zero beyond n and m, unless null.
extern "C" __global__ void ascend(const float* x, const float* g, const float* f, const float* old,
                                  const float* rate, const float* lambda_hessian, const float* epsilon,
                                  int n_replicas, int n, int m, int n_padded, int m_padded,
                                  float* result, float* H, half* halves) {
  long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= (long long)n_replicas * n_padded * m_padded) return;
  long long row = index / m_padded, replica = row / n_padded;
  int j = (int)(index - row * m_padded), i = (int)(row - replica * n_padded);
  float value = 0;
  if (i < n && j < m) {
    long long at = (replica * n + i) * m + j;
    value = x[at];
    if (g) {
      float G = f ? f[at] : 0.0f, change = g[at] - G;
      if (H) {
        float estimate = G * (1 - G), lambda = old ? lambda_hessian[replica] : 0.0f;
        if (old) estimate = lambda * old[at] + (1 - lambda) * estimate;
        H[at] = estimate;
        change /= estimate + epsilon[replica];
      }
      value += rate[replica] * change;
      result[at] = value;
    }
  }
  if (halves) split(value, halves + 2 * row * m_padded + j, halves + (2 * row + 1) * m_padded + j);
}

// ------------------------------------------------------------ annealed importance sampling

// The sum over the block's threads, in all of them.
__device__ double block_sum(double value) {
  __shared__ double part[MAX_THREADS];
  part[threadIdx.x] = value;
  __syncthreads();
  double sum = 0;
  if (threadIdx.x == 0) {
    for (int t = 0; t < blockDim.x; ++t) sum += part[t];
    part[0] = sum;
  }
  __syncthreads();
  sum = part[0];
  __syncthreads();
  return sum;
}

// A block per particle q: weights[q] += log p*_high(v) - log p*_low(v), then draw h at `high`.
// That is (high - low) (slope.v + sum of max(a, 0)) + sum of the logarithms of
// (1 + e^{-high|a|}) / (1 + e^{-low|a|}), over the units' inputs a.
extern "C" __global__ void anneal_hidden(const float* x, const float* c, const u64* keys, u64 draw,
                                         int batch, int n_units, int padded, float low, float high,
                                         const double* dot, double* weights, half* state) {
  long long q = blockIdx.x, replica = q / batch;
  double change = 0;
  for (int j = threadIdx.x; j < padded / 4; j += blockDim.x) {
    float u[4], linear = 0, factor = 1;
    philox(keys[replica], draw, (u32)(q - replica * batch), j, u);
    u32 on = 0;
    for (int w = 0; w < 4; ++w) {
      int i = 4 * j + w;
      if (i >= n_units) break;
      float a = x[q * padded + i] + c[replica * n_units + i], size = fabsf(a);
      linear += fmaxf(a, 0.0f);
      factor *= (1 + __expf(-high * size)) / (1 + __expf(-low * size));
      if (u[w] < sigmoid(high * a)) on |= 1u << w;
    }
    put_states(state, q, j, padded, 1, on);
    change += (double)((high - low) * linear) + logf(factor);
  }
  change = block_sum(change);
  if (threadIdx.x == 0) weights[q] += change + (high - low) * dot[q];
}

// A block per particle q: draw v at beta, p = sigmoid(beta (x + b) + (1 - beta) base), and
// dot[q] = slope.v with slope = b - base.
extern "C" __global__ void anneal_visible(const float* x, const float* b, const float* base,
                                          const u64* keys, u64 draw, int batch, int n_units,
                                          int padded, float beta, double* dot, half* state) {
  long long q = blockIdx.x, replica = q / batch;
  double sum = 0;
  for (int j = threadIdx.x; j < padded / 4; j += blockDim.x) {
    float u[4], part = 0;
    philox(keys[replica], draw, (u32)(q - replica * batch), j, u);
    u32 on = 0;
    for (int w = 0; w < 4; ++w) {
      int i = 4 * j + w;
      if (i >= n_units) break;
      float bias = b[replica * n_units + i];
      if (u[w] < sigmoid(beta * (x[q * padded + i] + bias) + (1 - beta) * base[i])) {
        on |= 1u << w;
        part += bias - base[i];
      }
    }
    put_states(state, q, j, padded, 0, on);
    sum += part;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) dot[q] = sum;
}
