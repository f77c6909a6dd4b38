/* This thread's rectangle of a grid of units: the largest is as small as can be; on a tie columns are cut. */
TX_INLINE void TX_NAME(grid)(int64_t rows, int64_t columns, int tid, int nt, int64_t* part) {
    int cut = 1;
    int64_t least = INT64_MAX;
    for (int c = nt; c >= 1; c--) {
        const int64_t work = ((rows + nt / c - 1) / (nt / c)) * ((columns + c - 1) / c);
        if (nt % c == 0 && work < least) {
            least = work;
            cut = c;
        }
    }
    tx_split(rows, 1, tid / cut, nt / cut, part, part + 1);
    tx_split(columns, 1, tid % cut, cut, part + 2, part + 3);
}
/* 8 rows of y from row on, and 3 x 16 columns from col on: sums s<row>_<vector> of x, rows of a,
 * times w, a panel of b, then what follows the product. ahead: cache lines of the next panel.
 */
TX_RARE void TX_NAME(t8x3)(const int64_t* a, const float* x, const float* w, int64_t row, int64_t col,
        const float* ahead, int64_t stride) {
    const float* x2 = (const float*)a[2];
    float* y0 = (float*)a[3];
    enum { N = 300, K = 512, WIDTH = 48 };
    vf s0_0 = tx_zero(), s0_1 = tx_zero(), s0_2 = tx_zero();
    vf s1_0 = tx_zero(), s1_1 = tx_zero(), s1_2 = tx_zero();
    vf s2_0 = tx_zero(), s2_1 = tx_zero(), s2_2 = tx_zero();
    vf s3_0 = tx_zero(), s3_1 = tx_zero(), s3_2 = tx_zero();
    vf s4_0 = tx_zero(), s4_1 = tx_zero(), s4_2 = tx_zero();
    vf s5_0 = tx_zero(), s5_1 = tx_zero(), s5_2 = tx_zero();
    vf s6_0 = tx_zero(), s6_1 = tx_zero(), s6_2 = tx_zero();
    vf s7_0 = tx_zero(), s7_1 = tx_zero(), s7_2 = tx_zero();
    /* 2 steps of k at a time */
    int64_t k = 0;
    for (; k + 2 <= K; k += 2) {
        __builtin_prefetch(ahead, 0, 2);
        ahead += stride;
        {
            const vf b0 = tx_load_f32(w);
            const vf b1 = tx_load_f32(w + 16);
            const vf b2 = tx_load_f32(w + 32);
            { const vf v = tx_splat(x[0]); s0_0 += v * b0; s0_1 += v * b1; s0_2 += v * b2; }
            { const vf v = tx_splat(x[K]); s1_0 += v * b0; s1_1 += v * b1; s1_2 += v * b2; }
            { const vf v = tx_splat(x[2 * K]); s2_0 += v * b0; s2_1 += v * b1; s2_2 += v * b2; }
            { const vf v = tx_splat(x[3 * K]); s3_0 += v * b0; s3_1 += v * b1; s3_2 += v * b2; }
            { const vf v = tx_splat(x[4 * K]); s4_0 += v * b0; s4_1 += v * b1; s4_2 += v * b2; }
            { const vf v = tx_splat(x[5 * K]); s5_0 += v * b0; s5_1 += v * b1; s5_2 += v * b2; }
            { const vf v = tx_splat(x[6 * K]); s6_0 += v * b0; s6_1 += v * b1; s6_2 += v * b2; }
            { const vf v = tx_splat(x[7 * K]); s7_0 += v * b0; s7_1 += v * b1; s7_2 += v * b2; }
        }
        {
            const vf b0 = tx_load_f32(w + 48);
            const vf b1 = tx_load_f32(w + 48 + 16);
            const vf b2 = tx_load_f32(w + 48 + 32);
            { const vf v = tx_splat(x[1]); s0_0 += v * b0; s0_1 += v * b1; s0_2 += v * b2; }
            { const vf v = tx_splat(x[K + 1]); s1_0 += v * b0; s1_1 += v * b1; s1_2 += v * b2; }
            { const vf v = tx_splat(x[2 * K + 1]); s2_0 += v * b0; s2_1 += v * b1; s2_2 += v * b2; }
            { const vf v = tx_splat(x[3 * K + 1]); s3_0 += v * b0; s3_1 += v * b1; s3_2 += v * b2; }
            { const vf v = tx_splat(x[4 * K + 1]); s4_0 += v * b0; s4_1 += v * b1; s4_2 += v * b2; }
            { const vf v = tx_splat(x[5 * K + 1]); s5_0 += v * b0; s5_1 += v * b1; s5_2 += v * b2; }
            { const vf v = tx_splat(x[6 * K + 1]); s6_0 += v * b0; s6_1 += v * b1; s6_2 += v * b2; }
            { const vf v = tx_splat(x[7 * K + 1]); s7_0 += v * b0; s7_1 += v * b1; s7_2 += v * b2; }
        }
        x += 2;
        w += 2 * WIDTH;
    }
    if (N - col >= 48) {
        /* what follows the sum z, and the store, for every accumulator */
        {
            const vf z = s0_0;
            const vf ex1 = tx_load_f32(x2 + col);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + row * N + col, e1);
        }
        {
            const vf z = s0_1;
            const vf ex1 = tx_load_f32(x2 + col + 16);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + row * N + col + 16, e1);
        }
        {
            const vf z = s0_2;
            const vf ex1 = tx_load_f32(x2 + col + 32);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + row * N + col + 32, e1);
        }
        {
            const vf z = s1_0;
            const vf ex1 = tx_load_f32(x2 + col);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 1) * N + col, e1);
        }
        {
            const vf z = s1_1;
            const vf ex1 = tx_load_f32(x2 + col + 16);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 1) * N + col + 16, e1);
        }
        {
            const vf z = s1_2;
            const vf ex1 = tx_load_f32(x2 + col + 32);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 1) * N + col + 32, e1);
        }
        {
            const vf z = s2_0;
            const vf ex1 = tx_load_f32(x2 + col);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 2) * N + col, e1);
        }
        {
            const vf z = s2_1;
            const vf ex1 = tx_load_f32(x2 + col + 16);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 2) * N + col + 16, e1);
        }
        {
            const vf z = s2_2;
            const vf ex1 = tx_load_f32(x2 + col + 32);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 2) * N + col + 32, e1);
        }
        {
            const vf z = s3_0;
            const vf ex1 = tx_load_f32(x2 + col);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 3) * N + col, e1);
        }
        {
            const vf z = s3_1;
            const vf ex1 = tx_load_f32(x2 + col + 16);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 3) * N + col + 16, e1);
        }
        {
            const vf z = s3_2;
            const vf ex1 = tx_load_f32(x2 + col + 32);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 3) * N + col + 32, e1);
        }
        {
            const vf z = s4_0;
            const vf ex1 = tx_load_f32(x2 + col);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 4) * N + col, e1);
        }
        {
            const vf z = s4_1;
            const vf ex1 = tx_load_f32(x2 + col + 16);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 4) * N + col + 16, e1);
        }
        {
            const vf z = s4_2;
            const vf ex1 = tx_load_f32(x2 + col + 32);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 4) * N + col + 32, e1);
        }
        {
            const vf z = s5_0;
            const vf ex1 = tx_load_f32(x2 + col);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 5) * N + col, e1);
        }
        {
            const vf z = s5_1;
            const vf ex1 = tx_load_f32(x2 + col + 16);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 5) * N + col + 16, e1);
        }
        {
            const vf z = s5_2;
            const vf ex1 = tx_load_f32(x2 + col + 32);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 5) * N + col + 32, e1);
        }
        {
            const vf z = s6_0;
            const vf ex1 = tx_load_f32(x2 + col);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 6) * N + col, e1);
        }
        {
            const vf z = s6_1;
            const vf ex1 = tx_load_f32(x2 + col + 16);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 6) * N + col + 16, e1);
        }
        {
            const vf z = s6_2;
            const vf ex1 = tx_load_f32(x2 + col + 32);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 6) * N + col + 32, e1);
        }
        {
            const vf z = s7_0;
            const vf ex1 = tx_load_f32(x2 + col);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 7) * N + col, e1);
        }
        {
            const vf z = s7_1;
            const vf ex1 = tx_load_f32(x2 + col + 16);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 7) * N + col + 16, e1);
        }
        {
            const vf z = s7_2;
            const vf ex1 = tx_load_f32(x2 + col + 32);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 7) * N + col + 32, e1);
        }
    } else {
        /* fewer columns are left than a tile has */
        float sums[384] __attribute__((aligned(64)));
        tx_store_f32(sums, s0_0);
        tx_store_f32(sums + 16, s0_1);
        tx_store_f32(sums + 32, s0_2);
        tx_store_f32(sums + 48, s1_0);
        tx_store_f32(sums + 64, s1_1);
        tx_store_f32(sums + 80, s1_2);
        tx_store_f32(sums + 96, s2_0);
        tx_store_f32(sums + 112, s2_1);
        tx_store_f32(sums + 128, s2_2);
        tx_store_f32(sums + 144, s3_0);
        tx_store_f32(sums + 160, s3_1);
        tx_store_f32(sums + 176, s3_2);
        tx_store_f32(sums + 192, s4_0);
        tx_store_f32(sums + 208, s4_1);
        tx_store_f32(sums + 224, s4_2);
        tx_store_f32(sums + 240, s5_0);
        tx_store_f32(sums + 256, s5_1);
        tx_store_f32(sums + 272, s5_2);
        tx_store_f32(sums + 288, s6_0);
        tx_store_f32(sums + 304, s6_1);
        tx_store_f32(sums + 320, s6_2);
        tx_store_f32(sums + 336, s7_0);
        tx_store_f32(sums + 352, s7_1);
        tx_store_f32(sums + 368, s7_2);
        for (int64_t m = 0; m < 8; m++) {
            if (N - col > 0) {
                {
                    const vf z = tx_load_f32(sums + m * 48);
                    const vf ex1 = tx_load_n_f32(x2 + col, N - col);
                    const vf e0 = z + ex1;
                    const vf e1 = tx_max_c(e0, tx_splat(0.0f));
                    tx_store_n_f32(y0 + (row + m) * N + col, e1, N - col);
                }
            }
            if (N - col > 16) {
                {
                    const vf z = tx_load_f32(sums + m * 48 + 16);
                    const vf ex1 = tx_load_n_f32(x2 + col + 16, N - col - 16);
                    const vf e0 = z + ex1;
                    const vf e1 = tx_max_c(e0, tx_splat(0.0f));
                    tx_store_n_f32(y0 + (row + m) * N + col + 16, e1, N - col - 16);
                }
            }
            if (N - col > 32) {
                {
                    const vf z = tx_load_f32(sums + m * 48 + 32);
                    const vf ex1 = tx_load_n_f32(x2 + col + 32, N - col - 32);
                    const vf e0 = z + ex1;
                    const vf e1 = tx_max_c(e0, tx_splat(0.0f));
                    tx_store_n_f32(y0 + (row + m) * N + col + 32, e1, N - col - 32);
                }
            }
        }
    }
}
/* 7 rows of y from row on, and 3 x 16 columns from col on: sums s<row>_<vector> of x, rows of a,
 * times w, a panel of b, then what follows the product. ahead: cache lines of the next panel.
 */
