/* Reading between the elements of an axis. */

/* p[at[0]], p[at[1]], ...: one element for each lane. */
TX_INLINE vf tx_gather_f32(const float* p, vi at) {
#if TX_512
    return (vf)_mm512_i32gather_ps((__m512i)at, p, 4);
#elif TX_256
    return (vf)_mm256_i32gather_ps(p, (__m256i)at, 4);
#else
    vf v;
    for (int l = 0; l < TX_LANES; l++) v[l] = p[at[l]];
    return v;
#endif
}
/* The same of 16-bit floats. */
#define TX_GATHER_HALF(name)                                        \
    TX_INLINE vf tx_gather_##name(const uint16_t* p, vi at) {       \
        uint16_t v[TX_LANES];                                       \
        for (int l = 0; l < TX_LANES; l++) v[l] = p[at[l]];         \
        return tx_load_##name(v);                                   \
    }
TX_GATHER_HALF(f16)
TX_GATHER_HALF(bf16)
/* The first lanes, each so many times. */
#ifdef __clang__
#define TX_PICK(x, from, y) for (int l = 0; l < TX_LANES; l++) y[l] = x[from[l]]
#else
#define TX_PICK(x, from, y) y = __builtin_shuffle(x, from)
#endif
#define TX_REPEAT(times)                                         \
    TX_INLINE vi tx_repeat_##times(vi x) {                      \
        vi from, y;                                             \
        for (int l = 0; l < TX_LANES; l++) from[l] = l / times; \
        TX_PICK(x, from, y);                                    \
        return y;                                               \
    }
TX_REPEAT(2)
TX_REPEAT(4)
/* What an element x adds to a sum, of which it is the share w: nothing where that is 0, even if it is NaN or infinite. */
TX_INLINE vf tx_part_f32(vf w, vf x) { return w * tx_select(tx_eq(w, tx_zero()), tx_zero(), x); }
TX_INLINE double tx_part_f64(double w, double x) { return w == 0.0 ? 0.0 : w * x; }
/* The nearest integer, of a sum that is taken for half-way between two where it is within 2^-21 of that. */
TX_INLINE double tx_whole(double x) { return rint(rint(x * 0x1p20) * 0x1p-20); }

/* How much an element t places away weighs. radius 1: linear, 2: cubic with coefficient a. */
TX_INLINE double tx_resize_share(double t, int radius, double a) {
    return radius == 1 ? (t < 1.0 ? 1.0 - t : 0.0)
           : t <= 1.0  ? ((a + 2.0) * t - (a + 3.0)) * t * t + 1.0
           : t < 2.0   ? a * (((t - 5.0) * t + 8.0) * t - 4.0)
                       : 0.0;
}
/* Elements around a place that weigh anything where the kernel is 1 / shrink times as wide. */
TX_INLINE int64_t tx_resize_reach(int radius, double shrink) {
    return 2 * (int64_t)tx_between(ceil(radius / shrink), 1.0, 0x1p40);
}
/* The weights of count elements from *first on: at w[0], w[step], ..., of which reach around place x weigh anything.
   shrink: how much wider than one element the kernel is, as a factor of at most 1. Elements beyond the ends have no
   weight if inside, otherwise the outermost one stands for them. */
