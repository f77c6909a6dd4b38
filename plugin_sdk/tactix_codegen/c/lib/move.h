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

/* Up to 16 bytes as a vector, and back; loaded bytes past the n-th are 0. */
typedef uint8_t tx_16_lanes __attribute__((vector_size(16)));
typedef uint16_t tx_8_lanes __attribute__((vector_size(16)));
#if TX_512
TX_INLINE tx_16_lanes tx_load_some(const void* p, int64_t n) {
    return (tx_16_lanes)_mm_maskz_loadu_epi8((__mmask16)((1u << n) - 1), p);
}
TX_INLINE void tx_store_some(void* q, tx_16_lanes v, int64_t n) {
    _mm_mask_storeu_epi8(q, (__mmask16)((1u << n) - 1), (__m128i)v);
}
#else
/* Of two words that overlap. */
typedef unsigned __int128 tx_16_bytes;
TX_INLINE tx_16_lanes tx_load_some(const void* p, int64_t n) {
    const uint8_t* const x = p;
    tx_16_bytes v = 0;
    if (n >= 8) {
        uint64_t first, last;
        memcpy(&first, x, 8);
        memcpy(&last, x + n - 8, 8);
        v = first | (tx_16_bytes)last << 8 * (n - 8);
    } else if (n >= 4) {
        uint32_t first, last;
        memcpy(&first, x, 4);
        memcpy(&last, x + n - 4, 4);
        v = first | (uint64_t)last << 8 * (n - 4);
    } else if (n > 0) {
        v = (uint32_t)x[0] | (uint32_t)x[n / 2] << 8 * (n / 2) | (uint32_t)x[n - 1] << 8 * (n - 1);
    }
    return (tx_16_lanes)v;
}
TX_INLINE void tx_store_some(void* q, tx_16_lanes lanes, int64_t n) {
    uint8_t* const y = q;
    const tx_16_bytes v = (tx_16_bytes)lanes;
    if (n >= 8) {
        const uint64_t first = (uint64_t)v, last = (uint64_t)(v >> 8 * (n - 8));
        memcpy(y, &first, 8);
        memcpy(y + n - 8, &last, 8);
    } else if (n >= 4) {
        const uint32_t first = (uint32_t)v, last = (uint32_t)((uint64_t)v >> 8 * (n - 4));
        memcpy(y, &first, 4);
        memcpy(y + n - 4, &last, 4);
    } else {
        for (int64_t i = 0; i < n; i++) y[i] = (uint8_t)((uint32_t)v >> 8 * i);
    }
}
#endif

/* Neighbours of two vectors' lower, and upper, halves interleaved. */
#if defined(__x86_64__)
#define TX_ZIP(bits, n)                                                                                      \
    TX_INLINE tx_##n##_lanes tx_zip_low_##bits(tx_##n##_lanes a, tx_##n##_lanes b) {                        \
        return (tx_##n##_lanes)_mm_unpacklo_epi##bits((__m128i)a, (__m128i)b);                              \
    }                                                                                                        \
    TX_INLINE tx_##n##_lanes tx_zip_high_##bits(tx_##n##_lanes a, tx_##n##_lanes b) {                       \
        return (tx_##n##_lanes)_mm_unpackhi_epi##bits((__m128i)a, (__m128i)b);                              \
    }
#elif defined(__aarch64__)
#define TX_ZIP(bits, n)                                                                                      \
    TX_INLINE tx_##n##_lanes tx_zip_low_##bits(tx_##n##_lanes a, tx_##n##_lanes b) {                        \
        return (tx_##n##_lanes)vzip1q_u##bits((uint##bits##x##n##_t)a, (uint##bits##x##n##_t)b);            \
    }                                                                                                        \
    TX_INLINE tx_##n##_lanes tx_zip_high_##bits(tx_##n##_lanes a, tx_##n##_lanes b) {                       \
        return (tx_##n##_lanes)vzip2q_u##bits((uint##bits##x##n##_t)a, (uint##bits##x##n##_t)b);            \
    }
