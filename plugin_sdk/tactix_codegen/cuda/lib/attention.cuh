// Attention in one pass over the keys with a running maximum and sum, as in FlashAttention-2 (T. Dao, 2023).
// A block has 16 query rows per warp; K and V come in stages of C::KEYS, two of each in shared memory.

template <class T, class C>
struct tx_queries {
  uint32_t q[C::DEPTH / 16][4];
  float o[C::WIDE / 8][4], s[C::KEYS / 8][4], top[2], total[2];

  __device__ __forceinline__ void start() {
#pragma unroll
    for (int j = 0; j < C::WIDE / 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) o[j][e] = 0.0f;
    top[0] = top[1] = -TX_INF;
    total[0] = total[1] = 0.0f;
  }

  __device__ __forceinline__ void load(tx_shared_t at) {
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane % 16;
#pragma unroll
    for (int i = 0; i < C::DEPTH / 16; i++) tx_load4(q[i], at + tx_place<C::DEPTH_CHUNKS>(row, i * 2 + lane / 16));
  }

  // Products of the keys of a stage.
  __device__ __forceinline__ void products(tx_shared_t keys) {
    const int lane = threadIdx.x % 32, m = lane / 8, r = lane % 8;
#pragma unroll
    for (int j = 0; j < C::KEYS / 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) s[j][e] = 0.0f;
#pragma unroll
    for (int i = 0; i < C::DEPTH / 16; i++)
#pragma unroll
      for (int j = 0; j < C::KEYS / 16; j++) {
        uint32_t b[4];
        tx_load4(b, keys + tx_place<C::DEPTH_CHUNKS>(j * 16 + m / 2 * 8 + r, i * 2 + m % 2));
        T::mma(s[j * 2], q[i], b[0], b[1]);
        T::mma(s[j * 2 + 1], q[i], b[2], b[3]);
      }
  }

  // Products become scores: of ``left`` keys of the stage, where causal of one more from row to row of the block, by
  // score(product, row of the block, key of the stage).
  template <class Score>
  __device__ __forceinline__ void scores(int64_t left, Score score) {
    const int lane = threadIdx.x % 32, own = threadIdx.x / 32 * 16, row = own + lane / 4;
    if (!C::SCORED && left + C::CAUSAL * own >= C::KEYS) return;
    const int seen = (left < C::KEYS ? (int)left : C::KEYS) + C::CAUSAL * row;
#pragma unroll
    for (int j = 0; j < C::KEYS / 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int key = j * 8 + lane % 4 * 2 + e % 2;
        s[j][e] = key < seen + C::CAUSAL * (e / 2 * 8) ? score(s[j][e], row + e / 2 * 8, key) : -TX_INF;
      }
  }

  // Scores become weights, 2 to the power of ``factor`` times them; what was summed before is scaled to the new maximum:
  // with m the row's maximum so far, w = 2^(factor (s - m)), and old sums times 2^(factor (m before - m)). Of no key
  // seen so far m is -inf, whose difference from itself is no number: 0 stands in its place. Four neighbouring threads
  // have a row's scores, so that two exchanges give all of them its maximum.
  __device__ __forceinline__ void weights(float factor) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float most = top[h];
#pragma unroll
      for (int j = 0; j < C::KEYS / 8; j++) most = tx_fmax(most, tx_fmax(s[j][h * 2], s[j][h * 2 + 1]));
      most = tx_fmax(most, __shfl_xor_sync(0xffffffffu, most, 1));
      most = tx_fmax(most, __shfl_xor_sync(0xffffffffu, most, 2));
      const float base = most == -TX_INF ? 0.0f : most * factor, scale = tx_exp2(fmaf(top[h], factor, -base));
      float sum = 0.0f;
#pragma unroll
      for (int j = 0; j < C::KEYS / 8; j++)
#pragma unroll
        for (int e = h * 2; e < h * 2 + 2; e++) {
          s[j][e] = tx_exp2(fmaf(s[j][e], factor, -base));
          sum += s[j][e];
        }
      top[h] = most;
      total[h] = total[h] * scale + sum;
#pragma unroll
      for (int j = 0; j < C::WIDE / 8; j++) {
        o[j][h * 2] *= scale;
        o[j][h * 2 + 1] *= scale;
      }
    }
  }

  __device__ __forceinline__ void add(tx_shared_t values) {
    const int lane = threadIdx.x % 32, m = lane / 8, r = lane % 8;
#pragma unroll
    for (int i = 0; i < C::KEYS / 16; i++) {
      const uint32_t a[4] = {T::pack(s[i * 2][0], s[i * 2][1]), T::pack(s[i * 2][2], s[i * 2][3]),
                             T::pack(s[i * 2 + 1][0], s[i * 2 + 1][1]), T::pack(s[i * 2 + 1][2], s[i * 2 + 1][3])};
#pragma unroll
      for (int j = 0; j < C::WIDE / 16; j++) {
        uint32_t b[4];
        tx_load4_transposed(b, values + tx_place<C::WIDE_CHUNKS>(i * 16 + m % 2 * 8 + r, j * 2 + m / 2));
        T::mma(o[j * 2], a, b[0], b[1]);
        T::mma(o[j * 2 + 1], a, b[2], b[3]);
      }
    }
  }

  // put(row of the block, column, eight results) gets each once; ``none``: the factor where no key has a weight.
  template <class Put>
  __device__ __forceinline__ void finish(char* memory, float none, Put put) {
    // 8 floats more than a row: half a warp's float2, in four rows, then lie in 32 banks
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, pitch = C::WIDE + 8;
    float* slab = (float*)memory + warp * 16 * pitch;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      total[h] += __shfl_xor_sync(0xffffffffu, total[h], 1);
      total[h] += __shfl_xor_sync(0xffffffffu, total[h], 2);
      const float scale = total[h] == 0.0f ? none : 1.0f / total[h];
#pragma unroll
      for (int j = 0; j < C::WIDE / 8; j++) {
        float* at = slab + (lane / 4 + h * 8) * pitch + j * 8 + lane % 4 * 2;
        *(float2*)at = make_float2(o[j][h * 2] * scale, o[j][h * 2 + 1] * scale);
      }
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < C::WIDE * 2; i += 32) {
      const int r = (i + lane) / (C::WIDE / 8), c = (i + lane) % (C::WIDE / 8) * 8;
      float v[8];
      *(float4*)v = *(const float4*)(slab + r * pitch + c);
      *(float4*)(v + 4) = *(const float4*)(slab + r * pitch + c + 4);
      put(warp * 16 + r, c, v);
    }
  }
};

