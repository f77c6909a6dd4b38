// Convolution of few channels with channels last. A block has the weights in shared memory, and takes one tile of output
// pixels after the other, with all pixels that their windows read (the halo): each comes from memory once, and ldmatrix reads
// windows where they lie. While a tile is multiplied the next one's halo is on its way.

// Where things lie. C: TILE_Y x TILE_X outputs of a tile, a multiple of 16 across; DOWN x ACROSS taps; strides, dilations, TOP
// and LEFT; PIXEL, bytes of its channels, by chunks of 16; PAD, a word of what lies around an image; GROUPS of 32 outputs; WARPS
// of a block.
template <class C>
struct tx_halo {
  static const int PARTS = C::PIXEL / 16;
  // an odd number of chunks from pixel to pixel: eight neighbours, which ldmatrix reads at once, never meet in a bank
  static const int PITCH = (PARTS | 1) * 16;
  static const int HIGH = (C::TILE_Y - 1) * C::STRIDE_Y + (C::DOWN - 1) * C::DILATION_Y + 1;
  static const int WIDE = (C::TILE_X - 1) * C::STRIDE_X + (C::ACROSS - 1) * C::DILATION_X + 1;
  // columns lie by their place in a step of the stride, so that neighbouring outputs read neighbours there, too
  static const int PHASE = (WIDE + C::STRIDE_X - 1) / C::STRIDE_X, LINE = PHASE * C::STRIDE_X;
  static const int BYTES = (HIGH * LINE * PITCH + 127) / 128 * 128;
  // k runs over the taps, then over the chunks of a pixel; a step is two chunks
  static const int CHUNKS = C::DOWN * C::ACROSS * PARTS, STEPS = (CHUNKS + 1) / 2;
  static const int OUTPUT = (STEPS * 2 + 1) * 16, WEIGHTS = C::GROUPS * 32 * OUTPUT;
  // in shared memory: a chunk of zeros, then weights, then two halos
  static const int ZERO = 128, THREADS = C::WARPS * 32, TILES = C::TILE_Y * C::TILE_X / 16 / C::WARPS;

  TX_INLINE int column(int x) { return x % C::STRIDE_X * PHASE + x / C::STRIDE_X; }
  // Of chunk q of a window, from its pixel of tap 0 on.
  TX_INLINE int place(int q) {
    const int tap = q / PARTS, y = tap / C::ACROSS * C::DILATION_Y, x = tap % C::ACROSS * C::DILATION_X;
    return (y * LINE + column(x)) * PITCH + q % PARTS * 16;
  }
};

// Images of high x wide pixels, whose outputs are out_high x out_wide.
struct tx_halo_images {
  const char* x;
  int high, wide, out_high, out_wide;
};

// The tile of a number: its image, and its first output.
template <class C>
struct tx_halo_tile {
  int64_t image;
  int y, x;
  __device__ __forceinline__ tx_halo_tile(const tx_halo_images& of, int64_t number) {
    const int across = (of.out_wide + C::TILE_X - 1) / C::TILE_X, down = (of.out_high + C::TILE_Y - 1) / C::TILE_Y;
    x = (int)(number % across) * C::TILE_X;
    y = (int)(number / across % down) * C::TILE_Y;
    image = number / ((int64_t)across * down);
  }
};

// Asks for a tile's halo; PAD outside of the image.
template <class C>
TX_INLINE void tx_halo_fetch(const tx_halo_images& of, int64_t number, tx_shared_t to) {
  typedef tx_halo<C> H;
  const tx_halo_tile<C> tile(of, number);
  const char* image = of.x + tile.image * of.high * of.wide * C::PIXEL;
  const int top = tile.y * C::STRIDE_Y - C::TOP, left = tile.x * C::STRIDE_X - C::LEFT;
  for (int i = threadIdx.x; i < H::HIGH * H::WIDE * H::PARTS; i += H::THREADS) {
    const int part = i % H::PARTS, pixel = i / H::PARTS, hx = pixel % H::WIDE, hy = pixel / H::WIDE;
    const int y = top + hy, x = left + hx;
    const bool ok = (uint32_t)y < (uint32_t)of.high && (uint32_t)x < (uint32_t)of.wide;
    const char* from = image + ((int64_t)(ok ? y : 0) * of.wide + (ok ? x : 0)) * C::PIXEL + part * 16;
    const tx_shared_t place = to + (hy * H::LINE + H::column(hx)) * H::PITCH + part * 16;
    if (C::PAD == 0 || ok)
      tx_copy<16>(place, from, ok);
    else
      tx_set<16>(place, C::PAD);
  }
}

