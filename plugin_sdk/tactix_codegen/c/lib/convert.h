/* Vector loads, stores and splats of the other dtypes, and scalar conversions of 16-bit floats.

   float16 and bfloat16 become vf, 8- and 16-bit integers vi, bool vm. Stores round to nearest even; integers keep their
   low bits. The _n forms touch the first n elements only. */

TX_INLINE float tx_float_of(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}
TX_INLINE uint32_t tx_bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

TX_INLINE float tx_from_bf16(uint16_t h) { return tx_float_of((uint32_t)h << 16); }
TX_INLINE uint16_t tx_to_bf16(float f) {
    const uint32_t u = tx_bits_of(f);
    if (f != f) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* IEEE binary16. Widening: the exponent is rebiased by a multiplication, which also normalises subnormals. */
TX_INLINE float tx_from_f16(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = (uint32_t)(h & 0x7fff) << 13;
    const float f = tx_float_of(rest) * 0x1p112f;
    const uint32_t special = (h & 0x7c00) == 0x7c00 ? 0x7f800000u : 0;
    return tx_float_of(tx_bits_of(f) | special | sign);
}
/* Narrowing: subnormals are rounded by adding 0.5, whose last bit weighs as much as theirs. */
TX_INLINE uint16_t tx_to_f16(float f) {
    const uint32_t u = tx_bits_of(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
    if (a > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x3ff));
    if (a >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
    if (a < 0x38800000) return (uint16_t)(sign | (tx_bits_of(tx_float_of(a) + 0.5f) - 0x3f000000));
    return (uint16_t)(sign | ((a - 0x38000000 + 0xfff + (a >> 13 & 1)) >> 13));
}

/* Lanes between 8 or 16 bits and 32: compilers split the generic form into single lanes. */
#if TX_512
TX_INLINE vi tx_wide_s8(tx_s8 v) { return (vi)_mm512_cvtepi8_epi32((__m128i)v); }
TX_INLINE vi tx_wide_u8(tx_u8 v) { return (vi)_mm512_cvtepu8_epi32((__m128i)v); }
TX_INLINE vi tx_wide_s16(tx_s16 v) { return (vi)_mm512_cvtepi16_epi32((__m256i)v); }
TX_INLINE vi tx_wide_u16(tx_u16 v) { return (vi)_mm512_cvtepu16_epi32((__m256i)v); }
TX_INLINE tx_u8 tx_low_8(vi x) { return (tx_u8)_mm512_cvtepi32_epi8((__m512i)x); }
TX_INLINE tx_u16 tx_low_16(vi x) { return (tx_u16)_mm512_cvtepi32_epi16((__m512i)x); }
TX_INLINE vm tx_mask_u8(tx_u8 v) { return _mm_test_epi8_mask((__m128i)v, (__m128i)v); }
TX_INLINE tx_u8 tx_bytes_of(vm m) { return (tx_u8)_mm_maskz_set1_epi8(m, 1); }
#else
#if TX_256
TX_INLINE vi tx_wide_s8(tx_s8 v) { return (vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)&v)); }
TX_INLINE vi tx_wide_u8(tx_u8 v) { return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)&v)); }
TX_INLINE tx_u8 tx_low_8(vi x) {
    const __m256i first = _mm256_shuffle_epi8((__m256i)x, _mm256_set1_epi32(0x0c080400));
    const __m128i both = _mm_unpacklo_epi32(_mm256_castsi256_si128(first), _mm256_extracti128_si256(first, 1));
    tx_u8 v;
    _mm_storel_epi64((__m128i*)&v, both);
    return v;
}
TX_INLINE tx_u16 tx_low_16(vi x) {
    const __m256i low = (__m256i)(x & 0xffff), halves = _mm256_packus_epi32(low, low);
    return (tx_u16)_mm256_castsi256_si128(_mm256_permute4x64_epi64(halves, 0x08));
}
#else
TX_INLINE vi tx_wide_s8(tx_s8 v) { return __builtin_convertvector(v, vi); }
TX_INLINE vi tx_wide_u8(tx_u8 v) { return __builtin_convertvector(v, vi); }
TX_INLINE tx_u8 tx_low_8(vi x) { return __builtin_convertvector(x, tx_u8); }
TX_INLINE tx_u16 tx_low_16(vi x) { return __builtin_convertvector(x, tx_u16); }
#endif
TX_INLINE vi tx_wide_s16(tx_s16 v) { return __builtin_convertvector(v, vi); }
TX_INLINE vi tx_wide_u16(tx_u16 v) { return __builtin_convertvector(v, vi); }
TX_INLINE vm tx_mask_u8(tx_u8 v) { return tx_truth(tx_wide_u8(v)); }
TX_INLINE tx_u8 tx_bytes_of(vm m) { return tx_low_8(tx_mask_i(m)); }
#endif

