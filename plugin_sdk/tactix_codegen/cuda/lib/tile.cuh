// A block's tile of a product: operands come in stages of some bytes along k into shared memory, warps multiply them.
// A chunk is 16 bytes. A row of W chunks lies with its chunks permuted, so that eight rows of one column of chunks, and
// eight chunks of one row, never meet in a bank: 32 banks of 4 bytes are eight chunks, and ldmatrix reads eight rows at once.
template <int W>
TX_INLINE int tx_place(int row, int chunk) {
  return (row * W + (chunk ^ (row / (W < 8 ? 8 / W : 1) & ((W < 8 ? W : 8) - 1)))) * 16;
}
template <int W>
TX_INLINE int tx_place_of_byte(int row, int byte) { return tx_place<W>(row, byte / 16) + byte % 16; }

// -- operands --------------------------------------------------------------------------------------------------------
// start() says where a block's part lies; load(to, step) begins to copy the chunks of one stage.

// R rows along k, W chunks of each a stage, in pieces of BYTES.
template <int R, int W, int THREADS, int BYTES>
struct tx_rows {
  static const int STEP = THREADS / W, EACH = (R + STEP - 1) / STEP;
  const char* at[EACH];
  bool ok[EACH];
  int64_t depth;

  // Rows ``first`` and on of ``rows``, each of ``depth`` bytes, ``pitch`` bytes apart.
  __device__ __forceinline__ void start(const void* base, int64_t first, int64_t rows, int64_t pitch, int64_t bytes) {
    depth = bytes;
#pragma unroll
    for (int j = 0; j < EACH; j++) {
      int64_t row = first + threadIdx.x / W + j * STEP;
      ok[j] = row < rows;
      at[j] = (const char*)base + (ok[j] ? row : 0) * pitch + threadIdx.x % W * 16;
    }
  }
  __device__ __forceinline__ void load(tx_shared_t to, int step) {
    const int64_t k = (int64_t)step * (W * 16), left = depth - k - threadIdx.x % W * 16;
#pragma unroll
    for (int j = 0; j < EACH; j++) {
      const int row = threadIdx.x / W + j * STEP;
      if (R % STEP && row >= R) break;
      const tx_shared_t place = to + tx_place<W>(row, threadIdx.x % W);
#pragma unroll
      for (int s = 0; s < 16; s += BYTES) tx_copy<BYTES>(place + s, at[j] + k + s, ok[j] && s < left);
    }
  }
};

// Rows along the other axis: R steps of k, W chunks of each.
template <int R, int W, int THREADS, int BYTES>
struct tx_columns {
  static const int STEP = THREADS / W, EACH = (R + STEP - 1) / STEP;
  const char* at;
  int64_t depth, pitch, left;

  // From byte ``first`` on of rows of ``width`` bytes, ``pitch`` bytes apart, ``rows`` of them.
  __device__ __forceinline__ void start(const void* base, int64_t first, int64_t width, int64_t step, int64_t rows) {
    at = (const char*)base + first + threadIdx.x % W * 16;
    left = width - first - threadIdx.x % W * 16;
    depth = rows;
    pitch = step;
  }
  __device__ __forceinline__ void load(tx_shared_t to, int step) {
#pragma unroll
    for (int j = 0; j < EACH; j++) {
      const int row = threadIdx.x / W + j * STEP;
      if (R % STEP && row >= R) break;
      const int64_t k = (int64_t)step * R + row;
      const tx_shared_t place = to + tx_place<W>(row, threadIdx.x % W);
      const char* from = at + (k < depth ? k : 0) * pitch;
#pragma unroll
      for (int s = 0; s < 16; s += BYTES) tx_copy<BYTES>(place + s, from + s, k < depth && s < left);
    }
  }
};

// What the build has packed: the chunks of each stage together.
template <int R, int W, int THREADS>
struct tx_packed {
  static const int EACH = (R * W + THREADS - 1) / THREADS;
  const char* at;

  __device__ __forceinline__ void start(const void* panel) { at = (const char*)panel + threadIdx.x * 16; }
  __device__ __forceinline__ void load(tx_shared_t to, int step) {
    const char* from = at + (int64_t)step * (R * W * 16);
#pragma unroll
    for (int j = 0; j < EACH; j++) {
      const int chunk = threadIdx.x + j * THREADS;
      if (R * W % THREADS && chunk >= R * W) break;
      tx_copy<16>(to + tx_place<W>(chunk / W, chunk % W), from + j * THREADS * 16, true);
    }
  }
};

