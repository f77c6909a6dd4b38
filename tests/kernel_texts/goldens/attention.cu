struct TX_NAME(heads) {
    static const int ROWS = 64;
    static const int THREADS = 128;
    static const int KEYS = 64;
    static const int DEPTH = 64;
    static const int WIDE = 64;
    static const int DEPTH_CHUNKS = 8;
    static const int WIDE_CHUNKS = 8;
    static const int DEPTH_PIECE = 16;
    static const int WIDE_PIECE = 16;
    static const int DEPTH_BYTES = 128;
    static const int WIDE_BYTES = 128;
    static const int SCORED = 0;
    static const int CAUSAL = 0;
    static const int AHEAD = 0;
};
extern "C" __global__ void __launch_bounds__(128, 1) TX_ENTRY(const uint16_t* __restrict__ x0, const uint16_t* __restrict__ x1, const uint16_t* __restrict__ x2, uint16_t* __restrict__ y0) {
    tx_wait_for_others();
    TX_SHARED(memory);
    const int64_t block = gridDim.x - 1 - blockIdx.x, tiles = 4;
    const int64_t item = block / tiles, tile = block % tiles;
    const int64_t first = tile * 64;
    const int64_t keys = 200;
    tx_attend<tx_f16, TX_NAME(heads)>(x0 + (item) * 12800, x1 + (item) * 12800, x2 + (item) * 12800, 64, 64, 64, first, 200, keys, 200, memory, TX_NAN, 0x1.7154760000000p-3f, [&](float x, int, int64_t) {
        return x;
    },
    [&](int r, int c, const float* v) {
        if (first + r >= 200 || c >= 64) return;
        const int64_t row = item * 200 + first + r;
        const int col = 0 + c;
        if (col < 64) {
            const int at = col, first = 0;
            float r0[8];
            #pragma unroll
            for (int k = 0; k < 8; k++) {
                r0[k] = v[first + k];
            }
            tx_store_f16<8>(y0 + row * 64 + at, r0);
        }
    });
}