#else
#define TX_ZIP(bits, n)                                                                                      \
    TX_INLINE tx_##n##_lanes tx_zip_low_##bits(tx_##n##_lanes a, tx_##n##_lanes b) {                        \
        tx_##n##_lanes y;                                                                                    \
        for (int l = 0; l < n; l++) y[l] = l % 2 ? b[l / 2] : a[l / 2];                                     \
        return y;                                                                                            \
    }                                                                                                        \
    TX_INLINE tx_##n##_lanes tx_zip_high_##bits(tx_##n##_lanes a, tx_##n##_lanes b) {                       \
        tx_##n##_lanes y;                                                                                    \
        for (int l = 0; l < n; l++) y[l] = l % 2 ? b[(n + l) / 2] : a[(n + l) / 2];                         \
        return y;                                                                                            \
    }
#endif
TX_ZIP(8, 16)
TX_ZIP(16, 8)

typedef uint64_t tx_words __attribute__((vector_size(16)));
/* Each of count elements two or four times in a row: half a vector of them at once becomes one or two. */
#define TX_REPEAT(bits, n)                                                                                   \
    TX_INLINE void tx_repeat_2_##bits(uint##bits##_t* y, const uint##bits##_t* x, int64_t count) {          \
        int64_t i = 0;                                                                                       \
        for (; i + n / 2 <= count; i += n / 2) {                                                             \
            uint64_t half;                                                                                   \
            memcpy(&half, x + i, 8);                                                                         \
            tx_##n##_lanes v = (tx_##n##_lanes)(tx_words){half, half};                                       \
            v = tx_zip_low_##bits(v, v);                                                                     \
            memcpy(y + 2 * i, &v, 16);                                                                       \
        }                                                                                                    \
        for (; i < count; i++) y[2 * i] = y[2 * i + 1] = x[i];                                               \
    }                                                                                                        \
    TX_INLINE void tx_repeat_4_##bits(uint##bits##_t* y, const uint##bits##_t* x, int64_t count) {          \
        int64_t i = 0;                                                                                       \
        for (; i + n / 2 <= count; i += n / 2) {                                                             \
            uint64_t half;                                                                                   \
            memcpy(&half, x + i, 8);                                                                         \
            tx_##n##_lanes v = (tx_##n##_lanes)(tx_words){half, half};                                       \
            v = tx_zip_low_##bits(v, v);                                                                     \
            const tx_##n##_lanes low = tx_zip_low_##bits(v, v), high = tx_zip_high_##bits(v, v);             \
            memcpy(y + 4 * i, &low, 16);                                                                     \
            memcpy(y + 4 * i + n, &high, 16);                                                                \
        }                                                                                                    \
        for (; i < count; i++)                                                                               \
            for (int r = 0; r < 4; r++) y[4 * i + r] = x[i];                                                 \
    }
TX_REPEAT(8, 16)
TX_REPEAT(16, 8)

/* A square of 8- or 16-bit elements around its diagonal: row i of r becomes its column. Neighbours are interleaved in
   rounds, each of which doubles how many rows a vector has elements of. Written out, since a compiler that is to be
   quick unrolls nothing, and keeps arrays that loops walk in memory. */
#define TX_EACH_8(f, at) f(at) f(at + 1) f(at + 2) f(at + 3) f(at + 4) f(at + 5) f(at + 6) f(at + 7)
#define TX_EACH_16(f, at) TX_EACH_8(f, at) TX_EACH_8(f, at + 8)
#define TX_PAIR(bits, n, y, x, i)                                    \
    y[2 * (i)] = tx_zip_low_##bits(x[i], x[(i) + n / 2]);            \
    y[2 * (i) + 1] = tx_zip_high_##bits(x[i], x[(i) + n / 2]);
