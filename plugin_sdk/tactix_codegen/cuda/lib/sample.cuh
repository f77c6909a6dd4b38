// Places between elements of an axis, as GridSample reads them.
TX_INLINE float tx_reflect(float x, float low, float high) {
  const float span = high - low;
  if (span <= 0.0f) return 0.0f;
  float t = fmodf(x - low, 2.0f * span);
  t = t < 0.0f ? t + 2.0f * span : t;
  return low + (t > span ? 2.0f * span - t : t);
}
TX_INLINE float tx_within(float x, float high) { return x < 0.0f ? 0.0f : x > high ? high : x; }

// The TAPS (1: nearest, 2: linear, 4: cubic) elements around coordinate u of [-1, 1], and their weights.
// PAD 0: nothing beyond the ends, 1: the outermost element, 2: mirrored. ALIGN: -1 and 1 are centres of elements.
template <int TAPS, int PAD, bool ALIGN>
TX_INLINE void tx_taps(float u, int64_t size, int64_t (&p)[TAPS], float (&w)[TAPS]) {
  const float last = (float)size - 1.0f, low = ALIGN ? 0.0f : -0.5f, high = ALIGN ? last : last + 0.5f;
  float x = ALIGN ? (u + 1.0f) / 2.0f * last : ((u + 1.0f) * (float)size - 1.0f) / 2.0f;
  if (PAD == 1 && TAPS != 4) x = tx_within(x, last);
  if (PAD == 2 && TAPS != 4) x = tx_within(tx_reflect(x, low, high), last);
  const float base = TAPS == 1 ? rintf(x) : floorf(x);
#pragma unroll
  for (int i = 0; i < TAPS; i++) {
    float at = base + (TAPS == 4 ? (float)(i - 1) : (float)i);
    if (TAPS == 1) w[i] = 1.0f;
    if (TAPS == 2) w[i] = i ? x - base : 1.0f - (x - base);
    if (TAPS == 4) {
      const float a = -0.75f, t = fabsf(x - at);
      w[i] = t <= 1.0f ? ((a + 2.0f) * t - (a + 3.0f)) * t * t + 1.0f : a * (((t - 5.0f) * t + 8.0f) * t - 4.0f);
    }
    if (PAD == 0 && !(at >= 0.0f && at <= last)) w[i] = 0.0f;
    if (PAD == 2) at = tx_reflect(at, low, high);
    p[i] = (int64_t)tx_within(at, last);
  }
}

// The element of an axis of so many that is nearest to a place.
TX_INLINE int64_t tx_element(double place, int64_t size) {
  return place > 0.0 ? (place < (double)(size - 1) ? (int64_t)place : size - 1) : 0;
}

// The TAPS (2: linear, 4: cubic with coefficient a) elements around place x, and their weights, as Resize has them.
// INSIDE: those beyond the ends get no weight; otherwise the outermost element stands for them.
template <int TAPS, bool INSIDE>
TX_INLINE void tx_resize_taps(double x, int64_t size, double a, int64_t (&p)[TAPS], float (&w)[TAPS]) {
  const double base = floor(x) - (TAPS == 4 ? 1.0 : 0.0);
  double shares[TAPS], sum = 0.0;
#pragma unroll
  for (int i = 0; i < TAPS; i++) {
    const double at = base + i, t = fabs(at - x);
    double s = TAPS == 2 ? 1.0 - t : t <= 1.0 ? ((a + 2.0) * t - (a + 3.0)) * t * t + 1.0
                                              : a * (((t - 5.0) * t + 8.0) * t - 4.0);
    if (INSIDE && !(at >= 0.0 && at < (double)size)) s = 0.0;
    p[i] = tx_element(at, size);
    sum += shares[i] = s;
  }
#pragma unroll
  for (int i = 0; i < TAPS; i++) w[i] = (float)(shares[i] / sum);
}
