/* Numbers of 2, 4 and 8 bits as floats: those that the lowest bits of the lanes of w hold. */

TX_INLINE vf tx_number_2(vi w) { return tx_to_f(w & 3); }
#if TX_512
TX_INLINE vf tx_number_4(vi w) { /* a table of 16 floats: the permutation reads four bits of a lane */
    const __m512 numbers = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return (vf)_mm512_permutexvar_ps((__m512i)w, numbers);
}
#else
TX_INLINE vf tx_number_4(vi w) { return tx_to_f(w & 15); }
#endif
TX_INLINE vf tx_number_8(vi w) { return tx_to_f(w & 255); }

/* Lanes moved down by so many bits. */
TX_INLINE vi tx_down(vi w, int bits) { return (vi)((vu)w >> bits); }

/* A vector of numbers that lie one behind the other from p on, in the lowest bits of lanes. */
TX_INLINE vi tx_packed_2(const uint8_t* p) {
    uint32_t word = 0;
    memcpy(&word, p, TX_LANES / 4);
    return (vi)((vu)tx_splat_i((int32_t)word) >> (vu)(2 * tx_lane_numbers()));
}
TX_INLINE vi tx_packed_4(const uint8_t* p) {
#if TX_LANES == 16
    uint32_t words[2];
    memcpy(words, p, 8);
    const vi lanes = tx_lane_numbers(), second = lanes > 7, first = tx_splat_i((int32_t)words[0]);
    const vi both = first ^ (second & tx_splat_i((int32_t)(words[0] ^ words[1])));
    return (vi)((vu)both >> (vu)(4 * (lanes & 7)));
#else
    uint32_t word = 0;
    memcpy(&word, p, TX_LANES / 2);
    return (vi)((vu)tx_splat_i((int32_t)word) >> (vu)(4 * tx_lane_numbers()));
#endif
}
TX_INLINE vi tx_packed_8(const uint8_t* p) { return tx_load_u8(p); }

/* The sum of n floats. */
TX_INLINE float tx_total(const float* x, int64_t n) {
    vf sum = tx_zero();
    int64_t i = 0;
    for (; i + TX_LANES <= n; i += TX_LANES) sum += tx_load_f32(x + i);
    if (i < n) sum += tx_load_n_f32(x + i, n - i);
    return tx_hsum(sum);
}
