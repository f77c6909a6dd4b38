/* Moving elements of 1, 2, 4 or 8 bytes between strided places. Strides count elements. */

#define TX_TILE 16
#define TX_MOVE(bits)                                                                                                   \
    /* Swap two axes: the source goes on by one along a, the target along b. */                                        \
    TX_INLINE void tx_swap_any_##bits(uint##bits##_t* y, const uint##bits##_t* x, int64_t na, int64_t nb, int64_t sy,   \
                                      int64_t sx) {                                                                     \
        for (int64_t a = 0; a < na; a++)                                                                                \
            for (int64_t b = 0; b < nb; b++) y[a * sy + b] = x[b * sx + a];                                             \
    }                                                                                                                   \
    TX_INLINE void tx_stride_##bits(uint##bits##_t* y, const uint##bits##_t* x, int64_t n, int64_t sx) {                \
        for (int64_t i = 0; i < n; i++) y[i] = x[i * sx];                                                               \
    }                                                                                                                   \
    TX_INLINE void tx_scatter_##bits(uint##bits##_t* y, const uint##bits##_t* x, int64_t n, int64_t sy, int64_t sx) {   \
        for (int64_t i = 0; i < n; i++) y[i * sy] = x[i * sx];                                                          \
    }                                                                                                                   \
    TX_INLINE void tx_fill_##bits(uint##bits##_t* y, uint##bits##_t v, int64_t n) {                                     \
        for (int64_t i = 0; i < n; i++) y[i] = v;                                                                       \
    }
TX_MOVE(8)
TX_MOVE(16)
TX_MOVE(32)
TX_MOVE(64)

/* Tiles of up to TX_TILE by TX_TILE elements. */
#define tx_swap_8 tx_swap_any_8
#define tx_swap_16 tx_swap_any_16
#define tx_swap_64 tx_swap_any_64
TX_INLINE void tx_swap_32(uint32_t* y, const uint32_t* x, int64_t na, int64_t nb, int64_t sy, int64_t sx) {
    if (na != TX_TILE || nb != TX_TILE) {
        tx_swap_any_32(y, x, na, nb, sy, sx);
        return;
    }
    for (int64_t a = 0; a < TX_TILE; a += TX_LANES)
        for (int64_t b = 0; b < TX_TILE; b += TX_LANES) {
            vi r[TX_LANES];
            for (int k = 0; k < TX_LANES; k++) r[k] = tx_load_i32(x + (b + k) * sx + a);
            tx_transpose(r);
            for (int k = 0; k < TX_LANES; k++) tx_store_i32(y + (a + k) * sy + b, r[k]);
        }
}

/* n bytes; short runs without a call. */
TX_INLINE void tx_copy(char* y, const char* x, int64_t n) {
    if (n > 512) {
        memcpy(y, x, (size_t)n);
        return;
    }
    int64_t i = 0;
    for (; i + 4 * TX_LANES <= n; i += 4 * TX_LANES) tx_store_i32(y + i, tx_load_i32(x + i));
    if (i == n) return;
    if (n >= 4 * TX_LANES) {
        tx_store_i32(y + n - 4 * TX_LANES, tx_load_i32(x + n - 4 * TX_LANES));
        return;
    }
    for (; i + 8 <= n; i += 8) memcpy(y + i, x + i, 8);
    for (; i < n; i++) y[i] = x[i];
}

/* Note the first reason that a kernel has to refuse its inputs, with two numbers: the run fails when it is over. */
TX_RARE void tx_refuse(int64_t* fault, int64_t reason, int64_t a, int64_t b) {
    int64_t none = 0;
    if (__atomic_compare_exchange_n(fault, &none, reason, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        fault[1] = a;
        fault[2] = b;
    }
    __atomic_store_n((int64_t*)fault[3], 1, __ATOMIC_RELAXED);
}
/* An index that is out of range. */
TX_RARE void tx_report(int64_t* fault, int64_t i, int64_t size) { tx_refuse(fault, 1, i, size); }

/* An index that may count from the end; -1 if it is out of range, which is reported. */
TX_INLINE int64_t tx_index(int64_t i, int64_t size, int64_t* fault) {
    const int64_t at = i < 0 ? i + size : i;
    if (__builtin_expect((uint64_t)at < (uint64_t)size, 1)) return at;
    tx_report(fault, i, size);
    return -1;
}

/* A square of 8- or 16-bit elements around its diagonal: row i of r becomes its column. Neighbours are interleaved in
   rounds, each of which doubles how many rows a vector has elements of. */
#ifdef __clang__
#define TX_ZIP(n, t, i, a, b)                                        \
    for (int l = 0; l < n; l++) {                                   \
        t[2 * i][l] = l % 2 ? b[l / 2] : a[l / 2];                  \
        t[2 * i + 1][l] = l % 2 ? b[(n + l) / 2] : a[(n + l) / 2];  \
    }
#else
#define TX_ZIP(n, t, i, a, b)                                        \
    tx_##n##_lanes low, high;                                       \
    for (int l = 0; l < n; l++) {                                   \
        low[l] = (l % 2 ? n : 0) + l / 2;                           \
        high[l] = low[l] + n / 2;                                   \
    }                                                               \
    t[2 * i] = __builtin_shuffle(a, b, low);                        \
    t[2 * i + 1] = __builtin_shuffle(a, b, high);
#endif
#define TX_TURN(bits, n)                                                                                      \
    typedef uint##bits##_t tx_##n##_lanes __attribute__((vector_size(16)));                                 \
    /* n pixels of n channels, the rows of p `from` elements apart and those of q `to`. */                  \
    TX_INLINE void tx_turn_##bits(uint##bits##_t* q, int64_t to, const uint##bits##_t* p, int64_t from) {   \
        tx_##n##_lanes r[n], t[n];                                                                           \
        for (int k = 0; k < n; k++) memcpy(&r[k], p + k * from, 16);                                        \
        _Pragma("GCC unroll 4") for (int round = 1; round < n; round *= 2) {                                 \
            _Pragma("GCC unroll 8") for (int i = 0; i < n / 2; i++) {                                        \
                const tx_##n##_lanes a = r[i], b = r[i + n / 2];                                             \
                TX_ZIP(n, t, i, a, b)                                                                        \
            }                                                                                                \
            for (int k = 0; k < n; k++) r[k] = t[k];                                                        \
        }                                                                                                    \
        for (int k = 0; k < n; k++) memcpy(q + k * to, &r[k], 16);                                          \
    }
TX_TURN(8, 16)
TX_TURN(16, 8)
