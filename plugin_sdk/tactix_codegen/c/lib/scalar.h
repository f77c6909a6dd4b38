/* Scalar functions of any C number type, for element-wise loops over other dtypes than float32. */

#define TX_MAX(a, b) ((a) >= (b) || (a) != (a) ? (a) : (b))
#define TX_MIN(a, b) ((a) <= (b) || (a) != (a) ? (a) : (b))

TX_RARE double tx_mod_double(double a, double b) {
    const double r = fmod(a, b);
    return r == 0.0 ? copysign(0.0, b) : (r < 0.0) != (b < 0.0) ? r + b : r;
}

/* A float as an unsigned integer: the truncated number modulo 2^32 or 2^64, as ONNX Runtime has it on x86. C leaves
   negative ones undefined, other machines saturate. What int64 cannot hold becomes its lowest, as cvttss2si gives. */
TX_INLINE int64_t tx_i64_of(double x) { return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN; }
TX_INLINE uint32_t tx_u32_of(double x) { return (uint32_t)tx_i64_of(x); }
TX_INLINE uint64_t tx_u64_of(double x) {
    return x >= 0x1p63 ? (uint64_t)tx_i64_of(x - 0x1p63) ^ (uint64_t)1 << 63 : (uint64_t)tx_i64_of(x);
}

/* Integers: division truncates; by zero it gives 0, as numpy; shifts past the width give 0. Of up to 32 bits the
   quotient in double, rounded, never passes a whole number, and vectors divide doubles alone. */
#define TX_IN_DOUBLE(a, b) ((double)(a) / (double)(b))
#define TX_IN_64_BITS(a, b) ((a) / (b))
#define TX_SIGNED_INT(name, type, wide, quotient)                                                                   \
    TX_INLINE type tx_div_##name(type a, type b) {                                                                  \
        return b == 0 ? 0 : b == -1 ? (type)(0 - (wide)a) : (type)quotient(a, b);                                   \
    }                                                                                                               \
    TX_INLINE type tx_fmod_##name(type a, type b) {                                                                 \
        return b == 0 ? 0 : (type)((wide)a - (wide)tx_div_##name(a, b) * (wide)b);                                  \
    }                                                                                                               \
    TX_INLINE type tx_mod_##name(type a, type b) {                                                                  \
        const type r = tx_fmod_##name(a, b);                                                                        \
        return r != 0 && (r < 0) != (b < 0) ? (type)(r + b) : r;                                                    \
    }                                                                                                               \
    TX_INLINE type tx_shr_##name(type a, type b) {                                                                  \
        return (uint64_t)b < 8 * sizeof(type) ? (type)(a >> b) : (type)(a < 0 ? -1 : 0);                            \
    }                                                                                                               \
    TX_INLINE type tx_shl_##name(type a, type b) { return (uint64_t)b < 8 * sizeof(type) ? (type)((wide)a << b) : 0; }
#define TX_UNSIGNED_INT(name, type, quotient)                                                                       \
    TX_INLINE type tx_div_##name(type a, type b) { return b == 0 ? 0 : (type)quotient(a, b); }                      \
    TX_INLINE type tx_fmod_##name(type a, type b) {                                                                 \
        return b == 0 ? 0 : (type)(a - (type)(tx_div_##name(a, b) * b));                                            \
    }                                                                                                               \
    TX_INLINE type tx_mod_##name(type a, type b) { return tx_fmod_##name(a, b); }                                    \
    TX_INLINE type tx_shr_##name(type a, type b) { return b < 8 * sizeof(type) ? (type)(a >> b) : 0; }               \
    TX_INLINE type tx_shl_##name(type a, type b) { return b < 8 * sizeof(type) ? (type)((uint64_t)a << b) : 0; }

TX_SIGNED_INT(i64, int64_t, uint64_t, TX_IN_64_BITS)
TX_SIGNED_INT(i32, int32_t, uint32_t, TX_IN_DOUBLE)
TX_SIGNED_INT(i16, int16_t, uint32_t, TX_IN_DOUBLE)
TX_SIGNED_INT(i8, int8_t, uint32_t, TX_IN_DOUBLE)
TX_UNSIGNED_INT(u64, uint64_t, TX_IN_64_BITS)
TX_UNSIGNED_INT(u32, uint32_t, TX_IN_DOUBLE)
TX_UNSIGNED_INT(u16, uint16_t, TX_IN_DOUBLE)
TX_UNSIGNED_INT(u8, uint8_t, TX_IN_DOUBLE)
