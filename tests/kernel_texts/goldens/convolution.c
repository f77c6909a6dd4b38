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
TX_RARE void TX_NAME(t14at0)(const int64_t* a, const float* x, const float* w, int64_t image, int64_t block, int64_t pixel, int64_t top, int64_t bottom) {
    const float* x0 = (const float*)a[0];
    const float* c_w = (const float*)a[1];
    const float* c_o2 = (const float*)a[2];
    float* y0 = (float*)a[3];
    vf s0_0 = tx_zero(), s0_1 = tx_zero(), s1_0 = tx_zero(), s1_1 = tx_zero(), s2_0 = tx_zero(), s2_1 = tx_zero(), s3_0 = tx_zero(), s3_1 = tx_zero(), s4_0 = tx_zero(), s4_1 = tx_zero(), s5_0 = tx_zero(), s5_1 = tx_zero(), s6_0 = tx_zero(), s6_1 = tx_zero(), s7_0 = tx_zero(), s7_1 = tx_zero(), s8_0 = tx_zero(), s8_1 = tx_zero(), s9_0 = tx_zero(), s9_1 = tx_zero(), s10_0 = tx_zero(), s10_1 = tx_zero(), s11_0 = tx_zero(), s11_1 = tx_zero(), s12_0 = tx_zero(), s12_1 = tx_zero(), s13_0 = tx_zero(), s13_1 = tx_zero();
    for (int64_t c = 0; c < 4; c++) {
        for (int64_t i = top; i < bottom; i++) {
            const float* xr = x + c * 12544 + i * 448;
            const float* wr = w + c * 4608 + i * 1536;
             {
                const float* xc = xr + 0;
                const float* wc = wr + 0;
                for (int64_t k = 0; k < 16; k += 2) {
                     {
                        const vf b0 = tx_load_f32(wc + 0 + 0);
                        const vf b1 = tx_load_f32(wc + 0 + 16);
                        __builtin_prefetch(wc + 0 + 0 + 512, 0, 3);
                        __builtin_prefetch(wc + 0 + 16 + 512, 0, 3);
                        { const vf v = tx_splat(xc[16]); s1_0 += v * b0; s1_1 += v * b1; }
                        { const vf v = tx_splat(xc[32]); s2_0 += v * b0; s2_1 += v * b1; }
                        { const vf v = tx_splat(xc[48]); s3_0 += v * b0; s3_1 += v * b1; }
                        { const vf v = tx_splat(xc[64]); s4_0 += v * b0; s4_1 += v * b1; }
                        { const vf v = tx_splat(xc[80]); s5_0 += v * b0; s5_1 += v * b1; }
                        { const vf v = tx_splat(xc[96]); s6_0 += v * b0; s6_1 += v * b1; }
                        { const vf v = tx_splat(xc[112]); s7_0 += v * b0; s7_1 += v * b1; }
                        { const vf v = tx_splat(xc[128]); s8_0 += v * b0; s8_1 += v * b1; }
                        { const vf v = tx_splat(xc[144]); s9_0 += v * b0; s9_1 += v * b1; }
                        { const vf v = tx_splat(xc[160]); s10_0 += v * b0; s10_1 += v * b1; }
                        { const vf v = tx_splat(xc[176]); s11_0 += v * b0; s11_1 += v * b1; }
                        { const vf v = tx_splat(xc[192]); s12_0 += v * b0; s12_1 += v * b1; }
                        { const vf v = tx_splat(xc[208]); s13_0 += v * b0; s13_1 += v * b1; }
                    }
                     {
                        const vf b0 = tx_load_f32(wc + 32 + 0);
                        const vf b1 = tx_load_f32(wc + 32 + 16);
                        __builtin_prefetch(wc + 32 + 0 + 512, 0, 3);
                        __builtin_prefetch(wc + 32 + 16 + 512, 0, 3);
                        { const vf v = tx_splat(xc[17]); s1_0 += v * b0; s1_1 += v * b1; }
                        { const vf v = tx_splat(xc[33]); s2_0 += v * b0; s2_1 += v * b1; }
                        { const vf v = tx_splat(xc[49]); s3_0 += v * b0; s3_1 += v * b1; }
                        { const vf v = tx_splat(xc[65]); s4_0 += v * b0; s4_1 += v * b1; }
                        { const vf v = tx_splat(xc[81]); s5_0 += v * b0; s5_1 += v * b1; }
                        { const vf v = tx_splat(xc[97]); s6_0 += v * b0; s6_1 += v * b1; }
                        { const vf v = tx_splat(xc[113]); s7_0 += v * b0; s7_1 += v * b1; }
                        { const vf v = tx_splat(xc[129]); s8_0 += v * b0; s8_1 += v * b1; }
                        { const vf v = tx_splat(xc[145]); s9_0 += v * b0; s9_1 += v * b1; }
                        { const vf v = tx_splat(xc[161]); s10_0 += v * b0; s10_1 += v * b1; }
                        { const vf v = tx_splat(xc[177]); s11_0 += v * b0; s11_1 += v * b1; }
                        { const vf v = tx_splat(xc[193]); s12_0 += v * b0; s12_1 += v * b1; }
                        { const vf v = tx_splat(xc[209]); s13_0 += v * b0; s13_1 += v * b1; }
                    }
                    xc += 2; wc += 64;
                }
            }
             {
                const float* xc = xr + 16;
                const float* wc = wr + 512;
                for (int64_t k = 0; k < 16; k += 2) {
                     {
                        const vf b0 = tx_load_f32(wc + 0 + 0);
                        const vf b1 = tx_load_f32(wc + 0 + 16);
                        __builtin_prefetch(wc + 0 + 0 + 512, 0, 3);
                        __builtin_prefetch(wc + 0 + 16 + 512, 0, 3);
                        { const vf v = tx_splat(xc[0]); s0_0 += v * b0; s0_1 += v * b1; }
                        { const vf v = tx_splat(xc[16]); s1_0 += v * b0; s1_1 += v * b1; }
                        { const vf v = tx_splat(xc[32]); s2_0 += v * b0; s2_1 += v * b1; }
                        { const vf v = tx_splat(xc[48]); s3_0 += v * b0; s3_1 += v * b1; }
                        { const vf v = tx_splat(xc[64]); s4_0 += v * b0; s4_1 += v * b1; }
                        { const vf v = tx_splat(xc[80]); s5_0 += v * b0; s5_1 += v * b1; }
                        { const vf v = tx_splat(xc[96]); s6_0 += v * b0; s6_1 += v * b1; }
                        { const vf v = tx_splat(xc[112]); s7_0 += v * b0; s7_1 += v * b1; }
                        { const vf v = tx_splat(xc[128]); s8_0 += v * b0; s8_1 += v * b1; }
                        { const vf v = tx_splat(xc[144]); s9_0 += v * b0; s9_1 += v * b1; }
                        { const vf v = tx_splat(xc[160]); s10_0 += v * b0; s10_1 += v * b1; }
                        { const vf v = tx_splat(xc[176]); s11_0 += v * b0; s11_1 += v * b1; }
                        { const vf v = tx_splat(xc[192]); s12_0 += v * b0; s12_1 += v * b1; }
                        { const vf v = tx_splat(xc[208]); s13_0 += v * b0; s13_1 += v * b1; }
                    }
                     {
                        const vf b0 = tx_load_f32(wc + 32 + 0);
                        const vf b1 = tx_load_f32(wc + 32 + 16);
                        __builtin_prefetch(wc + 32 + 0 + 512, 0, 3);
                        __builtin_prefetch(wc + 32 + 16 + 512, 0, 3);
                        { const vf v = tx_splat(xc[1]); s0_0 += v * b0; s0_1 += v * b1; }
                        { const vf v = tx_splat(xc[17]); s1_0 += v * b0; s1_1 += v * b1; }
                        { const vf v = tx_splat(xc[33]); s2_0 += v * b0; s2_1 += v * b1; }
                        { const vf v = tx_splat(xc[49]); s3_0 += v * b0; s3_1 += v * b1; }
                        { const vf v = tx_splat(xc[65]); s4_0 += v * b0; s4_1 += v * b1; }
                        { const vf v = tx_splat(xc[81]); s5_0 += v * b0; s5_1 += v * b1; }
                        { const vf v = tx_splat(xc[97]); s6_0 += v * b0; s6_1 += v * b1; }
                        { const vf v = tx_splat(xc[113]); s7_0 += v * b0; s7_1 += v * b1; }
                        { const vf v = tx_splat(xc[129]); s8_0 += v * b0; s8_1 += v * b1; }
                        { const vf v = tx_splat(xc[145]); s9_0 += v * b0; s9_1 += v * b1; }
                        { const vf v = tx_splat(xc[161]); s10_0 += v * b0; s10_1 += v * b1; }
                        { const vf v = tx_splat(xc[177]); s11_0 += v * b0; s11_1 += v * b1; }
                        { const vf v = tx_splat(xc[193]); s12_0 += v * b0; s12_1 += v * b1; }
                        { const vf v = tx_splat(xc[209]); s13_0 += v * b0; s13_1 += v * b1; }
                    }
                    xc += 2; wc += 64;
                }
            }
             {
                const float* xc = xr + 32;
                const float* wc = wr + 1024;
                for (int64_t k = 0; k < 16; k += 2) {
                     {
                        const vf b0 = tx_load_f32(wc + 0 + 0);
                        const vf b1 = tx_load_f32(wc + 0 + 16);
                        __builtin_prefetch(wc + 0 + 0 + 512, 0, 3);
                        __builtin_prefetch(wc + 0 + 16 + 512, 0, 3);
                        { const vf v = tx_splat(xc[0]); s0_0 += v * b0; s0_1 += v * b1; }
                        { const vf v = tx_splat(xc[16]); s1_0 += v * b0; s1_1 += v * b1; }
                        { const vf v = tx_splat(xc[32]); s2_0 += v * b0; s2_1 += v * b1; }
                        { const vf v = tx_splat(xc[48]); s3_0 += v * b0; s3_1 += v * b1; }
                        { const vf v = tx_splat(xc[64]); s4_0 += v * b0; s4_1 += v * b1; }
                        { const vf v = tx_splat(xc[80]); s5_0 += v * b0; s5_1 += v * b1; }
                        { const vf v = tx_splat(xc[96]); s6_0 += v * b0; s6_1 += v * b1; }
                        { const vf v = tx_splat(xc[112]); s7_0 += v * b0; s7_1 += v * b1; }
                        { const vf v = tx_splat(xc[128]); s8_0 += v * b0; s8_1 += v * b1; }
                        { const vf v = tx_splat(xc[144]); s9_0 += v * b0; s9_1 += v * b1; }
                        { const vf v = tx_splat(xc[160]); s10_0 += v * b0; s10_1 += v * b1; }
                        { const vf v = tx_splat(xc[176]); s11_0 += v * b0; s11_1 += v * b1; }
                        { const vf v = tx_splat(xc[192]); s12_0 += v * b0; s12_1 += v * b1; }
                        { const vf v = tx_splat(xc[208]); s13_0 += v * b0; s13_1 += v * b1; }
                    }
                     {
                        const vf b0 = tx_load_f32(wc + 32 + 0);
                        const vf b1 = tx_load_f32(wc + 32 + 16);
                        __builtin_prefetch(wc + 32 + 0 + 512, 0, 3);
                        __builtin_prefetch(wc + 32 + 16 + 512, 0, 3);
                        { const vf v = tx_splat(xc[1]); s0_0 += v * b0; s0_1 += v * b1; }
                        { const vf v = tx_splat(xc[17]); s1_0 += v * b0; s1_1 += v * b1; }
                        { const vf v = tx_splat(xc[33]); s2_0 += v * b0; s2_1 += v * b1; }
                        { const vf v = tx_splat(xc[49]); s3_0 += v * b0; s3_1 += v * b1; }
                        { const vf v = tx_splat(xc[65]); s4_0 += v * b0; s4_1 += v * b1; }
                        { const vf v = tx_splat(xc[81]); s5_0 += v * b0; s5_1 += v * b1; }
                        { const vf v = tx_splat(xc[97]); s6_0 += v * b0; s6_1 += v * b1; }
                        { const vf v = tx_splat(xc[113]); s7_0 += v * b0; s7_1 += v * b1; }
                        { const vf v = tx_splat(xc[129]); s8_0 += v * b0; s8_1 += v * b1; }
                        { const vf v = tx_splat(xc[145]); s9_0 += v * b0; s9_1 += v * b1; }
                        { const vf v = tx_splat(xc[161]); s10_0 += v * b0; s10_1 += v * b1; }
                        { const vf v = tx_splat(xc[177]); s11_0 += v * b0; s11_1 += v * b1; }
                        { const vf v = tx_splat(xc[193]); s12_0 += v * b0; s12_1 += v * b1; }
                        { const vf v = tx_splat(xc[209]); s13_0 += v * b0; s13_1 += v * b1; }
                    }
                    xc += 2; wc += 64;
                }
            }
        }
    }
     {
        const vf z = s0_0;
        const vf ex1 = tx_load_f32(c_o2 + (block + 0) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 0) * 784 + pixel + 0) * 16, e1);
    }
     {
        const vf z = s0_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 1) * 784 + pixel + 0) * 16, e1);
    }
     {
        const vf z = s1_0;
        const vf ex1 = tx_load_f32(c_o2 + (block + 0) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 0) * 784 + pixel + 1) * 16, e1);
    }
     {
        const vf z = s1_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 1) * 784 + pixel + 1) * 16, e1);
    }
     {
        const vf z = s2_0;
        const vf ex1 = tx_load_f32(c_o2 + (block + 0) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 0) * 784 + pixel + 2) * 16, e1);
    }
     {
        const vf z = s2_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 1) * 784 + pixel + 2) * 16, e1);
    }
     {
        const vf z = s3_0;
        const vf ex1 = tx_load_f32(c_o2 + (block + 0) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 0) * 784 + pixel + 3) * 16, e1);
    }
     {
        const vf z = s3_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 1) * 784 + pixel + 3) * 16, e1);
    }
     {
        const vf z = s4_0;
        const vf ex1 = tx_load_f32(c_o2 + (block + 0) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 0) * 784 + pixel + 4) * 16, e1);
    }
     {
        const vf z = s4_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 1) * 784 + pixel + 4) * 16, e1);
    }
     {
        const vf z = s5_0;
        const vf ex1 = tx_load_f32(c_o2 + (block + 0) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 0) * 784 + pixel + 5) * 16, e1);
    }
     {
        const vf z = s5_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 1) * 784 + pixel + 5) * 16, e1);
    }
     {
        const vf z = s6_0;
        const vf ex1 = tx_load_f32(c_o2 + (block + 0) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 0) * 784 + pixel + 6) * 16, e1);
    }
     {
        const vf z = s6_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 1) * 784 + pixel + 6) * 16, e1);
    }
     {
        const vf z = s7_0;
        const vf ex1 = tx_load_f32(c_o2 + (block + 0) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 0) * 784 + pixel + 7) * 16, e1);
    }
     {
        const vf z = s7_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 1) * 784 + pixel + 7) * 16, e1);
    }
     {
        const vf z = s8_0;
        const vf ex1 = tx_load_f32(c_o2 + (block + 0) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 0) * 784 + pixel + 8) * 16, e1);
    }
     {
        const vf z = s8_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 1) * 784 + pixel + 8) * 16, e1);
    }
     {
        const vf z = s9_0;
        const vf ex1 = tx_load_f32(c_o2 + (block + 0) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 0) * 784 + pixel + 9) * 16, e1);
    }
     {
        const vf z = s9_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 1) * 784 + pixel + 9) * 16, e1);
    }
     {
        const vf z = s10_0;
        const vf ex1 = tx_load_f32(c_o2 + (block + 0) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 0) * 784 + pixel + 10) * 16, e1);
    }
     {
        const vf z = s10_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 1) * 784 + pixel + 10) * 16, e1);
    }
     {
        const vf z = s11_0;
        const vf ex1 = tx_load_f32(c_o2 + (block + 0) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 0) * 784 + pixel + 11) * 16, e1);
    }
     {
        const vf z = s11_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 1) * 784 + pixel + 11) * 16, e1);
    }
     {
        const vf z = s12_0;
        const vf ex1 = tx_load_f32(c_o2 + (block + 0) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 0) * 784 + pixel + 12) * 16, e1);
    }
     {
        const vf z = s12_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 1) * 784 + pixel + 12) * 16, e1);
    }
     {
        const vf z = s13_0;
        const vf ex1 = tx_load_f32(c_o2 + (block + 0) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 0) * 784 + pixel + 13) * 16, e1);
    }
     {
        const vf z = s13_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 1) * 784 + pixel + 13) * 16, e1);
    }
}
TX_RARE void TX_NAME(t14at14)(const int64_t* a, const float* x, const float* w, int64_t image, int64_t block, int64_t pixel, int64_t top, int64_t bottom) {
    const float* x0 = (const float*)a[0];
    const float* c_w = (const float*)a[1];
    const float* c_o2 = (const float*)a[2];
    float* y0 = (float*)a[3];
    vf s0_0 = tx_zero(), s0_1 = tx_zero(), s1_0 = tx_zero(), s1_1 = tx_zero(), s2_0 = tx_zero(), s2_1 = tx_zero(), s3_0 = tx_zero(), s3_1 = tx_zero(), s4_0 = tx_zero(), s4_1 = tx_zero(), s5_0 = tx_zero(), s5_1 = tx_zero(), s6_0 = tx_zero(), s6_1 = tx_zero(), s7_0 = tx_zero(), s7_1 = tx_zero(), s8_0 = tx_zero(), s8_1 = tx_zero(), s9_0 = tx_zero(), s9_1 = tx_zero(), s10_0 = tx_zero(), s10_1 = tx_zero(), s11_0 = tx_zero(), s11_1 = tx_zero(), s12_0 = tx_zero(), s12_1 = tx_zero(), s13_0 = tx_zero(), s13_1 = tx_zero();
    for (int64_t c = 0; c < 4; c++) {
        for (int64_t i = top; i < bottom; i++) {
            const float* xr = x + c * 12544 + i * 448;
            const float* wr = w + c * 4608 + i * 1536;
             {
                const float* xc = xr + 0;
                const float* wc = wr + 0;
                for (int64_t k = 0; k < 16; k += 2) {
                     {
                        const vf b0 = tx_load_f32(wc + 0 + 0);
                        const vf b1 = tx_load_f32(wc + 0 + 16);
                        __builtin_prefetch(wc + 0 + 0 + 512, 0, 3);
                        __builtin_prefetch(wc + 0 + 16 + 512, 0, 3);
                        { const vf v = tx_splat(xc[0]); s0_0 += v * b0; s0_1 += v * b1; }
                        { const vf v = tx_splat(xc[16]); s1_0 += v * b0; s1_1 += v * b1; }
                        { const vf v = tx_splat(xc[32]); s2_0 += v * b0; s2_1 += v * b1; }
                        { const vf v = tx_splat(xc[48]); s3_0 += v * b0; s3_1 += v * b1; }
                        { const vf v = tx_splat(xc[64]); s4_0 += v * b0; s4_1 += v * b1; }
                        { const vf v = tx_splat(xc[80]); s5_0 += v * b0; s5_1 += v * b1; }
                        { const vf v = tx_splat(xc[96]); s6_0 += v * b0; s6_1 += v * b1; }
                        { const vf v = tx_splat(xc[112]); s7_0 += v * b0; s7_1 += v * b1; }
                        { const vf v = tx_splat(xc[128]); s8_0 += v * b0; s8_1 += v * b1; }
                        { const vf v = tx_splat(xc[144]); s9_0 += v * b0; s9_1 += v * b1; }
                        { const vf v = tx_splat(xc[160]); s10_0 += v * b0; s10_1 += v * b1; }
                        { const vf v = tx_splat(xc[176]); s11_0 += v * b0; s11_1 += v * b1; }
                        { const vf v = tx_splat(xc[192]); s12_0 += v * b0; s12_1 += v * b1; }
                        { const vf v = tx_splat(xc[208]); s13_0 += v * b0; s13_1 += v * b1; }
                    }
                     {
                        const vf b0 = tx_load_f32(wc + 32 + 0);
                        const vf b1 = tx_load_f32(wc + 32 + 16);
                        __builtin_prefetch(wc + 32 + 0 + 512, 0, 3);
                        __builtin_prefetch(wc + 32 + 16 + 512, 0, 3);
                        { const vf v = tx_splat(xc[1]); s0_0 += v * b0; s0_1 += v * b1; }
                        { const vf v = tx_splat(xc[17]); s1_0 += v * b0; s1_1 += v * b1; }
                        { const vf v = tx_splat(xc[33]); s2_0 += v * b0; s2_1 += v * b1; }
                        { const vf v = tx_splat(xc[49]); s3_0 += v * b0; s3_1 += v * b1; }
                        { const vf v = tx_splat(xc[65]); s4_0 += v * b0; s4_1 += v * b1; }
                        { const vf v = tx_splat(xc[81]); s5_0 += v * b0; s5_1 += v * b1; }
                        { const vf v = tx_splat(xc[97]); s6_0 += v * b0; s6_1 += v * b1; }
                        { const vf v = tx_splat(xc[113]); s7_0 += v * b0; s7_1 += v * b1; }
                        { const vf v = tx_splat(xc[129]); s8_0 += v * b0; s8_1 += v * b1; }
                        { const vf v = tx_splat(xc[145]); s9_0 += v * b0; s9_1 += v * b1; }
                        { const vf v = tx_splat(xc[161]); s10_0 += v * b0; s10_1 += v * b1; }
                        { const vf v = tx_splat(xc[177]); s11_0 += v * b0; s11_1 += v * b1; }
                        { const vf v = tx_splat(xc[193]); s12_0 += v * b0; s12_1 += v * b1; }
                        { const vf v = tx_splat(xc[209]); s13_0 += v * b0; s13_1 += v * b1; }
                    }
                    xc += 2; wc += 64;
                }
            }
             {
                const float* xc = xr + 16;
                const float* wc = wr + 512;
                for (int64_t k = 0; k < 16; k += 2) {
                     {
                        const vf b0 = tx_load_f32(wc + 0 + 0);
                        const vf b1 = tx_load_f32(wc + 0 + 16);
                        __builtin_prefetch(wc + 0 + 0 + 512, 0, 3);
                        __builtin_prefetch(wc + 0 + 16 + 512, 0, 3);
                        { const vf v = tx_splat(xc[0]); s0_0 += v * b0; s0_1 += v * b1; }
                        { const vf v = tx_splat(xc[16]); s1_0 += v * b0; s1_1 += v * b1; }
                        { const vf v = tx_splat(xc[32]); s2_0 += v * b0; s2_1 += v * b1; }
                        { const vf v = tx_splat(xc[48]); s3_0 += v * b0; s3_1 += v * b1; }
                        { const vf v = tx_splat(xc[64]); s4_0 += v * b0; s4_1 += v * b1; }
                        { const vf v = tx_splat(xc[80]); s5_0 += v * b0; s5_1 += v * b1; }
                        { const vf v = tx_splat(xc[96]); s6_0 += v * b0; s6_1 += v * b1; }
                        { const vf v = tx_splat(xc[112]); s7_0 += v * b0; s7_1 += v * b1; }
                        { const vf v = tx_splat(xc[128]); s8_0 += v * b0; s8_1 += v * b1; }
                        { const vf v = tx_splat(xc[144]); s9_0 += v * b0; s9_1 += v * b1; }
                        { const vf v = tx_splat(xc[160]); s10_0 += v * b0; s10_1 += v * b1; }
                        { const vf v = tx_splat(xc[176]); s11_0 += v * b0; s11_1 += v * b1; }
                        { const vf v = tx_splat(xc[192]); s12_0 += v * b0; s12_1 += v * b1; }
                        { const vf v = tx_splat(xc[208]); s13_0 += v * b0; s13_1 += v * b1; }
                    }
                     {
                        const vf b0 = tx_load_f32(wc + 32 + 0);
                        const vf b1 = tx_load_f32(wc + 32 + 16);
                        __builtin_prefetch(wc + 32 + 0 + 512, 0, 3);
                        __builtin_prefetch(wc + 32 + 16 + 512, 0, 3);
                        { const vf v = tx_splat(xc[1]); s0_0 += v * b0; s0_1 += v * b1; }
                        { const vf v = tx_splat(xc[17]); s1_0 += v * b0; s1_1 += v * b1; }
                        { const vf v = tx_splat(xc[33]); s2_0 += v * b0; s2_1 += v * b1; }
                        { const vf v = tx_splat(xc[49]); s3_0 += v * b0; s3_1 += v * b1; }
                        { const vf v = tx_splat(xc[65]); s4_0 += v * b0; s4_1 += v * b1; }
                        { const vf v = tx_splat(xc[81]); s5_0 += v * b0; s5_1 += v * b1; }
                        { const vf v = tx_splat(xc[97]); s6_0 += v * b0; s6_1 += v * b1; }
                        { const vf v = tx_splat(xc[113]); s7_0 += v * b0; s7_1 += v * b1; }
                        { const vf v = tx_splat(xc[129]); s8_0 += v * b0; s8_1 += v * b1; }
                        { const vf v = tx_splat(xc[145]); s9_0 += v * b0; s9_1 += v * b1; }
                        { const vf v = tx_splat(xc[161]); s10_0 += v * b0; s10_1 += v * b1; }
                        { const vf v = tx_splat(xc[177]); s11_0 += v * b0; s11_1 += v * b1; }
                        { const vf v = tx_splat(xc[193]); s12_0 += v * b0; s12_1 += v * b1; }
                        { const vf v = tx_splat(xc[209]); s13_0 += v * b0; s13_1 += v * b1; }
                    }
                    xc += 2; wc += 64;
                }
            }
             {
                const float* xc = xr + 32;
                const float* wc = wr + 1024;
                for (int64_t k = 0; k < 16; k += 2) {
                     {
                        const vf b0 = tx_load_f32(wc + 0 + 0);
                        const vf b1 = tx_load_f32(wc + 0 + 16);
                        __builtin_prefetch(wc + 0 + 0 + 512, 0, 3);
                        __builtin_prefetch(wc + 0 + 16 + 512, 0, 3);
                        { const vf v = tx_splat(xc[0]); s0_0 += v * b0; s0_1 += v * b1; }
                        { const vf v = tx_splat(xc[16]); s1_0 += v * b0; s1_1 += v * b1; }
                        { const vf v = tx_splat(xc[32]); s2_0 += v * b0; s2_1 += v * b1; }
                        { const vf v = tx_splat(xc[48]); s3_0 += v * b0; s3_1 += v * b1; }
                        { const vf v = tx_splat(xc[64]); s4_0 += v * b0; s4_1 += v * b1; }
                        { const vf v = tx_splat(xc[80]); s5_0 += v * b0; s5_1 += v * b1; }
                        { const vf v = tx_splat(xc[96]); s6_0 += v * b0; s6_1 += v * b1; }
                        { const vf v = tx_splat(xc[112]); s7_0 += v * b0; s7_1 += v * b1; }
                        { const vf v = tx_splat(xc[128]); s8_0 += v * b0; s8_1 += v * b1; }
                        { const vf v = tx_splat(xc[144]); s9_0 += v * b0; s9_1 += v * b1; }
                        { const vf v = tx_splat(xc[160]); s10_0 += v * b0; s10_1 += v * b1; }
                        { const vf v = tx_splat(xc[176]); s11_0 += v * b0; s11_1 += v * b1; }
                        { const vf v = tx_splat(xc[192]); s12_0 += v * b0; s12_1 += v * b1; }
                    }
                     {
                        const vf b0 = tx_load_f32(wc + 32 + 0);
                        const vf b1 = tx_load_f32(wc + 32 + 16);
                        __builtin_prefetch(wc + 32 + 0 + 512, 0, 3);
                        __builtin_prefetch(wc + 32 + 16 + 512, 0, 3);
                        { const vf v = tx_splat(xc[1]); s0_0 += v * b0; s0_1 += v * b1; }
                        { const vf v = tx_splat(xc[17]); s1_0 += v * b0; s1_1 += v * b1; }
                        { const vf v = tx_splat(xc[33]); s2_0 += v * b0; s2_1 += v * b1; }
                        { const vf v = tx_splat(xc[49]); s3_0 += v * b0; s3_1 += v * b1; }
                        { const vf v = tx_splat(xc[65]); s4_0 += v * b0; s4_1 += v * b1; }
                        { const vf v = tx_splat(xc[81]); s5_0 += v * b0; s5_1 += v * b1; }
                        { const vf v = tx_splat(xc[97]); s6_0 += v * b0; s6_1 += v * b1; }
                        { const vf v = tx_splat(xc[113]); s7_0 += v * b0; s7_1 += v * b1; }
                        { const vf v = tx_splat(xc[129]); s8_0 += v * b0; s8_1 += v * b1; }
                        { const vf v = tx_splat(xc[145]); s9_0 += v * b0; s9_1 += v * b1; }
                        { const vf v = tx_splat(xc[161]); s10_0 += v * b0; s10_1 += v * b1; }
                        { const vf v = tx_splat(xc[177]); s11_0 += v * b0; s11_1 += v * b1; }
                        { const vf v = tx_splat(xc[193]); s12_0 += v * b0; s12_1 += v * b1; }
                    }
                    xc += 2; wc += 64;
                }
            }
        }
    }
     {
        const vf z = s0_0;
        const vf ex1 = tx_load_f32(c_o2 + (block + 0) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 0) * 784 + pixel + 0) * 16, e1);
    }
     {
        const vf z = s0_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 1) * 784 + pixel + 0) * 16, e1);
    }
     {
        const vf z = s1_0;
        const vf ex1 = tx_load_f32(c_o2 + (block + 0) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 0) * 784 + pixel + 1) * 16, e1);
    }
     {
        const vf z = s1_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 1) * 784 + pixel + 1) * 16, e1);
    }
     {
        const vf z = s2_0;
        const vf ex1 = tx_load_f32(c_o2 + (block + 0) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 0) * 784 + pixel + 2) * 16, e1);
    }
     {
        const vf z = s2_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 1) * 784 + pixel + 2) * 16, e1);
    }
     {
        const vf z = s3_0;
        const vf ex1 = tx_load_f32(c_o2 + (block + 0) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 0) * 784 + pixel + 3) * 16, e1);
    }
     {
        const vf z = s3_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 1) * 784 + pixel + 3) * 16, e1);
    }
     {
        const vf z = s4_0;
        const vf ex1 = tx_load_f32(c_o2 + (block + 0) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 0) * 784 + pixel + 4) * 16, e1);
    }
     {
        const vf z = s4_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 1) * 784 + pixel + 4) * 16, e1);
    }
     {
        const vf z = s5_0;
        const vf ex1 = tx_load_f32(c_o2 + (block + 0) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 0) * 784 + pixel + 5) * 16, e1);
    }
     {
        const vf z = s5_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 1) * 784 + pixel + 5) * 16, e1);
    }
     {
        const vf z = s6_0;
        const vf ex1 = tx_load_f32(c_o2 + (block + 0) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 0) * 784 + pixel + 6) * 16, e1);
    }
     {
        const vf z = s6_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 1) * 784 + pixel + 6) * 16, e1);
    }
     {
        const vf z = s7_0;
        const vf ex1 = tx_load_f32(c_o2 + (block + 0) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 0) * 784 + pixel + 7) * 16, e1);
    }
     {
        const vf z = s7_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 1) * 784 + pixel + 7) * 16, e1);
    }
     {
        const vf z = s8_0;
        const vf ex1 = tx_load_f32(c_o2 + (block + 0) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 0) * 784 + pixel + 8) * 16, e1);
    }
     {
        const vf z = s8_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 1) * 784 + pixel + 8) * 16, e1);
    }
     {
        const vf z = s9_0;
        const vf ex1 = tx_load_f32(c_o2 + (block + 0) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 0) * 784 + pixel + 9) * 16, e1);
    }
     {
        const vf z = s9_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 1) * 784 + pixel + 9) * 16, e1);
    }
     {
        const vf z = s10_0;
        const vf ex1 = tx_load_f32(c_o2 + (block + 0) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 0) * 784 + pixel + 10) * 16, e1);
    }
     {
        const vf z = s10_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 1) * 784 + pixel + 10) * 16, e1);
    }
     {
        const vf z = s11_0;
        const vf ex1 = tx_load_f32(c_o2 + (block + 0) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 0) * 784 + pixel + 11) * 16, e1);
    }
     {
        const vf z = s11_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 1) * 784 + pixel + 11) * 16, e1);
    }
     {
        const vf z = s12_0;
        const vf ex1 = tx_load_f32(c_o2 + (block + 0) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 0) * 784 + pixel + 12) * 16, e1);
    }
     {
        const vf z = s12_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 1) * 784 + pixel + 12) * 16, e1);
    }
     {
        const vf z = s13_0;
        const vf ex1 = tx_load_f32(c_o2 + (block + 0) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 0) * 784 + pixel + 13) * 16, e1);
    }
     {
        const vf z = s13_1;
        const vf ex1 = tx_load_f32(c_o2 + (block + 1) * 16);
        const vf e0 = z + ex1;
        const vf e1 = tx_max_c(e0, tx_splat(0.0f));
        tx_store_f32(y0 + ((image * 4 + block + 1) * 784 + pixel + 13) * 16, e1);
    }
}
void TX_ENTRY(const int64_t* a, int tid, int nt) {
    const float* x0 = (const float*)a[0];
    const float* c_w = (const float*)a[1];
    const float* c_o2 = (const float*)a[2];
    float* y0 = (float*)a[3];
    (void)a; (void)tid; (void)nt;
    int64_t g[4];
    TX_NAME(grid)(1 * 28, 2, tid, nt, g);
    for (int64_t u = g[0], next; u < g[1]; u = next) {
        const int64_t image = u / 28, t = u % 28;
        next = u + 146 < g[1] ? u + 146 : g[1];
        if (next > u - t + 28) next = u - t + 28;
        for (int64_t p = g[2]; p < g[3]; p++) {
            const int64_t block = p * 2;
            const float* xp = x0 + image * 50176;
            const float* wp = c_w + p * 18432;
            for (int64_t y = t; y < t + next - u; y++) {
                const int64_t first = y * 1 - 1, below = 28 - first;
                const int64_t top = first < 0 ? (-first + 0) / 1 : 0;
                const int64_t reach = below > 0 ? (below + 0) / 1 : 0, bottom = reach < 3 ? reach : 3;
                const float* xl = xp + first * 448;
                TX_NAME(t14at0)(a, xl + (0 * 1 - 1) * 16, wp, image, block, y * 28 + 0, top, bottom);
                TX_NAME(t14at14)(a, xl + (14 * 1 - 1) * 16, wp, image, block, y * 28 + 14, top, bottom);
            }
        }
    }
}
