/* Numbers of 2, 4 and 8 bits as unsigned bytes, times signed bytes: int8.h has sums of any bytes. */

/* sum[l] + u0 s0 + u1 s1 + u2 s2 + u3 s3 as tx_dot4, where a lane's unsigned bytes u are at most 127: two products
   then fit in 16 bits. */
TX_INLINE vi tx_dot4_low(vi sum, vi u, vi s) {
#if TX_512 && !defined(__AVX512VNNI__)
    const __m512i pairs = _mm512_maddubs_epi16((__m512i)u, (__m512i)s);
    return sum + (vi)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
#elif TX_256 && !defined(__AVXVNNI__)
    const __m256i pairs = _mm256_maddubs_epi16((__m256i)u, (__m256i)s);
    return sum + (vi)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#elif TX_128
    const __m128i pairs = _mm_maddubs_epi16((__m128i)u, (__m128i)s);
    return sum + (vi)_mm_madd_epi16(pairs, _mm_set1_epi16(1));
#elif TX_NEON
    const int16x8_t low = vmull_s8(vget_low_s8((int8x16_t)u), vget_low_s8((int8x16_t)s));
    const int16x8_t high = vmull_high_s8((int8x16_t)u, (int8x16_t)s);
    return sum + (vi)vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high));
#else
    return tx_dot4(sum, u, s);
#endif
}

enum { TX_LONGEST_BLOCK = 256 };

/* Rounds n floats to signed bytes, zeros behind them up to size, and gives their sum: x is about bytes times scale,
   which is the largest by 127. Tiny ones are zeros; what is not finite has no scale. Of each four bytes of numbers of
   so many bits, those of the lowest bits stand together, then those of the next. */
TX_INLINE int32_t tx_round_block(int8_t* out, const float* x, int64_t n, int64_t size, int bits, float* scale) {
    vf most = tx_zero();
    int64_t i = 0;
    for (; i + TX_LANES <= n; i += TX_LANES) most = tx_max(most, tx_abs(tx_load_f32(x + i)));
    if (i < n) most = tx_max(most, tx_abs(tx_load_n_f32(x + i, n - i)));
    const float largest = tx_hmax(most);
    *scale = largest < __builtin_inff() ? largest / 127.0f : __builtin_nanf("");
    const vf by = tx_splat(largest > 0x1p-100f ? 127.0f / largest : 0.0f);

    int8_t line[TX_LONGEST_BLOCK + TX_LANES];
    vi total = tx_splat_i(0);
    for (i = 0; i < size; i += TX_LANES) {
        const vf part = i + TX_LANES <= n ? tx_load_f32(x + i) : i < n ? tx_load_n_f32(x + i, n - i) : tx_zero();
        const vi whole = tx_nearest(part * by);
        tx_store_i8(line + i, whole);
        total += whole;
    }
    const int each = 8 / bits;
    for (int64_t g = 0; g < size; g += 4 * each)
        for (int place = 0; place < each; place++)
            for (int k = 0; k < 4; k++) out[g + 4 * place + k] = line[g + each * k + place];
    return (int32_t)tx_hsum(tx_to_f(total)); /* exact: less than 2^24 */
}
