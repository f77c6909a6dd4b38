/* Discrete Fourier transforms of any length n, of a batch of signals side by side.

   A signal's elements lie `batch` apart, so that inner loops run over neighbours. Stockham's scheme: in every step a factor
   r of what is left of n is taken, by butterflies for 2 and 4 and by the sum itself for other primes; results come out in
   order. The work is n log n for lengths of small primes, and n times the largest prime factor at worst.

   w: n pairs cos and -sin of 2 pi i / n. */

#define TX_FOURIER(real)                                                                                                \
    typedef struct {                                                                                                    \
        real *re, *im;                                                                                                  \
    } tx_parts_##real;                                                                                                  \
    TX_INLINE void tx_sum_##real(tx_parts_##real y, tx_parts_##real x, const real* w, int64_t n, int64_t r,             \
                                 int64_t left, int64_t s, int64_t jump) {                                               \
        /* Column j of block p is the sum over k of x[p + left k] to the power of j (k n / r + p jump). */             \
        for (int64_t p = 0; p < left; p++)                                                                              \
            for (int64_t j = 0; j < r; j++) {                                                                           \
                real* restrict const re = y.re + s * (r * p + j);                                                       \
                real* restrict const im = y.im + s * (r * p + j);                                                       \
                for (int64_t q = 0; q < s; q++) re[q] = im[q] = 0;                                                      \
                for (int64_t k = 0; k < r; k++) {                                                                       \
                    const int64_t turn = j * (k * (n / r) + p * jump) % n;                                              \
                    const real c = w[2 * turn], d = w[2 * turn + 1];                                                    \
                    const real* const a = x.re + s * (p + left * k);                                                    \
                    const real* const b = x.im + s * (p + left * k);                                                    \
                    for (int64_t q = 0; q < s; q++) {                                                                   \
                        re[q] += a[q] * c - b[q] * d;                                                                   \
                        im[q] += a[q] * d + b[q] * c;                                                                   \
                    }                                                                                                   \
                }                                                                                                       \
            }                                                                                                           \
    }                                                                                                                   \
    TX_INLINE void tx_by2_##real(tx_parts_##real y, tx_parts_##real x, const real* w, int64_t left, int64_t s,          \
                                 int64_t jump) {                                                                        \
        for (int64_t p = 0; p < left; p++) {                                                                            \
            const real c = w[2 * p * jump], d = w[2 * p * jump + 1];                                                    \
            const real* const a = x.re + s * p;                                                                         \
            const real* const b = x.im + s * p;                                                                         \
            real* restrict const re = y.re + 2 * s * p;                                                                 \
            real* restrict const im = y.im + 2 * s * p;                                                                 \
            for (int64_t q = 0; q < s; q++) {                                                                           \
                const real e = a[q] - a[q + s * left], f = b[q] - b[q + s * left];                                      \
                re[q] = a[q] + a[q + s * left];                                                                         \
                im[q] = b[q] + b[q + s * left];                                                                         \
                re[q + s] = e * c - f * d;                                                                              \
                im[q + s] = e * d + f * c;                                                                              \
            }                                                                                                           \
        }                                                                                                               \
    }                                                                                                                   \
    TX_INLINE void tx_by4_##real(tx_parts_##real y, tx_parts_##real x, const real* w, int64_t left, int64_t s,          \
                                 int64_t jump) {                                                                        \
        const int64_t h = s * left;                                                                                     \
        for (int64_t p = 0; p < left; p++) {                                                                            \
            const real* const w1 = w + 2 * p * jump;                                                                    \
            const real* const w2 = w + 4 * p * jump;                                                                    \
            const real* const w3 = w + 6 * p * jump;                                                                    \
            const real* const a = x.re + s * p;                                                                         \
            const real* const b = x.im + s * p;                                                                         \
            real* restrict const re = y.re + 4 * s * p;                                                                 \
            real* restrict const im = y.im + 4 * s * p;                                                                 \
            for (int64_t q = 0; q < s; q++) {                                                                           \
                const real sr = a[q] + a[q + 2 * h], si = b[q] + b[q + 2 * h];                                          \
                const real dr = a[q] - a[q + 2 * h], di = b[q] - b[q + 2 * h];                                          \
                const real tr = a[q + h] + a[q + 3 * h], ti = b[q + h] + b[q + 3 * h];                                  \
                const real ur = a[q + h] - a[q + 3 * h], ui = b[q + h] - b[q + 3 * h];                                  \
                const real r1 = dr + ui, i1 = di - ur, r2 = sr - tr, i2 = si - ti, r3 = dr - ui, i3 = di + ur;          \
                re[q] = sr + tr;                                                                                        \
                im[q] = si + ti;                                                                                        \
                re[q + s] = r1 * w1[0] - i1 * w1[1];                                                                    \
                im[q + s] = r1 * w1[1] + i1 * w1[0];                                                                    \
                re[q + 2 * s] = r2 * w2[0] - i2 * w2[1];                                                                \
                im[q + 2 * s] = r2 * w2[1] + i2 * w2[0];                                                                \
                re[q + 3 * s] = r3 * w3[0] - i3 * w3[1];                                                                \
                im[q + 3 * s] = r3 * w3[1] + i3 * w3[0];                                                                \
            }                                                                                                           \
        }                                                                                                               \
    }                                                                                                                   \
    /* The turns w of a length, for kernels that learn it when they run. */                                   \
    TX_RARE void tx_turns_##real(real* w, int64_t n) {                                                                  \
        for (int64_t i = 0; i < n; i++) {                                                                               \
            const double angle = 6.283185307179586476925 * (double)i / (double)n;                                       \
            w[2 * i] = (real)cos(angle);                                                                                \
            w[2 * i + 1] = (real)-sin(angle);                                                                           \
        }                                                                                                               \
    }                                                                                                                   \
    /* The transforms of x, in x or in y, whichever is returned; the other is overwritten. */                          \
    TX_RARE tx_parts_##real tx_fourier_##real(tx_parts_##real x, tx_parts_##real y, const real* w, int64_t n,           \
                                              int64_t batch) {                                                          \
        int64_t s = batch, jump = 1;                                                                                    \
        for (int64_t left = n; left > 1;) {                                                                             \
            int64_t r = left % 4 == 0 ? 4 : left % 2 == 0 ? 2 : 3;                                                      \
            while (left % r != 0) r = r * r > left ? left : r + 2;                                                      \
            left /= r;                                                                                                  \
            if (r == 4)                                                                                                 \
                tx_by4_##real(y, x, w, left, s, jump);                                                                  \
            else if (r == 2)                                                                                            \
                tx_by2_##real(y, x, w, left, s, jump);                                                                  \
            else                                                                                                        \
                tx_sum_##real(y, x, w, n, r, left, s, jump);                                                            \
            const tx_parts_##real other = x;                                                                            \
            x = y;                                                                                                      \
            y = other;                                                                                                  \
            s *= r;                                                                                                     \
            jump *= r;                                                                                                  \
        }                                                                                                               \
        return x;                                                                                                       \
    }

TX_FOURIER(double)
