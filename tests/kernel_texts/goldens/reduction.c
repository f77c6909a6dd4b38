void TX_ENTRY(const int64_t* a, int tid, int nt) {
    const float* x0 = (const float*)a[0];
    float* y0 = (float*)a[1];
    (void)a; (void)tid; (void)nt;
    int64_t lo, hi;
    tx_split(788, TX_LANES, tid, nt, &lo, &hi);
    for (int64_t o = lo; o < hi;) {
        const int64_t i0 = o;
        const int64_t left = 788 - i0 < hi - o ? 788 - i0 : hi - o;
        const int64_t run = left < TX_LANES ? left : TX_LANES;
        float part[TX_LANES] = {0};
        for (int64_t r = 0; r < run; r++) {
            const float* p = x0 + i0 * 768 + r * 768;
            vf s0 = tx_splat(0.0f), s1 = tx_splat(0.0f), s2 = tx_splat(0.0f), s3 = tx_splat(0.0f);
             {
                const float* q = p + 0;
                int64_t i = 0;
                for (; i + 4 * TX_LANES <= 768; i += 4 * TX_LANES) {
                    s0 = s0 + tx_load_f32(q + i + 0 * TX_LANES);
                    s1 = s1 + tx_load_f32(q + i + 1 * TX_LANES);
                    s2 = s2 + tx_load_f32(q + i + 2 * TX_LANES);
                    s3 = s3 + tx_load_f32(q + i + 3 * TX_LANES);
                }
                for (; i + TX_LANES <= 768; i += TX_LANES) {
                    s0 = s0 + tx_load_f32(q + i);
                }
                if (i < 768) {
                    const vf rest = tx_load_n_f32(q + i, 768 - i);
                    s0 = tx_select(tx_first(768 - i), s0 + rest, s0);
                }
            }
            s0 = s0 + s2;
            s1 = s1 + s3;
            s0 = s0 + s1;
            part[r] = tx_hsum(s0);
        }
        const vf mean = tx_load_f32(part) / (float)768;
        tx_store_n_f32(y0 + i0 + 0, mean, run);
        o += run;
    }
}
