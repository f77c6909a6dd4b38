/* Order: numbers as keys, unsigned integers that are larger where the number is, and ranks.

   NaN is above all numbers and -0 is 0. A rank is a key above the complement of the element's place
   (uint64_t of 32 and 32 bits, tx_wide of 64 and 64): of equal numbers the first ranks higher, and
   no two ranks are the same. */

typedef unsigned __int128 tx_wide;

TX_INLINE uint32_t tx_key_f32(uint32_t u) {
    const uint32_t number = u & -(uint32_t)(u != 0x80000000u);
    const uint32_t nan = -(uint32_t)((u & 0x7fffffffu) > 0x7f800000u);
    return (number ^ ((uint32_t)((int32_t)number >> 31) | 0x80000000u)) | nan;
}
TX_INLINE uint32_t tx_key_bf16(uint16_t u) { return tx_key_f32((uint32_t)u << 16); }
TX_INLINE uint32_t tx_key_f16(uint16_t u) {
    const uint32_t number = u & -(uint32_t)(u != 0x8000);
    const uint32_t nan = -(uint32_t)((u & 0x7fffu) > 0x7c00u);
    return (number ^ (0x8000u | (-(number >> 15) & 0x7fffu))) | nan;
}
TX_INLINE uint64_t tx_key_f64(uint64_t u) {
    const uint64_t sign = 0x8000000000000000u, number = u & -(uint64_t)(u != sign);
    const uint64_t nan = -(uint64_t)((u & ~sign) > 0x7ff0000000000000u);
    return (number ^ ((uint64_t)((int64_t)number >> 63) | sign)) | nan;
}
TX_INLINE uint32_t tx_key_u8(uint8_t u) { return u; }
TX_INLINE uint32_t tx_key_u16(uint16_t u) { return u; }
TX_INLINE uint32_t tx_key_u32(uint32_t u) { return u; }
TX_INLINE uint64_t tx_key_u64(uint64_t u) { return u; }
TX_INLINE uint32_t tx_key_i8(uint8_t u) { return u ^ 0x80u; }
TX_INLINE uint32_t tx_key_i16(uint16_t u) { return u ^ 0x8000u; }
TX_INLINE uint32_t tx_key_i32(uint32_t u) { return u ^ 0x80000000u; }
TX_INLINE uint64_t tx_key_i64(uint64_t u) { return u ^ 0x8000000000000000u; }
#define tx_key_bool tx_key_u8

#define TX_FEW 24 /* ranks that are put in order one by one */

