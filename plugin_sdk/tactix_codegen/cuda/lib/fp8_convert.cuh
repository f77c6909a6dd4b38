// Floats of 8 bits (Micikevicius et al., "FP8 Formats for Deep Learning", 2022), from and to float32. What is beyond the
// largest becomes that, NaN stays NaN, and conversions round to nearest even: as the instructions of sm_89 and later do.
TX_INLINE float tx_from_f8e4m3(uint8_t b) {
  // the same bits as those of a float16 whose exponent is 8 higher
  const float x = tx_from_f16((uint16_t)((b & 0x80) << 8 | (b & 0x7f) << 7)) * 256.0f;
  return (b & 0x7f) == 0x7f ? TX_NAN : x;
}
TX_INLINE float tx_from_f8e5m2(uint8_t b) { return tx_from_f16((uint16_t)(b << 8)); }
#if __CUDA_ARCH__ >= 890
// Two results in the low half of a word, the first in its low byte.
TX_INLINE uint32_t tx_pair_f8e4m3(float a, float b) {
  uint16_t w;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(w) : "f"(b), "f"(a));
  return w;
}
TX_INLINE uint32_t tx_pair_f8e5m2(float a, float b) {
  uint16_t w;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(w) : "f"(b), "f"(a));
  return w;
}
#else
// Subnormals are rounded by adding a power of two whose last bit weighs as much as theirs; `top`: the largest.
TX_INLINE uint32_t tx_small(float x, int mantissa, int bias, uint32_t top) {
  const uint32_t u = __float_as_uint(x), a = u & 0x7fffffffu, sign = u >> 31 << 7;
  const int cut = 23 - mantissa;
  const uint32_t lowest = (uint32_t)(128 - bias) << 23, unit = (uint32_t)(128 - bias + cut) << 23;
  const uint32_t tiny = __float_as_uint(__uint_as_float(a) + __uint_as_float(unit)) - unit;
  const uint32_t rounded = a + ((1u << (cut - 1)) - 1) + (a >> cut & 1);
  const uint32_t code = a < lowest ? tiny : (rounded >> cut) - ((uint32_t)(127 - bias) << mantissa);
  return a > 0x7f800000u ? sign | 0x7f : sign | (code < top ? code : top);
}
TX_INLINE uint32_t tx_pair_f8e4m3(float a, float b) { return tx_small(a, 3, 7, 0x7e) | tx_small(b, 3, 7, 0x7e) << 8; }
TX_INLINE uint32_t tx_pair_f8e5m2(float a, float b) { return tx_small(a, 2, 15, 0x7b) | tx_small(b, 2, 15, 0x7b) << 8; }
#endif
