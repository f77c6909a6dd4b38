// Products of a row x with n columns of integers w of few bits, by tensor cores: w is the left matrix, 16 columns of the
// product, a panel. One row would leave seven of eight columns of the right matrix empty. So they are eight parts of 32 numbers
// along k instead, a chunk together: column j has x where k is in part j, else zeros, and sums of parts, which scales belong to,
// come out apart.
//
// Lane (g, t), g = lane / 4, t = lane % 4, has four of an instruction's k. They are of part t in one, of part t + 4 in another;
// so b of lane (g, t) is not zero only where g = t, or g = t + 4 there: such lanes read x and others a blank.

// How numbers become floats, of which two make a word, as UNIT times q + OFFSET. w: of columns g and g + 8, of part t, then of
// part t + 4, for which b has pairs of x: of 4 bits (k0, k4), (k2, k6), (k1, k5), (k3, k7), of 8 (k0, k1), (k2, k3).
template <int BITS>
struct tx_gemv_f16;
// q in the last bits is q times 2^-24, which tensor cores take as it is (PTX ISA, "Half precision floating point instructions:
// mma": subnormal numbers are supported); in the bits before, 16 times as much.
template <>
struct tx_gemv_f16<4> : tx_f16 {
  static constexpr float UNIT = 1.0f / (1 << 24), OFFSET = 0.0f;
  TX_INLINE float number(uint16_t x) { return tx_from_f16(x); }
  TX_INLINE void multiply(float (&d)[2][4], const uint32_t (&w)[4], const uint32_t (&b)[2][4]) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const uint32_t q[4] = {w[2 * h], w[2 * h + 1], w[2 * h] >> 8, w[2 * h + 1] >> 8};
      uint32_t low[4], high[4];
#pragma unroll
      for (int j = 0; j < 4; j++) low[j] = q[j] & 0x000f000fu, high[j] = q[j] & 0x00f000f0u;
      mma(d[0], low, b[h][0], b[h][1]), mma(d[1], high, b[h][2], b[h][3]);
    }
  }
  TX_INLINE float sum(float low, float high) { return fmaf(high, 1.0f / 16, low); }
};
template <>
struct tx_gemv_f16<8> : tx_f16 {
  static constexpr float UNIT = 1.0f / (1 << 24), OFFSET = 0.0f;
  TX_INLINE float number(uint16_t x) { return tx_from_f16(x); }
  TX_INLINE void multiply(float (&d)[2][4], const uint32_t (&w)[4], const uint32_t (&b)[2][2]) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      uint32_t a[4];
#pragma unroll
      for (int j = 0; j < 4; j++) a[j] = __byte_perm(w[2 * h + j % 2], 0, j < 2 ? 0x4140 : 0x4342);
      mma(d[h], a, b[h][0], b[h][1]);
    }
  }
  TX_INLINE float sum(float first, float second) { return first + second; }
};
// Products of numbers so small have no room in float32 beside an x of bfloat16; so they are the last bits of 128 + q.
template <int BITS>
struct tx_gemv_bf16 : tx_bf16 {
  static constexpr float UNIT = 1.0f, OFFSET = 128.0f;
  TX_INLINE float number(uint16_t x) { return tx_from_bf16(x); }
  TX_INLINE void multiply(float (&d)[2][4], const uint32_t (&w)[4], const uint32_t (&b)[2][4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      uint32_t a[4];
#pragma unroll
      for (int j = 0; j < 4; j++) a[j] = ((w[i / 2 * 2 + j % 2] >> (i % 2 * 4 + j / 2 * 8)) & 0x000f000fu) | 0x43004300u;
      mma(d[i % 2], a, b[i / 2][i % 2 * 2], b[i / 2][i % 2 * 2 + 1]);
    }
  }
  TX_INLINE float sum(float first, float second) { return first + second; }
};

// Scales or zero points of SIZE bytes each, of columns g and g + 8.
template <int SIZE>
TX_INLINE void tx_two(float (&y)[2], const char* p) {
  if constexpr (SIZE == 4)
    tx_load_f32<2>(y, (const float*)p);
  else if constexpr (SIZE == 2)
    tx_load_f16<2>(y, (const uint16_t*)p);
  else {
    uint8_t whole[2];
    tx_load_u8<2>(whole, (const uint8_t*)p);
    y[0] = whole[0], y[1] = whole[1];
  }
}

