// Attention by Hopper's matrix instructions: the copy engine brings queries, keys and values of a head from where they lie,
// a team of four warps has 64 query rows. Rows of 64 columns lie in shared memory as 128 permuted bytes, further columns
// behind them as rows of their own; what is not there is zero.

template <class T, class C>
struct tx_team : tx_queries<T, C> {
  using tx_queries<T, C>::s;
  using tx_queries<T, C>::o;

  __device__ __forceinline__ void products(tx_chunk_t rows, tx_chunk_t keys) {
    tx_multiply_begin();
#pragma unroll
    for (int i = 0; i < C::DEPTH / 16; i++)
      C::multiply(
          *(float (*)[C::KEYS / 2])s, tx_operand(rows + i / 4 * C::ROWS * 8 + i % 4 * 2),
          tx_operand(keys + i / 4 * C::KEYS * 8 + i % 4 * 2), i);
    tx_multiply_commit();
    tx_multiply_wait<0>();
#pragma unroll
    for (int j = 0; j < C::KEYS / 8; j++) tx_made(s[j]);
  }
  __device__ __forceinline__ void add(tx_chunk_t values) {
    uint32_t a[C::KEYS / 16][4];
#pragma unroll
    for (int i = 0; i < C::KEYS / 16; i++)
#pragma unroll
      for (int e = 0; e < 4; e++) a[i][e] = T::pack(s[i * 2 + e / 2][e % 2 * 2], s[i * 2 + e / 2][e % 2 * 2 + 1]);
    tx_multiply_begin();
#pragma unroll
    for (int i = 0; i < C::KEYS / 16; i++)
#pragma unroll
      for (int p = 0; p < C::WIDE / 64; p++)
        T::add(o + p * 8, a[i], tx_operand(values + (p * C::KEYS + i * 16) * 8));
    tx_multiply_commit();
    tx_multiply_wait<0>();
#pragma unroll
    for (int j = 0; j < C::WIDE / 8; j++) tx_made(o[j]);
  }
};

// Where a head's matrices lie: its place along the axes of heads and batches of each map.
struct tx_head {
  int q[2], k[2], v[2];
};

// Query rows ``first`` and on against keys 0 to ``keys`` of one head. C::CAUSAL: row i sees keys to i + C::AHEAD, and a team
// leaves out the stages that none of its rows sees; the last team sees all, so one of its threads fetches.
template <class T, class C, class Score, class Put>
TX_INLINE void tx_attend_teams(
    const tx_map& q, const tx_map& k, const tx_map& v, tx_head head, int first, int64_t keys, char* memory, float none,
    float factor, Score score, Put put) {
  const int DEPTH_PARTS = (C::DEPTH + 63) / 64, WIDE_PARTS = C::WIDE / 64;
  const int K_BYTES = C::KEYS * 128 * DEPTH_PARTS, STAGE = K_BYTES + C::KEYS * 128 * WIDE_PARTS;
  const tx_shared_t base = (tx_shared(memory) + 1023) & ~(tx_shared_t)1023, ring = base + C::ROWS * 128 * DEPTH_PARTS;
  const tx_shared_t full = ring + C::STAGES * STAGE, empty = full + C::STAGES * 8;
  static_assert(!C::CAUSAL || C::STAGES * C::KEYS >= C::ROWS - 64, "a stage that a team leaves out is never filled again");
  const int count = C::STAGES > 1 ? (int)((keys + C::KEYS - 1) / C::KEYS) : 1;
  const int team = tx_team_of();
  const int64_t shown = first + (team + 1) * 64 + C::AHEAD;
  const int stages = C::CAUSAL && C::STAGES > 1 && shown < keys ? (int)((shown + C::KEYS - 1) / C::KEYS) : count;
  const int64_t seen = C::CAUSAL ? first + C::AHEAD + 1 : keys;
  const bool fetches = threadIdx.x == C::ROWS * 2 - 128;
  if (fetches) {
    for (int i = 0; i < C::STAGES; i++) {
      tx_bar_init(full + i * 8, 1);
      tx_bar_init(empty + i * 8, C::ROWS / 16);
    }
    tx_bars_made();
    tx_fetch_map(q), tx_fetch_map(k), tx_fetch_map(v);
  }
  __syncthreads();
  tx_wait_for_others();
  const auto fetch = [&](int i) {
    const tx_shared_t to = ring + i % C::STAGES * STAGE, bar = full + i % C::STAGES * 8;
    tx_bar_expect(bar, STAGE + (i ? 0 : C::ROWS * 128 * DEPTH_PARTS));
    for (int p = 0; p < DEPTH_PARTS; p++) {
      if (i == 0) tx_fetch_rows(base + p * C::ROWS * 128, q, bar, p * 64, first, head.q[0], head.q[1]);
      tx_fetch_rows(to + p * C::KEYS * 128, k, bar, p * 64, i * C::KEYS, head.k[0], head.k[1]);
    }
    for (int p = 0; p < WIDE_PARTS; p++)
      tx_fetch_rows(to + K_BYTES + p * C::KEYS * 128, v, bar, p * 64, i * C::KEYS, head.v[0], head.v[1]);
  };
  if (fetches)
    for (int i = 0; i < C::STAGES && i < count; i++) fetch(i);
  __syncwarp();
  tx_team<T, C> own;
  own.start();
#pragma unroll 1
  for (int i = 0; i < stages; i++) {
    const tx_shared_t at = ring + i % C::STAGES * STAGE;
    tx_bar_wait(full + i % C::STAGES * 8, i / C::STAGES % 2);
    own.products(tx_chunk(base + team * 64 * 128), tx_chunk(at));
    if (i > 0 && i - 1 + C::STAGES < count) {  // the stage before is read by all soon, and filled again
      if (fetches) {
        tx_bar_wait(empty + (i - 1) % C::STAGES * 8, (i - 1) / C::STAGES % 2);
        fetch(i - 1 + C::STAGES);
      }
      __syncwarp();
    }
    own.scores(seen - (int64_t)i * C::KEYS, [&](float x, int r, int c) { return score(x, r, (int64_t)i * C::KEYS + c); });
    own.weights(factor);
    own.add(tx_chunk(at + K_BYTES));
    if (threadIdx.x % 32 == 0) tx_bar_arrive(empty + i % C::STAGES * 8);
    __syncwarp();
  }
  __syncthreads();
  own.finish(memory, none, put);
}
