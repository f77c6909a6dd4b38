// Instructions of tensor cores and asynchronous copies by PTX assembly; nothing else in these kernels is assembly.
typedef uint32_t tx_shared_t;  // an address in shared memory

#define TX_SHARED(name) extern __shared__ __align__(128) char name[]

TX_INLINE tx_shared_t tx_shared(const void* p) { return (tx_shared_t)__cvta_generic_to_shared(p); }

// Copies BYTES (16, 8 or 4) to shared memory, or zeros where not ok; done when a later tx_copy_wait says so.
template <int BYTES>
TX_INLINE void tx_copy(tx_shared_t to, const void* from, bool ok) {
  int size = ok ? BYTES : 0;
  if (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(size) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(BYTES), "r"(size) : "memory");
}
// One byte and two have no asynchronous copy.
template <>
__device__ __forceinline__ void tx_copy<1>(tx_shared_t to, const void* from, bool ok) {
  uint16_t x = ok ? *(const uint8_t*)from : (uint16_t)0;
  asm volatile("st.shared.u8 [%0], %1;" ::"r"(to), "h"(x) : "memory");
}
template <>
__device__ __forceinline__ void tx_copy<2>(tx_shared_t to, const void* from, bool ok) {
  uint16_t x = ok ? *(const uint16_t*)from : (uint16_t)0;
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(x) : "memory");
}
// BYTES (16, 8 or 4) of shared memory become a word over and over.
template <int BYTES>
TX_INLINE void tx_set(tx_shared_t to, uint32_t word) {
#pragma unroll
  for (int i = 0; i < BYTES; i += 4) asm volatile("st.shared.b32 [%0], %1;" ::"r"(to + i), "r"(word) : "memory");
}
TX_INLINE void tx_copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT>
TX_INLINE void tx_copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }

// Four 8 x 16 byte matrices; lane 8 i + r gives the address of row r of matrix i.
TX_INLINE void tx_load4(uint32_t (&r)[4], tx_shared_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
// The same of 16-bit elements, each matrix transposed.
TX_INLINE void tx_load4_transposed(uint32_t (&r)[4], tx_shared_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
TX_INLINE uint32_t tx_read_shared(tx_shared_t at) {
  uint32_t x;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(at) : "memory");
  return x;
}
TX_INLINE uint2 tx_read_shared2(tx_shared_t at) {
  uint2 x;
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "r"(at) : "memory");
  return x;
}
TX_INLINE float4 tx_read_shared4(tx_shared_t at) {
  float4 x;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w) : "r"(at) : "memory");
  return x;
}

// d += a b with a (16, 32 bytes) and b (32 bytes, 8).
struct tx_f16 {
  typedef float sum;
  static const int size = 2;
  TX_INLINE void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  TX_INLINE uint32_t pack(float low, float high) {
    uint32_t r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
  }
  TX_INLINE void round(uint32_t&) {}
};
struct tx_bf16 {
  typedef float sum;
  static const int size = 2;
  TX_INLINE void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  TX_INLINE uint32_t pack(float low, float high) {
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
  }
  TX_INLINE void round(uint32_t&) {}
};
struct tx_tf32 {
  typedef float sum;
  static const int size = 4;
  TX_INLINE void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  TX_INLINE void round(uint32_t& x) {
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(x) : "f"(__uint_as_float(x)));
  }
};
// 8-bit integers, those of b signed; int32 sums wrap.
#define TX_BYTES(name, type)                                                                                                \
  struct tx_##name {                                                                                                        \
    typedef int sum;                                                                                                        \
    static const int size = 1;                                                                                              \
    TX_INLINE void mma(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {                                     \
      asm volatile("mma.sync.aligned.m16n8k32.row.col.s32." type ".s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                   : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)); \
    }                                                                                                                       \
    TX_INLINE void round(uint32_t&) {}                                                                                      \
  };
TX_BYTES(i8, "s8")
TX_BYTES(u8, "u8")