// Windows of images with channels last; k runs over the taps of G, then over the G::CHANNEL bytes of a pixel that are read, of
// its G::PIXEL. Where a window is outside of its image there are bytes of the word G::PAD.
template <int R, int W, int THREADS, int BYTES, class G>
struct tx_windows {
  static const int STEP = THREADS / W, EACH = (R + STEP - 1) / STEP;
  const char* at[EACH];
  int y[EACH], x[EACH], high, wide;

  // Output pixels ``first`` and on of ``pixels``; images of (high, wide) give (out_high, out_wide) each.
  __device__ __forceinline__ void start(const void* base, int64_t first, int64_t pixels, int h, int w, int oh, int ow) {
    high = h;
    wide = w;
#pragma unroll
    for (int j = 0; j < EACH; j++) {
      const int64_t pixel = first + threadIdx.x / W + j * STEP;
      const bool ok = pixel < pixels;
      const uint32_t p = ok ? (uint32_t)pixel : 0, image = p / (uint32_t)(oh * ow), in = p % (uint32_t)(oh * ow);
      y[j] = ok ? (int)(in / ow) * G::STRIDE_Y - G::TOP : -(1 << 28);
      x[j] = (int)(in % ow) * G::STRIDE_X - G::LEFT;
      at[j] = (const char*)base + (int64_t)image * h * w * G::PIXEL;
    }
  }
  __device__ __forceinline__ void load(tx_shared_t to, int step) {
#pragma unroll
    for (int s = 0; s < 16; s += BYTES) {
      const uint32_t k = (step * W + threadIdx.x % W) * 16 + s, tap = k / G::CHANNEL, c = k % G::CHANNEL;
      const int dy = tap / G::ACROSS * G::DILATION_Y, dx = tap % G::ACROSS * G::DILATION_X;
      const bool inside = tap < G::DOWN * G::ACROSS;
#pragma unroll
      for (int j = 0; j < EACH; j++) {
        const int row = threadIdx.x / W + j * STEP, iy = y[j] + dy, ix = x[j] + dx;
        if (R % STEP && row >= R) break;
        const bool ok = inside && (uint32_t)iy < (uint32_t)high && (uint32_t)ix < (uint32_t)wide;
        const char* from = at[j] + (int64_t)(ok ? iy * wide + ix : 0) * G::PIXEL + c;
        const tx_shared_t place = to + tx_place<W>(row, threadIdx.x % W) + s;
        if (G::PAD == 0 || ok)
          tx_copy<BYTES>(place, from, ok);
        else
          tx_set<BYTES>(place, G::PAD);
      }
    }
  }
};

// -- a warp's part -----------------------------------------------------------------------------------------------------
// AW, BW: chunks of a row of the stage. AT, BT: rows of the stage run along k. A step is 32 bytes of k.
// stage(to, i): rows 16 i to 16 i + 15 of the sums, which are of type sum_t, PITCH of them apart. Rows along k only of operands
// of 2 and 4 bytes: ldmatrix transposes 16-bit elements, and a byte is no word.

template <class T, int ROWS, int COLS, int AW, int BW, bool AT, bool BT>
struct tx_tensor {
  static const int MI = ROWS / 16, NI = COLS / 8, SUMS = MI * NI * 4, PITCH = COLS + 8;
  static const bool AHEAD = true;
  typedef typename T::sum sum_t;
  static_assert(T::size > 1 || !(AT || BT), "bytes lie along k");
  sum_t sum[MI][NI][4];
  uint32_t a[2][MI][4], b[2][NI / 2][4];

