// Convolution of up to four channels and the largest of windows of its results, as image networks begin. A block has the
// weights in shared memory, and takes one tile of pooled pixels after the other: it makes all results under the tile there,
// and what is largest of each window is all that is written. While a tile is pooled the next one's pixels are on their way.
//
// A pixel has four channels, so that four taps of a line (a quad) are 16 neighbours of k: one step of floats of 16 bits, half of
// one of bytes. A lane's words of a fragment are one tap's channels, whatever k they are called by, since the weights lie in the
// same order. Words of floats, two of a pixel, lie in a plane each: neighbouring lanes then read neighbouring banks.

// A pixel's element, as bytes of so many are moved.
template <int SIZE>
struct tx_pooled_number {
  typedef uint16_t type;
};
template <>
struct tx_pooled_number<1> {
  typedef uint8_t type;
};

// Of results: bytes of one, what is below all others (eight of them), and the largest of words. Words of bytes are joined as
// pairs of 16 bits, whose upper bytes decide, once as they are and once with the lower bytes moved up: six instructions fewer.
#define TX_LARGEST(bytes, least)                                \
  static const int size = bytes;                               \
  TX_INLINE tx_pack<uint32_t, 2 * bytes> lowest() {            \
    tx_pack<uint32_t, 2 * bytes> w;                            \
    for (int k = 0; k < 2 * bytes; k++) w.v[k] = least;        \
    return w;                                                  \
  }
#define TX_LARGEST_HALF(name, least)                                                 \
  struct tx_largest_##name {                                                         \
    TX_LARGEST(2, least)                                                             \
    uint32_t best;                                                                   \
    __device__ __forceinline__ void start(uint32_t w) { best = w; }                  \
    __device__ __forceinline__ void join(uint32_t w) { best = tx_larger_##name(best, w); } \
    __device__ __forceinline__ uint32_t word() const { return best; }                \
  };
#define TX_LARGEST_BYTE(name, pair, least)                                            \
  struct tx_largest_##name {                                                          \
    TX_LARGEST(1, least)                                                              \
    uint32_t upper, lower;                                                            \
    __device__ __forceinline__ void start(uint32_t w) { upper = w, lower = w << 8; }  \
    __device__ __forceinline__ void join(uint32_t w) {                                \
      upper = tx_larger_##pair(upper, w), lower = tx_larger_##pair(lower, w << 8);    \
    }                                                                                 \
    __device__ __forceinline__ uint32_t word() const {                                \
      return (upper & 0xff00ff00u) | (lower >> 8 & 0x00ff00ffu);                      \
    }                                                                                 \
  };
TX_LARGEST_HALF(f16, 0xfc00fc00u)
TX_LARGEST_HALF(bf16, 0xff80ff80u)
TX_LARGEST_BYTE(i8, i16, 0x80808080u)
TX_LARGEST_BYTE(u8, u16, 0u)

// Eight neighbouring results into shared memory, in 16 bits each.
#define TX_HOLD(name)                                                                                       \
  TX_INLINE void tx_hold_##name(char* to, const float* x) {                                                 \
    tx_pack<uint32_t, 4> s;                                                                                 \
    for (int k = 0; k < 4; k++) s.v[k] = tx_pair_##name(x[2 * k], x[2 * k + 1]);                            \
    *(tx_pack<uint32_t, 4>*)to = s;                                                                         \
  }
TX_HOLD(f16)
TX_HOLD(bf16)

