// CUDA kernels as C++ on the host: every thread is a fiber, a barrier passes control on. One block, or cluster, at a time.
// Asynchronous copies happen as late as they may, or at once, as `eager` says; both must give the same.
#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __shared__ static  // one block at a time
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

struct alignas(8) uint2 { uint32_t x, y; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
static float2 make_float2(float x, float y) { return {x, y}; }
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static float __uint_as_float(uint32_t x) { float f; memcpy(&f, &x, 4); return f; }
static float __int_as_float(int x) { float f; memcpy(&f, &x, 4); return f; }
static uint32_t __float_as_uint(float x) { uint32_t u; memcpy(&u, &x, 4); return u; }
static double __longlong_as_double(long long x) { double f; memcpy(&f, &x, 8); return f; }
static long long __double_as_longlong(double f) { long long x; memcpy(&x, &f, 8); return x; }
static void sincospi(double x, double* s, double* c) { *s = sin(M_PI * x), *c = cos(M_PI * x); }
static float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t s) {
  const uint64_t both = (uint64_t)y << 32 | x;
  uint32_t r = 0;
  for (int i = 0; i < 4; i++) r |= (uint32_t)(both >> (s >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  return r;
}

// A clock that is another with each question.
static long long clock64() { static unsigned long long now; return (long long)(now += 1000003); }

// -- threads -----------------------------------------------------------------------------------------------------------

struct simt_index { uint32_t x; };
static thread_local simt_index threadIdx, blockIdx, blockDim, gridDim;
static const int SIMT_STACK = 128 << 10;

struct simt_copy { char* to; const char* from; int bytes; bool ok; };
struct simt_fiber {
  ucontext_t context;  // of its start; then it goes on here
  jmp_buf here;
  bool begun = false;
  bool done = false;
  int group = -1;
  long generation = 0;
  std::vector<std::vector<simt_copy>> pending;
  char* bar = nullptr;  // in shared memory, and the phase that it waits for
  uint32_t parity;
};
struct simt_group { int size, arrived; long generation; };

static std::vector<simt_fiber> simt_fibers;
static std::vector<char*> simt_stacks;  // kept from block to block, until the launch is over
static std::vector<simt_group> simt_groups;  // warps, then blocks, then the cluster, then 16 barriers for each block
static jmp_buf simt_scheduler;
static int simt_own;  // the fiber's number among all of the cluster
static int simt_cluster, simt_warps;
static char *simt_shared, *simt_memory;  // of the block, and of all in a row
static long simt_shared_bytes, simt_pitch;
static bool simt_eager;
static char simt_error[256];
static uint32_t simt_slots[128][32][8];

static void simt_fail(const char* what) {
  if (!simt_error[0]) snprintf(simt_error, sizeof simt_error, "block %u thread %u: %s", blockIdx.x, threadIdx.x, what);
}
extern "C" void __ubsan_handle_type_mismatch_v1(void*, void*) { simt_fail("misaligned access"); }
static void simt_release(simt_group& g) {
  if (g.size && g.arrived == g.size) g.arrived = 0, g.generation++;
}
static void simt_be(int own) {
  const int block = own / (int)blockDim.x;
  simt_own = own, threadIdx.x = own % (int)blockDim.x;
  blockIdx.x = blockIdx.x / simt_cluster * simt_cluster + block;
  simt_shared = simt_memory + block * simt_pitch;
}
static void simt_leave() {
  const int own = simt_own;
  if (!_setjmp(simt_fibers[own].here)) _longjmp(simt_scheduler, 1);
  simt_be(own);
}
// Until it waits or ends. A context is entered once: each change of contexts is two calls of the system, a jump is none.
static void simt_resume(simt_fiber& f) {
  if (_setjmp(simt_scheduler)) return;
  if (f.begun) _longjmp(f.here, 1);
  f.begun = true;
  setcontext(&f.context);
}
static void simt_arrive(simt_group& g) { g.arrived++, simt_release(g); }
static void simt_wait(int group) {
  simt_fiber& f = simt_fibers[simt_own];
  simt_group& g = simt_groups[group];
  f.group = group;
  f.generation = g.generation;
  simt_arrive(g);
  simt_leave();
}
static int simt_of_block() { return simt_warps + simt_own / (int)blockDim.x; }
static void __syncthreads() { simt_wait(simt_of_block()); }
static void __threadfence() {}
template <class T>
static T atomicAdd(T* p, T x) { const T was = *p; *p += x; return was; }
template <class T>
static T atomicCAS(T* p, T expected, T x) { const T was = *p; if (was == expected) *p = x; return was; }
static void __syncwarp(uint32_t = 0xffffffffu) { simt_wait(simt_own / 32); }
static uint32_t (*simt_publish(const uint32_t* x, int count))[8] {
  uint32_t(*slots)[8] = simt_slots[simt_own / 32];
  memcpy(slots[threadIdx.x % 32], x, count * 4);
  __syncwarp();
  return slots;
}
template <class T>
static T simt_from(T x, uint32_t lane) {
  uint32_t words[2];
  memcpy(words, &x, sizeof(T));
  T y;
  memcpy(&y, simt_publish(words, sizeof(T) / 4)[lane % 32], sizeof(T));
  __syncwarp();
  return y;
}
template <class T>
static T __shfl_xor_sync(uint32_t, T x, int mask) { return simt_from(x, threadIdx.x % 32 ^ mask); }
template <class T>
static T __shfl_sync(uint32_t, T x, int lane) { return simt_from(x, lane); }

template <class F>
struct simt_call;
template <class... P>
struct simt_call<void (*)(P...)> {
  template <size_t... I>
  static void go(void (*f)(P...), const int64_t* a, std::index_sequence<I...>) { f((P)a[I]...); }
};
static void (*simt_body)();
static void simt_block_left();
static void simt_start() {
  simt_body();
  simt_fibers[simt_own].done = true;
  for (int g : {simt_own / 32, simt_of_block(), simt_warps + simt_cluster}) simt_groups[g].size--, simt_release(simt_groups[g]);
  if (!simt_groups[simt_of_block()].size) simt_block_left();
  _longjmp(simt_scheduler, 1);
}
static bool simt_full(char* bar, uint32_t parity);
static bool simt_ready(simt_fiber& f) {
  if (f.done || (f.bar && !simt_full(f.bar, f.parity))) return false;
  return f.group < 0 || simt_groups[f.group].generation != f.generation;
}
// Runs a warp until a barrier holds it, so that what lacks a barrier reads too early. Whether it moved.
static bool simt_warp(int warp, int threads) {
  bool any = false;
  for (bool moved = true; moved;) {
    moved = false;
    for (int t = warp * 32; t < threads && t < warp * 32 + 32; t++) {
      if (!simt_ready(simt_fibers[t])) continue;
      any = moved = true;
      simt_be(t);
      simt_fibers[t].group = -1, simt_fibers[t].bar = nullptr;
      simt_resume(simt_fibers[t]);
    }
  }
  return any;
}
// Runs a team of four warps until barriers hold them all, so that others lag as far as they may.
static bool simt_team(int team, int threads, bool backward) {
  bool any = false;
  for (bool moved = true; moved; any |= moved) {
    moved = false;
    for (int i = 0; i < 4; i++) moved |= simt_warp(team * 4 + (backward ? 3 - i : i), threads);
  }
  return any;
}
static void simt_no_bars();
static void simt_blocks(int threads, bool backward) {
  const int all = threads * simt_cluster;
  simt_no_bars();
  simt_fibers = std::vector<simt_fiber>(all);
  simt_warps = (all + 31) / 32;
  simt_groups.assign(simt_warps, {32, 0, 0});
  for (int b = 0; b < simt_cluster; b++) simt_groups.push_back({threads, 0, 0});
  simt_groups.push_back({all, 0, 0});
  simt_groups.resize(simt_groups.size() + 16 * simt_cluster);
  while ((int)simt_stacks.size() < all) simt_stacks.push_back((char*)malloc(SIMT_STACK));
  for (int t = 0; t < all; t++) {
    simt_fiber& f = simt_fibers[t];
    f.pending.resize(1);
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = simt_stacks[t];
    f.context.uc_stack.ss_size = SIMT_STACK;
    makecontext(&f.context, simt_start, 0);
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (int i = 0, teams = (simt_warps + 3) / 4; i < teams; i++) moved |= simt_team(backward ? teams - 1 - i : i, all, backward);
  }
  for (int t = 0; t < all; t++)
    if (!simt_fibers[t].done) return simt_be(t), simt_fail("waits for ever at a barrier");
}
static const char* simt_launch(void (*body)(), int grid, int threads, int cluster, long shared, int eager) {
  simt_error[0] = 0;
  simt_body = body;
  simt_eager = eager;
  simt_cluster = cluster, simt_shared_bytes = shared;
  simt_pitch = (shared + 2047) / 1024 * 1024;
  simt_memory = (char*)aligned_alloc(128, simt_pitch * cluster);
  blockDim.x = threads, gridDim.x = grid;
  if (grid % cluster || threads * cluster > 128 * 32) simt_fail("part of a cluster, or too large a one");
  for (int b = 0; b < grid && !simt_error[0]; b += cluster) {
    blockIdx.x = b;
    memset(simt_memory, 0xff, simt_pitch * cluster);
    simt_blocks(threads, eager);
  }
  free(simt_memory);
  for (char* s : simt_stacks) free(s);  // each kernel of a process has a copy of these
  simt_stacks.clear(), simt_fibers.clear(), simt_fibers.shrink_to_fit();
  return simt_error;
}
// One launchable function of a kernel: addresses and integers as the launch's arguments.
#define SIMT_KERNEL(name)                                                                                           \
  static const int64_t* name##_args;                                                                               \
  template <class... P>                                                                                            \
  static void name##_with(void (*f)(P...)) {                                                                       \
    simt_call<void (*)(P...)>::go(f, name##_args, std::index_sequence_for<P...>());                                \
  }                                                                                                                \
  extern "C" const char* run_##name(const int64_t* a, int grid, int threads, int cluster, long shared, int eager) { \
    name##_args = a;                                                                                               \
    return simt_launch([] { name##_with(name); }, grid, threads, cluster, shared, eager);                          \
  }

// -- what the preludes have in assembly ----------------------------------------------------------------------------------

typedef uint64_t tx_shared_t;
#define TX_SHARED(name) char* name = simt_shared

static tx_shared_t tx_shared(const void* p) { return (tx_shared_t)p; }
static char* simt_place(tx_shared_t at, int bytes) {
  const int64_t offset = (char*)at - simt_shared;
  if (offset < 0 || offset + bytes > simt_shared_bytes) return simt_fail("outside shared memory"), simt_shared;
  if (offset % bytes) simt_fail("misaligned in shared memory");
  return (char*)at;
}
static void simt_do(const simt_copy& c) {
  if (c.ok)
    memcpy(c.to, c.from, c.bytes);
  else
    memset(c.to, 0, c.bytes);
}
template <int BYTES>
static void tx_copy(tx_shared_t to, const void* from, bool ok) {
  if (ok && (uintptr_t)from % BYTES) simt_fail("misaligned copy");
  const simt_copy c = {simt_place(to, BYTES), (const char*)from, BYTES, ok};
  if (simt_eager || BYTES <= 2)
    simt_do(c);
  else
    simt_fibers[simt_own].pending.back().push_back(c);
}
template <int BYTES>
static void tx_set(tx_shared_t to, uint32_t word) {
  for (int i = 0; i < BYTES; i += 4) memcpy(simt_place(to + i, 4), &word, 4);
}
static void tx_copy_commit() { simt_fibers[simt_own].pending.emplace_back(); }
template <int LEFT>
static void tx_copy_wait() {
  auto& pending = simt_fibers[simt_own].pending;
  while ((int)pending.size() - 1 > LEFT) {
    for (const simt_copy& c : pending.front()) simt_do(c);
    pending.erase(pending.begin());
  }
}
static void simt_load4(uint32_t (&r)[4], tx_shared_t at, bool transposed) {
  const int lane = threadIdx.x % 32;
  const char* row = simt_place(at, 16);
  uint64_t address = (uint64_t)row;
  uint32_t(*slots)[8] = simt_publish((uint32_t*)&address, 2);
  for (int i = 0; i < 4; i++) {
    const char* rows[8];
    for (int k = 0; k < 8; k++) memcpy(&rows[k], slots[i * 8 + k], 8);
    uint16_t e[2];
    for (int k = 0; k < 2; k++) {
      const int a = lane / 4, b = lane % 4 * 2 + k;
      memcpy(&e[k], transposed ? rows[b] + a * 2 : rows[a] + b * 2, 2);
    }
    r[i] = e[0] | (uint32_t)e[1] << 16;
  }
  __syncwarp();
}
static void tx_load4(uint32_t (&r)[4], tx_shared_t at) { simt_load4(r, at, false); }
static void tx_load4_transposed(uint32_t (&r)[4], tx_shared_t at) { simt_load4(r, at, true); }
static uint32_t tx_read_shared(tx_shared_t at) { return *(uint32_t*)simt_place(at, 4); }
static uint2 tx_read_shared2(tx_shared_t at) { return *(uint2*)simt_place(at, 8); }
static float4 tx_read_shared4(tx_shared_t at) { return *(float4*)simt_place(at, 16); }

static float tx_from_f16(uint16_t h) { _Float16 x; memcpy(&x, &h, 2); return (float)x; }
static uint16_t tx_to_f16(float f) { _Float16 x = (_Float16)f; uint16_t h; memcpy(&h, &x, 2); return h; }
static float tx_from_bf16(uint16_t h) { return __uint_as_float((uint32_t)h << 16); }
static uint16_t tx_to_bf16(float f) {
  uint32_t u = __float_as_uint(f);
  return f != f ? 0x7fc0 : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
static uint32_t tx_pair_f16(float a, float b) { return tx_to_f16(a) | (uint32_t)tx_to_f16(b) << 16; }
static uint32_t tx_pair_bf16(float a, float b) { return tx_to_bf16(a) | (uint32_t)tx_to_bf16(b) << 16; }
template <float (*FROM)(uint16_t), uint32_t (*PAIR)(float, float)>
static uint32_t simt_fma2(uint32_t a, uint32_t b, uint32_t c) {
  const auto one = [&](int i) { return fmaf(FROM((uint16_t)(a >> i)), FROM((uint16_t)(b >> i)), FROM((uint16_t)(c >> i))); };
  return PAIR(one(0), one(16));
}
static uint32_t tx_sub2_f16(uint32_t a, uint32_t b) { return simt_fma2<tx_from_f16, tx_pair_f16>(b, 0xbc00bc00u, a); }
static uint32_t tx_fma2_f16(uint32_t a, uint32_t b, uint32_t c) { return simt_fma2<tx_from_f16, tx_pair_f16>(a, b, c); }
static uint32_t tx_fma2_bf16(uint32_t a, uint32_t b, uint32_t c) { return simt_fma2<tx_from_bf16, tx_pair_bf16>(a, b, c); }
// The nearest of all codes of 8 bits, of two as near the even one; beyond the largest that.
static float simt_of_8_bits(int code, int mantissa, int bias) {
  const int e = (code & 0x7f) >> mantissa, m = code & ((1 << mantissa) - 1);
  const float x = e ? ldexpf((float)(m | 1 << mantissa), e - bias - mantissa) : ldexpf((float)m, 1 - bias - mantissa);
  return code & 0x80 ? -x : x;
}
static int simt_to_8_bits(float x, int mantissa, int bias, int top) {
  if (x != x) return 0x7f;
  const int sign = std::signbit(x) ? 0x80 : 0;
  int best = 0;
  for (int code = 1; code <= top; code++) {
    const float a = fabsf(simt_of_8_bits(code, mantissa, bias) - fabsf(x)), b = fabsf(simt_of_8_bits(best, mantissa, bias) - fabsf(x));
    if (a < b || (a == b && code % 2 == 0) || std::isinf(x)) best = code;
  }
  return sign | best;
}
static float tx_from_f8e4m3(uint8_t b) { return (b & 0x7f) == 0x7f ? NAN : simt_of_8_bits(b, 3, 7); }
static float tx_from_f8e5m2(uint8_t b) {
  return (b & 0x7f) < 0x7c ? simt_of_8_bits(b, 2, 15) : (b & 0x7f) > 0x7c ? NAN : b & 0x80 ? -INFINITY : INFINITY;
}
static uint32_t tx_pair_f8e4m3(float a, float b) { return simt_to_8_bits(a, 3, 7, 0x7e) | simt_to_8_bits(b, 3, 7, 0x7e) << 8; }
static uint32_t tx_pair_f8e5m2(float a, float b) { return simt_to_8_bits(a, 2, 15, 0x7b) | simt_to_8_bits(b, 2, 15, 0x7b) << 8; }
template <class T>
static int simt_dot(int a, int b, int c) {
  for (int i = 0; i < 4; i++) c += (int)(T)(a >> 8 * i) * (int)(int8_t)(b >> 8 * i);
  return c;
}
static int tx_dp4a_i8(int a, int b, int c) { return simt_dot<int8_t>(a, b, c); }
static int tx_dp4a_u8(int a, int b, int c) { return simt_dot<uint8_t>(a, b, c); }
static int8_t tx_round_i8(float x) { return x != x ? 0 : (int8_t)fminf(fmaxf(rintf(x), -128.0f), 127.0f); }
static uint8_t tx_round_u8(float x) { return x != x ? 0 : (uint8_t)fminf(fmaxf(rintf(x), 0.0f), 255.0f); }
static float tx_exp2(float x) { return exp2f(x); }
static float tx_reciprocal(float x) { return 1.0f / x; }
static void tx_store16(void* p, const uint32_t (&w)[4]) {
  *(float4*)p = make_float4(__uint_as_float(w[0]), __uint_as_float(w[1]), __uint_as_float(w[2]), __uint_as_float(w[3]));
}
static float tx_pick(bool first, float a, float b) { return first ? a : b; }
static float tx_fmax(float a, float b) { return a != a ? a : b != b ? b : a > b ? a : b; }
static float tx_fmin(float a, float b) { return a != a ? a : b != b ? b : a < b ? a : b; }
template <class T, class LARGER>
static uint32_t simt_larger(uint32_t a, uint32_t b, LARGER larger) {
  T x[4 / sizeof(T)], y[4 / sizeof(T)];
  memcpy(x, &a, 4), memcpy(y, &b, 4);
  for (size_t i = 0; i < 4 / sizeof(T); i++) x[i] = larger(x[i], y[i]);
  memcpy(&a, x, 4);
  return a;
}
static uint32_t tx_larger_f16(uint32_t a, uint32_t b) {
  return simt_larger<uint16_t>(a, b, [](uint16_t x, uint16_t y) { return tx_to_f16(tx_fmax(tx_from_f16(x), tx_from_f16(y))); });
}
static uint32_t tx_larger_bf16(uint32_t a, uint32_t b) {
  return simt_larger<uint16_t>(a, b, [](uint16_t x, uint16_t y) { return tx_to_bf16(tx_fmax(tx_from_bf16(x), tx_from_bf16(y))); });
}
static uint32_t tx_larger_i16(uint32_t a, uint32_t b) {
  return simt_larger<int16_t>(a, b, [](int16_t x, int16_t y) { return x > y ? x : y; });
}
static uint32_t tx_larger_u16(uint32_t a, uint32_t b) {
  return simt_larger<uint16_t>(a, b, [](uint16_t x, uint16_t y) { return x > y ? x : y; });
}

// Fragments as the PTX ISA lays them out ("Matrix Fragments for mma.m16n8k16", "... for mma.m16n8k8").
template <float (*FROM)(uint16_t)>
static void simt_mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, bool wide) {
  const uint32_t own[6] = {a[0], a[1], a[2], a[3], b0, b1};
  uint32_t(*s)[8] = simt_publish(own, 6);
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < 4; i++) {
    const int row = lane / 4 + i / 2 * 8, col = lane % 4 * 2 + i % 2;
    for (int k = 0; k < (wide ? 8 : 16); k++) {
      const int t = wide ? k % 4 : k % 8 / 2, high = wide ? k / 4 : k / 8, half = wide ? 0 : k % 2 * 16;
      const uint32_t x = s[row % 8 * 4 + t][high * 2 + row / 8], y = s[col * 4 + t][4 + high];
      d[i] += wide ? __uint_as_float(x) * __uint_as_float(y) : FROM((uint16_t)(x >> half)) * FROM((uint16_t)(y >> half));
    }
  }
  __syncwarp();
}
// Those of bytes ("Matrix Fragments for mma.m16n8k32"): a lane's words are four neighbours of k each.
template <class A>
static void simt_mma_bytes(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const uint32_t own[6] = {a[0], a[1], a[2], a[3], b0, b1};
  uint32_t(*s)[8] = simt_publish(own, 6);
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < 4; i++) {
    const int row = lane / 4 + i / 2 * 8, col = lane % 4 * 2 + i % 2;
    for (int k = 0; k < 32; k++) {
      const int t = k % 16 / 4, high = k / 16;
      const uint32_t x = s[row % 8 * 4 + t][high * 2 + row / 8] >> k % 4 * 8, y = s[col * 4 + t][4 + high] >> k % 4 * 8;
      d[i] = (int)((uint32_t)d[i] + (uint32_t)((int)(A)x * (int)(int8_t)y));
    }
  }
  __syncwarp();
}
template <class A>
struct simt_bytes {
  typedef int sum;
  static const int size = 1;
  static void mma(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) { simt_mma_bytes<A>(d, a, b0, b1); }
  static void round(uint32_t&) {}
};
typedef simt_bytes<int8_t> tx_i8;
typedef simt_bytes<uint8_t> tx_u8;
struct tx_f16 {
  typedef float sum;
  static const int size = 2;
  static void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) { simt_mma<tx_from_f16>(d, a, b0, b1, false); }
  static uint32_t pack(float low, float high) { return tx_pair_f16(low, high); }
  static void round(uint32_t&) {}
};
struct tx_bf16 {
  typedef float sum;
  static const int size = 2;
  static void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) { simt_mma<tx_from_bf16>(d, a, b0, b1, false); }
  static uint32_t pack(float low, float high) { return tx_pair_bf16(low, high); }
  static void round(uint32_t&) {}
};
static void tx_first_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) { d[0] = d[1] = d[2] = d[3] = 0, tx_f16::mma(d, a, b0, b1); }
static void tx_first_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) { d[0] = d[1] = d[2] = d[3] = 0, tx_bf16::mma(d, a, b0, b1); }
struct tx_tf32 {
  typedef float sum;
  static const int size = 4;
  static void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) { simt_mma<tx_from_f16>(d, a, b0, b1, true); }
  static void round(uint32_t& x) { x = (x + 0x1000) & 0xffffe000u; }
};
