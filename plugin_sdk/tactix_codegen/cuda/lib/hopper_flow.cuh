// Products by Hopper's matrix instructions (see hopper.cuh). A row of a stage is 128 bytes, its chunks of 16 bytes permuted
// by the copy engine as the instructions expect it.

// Rows of a matrix, DEPTH elements of which are a row of a stage.
template <int DEPTH>
struct tx_matrix {
  const tx_map& map;
  int row;
  __device__ __forceinline__ void start(int64_t first) { row = (int)first; }
  __device__ __forceinline__ void load(tx_shared_t to, tx_shared_t bar, int k) { tx_fetch(to, map, bar, k * DEPTH, row); }
};
// Windows of images with channels last; k runs over the taps of G, then over G::DEPTH channels a time.
template <class G>
struct tx_pixels {
  const tx_map& map;
  int high, wide, x, y, image;
  __device__ __forceinline__ void start(int64_t first) {
    const uint32_t pixel = (uint32_t)first, plane = high * wide, in = pixel % plane;
    image = pixel / plane;
    y = (int)(in / wide) * G::STRIDE_Y - G::TOP;
    x = (int)(in % wide) * G::STRIDE_X - G::LEFT;
  }
  __device__ __forceinline__ void load(tx_shared_t to, tx_shared_t bar, int k) {
    const int tap = k / G::PARTS, c = k % G::PARTS * G::DEPTH;
    tx_fetch_pixels(to, map, bar, c, x, y, image, tap % G::ACROSS * G::DILATION_X, tap / G::ACROSS * G::DILATION_Y);
  }
};

// -- the flow --------------------------------------------------------------------------------------------------------------
// One thread asks for stages, teams of four warps multiply them. Teams share a tile, or (ALTERNATE) have one each, so that
// one stores while the other multiplies. Blocks of a cluster have a part of k each (SPLITS), or (PAIRED) two of them have
// tiles one under the other, and each fetches half of the columns for both.
// Columns of b lie so that a thread has eight neighbours of each 32: see Flow.pack.

// Where a stage lies and the parity of its barrier's phase, which flips with every round. Who fills starts with parity 1:
// the phase before the first counts as over, so that the first round does not wait.
template <class C>
struct tx_ring {
  int stage;
  uint32_t parity;
  __device__ __forceinline__ void next() {
    if (++stage == C::STAGES) stage = 0, parity ^= 1;
  }
  __device__ __forceinline__ void skip(int count) {
    stage += count;
    parity ^= stage / C::STAGES & 1;
    stage %= C::STAGES;
  }
};

// A team is done with a stage. Where blocks fill each other's stages, both are told, by a warp each.
template <class C>
TX_INLINE void tx_release(tx_shared_t empty, int stage) {
  const int thread = threadIdx.x % 128;
  if (C::PAIRED) {
    if (thread == 0 || thread == 32) tx_bar_arrive_far(empty + stage * 8, thread / 32);
  } else if (thread == 0)
    tx_bar_arrive(empty + stage * 8);
}

// Tile number ``id`` of a block, ``rank``: its number in the cluster; ``down`` counts pairs of tiles where blocks are paired.
template <class C>
TX_INLINE void tx_tile_of_block(uint32_t id, uint32_t down, uint32_t across, uint32_t rank, uint32_t& i, uint32_t& j) {
  tx_tile_of(id, down, across, i, j);
  if (C::PAIRED) i = i * 2 + rank;
}

