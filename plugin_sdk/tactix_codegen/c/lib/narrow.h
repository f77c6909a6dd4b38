/* Elements of 8 bits and less: floats by their format, integers in the low bits of a byte.

   A float has a sign above its exponent and `mantissa` bits; `bias` as IEEE 754 has it. Nearest even, as ml_dtypes. */

TX_INLINE int32_t tx_from_i4(uint8_t b) { return (int8_t)(b << 4) >> 4; }
TX_INLINE int32_t tx_from_u4(uint8_t b) { return b & 15; }
TX_INLINE int32_t tx_from_i2(uint8_t b) { return (int8_t)(b << 6) >> 6; }
TX_INLINE int32_t tx_from_u2(uint8_t b) { return b & 3; }
TX_INLINE uint8_t tx_to_i4(int32_t x) { return (uint8_t)(x & 15); }
TX_INLINE uint8_t tx_to_u4(int32_t x) { return (uint8_t)(x & 15); }
TX_INLINE uint8_t tx_to_i2(int32_t x) { return (uint8_t)(x & 3); }
TX_INLINE uint8_t tx_to_u2(int32_t x) { return (uint8_t)(x & 3); }

/* The magnitude of a number, not NaN, as a code; it may lie beyond the highest. Subnormals are rounded by adding a power
   of two whose last bit weighs as much as theirs. */
TX_INLINE uint32_t tx_small_code(uint32_t a, int mantissa, int bias) {
    const int cut = 23 - mantissa, lowest = 1 - bias;
    const float unit = tx_float_of((uint32_t)(lowest + cut + 127) << 23);
    if (a < (uint32_t)(lowest + 127) << 23) return tx_bits_of(tx_float_of(a) + unit) - tx_bits_of(unit);
    const uint32_t rounded = a + ((1u << (cut - 1)) - 1) + (a >> cut & 1);
    return (rounded >> cut) - ((uint32_t)(127 - bias) << mantissa);
}

/* A number kept within two others; NaN stays. */
TX_INLINE float tx_within(float x, float low, float high) { return x < low ? low : x > high ? high : x; }
TX_INLINE double tx_within_f64(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

/* name; bits of the mantissa; bias; the highest code; what is beyond it, and NaN; whether these have a sign, and zero. */
#define TX_SMALL(name, mantissa, bias, top, beyond, nan, is_signed, width)                                            \
    TX_INLINE uint8_t tx_to_##name(float x) {                                                                           \
        const uint32_t u = tx_bits_of(x), a = u & 0x7fffffff, sign = u >> 31 << (width - 1);                            \
        if (a > 0x7f800000) return (uint8_t)(nan | (is_signed ? sign : 0));                                             \
        const uint32_t code = tx_small_code(a, mantissa, bias);                                                         \
        if (code > top) return (uint8_t)(beyond | (is_signed ? sign : 0));                                              \
        return (uint8_t)(code | (is_signed || code ? sign : 0));                                                        \
    }

TX_SMALL(f8e4m3, 3, 7, 0x7e, 0x7f, 0x7f, 1, 8)
TX_SMALL(f8e5m2, 2, 15, 0x7b, 0x7c, 0x7e, 1, 8)
TX_SMALL(f8e4m3fnuz, 3, 8, 0x7f, 0x80, 0x80, 0, 8)
TX_SMALL(f8e5m2fnuz, 2, 16, 0x7f, 0x80, 0x80, 0, 8)
TX_SMALL(f4e2m1, 1, 1, 0x7, 0x7, 0x0, 1, 4)

/* The power of two above, below or nearest to a magnitude, as its biased exponent; half way goes up, but that of the
   lowest power goes to zero, which is even. up: 1, down: -1, nearest: 0. NaN and infinity stay 255. */
TX_INLINE uint8_t tx_exponent(float x, int direction, uint32_t last) {
    const uint32_t u = tx_bits_of(x), exponent = u >> 23 & 0xff, fraction = u & 0x7fffff;
    const int half = fraction > 0x400000 || (fraction == 0x400000 && exponent > 0);
    const int up = direction > 0 ? fraction > 0 : direction < 0 ? 0 : half;
    return (uint8_t)(exponent + (uint32_t)(up && exponent < last));
}
