// Loads and stores of V neighbouring floats of 8 bits as float32; pointers are aligned to V elements.
#define TX_FP8(name)                                                                                           \
  TX_INLINE uint8_t tx_to_##name(float x) { return (uint8_t)tx_pair_##name(x, 0.0f); }                         \
  template <int V>                                                                                             \
  TX_INLINE void tx_load_##name(float* x, const uint8_t* p) {                                                  \
    const tx_pack<uint8_t, V> s = *(const tx_pack<uint8_t, V>*)p;                                              \
    _Pragma("unroll") for (int k = 0; k < V; k++) x[k] = tx_from_##name(s.v[k]);                               \
  }                                                                                                            \
  template <int V>                                                                                             \
  TX_INLINE void tx_store_##name(uint8_t* p, const float* x) {                                                 \
    if constexpr (V == 1) {                                                                                    \
      *p = tx_to_##name(x[0]);                                                                                 \
    } else {                                                                                                   \
      tx_pack<uint16_t, V / 2> s;                                                                              \
      _Pragma("unroll") for (int k = 0; k < V / 2; k++) s.v[k] = (uint16_t)tx_pair_##name(x[2 * k], x[2 * k + 1]); \
      *(tx_pack<uint16_t, V / 2>*)p = s;                                                                       \
    }                                                                                                          \
  }
TX_FP8(f8e4m3)
TX_FP8(f8e5m2)