#define TX_RESIZE_WEIGHTS(name, type)                                                                                 \
    TX_INLINE void tx_resize_weights_##name(double x, int64_t size, int64_t count, int64_t reach, int radius,          \
                                            double a, double shrink, int inside, int32_t* first, type* w,              \
                                            int64_t step) {                                                            \
        const double base = floor(x) - (double)(reach / 2 - 1), room = (double)(size > count ? size - count : 0);      \
        const int64_t begin = (int64_t)tx_between(base, 0.0, room), last = size - 1;                                   \
        double low = 0.0, high = 0.0, sum = 0.0; /* of the elements at both ends, and of all */                        \
        for (int64_t k = 0; k < reach; k++) {                                                                          \
            const double at = base + (double)k, s = tx_resize_share(fabs(at - x) * shrink, radius, a);                 \
            if (inside && !(at >= 0.0 && at < (double)size)) continue;                                                 \
            sum += s;                                                                                                  \
            if (at <= 0.0) low += s;                                                                                   \
            else if (at >= (double)last) high += s;                                                                    \
        }                                                                                                              \
        for (int64_t k = 0; k < count; k++) {                                                                          \
            const int64_t at = begin + k;                                                                              \
            double s = tx_resize_share(fabs((double)at - x) * shrink, radius, a);                                      \
            if (at == 0) s = last ? low : low + high;                                                                  \
            else if (at >= last) s = at == last ? high : 0.0;                                                          \
            w[k * step] = (type)(s / sum);                                                                             \
        }                                                                                                              \
        *first = (int32_t)begin;                                                                                       \
    }
TX_RESIZE_WEIGHTS(f32, float)
TX_RESIZE_WEIGHTS(f64, double)

/* Mirrored at both ends until it lies between them. */
TX_INLINE double tx_mirrored(double x, double low, double high) {
    const double span = high - low, turn = 2.0 * span;
    if (!(span > 0.0)) return 0.0;
    double t = x - low - floor((x - low) / turn) * turn;
    t = t < 0.0 ? t + turn : t;
    return low + (t > span ? turn - t : t);
}

/* The elements around coordinate u of [-1, 1] along an axis, taps of them (1: nearest, 2: linear, 4: cubic), and their
   weights. pad 0: nothing beyond the ends, 1: the outermost element, 2: mirrored. align: -1 and 1 are centres. */
TX_INLINE void tx_grid_taps(double u, int64_t elements, int taps, int pad, int align, int32_t* p, double* w) {
    const double size = (double)elements, last = size - 1.0, a = -0.75;
    const double low = align ? 0.0 : -0.5, high = align ? last : last + 0.5;
    double x = align ? (u + 1.0) / 2.0 * last : ((u + 1.0) * size - 1.0) / 2.0;
    if (pad == 1 && taps != 4) x = tx_between(x, 0.0, last);
    if (pad == 2 && taps != 4) x = tx_between(tx_mirrored(x, low, high), 0.0, last);
    const double base = taps == 1 ? rint(x) : floor(x) - (taps == 4);
    for (int k = 0; k < taps; k++) {
        double at = base + k;
        const double t = fabs(x - at);
        double s = taps == 1 ? 1.0 : taps == 2 ? (k ? x - base : 1.0 - (x - base))
                   : t <= 1.0  ? ((a + 2.0) * t - (a + 3.0)) * t * t + 1.0
                               : a * (((t - 5.0) * t + 8.0) * t - 4.0);
        if (pad == 0) s = at >= 0.0 && at < size ? s : 0.0;
        if (pad == 2) at = tx_mirrored(at, low, high);
        w[k] = s;
        p[k] = (int32_t)tx_between(at, 0.0, last);
    }
}

/* The four elements around a place of an image, and their weights times share: 0 beyond its ends. */
TX_INLINE void tx_bilinear(double row, double column, int64_t height, int64_t width, double share, int32_t* at,
                           double* of) {
    const double top = floor(row), left = floor(column), down = row - top, right = column - left;
    for (int k = 0; k < 4; k++) {
        const double r = top + k / 2, c = left + k % 2;
        const double w = (k / 2 ? down : 1.0 - down) * (k % 2 ? right : 1.0 - right);
        const int inside = r >= 0.0 && r < (double)height && c >= 0.0 && c < (double)width;
        of[k] = inside ? w * share : 0.0;
        at[k] = (int32_t)tx_between(r, 0.0, (double)(height - 1)) * (int32_t)width
                + (int32_t)tx_between(c, 0.0, (double)(width - 1));
    }
}
