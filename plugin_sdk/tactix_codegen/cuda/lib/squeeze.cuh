// Squeeze and excitation of one image by the blocks of a cluster, each with SLICE of its CHANNELS and OUT_SLICE of the
// results; they meet once, for the hidden sums. Vectors of WIDTH channels come by one access.
template <class S>
struct tx_squeezed {
  float part[S::THREADS * S::WIDTH];  // what groups of threads hand over
  float line[S::LINE];                // means, later results
  float sums[S::HIDDEN_PITCH];        // hidden sums of this block's channels, which the others read
  float hidden[S::HIDDEN_PITCH];
};

// Adds up the rows of `part` that groups of threads wrote, `wide` numbers each, and hands them to `put` one by one.
template <class Put>
TX_INLINE void tx_squeeze_join(const float* part, int groups, int wide, int threads, Put put) {
  __syncthreads();
  for (int c = threadIdx.x; c < wide; c += threads) {
    float sum = 0;
    for (int g = 0; g < groups; g++) sum += part[g * wide + c];
    put(c, sum);
  }
  __syncthreads();
}

// load(v, pixel, c): WIDTH channels of a pixel from channel c of the slice on, zeros past the last. first, second: the
// slice's weights, (HIDDEN, SLICE) and (HIDDEN, OUT_SLICE), padded by zeros; from_first, from_second: WIDTH of them as
// numbers. meet: waits for the other blocks; all(sum, r): the sums of all of them, of four hidden numbers. act: what follows
// one of these.
template <class S, class Load, class First, class Second, class Meet, class All, class Act>
TX_INLINE void tx_squeeze(tx_squeezed<S>& m, int64_t pixels, Load load, First from_first, Second from_second, Meet meet,
                          All all, Act act) {
  const int lanes = S::SLICE / S::WIDTH, groups = S::THREADS / lanes;
  const int lane = threadIdx.x % lanes, group = threadIdx.x / lanes;
  if (group < groups) {
    float sum[S::WIDTH] = {};
#pragma unroll 4
    for (int64_t p = group; p < pixels; p += groups) {
      float v[S::WIDTH];
      load(v, p, lane * S::WIDTH);
#pragma unroll
      for (int k = 0; k < S::WIDTH; k++) sum[k] += v[k];
    }
#pragma unroll
    for (int k = 0; k < S::WIDTH; k++) m.part[group * S::SLICE + lane * S::WIDTH + k] = sum[k];
  }
  const float scale = 1.0f / (float)pixels;
  tx_squeeze_join(m.part, groups, S::SLICE, S::THREADS, [&](int c, float sum) { m.line[c] = sum * scale; });

  // a warp for each hidden sum
  const int warp = threadIdx.x / 32;
#pragma unroll 2
  for (int r = warp; r < S::HIDDEN; r += S::THREADS / 32) {
    float sum = 0;
    for (int c = threadIdx.x % 32 * S::WIDTH; c < S::SLICE; c += 32 * S::WIDTH) {
      float w[S::WIDTH];
      from_first(w, r * S::SLICE + c);
#pragma unroll
      for (int k = 0; k < S::WIDTH; k++) sum = fmaf(w[k], m.line[c + k], sum);
    }
#pragma unroll
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
    if (threadIdx.x % 32 == 0) m.sums[r] = sum;
  }
  meet();
  for (int r = threadIdx.x * 4; r < S::HIDDEN_PITCH; r += S::THREADS * 4) {
    float sum[4];
    all(sum, r);
#pragma unroll
    for (int k = 0; k < 4; k++) m.hidden[r + k] = act(sum[k], r + k);
  }
  __syncthreads();

  const int wide = S::OUT_SLICE / S::WIDTH, rows = S::THREADS / wide;
  const int column = threadIdx.x % wide, row = threadIdx.x / wide;
  if (row < rows) {
    float sum[S::WIDTH] = {};
#pragma unroll 4
    for (int r = row; r < S::HIDDEN; r += rows) {
      float w[S::WIDTH];
      from_second(w, r * S::OUT_SLICE + column * S::WIDTH);
#pragma unroll
      for (int k = 0; k < S::WIDTH; k++) sum[k] = fmaf(w[k], m.hidden[r], sum[k]);
    }
#pragma unroll
    for (int k = 0; k < S::WIDTH; k++) m.part[row * S::OUT_SLICE + column * S::WIDTH + k] = sum[k];
  }
  tx_squeeze_join(m.part, rows, S::OUT_SLICE, S::THREADS, [&](int c, float sum) { m.line[c] = sum; });
}
