// What Hopper has, behind simt.h: clusters, barriers that count arrivals and bytes, copies of boxes, matrix instructions that
// read shared memory.

static uint32_t tx_rank() { return simt_own / (int)blockDim.x; }
static void tx_cluster_sync() { simt_wait(simt_warps + simt_cluster); }
static void tx_cluster_meet() { tx_cluster_sync(); }
static int simt_named(int barrier, int threads) {
  const int group = simt_warps + simt_cluster + 1 + tx_rank() * 16 + barrier + 1;
  simt_groups[group].size = threads;
  return group;
}
template <int THREADS>
static void tx_teams_sync(int barrier) { simt_wait(simt_named(barrier, THREADS)); }
template <int THREADS>
static void tx_teams_pass(int barrier) { simt_arrive(simt_groups[simt_named(barrier, THREADS)]); }

// By value on the device; here a pointer to numbers that simt.py lays out: address, sizes, strides, box; where there are
// windows, their steps and corners, too.
struct alignas(64) tx_map {
  const int64_t* n;
  tx_map(int64_t at) : n((const int64_t*)at) {}
};
#define __grid_constant__

struct simt_bar { int count, arrived; long bytes; uint32_t phase; std::vector<simt_copy> late; int far; };  // far: arrivals of other blocks under way
static std::map<char*, simt_bar> simt_bars;
static void simt_no_bars() { simt_bars.clear(); }
static void simt_flip(simt_bar& b) {
  if (b.arrived == b.count && b.bytes == 0) b.arrived = 0, b.phase++;
}
static simt_bar& simt_barrier(tx_shared_t at) { return simt_bars[simt_place(at, 8)]; }
static void tx_bar_init(tx_shared_t at, int count) { simt_barrier(at) = {count, 0, 0, 0, {}, 0}; }
static void tx_bars_made() {}
static void tx_fetch_map(const tx_map&) {}
// That place of another block of the cluster.
static char* simt_far(tx_shared_t at, int bytes, int block) {
  if (block < 0 || block >= simt_cluster) simt_fail("no such block");
  if (!simt_groups[simt_warps + block].size) simt_fail("a place of a block that has left");
  return simt_place(at, bytes) + (block - (int)tx_rank()) * simt_pitch;
}
static void simt_arrive_at(simt_bar& b) {
  if (++b.arrived > b.count) simt_fail("too many arrive");
  simt_flip(b);
}
static void tx_bar_arrive(tx_shared_t at) { simt_arrive_at(simt_barrier(at)); }
static void tx_bar_arrive_far(tx_shared_t at, int block) {
  simt_bar& b = simt_bars[simt_far(at, 8, block)];
  if (simt_eager) simt_arrive_at(b);
  else b.far++;
}
static void simt_block_left() {
  for (const auto& [at, b] : simt_bars)
    if (at >= simt_shared && at < simt_shared + simt_pitch && b.far) simt_fail("arrivals at a block that has left");
}
static void tx_bar_expect(tx_shared_t at, int bytes) {
  simt_barrier(at).bytes += bytes;
  tx_bar_arrive(at);
}
// What is late comes when somebody waits for it.
static bool simt_full(char* bar, uint32_t parity) {
  simt_bar& b = simt_bars[bar];
  for (const simt_copy& c : std::exchange(b.late, {})) simt_do(c), b.bytes -= c.bytes;
  for (; b.far; b.far--) simt_arrive_at(b);
  simt_flip(b);
  return (b.phase & 1) != parity;
}
static void tx_bar_wait(tx_shared_t at, uint32_t parity) {
  simt_fiber& f = simt_fibers[simt_own];
  f.bar = simt_place(at, 8), f.parity = parity;
  simt_leave();
}
// Rows of 128 bytes whose chunks of 16 are permuted by bits 7 to 9 of the address.
static tx_shared_t simt_permuted(tx_shared_t at) { return at ^ (at >> 7 & 7) << 4; }
// One such row: its elements from a place of a tensor on, zeros outside; so many bytes away where that is another block's. A box is 128 bytes wide, of elements of two bytes or
// of one.
static void simt_fetch_row(simt_bar& b, tx_shared_t to, const int64_t* n, int rank, const int64_t* at, long away = 0) {
  const int64_t *sizes = n + 1, *strides = sizes + rank, *box = n + rank * 2;
  const int size = 128 / (int)box[0];
  const char* from = (const char*)n[0] + at[0] * size;
  bool inside = true;
  for (int i = 1; i < rank; i++) inside = inside && at[i] >= 0 && at[i] < sizes[i], from += at[i] * strides[i - 1];
  for (int c = 0; c < box[0]; c++) {
    const simt_copy one = {simt_place(simt_permuted(to + c * size), size) + away, from + c * size, size, inside && at[0] + c < sizes[0]};
    if (simt_eager) simt_do(one), b.bytes -= size;
    else b.late.push_back(one);
  }
}
template <int RANK>
static void simt_fetch_to(tx_shared_t to, const tx_map& map, simt_bar& bar, const int64_t (&first)[RANK], long away) {
  const int64_t* box = map.n + RANK * 2;
  if (to % 1024 || (box[0] != 64 && box[0] != 128)) simt_fail("misaligned box");
  int64_t at[RANK];
  memcpy(at, first, sizeof at);
  for (int r = 0; r < box[1]; r++, at[1]++) simt_fetch_row(bar, to + r * 128, map.n, RANK, at, away);
  simt_flip(bar);
}
template <int RANK>
static void simt_fetch(tx_shared_t to, const tx_map& map, tx_shared_t bar, const int64_t (&first)[RANK]) {
  simt_fetch_to(to, map, simt_barrier(bar), first, 0);
}
static void tx_fetch_rows(tx_shared_t to, const tx_map& map, tx_shared_t bar, int x, int y, int head, int batch) {
  simt_fetch<4>(to, map, bar, {x, y, head, batch});
}
static void tx_fetch(tx_shared_t to, const tx_map& map, tx_shared_t bar, int x, int y) { simt_fetch<2>(to, map, bar, {x, y}); }
static void tx_fetch_for_both(tx_shared_t to, const tx_map& map, tx_shared_t bar, int x, int y) {
  if (simt_cluster != 2) simt_fail("no cluster of two");
  for (int block = 0; block < 2; block++) {
    const long away = (block - (int)tx_rank()) * simt_pitch;
    simt_fetch_to<2>(to, map, simt_bars[simt_far(bar, 8, block)], {x, y}, away);
  }
}
// Windows start at the first corner and on, so many steps apart, up to the last one as counted from the last pixel; then
// comes the next row of them, then the next image ("Im2col mode" of the PTX ISA).
static void tx_fetch_pixels(tx_shared_t to, const tx_map& map, tx_shared_t bar, int c, int x, int y, int image, int dx, int dy) {
  const int64_t *box = map.n + 8, *steps = box + 2, *low = steps + 4, *high = low + 2;
  const int64_t last_x = map.n[2] - 1 + high[0], last_y = map.n[3] - 1 + high[1];
  if (to % 1024 || (box[0] != 64 && box[0] != 128)) simt_fail("misaligned box");
  if (x < low[0] || x > last_x || (x - low[0]) % steps[1] || dx < 0 || dx > 255) simt_fail("no window at this x");
  if (y < low[1] || y > last_y || (y - low[1]) % steps[2] || dy < 0 || dy > 255) simt_fail("no window at this y");
  for (int r = 0; r < box[1]; r++) {
    const int64_t at[4] = {c, x + dx, y + dy, image};
    simt_fetch_row(simt_barrier(bar), to + r * 128, map.n, 4, at);
    if ((x += steps[1]) > last_x) x = low[0], y += steps[2];
    if (y > last_y) y = low[1], image++;
  }
  simt_flip(simt_barrier(bar));
}
// That place of a block of the cluster.
template <class T>
static void tx_read_far4(T (&x)[4], tx_shared_t at, int block) {
  memcpy(x, simt_far(at, 16, block), 16);
}
template <class T>
static void tx_write_shared4(tx_shared_t at, T a, T b, T c, T d) {
  const T all[4] = {a, b, c, d};
  memcpy(simt_place(at, 16), all, 16);
}
template <int>
static void tx_registers_more() {}
template <int>
static void tx_registers_fewer() {}
typedef uint64_t tx_chunk_t;
static tx_chunk_t tx_chunk(tx_shared_t at) {
  if (at % 128) simt_fail("misaligned operand");
  return at >> 4;
}
static uint64_t tx_operand(tx_chunk_t first) { return first; }
static int tx_team_of() { return threadIdx.x / 128; }
static void tx_multiply_begin() {}
static void tx_multiply_commit() {}
template <int>
static void tx_multiply_wait() {}
static void tx_made(float&) {}
static void tx_made(int&) {}
static void tx_keep(int&) {}
static void tx_made(float (&)[4]) {}
// A warp's 16 rows of the 64: fragments as the PTX ISA lays them out ("Register Fragments for wgmma.mma_async.m64nNk16").
template <class T, float (*FROM)(uint16_t)>
struct simt_wide : T {
  static float read(tx_shared_t at) { return FROM(*(uint16_t*)simt_place(simt_permuted(at), 2)); }
  static void add(float (*d)[4], const uint32_t (&a)[4], uint64_t b) {
    uint32_t(*s)[8] = simt_publish(a, 4);
    const int lane = threadIdx.x % 32;
    for (int i = 0; i < 32; i++)
      for (int k = 0; k < 16; k++) {
        const int row = lane / 4 + i % 4 / 2 * 8, col = i / 4 * 8 + lane % 4 * 2 + i % 2;
        const uint32_t x = s[row % 8 * 4 + k % 8 / 2][k / 8 * 2 + row / 8] >> k % 2 * 16;
        d[i / 4][i % 4] += FROM((uint16_t)x) * read((b << 4) + k * 128 + col * 2);
      }
    __syncwarp();
  }
};
// How elements of a, and of b, are read; sums of unsigned integers wrap as int32 do.
template <class A, class B, class Sum>
struct simt_bytes_of {
  typedef A a;
  typedef B b;
  typedef Sum sum;
  static Sum left(A x) { return (Sum)(int)x; }
  static Sum right(B x) { return (Sum)(int)x; }
};
typedef simt_bytes_of<int8_t, int8_t, uint32_t> simt_s8;
typedef simt_bytes_of<uint8_t, int8_t, uint32_t> simt_u8;
template <float (*FROM)(uint16_t)>
struct simt_halves {
  typedef uint16_t a, b;
  typedef float sum;
  static float left(uint16_t x) { return FROM(x); }
  static float right(uint16_t x) { return FROM(x); }
};
typedef simt_halves<tx_from_f16> simt_f16;
typedef simt_halves<tx_from_bf16> simt_bf16;
template <float (*FROM)(uint8_t)>
struct simt_small {
  typedef uint8_t a, b;
  typedef float sum;
  static float left(uint8_t x) { return FROM(x); }
  static float right(uint8_t x) { return FROM(x); }
};
typedef simt_small<tx_from_f8e4m3> simt_e4m3;
typedef simt_small<tx_from_f8e5m2> simt_e5m2;
// 32 bytes of such a row.
template <class T>
static void simt_read32(T (&x)[32 / sizeof(T)], tx_shared_t at) {
  for (int chunk = 0; chunk < 2; chunk++) memcpy((char*)x + chunk * 16, simt_place(simt_permuted(at + chunk * 16), 16), 16);
}
// Both operands in shared memory, COLS columns, all sums in a row; simt.py puts it where the text has the instruction.
template <int COLS, class OF, class Sum>
static void simt_multiply(Sum* d, uint64_t a, uint64_t b, int add) {
  const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane / 4, DEPTH = 32 / sizeof(typename OF::a);
  typename OF::a x[2][DEPTH];
  typename OF::b y[DEPTH];
  for (int h = 0; h < 2; h++) simt_read32(x[h], (a << 4) + (row + h * 8) * 128);
  for (int i = 0; i < COLS / 4; i++) {
    simt_read32(y, (b << 4) + (i / 2 * 8 + lane % 4 * 2 + i % 2) * 128);
    for (int h = 0; h < 2; h++) {
      Sum& at = d[i / 2 * 4 + h * 2 + i % 2];
      typename OF::sum sum = add ? at : 0;
      for (int k = 0; k < DEPTH; k++) sum += OF::left(x[h][k]) * OF::right(y[k]);
      at = (Sum)sum;
    }
  }
  simt_wait(simt_named(8 + threadIdx.x / 128, 128));  // an instruction of four warps
}
typedef simt_wide<tx_f16, tx_from_f16> tx_wide_f16;
typedef simt_wide<tx_bf16, tx_from_bf16> tx_wide_bf16;