// What a warp does: PANELS panels, PER chunks of each, through a ring of STAGES chunks. All panels of a chunk of x come after
// each other, so that x may stay in registers. C says how it lies; see few_bits_gemv.py.
template <class C>
struct tx_few_bits_gemv {
  typedef typename C::numbers N;
  static const int LOADS = C::BITS, WORDS = 16 / C::BITS;  // of a lane and a chunk, of 16 bytes each; pairs of x for one
  static const int WEIGHTS = C::BITS * 512, SCALES = C::SETS * 16 * C::SCALE, ZEROS = C::SETS * 16 * C::ZERO;  // bytes of a chunk
  static const int STAGE = WEIGHTS + SCALES + ZEROS, RING = C::STAGES * STAGE;
  static const int BLANK = 64, CHUNK = 512, SUMS = RING + BLANK + C::PER * CHUNK;
  static const int OWN = SUMS + C::PER * 32;  // bytes of a warp: ring, blank, x, sums of its parts
  static const int BATCH = 4;  // of chunks of x that are asked for at once

  const char *w, *s, *z;  // of the first panel
  const uint16_t* x;
  int panels;  // that there are
  char* own;

  __device__ __forceinline__ void fetch(char* to, int panel, int chunk) const {
    const int lane = threadIdx.x % 32;
    const char* from = w + ((int64_t)panel * C::CHUNKS + chunk) * WEIGHTS + lane * 16;
#pragma unroll
    for (int i = 0; i < LOADS; i++) tx_copy<16>(tx_shared(to + i * 512 + lane * 16), from + i * 512, true);
    const int64_t block = (int64_t)panel * C::BLOCKS + chunk / C::SPAN * C::SETS;
    if (lane < SCALES / 16) tx_copy<16>(tx_shared(to + WEIGHTS + lane * 16), s + block * 16 * C::SCALE + lane * 16, true);
    if (lane < ZEROS / 16) tx_copy<16>(tx_shared(to + WEIGHTS + SCALES + lane * 16), z + block * 16 * C::ZERO + lane * 16, true);
  }
  // Eight numbers of x, two in a word, zeros where it ends.
  __device__ __forceinline__ static tx_pack<uint32_t, 4> load(const uint16_t* made, int chunk) {
    const int k = chunk * 256 + threadIdx.x % 32 * 8;
    tx_pack<uint32_t, 4> v = {};
    if constexpr (C::K % 8 == 0) {
      if (C::EVEN || k < C::K) v = *(const tx_pack<uint32_t, 4>*)(made + k);
    } else {
#pragma unroll
      for (int e = 0; e < 8; e++)
        if (k + e < C::K) v.v[e / 2] |= (uint32_t)made[k + e] << e % 2 * 16;
    }
    return v;
  }
  // x of the warp's chunks, in the order of pairs, and the sum of each part, times what is to be added for it where no zero
  // points are given.
  __device__ __forceinline__ void fetch_x(int first) const {
    const int lane = threadIdx.x % 32;
    const uint16_t* made = tx_of_others(x);
    if (lane < BLANK / 4) *(uint32_t*)(own + RING + lane * 4) = 0;
#pragma unroll 1
    for (int from = 0; from < C::PER; from += BATCH) {
      tx_pack<uint32_t, 4> v[BATCH];
#pragma unroll
      for (int j = 0; j < BATCH; j++)
        if (from + j < C::PER) v[j] = load(made, first + from + j);
#pragma unroll
      for (int j = 0; j < BATCH; j++)
        if (from + j < C::PER) {
          const uint32_t(&w)[4] = v[j].v;
          tx_pack<uint32_t, 4> pairs = v[j];
          if (C::BITS == 4)
            pairs = {__byte_perm(w[0], w[2], 0x5410), __byte_perm(w[1], w[3], 0x5410), __byte_perm(w[0], w[2], 0x7632),
                     __byte_perm(w[1], w[3], 0x7632)};
          *(tx_pack<uint32_t, 4>*)(own + RING + BLANK + (from + j) * CHUNK + lane * 16) = pairs;
          float sum = 0.0f;
#pragma unroll
          for (int e = 0; e < 4; e++) sum += N::number((uint16_t)w[e]) + N::number((uint16_t)(w[e] >> 16));
          sum += __shfl_xor_sync(0xffffffffu, sum, 1), sum += __shfl_xor_sync(0xffffffffu, sum, 2);
          const float all = ZEROS ? N::UNIT : -(N::OFFSET + (1 << (C::BITS - 1))) * N::UNIT;
          if (lane % 4 == 0) *(float*)(own + SUMS + (from + j) * 32 + lane) = all * sum;
        }
    }
    __syncwarp();
  }
  // The lane's part of the right matrices of a chunk.
  __device__ __forceinline__ void read_x(uint32_t (&b)[LOADS][2][WORDS], int chunk) const {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const char* from = own + RING + (g == t + 4 * h ? BLANK + chunk * CHUNK + g * 64 : 0);
#pragma unroll
      for (int i = 0; i < LOADS; i++) tx_load_u32<WORDS>(b[i][h], (const uint32_t*)(from + i * WORDS * 4));
    }
  }
  // sum[panel][j] += of the warp's chunks first .. last - 1, for column g + 8 j: the part of those that the lane has.
  __device__ __forceinline__ void add(float (&sum)[C::PANELS][2], int first, int last) const {
    static const int TOTAL = C::PER * C::PANELS;
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < C::STAGES; i++) {
      const int chunk = first + i / C::PANELS;
      if (i < TOTAL && (C::EVEN || (chunk < last && i % C::PANELS < panels))) fetch(own + i * STAGE, i % C::PANELS, chunk);
      tx_copy_commit();
    }
    tx_wait_for_others();
    fetch_x(first);
    int slot = 0;
