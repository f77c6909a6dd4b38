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
/* 14 pixels from pixel on, 2 x 16 channels from channel block `block` on: sums s<pixel>_<vector>
 * over DEEP blocks of CELL channels and the row taps from top to bottom, of x, the window of the
 * first pixel, times w, a panel of weights; then what follows the convolution.
 */
TX_RARE void TX_NAME(t14at0)(const int64_t* a, const float* x, const float* w, int64_t image, int64_t block,
        int64_t pixel, int64_t top, int64_t bottom) {
    const float* c_o2 = (const float*)a[2];
    float* y0 = (float*)a[3];
    enum { CELL = 16, DEEP = 4, WIDTH = 32, X_LINE = 448, X_PLANE = 12544, W_TAP = 512, W_LINE = 1536,
            W_BLOCK = 4608, Y_BLOCKS = 4, Y_PLANE = 784, LANES = 16 };
    vf s0_0 = tx_zero(), s0_1 = tx_zero();
    vf s1_0 = tx_zero(), s1_1 = tx_zero();
    vf s2_0 = tx_zero(), s2_1 = tx_zero();
    vf s3_0 = tx_zero(), s3_1 = tx_zero();
    vf s4_0 = tx_zero(), s4_1 = tx_zero();
    vf s5_0 = tx_zero(), s5_1 = tx_zero();
    vf s6_0 = tx_zero(), s6_1 = tx_zero();
    vf s7_0 = tx_zero(), s7_1 = tx_zero();
    vf s8_0 = tx_zero(), s8_1 = tx_zero();
    vf s9_0 = tx_zero(), s9_1 = tx_zero();
    vf s10_0 = tx_zero(), s10_1 = tx_zero();
    vf s11_0 = tx_zero(), s11_1 = tx_zero();
    vf s12_0 = tx_zero(), s12_1 = tx_zero();
    vf s13_0 = tx_zero(), s13_1 = tx_zero();
    /* blocks of CELL channels */
    for (int64_t c = 0; c < DEEP; c++) {
        for (int64_t i = top; i < bottom; i++) {
            const float* xr = x + c * X_PLANE + i * X_LINE;
            const float* wr = w + c * W_BLOCK + i * W_LINE;
            {
                const float* xc = xr;
                const float* wc = wr;
                for (int64_t k = 0; k < CELL; k += 2) {
                    {
                        const vf b0 = tx_load_f32(wc);
                        const vf b1 = tx_load_f32(wc + 16);
                        __builtin_prefetch(wc + 512, 0, 3);
                        __builtin_prefetch(wc + 16 + 512, 0, 3);
                        { const vf v = tx_splat(xc[CELL]); s1_0 += v * b0; s1_1 += v * b1; }
                        { const vf v = tx_splat(xc[2 * CELL]); s2_0 += v * b0; s2_1 += v * b1; }
                        { const vf v = tx_splat(xc[3 * CELL]); s3_0 += v * b0; s3_1 += v * b1; }
                        { const vf v = tx_splat(xc[4 * CELL]); s4_0 += v * b0; s4_1 += v * b1; }
                        { const vf v = tx_splat(xc[5 * CELL]); s5_0 += v * b0; s5_1 += v * b1; }
                        { const vf v = tx_splat(xc[6 * CELL]); s6_0 += v * b0; s6_1 += v * b1; }
                        { const vf v = tx_splat(xc[7 * CELL]); s7_0 += v * b0; s7_1 += v * b1; }
                        { const vf v = tx_splat(xc[8 * CELL]); s8_0 += v * b0; s8_1 += v * b1; }
                        { const vf v = tx_splat(xc[9 * CELL]); s9_0 += v * b0; s9_1 += v * b1; }
                        { const vf v = tx_splat(xc[10 * CELL]); s10_0 += v * b0; s10_1 += v * b1; }
                        { const vf v = tx_splat(xc[11 * CELL]); s11_0 += v * b0; s11_1 += v * b1; }
                        { const vf v = tx_splat(xc[12 * CELL]); s12_0 += v * b0; s12_1 += v * b1; }
                        { const vf v = tx_splat(xc[13 * CELL]); s13_0 += v * b0; s13_1 += v * b1; }
                    }
                    {
                        const vf b0 = tx_load_f32(wc + 32);
                        const vf b1 = tx_load_f32(wc + 32 + 16);
                        __builtin_prefetch(wc + 32 + 512, 0, 3);
                        __builtin_prefetch(wc + 32 + 16 + 512, 0, 3);
                        { const vf v = tx_splat(xc[CELL + 1]); s1_0 += v * b0; s1_1 += v * b1; }
                        { const vf v = tx_splat(xc[2 * CELL + 1]); s2_0 += v * b0; s2_1 += v * b1; }
                        { const vf v = tx_splat(xc[3 * CELL + 1]); s3_0 += v * b0; s3_1 += v * b1; }
                        { const vf v = tx_splat(xc[4 * CELL + 1]); s4_0 += v * b0; s4_1 += v * b1; }
                        { const vf v = tx_splat(xc[5 * CELL + 1]); s5_0 += v * b0; s5_1 += v * b1; }
                        { const vf v = tx_splat(xc[6 * CELL + 1]); s6_0 += v * b0; s6_1 += v * b1; }
                        { const vf v = tx_splat(xc[7 * CELL + 1]); s7_0 += v * b0; s7_1 += v * b1; }
                        { const vf v = tx_splat(xc[8 * CELL + 1]); s8_0 += v * b0; s8_1 += v * b1; }
                        { const vf v = tx_splat(xc[9 * CELL + 1]); s9_0 += v * b0; s9_1 += v * b1; }
                        { const vf v = tx_splat(xc[10 * CELL + 1]); s10_0 += v * b0; s10_1 += v * b1; }
                        { const vf v = tx_splat(xc[11 * CELL + 1]); s11_0 += v * b0; s11_1 += v * b1; }
                        { const vf v = tx_splat(xc[12 * CELL + 1]); s12_0 += v * b0; s12_1 += v * b1; }
                        { const vf v = tx_splat(xc[13 * CELL + 1]); s13_0 += v * b0; s13_1 += v * b1; }
                    }
                    xc += 2;
                    wc += 2 * WIDTH;
                }
            }
            {
                const float* xc = xr + CELL;
                const float* wc = wr + W_TAP;
                for (int64_t k = 0; k < CELL; k += 2) {
                    {
                        const vf b0 = tx_load_f32(wc);
                        const vf b1 = tx_load_f32(wc + 16);
                        __builtin_prefetch(wc + 512, 0, 3);
                        __builtin_prefetch(wc + 16 + 512, 0, 3);
                        { const vf v = tx_splat(xc[0]); s0_0 += v * b0; s0_1 += v * b1; }
                        { const vf v = tx_splat(xc[CELL]); s1_0 += v * b0; s1_1 += v * b1; }
                        { const vf v = tx_splat(xc[2 * CELL]); s2_0 += v * b0; s2_1 += v * b1; }
                        { const vf v = tx_splat(xc[3 * CELL]); s3_0 += v * b0; s3_1 += v * b1; }
                        { const vf v = tx_splat(xc[4 * CELL]); s4_0 += v * b0; s4_1 += v * b1; }
                        { const vf v = tx_splat(xc[5 * CELL]); s5_0 += v * b0; s5_1 += v * b1; }
                        { const vf v = tx_splat(xc[6 * CELL]); s6_0 += v * b0; s6_1 += v * b1; }
                        { const vf v = tx_splat(xc[7 * CELL]); s7_0 += v * b0; s7_1 += v * b1; }
                        { const vf v = tx_splat(xc[8 * CELL]); s8_0 += v * b0; s8_1 += v * b1; }
                        { const vf v = tx_splat(xc[9 * CELL]); s9_0 += v * b0; s9_1 += v * b1; }
                        { const vf v = tx_splat(xc[10 * CELL]); s10_0 += v * b0; s10_1 += v * b1; }
                        { const vf v = tx_splat(xc[11 * CELL]); s11_0 += v * b0; s11_1 += v * b1; }
                        { const vf v = tx_splat(xc[12 * CELL]); s12_0 += v * b0; s12_1 += v * b1; }
                        { const vf v = tx_splat(xc[13 * CELL]); s13_0 += v * b0; s13_1 += v * b1; }
                    }
                    {
                        const vf b0 = tx_load_f32(wc + 32);
                        const vf b1 = tx_load_f32(wc + 32 + 16);
                        __builtin_prefetch(wc + 32 + 512, 0, 3);
                        __builtin_prefetch(wc + 32 + 16 + 512, 0, 3);
                        { const vf v = tx_splat(xc[1]); s0_0 += v * b0; s0_1 += v * b1; }
                        { const vf v = tx_splat(xc[CELL + 1]); s1_0 += v * b0; s1_1 += v * b1; }
                        { const vf v = tx_splat(xc[2 * CELL + 1]); s2_0 += v * b0; s2_1 += v * b1; }
                        { const vf v = tx_splat(xc[3 * CELL + 1]); s3_0 += v * b0; s3_1 += v * b1; }
                        { const vf v = tx_splat(xc[4 * CELL + 1]); s4_0 += v * b0; s4_1 += v * b1; }
                        { const vf v = tx_splat(xc[5 * CELL + 1]); s5_0 += v * b0; s5_1 += v * b1; }
                        { const vf v = tx_splat(xc[6 * CELL + 1]); s6_0 += v * b0; s6_1 += v * b1; }
                        { const vf v = tx_splat(xc[7 * CELL + 1]); s7_0 += v * b0; s7_1 += v * b1; }
                        { const vf v = tx_splat(xc[8 * CELL + 1]); s8_0 += v * b0; s8_1 += v * b1; }
                        { const vf v = tx_splat(xc[9 * CELL + 1]); s9_0 += v * b0; s9_1 += v * b1; }
                        { const vf v = tx_splat(xc[10 * CELL + 1]); s10_0 += v * b0; s10_1 += v * b1; }
                        { const vf v = tx_splat(xc[11 * CELL + 1]); s11_0 += v * b0; s11_1 += v * b1; }
                        { const vf v = tx_splat(xc[12 * CELL + 1]); s12_0 += v * b0; s12_1 += v * b1; }
                        { const vf v = tx_splat(xc[13 * CELL + 1]); s13_0 += v * b0; s13_1 += v * b1; }
                    }
                    xc += 2;
                    wc += 2 * WIDTH;
                }
            }
            {
                const float* xc = xr + 2 * CELL;
                const float* wc = wr + 2 * W_TAP;
                for (int64_t k = 0; k < CELL; k += 2) {
                    {
                        const vf b0 = tx_load_f32(wc);
                        const vf b1 = tx_load_f32(wc + 16);
                        __builtin_prefetch(wc + 512, 0, 3);
                        __builtin_prefetch(wc + 16 + 512, 0, 3);
                        { const vf v = tx_splat(xc[0]); s0_0 += v * b0; s0_1 += v * b1; }
                        { const vf v = tx_splat(xc[CELL]); s1_0 += v * b0; s1_1 += v * b1; }
                        { const vf v = tx_splat(xc[2 * CELL]); s2_0 += v * b0; s2_1 += v * b1; }
                        { const vf v = tx_splat(xc[3 * CELL]); s3_0 += v * b0; s3_1 += v * b1; }
                        { const vf v = tx_splat(xc[4 * CELL]); s4_0 += v * b0; s4_1 += v * b1; }
                        { const vf v = tx_splat(xc[5 * CELL]); s5_0 += v * b0; s5_1 += v * b1; }
                        { const vf v = tx_splat(xc[6 * CELL]); s6_0 += v * b0; s6_1 += v * b1; }
                        { const vf v = tx_splat(xc[7 * CELL]); s7_0 += v * b0; s7_1 += v * b1; }
                        { const vf v = tx_splat(xc[8 * CELL]); s8_0 += v * b0; s8_1 += v * b1; }
                        { const vf v = tx_splat(xc[9 * CELL]); s9_0 += v * b0; s9_1 += v * b1; }
                        { const vf v = tx_splat(xc[10 * CELL]); s10_0 += v * b0; s10_1 += v * b1; }
                        { const vf v = tx_splat(xc[11 * CELL]); s11_0 += v * b0; s11_1 += v * b1; }
                        { const vf v = tx_splat(xc[12 * CELL]); s12_0 += v * b0; s12_1 += v * b1; }
                        { const vf v = tx_splat(xc[13 * CELL]); s13_0 += v * b0; s13_1 += v * b1; }
                    }
                    {
                        const vf b0 = tx_load_f32(wc + 32);
                        const vf b1 = tx_load_f32(wc + 32 + 16);
                        __builtin_prefetch(wc + 32 + 512, 0, 3);
                        __builtin_prefetch(wc + 32 + 16 + 512, 0, 3);
                        { const vf v = tx_splat(xc[1]); s0_0 += v * b0; s0_1 += v * b1; }
                        { const vf v = tx_splat(xc[CELL + 1]); s1_0 += v * b0; s1_1 += v * b1; }
                        { const vf v = tx_splat(xc[2 * CELL + 1]); s2_0 += v * b0; s2_1 += v * b1; }
                        { const vf v = tx_splat(xc[3 * CELL + 1]); s3_0 += v * b0; s3_1 += v * b1; }
                        { const vf v = tx_splat(xc[4 * CELL + 1]); s4_0 += v * b0; s4_1 += v * b1; }
                        { const vf v = tx_splat(xc[5 * CELL + 1]); s5_0 += v * b0; s5_1 += v * b1; }
                        { const vf v = tx_splat(xc[6 * CELL + 1]); s6_0 += v * b0; s6_1 += v * b1; }
                        { const vf v = tx_splat(xc[7 * CELL + 1]); s7_0 += v * b0; s7_1 += v * b1; }
                        { const vf v = tx_splat(xc[8 * CELL + 1]); s8_0 += v * b0; s8_1 += v * b1; }
                        { const vf v = tx_splat(xc[9 * CELL + 1]); s9_0 += v * b0; s9_1 += v * b1; }
                        { const vf v = tx_splat(xc[10 * CELL + 1]); s10_0 += v * b0; s10_1 += v * b1; }
                        { const vf v = tx_splat(xc[11 * CELL + 1]); s11_0 += v * b0; s11_1 += v * b1; }
                        { const vf v = tx_splat(xc[12 * CELL + 1]); s12_0 += v * b0; s12_1 += v * b1; }
                        { const vf v = tx_splat(xc[13 * CELL + 1]); s13_0 += v * b0; s13_1 += v * b1; }
                    }
                    xc += 2;
                    wc += 2 * WIDTH;
                }
            }
        }
    }
    /* what follows the sum z, and the store, for every accumulator */
    {
        const vf z = s0_0;
        const vf ex1 = tx_load_f32(c_o2 + block * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block) * Y_PLANE + pixel) * LANES, e1);
    }
    {
        const vf z = s0_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block + 1) * Y_PLANE + pixel) * LANES, e1);
    }
    {
        const vf z = s1_0;
        const vf ex1 = tx_load_f32(c_o2 + block * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block) * Y_PLANE + pixel + 1) * LANES, e1);
    }
    {
        const vf z = s1_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block + 1) * Y_PLANE + pixel + 1) * LANES, e1);
    }
    {
        const vf z = s2_0;
        const vf ex1 = tx_load_f32(c_o2 + block * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block) * Y_PLANE + pixel + 2) * LANES, e1);
    }
    {
        const vf z = s2_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block + 1) * Y_PLANE + pixel + 2) * LANES, e1);
    }
    {
        const vf z = s3_0;
        const vf ex1 = tx_load_f32(c_o2 + block * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block) * Y_PLANE + pixel + 3) * LANES, e1);
    }
    {
        const vf z = s3_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block + 1) * Y_PLANE + pixel + 3) * LANES, e1);
    }
    {
        const vf z = s4_0;
        const vf ex1 = tx_load_f32(c_o2 + block * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block) * Y_PLANE + pixel + 4) * LANES, e1);
    }
    {
        const vf z = s4_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block + 1) * Y_PLANE + pixel + 4) * LANES, e1);
    }
    {
        const vf z = s5_0;
        const vf ex1 = tx_load_f32(c_o2 + block * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block) * Y_PLANE + pixel + 5) * LANES, e1);
    }
    {
        const vf z = s5_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block + 1) * Y_PLANE + pixel + 5) * LANES, e1);
    }
    {
        const vf z = s6_0;
        const vf ex1 = tx_load_f32(c_o2 + block * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block) * Y_PLANE + pixel + 6) * LANES, e1);
    }
    {
        const vf z = s6_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block + 1) * Y_PLANE + pixel + 6) * LANES, e1);
    }
    {
        const vf z = s7_0;
        const vf ex1 = tx_load_f32(c_o2 + block * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block) * Y_PLANE + pixel + 7) * LANES, e1);
    }
    {
        const vf z = s7_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block + 1) * Y_PLANE + pixel + 7) * LANES, e1);
    }
    {
        const vf z = s8_0;
        const vf ex1 = tx_load_f32(c_o2 + block * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block) * Y_PLANE + pixel + 8) * LANES, e1);
    }
    {
        const vf z = s8_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block + 1) * Y_PLANE + pixel + 8) * LANES, e1);
    }
    {
        const vf z = s9_0;
        const vf ex1 = tx_load_f32(c_o2 + block * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block) * Y_PLANE + pixel + 9) * LANES, e1);
    }
    {
        const vf z = s9_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block + 1) * Y_PLANE + pixel + 9) * LANES, e1);
    }
    {
        const vf z = s10_0;
        const vf ex1 = tx_load_f32(c_o2 + block * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block) * Y_PLANE + pixel + 10) * LANES, e1);
    }
    {
        const vf z = s10_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block + 1) * Y_PLANE + pixel + 10) * LANES, e1);
    }
    {
        const vf z = s11_0;
        const vf ex1 = tx_load_f32(c_o2 + block * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block) * Y_PLANE + pixel + 11) * LANES, e1);
    }
    {
        const vf z = s11_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block + 1) * Y_PLANE + pixel + 11) * LANES, e1);
    }
    {
        const vf z = s12_0;
        const vf ex1 = tx_load_f32(c_o2 + block * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block) * Y_PLANE + pixel + 12) * LANES, e1);
    }
    {
        const vf z = s12_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block + 1) * Y_PLANE + pixel + 12) * LANES, e1);
    }
    {
        const vf z = s13_0;
        const vf ex1 = tx_load_f32(c_o2 + block * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block) * Y_PLANE + pixel + 13) * LANES, e1);
    }
    {
        const vf z = s13_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block + 1) * Y_PLANE + pixel + 13) * LANES, e1);
    }
}
/* 14 pixels from pixel on, 2 x 16 channels from channel block `block` on: sums s<pixel>_<vector>
 * over DEEP blocks of CELL channels and the row taps from top to bottom, of x, the window of the
 * first pixel, times w, a panel of weights; then what follows the convolution.
 */