  __device__ __forceinline__ void fetch(int to, tx_shared_t at, tx_shared_t bt, int row, int col, int step) {
    const int lane = threadIdx.x % 32, m = lane / 8, r = lane % 8;
#pragma unroll
    for (int i = 0; i < MI; i++) {
      if (!AT)
        tx_load4(a[to][i], at + tx_place<AW>(row + i * 16 + m % 2 * 8 + r, step * 2 + m / 2));
      else if (T::size == 2)
        tx_load4_transposed(a[to][i], at + tx_place<AW>(step * 16 + m / 2 * 8 + r, row / 8 + i * 2 + m % 2));
      else
#pragma unroll
        for (int e = 0; e < 4; e++)
          a[to][i][e] = tx_read_shared(at + tx_place_of_byte<AW>(step * 8 + e / 2 * 4 + lane % 4, (row + i * 16 + e % 2 * 8 + lane / 4) * 4));
#pragma unroll
      for (int e = 0; e < 4; e++) T::round(a[to][i][e]);
    }
#pragma unroll
    for (int j = 0; j < NI / 2; j++) {
      if (!BT)
        tx_load4(b[to][j], bt + tx_place<BW>(col + j * 16 + m / 2 * 8 + r, step * 2 + m % 2));
      else if (T::size == 2)
        tx_load4_transposed(b[to][j], bt + tx_place<BW>(step * 16 + m % 2 * 8 + r, col / 8 + j * 2 + m / 2));
      else
#pragma unroll
        for (int e = 0; e < 4; e++)
          b[to][j][e] = tx_read_shared(bt + tx_place_of_byte<BW>(step * 8 + e % 2 * 4 + lane % 4, (col + j * 16 + e / 2 * 8 + lane / 4) * 4));
#pragma unroll
      for (int e = 0; e < 4; e++) T::round(b[to][j][e]);
    }
  }
  __device__ __forceinline__ void multiply(int from) {
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
      for (int j = 0; j < NI; j++) T::mma(sum[i][j], a[from][i], b[from][j / 2][j % 2 * 2], b[from][j / 2][j % 2 * 2 + 1]);
  }
  __device__ __forceinline__ void stage(sum_t* to, int i) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < NI; j++) {
      sum_t* at = to + lane / 4 * PITCH + j * 8 + lane % 4 * 2;
      *(tx_pack<sum_t, 2>*)at = {{sum[i][j][0], sum[i][j][1]}};
      *(tx_pack<sum_t, 2>*)(at + 8 * PITCH) = {{sum[i][j][2], sum[i][j][3]}};
    }
  }
};

// float32 without tensor cores: a lane has every fourth row and every eighth column.
template <int ROWS, int COLS, int AW, int BW, bool AT, bool BT>
struct tx_exact {
  static const int MI = ROWS / 4, NI = COLS / 8, SUMS = MI * NI, PITCH = COLS + 8;
  static const bool AHEAD = false;
  typedef float sum_t;
  float sum[MI][NI];
  tx_shared_t left, right;
  int top, side, place;

  __device__ __forceinline__ void fetch(int, tx_shared_t at, tx_shared_t bt, int row, int col, int step) {
    left = at;
    right = bt;
    top = row + threadIdx.x % 32 / 8;
    side = col + threadIdx.x % 8;
    place = step;
  }
  template <int W, bool T>
  __device__ __forceinline__ float4 four(tx_shared_t at, int row, int half) {
    if (!T) return tx_read_shared4(at + tx_place<W>(row, place * 2 + half));
    float e[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
      e[i] = __uint_as_float(tx_read_shared(at + tx_place_of_byte<W>(place * 8 + half * 4 + i, row * 4)));
    return make_float4(e[0], e[1], e[2], e[3]);
  }
  __device__ __forceinline__ void multiply(int) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float4 b[NI];
#pragma unroll
      for (int j = 0; j < NI; j++) b[j] = four<BW, BT>(right, side + j * 8, half);
#pragma unroll
      for (int i = 0; i < MI; i++) {
        const float4 a = four<AW, AT>(left, top + i * 4, half);
#pragma unroll
        for (int j = 0; j < NI; j++)
          sum[i][j] = fmaf(a.w, b[j].w, fmaf(a.z, b[j].z, fmaf(a.y, b[j].y, fmaf(a.x, b[j].x, sum[i][j]))));
      }
    }
  }
  __device__ __forceinline__ void stage(float* to, int i) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
      for (int j = 0; j < NI; j++) to[(lane / 8 + r * 4) * PITCH + j * 8 + lane % 8] = sum[i * 4 + r][j];
  }
};

// -- the block's tile --------------------------------------------------------------------------------------------------

