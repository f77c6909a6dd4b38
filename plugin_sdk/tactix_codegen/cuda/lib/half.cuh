// 16-bit floats, their stores, powers of two, bytes of floats, and extremes that keep NaN, by PTX assembly. Conversions
// round to nearest even.
TX_INLINE float tx_from_f16(uint16_t h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}
TX_INLINE uint16_t tx_to_f16(float f) {
  uint16_t h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
}
TX_INLINE float tx_from_bf16(uint16_t h) { return __uint_as_float((uint32_t)h << 16); }
TX_INLINE uint16_t tx_to_bf16(float f) {
  uint16_t h;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
}
// Two results in one word, the first in its low half.
TX_INLINE uint32_t tx_pair_f16(float a, float b) {
  uint32_t w;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(b), "f"(a));
  return w;
}
TX_INLINE uint32_t tx_pair_bf16(float a, float b) {
  uint32_t w;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(b), "f"(a));
  return w;
}
TX_INLINE float tx_fmax(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
TX_INLINE float tx_fmin(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
// To even, kept within the range of bytes; NaN becomes 0.
TX_INLINE int8_t tx_round_i8(float x) {
  int y;
  asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(y) : "f"(x));
  return (int8_t)y;
}
TX_INLINE uint8_t tx_round_u8(float x) {
  uint32_t y;
  asm("cvt.rni.sat.u8.f32 %0, %1;" : "=r"(y) : "f"(x));
  return (uint8_t)y;
}
// 2 to the power of x, within 2 units of the last place.
TX_INLINE float tx_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// 1 / x within 1 unit of the last place; 0 where that is less than 2^-126.
TX_INLINE float tx_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// One of two numbers that are both computed: a compiler may make a branch of ?:, which keeps neighbours from overlapping.
TX_INLINE float tx_pick(bool first, float a, float b) {
  float y;
  asm("{\n.reg .pred p;\nsetp.ne.s32 p, %3, 0;\nselp.f32 %0, %1, %2, p;\n}" : "=f"(y) : "f"(a), "f"(b), "r"((int)first));
  return y;
}
// 16 bytes to global memory at once: a compiler may cut a struct's store into words.
TX_INLINE void tx_store16(void* p, const uint32_t (&w)[4]) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p)), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");
}
