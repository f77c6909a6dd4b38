// Lines of a tensor along one axis, a warp for each.

// Order in which NaN is the largest number.
template <class T>
TX_INLINE bool tx_above(T a, T b) {
  return a > b || (a != a && b == b);
}
template <bool LARGEST, class T>
TX_INLINE bool tx_ahead(T a, int64_t i, T b, int64_t j, bool last) {
  const bool wins = LARGEST ? tx_above(a, b) : b > a || (a != a && b == b);
  const bool loses = LARGEST ? tx_above(b, a) : a > b || (b != b && a == a);
  return wins || (!loses && (last ? i > j : i < j));
}

// Where the best of x(0) to x(n - 1) is; of equals the first, or the last. NaN counts as the best.
template <bool LARGEST, class T, class X>
TX_INLINE int64_t tx_best(int64_t n, bool last, X x) {
  int64_t at = threadIdx.x % 32 < n ? threadIdx.x % 32 : 0;
  T best = x(at);
  for (int64_t j = at + 32; j < n; j += 32) {
    const T found = x(j);
    if (tx_ahead<LARGEST>(found, j, best, at, last)) best = found, at = j;
  }
#pragma unroll
  for (int o = 16; o; o /= 2) {
    const T other = __shfl_xor_sync(0xffffffffu, best, o);
    const int64_t place = __shfl_xor_sync(0xffffffffu, at, o);
    if (tx_ahead<LARGEST>(other, place, best, at, last)) best = other, at = place;
  }
  return at;
}

// put(j, join of x(0) to x(j)), or to x(j - 1) if ``exclusive``, for all j below n.
template <class Op, class T, class X, class Put>
TX_INLINE void tx_scan(int64_t n, T neutral, bool exclusive, X x, Put put) {
  const int lane = threadIdx.x % 32;
  T carry = neutral;
  for (int64_t from = 0; from < n; from += 32) {
    const int64_t j = from + lane;
    T sum = j < n ? x(j) : neutral;
#pragma unroll
    for (int o = 1; o < 32; o *= 2) {
      const T before = __shfl_sync(0xffffffffu, sum, (lane - o) & 31);
      if (lane >= o) sum = Op::join(before, sum);
    }
    const T before = __shfl_sync(0xffffffffu, sum, (lane - 1) & 31);
    const T own = exclusive ? (lane ? Op::join(carry, before) : carry) : Op::join(carry, sum);
    if (j < n) put(j, own);
    carry = Op::join(carry, __shfl_sync(0xffffffffu, sum, 31));
  }
}
template <class T>
struct tx_added {
  TX_INLINE T join(T a, T b) { return a + b; }
};
template <class T>
struct tx_multiplied {
  TX_INLINE T join(T a, T b) { return a * b; }
};
