/* Discrete Fourier transforms of any length n, of a batch of signals side by side.

   A signal's elements lie `batch` apart, so that inner loops run over neighbours. Stockham's scheme: in every step a factor
   r of what is left of n is taken, by butterflies for 2 and 4 and by the sum itself for other primes; results come out in
   order. The work is n times the sum of these factors.

   A length with a prime factor over TX_LONGEST_SUM is done by Bluestein's scheme: as jk = (j^2 + k^2 - (k - j)^2) / 2, the
   transform is a convolution with the chirp of n, the roots to the power of k^2 / 2, between two products by it. The
   convolution is one of transforms whose length m is a power of two, so that the work is m log m.

   w: of a length m, m pairs cos and -sin of 2 pi i / m; for a chirp of n then the n pairs cos and -sin of pi k^2 / n, and
   the m pairs of the transform of what is convolved with, divided by m. */

enum { TX_LONGEST_SUM = 100 };

/* The length of the transforms that one of n elements takes: n, or what the convolution with a chirp needs. */
TX_RARE int64_t tx_inner_length(int64_t n) {
    int64_t left = n, m = 1;
    for (int64_t r = 2; left > TX_LONGEST_SUM && r <= TX_LONGEST_SUM;)
        if (left % r == 0)
            left /= r;
        else
            r++;
    if (left <= TX_LONGEST_SUM) return n;
    while (m < 2 * n - 1) m *= 2;
    return m;
}

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
    }                                                                                                                   \
    /* x times the turns w, row by row of `batch` signals. */                                                           \
    TX_INLINE void tx_turned_##real(tx_parts_##real x, const real* w, int64_t rows, int64_t batch) {                    \
        for (int64_t t = 0; t < rows; t++) {                                                                            \
            const real c = w[2 * t], d = w[2 * t + 1];                                                                  \
            real* restrict const re = x.re + t * batch;                                                                 \
            real* restrict const im = x.im + t * batch;                                                                 \
            for (int64_t q = 0; q < batch; q++) {                                                                       \
                const real a = re[q], b = im[q];                                                                        \
                re[q] = a * c - b * d;                                                                                  \
                im[q] = a * d + b * c;                                                                                  \
            }                                                                                                           \
        }                                                                                                               \
    }                                                                                                                   \
    /* As tx_fourier, of a length n by a chirp and transforms of length m. */                                           \
    TX_RARE tx_parts_##real tx_chirped_##real(tx_parts_##real x, tx_parts_##real y, const real* w, int64_t n, int64_t m,\
                                              int64_t batch) {                                                          \
        const real* const chirp = w + 2 * m;                                                                            \
        const real* const kernel = chirp + 2 * n;                                                                       \
        tx_turned_##real(x, chirp, n, batch);                                                                           \
        memset(x.re + n * batch, 0, (m - n) * batch * sizeof(real));                                                    \
        memset(x.im + n * batch, 0, (m - n) * batch * sizeof(real));                                                    \
        const tx_parts_##real there = tx_fourier_##real(x, y, w, m, batch);                                             \
        const tx_parts_##real other = there.re == x.re ? y : x;                                                         \
        tx_turned_##real(there, kernel, m, batch);                                                                      \
        /* Back: with real and imaginary parts swapped a transform is its inverse, but for the factor m. */             \
        const tx_parts_##real from = {there.im, there.re}, spare = {other.im, other.re};                                \
        const tx_parts_##real back = tx_fourier_##real(from, spare, w, m, batch);                                       \
        const tx_parts_##real z = {back.im, back.re};                                                                   \
        tx_turned_##real(z, chirp, n, batch);                                                                           \
        return z;                                                                                                       \
    }                                                                                                                   \
    /* As tx_fourier, of any length n; m is its inner length. */                                                        \
    TX_INLINE tx_parts_##real tx_transform_##real(tx_parts_##real x, tx_parts_##real y, const real* w, int64_t n, int64_t m,\
                                                  int64_t batch) {                                                      \
        return m == n ? tx_fourier_##real(x, y, w, n, batch) : tx_chirped_##real(x, y, w, n, m, batch);                 \
    }                                                                                                                   \
    /* Makes w, for kernels that learn the length when they run; x and y are room for one signal. */                    \
    TX_RARE void tx_turns_##real(real* w, int64_t n, int64_t m, tx_parts_##real x, tx_parts_##real y) {                 \
        real* const chirp = w + 2 * m;                                                                                  \
        real* const kernel = chirp + 2 * n;                                                                             \
        for (int64_t i = 0; i < m; i++) {                                                                               \
            const double angle = 6.283185307179586476925 * (double)i / (double)m;                                       \
            w[2 * i] = (real)cos(angle);                                                                                \
            w[2 * i + 1] = (real)-sin(angle);                                                                           \
        }                                                                                                               \
        if (m == n) return;                                                                                             \
        memset(x.re, 0, m * sizeof(real));                                                                              \
        memset(x.im, 0, m * sizeof(real));                                                                              \
        for (int64_t k = 0, square = 0; k < n; k++) {                                                                   \
            /* k^2 in its period 2 n: angles of whole turns would cost precision. */                                    \
            const double angle = 3.141592653589793238463 * (double)square / (double)n;                                  \
            square = (square + 2 * k + 1) % (2 * n);                                                                    \
            chirp[2 * k] = (real)cos(angle);                                                                            \
            chirp[2 * k + 1] = (real)-sin(angle);                                                                       \
            x.re[k] = x.re[(m - k) % m] = chirp[2 * k] / (real)m;                                                       \
            x.im[k] = x.im[(m - k) % m] = -chirp[2 * k + 1] / (real)m;                                                  \
        }                                                                                                               \
        const tx_parts_##real z = tx_fourier_##real(x, y, w, m, 1);                                                     \
        for (int64_t i = 0; i < m; i++) {                                                                               \
            kernel[2 * i] = z.re[i];                                                                                    \
            kernel[2 * i + 1] = z.im[i];                                                                                \
        }                                                                                                               \
    }

TX_FOURIER(double)
