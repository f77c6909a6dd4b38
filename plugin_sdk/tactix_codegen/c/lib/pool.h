/* For sliding windows over linear rows: every step-th element. */

/* p[0], p[step], ..., p[(TX_LANES - 1) * step]; reads nothing behind the last. */
TX_INLINE vf tx_load_step(const float* p, int64_t step) {
    if (step == 1) return tx_load_f32(p);
    vf v;
    if (step == 2) {
        const vf a = tx_load_f32(p), b = tx_load_f32(p + TX_LANES - 1);
#ifdef __clang__
        for (int l = 0; l < TX_LANES; l++) v[l] = l < TX_LANES / 2 ? a[2 * l % TX_LANES] : b[(2 * l + 1) % TX_LANES];
        return v;
#else
        vi places;
        for (int l = 0; l < TX_LANES; l++) places[l] = l < TX_LANES / 2 ? 2 * l : 2 * l + 1;
        return __builtin_shuffle(a, b, places);
#endif
    }
    for (int l = 0; l < TX_LANES; l++) v[l] = p[l * step];
    return v;
}
TX_INLINE vf tx_load_step_u8(const uint8_t* p, int64_t step) {
    vi v;
    if (step == 1) return tx_to_f(tx_load_u8(p));
    for (int l = 0; l < TX_LANES; l++) v[l] = p[l * step];
    return tx_to_f(v);
}
TX_INLINE vf tx_load_step_i8(const int8_t* p, int64_t step) {
    vi v;
    if (step == 1) return tx_to_f(tx_load_i8(p));
    for (int l = 0; l < TX_LANES; l++) v[l] = p[l * step];
    return tx_to_f(v);
}
/* Smallest k >= 0 with begin + k * dilation >= 0; first k, at most kernel, with begin + k * dilation >= size. */
TX_INLINE int64_t tx_first_tap(int64_t begin, int64_t dilation) {
    return begin >= 0 ? 0 : (-begin + dilation - 1) / dilation;
}
TX_INLINE int64_t tx_end_tap(int64_t begin, int64_t dilation, int64_t size, int64_t kernel) {
    const int64_t room = size - begin, k = room <= 0 ? 0 : (room + dilation - 1) / dilation;
    return k < kernel ? k : kernel;
}
