/* Bytes: sums of products in int32 lanes, four at a time, and rounding floats to bytes. */

typedef int32_t tx_int_at __attribute__((aligned(1), may_alias));

/* sum[l] + u0 s0 + u1 s1 + u2 s2 + u3 s3, where lane l of u holds unsigned bytes and that of s signed ones. */
#if (TX_512 && defined(__AVX512VNNI__))
TX_INLINE vi tx_dot4(vi sum, vi u, vi s) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(u), "v"(s)); /* the intrinsic costs GCC moves */
    return sum;
}
#elif (TX_256 && defined(__AVXVNNI__))
TX_INLINE vi tx_dot4(vi sum, vi u, vi s) {
    return (vi)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)u, (__m256i)s);
}
#elif TX_512 || TX_256 || TX_128
TX_INLINE vi tx_dot4(vi sum, vi u, vi s) {
    typedef int16_t tx_half __attribute__((vector_size(4 * TX_LANES)));
    const tx_half even_u = (tx_half)(u & 0x00ff00ff), odd_u = (tx_half)((vi)((vu)u >> 8) & 0x00ff00ff);
    const tx_half even_s = (tx_half)s << 8 >> 8, odd_s = (tx_half)s >> 8;
#if TX_512
    return sum + (vi)_mm512_madd_epi16((__m512i)even_u, (__m512i)even_s) +
           (vi)_mm512_madd_epi16((__m512i)odd_u, (__m512i)odd_s);
#elif TX_256
    return sum + (vi)_mm256_madd_epi16((__m256i)even_u, (__m256i)even_s) +
           (vi)_mm256_madd_epi16((__m256i)odd_u, (__m256i)odd_s);
#else
    return sum + (vi)_mm_madd_epi16((__m128i)even_u, (__m128i)even_s) +
           (vi)_mm_madd_epi16((__m128i)odd_u, (__m128i)odd_s);
#endif
}
#else
TX_INLINE vi tx_dot4(vi sum, vi u, vi s) {
    for (int k = 0; k < 4; k++) sum += ((u >> 8 * k) & 255) * (s << (24 - 8 * k) >> 24);
    return sum;
}
#endif

/* Four neighbouring bytes in all lanes; the first n of them, zeros after them. */
TX_INLINE vi tx_quad(const void* p) {
#if TX_512
    vi x; /* an opaque load: GCC would keep what neighbouring pixels load again, and run out of registers */
    __asm__("vpbroadcastd %1, %0" : "=v"(x) : "m"(*(const tx_int_at*)p));
    return x;
#else
    return tx_splat_i(*(const tx_int_at*)p);
#endif
}
TX_INLINE vi tx_quad_n(const void* p, int n) {
    int32_t x = 0;
    memcpy(&x, p, (size_t)n);
    return tx_splat_i(x);
}
/* Signed bytes plus 128, as unsigned ones. */
TX_INLINE vi tx_flip(vi x) { return x ^ (int32_t)0x80808080; }

/* The nearest integers, to even; INT32_MIN for floats that are no int32. */
TX_INLINE vi tx_nearest(vf x) {
#if TX_512
    return (vi)_mm512_cvtps_epi32((__m512)x);
#elif TX_256
    return (vi)_mm256_cvtps_epi32((__m256)x);
#elif TX_128
    return (vi)_mm_cvtps_epi32((__m128)x);
#else
    return tx_to_i(tx_max_c(tx_round(x), tx_splat(-0x1p31f)));
#endif
}
TX_INLINE vi tx_at_least(vi x, int32_t low) {
#if TX_512
    return (vi)_mm512_max_epi32((__m512i)x, (__m512i)tx_splat_i(low));
#elif TX_256
    return (vi)_mm256_max_epi32((__m256i)x, (__m256i)tx_splat_i(low));
#elif TX_128
    return (vi)_mm_max_epi32((__m128i)x, (__m128i)tx_splat_i(low));
#else
    return tx_max_i(x, tx_splat_i(low));
#endif
}
/* Rounded, kept within [low, high], and zero added. */
TX_INLINE vi tx_rounded(vf x, float high, int32_t low, int32_t zero) {
    return tx_at_least(tx_nearest(tx_min_c(x, tx_splat(high))), low) + zero;
}

#if TX_512
/* 32 neighbouring bytes of whole numbers, each kept within what a byte holds. */
TX_INLINE void tx_store_two_u8(uint8_t* p, vi a, vi b) {
    const __m512i places = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i both = _mm512_packs_epi32((__m512i)a, (__m512i)b);
    const __m512i bytes = _mm512_permutexvar_epi32(places, _mm512_packus_epi16(both, both));
    _mm256_storeu_si256((__m256i*)p, _mm512_castsi512_si256(bytes));
}
TX_INLINE void tx_store_two_i8(int8_t* p, vi a, vi b) {
    const __m512i places = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i both = _mm512_packs_epi32((__m512i)a, (__m512i)b);
    const __m512i bytes = _mm512_permutexvar_epi32(places, _mm512_packs_epi16(both, both));
    _mm256_storeu_si256((__m256i*)p, _mm512_castsi512_si256(bytes));
}
#endif

/* Lane l of the result holds byte l of four neighbouring groups of TX_LANES bytes. */
TX_INLINE vi tx_four_pixels(const void* p) {
#if TX_512 && defined(__AVX512VBMI__)
    static const uint8_t places[64] __attribute__((aligned(64))) = {
        0, 16, 32, 48, 1, 17, 33, 49, 2, 18, 34, 50, 3, 19, 35, 51, 4, 20, 36, 52, 5, 21, 37, 53, 6, 22, 38, 54,
        7, 23, 39, 55, 8, 24, 40, 56, 9, 25, 41, 57, 10, 26, 42, 58, 11, 27, 43, 59, 12, 28, 44, 60, 13, 29, 45, 61,
        14, 30, 46, 62, 15, 31, 47, 63};
    return (vi)_mm512_permutexvar_epi8(_mm512_load_si512(places), _mm512_loadu_si512(p));
#else
    vi x = {0};
    for (int k = 0; k < 4; k++) x |= tx_load_u8((const uint8_t*)p + k * TX_LANES) << 8 * k;
    return x;
#endif
}
