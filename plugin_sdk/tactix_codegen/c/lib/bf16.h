/* bfloat16: sums of products in float32 lanes, two at a time. */

/* sum[l] + u0 s0 + u1 s1, where lane l of u and s holds two bfloat16. */
#if TX_512 && defined(__AVX512BF16__)
TX_INLINE vf tx_dot2(vf sum, vi u, vi s) {
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(u), "v"(s)); /* the intrinsic costs GCC moves */
    return sum;
}
#else
TX_INLINE vf tx_dot2(vf sum, vi u, vi s) {
    const vi high = tx_splat_i((int32_t)0xffff0000);
    return sum + (vf)(u << 16) * (vf)(s << 16) + (vf)(u & high) * (vf)(s & high);
}
#endif

/* Of each lane two floats, rounded to bfloat16: the first in the lower half. */
#if TX_512 && defined(__AVX512BF16__)
TX_INLINE vi tx_halves(vf low, vf high) {
    const __m512i turns = _mm512_or_si512(_mm512_slli_epi32((__m512i)(tx_lane_numbers() + 16), 16), (__m512i)tx_lane_numbers());
    return (vi)_mm512_permutexvar_epi16(turns, (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low));
}
#else
TX_INLINE vi tx_halves(vf low, vf high) {
    return (vi)(tx_wide_u16(tx_narrow_bf16(high)) << 16 | tx_wide_u16(tx_narrow_bf16(low)));
}
#endif

/* As many elements as a vector of float32 has, as pairs in its first half; what the second half holds is not told. */
TX_INLINE vi tx_pairs_of(const void* p) {
#if TX_512
    return (vi)_mm512_castsi256_si512(_mm256_loadu_si256((const __m256i*)p));
#elif TX_256
    return (vi)_mm256_castsi128_si256(_mm_loadu_si128((const __m128i*)p));
#else
    vi x = {0};
    memcpy(&x, p, sizeof(x) / 2);
    return x;
#endif
}

/* 2^t within 2^-13 of it, for weights that are rounded to 8 bits: minimax of degree 3, exact where t is whole. 0 where it
 * is subnormal, see tx_weight. */
TX_INLINE vf tx_weight_half(vf t) {
#if TX_512
    const vf f = (vf)_mm512_reduce_ps((__m512)t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    const vf y = ((0x1.3ba9fep-4f * f + 0x1.d237e6p-3f) * f + 0x1.63e654p-1f) * f + 1.0f;
    return TX_WEIGHT(y, t);
#else
    return tx_weight(t);
#endif
}

#if TX_512
/* The first n of 32 elements as 16 pairs; the first n of 16, each in the low half of a lane. Zeros after them. */
TX_INLINE vi tx_pairs_n(const void* p, int64_t n) {
    const __mmask32 there = n >= 32 ? 0xffffffffu : n <= 0 ? 0 : (1u << n) - 1;
    return (vi)_mm512_maskz_loadu_epi16(there, p);
}
TX_INLINE vi tx_low_n(const void* p, int64_t n) {
    return (vi)_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(tx_first(n), p));
}
#endif
