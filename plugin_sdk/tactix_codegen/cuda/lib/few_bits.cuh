// Products of few rows x with n rows of integers w of few bits, by tensor cores: w is the left matrix, x the right one.
//
// A warp has 32 rows of w, a panel, and walks along k in chunks of 32. Lane (g, t), g = lane / 4, t = lane % 4, holds of
// row g + 8 j, j < 4, the numbers k = 8 t ... 8 t + 7 of a chunk. A sum takes its terms in any order, so the pairs of k that
// a matrix instruction wants may be those that come easily out of a word, if x is read in the same order.
//
// Numbers become floats without a conversion: the bits of q are put into the mantissa of a power of two whose last place
// is 1, which makes it that power plus q; what is too much is subtracted, exactly. The trick, and that for the high half of a byte
// (16 q, by a multiplication), is published: Kim, Henry, Fahim, Hassan Awadalla, "Who Says Elephants Can't Run", 2022;
// Frantar, Castro, Chen, Hoefler, Alistarh, "MARLIN", 2024.

// Masks of the low and the high halves of bytes. The assembler puts a constant that it knows into a register again for each
// use, an instruction in three here; so it gets one that it does not know.
struct tx_halves {
  uint32_t low, high;
  __device__ __forceinline__ explicit tx_halves(const void* p) {
    const uint32_t none = (uint32_t)((uint64_t)p >> 63);  // no address is that large
    low = 0x000f000fu + none, high = low << 4;
  }
};

// q less the middle of its range, of float16. r: pairs of a lane's numbers, (k0, k4), (k1, k5), (k2, k6), (k3, k7) of 4 bits,
// (k0, k1), (k2, k3), (k4, k5), (k6, k7) of 8.
struct tx_bits_f16 : tx_f16 {
  static const uint32_t ONES = 0x3c003c00;
  TX_INLINE void first(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) { tx_first_f16(d, a, b0, b1); }
  TX_INLINE uint32_t low(uint32_t w, tx_halves m) { return tx_sub2_f16((w & m.low) | 0x64006400u, 0x64086408u); }  // 1024 + q - 1032
  TX_INLINE uint32_t high(uint32_t w, tx_halves m) {  // (1024 + 16 q) / 16 - 72
    return tx_fma2_f16((w & m.high) | 0x64006400u, 0x2c002c00u, 0xd480d480u);
  }
  TX_INLINE void unpack4(uint32_t (&r)[4], uint32_t w, tx_halves m) {
    r[0] = low(w, m), r[1] = high(w, m), r[2] = low(w >> 8, m), r[3] = high(w >> 8, m);
  }
  TX_INLINE void unpack8(uint32_t& a, uint32_t& b, uint32_t w) {  // 1024 + q - 1152
    a = tx_sub2_f16(__byte_perm(w, 0x64646464u, 0x4140), 0x64806480u);
    b = tx_sub2_f16(__byte_perm(w, 0x64646464u, 0x4342), 0x64806480u);
  }
};
// The same of bfloat16, whose mantissa has room for 7 bits: bytes go through float32.
struct tx_bits_bf16 : tx_bf16 {
  static const uint32_t ONES = 0x3f803f80;
  TX_INLINE void first(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) { tx_first_bf16(d, a, b0, b1); }
  TX_INLINE uint32_t low(uint32_t w, tx_halves m) {  // 128 + q - 136
    return tx_fma2_bf16((w & m.low) | 0x43004300u, 0x3f803f80u, 0xc308c308u);
  }
  TX_INLINE void unpack4(uint32_t (&r)[4], uint32_t w, tx_halves m) {
    r[0] = low(w, m), r[1] = low(w >> 4, m), r[2] = low(w >> 8, m), r[3] = low(w >> 12, m);
  }
  TX_INLINE float byte(uint32_t w, int i) {  // 2^23 + q - (2^23 + 128)
    return __uint_as_float(__byte_perm(w, 0x4b000000u, 0x7440 | i)) - 8388736.0f;
  }
  TX_INLINE void unpack8(uint32_t& a, uint32_t& b, uint32_t w) {
    a = tx_pair_bf16(byte(w, 0), byte(w, 1)), b = tx_pair_bf16(byte(w, 2), byte(w, 3));
  }
};