TX_RARE void TX_NAME(t14at14)(const int64_t* a, const float* x, const float* w, int64_t image, int64_t block,
        int64_t pixel, int64_t top, int64_t bottom) {
    const float* c_o2 = (const float*)a[2];
    float* y0 = (float*)a[3];
    enum { CELL = 16, DEEP = 4, WIDTH = 32, X_LINE = 448, X_PLANE = 12544, W_TAP = 512, W_LINE = 1536,
            W_BLOCK = 4608, Y_BLOCKS = 4, Y_PLANE = 784, LANES = 16 };
    vf s0_0 = tx_zero(), s0_1 = tx_zero();
    vf s1_0 = tx_zero(), s1_1 = tx_zero();
    vf s2_0 = tx_zero(), s2_1 = tx_zero();
    vf s3_0 = tx_zero(), s3_1 = tx_zero();
    vf s4_0 = tx_zero(), s4_1 = tx_zero();
    vf s5_0 = tx_zero(), s5_1 = tx_zero();
    vf s6_0 = tx_zero(), s6_1 = tx_zero();
    vf s7_0 = tx_zero(), s7_1 = tx_zero();
    vf s8_0 = tx_zero(), s8_1 = tx_zero();
    vf s9_0 = tx_zero(), s9_1 = tx_zero();
    vf s10_0 = tx_zero(), s10_1 = tx_zero();
    vf s11_0 = tx_zero(), s11_1 = tx_zero();
    vf s12_0 = tx_zero(), s12_1 = tx_zero();
    vf s13_0 = tx_zero(), s13_1 = tx_zero();
    /* blocks of CELL channels */
    for (int64_t c = 0; c < DEEP; c++) {
        for (int64_t i = top; i < bottom; i++) {
            const float* xr = x + c * X_PLANE + i * X_LINE;
            const float* wr = w + c * W_BLOCK + i * W_LINE;
            {
                const float* xc = xr;
                const float* wc = wr;
                for (int64_t k = 0; k < CELL; k += 2) {
                    {
                        const vf b0 = tx_load_f32(wc);
                        const vf b1 = tx_load_f32(wc + 16);
                        __builtin_prefetch(wc + 512, 0, 3);
                        __builtin_prefetch(wc + 16 + 512, 0, 3);
                        { const vf v = tx_splat(xc[0]); s0_0 += v * b0; s0_1 += v * b1; }
                        { const vf v = tx_splat(xc[CELL]); s1_0 += v * b0; s1_1 += v * b1; }
                        { const vf v = tx_splat(xc[2 * CELL]); s2_0 += v * b0; s2_1 += v * b1; }
                        { const vf v = tx_splat(xc[3 * CELL]); s3_0 += v * b0; s3_1 += v * b1; }
                        { const vf v = tx_splat(xc[4 * CELL]); s4_0 += v * b0; s4_1 += v * b1; }
                        { const vf v = tx_splat(xc[5 * CELL]); s5_0 += v * b0; s5_1 += v * b1; }
                        { const vf v = tx_splat(xc[6 * CELL]); s6_0 += v * b0; s6_1 += v * b1; }
                        { const vf v = tx_splat(xc[7 * CELL]); s7_0 += v * b0; s7_1 += v * b1; }
                        { const vf v = tx_splat(xc[8 * CELL]); s8_0 += v * b0; s8_1 += v * b1; }
                        { const vf v = tx_splat(xc[9 * CELL]); s9_0 += v * b0; s9_1 += v * b1; }
                        { const vf v = tx_splat(xc[10 * CELL]); s10_0 += v * b0; s10_1 += v * b1; }
                        { const vf v = tx_splat(xc[11 * CELL]); s11_0 += v * b0; s11_1 += v * b1; }
                        { const vf v = tx_splat(xc[12 * CELL]); s12_0 += v * b0; s12_1 += v * b1; }
                        { const vf v = tx_splat(xc[13 * CELL]); s13_0 += v * b0; s13_1 += v * b1; }
                    }
                    {
                        const vf b0 = tx_load_f32(wc + 32);
                        const vf b1 = tx_load_f32(wc + 32 + 16);
                        __builtin_prefetch(wc + 32 + 512, 0, 3);
                        __builtin_prefetch(wc + 32 + 16 + 512, 0, 3);
                        { const vf v = tx_splat(xc[1]); s0_0 += v * b0; s0_1 += v * b1; }
                        { const vf v = tx_splat(xc[CELL + 1]); s1_0 += v * b0; s1_1 += v * b1; }
                        { const vf v = tx_splat(xc[2 * CELL + 1]); s2_0 += v * b0; s2_1 += v * b1; }
                        { const vf v = tx_splat(xc[3 * CELL + 1]); s3_0 += v * b0; s3_1 += v * b1; }
                        { const vf v = tx_splat(xc[4 * CELL + 1]); s4_0 += v * b0; s4_1 += v * b1; }
                        { const vf v = tx_splat(xc[5 * CELL + 1]); s5_0 += v * b0; s5_1 += v * b1; }
                        { const vf v = tx_splat(xc[6 * CELL + 1]); s6_0 += v * b0; s6_1 += v * b1; }
                        { const vf v = tx_splat(xc[7 * CELL + 1]); s7_0 += v * b0; s7_1 += v * b1; }
                        { const vf v = tx_splat(xc[8 * CELL + 1]); s8_0 += v * b0; s8_1 += v * b1; }
                        { const vf v = tx_splat(xc[9 * CELL + 1]); s9_0 += v * b0; s9_1 += v * b1; }
                        { const vf v = tx_splat(xc[10 * CELL + 1]); s10_0 += v * b0; s10_1 += v * b1; }
                        { const vf v = tx_splat(xc[11 * CELL + 1]); s11_0 += v * b0; s11_1 += v * b1; }
                        { const vf v = tx_splat(xc[12 * CELL + 1]); s12_0 += v * b0; s12_1 += v * b1; }
                        { const vf v = tx_splat(xc[13 * CELL + 1]); s13_0 += v * b0; s13_1 += v * b1; }
                    }
                    xc += 2;
                    wc += 2 * WIDTH;
                }
            }
            {
                const float* xc = xr + CELL;
                const float* wc = wr + W_TAP;
                for (int64_t k = 0; k < CELL; k += 2) {
                    {
                        const vf b0 = tx_load_f32(wc);
                        const vf b1 = tx_load_f32(wc + 16);
                        __builtin_prefetch(wc + 512, 0, 3);
                        __builtin_prefetch(wc + 16 + 512, 0, 3);
                        { const vf v = tx_splat(xc[0]); s0_0 += v * b0; s0_1 += v * b1; }
                        { const vf v = tx_splat(xc[CELL]); s1_0 += v * b0; s1_1 += v * b1; }
                        { const vf v = tx_splat(xc[2 * CELL]); s2_0 += v * b0; s2_1 += v * b1; }
                        { const vf v = tx_splat(xc[3 * CELL]); s3_0 += v * b0; s3_1 += v * b1; }
                        { const vf v = tx_splat(xc[4 * CELL]); s4_0 += v * b0; s4_1 += v * b1; }
                        { const vf v = tx_splat(xc[5 * CELL]); s5_0 += v * b0; s5_1 += v * b1; }
                        { const vf v = tx_splat(xc[6 * CELL]); s6_0 += v * b0; s6_1 += v * b1; }
                        { const vf v = tx_splat(xc[7 * CELL]); s7_0 += v * b0; s7_1 += v * b1; }
                        { const vf v = tx_splat(xc[8 * CELL]); s8_0 += v * b0; s8_1 += v * b1; }
                        { const vf v = tx_splat(xc[9 * CELL]); s9_0 += v * b0; s9_1 += v * b1; }
                        { const vf v = tx_splat(xc[10 * CELL]); s10_0 += v * b0; s10_1 += v * b1; }
                        { const vf v = tx_splat(xc[11 * CELL]); s11_0 += v * b0; s11_1 += v * b1; }
                        { const vf v = tx_splat(xc[12 * CELL]); s12_0 += v * b0; s12_1 += v * b1; }
                        { const vf v = tx_splat(xc[13 * CELL]); s13_0 += v * b0; s13_1 += v * b1; }
                    }
                    {
                        const vf b0 = tx_load_f32(wc + 32);
                        const vf b1 = tx_load_f32(wc + 32 + 16);
                        __builtin_prefetch(wc + 32 + 512, 0, 3);
                        __builtin_prefetch(wc + 32 + 16 + 512, 0, 3);
                        { const vf v = tx_splat(xc[1]); s0_0 += v * b0; s0_1 += v * b1; }
                        { const vf v = tx_splat(xc[CELL + 1]); s1_0 += v * b0; s1_1 += v * b1; }
                        { const vf v = tx_splat(xc[2 * CELL + 1]); s2_0 += v * b0; s2_1 += v * b1; }
                        { const vf v = tx_splat(xc[3 * CELL + 1]); s3_0 += v * b0; s3_1 += v * b1; }
                        { const vf v = tx_splat(xc[4 * CELL + 1]); s4_0 += v * b0; s4_1 += v * b1; }
                        { const vf v = tx_splat(xc[5 * CELL + 1]); s5_0 += v * b0; s5_1 += v * b1; }
                        { const vf v = tx_splat(xc[6 * CELL + 1]); s6_0 += v * b0; s6_1 += v * b1; }
                        { const vf v = tx_splat(xc[7 * CELL + 1]); s7_0 += v * b0; s7_1 += v * b1; }
                        { const vf v = tx_splat(xc[8 * CELL + 1]); s8_0 += v * b0; s8_1 += v * b1; }
                        { const vf v = tx_splat(xc[9 * CELL + 1]); s9_0 += v * b0; s9_1 += v * b1; }
                        { const vf v = tx_splat(xc[10 * CELL + 1]); s10_0 += v * b0; s10_1 += v * b1; }
                        { const vf v = tx_splat(xc[11 * CELL + 1]); s11_0 += v * b0; s11_1 += v * b1; }
                        { const vf v = tx_splat(xc[12 * CELL + 1]); s12_0 += v * b0; s12_1 += v * b1; }
                        { const vf v = tx_splat(xc[13 * CELL + 1]); s13_0 += v * b0; s13_1 += v * b1; }
                    }
                    xc += 2;
                    wc += 2 * WIDTH;
                }
            }
            {
                const float* xc = xr + 2 * CELL;
                const float* wc = wr + 2 * W_TAP;
                for (int64_t k = 0; k < CELL; k += 2) {
                    {
                        const vf b0 = tx_load_f32(wc);
                        const vf b1 = tx_load_f32(wc + 16);
                        __builtin_prefetch(wc + 512, 0, 3);
                        __builtin_prefetch(wc + 16 + 512, 0, 3);
                        { const vf v = tx_splat(xc[0]); s0_0 += v * b0; s0_1 += v * b1; }
                        { const vf v = tx_splat(xc[CELL]); s1_0 += v * b0; s1_1 += v * b1; }
                        { const vf v = tx_splat(xc[2 * CELL]); s2_0 += v * b0; s2_1 += v * b1; }
                        { const vf v = tx_splat(xc[3 * CELL]); s3_0 += v * b0; s3_1 += v * b1; }
                        { const vf v = tx_splat(xc[4 * CELL]); s4_0 += v * b0; s4_1 += v * b1; }
                        { const vf v = tx_splat(xc[5 * CELL]); s5_0 += v * b0; s5_1 += v * b1; }
                        { const vf v = tx_splat(xc[6 * CELL]); s6_0 += v * b0; s6_1 += v * b1; }
                        { const vf v = tx_splat(xc[7 * CELL]); s7_0 += v * b0; s7_1 += v * b1; }
                        { const vf v = tx_splat(xc[8 * CELL]); s8_0 += v * b0; s8_1 += v * b1; }
                        { const vf v = tx_splat(xc[9 * CELL]); s9_0 += v * b0; s9_1 += v * b1; }
                        { const vf v = tx_splat(xc[10 * CELL]); s10_0 += v * b0; s10_1 += v * b1; }
                        { const vf v = tx_splat(xc[11 * CELL]); s11_0 += v * b0; s11_1 += v * b1; }
                        { const vf v = tx_splat(xc[12 * CELL]); s12_0 += v * b0; s12_1 += v * b1; }
                    }
                    {
                        const vf b0 = tx_load_f32(wc + 32);
                        const vf b1 = tx_load_f32(wc + 32 + 16);
                        __builtin_prefetch(wc + 32 + 512, 0, 3);
                        __builtin_prefetch(wc + 32 + 16 + 512, 0, 3);
                        { const vf v = tx_splat(xc[1]); s0_0 += v * b0; s0_1 += v * b1; }
                        { const vf v = tx_splat(xc[CELL + 1]); s1_0 += v * b0; s1_1 += v * b1; }
                        { const vf v = tx_splat(xc[2 * CELL + 1]); s2_0 += v * b0; s2_1 += v * b1; }
                        { const vf v = tx_splat(xc[3 * CELL + 1]); s3_0 += v * b0; s3_1 += v * b1; }
                        { const vf v = tx_splat(xc[4 * CELL + 1]); s4_0 += v * b0; s4_1 += v * b1; }
                        { const vf v = tx_splat(xc[5 * CELL + 1]); s5_0 += v * b0; s5_1 += v * b1; }
                        { const vf v = tx_splat(xc[6 * CELL + 1]); s6_0 += v * b0; s6_1 += v * b1; }
                        { const vf v = tx_splat(xc[7 * CELL + 1]); s7_0 += v * b0; s7_1 += v * b1; }
                        { const vf v = tx_splat(xc[8 * CELL + 1]); s8_0 += v * b0; s8_1 += v * b1; }
                        { const vf v = tx_splat(xc[9 * CELL + 1]); s9_0 += v * b0; s9_1 += v * b1; }
                        { const vf v = tx_splat(xc[10 * CELL + 1]); s10_0 += v * b0; s10_1 += v * b1; }
                        { const vf v = tx_splat(xc[11 * CELL + 1]); s11_0 += v * b0; s11_1 += v * b1; }
                        { const vf v = tx_splat(xc[12 * CELL + 1]); s12_0 += v * b0; s12_1 += v * b1; }
                    }
                    xc += 2;
                    wc += 2 * WIDTH;
                }
            }
        }
    }
    /* what follows the sum z, and the store, for every accumulator */
    {
        const vf z = s0_0;
        const vf ex1 = tx_load_f32(c_o2 + block * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block) * Y_PLANE + pixel) * LANES, e1);
    }
    {
        const vf z = s0_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block + 1) * Y_PLANE + pixel) * LANES, e1);
    }
    {
        const vf z = s1_0;
        const vf ex1 = tx_load_f32(c_o2 + block * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block) * Y_PLANE + pixel + 1) * LANES, e1);
    }
    {
        const vf z = s1_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block + 1) * Y_PLANE + pixel + 1) * LANES, e1);
    }
    {
        const vf z = s2_0;
        const vf ex1 = tx_load_f32(c_o2 + block * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block) * Y_PLANE + pixel + 2) * LANES, e1);
    }
    {
        const vf z = s2_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block + 1) * Y_PLANE + pixel + 2) * LANES, e1);
    }
    {
        const vf z = s3_0;
        const vf ex1 = tx_load_f32(c_o2 + block * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block) * Y_PLANE + pixel + 3) * LANES, e1);
    }
    {
        const vf z = s3_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block + 1) * Y_PLANE + pixel + 3) * LANES, e1);
    }
    {
        const vf z = s4_0;
        const vf ex1 = tx_load_f32(c_o2 + block * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block) * Y_PLANE + pixel + 4) * LANES, e1);
    }
    {
        const vf z = s4_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block + 1) * Y_PLANE + pixel + 4) * LANES, e1);
    }
    {
        const vf z = s5_0;
        const vf ex1 = tx_load_f32(c_o2 + block * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block) * Y_PLANE + pixel + 5) * LANES, e1);
    }
    {
        const vf z = s5_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block + 1) * Y_PLANE + pixel + 5) * LANES, e1);
    }
    {
        const vf z = s6_0;
        const vf ex1 = tx_load_f32(c_o2 + block * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block) * Y_PLANE + pixel + 6) * LANES, e1);
    }
    {
        const vf z = s6_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block + 1) * Y_PLANE + pixel + 6) * LANES, e1);
    }
    {
        const vf z = s7_0;
        const vf ex1 = tx_load_f32(c_o2 + block * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block) * Y_PLANE + pixel + 7) * LANES, e1);
    }
    {
        const vf z = s7_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block + 1) * Y_PLANE + pixel + 7) * LANES, e1);
    }
    {
        const vf z = s8_0;
        const vf ex1 = tx_load_f32(c_o2 + block * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block) * Y_PLANE + pixel + 8) * LANES, e1);
    }
    {
        const vf z = s8_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block + 1) * Y_PLANE + pixel + 8) * LANES, e1);
    }
    {
        const vf z = s9_0;
        const vf ex1 = tx_load_f32(c_o2 + block * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block) * Y_PLANE + pixel + 9) * LANES, e1);
    }
    {
        const vf z = s9_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block + 1) * Y_PLANE + pixel + 9) * LANES, e1);
    }
    {
        const vf z = s10_0;
        const vf ex1 = tx_load_f32(c_o2 + block * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block) * Y_PLANE + pixel + 10) * LANES, e1);
    }
    {
        const vf z = s10_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block + 1) * Y_PLANE + pixel + 10) * LANES, e1);
    }
    {
        const vf z = s11_0;
        const vf ex1 = tx_load_f32(c_o2 + block * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block) * Y_PLANE + pixel + 11) * LANES, e1);
    }
    {
        const vf z = s11_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block + 1) * Y_PLANE + pixel + 11) * LANES, e1);
    }
    {
        const vf z = s12_0;
        const vf ex1 = tx_load_f32(c_o2 + block * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block) * Y_PLANE + pixel + 12) * LANES, e1);
    }
    {
        const vf z = s12_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block + 1) * Y_PLANE + pixel + 12) * LANES, e1);
    }
    {
        const vf z = s13_0;
        const vf ex1 = tx_load_f32(c_o2 + block * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block) * Y_PLANE + pixel + 13) * LANES, e1);
    }
    {
        const vf z = s13_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * Y_BLOCKS + block + 1) * Y_PLANE + pixel + 13) * LANES, e1);
    }
}
void TX_ENTRY(const int64_t* a, int tid, int nt) {
    const float* x0 = (const float*)a[0];
    const float* c_w = (const float*)a[1];
    enum { CELL = 16, PANELS = 2, WIDTH = 32, X_LINE = 448, X_IMAGE = 50176, W_PANEL = 18432, SWEEP = 146 };
    /* of the grid of lines and panels this thread has lines [g[0], g[1]) and panels [g[2], g[3]) */
    int64_t g[4];
    TX_NAME(grid)(28, PANELS, tid, nt, g);
    /* blocks of at most SWEEP lines of an image, whose input stays in the second cache */
    for (int64_t u = g[0], next; u < g[1]; u = next) {
        const int64_t image = u / 28, t = u % 28;
        next = u + SWEEP < g[1] ? u + SWEEP : g[1];
        if (next > u - t + 28) next = u - t + 28;
        /* panels of WIDTH channels of y */
        for (int64_t p = g[2]; p < g[3]; p++) {
            const int64_t block = p * 2;
            const float* xp = x0 + image * X_IMAGE;
            const float* wp = c_w + p * W_PANEL;
            /* lines of y */
            for (int64_t y = t; y < t + next - u; y++) {
                /* row taps [top, bottom) of the window are inside, the first is line `first` of x */
                const int64_t first = y - 1, below = 28 - first;
                const int64_t top = first < 0 ? -first : 0;
                const int64_t reach = below > 0 ? below : 0, bottom = reach < 3 ? reach : 3;
                const float* xl = xp + first * X_LINE;
                TX_NAME(t14at0)(a, xl - CELL, wp, image, block, y * 28, top, bottom);
                TX_NAME(t14at14)(a, xl + 13 * CELL, wp, image, block, y * 28 + 14, top, bottom);
            }
        }
    }
}