// Sums of a team's rows of one tile. The first product starts them: the compiler may set zeros between products, and then
// waits for each of these. A part of k may have no stage. Teams that alternate take stages one after the other: a barrier's parity tells a use
// of a stage from the one before, but not from that before.
template <class C>
TX_INLINE void tx_sums(typename C::sum_t (&sum)[C::BLOCKS][C::COLS / 2], tx_shared_t base, tx_shared_t full, tx_shared_t empty, tx_ring<C>& ring, int count, int row, int team) {
  int last = 0;
  if (C::SPLITS > 1) {
#pragma unroll
    for (int b = 0; b < C::BLOCKS; b++)
#pragma unroll
      for (int i = 0; i < C::COLS / 2; i++) sum[b][i] = 0;
  }
  if (C::ALTERNATE) tx_teams_sync<256>(team);
#pragma unroll 1
  for (int k = 0; k < count; k++) {
    tx_bar_wait(full + ring.stage * 8, ring.parity);
    const tx_shared_t at = base + ring.stage * C::STAGE_BYTES;
    const tx_chunk_t a = tx_chunk(at + row * 128), b = tx_chunk(at + C::A_BYTES);
    tx_multiply_begin();
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < C::BLOCKS; j++)
        C::multiply(sum[j], tx_operand(a + j * 512 + i * 2), tx_operand(b + i * 2), C::SPLITS > 1 || i || k);
    tx_multiply_commit();
    tx_multiply_wait<1>();  // the product before is made: its stage can be filled again while this one multiplies
    if (k) tx_release<C>(empty, last);
    last = ring.stage;
    ring.next();
  }
  if (C::ALTERNATE) tx_teams_pass<256>(1 - team);
  tx_multiply_wait<0>();
  if (count) tx_release<C>(empty, last);
#pragma unroll
  for (int b = 0; b < C::BLOCKS; b++)
#pragma unroll
    for (int i = 0; i < C::COLS / 2; i++) tx_made(sum[b][i]);
}

// Where a thread's eight sums of a number are: their row and column beside its first ones, and where they begin in ``sum``.
template <class C>
struct tx_run {
  int row, col, block, group, half;
  __device__ __forceinline__ tx_run(int number) {
    block = number / (C::COLS / 16), half = number % 2, group = number / 2 % (C::COLS / 32);
    row = block * 64 + half * 8, col = group * 32;
  }
};
// What get loads for the eight sums of a thread that are number ``first`` and on.
template <class C, class Get, class Held>
TX_INLINE void tx_get(Held (&held)[C::EACH], int first, int64_t row, int col, Get get) {
#pragma unroll
  for (int u = 0; u < C::EACH; u++) {
    const tx_run<C> run(first + u);
    held[u] = get(row + run.row, col + run.col);
  }
}
// Every eight sums of a thread go to put with what was loaded for them, the first of it before the sums were made. In its
// place comes what the first sums of the next tile need, so that it is on its way meanwhile; follow(row, column) tells where.
template <class C, class Get, class Put, class Follow, class Held>
TX_INLINE void tx_give(typename C::sum_t (&sum)[C::BLOCKS][C::COLS / 2], Held (&held)[C::EACH], int64_t row, int col, Get get, Put put, Follow follow) {
  const int RUNS = C::BLOCKS * C::COLS / 16;
  int64_t next_row;
  int next_col;
#pragma unroll
  for (int first = 0; first < RUNS; first += C::EACH) {
    if (first) tx_get<C>(held, first, row, col, get);
    if (first + C::EACH >= RUNS) follow(next_row, next_col);
#pragma unroll
    for (int u = 0; u < C::EACH; u++) {
      const tx_run<C> run(first + u), next(u);
      typename C::sum_t v[8];
#pragma unroll
      for (int i = 0; i < 8; i++) v[i] = sum[run.block][run.group * 16 + i / 2 * 4 + run.half * 2 + i % 2];
      held[u].keep();
      put(row + run.row, col + run.col, threadIdx.x % 4 * 8 + run.col, v, held[u]);
      if (first + C::EACH >= RUNS) held[u] = get(next_row + next.row, next_col + next.col);
    }
  }
}

// The sums of all parts of k, each of which lies in its block's shared memory; a block gives its share of the tile.
template <class C>
TX_INLINE void tx_lay(typename C::sum_t (&sum)[C::BLOCKS][C::COLS / 2], tx_shared_t base, int row) {
  const int lane = threadIdx.x % 32;
  row += threadIdx.x % 128 / 32 * 16 + lane / 4;
#pragma unroll
  for (int b = 0; b < C::BLOCKS; b++)
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
      for (int i = 0; i < C::COLS / 16; i++) {  // four neighbours
        const tx_shared_t to = base + ((row + b * 64 + h * 8) * C::PITCH + i / 2 * 32 + lane % 4 * 8 + i % 2 * 4) * 4;
        const typename C::sum_t* s = &sum[b][i * 8 + h * 2];
        tx_write_shared4(to, s[0], s[1], s[4], s[5]);
      }
}
template <class C, class Get, class Put>
TX_INLINE void tx_collect(tx_shared_t base, int rank, int64_t row0, int col0, Get get, Put put) {
  const int WIDE = C::COLS / 8, SHARE = C::ROWS * WIDE / C::SPLITS;
  for (int i = threadIdx.x; i < SHARE; i += C::TEAMS * 128) {
    const int u = rank * SHARE + i, row = u / WIDE, col = u % WIDE * 8;
    const tx_shared_t at = base + (row * C::PITCH + col) * 4;
    auto held = get(row0 + row, col0 + col);
    held.keep();
    typename C::sum_t v[8] = {};
#pragma unroll
    for (int s = 0; s < C::SPLITS; s++) {
      typename C::sum_t x[4], y[4];
      tx_read_far4(x, at, s);
      tx_read_far4(y, at + 16, s);
#pragma unroll
      for (int i = 0; i < 4; i++) v[i] += x[i], v[i + 4] += y[i];
    }
    put(row0 + row, col0 + col, col, v, held);
  }
}