// Four numbers of SIZE bytes each as floats: scales or zero points, of rows g + 8 j.
template <int SIZE>
TX_INLINE void tx_four(float (&y)[4], const char* p) {
  if constexpr (SIZE == 4)
    tx_load_f32<4>(y, (const float*)p);
  else if constexpr (SIZE == 2)
    tx_load_f16<4>(y, (const uint16_t*)p);
  else {
    uint8_t whole[4];
    tx_load_u8<4>(whole, (const uint8_t*)p);
#pragma unroll
    for (int j = 0; j < 4; j++) y[j] = whole[j];
  }
}

// What a warp does. A stage of its ring is STEP chunks, SHARE of which have the same scales. C says how numbers, scales, zero
// points and x lie; see few_bits.py.
template <class C>
struct tx_few_bits {
  typedef typename C::numbers N;
  typedef typename C::element X;
  static const bool WIDE = sizeof(X) == 4;  // float32: three slots hold the parts of a row in bfloat16, which it is the sum of
  static const bool TURNED = C::AHEAD && C::BITS == 4 && !WIDE;  // x lies in shared memory in pairs (k0, k4), (k1, k5) ...
  static const int SETS = C::STEP / C::SHARE;  // of scales of a stage
  static const int WEIGHTS = C::BITS * 128, SCALES = 32 * C::SCALE, ZEROS = 32 * C::ZERO;  // bytes of a chunk
  static const int SCALES_AT = C::STEP * WEIGHTS, ZEROS_AT = SCALES_AT + SETS * SCALES, STAGE = ZEROS_AT + SETS * ZEROS;
  static const int ROW = 32 * (int)sizeof(X), ROWS = C::ROWS * ROW;
  static const int RING = C::STAGES * STAGE;  // bytes of a warp's ring; behind all of them lie rows of x
  static const int X_STAGE = C::STEP * ROWS, X_RING = C::AHEAD ? C::PER * ROWS : C::STAGES * X_STAGE;
  static const int SLOTS = WIDE ? (C::ROWS - 1) / 2 * 8 + (C::ROWS - 1) % 2 * 3 + 3 : C::ROWS;
  static const int PITCH = 36;  // floats from slot to slot of sums in shared memory: no two lanes meet in a bank

  const char *w, *s, *z;  // of the panel
  const X* x;
  int left;  // rows of x that there are
  char *own, *rows;  // shared memory of the warp, and that of its x, which GROUP warps have together
  int rank;  // of the thread among those of the group

