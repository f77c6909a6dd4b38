// Products of 8-bit integers in tiles of 64 x 64 sums; 256 threads of 4 x 4 sums, a stage is 64 bytes deep.
struct alignas(16) tx_words {
  int w[4];
};

// a(stage, words) loads 16 bytes of row threadIdx.x / 4 at byte threadIdx.x % 4 * 16 of a stage; b those of a column.
template <class Dot, class A, class B>
TX_INLINE void tx_integer_tile(int (&sum)[4][4], int stages, Dot dot, A a, B b) {
  __shared__ tx_words left[16][17], right[16][17];
  const int line = threadIdx.x / 4, word = threadIdx.x % 4 * 4, across = threadIdx.x % 16, down = threadIdx.x / 16;
  tx_words of_a, of_b;
  a(0, of_a);
  b(0, of_b);
  for (int stage = 0; stage < stages; stage++) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; i++) {
      left[word + i][line / 4].w[line % 4] = of_a.w[i];
      right[word + i][line / 4].w[line % 4] = of_b.w[i];
    }
    __syncthreads();
    if (stage + 1 < stages) {
      a(stage + 1, of_a);
      b(stage + 1, of_b);
    }
#pragma unroll
    for (int k = 0; k < 16; k++) {
      const tx_words x = left[k][down], y = right[k][across];
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sum[i][j] = dot(x.w[i], y.w[j], sum[i][j]);
    }
  }
}