TX_INLINE vf tx_widen_bf16(tx_u16 h) { return (vf)(tx_wide_u16(h) << 16); }
/* The instruction takes subnormals for zero. */
TX_INLINE tx_u16 tx_narrow_bf16(vf x) {
#if TX_512 && defined(__AVX512BF16__)
    return (tx_u16)_mm512_cvtneps_pbh((__m512)x);
#else
    const vu u = (vu)x, rounded = u + 0x7fff + (u >> 16 & 1);
    return tx_low_16((vi)((vu)tx_select_i(tx_isnan(x), (vi)(u | 0x400000), (vi)rounded) >> 16));
#endif
}
/* With an instruction, else as tx_from_f16 and tx_to_f16 do. tx_as: to the 16-bit type and back. */
#if TX_512 || (TX_256 && defined(__F16C__)) || TX_NEON
TX_INLINE vf tx_widen_f16(tx_u16 h) {
#if TX_512
    return (vf)_mm512_cvtph_ps((__m256i)h);
#elif TX_256
    return (vf)_mm256_cvtph_ps((__m128i)h);
#else
    return (vf)vcvt_f32_f16((float16x4_t)h);
#endif
}
TX_INLINE tx_u16 tx_narrow_f16(vf x) {
#if TX_512
    return (tx_u16)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif TX_256
    return (tx_u16)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    return (tx_u16)vcvt_f16_f32((float32x4_t)x);
#endif
}
TX_INLINE vf tx_as_f16(vf x) { return tx_widen_f16(tx_narrow_f16(x)); }
#else
TX_INLINE vf tx_widen_f16(tx_u16 h) {
    const vu wide = (vu)tx_wide_u16(h), sign = (wide & 0x8000) << 16, rest = (wide & 0x7fff) << 13;
    const vm special = tx_le_i(tx_splat_i(0x7c00 << 13), (vi)rest);
    const vi finite = (vi)((vf)rest * 0x1p112f);
    return (vf)(tx_select_i(special, (vi)(rest | 0x7f800000), finite) | (vi)sign);
}
/* In float32, to the numbers that float16 has: 13 bits fewer; multiples of its smallest number; infinity. */
TX_INLINE vf tx_as_f16(vf x) {
    const vu u = (vu)x, a = u & 0x7fffffff;
    const vi normal = (vi)((a + 0xfff + (a >> 13 & 1)) & ~0x1fffu), subnormal = (vi)((vf)a + 0.5f - 0.5f);
    const vi finite = tx_select_i(tx_lt_i((vi)a, tx_splat_i(0x38800000)), subnormal, normal);
    const vi large = tx_select_i(tx_isnan(x), (vi)((a | 0x400000) & ~0x1fffu), tx_splat_i(0x7f800000));
    return (vf)(tx_select_i(tx_le_i(tx_splat_i(0x477ff000), (vi)a), large, finite) | (vi)(u ^ a));
}
TX_INLINE tx_u16 tx_narrow_f16(vf x) {
    const vu u = (vu)x, a = u & 0x7fffffff;
    const vi normal = (vi)(a - 0x38000000 + 0xfff + (a >> 13 & 1)) >> 13;
    const vi subnormal = (vi)((vf)a + 0.5f) - 0x3f000000;
    const vi finite = tx_select_i(tx_lt_i((vi)a, tx_splat_i(0x38800000)), subnormal, normal);
    const vi large = tx_select_i(tx_isnan(x), (vi)(0x7e00 | (a >> 13 & 0x3ff)), tx_splat_i(0x7c00));
    const vm beyond = tx_le_i(tx_splat_i(0x477ff000), (vi)a);
    return tx_low_16(tx_select_i(beyond, large, finite) | (vi)(u >> 16 & 0x8000));
}
#endif
TX_INLINE vf tx_as_bf16(vf x) { return tx_widen_bf16(tx_narrow_bf16(x)); }