  // Numbers, scales and zero points of a stage, up to chunk ``last``.
  __device__ __forceinline__ void fetch(char* to, int chunk, int last) const {
    const int lane = threadIdx.x % 32, block = chunk / C::BLOCK;
#pragma unroll
    for (int i = 0; i < SCALES_AT; i += 512)
      if (C::EVEN || chunk + i / WEIGHTS < last)
        tx_copy<16>(tx_shared(to + i + lane * 16), w + (int64_t)chunk * WEIGHTS + i + lane * 16, true);
#pragma unroll
    for (int i = lane * 16; i < (STAGE - SCALES_AT + 511) / 512 * 512; i += 512) {
      const int j = i - SETS * SCALES;
      const char* from = s + (int64_t)block * SCALES + i;
      bool ok = i < STAGE - SCALES_AT && (C::EVEN || j >= 0 || block + i / SCALES < C::BLOCKS);
      if constexpr (ZEROS)
        if (j >= 0) from = z + (int64_t)block * ZEROS + j, ok &= C::EVEN || block + j / ZEROS < C::BLOCKS;
      if (ok) tx_copy<16>(tx_shared(to + SCALES_AT + i), from, true);
    }
  }
  // x at a chunk, zeros where it ends: copied meanwhile, or before this returns.
  template <bool MEANWHILE>
  __device__ __forceinline__ void fetch_rows(char* to, int chunk) const {
    static const int EACH = 16 / (int)sizeof(X), LINE = ROW / 16, STEP = C::K % EACH ? 1 : EACH;
#pragma unroll 1
    for (int i = rank; i < C::ROWS * LINE; i += 32 * C::GROUP) {
      const int row = i / LINE, k = chunk * 32 + i % LINE * EACH;
#pragma unroll
      for (int e = 0; e < EACH; e += STEP) {
        const bool ok = row < left && k + e < C::K;
        const X* from = ok ? x + (int64_t)row * C::K + k + e : x;
        X* place = (X*)(to + i * 16);
        if constexpr (MEANWHILE)
          tx_copy<STEP * (int)sizeof(X)>(tx_shared(place + e), from, ok);
        else {
          tx_pack<X, STEP> v = {};
          if (ok) v = *(const tx_pack<X, STEP>*)from;
#pragma unroll
          for (int j = 0; j < STEP; j++) place[TURNED ? (e + j) % 4 * 2 + (e + j) / 4 : e + j] = v.v[j];
        }
      }
    }
  }
  // The lane's part of the right matrix: eight slots of x. What is behind the last row is any row: nobody takes its sums.
  __device__ __forceinline__ static void read_rows(uint32_t (&b)[4], const char* rows, int tile) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    if constexpr (WIDE) {
      const int part = g % 3, row = tile * 2 + g / 3 < C::ROWS ? tile * 2 + g / 3 : C::ROWS - 1;
      float v[8];
      tx_load_f32<4>(v, (const float*)(rows + row * ROW + t * 32));
      tx_load_f32<4>(v + 4, (const float*)(rows + row * ROW + t * 32 + 16));
#pragma unroll
      for (int i = 0; i < 8; i++) {
        if (part > 0) v[i] -= __uint_as_float(__float_as_uint(v[i]) & 0xffff0000u);
        if (part > 1) v[i] -= __uint_as_float(__float_as_uint(v[i]) & 0xffff0000u);
      }
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int k = C::BITS == 4 ? i : 2 * i, other = C::BITS == 4 ? i + 4 : 2 * i + 1;
        b[i] = __byte_perm(__float_as_uint(v[k]), __float_as_uint(v[other]), 0x7632);
      }
    } else {
      const int row = tile * 8 + g < C::ROWS ? tile * 8 + g : C::ROWS - 1;
      const tx_pack<uint32_t, 4> v = *(const tx_pack<uint32_t, 4>*)(rows + row * ROW + t * 16);
#pragma unroll
      for (int i = 0; i < 4; i++)
        b[i] = C::BITS == 4 && !TURNED ? __byte_perm(v.v[i / 2], v.v[i / 2 + 2], i % 2 ? 0x7632 : 0x5410) : v.v[i];
    }
  }
  // The lane's part of 16 rows of the left matrix, for two instructions.
  __device__ __forceinline__ static void read_weights(uint32_t (&a)[2][4], const char* chunk, int half, tx_halves m) {
    const int lane = threadIdx.x % 32;
    uint32_t r[2][4];  // of rows g + 16 half and g + 16 half + 8
    if constexpr (C::BITS == 4) {
      const tx_pack<uint32_t, 2> v = *(const tx_pack<uint32_t, 2>*)(chunk + lane * 16 + half * 8);
      N::unpack4(r[0], v.v[0], m), N::unpack4(r[1], v.v[1], m);
    } else {
      const tx_pack<uint32_t, 4> v = *(const tx_pack<uint32_t, 4>*)(chunk + half * 512 + lane * 16);
#pragma unroll
      for (int i = 0; i < 4; i++) N::unpack8(r[i / 2][i % 2 * 2], r[i / 2][i % 2 * 2 + 1], v.v[i]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) a[0][i] = r[i % 2][i / 2], a[1][i] = r[i % 2][2 + i / 2];
  }
  // d = a b, or d += a b, of a chunk.
  __device__ __forceinline__ static void product(float (&d)[4], const uint32_t (&a)[2][4], const uint32_t (&b)[4], bool fresh) {
    if (fresh)
      N::first(d, a[0], b[0], b[1]);
    else
      N::mma(d, a[0], b[0], b[1]);
    N::mma(d, a[1], b[2], b[3]);
  }
  // sum[tile][half][i] += of a stage of ``there`` chunks, for row 16 half + 8 (i / 2) + g of the panel and slot
  // 8 tile + 2 t + i % 2 of x.
  __device__ __forceinline__ static void multiply(float (&sum)[C::TILES][2][4], const char* stage, const char* rows, int there, tx_halves m) {
    const int g = threadIdx.x % 32 / 4;
#pragma unroll
    for (int set = 0; set < SETS; set++) {
      if (!C::EVEN && set * C::SHARE >= there) break;
      float d[C::TILES][2][4], all[C::TILES][4];  // all: sums of the slots themselves
#pragma unroll
      for (int c = 0; c < C::SHARE; c++) {
        const int at = set * C::SHARE + c;
        if (!C::EVEN && at >= there) break;
        uint32_t b[C::TILES][4];
#pragma unroll
        for (int j = 0; j < C::TILES; j++) {
          const uint32_t ones[2][4] = {{N::ONES, N::ONES, N::ONES, N::ONES}, {N::ONES, N::ONES, N::ONES, N::ONES}};
          read_rows(b[j], rows + at * ROWS, j);
          if constexpr (ZEROS) product(all[j], ones, b[j], c == 0);
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
          uint32_t a[2][4];
          read_weights(a, stage + at * WEIGHTS, half, m);
#pragma unroll
          for (int j = 0; j < C::TILES; j++) product(d[j][half], a, b[j], c == 0);
        }
      }
      float scale[4], zero[4];
      tx_four<C::SCALE>(scale, stage + SCALES_AT + set * SCALES + g * 4 * C::SCALE);
      if constexpr (ZEROS) tx_four<C::ZERO>(zero, stage + ZEROS_AT + set * ZEROS + g * 4 * C::ZERO);
#pragma unroll
      for (int j = 0; j < C::TILES; j++)
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
          for (int i = 0; i < 4; i++) {
            float y = d[j][half][i];
            if constexpr (ZEROS) y = fmaf(float(1 << (C::BITS - 1)) - zero[2 * half + i / 2], all[j][i % 2], y);
            sum[j][half][i] = fmaf(scale[2 * half + i / 2], y, sum[j][half][i]);
          }
    }
  }
  // x of a stage, on the way with it.
  __device__ __forceinline__ void fetch_stage_rows(char* to, int chunk, int end) const {
#pragma unroll 1
    for (int c = 0; c < C::STEP && chunk + c < end; c++) fetch_rows<true>(to + c * ROWS, chunk + c);
  }
  // sum: of chunks first .. last - 1; x has those before ``end``. Constants are asked for before the wait for the kernel that
  // makes x, where there is room for all of the warp's x beside them.
  __device__ __forceinline__ void add(float (&sum)[C::TILES][2][4], int first, int last, int end) const {
    const tx_halves m(w);
    if constexpr (!C::AHEAD) tx_wait_for_others();
    int next = first;
#pragma unroll 1
    for (int i = 0; i < C::STAGES - 1; i++, next += C::STEP) {
      if (next < last) fetch(own + i * STAGE, next, last);
      if constexpr (!C::AHEAD) fetch_stage_rows(rows + i * X_STAGE, next, end);
      tx_copy_commit();
    }
    if constexpr (C::AHEAD) {
      tx_wait_for_others();
#pragma unroll 4
      for (int c = first; c < last; c++) fetch_rows<false>(rows + (c - first) * ROWS, c);
    }
    int slot = 0, to = C::STAGES - 1;
#pragma unroll 1
    for (int chunk = first; chunk < (C::GROUP > 1 ? first + C::PER : last); chunk += C::STEP, next += C::STEP) {
      tx_copy_wait<C::STAGES - 2>();
      if constexpr (C::GROUP > 1)
        __syncthreads();
      else
        __syncwarp();
      if (next < last) fetch(own + to * STAGE, next, last);
      if constexpr (!C::AHEAD) fetch_stage_rows(rows + to * X_STAGE, next, end);
      tx_copy_commit();
      const char* x_stage = rows + (C::AHEAD ? (chunk - first) * ROWS : slot * X_STAGE);
      if (C::GROUP == 1 || chunk < last) multiply(sum, own + slot * STAGE, x_stage, last - chunk, m);
      slot = slot + 1 == C::STAGES ? 0 : slot + 1, to = to + 1 == C::STAGES ? 0 : to + 1;
    }
    tx_copy_wait<0>();
  }
  // The warp's sums to shared memory, [slot][PITCH].
  __device__ __forceinline__ static void put(const float (&sum)[C::TILES][2][4], float* part) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int j = 0; j < C::TILES; j++)
#pragma unroll
      for (int half = 0; half < 2; half++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const int slot = 8 * j + 2 * t + i % 2;
          if (slot < SLOTS) part[slot * PITCH + 16 * half + 8 * (i / 2) + g] = sum[j][half][i];
        }
  }
  // v += sums of eight neighbouring columns of a row, those of all parts.
  __device__ __forceinline__ static void take(float (&v)[8], const float* part, int row, int col) {
#pragma unroll
    for (int p = 0; p < (WIDE ? 3 : 1); p++) {
      float y[8];
      const float* from = part + ((WIDE ? row / 2 * 8 + row % 2 * 3 : row) + p) * PITCH + col;
      tx_load_f32<4>(y, from), tx_load_f32<4>(y + 4, from + 4);
#pragma unroll
      for (int i = 0; i < 8; i++) v[i] += y[i];
    }
  }
};
