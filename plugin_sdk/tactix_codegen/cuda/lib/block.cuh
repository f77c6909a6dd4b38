// Reductions over the T threads, neighbours, that share a row: T is a power of two up to 32, or all threads of the block
// (a multiple of 32). All of them get the result. Op::join combines two values.
template <int T, class Op, class A>
TX_INLINE A tx_reduce(A a) {
  if (T == 1) return a;
  const int WIDTH = T < 32 ? T : 32;
  // the lanes of this part of the warp: those of others may have no row, and be gone
  const uint32_t lanes = WIDTH < 32 ? ((1u << WIDTH % 32) - 1) << threadIdx.x % 32 / WIDTH * WIDTH : 0xffffffffu;
#pragma unroll
  for (int o = WIDTH / 2; o; o >>= 1) a = Op::join(a, __shfl_xor_sync(lanes, a, o));
  if (T > 32) {
    __shared__ A part[T > 32 ? T / 32 : 1];
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = a;
    __syncthreads();
    a = part[0];
#pragma unroll
    for (int w = 1; w < T / 32; w++) a = Op::join(a, part[w]);
  }
  return a;
}
// Of floats and doubles; of no number and another the former stays the largest.
struct tx_sum {
  TX_INLINE float join(float a, float b) { return a + b; }
  TX_INLINE double join(double a, double b) { return a + b; }
};
struct tx_largest {
  TX_INLINE float join(float a, float b) { return tx_fmax(a, b); }
  TX_INLINE double join(double a, double b) { return TX_MAX(a, b); }
};