// Adds the sums of the warps of other slices, which had other steps of k, to those of the first.
template <class C, class Warp>
TX_INLINE void tx_join(Warp& w, char* memory, int slice, int in) {
  typedef typename Warp::sum_t sum_t;
  sum_t* sums = (sum_t*)w.sum;
  sum_t* shared = (sum_t*)memory + in * 32 * Warp::SUMS + threadIdx.x % 32;
  for (int s = 1; s < C::SLICES; s++) {
    if (slice == s)
#pragma unroll
      for (int i = 0; i < Warp::SUMS; i++) shared[i * 32] = sums[i];
    __syncthreads();
    if (slice == 0)
#pragma unroll
      for (int i = 0; i < Warp::SUMS; i++) sums[i] += shared[i * 32];
    __syncthreads();
  }
}

// Stages ``first`` to ``first + count`` of a and b multiplied; put(row, column, eight sums) gets each result once.
template <class C, class Warp, class A, class B, class Put>
TX_INLINE void tx_product(A& a, B& b, int first, int count, char* memory, Put put) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, slice = warp / (C::DOWN * C::ACROSS);
  const int in = warp % (C::DOWN * C::ACROSS), row = in / C::ACROSS * C::WARP_ROWS, col = in % C::ACROSS * C::WARP_COLS;
  const tx_shared_t base = tx_shared(memory);
  typedef typename Warp::sum_t sum_t;
  Warp w;
#pragma unroll
  for (int i = 0; i < Warp::SUMS; i++) ((sum_t*)w.sum)[i] = 0;
#pragma unroll
  for (int s = 0; s < C::STAGES - 1; s++) {
    if (s < count) {
      a.load(base + s * C::STAGE_BYTES, first + s);
      b.load(base + s * C::STAGE_BYTES + C::A_BYTES, first + s);
    }
    tx_copy_commit();
  }
  int stage = 0, ahead = C::STAGES - 1;
  for (int k = 0; k < count; k++) {
    tx_copy_wait<C::STAGES - 2>();
    __syncthreads();
    if (k + C::STAGES - 1 < count) {
      a.load(base + ahead * C::STAGE_BYTES, first + k + C::STAGES - 1);
      b.load(base + ahead * C::STAGE_BYTES + C::A_BYTES, first + k + C::STAGES - 1);
    }
    tx_copy_commit();
    const tx_shared_t at = base + stage * C::STAGE_BYTES, bt = at + C::A_BYTES;
    w.fetch(0, at, bt, row, col, slice);
#pragma unroll
    for (int i = 0; i < C::STEPS / C::SLICES; i++) {
      if (Warp::AHEAD && i + 1 < C::STEPS / C::SLICES) w.fetch((i + 1) % 2, at, bt, row, col, (i + 1) * C::SLICES + slice);
      w.multiply(i % 2);
      if (!Warp::AHEAD && i + 1 < C::STEPS / C::SLICES) w.fetch(0, at, bt, row, col, (i + 1) * C::SLICES + slice);
    }
    stage = stage + 1 == C::STAGES ? 0 : stage + 1;
    ahead = ahead + 1 == C::STAGES ? 0 : ahead + 1;
  }
  tx_copy_wait<0>();
  __syncthreads();
  if (C::SLICES > 1) tx_join<C>(w, memory, slice, in);
  if (slice) return;
  sum_t* slab = (sum_t*)memory + in * 16 * Warp::PITCH;
#pragma unroll
  for (int i = 0; i < C::WARP_ROWS / 16; i++) {
    w.stage(slab, i);
    __syncwarp();
#pragma unroll
    for (int j = 0; j < C::WARP_COLS * 2; j += 32) {
      const int r = (j + lane) / (C::WARP_COLS / 8), c = (j + lane) % (C::WARP_COLS / 8) * 8;
      sum_t v[8];
      *(tx_pack<sum_t, 4>*)v = *(const tx_pack<sum_t, 4>*)(slab + r * Warp::PITCH + c);
      *(tx_pack<sum_t, 4>*)(v + 4) = *(const tx_pack<sum_t, 4>*)(slab + r * Warp::PITCH + c + 4);
      put(row + i * 16 + r, col + c, v);
    }
    __syncwarp();
  }
}

// The tile of a block by number: tiles of eight neighbouring rows of tiles are near in time, as they share operands.
TX_INLINE void tx_tile_of(uint32_t id, uint32_t down, uint32_t across, uint32_t& i, uint32_t& j) {
  const uint32_t first = id / (8 * across) * 8, high = down - first < 8 ? down - first : 8, in = id % (8 * across);
  i = first + in % high;
  j = in / high;
}
