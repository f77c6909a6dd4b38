// Two 16-bit floats in a word, and a product of matrices that starts from nothing, by PTX assembly.
TX_INLINE uint32_t tx_sub2_f16(uint32_t a, uint32_t b) {
  uint32_t y;
  asm("sub.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  return y;
}
TX_INLINE uint32_t tx_fma2_f16(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t y;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
  return y;
}
TX_INLINE uint32_t tx_fma2_bf16(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t y;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
  return y;
}
// d = a b, as mma of tx_f16 and tx_bf16: no register is cleared first.
#define TX_FIRST(kind)                                                                                                      \
  TX_INLINE void tx_first_##kind(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {                        \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." #kind "." #kind ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};" \
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                                                           \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));                                \
  }
TX_FIRST(f16)
TX_FIRST(bf16)
