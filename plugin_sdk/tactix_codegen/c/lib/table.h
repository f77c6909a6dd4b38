/* Functions of one byte as tables of 256: n bytes, or floats, for n bytes at x. */

#if TX_512 && defined(__AVX512VBMI__)
/* 64 bytes of a table of 256, which is four registers: two of them by the low seven bits, chosen by the top one. */
typedef struct { __m512i part[4]; } tx_table;
TX_INLINE tx_table tx_table_at(const uint8_t* t) {
    tx_table out;
    for (int k = 0; k < 4; k++) out.part[k] = _mm512_loadu_si512(t + 64 * k);
    return out;
}
TX_INLINE __m512i tx_looked_up(const tx_table* t, __m512i x) {
    const __m512i low = _mm512_permutex2var_epi8(t->part[0], x, t->part[1]);
    const __m512i high = _mm512_permutex2var_epi8(t->part[2], x, t->part[3]);
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(x), low, high);
}
#define TX_TABLE_STEP 64
#define TX_TABLE_LOAD(p) _mm512_loadu_si512(p)
#define TX_TABLE_STORE(p, x) _mm512_storeu_si512(p, x)
#elif TX_512 || TX_256 || TX_128
/* Sixteen entries a register, by the low four bits; then halves are chosen by each of the other bits. */
#if TX_512
typedef __m512i tx_bytes;
#define TX_TABLE_STEP 64
#define TX_TABLE_LOAD(p) _mm512_loadu_si512(p)
#define TX_TABLE_STORE(p, x) _mm512_storeu_si512(p, x)
#define TX_TABLE_ROW(p) _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)(p)))
#define TX_TABLE_PICK(row, x) _mm512_shuffle_epi8(row, _mm512_and_si512(x, _mm512_set1_epi8(15)))
#define TX_TABLE_BIT(x, k) _mm512_movepi8_mask(_mm512_slli_epi16(x, 7 - (k)))
#define TX_TABLE_EITHER(a, b, bit) _mm512_mask_blend_epi8(bit, a, b)
typedef __mmask64 tx_byte_bits;
#elif TX_256
typedef __m256i tx_bytes;
typedef __m256i tx_byte_bits;
#define TX_TABLE_STEP 32
#define TX_TABLE_LOAD(p) _mm256_loadu_si256((const __m256i*)(p))
#define TX_TABLE_STORE(p, x) _mm256_storeu_si256((__m256i*)(p), x)
#define TX_TABLE_ROW(p) _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)(p)))
#define TX_TABLE_PICK(row, x) _mm256_shuffle_epi8(row, _mm256_and_si256(x, _mm256_set1_epi8(15)))
#define TX_TABLE_BIT(x, k) _mm256_slli_epi16(x, 7 - (k))
#define TX_TABLE_EITHER(a, b, bit) _mm256_blendv_epi8(a, b, bit)
#else
typedef __m128i tx_bytes;
typedef __m128i tx_byte_bits;
#define TX_TABLE_STEP 16
#define TX_TABLE_LOAD(p) _mm_loadu_si128((const __m128i*)(p))
#define TX_TABLE_STORE(p, x) _mm_storeu_si128((__m128i*)(p), x)
#define TX_TABLE_ROW(p) _mm_loadu_si128((const __m128i*)(p))
#define TX_TABLE_PICK(row, x) _mm_shuffle_epi8(row, _mm_and_si128(x, _mm_set1_epi8(15)))
#define TX_TABLE_BIT(x, k) _mm_slli_epi16(x, 7 - (k))
#define TX_TABLE_EITHER(a, b, bit) _mm_blendv_epi8(a, b, bit)
#endif
typedef const uint8_t* tx_table;
TX_INLINE tx_table tx_table_at(const uint8_t* t) { return t; }
TX_INLINE tx_bytes tx_looked_up(const tx_table* t, tx_bytes x) {
    tx_bytes r[16];
    _Pragma("GCC unroll 16") for (int k = 0; k < 16; k++) r[k] = TX_TABLE_PICK(TX_TABLE_ROW(*t + 16 * k), x);
    const tx_byte_bits b4 = TX_TABLE_BIT(x, 4), b5 = TX_TABLE_BIT(x, 5), b6 = TX_TABLE_BIT(x, 6),
                       b7 = TX_TABLE_BIT(x, 7);
    _Pragma("GCC unroll 8") for (int k = 0; k < 8; k++) r[k] = TX_TABLE_EITHER(r[2 * k], r[2 * k + 1], b4);
    _Pragma("GCC unroll 4") for (int k = 0; k < 4; k++) r[k] = TX_TABLE_EITHER(r[2 * k], r[2 * k + 1], b5);
    _Pragma("GCC unroll 2") for (int k = 0; k < 2; k++) r[k] = TX_TABLE_EITHER(r[2 * k], r[2 * k + 1], b6);
    return TX_TABLE_EITHER(r[0], r[1], b7);
}
#endif

TX_INLINE void tx_bytes_by_table(void* to, const void* from, int64_t n, const uint8_t* table) {
    uint8_t* const y = to;
    const uint8_t* const x = from;
    int64_t i = 0;
#ifdef TX_TABLE_STEP
    const tx_table t = tx_table_at(table);
    for (; i + TX_TABLE_STEP <= n; i += TX_TABLE_STEP) TX_TABLE_STORE(y + i, tx_looked_up(&t, TX_TABLE_LOAD(x + i)));
#endif
    for (; i < n; i++) y[i] = table[x[i]];
}

/* With AVX-512 VBMI the table is four, one for each byte of its floats, the lowest first; else 256 floats. */
TX_INLINE void tx_floats_by_table(float* y, const void* from, int64_t n, const uint8_t* table) {
    const uint8_t* const x = from;
    int64_t i = 0;
#if TX_512 && defined(__AVX512VBMI__)
    /* Unpacking puts groups of four elements of a lane of 128 bits into one lane each of four results. */
    const __m512i places = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const tx_table t0 = tx_table_at(table), t1 = tx_table_at(table + 256), t2 = tx_table_at(table + 512),
                   t3 = tx_table_at(table + 768);
    for (; i + 64 <= n; i += 64) {
        const __m512i v = _mm512_permutexvar_epi32(places, _mm512_loadu_si512(x + i));
        const __m512i b0 = tx_looked_up(&t0, v), b1 = tx_looked_up(&t1, v), b2 = tx_looked_up(&t2, v),
                      b3 = tx_looked_up(&t3, v);
        const __m512i low01 = _mm512_unpacklo_epi8(b0, b1), high01 = _mm512_unpackhi_epi8(b0, b1);
        const __m512i low23 = _mm512_unpacklo_epi8(b2, b3), high23 = _mm512_unpackhi_epi8(b2, b3);
        _mm512_storeu_si512(y + i, _mm512_unpacklo_epi16(low01, low23));
        _mm512_storeu_si512(y + i + 16, _mm512_unpackhi_epi16(low01, low23));
        _mm512_storeu_si512(y + i + 32, _mm512_unpacklo_epi16(high01, high23));
        _mm512_storeu_si512(y + i + 48, _mm512_unpackhi_epi16(high01, high23));
    }
    for (; i < n; i++) {
        const uint8_t bytes[4] = {table[x[i]], table[256 + x[i]], table[512 + x[i]], table[768 + x[i]]};
        memcpy(y + i, bytes, 4);
    }
#else
    const float* const floats = (const float*)table;
    for (; i < n; i++) y[i] = floats[x[i]];
#endif
}