// Where things lie. C: TILE_Y x TILE_X pooled pixels of a tile; POOL_DOWN x POOL_ACROSS results of a window, POOL_STRIDE_Y,
// POOL_STRIDE_X, POOL_TOP and POOL_LEFT; DOWN x ACROSS taps of a convolution, its strides, TOP and LEFT; CHANNELS of a pixel
// and whether these lie LAST; OUTPUTS, in GROUPS of 32; PAD around an image; WARPS of a block, each of which takes EACH times
// 16 results at a time. T multiplies, L takes the largest.
template <class C, class T, class L>
struct tx_pooled {
  static const int PLANES = T::size, QUADS = (C::ACROSS + 3) / 4, OF_STEP = 2 / T::size;
  static const int STEPS = (C::DOWN * QUADS + OF_STEP - 1) / OF_STEP;
  static const int HIGH = (C::TILE_Y - 1) * C::POOL_STRIDE_Y + C::POOL_DOWN;
  static const int WIDE = (C::TILE_X - 1) * C::POOL_STRIDE_X + C::POOL_ACROSS;
  static const int RESULTS = HIGH * WIDE, THREADS = C::WARPS * 32, AT_ONCE = C::WARPS * C::EACH * 16;
  static const int IN_HIGH = (HIGH - 1) * C::STRIDE_Y + C::DOWN, IN_WIDE = (WIDE - 1) * C::STRIDE_X + QUADS * 4;
  // in shared memory: weights, pixels, results
  static const int WEIGHTS = STEPS * C::GROUPS * 32 * 32, PLANE = (IN_HIGH * IN_WIDE * 4 + 127) / 128 * 128;
  static const int PIXELS = PLANES * PLANE;
  static const int PITCH = C::OUTPUTS * L::size, PARTS = PITCH / 16;
  // eight lanes store 16 bytes each of two neighbours: where both begin in the same bank, every other one is turned
  static const int TURN = PITCH % 128 == 0 ? 4 : 0;

  // The byte of a part of 16 bytes of a result.
  TX_INLINE int place(int result, int part) { return result * PITCH + (part ^ result % 2 * TURN) * 16; }
  // From the pixel of tap 0 on to that of the first tap of a quad; past the last quad, whose weights are zero, to its.
  TX_INLINE int quad(int q) {
    const int last = C::DOWN * QUADS - 1, own = q < last ? q : last;
    return (own / QUADS * IN_WIDE + own % QUADS * 4) * 4;
  }
};

// Images of high x wide pixels, of results of mid_high x mid_wide, which are pooled into out_high x out_wide.
struct tx_pooled_images {
  const void* x;
  int high, wide, mid_high, mid_wide, out_high, out_wide;
};

// The tile of a number: its image, its first pooled pixel, and the first result under it.
template <class C>
struct tx_pooled_tile {
  int64_t image;
  int y, x, mid_y, mid_x;
  __device__ __forceinline__ tx_pooled_tile(const tx_pooled_images& of, int64_t number) {
    const int across = (of.out_wide + C::TILE_X - 1) / C::TILE_X, down = (of.out_high + C::TILE_Y - 1) / C::TILE_Y;
    x = (int)(number % across) * C::TILE_X, y = (int)(number / across % down) * C::TILE_Y;
    image = number / ((int64_t)across * down);
    mid_y = y * C::POOL_STRIDE_Y - C::POOL_TOP, mid_x = x * C::POOL_STRIDE_X - C::POOL_LEFT;
  }
};

// A thread's share of all pixels that a tile's results read: loaded first and laid into shared memory later, when what lies
// there is read. PAD outside of the image, and zeros in channels that it has not.
template <class C, class T, class L>
struct tx_pooled_pixels {
  typedef tx_pooled<C, T, L> P;
  typedef typename tx_pooled_number<T::size>::type number_t;
  static const int ALL = P::IN_HIGH * P::IN_WIDE, OWN = (ALL + P::THREADS - 1) / P::THREADS;
  static const int OF_WORD = 4 / T::size, BITS = 8 * T::size;
  uint32_t word[OWN][P::PLANES];

  __device__ __forceinline__ void load(const tx_pooled_images& of, int64_t number) {
    const tx_pooled_tile<C> tile(of, number);
    const int64_t plane = (int64_t)of.high * of.wide;
    const number_t* image = (const number_t*)of.x + tile.image * plane * C::CHANNELS;
    const int top = tile.mid_y * C::STRIDE_Y - C::TOP, left = tile.mid_x * C::STRIDE_X - C::LEFT;
#pragma unroll
    for (int k = 0; k < OWN; k++) {
      const int i = threadIdx.x + k * P::THREADS, y = top + i / P::IN_WIDE, x = left + i % P::IN_WIDE;
      const bool ok = (uint32_t)y < (uint32_t)of.high && (uint32_t)x < (uint32_t)of.wide;
      const int64_t pixel = ok ? (int64_t)y * of.wide + x : 0;
#pragma unroll
      for (int p = 0; p < P::PLANES; p++) word[k][p] = 0;
#pragma unroll
      for (int c = 0; c < C::CHANNELS; c++) {
        const number_t* from = image + (C::LAST ? pixel * C::CHANNELS + c : pixel + c * plane);
        word[k][c / OF_WORD] |= (uint32_t)(ok ? *from : (number_t)C::PAD) << c % OF_WORD * BITS;
      }
    }
  }
  __device__ __forceinline__ void lay(char* to) const {
#pragma unroll
    for (int k = 0; k < OWN; k++) {
      const int i = threadIdx.x + k * P::THREADS;
#pragma unroll
      for (int p = 0; p < P::PLANES; p++)
        if (i < ALL) *(uint32_t*)(to + p * P::PLANE + i * 4) = word[k][p];
    }
  }
};