// Sums of a warp's tiles of 16 neighbouring pixels: windows in the halo at ``halo`` times the weights.
template <class C, class T>
TX_INLINE void tx_halo_multiply(typename T::sum (&sum)[tx_halo<C>::TILES][C::GROUPS * 4][4], tx_shared_t base, tx_shared_t halo) {
  typedef tx_halo<C> H;
  // a lane gives ldmatrix the address of a chunk: of pixel m % 2 * 8 + r the one that is m / 2 of the step's two
  const int lane = threadIdx.x % 32, m = lane / 8, r = lane % 8, second = m / 2;
  const tx_shared_t weights = base + H::ZERO + (m / 2 * 8 + r) * H::OUTPUT + m % 2 * 16;
  tx_shared_t pixel[H::TILES];
#pragma unroll
  for (int i = 0; i < H::TILES; i++) {
    const int number = threadIdx.x / 32 * H::TILES + i, y = number / (C::TILE_X / 16), x = number % (C::TILE_X / 16) * 16;
    pixel[i] = halo + (y * C::STRIDE_Y * H::LINE + x + m % 2 * 8 + r) * H::PITCH;
  }
#pragma unroll
  for (int s = 0; s < H::STEPS; s++) {
    uint32_t a[H::TILES][4], b[C::GROUPS * 2][4];
    const bool beyond = s * 2 + 1 >= H::CHUNKS;
    const int first = H::place(s * 2), other = beyond ? first : H::place(s * 2 + 1);
#pragma unroll
    for (int i = 0; i < H::TILES; i++) tx_load4(a[i], second && beyond ? base : pixel[i] + (second ? other : first));
#pragma unroll
    for (int j = 0; j < C::GROUPS * 2; j++) tx_load4(b[j], weights + j * 16 * H::OUTPUT + s * 32);
#pragma unroll
    for (int i = 0; i < H::TILES; i++)
#pragma unroll
      for (int j = 0; j < C::GROUPS * 4; j++) T::mma(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
  }
}

// put(row, column, eight sums) gets eight neighbouring outputs of pixel ``row`` of all images, that of OUTPUTS from the column
// on. Weights lie so that a thread has such eight of each 32.
template <class C, class T, class Put>
TX_INLINE void tx_halo_product(const tx_halo_images& of, const void* weights, int64_t tiles, char* memory, Put put) {
  typedef tx_halo<C> H;
  const tx_shared_t base = tx_shared(memory), halos = base + H::ZERO + H::WEIGHTS;
  if (threadIdx.x == 0) tx_set<16>(base, 0);
  for (int i = threadIdx.x; i < H::WEIGHTS / 16; i += H::THREADS) tx_copy<16>(base + H::ZERO + i * 16, (const char*)weights + i * 16, true);
  if (blockIdx.x < tiles) tx_halo_fetch<C>(of, blockIdx.x, halos);
  tx_copy_commit();
  int own = 0;
  for (int64_t number = blockIdx.x; number < tiles; number += gridDim.x) {
    if (number + gridDim.x < tiles) tx_halo_fetch<C>(of, number + gridDim.x, halos + (1 - own) * H::BYTES);
    tx_copy_commit();
    tx_copy_wait<1>();
    __syncthreads();  // the halo is here, all threads' parts of it
    typename T::sum sum[H::TILES][C::GROUPS * 4][4] = {};
    tx_halo_multiply<C, T>(sum, base, halos + own * H::BYTES);
    __syncthreads();  // it is read: the halo after the next one takes its place
    own = 1 - own;
    const tx_halo_tile<C> tile(of, number);
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < H::TILES; i++) {
      const int in = threadIdx.x / 32 * H::TILES + i, y = tile.y + in / (C::TILE_X / 16);
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int x = tile.x + in % (C::TILE_X / 16) * 16 + h * 8 + lane / 4;
        if (y >= of.out_high || x >= of.out_wide) continue;
        const int64_t row = (tile.image * of.out_high + y) * of.out_wide + x;
#pragma unroll
        for (int g = 0; g < C::GROUPS; g++) {
          const int column = g * 32 + lane % 4 * 8;
          if (column >= C::OUTPUTS) continue;
          typename T::sum v[8];
#pragma unroll
          for (int k = 0; k < 8; k++) v[k] = sum[i][g * 4 + k / 2][h * 2 + k % 2];
          put(row, column, v);
        }
      }
    }
  }
}