#define TX_ORDER(bits, rank)                                                                      \
    /* Few ranks, the highest first. */                                                           \
    TX_INLINE void tx_insert_##bits(rank* v, int64_t n) {                                         \
        for (int64_t i = 1; i < n; i++) {                                                         \
            const rank x = v[i];                                                                  \
            int64_t j = i;                                                                        \
            for (; j > 0 && v[j - 1] < x; j--) v[j] = v[j - 1];                                   \
            v[j] = x;                                                                             \
        }                                                                                         \
    }                                                                                             \
    /* Part ranks [lo, hi) around any of them: gives where it comes to lie. */                    \
    TX_INLINE int64_t tx_part_##bits(rank* v, int64_t lo, int64_t hi, uint64_t* seed) {           \
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;                              \
        const int64_t at = lo + (int64_t)((*seed >> 33) % (uint64_t)(hi - lo));                   \
        const rank pivot = v[at];                                                                 \
        v[at] = v[hi - 1];                                                                        \
        int64_t m = lo;                                                                           \
        for (int64_t i = lo; i < hi - 1; i++) {                                                   \
            const rank x = v[i];                                                                  \
            v[i] = v[m];                                                                          \
            v[m] = x;                                                                             \
            m += x > pivot;                                                                       \
        }                                                                                         \
        v[hi - 1] = v[m];                                                                         \
        v[m] = pivot;                                                                             \
        return m;                                                                                 \
    }                                                                                             \
    /* The k highest of n ranks to the front, in any order; 0 < k < n. Gives the lowest. */       \
    TX_RARE rank tx_best_##bits(rank* v, int64_t n, int64_t k) {                                  \
        uint64_t seed = (uint64_t)n;                                                              \
        int64_t lo = 0, hi = n;                                                                   \
        while (hi - lo > 1) {                                                                     \
            const int64_t m = tx_part_##bits(v, lo, hi, &seed);                                   \
            if (m == k || m == k - 1) break;                                                      \
            if (m > k) hi = m;                                                                    \
            else lo = m + 1;                                                                      \
        }                                                                                         \
        rank least = v[0];                                                                        \
        for (int64_t i = 1; i < k; i++) least = v[i] < least ? v[i] : least;                      \
        return least;                                                                             \
    }                                                                                             \
    /* The highest first. */                                                                      \
    TX_RARE void tx_sort_##bits(rank* v, int64_t n) {                                             \
        uint64_t seed = (uint64_t)n;                                                              \
        while (n > TX_FEW) {                                                                      \
            const int64_t m = tx_part_##bits(v, 0, n, &seed);                                     \
            if (m < n - 1 - m) {                                                                  \
                tx_sort_##bits(v, m);                                                             \
                v += m + 1;                                                                       \
                n -= m + 1;                                                                       \
            } else {                                                                              \
                tx_sort_##bits(v + m + 1, n - 1 - m);                                             \
                n = m;                                                                            \
            }                                                                                     \
        }                                                                                         \
        tx_insert_##bits(v, n);                                                                   \
    }                                                                                             \
    /* The highest first, of ranks whose places rise: by bytes of their keys, by way of w. */     \
    TX_RARE void tx_sort_rising_##bits(rank* v, rank* w, int64_t n) {                             \
        enum { BYTES = sizeof(rank) / 2 };                                                        \
        if (n < 512) {                                                                            \
            tx_sort_##bits(v, n);                                                                 \
            return;                                                                               \
        }                                                                                         \
        int64_t at[BYTES][256];                                                                   \
        memset(at, 0, sizeof at);                                                                 \
        for (int64_t i = 0; i < n; i++)                                                           \
            for (int b = 0; b < BYTES; b++) at[b][(uint8_t)(v[i] >> 8 * (BYTES + b))]++;          \
        rank *from = v, *to = w;                                                                  \
        for (int b = 0; b < BYTES; b++) {                                                         \
            if (at[b][(uint8_t)(v[0] >> 8 * (BYTES + b))] == n) continue;                         \
            int64_t sum = 0;                                                                      \
            for (int d = 255; d >= 0; d--) {                                                      \
                const int64_t count = at[b][d];                                                   \
                at[b][d] = sum;                                                                   \
                sum += count;                                                                     \
            }                                                                                     \
            for (int64_t i = 0; i < n; i++)                                                       \
                to[at[b][(uint8_t)(from[i] >> 8 * (BYTES + b))]++] = from[i];                     \
            rank* const swap = from;                                                              \
            from = to;                                                                            \
            to = swap;                                                                            \
        }                                                                                         \
        if (from != v) memcpy(v, from, (size_t)n * sizeof(rank));                                 \
    }
TX_ORDER(64, uint64_t)
TX_ORDER(128, tx_wide)

/* Ranks of TX_RANKS lines, one in each lane. */
#define TX_RANKS 8
typedef uint64_t tx_ranks __attribute__((vector_size(8 * TX_RANKS)));
typedef uint32_t tx_keys __attribute__((vector_size(4 * TX_RANKS)));

TX_INLINE tx_ranks tx_ranked(const uint32_t* key, uint32_t place) {
    tx_keys keys;
    memcpy(&keys, key, sizeof keys);
    return __builtin_convertvector(keys, tx_ranks) << 32 | (uint64_t)place;
}

#if TX_512
TX_INLINE tx_ranks tx_ranks_max(tx_ranks a, tx_ranks b) { return (tx_ranks)_mm512_max_epu64((__m512i)a, (__m512i)b); }
TX_INLINE tx_ranks tx_ranks_min(tx_ranks a, tx_ranks b) { return (tx_ranks)_mm512_min_epu64((__m512i)a, (__m512i)b); }
#else
TX_INLINE tx_ranks tx_ranks_max(tx_ranks a, tx_ranks b) {
    const tx_ranks above = (tx_ranks)(a > b);
    return (a & above) | (b & ~above);
}
TX_INLINE tx_ranks tx_ranks_min(tx_ranks a, tx_ranks b) {
    const tx_ranks above = (tx_ranks)(a > b);
    return (b & above) | (a & ~above);
}
#endif