// The words of a lane's tap, of results r and r + 8 of 16, at a step. Of floats a tap past the last one of a line is 0, since
// a pixel there may be infinite.
template <class C, class T, class L>
TX_INLINE void tx_pooled_words(uint32_t (&a)[4], const tx_shared_t (&pixel)[2], int s) {
  typedef tx_pooled<C, T, L> P;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    if (T::size == 2) {
      const uint32_t low = tx_read_shared(pixel[h] + P::quad(s)), high = tx_read_shared(pixel[h] + P::quad(s) + P::PLANE);
      const bool beyond = s % P::QUADS * 4 + threadIdx.x % 4 >= C::ACROSS;
      a[h] = beyond ? 0 : low, a[h + 2] = beyond ? 0 : high;
    } else {
      a[h] = tx_read_shared(pixel[h] + P::quad(s * 2)), a[h + 2] = tx_read_shared(pixel[h] + P::quad(s * 2 + 1));
    }
  }
}

// Sums of EACH times 16 neighbouring results from ``first`` on.
template <class C, class T, class L>
TX_INLINE void tx_pooled_multiply(typename T::sum (&sum)[C::EACH][C::GROUPS * 4][4], int first, tx_shared_t weights, tx_shared_t pixels) {
  typedef tx_pooled<C, T, L> P;
  const int lane = threadIdx.x % 32;
  tx_shared_t pixel[C::EACH][2];
#pragma unroll
  for (int i = 0; i < C::EACH * 2; i++) {
    const int own = first + i * 8 + lane / 4, result = own < P::RESULTS ? own : P::RESULTS - 1;
    const int y = result / P::WIDE * C::STRIDE_Y, x = result % P::WIDE * C::STRIDE_X;
    pixel[i / 2][i % 2] = pixels + (y * P::IN_WIDE + x + lane % 4) * 4;
  }
  weights += lane * 8;
#pragma unroll
  for (int s = 0; s < P::STEPS; s++) {
    uint32_t a[C::EACH][4];
#pragma unroll
    for (int i = 0; i < C::EACH; i++) tx_pooled_words<C, T, L>(a[i], pixel[i], s);
#pragma unroll
    for (int j = 0; j < C::GROUPS * 4; j++) {
      const uint2 b = tx_read_shared2(weights + (s * C::GROUPS * 4 + j) * 256);
#pragma unroll
      for (int i = 0; i < C::EACH; i++) T::mma(sum[i][j], a[i], b.x, b.y);
    }
  }
}

