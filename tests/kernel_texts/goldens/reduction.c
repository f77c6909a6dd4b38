void TX_ENTRY(const int64_t* a, int tid, int nt) {
    const float* x0 = (const float*)a[0];
    float* y0 = (float*)a[1];
    enum { SIZE0 = 788, X_STRIDE0 = 768, SIZE1 = 768, COUNT = 768, RESULTS = 788 };
    /* results [lo, hi) are this thread's: up to TX_LANES neighbours at a time, which make a vector */
    int64_t lo, hi;
    tx_split(RESULTS, TX_LANES, tid, nt, &lo, &hi);
    for (int64_t o = lo; o < hi;) {
        const int64_t i0 = o;
        const int64_t left = SIZE0 - i0 < hi - o ? SIZE0 - i0 : hi - o;
        const int64_t run = left < TX_LANES ? left : TX_LANES;
        float part[TX_LANES] = {0};
        /* all that is reduced to result r, in 4 sums of a vector each */
        for (int64_t r = 0; r < run; r++) {
            const float* p = x0 + i0 * X_STRIDE0 + r * X_STRIDE0;
            vf s0 = tx_splat(0.0f), s1 = tx_splat(0.0f), s2 = tx_splat(0.0f), s3 = tx_splat(0.0f);
            int64_t i = 0;
            for (; i + 4 * TX_LANES <= SIZE1; i += 4 * TX_LANES) {
                s0 = s0 + tx_load_f32(p + i);
                s1 = s1 + tx_load_f32(p + i + TX_LANES);
                s2 = s2 + tx_load_f32(p + i + 2 * TX_LANES);
                s3 = s3 + tx_load_f32(p + i + 3 * TX_LANES);
            }
            for (; i + TX_LANES <= SIZE1; i += TX_LANES) {
                s0 = s0 + tx_load_f32(p + i);
            }
            if (i < SIZE1) {
                const vf rest = tx_load_n_f32(p + i, SIZE1 - i);
                s0 = tx_select(tx_first(SIZE1 - i), s0 + rest, s0);
            }
            s0 = s0 + s2;
            s1 = s1 + s3;
            s0 = s0 + s1;
            part[r] = tx_hsum(s0);
        }
        const vf mean = tx_load_f32(part) / (float)COUNT;
        tx_store_n_f32(y0 + i0, mean, run);
        o += run;
    }
}
