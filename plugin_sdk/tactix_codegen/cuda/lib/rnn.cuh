// Recurrent layers. The products of all steps with the input weights come first, as one matrix product.

// y[row][column] = bias[column] + sum over k of x[place(row)][k] w[column][k], in tiles of 64 x 64; 256 threads.
template <class Place, class X, class W, class Bias>
TX_INLINE void tx_project(float* y, int64_t rows, int64_t columns, int depth, Place place, X x, W w, Bias bias) {
  __shared__ float a[16][65], b[16][65];
  const int64_t tiles = (columns + 63) / 64, top = blockIdx.x / tiles * 64, left = blockIdx.x % tiles * 64;
  const int across = threadIdx.x % 16, down = threadIdx.x / 16;
  float sum[4][4] = {};
  for (int k = 0; k < depth; k += 16) {
    for (int i = threadIdx.x; i < 64 * 16; i += 256) {
      const int r = i / 16, c = i % 16;
      a[c][r] = top + r < rows && k + c < depth ? x(place(top + r) + k + c) : 0.0f;
      b[c][r] = left + r < columns && k + c < depth ? w((left + r) * depth + k + c) : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int c = 0; c < 16; c++)
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sum[i][j] = fmaf(a[c][down + 16 * i], b[c][across + 16 * j], sum[i][j]);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int64_t r = top + down + 16 * i, c = left + across + 16 * j;
      if (r < rows && c < columns) y[r * columns + c] = sum[i][j] + bias(c);
    }
}

// All SLICES blocks of a group wait for each other; ``reached`` counts arrivals, ``times`` the barriers so far.
template <int SLICES>
TX_INLINE void tx_meet(unsigned* reached, unsigned& times) {
  __syncthreads();
  if (SLICES == 1) return;
  times++;
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(reached, 1u);
    while (*(volatile unsigned*)reached < times * SLICES) {
    }
    __threadfence();
  }
  __syncthreads();
}

// ROWS states of H units into shared memory; other blocks may have written them.
template <int ROWS, int H, int THREADS>
TX_INLINE void tx_take_states(float* to, const float* from, int64_t count) {
  for (int i = threadIdx.x; i < ROWS * H; i += THREADS) to[i] = i / H < count ? ((volatile const float*)from)[i] : 0.0f;
  __syncthreads();
}

// s[r] = sum over k of w(k) h[r][k], by a warp; every lane has all sums.
template <int ROWS, int H, class W>
TX_INLINE void tx_state_product(float (&s)[ROWS], const float* h, W w) {
#pragma unroll
  for (int r = 0; r < ROWS; r++) s[r] = 0.0f;
  for (int k = threadIdx.x % 32; k < H; k += 32) {
    const float weight = w(k);
#pragma unroll
    for (int r = 0; r < ROWS; r++) s[r] = fmaf(weight, h[r * H + k], s[r]);
  }
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int d = 16; d; d /= 2) s[r] += __shfl_xor_sync(0xffffffffu, s[r], d);
}

// The sum of this lane's row.
template <int ROWS>
TX_INLINE float tx_own(const float (&s)[ROWS]) {
  float own = s[0];
#pragma unroll
  for (int r = 1; r < ROWS; r++) own = threadIdx.x % 32 == r ? s[r] : own;
  return own;
}

TX_INLINE float tx_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
