// The k best of a line by a block: numbers become keys of 32 bits in their order, and keys with positions numbers of
// 64 bits that differ, of which the k largest are selected by their digits and sorted in shared memory.

// A key in the order of the numbers: NaN is the largest, both zeros are the same.
TX_INLINE uint32_t tx_key(float x) {
  if (x != x) return 0xffffffffu;
  const uint32_t bits = __float_as_uint(x == 0.0f ? 0.0f : x);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
// An integer of up to 32 bits; ``least``: the least that its type holds.
TX_INLINE uint32_t tx_key(int64_t x, int64_t least) { return (uint32_t)(x - least); }

struct tx_counted {
  TX_INLINE int64_t join(int64_t a, int64_t b) { return a + b; }
};

// The k-th largest of the numbers code(0) to code(n - 1), no two of which are equal, by T threads. k is at most n, and n
// below 2^21: the counts of three candidates share one sum.
template <int T, class Code>
TX_INLINE uint64_t tx_threshold(int64_t n, int64_t k, Code code) {
  const int64_t field = (1 << 21) - 1;
  uint64_t found = 0;
  int low = 0;  // bits of positions, those above them are zero
  while (n >> low) low += 2;
  for (int shift = 62; shift >= 0; shift -= 2) {
    if (shift == 30) shift = low - 2;
    int64_t counts = 0;  // of numbers from each of the next digits 1, 2, 3 on
    for (int64_t j = threadIdx.x; j < n; j += T) {
      const uint64_t c = code(j);
#pragma unroll
      for (int d = 1; d < 4; d++) counts += (int64_t)(c >= (found | (uint64_t)d << shift)) << 21 * (d - 1);
    }
    counts = tx_reduce<T, tx_counted>(counts);
    int digit = 3;
    while (digit && (counts >> 21 * (digit - 1) & field) < k) digit--;
    found |= (uint64_t)digit << shift;
    if (digit && (counts >> 21 * (digit - 1) & field) == k) break;
  }
  return found;
}

// Sorts SIZE numbers, a power of two, in shared memory by T threads, largest first (Batcher's bitonic sort).
template <int T, int SIZE>
TX_INLINE void tx_sort(uint64_t* x) {
  for (int size = 2; size <= SIZE; size *= 2) {
    for (int apart = size / 2; apart; apart /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < SIZE / 2; i += T) {
        const int a = i / apart * 2 * apart + i % apart, b = a + apart;
        const bool rising = a & size && size < SIZE;
        if (x[a] < x[b] != rising) {
          const uint64_t kept = x[a];
          x[a] = x[b], x[b] = kept;
        }
      }
    }
  }
  __syncthreads();
}

// best[0] to best[k - 1]: the largest of the numbers, in order. SIZE: a power of two from k on.
template <int T, int SIZE, class Code>
TX_INLINE void tx_top(uint64_t* best, int64_t n, int64_t k, Code code) {
  __shared__ int taken;
  const uint64_t least = n == k ? 0 : tx_threshold<T>(n, k, code);
  if (threadIdx.x == 0) taken = 0;
  for (int i = threadIdx.x; i < SIZE; i += T) best[i] = 0;
  __syncthreads();
  for (int64_t j = threadIdx.x; j < n; j += T) {
    const uint64_t c = code(j);
    if (c >= least) best[atomicAdd(&taken, 1)] = c;
  }
  tx_sort<T, SIZE>(best);
}