// The results under a tile, into shared memory; the lowest number where the image has none. There is no branch, so that what
// put needs of columns is loaded once for all: past the last result a lane makes and stores that one again.
template <class C, class T, class L, class Put>
TX_INLINE void tx_pooled_results(const tx_pooled_images& of, const tx_pooled_tile<C>& tile, char* memory, const Put& put) {
  typedef tx_pooled<C, T, L> P;
  const tx_shared_t weights = tx_shared(memory), pixels = weights + P::WEIGHTS;
  char* held = memory + P::WEIGHTS + P::PIXELS;
  const int lane = threadIdx.x % 32;
  for (int first = threadIdx.x / 32 * C::EACH * 16; first < P::RESULTS; first += P::AT_ONCE) {
    typename T::sum sum[C::EACH][C::GROUPS * 4][4] = {};
    tx_pooled_multiply<C, T, L>(sum, first, weights, pixels);
#pragma unroll
    for (int g = 0; g < C::GROUPS; g++) {
      const int column = g * 32 + lane % 4 * 8, byte = column * L::size;
      if (column >= C::OUTPUTS) continue;
#pragma unroll
      for (int i = 0; i < C::EACH * 2; i++) {
        const int own = first + i * 8 + lane / 4, result = own < P::RESULTS ? own : P::RESULTS - 1;
        const int y = tile.mid_y + result / P::WIDE, x = tile.mid_x + result % P::WIDE;
        char* to = held + P::place(result, byte / 16) + byte % 16;
        typename T::sum v[8];
#pragma unroll
        for (int k = 0; k < 8; k++) v[k] = sum[i / 2][g * 4 + k / 2][i % 2 * 2 + k % 2];
        put(to, column, v);
        const bool ok = (uint32_t)y < (uint32_t)of.mid_high && (uint32_t)x < (uint32_t)of.mid_wide;
        if (!ok) *(tx_pack<uint32_t, 2 * L::size>*)to = L::lowest();
      }
    }
  }
}

// The largest of each window of a tile, 16 bytes of outputs a thread.
template <class C, class T, class L>
TX_INLINE void tx_pooled_pool(const tx_pooled_images& of, const tx_pooled_tile<C>& tile, const char* held, char* out) {
  typedef tx_pooled<C, T, L> P;
  for (int i = threadIdx.x; i < C::TILE_Y * C::TILE_X * P::PARTS; i += P::THREADS) {
    const int part = i % P::PARTS, own_x = i / P::PARTS % C::TILE_X, own_y = i / P::PARTS / C::TILE_X;
    const int y = tile.y + own_y, x = tile.x + own_x;
    if (y >= of.out_high || x >= of.out_wide) continue;
    const int corner = own_y * C::POOL_STRIDE_Y * P::WIDE + own_x * C::POOL_STRIDE_X;
    L best[4];
#pragma unroll
    for (int t = 0; t < C::POOL_DOWN * C::POOL_ACROSS; t++) {
      const int result = corner + t / C::POOL_ACROSS * P::WIDE + t % C::POOL_ACROSS;
      const tx_pack<uint32_t, 4> next = *(const tx_pack<uint32_t, 4>*)(held + P::place(result, part));
#pragma unroll
      for (int k = 0; k < 4; k++)
        if (t)
          best[k].join(next.v[k]);
        else
          best[k].start(next.v[k]);
    }
    const uint32_t words[4] = {best[0].word(), best[1].word(), best[2].word(), best[3].word()};
    const int64_t pixel = (tile.image * of.out_high + y) * of.out_wide + x;
    tx_store16(out + pixel * P::PITCH + part * 16, words);
  }
}

// put(to, column, eight sums) stores eight neighbouring outputs of a result in shared memory.
template <class C, class T, class L, class Put>
TX_INLINE void tx_pooled_product(const tx_pooled_images& of, const void* weights, void* out, int64_t tiles, char* memory, Put put) {
  typedef tx_pooled<C, T, L> P;
  char *pixels = memory + P::WEIGHTS, *held = pixels + P::PIXELS;
  for (int i = threadIdx.x; i < P::WEIGHTS / 16; i += P::THREADS) tx_copy<16>(tx_shared(memory) + i * 16, (const char*)weights + i * 16, true);
  tx_copy_commit();
  tx_pooled_pixels<C, T, L> own;
  if (blockIdx.x < tiles) {
    own.load(of, blockIdx.x);
    own.lay(pixels);
  }
  tx_copy_wait<0>();
  for (int64_t number = blockIdx.x; number < tiles; number += gridDim.x) {
    const tx_pooled_tile<C> tile(of, number);
    const bool more = number + gridDim.x < tiles;
    __syncthreads();  // its pixels are here, and the results of the tile before are pooled
    tx_pooled_results<C, T, L>(of, tile, memory, put);
    if (more) own.load(of, number + gridDim.x);
    __syncthreads();  // its results are here, and its pixels are read
    tx_pooled_pool<C, T, L>(of, tile, held, (char*)out);
    if (more) own.lay(pixels);
  }
}
