// Loads and stores of V neighbouring elements as the numbers that generated code computes with; pointers are aligned
// to V elements.
#define TX_PLAIN(name, type)                                        \
  template <int V>                                                  \
  TX_INLINE void tx_load_##name(type* x, const type* p) {           \
    const tx_pack<type, V> s = *(const tx_pack<type, V>*)p;         \
    _Pragma("unroll") for (int k = 0; k < V; k++) x[k] = s.v[k];    \
  }                                                                 \
  template <int V>                                                  \
  TX_INLINE void tx_store_##name(type* p, const type* x) {          \
    tx_pack<type, V> s;                                             \
    _Pragma("unroll") for (int k = 0; k < V; k++) s.v[k] = x[k];    \
    *(tx_pack<type, V>*)p = s;                                      \
  }
TX_PLAIN(f64, double)
TX_PLAIN(f32, float)
TX_PLAIN(i64, int64_t)
TX_PLAIN(i32, int32_t)
TX_PLAIN(i16, int16_t)
TX_PLAIN(i8, int8_t)
TX_PLAIN(u64, uint64_t)
TX_PLAIN(u32, uint32_t)
TX_PLAIN(u16, uint16_t)
TX_PLAIN(u8, uint8_t)
TX_PLAIN(bool, uint8_t)

// Bytes as floats: with the byte as its last bits 0x4b000000 is 2^23 and the byte, of which the power is taken away again. Signed
// ones are moved up by 128 first. A conversion of a byte takes a unit of which a multiprocessor has an eighth as many.
#define TX_FLOATS(name, type, moved, power)                                                                \
  template <int V>                                                                                        \
  TX_INLINE void tx_floats_##name(float* x, const type* p) {                                              \
    const tx_pack<uint32_t, V / 4> s = *(const tx_pack<uint32_t, V / 4>*)p;                               \
    _Pragma("unroll") for (int k = 0; k < V; k++)                                                         \
      x[k] = __uint_as_float(__byte_perm(s.v[k / 4] ^ moved, 0x4b000000u, 0x7440 + k % 4)) - power;       \
  }
TX_FLOATS(i8, int8_t, 0x80808080u, 8388736.0f)
TX_FLOATS(u8, uint8_t, 0u, 8388608.0f)

#define TX_HALF(name)                                                                     \
  template <int V>                                                                        \
  TX_INLINE void tx_load_##name(float* x, const uint16_t* p) {                            \
    const tx_pack<uint16_t, V> s = *(const tx_pack<uint16_t, V>*)p;                       \
    _Pragma("unroll") for (int k = 0; k < V; k++) x[k] = tx_from_##name(s.v[k]);          \
  }                                                                                       \
  template <int V>                                                                        \
  TX_INLINE void tx_store_##name(uint16_t* p, const float* x) {                           \
    if (V == 1) {                                                                         \
      *p = tx_to_##name(x[0]);                                                            \
      return;                                                                             \
    }                                                                                     \
    tx_pack<uint32_t, (V + 1) / 2> s;                                                     \
    _Pragma("unroll") for (int k = 0; k + 1 < V; k += 2) s.v[k / 2] = tx_pair_##name(x[k], x[k + 1]); \
    if constexpr (V == 8)                                                                 \
      tx_store16(p, s.v);                                                                 \
    else                                                                                  \
      *(tx_pack<uint32_t, (V + 1) / 2>*)p = s;                                            \
  }
TX_HALF(f16)
TX_HALF(bf16)

// numpy's remainder: of the divisor's sign.
TX_RARE float tx_mod_float(float a, float b) {
  const float r = fmodf(a, b);
  return r == 0.0f ? copysignf(0.0f, b) : (r < 0.0f) != (b < 0.0f) ? r + b : r;
}

// erf within 1.2e-7, by the minimax fits of the C kernels (math.h); without a branch, so that neighbours overlap.
TX_INLINE float tx_erf(float x) {
  const float a = fabsf(x), z = x * x;
  float p = fmaf(fmaf(fmaf(-3.2376067e-7f, a, 8.7015860e-6f), a, -9.6791620e-5f), a, 5.6014291e-4f);
  p = fmaf(fmaf(fmaf(p, a, -1.5611660e-3f), a, -8.7517983e-4f), a, 2.8435925e-2f);
  p = fmaf(fmaf(fmaf(p, a, -1.4858440e-1f), a, -9.1839361e-1f), a, -1.6279101f);
  const float q = fmaf(fmaf(fmaf(4.7179903e-3f, z, -2.6757184e-2f), z, 1.1282822e-1f), z, -3.7612608e-1f);
  return tx_pick(a < 0.5f, fmaf(q, z, 1.1283791f) * x, copysignf(1.0f - tx_exp2(p * a), x));
}

// x times the normal distribution function, within 1e-6 and 6e-6 of it: x if positive, less |x| times the function of
// -|x|, which is 2 to the power of a polynomial (minimax over [0, 5.6]; past 12 it is 0). As by erf, -inf gives NaN.
TX_INLINE float tx_gelu(float x) {
  const float t = fminf(fabsf(x), 12.0f), half = 0.5f * x;
  float p = fmaf(fmaf(3.2444786e-5f, t, -7.4842561e-4f), t, 7.9423163e-3f);
  p = fmaf(fmaf(fmaf(fmaf(p, t, -5.3051975e-2f), t, -4.5917025e-1f), t, -1.1510367f), t, -1.0000076f);
  return fmaf(-t, tx_exp2(p), half + fabsf(half));
}
// The same for results of 16 bits, within 0.17 units of float16's last place; -inf gives -0.
TX_INLINE float tx_gelu_16(float x) {
  const float t = tx_fmin(fabsf(x), 12.0f);
  float p = fmaf(fmaf(-3.2987890e-4f, t, 5.9159165e-3f), t, -4.8527450e-2f);
  p = fmaf(fmaf(fmaf(p, t, -4.6373237e-1f), t, -1.1493652f), t, -1.0001132f);
  return fmaf(-t, tx_exp2(p), fmaxf(x, 0.0f));
}
// For results of 16 bits: e to the power of x, within 2 units of float32's last place and |x| / 2^24 of it.
TX_INLINE float tx_exp_16(float x) { return tx_exp2(1.44269504f * x); }
// 1 / (1 + exp(x)) by two instructions of the special function unit, where an exact division takes a dozen of others;
// 0 where the exponential is more than 2^126.
TX_INLINE float tx_logistic_16(float x) { return tx_reciprocal(1.0f + tx_exp_16(x)); }
// The hyperbolic tangent, 1 - 2 / (1 + exp(2 x)), within 1.2e-7; near 0, where that cancels, x - x^3 / 3, within 2e-8 of it.
TX_INLINE float tx_tanh_16(float x) {
  const float near = fmaf(-0.33333333f * x * x, x, x);
  return tx_pick(fabsf(x) < 0.02f, near, fmaf(-2.0f, tx_logistic_16(2.0f * x), 1.0f));
}