/* The first n elements of 1 or 2 bytes. */
#if TX_512
#define TX_LOAD_PART_1(s, p, n) (s) = (__typeof__(s))_mm_maskz_loadu_epi8(tx_first(n), p)
#define TX_LOAD_PART_2(s, p, n) (s) = (__typeof__(s))_mm256_maskz_loadu_epi16(tx_first(n), p)
#define TX_STORE_PART_1(p, s, n) _mm_mask_storeu_epi8(p, tx_first(n), (__m128i)(s))
#define TX_STORE_PART_2(p, s, n) _mm256_mask_storeu_epi16(p, tx_first(n), (__m256i)(s))
#else
#define TX_LOAD_PART_1(s, p, n) memcpy(&(s), p, (size_t)((n) < TX_LANES ? (n) : TX_LANES))
#define TX_LOAD_PART_2(s, p, n) memcpy(&(s), p, (size_t)((n) < TX_LANES ? (n) : TX_LANES) * 2)
#define TX_STORE_PART_1(p, s, n) memcpy(p, &(s), (size_t)((n) < TX_LANES ? (n) : TX_LANES))
#define TX_STORE_PART_2(p, s, n) memcpy(p, &(s), (size_t)((n) < TX_LANES ? (n) : TX_LANES) * 2)
#endif

#define TX_STORED_AS(name, value, stored, element, size, widen, narrow, all)                  \
    TX_INLINE value tx_load_##name(const void* p) {                                           \
        stored s;                                                                             \
        memcpy(&s, p, sizeof s);                                                              \
        return widen(s);                                                                      \
    }                                                                                         \
    TX_INLINE value tx_load_n_##name(const void* p, int64_t n) {                              \
        stored s = {0};                                                                       \
        TX_LOAD_PART_##size(s, p, n);                                                         \
        return widen(s);                                                                      \
    }                                                                                         \
    TX_INLINE void tx_store_##name(void* p, value x) {                                        \
        const stored s = narrow(x);                                                           \
        memcpy(p, &s, sizeof s);                                                              \
    }                                                                                         \
    TX_INLINE void tx_store_n_##name(void* p, value x, int64_t n) {                           \
        const stored s = narrow(x);                                                           \
        TX_STORE_PART_##size(p, s, n);                                                        \
    }                                                                                         \
    TX_INLINE value tx_splat_##name(const void* p) {                                          \
        const element e = *(const element*)p;                                                 \
        return all;                                                                           \
    }

TX_STORED_AS(f16, vf, tx_u16, uint16_t, 2, tx_widen_f16, tx_narrow_f16, tx_splat(tx_from_f16(e)))
TX_STORED_AS(bf16, vf, tx_u16, uint16_t, 2, tx_widen_bf16, tx_narrow_bf16, tx_splat(tx_from_bf16(e)))
TX_STORED_AS(i8, vi, tx_s8, int8_t, 1, tx_wide_s8, (tx_s8)tx_low_8, tx_splat_i(e))
TX_STORED_AS(u8, vi, tx_u8, uint8_t, 1, tx_wide_u8, tx_low_8, tx_splat_i(e))
TX_STORED_AS(i16, vi, tx_s16, int16_t, 2, tx_wide_s16, (tx_s16)tx_low_16, tx_splat_i(e))
TX_STORED_AS(u16, vi, tx_u16, uint16_t, 2, tx_wide_u16, tx_low_16, tx_splat_i(e))
TX_STORED_AS(bool, vm, tx_u8, uint8_t, 1, tx_mask_u8, tx_bytes_of, tx_splat_m(e))
