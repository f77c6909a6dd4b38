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

/* The sum of n floats. */
TX_INLINE float tx_total(const float* x, int64_t n) {
    vf sum = tx_zero();
    int64_t i = 0;
    for (; i + TX_LANES <= n; i += TX_LANES) sum += tx_load_f32(x + i);
    if (i < n) sum += tx_load_n_f32(x + i, n - i);
    return tx_hsum(sum);
}