// The columns are constant: those of the first stages are asked for while other kernels still make the rows.
template <class C, class A>
TX_INLINE void tx_produce(A& a, const tx_map& b, uint32_t down, uint32_t across, uint32_t rank, int stages, int first, int count, tx_shared_t base) {
  const tx_shared_t full = base + C::STAGES * C::STAGE_BYTES, empty = full + C::STAGES * 8;
  const auto ask = [&](int stage, int panel, int k) {
    const tx_shared_t bar = full + stage * 8, to = base + stage * C::STAGE_BYTES + C::A_BYTES;
    const int row = (panel * stages + k) * C::COLS;
    tx_bar_expect(bar, C::STAGE_BYTES);
    if (C::PAIRED) {
      const int half = rank * (C::COLS / 2);
      tx_fetch_for_both(to + half * 128, b, bar, 0, row + half);
    } else
      tx_fetch(to, b, bar, 0, row);
  };
  tx_ring<C> ring = {0, 1};
  int ahead = 0;
  if (blockIdx.x / C::CLUSTER < down * across) {
    uint32_t i, j;
    tx_tile_of_block<C>(blockIdx.x / C::CLUSTER, down, across, rank, i, j);
    for (; ahead < C::STAGES && ahead < count; ahead++) ask(ahead, j, first + ahead);
  }
  tx_wait_for_others();
  for (uint32_t id = blockIdx.x / C::CLUSTER; id < down * across; id += gridDim.x / C::CLUSTER) {
    uint32_t i, j;
    tx_tile_of_block<C>(id, down, across, rank, i, j);
    a.start((int64_t)i * C::ROWS);
#pragma unroll 1
    for (int k = first; k < first + count; k++) {
      tx_bar_wait(empty + ring.stage * 8, ring.parity);
      if (ahead)
        ahead--;
      else
        ask(ring.stage, j, k);
      a.load(base + ring.stage * C::STAGE_BYTES, full + ring.stage * 8, k);
      ring.next();
    }
  }
  // A block must not leave while the other's teams are about to tell it that they are done with its stages: what arrives at
  // a block that has left ends the launch, and a barrier of the cluster says nothing of arrivals under way.
  if (C::PAIRED)
    for (int s = 0; s < C::STAGES; s++, ring.next()) tx_bar_wait(empty + ring.stage * 8, ring.parity);
}

