/* Bytes as numbers of 16 bits, on AVX2: products of pairs, where no instruction multiplies and sums four bytes. */

/* Four neighbouring bytes in all lanes. The text is what runs: GCC would take them apart as scalars, and move the parts
   to vectors one by one. */
TX_INLINE vi tx_quad_at(const void* p) {
    vi x;
    __asm__("vpbroadcastd %1, %0" : "=x"(x) : "m"(*(const tx_int_at*)p));
    return x;
}
/* Bytes 0 and 2 of each lane as two numbers of 16 bits, and bytes 1 and 3. */
TX_INLINE vi tx_even(vi u) { return u & 0x00ff00ff; }
TX_INLINE vi tx_odd(vi u) { return (vi)_mm256_srli_epi16((__m256i)u, 8); }

/* The same of signed bytes. */
TX_INLINE vi tx_even_signed(vi s) { return (vi)_mm256_srai_epi16(_mm256_slli_epi16((__m256i)s, 8), 8); }
TX_INLINE vi tx_odd_signed(vi s) { return (vi)_mm256_srai_epi16((__m256i)s, 8); }

/* sum[l] + u0 w0 + u1 w1 of numbers of 16 bits, w in memory. The text is what runs: GCC would add up products first and
   keep more of them than there are registers, and load w on its own. */
TX_INLINE vi tx_dot2_at(vi sum, vi u, const void* w) {
    typedef vi __attribute__((aligned(1), may_alias)) tx_vi_at;
    vi pair;
    __asm__("vpmaddwd %2, %1, %0" : "=x"(pair) : "x"(u), "m"(*(const tx_vi_at*)w));
    __asm__("vpaddd %1, %0, %0" : "+x"(sum) : "x"(pair));
    return sum;
}
/* sum[l] + u0 s0 + u1 s1 + u2 s2 + u3 s3 of unsigned bytes u and signed ones s in memory, where both u0 s0 + u1 s1 and
   u2 s2 + u3 s3 fit in 16 bits. */
TX_INLINE vi tx_dot4_at(vi sum, vi u, const void* s) {
    typedef vi __attribute__((aligned(1), may_alias)) tx_vi_at;
    const vi ones = tx_splat_i(0x00010001);
    vi pair;
    __asm__("vpmaddubsw %2, %1, %0" : "=x"(pair) : "x"(u), "m"(*(const tx_vi_at*)s));
    __asm__("vpmaddwd %1, %0, %0" : "+x"(pair) : "x"(ones));
    __asm__("vpaddd %1, %0, %0" : "+x"(sum) : "x"(pair));
    return sum;
}

/* sum[l] + u0 w0 + u1 w1 of numbers of 16 bits in registers. */
TX_INLINE vi tx_dot2_words(vi sum, vi u, vi w) {
    vi pair;
    __asm__("vpmaddwd %2, %1, %0" : "=x"(pair) : "x"(u), "x"(w));
    __asm__("vpaddd %1, %0, %0" : "+x"(sum) : "x"(pair));
    return sum;
}

/* TX_LANES neighbouring numbers as 16 bits. */
TX_INLINE tx_s16 tx_words_u8(const uint8_t* p) {
    tx_u8 x;
    memcpy(&x, p, sizeof x);
    return __builtin_convertvector(x, tx_s16);
}
TX_INLINE tx_s16 tx_words_i8(const int8_t* p) {
    tx_s8 x;
    memcpy(&x, p, sizeof x);
    return __builtin_convertvector(x, tx_s16);
}
TX_INLINE tx_s16 tx_load_words(const int16_t* p) {
    tx_s16 x;
    memcpy(&x, p, sizeof x);
    return x;
}
TX_INLINE void tx_store_words(int16_t* p, tx_s16 x) { memcpy(p, &x, sizeof x); }
