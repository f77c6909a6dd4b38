// Where an axis of n elements is read for place i, which may lie before its first element or behind its last one.
// Nothing is to be read of an axis without elements.
template <class T>
TX_INLINE T tx_pad_edge(T i, T n) {
  return i < 0 ? 0 : i < n ? i : n - 1;
}

template <class T>
TX_INLINE T tx_pad_wrap(T i, T n) {
  if (n <= 1) return 0;
  const T r = i % n;
  return r < 0 ? r + n : r;
}

// Mirrored at the outermost elements, which stand once: there and back again every 2 (n - 1) places.
template <class T>
TX_INLINE T tx_pad_reflect(T i, T n) {
  if (n <= 1) return 0;
  const T period = 2 * (n - 1), r = tx_pad_wrap(i, period);
  return r < n ? r : period - r;
}
