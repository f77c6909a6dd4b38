// The largest of words of two numbers each; of floats NaN is kept.
TX_INLINE uint32_t tx_larger_f16(uint32_t a, uint32_t b) {
  uint32_t y;
  asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  return y;
}
TX_INLINE uint32_t tx_larger_bf16(uint32_t a, uint32_t b) {
  uint32_t y;
  asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  return y;
}
TX_INLINE uint32_t tx_larger_i16(uint32_t a, uint32_t b) { return __vmaxs2(a, b); }
TX_INLINE uint32_t tx_larger_u16(uint32_t a, uint32_t b) { return __vmaxu2(a, b); }