#pragma unroll 1
    for (int c = 0; c < C::PER && (C::EVEN || first + c < last); c++) {
      uint32_t b[LOADS][2][WORDS];
      float all[2];
#pragma unroll
      for (int p = 0; p < C::PANELS; p++) {
        char* stage = own + slot * STAGE;
        if (p == 0 || !C::KEPT) {
          read_x(b, c);
          tx_load_f32<2>(all, (const float*)(own + SUMS + c * 32 + t * 8));
        }
        tx_copy_wait<C::STAGES - 1>();
        __syncwarp();
        uint32_t v[LOADS][4];
        float scale[2][2], zero[2][2];
#pragma unroll
        for (int i = 0; i < LOADS; i++) tx_load_u32<4>(v[i], (const uint32_t*)(stage + i * 512 + lane * 16));
#pragma unroll
        for (int i = 0; i < 2; i++) {
          const int set = ((2 * t + i) * C::SETS / 8 * 8 + g) * 2;
          tx_two<C::SCALE>(scale[i], stage + WEIGHTS + set * C::SCALE);
          if constexpr (ZEROS) tx_two<C::ZERO>(zero[i], stage + WEIGHTS + SCALES + set * C::ZERO);
        }
        if constexpr (C::STAGES < TOTAL) {
          const int next = first + c + (p + C::STAGES) / C::PANELS, panel = (p + C::STAGES) % C::PANELS;
          __syncwarp();
          if (next < (C::EVEN ? first + C::PER : last) && (C::EVEN || panel < panels)) fetch(stage, panel, next);
        }
        tx_copy_commit();
        slot = slot + 1 == C::STAGES ? 0 : slot + 1;
        float d[2][4] = {};
        if constexpr (!ZEROS) d[0][0] = d[0][2] = all[0], d[0][1] = d[0][3] = all[1];
#pragma unroll
        for (int i = 0; i < LOADS; i++) N::multiply(d, v[i], b[i]);
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
          for (int j = 0; j < 2; j++) {
            float y = N::sum(d[0][2 * j + i], d[1][2 * j + i]);
            if constexpr (ZEROS) y = fmaf(-N::OFFSET - zero[i][j], all[i], y);
            sum[p][j] = fmaf(scale[i][j], y, sum[p][j]);
          }
      }
    }
    tx_copy_wait<0>();
  }
  // The warp's sums to shared memory, [panel][16].
  __device__ __forceinline__ static void put(const float (&sum)[C::PANELS][2], float* part) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int p = 0; p < C::PANELS; p++)
#pragma unroll
      for (int j = 0; j < 2; j++) {
        float y = sum[p][j];
        y += __shfl_xor_sync(0xffffffffu, y, 1), y += __shfl_xor_sync(0xffffffffu, y, 2);
        if (lane % 4 == 0) part[p * 16 + 8 * j + lane / 4] = y * (1.0f / N::UNIT);
      }
  }
};
