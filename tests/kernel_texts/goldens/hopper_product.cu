struct TX_NAME(flow) {
    static const int ROWS = 128;  // of a tile of y
    static const int COLS = 128;  // columns of a tile
    static const int STAGES = 6;  // of 128 bytes of k, in shared memory
    static const int TEAMS = 2;  // of four warps, which multiply
    static const int BLOCKS = 2;  // of 64 rows, of a team
    static const int ALTERNATE = 1;  // whether each team has a tile of its own
    static const int SPLITS = 1;  // parts of k, one for each block of a cluster
    static const int PAIRED = 0;  // whether two blocks of a cluster fetch columns for each other
    static const int CLUSTER = 1;  // blocks of a cluster
    static const int LAID = 0;  // bytes of what a team needs of its columns, beside sums
    static const int STAGE_BYTES = 32768;  // rows and columns of a stage
    static const int A_BYTES = 16384;  // the rows of a stage, in front of its columns
    static const int PITCH = 132;  // sums from row to row, where blocks of a cluster hand them over
    static const int EACH = 8;  // runs of eight sums whose operands are loaded at a time
    typedef float sum_t;
    TX_INLINE void multiply(float (&d)[64], uint64_t a, uint64_t b, int add) {
        asm volatile(
            "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
            "%0, %1, %2, %3, %4, %5, %6, %7, "
            "%8, %9, %10, %11, %12, %13, %14, %15, "
            "%16, %17, %18, %19, %20, %21, %22, %23, "
            "%24, %25, %26, %27, %28, %29, %30, %31, "
            "%32, %33, %34, %35, %36, %37, %38, %39, "
            "%40, %41, %42, %43, %44, %45, %46, %47, "
            "%48, %49, %50, %51, %52, %53, %54, %55, "
            "%56, %57, %58, %59, %60, %61, %62, %63"
            "}, %64, %65, p, 1, 1, 0, 0;\n}"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
            "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
            "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
            "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
            "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
            "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
            "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
            "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
            : "l"(a), "l"(b), "r"(add));
    }
};
struct TX_NAME(held) {
    tx_pack<int, 4> o1;
    __device__ __forceinline__ void keep() {
        for (int k = 0; k < 4; k++) tx_keep(o1.v[k]);
    }
};
struct TX_NAME(columns) {

};
extern "C" __global__ void __launch_bounds__(384, 1) TX_ENTRY(const __grid_constant__ tx_map m0,
        const __grid_constant__ tx_map m1, const uint16_t* __restrict__ x2, uint16_t* __restrict__ y0) {
    enum { M = 1000, DOWN = 8, ACROSS = 6, N = 768, K_STAGES = 8 };
    TX_SHARED(memory);
    // loads a thread's part of what columns from first on need
    const auto fetch = [&](int first) {
        TX_NAME(columns) columns;
        return columns;
    };
    // lays it where all threads of the team read it
    const auto lay = [&](const TX_NAME(columns)& columns) {

    };
    // loads what eight results from column c of row r need beside their sums
    const auto get = [&](int64_t r, int c) {
        TX_NAME(held) held;
        const int64_t row = r < M ? r : M - 1;
        const int at = c < N ? c : 0;
        held.o1 = *(const tx_pack<int, 4>*)(x2 + at);
        return held;
    };
    // stores eight results from column col of a row on, of the tile column in: v, their sums, and what get loaded
    const auto put = [&](int64_t row, int col, int in, const float* v, const TX_NAME(held)& held) {
        if (row >= M) return;
        if (col < N) {
            const int at = col;
            float o1[8];
            tx_load_f16<8>(o1, (const uint16_t*)&held.o1);
            float r0[8];
            #pragma unroll
            for (int k = 0; k < 8; k++) {
                const float e0 = v[k] + o1[k];
                const float e1 = tx_fmax(e0, 0.0f);
                r0[k] = e1;
            }
            tx_store_f16<8>(y0 + row * N + at, r0);
        }
    };
    // DOWN x ACROSS tiles of ROWS x COLS, K_STAGES stages of 64 of k; a block takes one after the other
    tx_flow<TX_NAME(flow)>(tx_matrix<64>{m0}, m1, DOWN, ACROSS, K_STAGES, memory, fetch, lay, get, put);
}
