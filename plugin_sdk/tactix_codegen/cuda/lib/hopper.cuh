// What Hopper alone has (sm_90a), by PTX assembly: barriers that count bytes, clusters, the copy engine, matrix instructions
// that read shared memory by themselves. Tensor maps are made by the host (see maps.py).
struct alignas(64) tx_map {
  uint64_t words[16];
};

// -- barriers in shared memory -------------------------------------------------------------------------------------------

TX_INLINE void tx_bar_init(tx_shared_t bar, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
TX_INLINE void tx_bar_expect(tx_shared_t bar, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
TX_INLINE void tx_bar_arrive(tx_shared_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
// At the same barrier of a block of the cluster. That block sees nothing of what threads wrote before: a fence for all of the
// cluster takes longer than a stage.
TX_INLINE void tx_bar_arrive_far(tx_shared_t bar, int block) {
  asm volatile("{\n.reg .b32 far;\nmapa.shared::cluster.u32 far, %0, %1;\n"
               "mbarrier.arrive.shared::cluster.b64 _, [far];\n}" ::"r"(bar), "r"(block) : "memory");
}
// Waits for the end of the phase of that parity; what came before its arrivals is seen behind this (acquire by default).
TX_INLINE void tx_bar_wait(tx_shared_t bar, uint32_t parity) {
  uint32_t done;
  do
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done) : "r"(bar), "r"(parity) : "memory");
  while (!done);
}
// The copy engine sees the barriers from here on.
TX_INLINE void tx_bars_made() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
TX_INLINE uint32_t tx_rank() {
  uint32_t r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
// What blocks wrote and read before comes before what any of them does then. One warp's fence does for its block: fences
// are slow.
TX_INLINE void tx_cluster_sync() {
  __syncthreads();
  if (threadIdx.x < 32)
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  else
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Barriers 1 and on of so many threads of a block: to wait, and to say that nobody need wait for these.
template <int THREADS>
TX_INLINE void tx_teams_sync(int barrier) { asm volatile("bar.sync %0, %1;" ::"r"(barrier + 1), "n"(THREADS) : "memory"); }
template <int THREADS>
TX_INLINE void tx_teams_pass(int barrier) { asm volatile("bar.arrive %0, %1;" ::"r"(barrier + 1), "n"(THREADS) : "memory"); }
// All threads of the cluster are here, whatever they wrote; barriers that were made before (tx_bars_made) are seen by all.
TX_INLINE void tx_cluster_meet() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Of sums of either type: four of them in shared memory of a block of the cluster, four into one's own; and that what a product
// has made is read behind this.
#define TX_SUMS(type, name, code)                                                                                            \
  TX_INLINE void tx_read_far4(type (&x)[4], tx_shared_t at, int block) {                                                     \
    asm volatile("{\n.reg .b32 far;\nmapa.shared::cluster.u32 far, %4, %5;\nld.shared::cluster.v4." name " {%0, %1, %2, %3}, [far];\n}" \
                 : "=" code(x[0]), "=" code(x[1]), "=" code(x[2]), "=" code(x[3]) : "r"(at), "r"(block) : "memory");         \
  }                                                                                                                          \
  TX_INLINE void tx_write_shared4(tx_shared_t to, type a, type b, type c, type d) {                                          \
    asm volatile("st.shared.v4." name " [%0], {%1, %2, %3, %4};" ::"r"(to), code(a), code(b), code(c), code(d) : "memory");  \
  }                                                                                                                          \
  TX_INLINE void tx_made(type& x) { asm volatile("" : "+" code(x)::"memory"); }
TX_SUMS(float, "f32", "f")
TX_SUMS(int, "s32", "r")
// A compiler may not look into x before.
TX_INLINE void tx_keep(int& x) { asm volatile("" : "+r"(x)); }

// -- the copy engine -----------------------------------------------------------------------------------------------------

// A box of rows of a matrix from column x, row y on; zeros outside. The barrier counts the bytes.
TX_INLINE void tx_fetch(tx_shared_t to, const tx_map& map, tx_shared_t bar, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
               ::"r"(to), "l"(&map), "r"(bar), "r"(x), "r"(y) : "memory");
}
// The same into both blocks of a cluster of two, at the same place of each, whose barriers count the bytes.
TX_INLINE void tx_fetch_for_both(tx_shared_t to, const tx_map& map, tx_shared_t bar, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
               "[%0], [%1, {%3, %4}], [%2], %5;"
               ::"r"(to), "l"(&map), "r"(bar), "r"(x), "r"(y), "h"((uint16_t)3) : "memory");
}
// Pixels in the order of outputs, from the window of (x, y) on, each moved by a tap's (dx, dy).
TX_INLINE void tx_fetch_pixels(tx_shared_t to, const tx_map& map, tx_shared_t bar, int c, int x, int y, int n, int dx, int dy) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};"
               ::"r"(to), "l"(&map), "r"(bar), "r"(c), "r"(x), "r"(y), "r"(n), "h"((uint16_t)dx), "h"((uint16_t)dy) : "memory");
}

// Has a map at hand when it is first used.
TX_INLINE void tx_fetch_map(const tx_map& map) { asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory"); }

// -- matrix instructions -------------------------------------------------------------------------------------------------

// What describes rows of 128 permuted bytes from an address on, where eight rows are 1024 bytes apart (PTX ISA, wgmma,
// "Matrix Descriptor Format": bits 0 to 13 address, 16 to 29 leading offset, not used here, 32 to 45 offset of eight rows,
// all in chunks of 16 bytes; bits 62 and 63: 1 for a permutation within 128 bytes). Only the first half
// tells the address, in chunks of 16 bytes, so that it alone is added to, by a warp's one adder where a warp's threads agree.
typedef uint32_t tx_chunk_t;
TX_INLINE tx_chunk_t tx_chunk(tx_shared_t at) { return at >> 4 | 1 << 16; }
TX_INLINE uint64_t tx_operand(tx_chunk_t first) {
  uint64_t made;
  asm("mov.b64 %0, {%1, %2};" : "=l"(made) : "r"(first), "n"(1024 >> 4 | 1 << 30));
  return made;
}
// The team of four warps that a thread is of, in a way that tells the compiler that a warp's threads agree.
TX_INLINE int tx_team_of() { return __shfl_sync(0xffffffffu, threadIdx.x / 128, 0); }
TX_INLINE void tx_multiply_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
TX_INLINE void tx_multiply_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT>
TX_INLINE void tx_multiply_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory"); }
// All warps of a team call it together; registers that one team gives away are those that the others get.
template <int N>
TX_INLINE void tx_registers_more() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N>
TX_INLINE void tx_registers_fewer() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
