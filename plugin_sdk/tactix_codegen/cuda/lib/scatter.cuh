// Changes that many threads may make to one element: f(bits) gives its new bits.
template <class T, class F>
TX_INLINE void tx_change(T* p, F f) {
  T seen, was = *(volatile T*)p;
  do {
    seen = was;
    was = atomicCAS(p, seen, (T)f(seen));
  } while (was != seen);
}