// Query rows ``first`` and on of ``rows`` against keys 0 to ``keys`` of one head; pitches count elements. C::CAUSAL: row i
// sees keys to i + C::AHEAD.
template <class T, class C, class Score, class Put>
TX_INLINE void tx_attend(
    const void* q, const void* k, const void* v, int64_t q_pitch, int64_t k_pitch, int64_t v_pitch, int64_t first,
    int64_t rows, int64_t keys, int64_t stored, char* memory, float none, float factor, Score score, Put put) {
  tx_rows<C::ROWS, C::DEPTH_CHUNKS, C::THREADS, C::DEPTH_PIECE> of_q;
  tx_rows<C::KEYS, C::WIDE_CHUNKS, C::THREADS, C::WIDE_PIECE> of_v;
  tx_rows<C::KEYS, C::DEPTH_CHUNKS, C::THREADS, C::DEPTH_PIECE> key_rows;
  const tx_shared_t base = tx_shared(memory), ring = base + C::ROWS * C::DEPTH_CHUNKS * 16;
  const int each = C::KEYS * (C::DEPTH_CHUNKS + C::WIDE_CHUNKS) * 16;
  of_q.start(q, first, rows, q_pitch * 2, C::DEPTH_BYTES);
  of_q.load(base, 0);
  key_rows.start(k, 0, stored, k_pitch * 2, C::DEPTH_BYTES);
  key_rows.load(ring, 0);
  of_v.start(v, 0, stored, v_pitch * 2, C::WIDE_BYTES);
  of_v.load(ring + C::KEYS * C::DEPTH_CHUNKS * 16, 0);
  tx_copy_commit();
  tx_queries<T, C> own;
  own.start();
  const int64_t seen = C::CAUSAL ? first + C::AHEAD + 1 : keys;
  int stage = 0;
  for (int64_t t = 0; t < keys; t += C::KEYS) {
    if (t + C::KEYS < keys) {
      const tx_shared_t next = ring + (1 - stage) * each;
      key_rows.start(k, t + C::KEYS, stored, k_pitch * 2, C::DEPTH_BYTES);
      key_rows.load(next, 0);
      of_v.start(v, t + C::KEYS, stored, v_pitch * 2, C::WIDE_BYTES);
      of_v.load(next + C::KEYS * C::DEPTH_CHUNKS * 16, 0);
    }
    tx_copy_commit();  // an empty group in the end, so that all but the last group is always this stage
    tx_copy_wait<1>();
    __syncthreads();  // and so are the copies of the other threads
    if (t == 0) own.load(base);
    const tx_shared_t at = ring + stage * each;
    own.products(at);
    own.scores(seen - t, [&](float x, int r, int c) { return score(x, r, t + c); });
    own.weights(factor);
    own.add(at + C::KEYS * C::DEPTH_CHUNKS * 16);
    __syncthreads();  // nobody reads this stage any more: the next turn fills it
    stage = 1 - stage;
  }
  own.finish(memory, none, put);
}