#define TX_PAIRS_8_THERE(i) TX_PAIR(8, 16, t, r, i)
#define TX_PAIRS_8_BACK(i) TX_PAIR(8, 16, r, t, i)
TX_INLINE void tx_transpose_8(tx_16_lanes* r) {
    tx_16_lanes t[16];
    TX_EACH_8(TX_PAIRS_8_THERE, 0)
    TX_EACH_8(TX_PAIRS_8_BACK, 0)
    TX_EACH_8(TX_PAIRS_8_THERE, 0)
    TX_EACH_8(TX_PAIRS_8_BACK, 0)
}
#define TX_PAIRS_16(y, x)                                                                                    \
    TX_PAIR(16, 8, y, x, 0) TX_PAIR(16, 8, y, x, 1) TX_PAIR(16, 8, y, x, 2) TX_PAIR(16, 8, y, x, 3)
TX_INLINE void tx_transpose_16(tx_8_lanes* r) {
    tx_8_lanes t[8];
    TX_PAIRS_16(t, r)
    TX_PAIRS_16(r, t)
    TX_PAIRS_16(t, r)
    memcpy(r, t, sizeof(t));
}
#define TX_ROW_LOAD(k) memcpy(&r[k], p + (k) * from, 16);
#define TX_ROW_STORE(k) memcpy(q + (k) * to, &r[k], 16);
#define TX_TURN(bits, n)                                                                                      \
    /* n pixels of n channels, the rows of p `from` elements apart and those of q `to`. */                  \
    TX_INLINE void tx_turn_##bits(uint##bits##_t* q, int64_t to, const uint##bits##_t* p, int64_t from) {   \
        tx_##n##_lanes r[n];                                                                                 \
        TX_EACH_##n(TX_ROW_LOAD, 0)                                                                          \
        tx_transpose_##bits(r);                                                                              \
        TX_EACH_##n(TX_ROW_STORE, 0)                                                                         \
    }                                                                                                        \
    /* Of a square that has `rows` rows of `columns` elements in p: `columns` rows of `width` in q, those past the  \
       rows 0. */                                                                                            \
    TX_RARE void tx_turn_some_##bits(uint##bits##_t* q, int64_t to, const uint##bits##_t* p, int64_t from, \
                                     int64_t rows, int64_t columns, int64_t width) {                        \
        tx_##n##_lanes r[n];                                                                                 \
        for (int k = 0; k < n; k++)                                                                         \
            r[k] = k < rows ? (tx_##n##_lanes)tx_load_some(p + k * from, columns * (bits / 8))              \
                            : (tx_##n##_lanes){0};                                                           \
        tx_transpose_##bits(r);                                                                              \
        for (int k = 0; k < n; k++)                                                                         \
            if (k < columns) tx_store_some(q + k * to, (tx_16_lanes)r[k], width * (bits / 8));              \
    }
TX_TURN(8, 16)
TX_TURN(16, 8)

/* Where tile t of n elements begins: the last one lies over the one before it, so that it is whole, too. */
TX_INLINE int64_t tx_tile(int64_t t, int64_t n) {
    return n >= TX_TILE && t * TX_TILE > n - TX_TILE ? n - TX_TILE : t * TX_TILE;
}

/* Tiles of up to TX_TILE by TX_TILE elements. */
#define tx_swap_64 tx_swap_any_64
TX_INLINE void tx_swap_8(uint8_t* y, const uint8_t* x, int64_t na, int64_t nb, int64_t sy, int64_t sx) {
    if (na == TX_TILE && nb == TX_TILE) {
        tx_turn_8(y, sy, x, sx);
        return;
    }
#if TX_512
    tx_turn_some_8(y, sy, x, sx, nb, na, nb);
#else
    tx_swap_any_8(y, x, na, nb, sy, sx); /* without masks parts of squares gain nothing */
#endif
}
TX_INLINE void tx_swap_16(uint16_t* y, const uint16_t* x, int64_t na, int64_t nb, int64_t sy, int64_t sx) {
    for (int64_t a = 0; a < na; a += 8)
        for (int64_t b = 0; b < nb; b += 8) {
            const int64_t columns = na - a < 8 ? na - a : 8, rows = nb - b < 8 ? nb - b : 8;
            if (columns == 8 && rows == 8)
                tx_turn_16(y + a * sy + b, sy, x + b * sx + a, sx);
            else
                tx_turn_some_16(y + a * sy + b, sy, x + b * sx + a, sx, rows, columns, rows);
        }
}
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