template <class C, class Fetch, class Lay, class Get, class Put>
TX_INLINE void tx_consume(uint32_t down, uint32_t across, uint32_t rank, int count, tx_shared_t base, Fetch fetch, Lay lay, Get get, Put put) {
  const tx_shared_t full = base + C::STAGES * C::STAGE_BYTES, empty = full + C::STAGES * 8;
  const int team = tx_team_of(), top = C::ALTERNATE ? 0 : team * C::BLOCKS * 64;
  const uint32_t tiles = down * across, start = blockIdx.x / C::CLUSTER, step = gridDim.x / C::CLUSTER;
  const auto place = [&](uint32_t id, int64_t& row, int& col) {  // of a thread's first sums of a tile; the tile's column
    uint32_t i, j;
    tx_tile_of_block<C>(id, down, across, rank, i, j);
    row = (int64_t)i * C::ROWS + top + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    col = j * C::COLS + threadIdx.x % 4 * 8;
    return (int)j;
  };
  int64_t row = 0;
  int col = 0;
  decltype(get(row, col)) held[C::EACH];
  const uint32_t own = start + (C::ALTERNATE ? team * step : 0);
  if (C::SPLITS == 1 && own < tiles) {
    place(own, row, col);
    tx_get<C>(held, 0, row, col, get);
  }
  tx_ring<C> ring = {0, 0};
  int turn = 0;
  if (C::ALTERNATE && team == 1) tx_teams_pass<256>(0);
  for (uint32_t id = start; id < tiles; id += step) {
    if (C::ALTERNATE) {
      const bool mine = turn == team;
      turn = turn + 1 == C::TEAMS ? 0 : turn + 1;
      if (!mine) {
        ring.skip(count);
        continue;
      }
    }
    const int j = place(id, row, col);
    const uint32_t next = id + step * (C::ALTERNATE ? C::TEAMS : 1);
    const auto follow = [&](int64_t& row, int& col) { place(next < tiles ? next : id, row, col); };
    const auto columns = fetch(j * C::COLS);
    typename C::sum_t sum[C::BLOCKS][C::COLS / 2];
    tx_sums<C>(sum, base, full, empty, ring, count, top, team);
    if (C::LAID) {
      tx_teams_sync<128>(2 + team);  // the columns of the tile before are read
      lay(columns);
      tx_teams_sync<128>(2 + team);
    }
    if (C::SPLITS > 1) {
      tx_teams_sync<C::TEAMS * 128>(0);  // the stages are read
      tx_lay<C>(sum, base, top);
    } else
      tx_give<C>(sum, held, row, col, get, put, follow);
  }
}

// ``down`` x ``across`` tiles, or pairs of them (PAIRED), of ``stages`` of k. A team fetches what its columns need beside
// sums, and lays it where its threads read it; get(row, column) loads what put(row, column, column of the tile, eight sums,
// that) needs beside.
template <class C, class A, class Fetch, class Lay, class Get, class Put>
TX_INLINE void tx_flow(A a, const tx_map& b, uint32_t down, uint32_t across, int stages, char* memory, Fetch fetch, Lay lay, Get get, Put put) {
  // permuted rows repeat every 1024 bytes, where stages must begin
  const tx_shared_t base = (tx_shared(memory) + 1023) & ~(tx_shared_t)1023, full = base + C::STAGES * C::STAGE_BYTES;
  const uint32_t rank = C::CLUSTER > 1 ? tx_rank() : 0, part = C::PAIRED ? 0 : rank;
  const int each = (stages + C::SPLITS - 1) / C::SPLITS, first = part * each;
  const int count = stages - first < each ? stages - first > 0 ? stages - first : 0 : each;
  if (threadIdx.x == C::TEAMS * 128) tx_fetch_map(a.map), tx_fetch_map(b);
  if (threadIdx.x == 0) {
    for (int s = 0; s < C::STAGES; s++) {
      tx_bar_init(full + s * 8, 1);
      tx_bar_init(full + (C::STAGES + s) * 8, (C::ALTERNATE ? 1 : C::TEAMS) * (C::PAIRED ? 2 : 1));
    }
    tx_bars_made();
  }
  if (C::PAIRED)
    tx_cluster_meet();  // each counts bytes that the other one asks for
  else
    __syncthreads();
  if (threadIdx.x >= C::TEAMS * 128) {
    // 384 threads start with 168 registers each, 64512 of the 65536 there are: as 128 x 40 + 256 x 232
    if (C::TEAMS > 1 && C::SPLITS == 1) tx_registers_fewer<40>();
    if (threadIdx.x == C::TEAMS * 128) tx_produce<C>(a, b, down, across, rank, stages, first, count, base);
    __syncwarp();
  } else {
    if (C::TEAMS > 1 && C::SPLITS == 1) tx_registers_more<232>();
    tx_wait_for_others();
    tx_consume<C>(down, across, rank, count, base, fetch, lay, get, put);
  }
  if (C::SPLITS == 1) return;
  tx_cluster_sync();  // all sums lie there
  if (threadIdx.x < C::TEAMS * 128) {
    uint32_t i, j;
    tx_tile_of(blockIdx.x / C::SPLITS, down, across, i, j);
    tx_collect<C>(base, rank, (int64_t)i * C::ROWS, j * C::COLS, get, put);
  }
  tx_cluster_sync();  // nobody leaves while others read
}
