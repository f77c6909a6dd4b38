// Random numbers that no seed is given for: of the clock, the memory that they go to and their position in it, so that
// each run, each tensor and each element has others.
struct tx_words {
  uint32_t v[4];
};

// Philox4x32-10 (Salmon and others, Parallel Random Numbers: As Easy as 1, 2, 3, 2011).
TX_INLINE tx_words tx_philox(uint64_t key, uint64_t low, uint64_t high) {
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  tx_words r = {{(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32)}};
#pragma unroll
  for (int i = 0; i < 10; i++) {
    const uint64_t a = (uint64_t)r.v[0] * 0xd2511f53u, b = (uint64_t)r.v[2] * 0xcd9e8d57u;
    r = {{(uint32_t)(b >> 32) ^ r.v[1] ^ k0, (uint32_t)b, (uint32_t)(a >> 32) ^ r.v[3] ^ k1, (uint32_t)a}};
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  return r;
}
TX_INLINE tx_words tx_drawn(const void* to, uint64_t position) {
  return tx_philox((uint64_t)clock64(), position, (uint64_t)to);
}

// In [0, 1), a multiple of 2^-53.
TX_INLINE double tx_unit(uint32_t high, uint32_t low) {
  return (double)(((uint64_t)high << 32 | low) >> 11) * 0x1p-53;
}
TX_INLINE double tx_uniform(tx_words r) { return tx_unit(r.v[0], r.v[1]); }
// Of the normal distribution (Box and Muller, 1958).
TX_INLINE double tx_normal(tx_words r) {
  return sqrt(-2.0 * log(1.0 - tx_unit(r.v[0], r.v[1]))) * cos(6.283185307179586 * tx_unit(r.v[2], r.v[3]));
}
// Of the Gumbel distribution: with it added to logarithms of weights, each is the largest as often as its weight says.
// Large numbers come of small w, of which floats have many more than of those near 1.
TX_INLINE float tx_gumbel(tx_words r) {
  const float w = ((float)r.v[0] + 0.5f) * 0x1p-32f;
  return -logf(-log1pf(-w));
}
