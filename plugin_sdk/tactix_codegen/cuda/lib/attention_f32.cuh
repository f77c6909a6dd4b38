// Attention in float32 without tensor cores, of tensors of any float. A warp owns C::ROWS query rows; a stage of 32 keys and values lies in
// shared memory. For the scores a lane is a key, for the results it owns every 32nd column.
template <class C>
struct tx_rows_f32 {
  float top[C::ROWS], total[C::ROWS], o[C::ROWS][C::LANES];

  __device__ __forceinline__ void start() {
#pragma unroll
    for (int r = 0; r < C::ROWS; r++) {
      top[r] = -TX_INF;
      total[r] = 0.0f;
#pragma unroll
      for (int j = 0; j < C::LANES; j++) o[r][j] = 0.0f;
    }
  }

  // q: the warp's rows, DEPTH_PITCH apart; k: this lane's key.
  __device__ __forceinline__ void scores(const float* q, const float* k, float (&s)[C::ROWS]) {
#pragma unroll
    for (int r = 0; r < C::ROWS; r++) s[r] = 0.0f;
#pragma unroll 4
    for (int i = 0; i < C::DEPTH_PITCH - 4; i += 4) {
      const float4 b = *(const float4*)(k + i);
#pragma unroll
      for (int r = 0; r < C::ROWS; r++) {
        const float4 a = *(const float4*)(q + r * C::DEPTH_PITCH + i);
        s[r] = fmaf(a.x, b.x, fmaf(a.y, b.y, fmaf(a.z, b.z, fmaf(a.w, b.w, s[r]))));
      }
    }
  }

  // Scores become weights, which all lanes see in p; what was summed before is scaled to the new maximum.
  __device__ __forceinline__ void weights(float (&s)[C::ROWS], float* p) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < C::ROWS; r++) {
      float most = s[r];
#pragma unroll
      for (int d = 16; d; d /= 2) most = tx_fmax(most, __shfl_xor_sync(0xffffffffu, most, d));
      most = tx_fmax(most, top[r]);
      const float base = most == -TX_INF ? 0.0f : most, scale = expf(top[r] - base), w = expf(s[r] - base);
      float sum = w;
#pragma unroll
      for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
      top[r] = most;
      total[r] = total[r] * scale + sum;
#pragma unroll
      for (int j = 0; j < C::LANES; j++) o[r][j] *= scale;
      p[r * 32 + lane] = w;
    }
    __syncwarp();
  }

  __device__ __forceinline__ void add(const float* p, const float* v) {
    const int lane = threadIdx.x % 32;
    for (int t = 0; t < 32; t += 4) {
      float b[4][C::LANES];
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < C::LANES; j++) b[i][j] = v[(t + i) * C::WIDE_PITCH + j * 32 + lane];
#pragma unroll
      for (int r = 0; r < C::ROWS; r++) {
        const float4 w = *(const float4*)(p + r * 32 + t);
#pragma unroll
        for (int j = 0; j < C::LANES; j++)
          o[r][j] = fmaf(w.x, b[0][j], fmaf(w.y, b[1][j], fmaf(w.z, b[2][j], fmaf(w.w, b[3][j], o[r][j]))));
      }
    }
    __syncwarp();
  }
};

// ``count`` rows of ``width`` elements, ``pitch`` apart, to shared memory at another; what lies beyond is zero.
template <class C, int ROWS, int PITCH, class T>
TX_INLINE void tx_stage_f32(float* to, const T* from, int64_t pitch, int64_t count, int width) {
  for (int i = threadIdx.x; i < ROWS * PITCH; i += C::WARPS * 32) {
    const int r = i / PITCH, c = i % PITCH;
    to[i] = r < count && c < width ? C::number(from[r * pitch + c]) : 0.0f;
  }
}

// Query rows ``first`` to ``rows`` against keys 0 to ``keys`` of one head. score(sum, row of the block, key) scales and
// masks; put(row of the block, column, result) gets each result once; ``none``: the factor where no key has a weight.
// C::number(T) is an element in float32.
template <class C, class T, class Score, class Put>
TX_INLINE void tx_attend_f32(
    const T* q, const T* k, const T* v, int64_t q_pitch, int64_t k_pitch, int64_t v_pitch, int64_t first,
    int64_t rows, int64_t keys, float* memory, float none, Score score, Put put) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float* of_k = memory + C::WARPS * C::ROWS * C::DEPTH_PITCH;
  float* of_v = of_k + 32 * C::DEPTH_PITCH;
  float* p = of_v + 32 * C::WIDE_PITCH + warp * C::ROWS * 32;
  const float* own = memory + warp * C::ROWS * C::DEPTH_PITCH;
  tx_stage_f32<C, C::WARPS * C::ROWS, C::DEPTH_PITCH>(memory, q + first * q_pitch, q_pitch, rows - first, C::DEPTH);
  tx_rows_f32<C> sums;
  sums.start();
  for (int64_t t = 0; t < keys; t += 32) {
    __syncthreads();
    tx_stage_f32<C, 32, C::DEPTH_PITCH>(of_k, k + t * k_pitch, k_pitch, keys - t, C::DEPTH);
    tx_stage_f32<C, 32, C::WIDE_PITCH>(of_v, v + t * v_pitch, v_pitch, keys - t, C::WIDE);
    __syncthreads();
    float s[C::ROWS];
    sums.scores(own, of_k + lane * C::DEPTH_PITCH, s);
#pragma unroll
    for (int r = 0; r < C::ROWS; r++)
      s[r] = t + lane < keys && first + warp * C::ROWS + r < rows ? score(s[r], warp * C::ROWS + r, t + lane) : -TX_INF;
    sums.weights(s, p);
    sums.add(p, of_v);
  }
#pragma unroll
  for (int r = 0; r < C::ROWS; r++) {
    const float scale = sums.total[r] == 0.0f ? none : 1.0f / sums.total[r];
#pragma unroll
    for (int j = 0; j < C::LANES; j++)
      if (j * 32 + lane < C::WIDE) put(warp * C::ROWS + r, j * 32 + lane, sums.o[r][j] * scale);
  }
}