TX_RARE void TX_NAME(t7x3)(const int64_t* a, const float* x, const float* w, int64_t row, int64_t col,
        const float* ahead, int64_t stride) {
    const float* x2 = (const float*)a[2];
    float* y0 = (float*)a[3];
    enum { N = 300, K = 512, WIDTH = 48 };
    vf s0_0 = tx_zero(), s0_1 = tx_zero(), s0_2 = tx_zero();
    vf s1_0 = tx_zero(), s1_1 = tx_zero(), s1_2 = tx_zero();
    vf s2_0 = tx_zero(), s2_1 = tx_zero(), s2_2 = tx_zero();
    vf s3_0 = tx_zero(), s3_1 = tx_zero(), s3_2 = tx_zero();
    vf s4_0 = tx_zero(), s4_1 = tx_zero(), s4_2 = tx_zero();
    vf s5_0 = tx_zero(), s5_1 = tx_zero(), s5_2 = tx_zero();
    vf s6_0 = tx_zero(), s6_1 = tx_zero(), s6_2 = tx_zero();
    /* 2 steps of k at a time */
    int64_t k = 0;
    for (; k + 2 <= K; k += 2) {
        __builtin_prefetch(ahead, 0, 2);
        ahead += stride;
        {
            const vf b0 = tx_load_f32(w);
            const vf b1 = tx_load_f32(w + 16);
            const vf b2 = tx_load_f32(w + 32);
            { const vf v = tx_splat(x[0]); s0_0 += v * b0; s0_1 += v * b1; s0_2 += v * b2; }
            { const vf v = tx_splat(x[K]); s1_0 += v * b0; s1_1 += v * b1; s1_2 += v * b2; }
            { const vf v = tx_splat(x[2 * K]); s2_0 += v * b0; s2_1 += v * b1; s2_2 += v * b2; }
            { const vf v = tx_splat(x[3 * K]); s3_0 += v * b0; s3_1 += v * b1; s3_2 += v * b2; }
            { const vf v = tx_splat(x[4 * K]); s4_0 += v * b0; s4_1 += v * b1; s4_2 += v * b2; }
            { const vf v = tx_splat(x[5 * K]); s5_0 += v * b0; s5_1 += v * b1; s5_2 += v * b2; }
            { const vf v = tx_splat(x[6 * K]); s6_0 += v * b0; s6_1 += v * b1; s6_2 += v * b2; }
        }
        {
            const vf b0 = tx_load_f32(w + 48);
            const vf b1 = tx_load_f32(w + 48 + 16);
            const vf b2 = tx_load_f32(w + 48 + 32);
            { const vf v = tx_splat(x[1]); s0_0 += v * b0; s0_1 += v * b1; s0_2 += v * b2; }
            { const vf v = tx_splat(x[K + 1]); s1_0 += v * b0; s1_1 += v * b1; s1_2 += v * b2; }
            { const vf v = tx_splat(x[2 * K + 1]); s2_0 += v * b0; s2_1 += v * b1; s2_2 += v * b2; }
            { const vf v = tx_splat(x[3 * K + 1]); s3_0 += v * b0; s3_1 += v * b1; s3_2 += v * b2; }
            { const vf v = tx_splat(x[4 * K + 1]); s4_0 += v * b0; s4_1 += v * b1; s4_2 += v * b2; }
            { const vf v = tx_splat(x[5 * K + 1]); s5_0 += v * b0; s5_1 += v * b1; s5_2 += v * b2; }
            { const vf v = tx_splat(x[6 * K + 1]); s6_0 += v * b0; s6_1 += v * b1; s6_2 += v * b2; }
        }
        x += 2;
        w += 2 * WIDTH;
    }
    if (N - col >= 48) {
        /* what follows the sum z, and the store, for every accumulator */
        {
            const vf z = s0_0;
            const vf ex1 = tx_load_f32(x2 + col);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + row * N + col, e1);
        }
        {
            const vf z = s0_1;
            const vf ex1 = tx_load_f32(x2 + col + 16);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + row * N + col + 16, e1);
        }
        {
            const vf z = s0_2;
            const vf ex1 = tx_load_f32(x2 + col + 32);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + row * N + col + 32, e1);
        }
        {
            const vf z = s1_0;
            const vf ex1 = tx_load_f32(x2 + col);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 1) * N + col, e1);
        }
        {
            const vf z = s1_1;
            const vf ex1 = tx_load_f32(x2 + col + 16);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 1) * N + col + 16, e1);
        }
        {
            const vf z = s1_2;
            const vf ex1 = tx_load_f32(x2 + col + 32);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 1) * N + col + 32, e1);
        }
        {
            const vf z = s2_0;
            const vf ex1 = tx_load_f32(x2 + col);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 2) * N + col, e1);
        }
        {
            const vf z = s2_1;
            const vf ex1 = tx_load_f32(x2 + col + 16);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 2) * N + col + 16, e1);
        }
        {
            const vf z = s2_2;
            const vf ex1 = tx_load_f32(x2 + col + 32);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 2) * N + col + 32, e1);
        }
        {
            const vf z = s3_0;
            const vf ex1 = tx_load_f32(x2 + col);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 3) * N + col, e1);
        }
        {
            const vf z = s3_1;
            const vf ex1 = tx_load_f32(x2 + col + 16);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 3) * N + col + 16, e1);
        }
        {
            const vf z = s3_2;
            const vf ex1 = tx_load_f32(x2 + col + 32);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 3) * N + col + 32, e1);
        }
        {
            const vf z = s4_0;
            const vf ex1 = tx_load_f32(x2 + col);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 4) * N + col, e1);
        }
        {
            const vf z = s4_1;
            const vf ex1 = tx_load_f32(x2 + col + 16);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 4) * N + col + 16, e1);
        }
        {
            const vf z = s4_2;
            const vf ex1 = tx_load_f32(x2 + col + 32);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 4) * N + col + 32, e1);
        }
        {
            const vf z = s5_0;
            const vf ex1 = tx_load_f32(x2 + col);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 5) * N + col, e1);
        }
        {
            const vf z = s5_1;
            const vf ex1 = tx_load_f32(x2 + col + 16);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 5) * N + col + 16, e1);
        }
        {
            const vf z = s5_2;
            const vf ex1 = tx_load_f32(x2 + col + 32);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 5) * N + col + 32, e1);
        }
        {
            const vf z = s6_0;
            const vf ex1 = tx_load_f32(x2 + col);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 6) * N + col, e1);
        }
        {
            const vf z = s6_1;
            const vf ex1 = tx_load_f32(x2 + col + 16);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 6) * N + col + 16, e1);
        }
        {
            const vf z = s6_2;
            const vf ex1 = tx_load_f32(x2 + col + 32);
            const vf e0 = z + ex1;
            const vf e1 = tx_max_c(e0, tx_splat(0.0f));
            tx_store_f32(y0 + (row + 6) * N + col + 32, e1);
        }
    } else {
        /* fewer columns are left than a tile has */
        float sums[336] __attribute__((aligned(64)));
        tx_store_f32(sums, s0_0);
        tx_store_f32(sums + 16, s0_1);
        tx_store_f32(sums + 32, s0_2);
        tx_store_f32(sums + 48, s1_0);
        tx_store_f32(sums + 64, s1_1);
        tx_store_f32(sums + 80, s1_2);
        tx_store_f32(sums + 96, s2_0);
        tx_store_f32(sums + 112, s2_1);
        tx_store_f32(sums + 128, s2_2);
        tx_store_f32(sums + 144, s3_0);
        tx_store_f32(sums + 160, s3_1);
        tx_store_f32(sums + 176, s3_2);
        tx_store_f32(sums + 192, s4_0);
        tx_store_f32(sums + 208, s4_1);
        tx_store_f32(sums + 224, s4_2);
        tx_store_f32(sums + 240, s5_0);
        tx_store_f32(sums + 256, s5_1);
        tx_store_f32(sums + 272, s5_2);
        tx_store_f32(sums + 288, s6_0);
        tx_store_f32(sums + 304, s6_1);
        tx_store_f32(sums + 320, s6_2);
        for (int64_t m = 0; m < 7; m++) {
            if (N - col > 0) {
                {
                    const vf z = tx_load_f32(sums + m * 48);
                    const vf ex1 = tx_load_n_f32(x2 + col, N - col);
                    const vf e0 = z + ex1;
                    const vf e1 = tx_max_c(e0, tx_splat(0.0f));
                    tx_store_n_f32(y0 + (row + m) * N + col, e1, N - col);
                }
            }
            if (N - col > 16) {
                {
                    const vf z = tx_load_f32(sums + m * 48 + 16);
                    const vf ex1 = tx_load_n_f32(x2 + col + 16, N - col - 16);
                    const vf e0 = z + ex1;
                    const vf e1 = tx_max_c(e0, tx_splat(0.0f));
                    tx_store_n_f32(y0 + (row + m) * N + col + 16, e1, N - col - 16);
                }
            }
            if (N - col > 32) {
                {
                    const vf z = tx_load_f32(sums + m * 48 + 32);
                    const vf ex1 = tx_load_n_f32(x2 + col + 32, N - col - 32);
                    const vf e0 = z + ex1;
                    const vf e1 = tx_max_c(e0, tx_splat(0.0f));
                    tx_store_n_f32(y0 + (row + m) * N + col + 32, e1, N - col - 32);
                }
            }
        }
    }
}
void TX_ENTRY(const int64_t* a, int tid, int nt) {
    const float* x0 = (const float*)a[0];
    const float* c_b = (const float*)a[1];
    enum { M = 100, K = 512, TILES = 13, PANELS = 7, WIDTH = 48 };
    /* of the grid of row tiles and panels this thread has tiles [g[0], g[1]) and panels [g[2], g[3]) */
    int64_t g[4];
    TX_NAME(grid)(TILES, PANELS, tid, nt, g);
    /* the first tiles, as many as `more`, have least + 1 rows, the others least; `each` make a block */
    const int64_t least = M / TILES, more = M % TILES;
    const int64_t blocks = (g[1] - g[0] + 63) / 64;
    const int64_t each = blocks ? (g[1] - g[0] + blocks - 1) / blocks : 1;
    /* blocks of tiles [t, end) of rows of a, whose part stays in the second cache */
    for (int64_t u = g[0], next; u < g[1]; u = next) {
        const int64_t t = u;
        next = u + each < g[1] ? u + each : g[1];
        const float* xb = x0;
        const float* wb = c_b;
        const int64_t end = t + next - u, row0 = 0;
        /* panels of WIDTH columns of b */
        for (int64_t p = g[2]; p < g[3]; p++) {
            const float* ahead = wb + (p + 1) * K * WIDTH;
            const float* stop = ahead + K * WIDTH;
            /* row tiles of the block, each of which fetches its share of the next panel */
            for (int64_t i = t; i < end; i++) {
                int64_t r = i * least + (i < more ? i : more);
                const int64_t last = (i + 1) * least + ((i + 1) < more ? (i + 1) : more);
                while (r < last) {
                    if (last - r >= 8) {
                        TX_NAME(t8x3)(a, xb + r * K, wb + p * K * WIDTH, row0 + r, p * WIDTH, ahead,
                                ahead < stop ? 16 : 0);
                        r += 8;
                    } else {
                        TX_NAME(t7x3)(a, xb + r * K, wb + p * K * WIDTH, row0 + r, p * WIDTH, ahead,
                                ahead < stop ? 16 : 0);
                        r += 7;
                    }
                }
                ahead += K / 2 * 16;
            }
        }
    }
}
