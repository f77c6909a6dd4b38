/* Functions of vf. NaN in gives NaN out, infinities and subnormals are handled; errors are within 4 units in the last
   place, or 1.2e-7 absolute for erf, sin and cos.

   exp, expm1: x = n ln 2 + r after Cody and Waite (Software Manual for the Elementary Functions, 1980), own minimax
   polynomial in r. log, functions of angles, hyperbolic ones and their inverses: polynomials of Cephes (S. Moshier,
   single precision). erf: own minimax fits, erfc as 2 to a polynomial. */

#define TX_LN2_HI 0.693359375f
#define TX_LN2_LO -2.12194440e-4f
#define TX_LOG2E 1.44269504088896341f

#define TX_LANEWISE1(name, f)                                    \
    TX_RARE vf name(vf x) {                                      \
        for (int l = 0; l < TX_LANES; l++) x[l] = f(x[l]);       \
        return x;                                                \
    }
#define TX_LANEWISE2(name, f)                                    \
    TX_RARE vf name(vf x, vf y) {                                \
        for (int l = 0; l < TX_LANES; l++) x[l] = f(x[l], y[l]); \
        return x;                                                \
    }

#if TX_512
#define TX_ROUND_TO(x, mode) ((vf)_mm512_roundscale_ps((__m512)(x), mode))
#elif TX_256
#define TX_ROUND_TO(x, mode) ((vf)_mm256_round_ps((__m256)(x), mode))
#elif TX_128
#define TX_ROUND_TO(x, mode) ((vf)_mm_round_ps((__m128)(x), mode))
#endif
#ifdef TX_ROUND_TO
TX_INLINE vf tx_round(vf x) { return TX_ROUND_TO(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
TX_INLINE vf tx_floor(vf x) { return TX_ROUND_TO(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
TX_INLINE vf tx_ceil(vf x) { return TX_ROUND_TO(x, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC); }
TX_INLINE vf tx_trunc(vf x) { return TX_ROUND_TO(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }
#elif TX_NEON
TX_INLINE vf tx_round(vf x) { return (vf)vrndnq_f32((float32x4_t)x); }
TX_INLINE vf tx_floor(vf x) { return (vf)vrndmq_f32((float32x4_t)x); }
TX_INLINE vf tx_ceil(vf x) { return (vf)vrndpq_f32((float32x4_t)x); }
TX_INLINE vf tx_trunc(vf x) { return (vf)vrndq_f32((float32x4_t)x); }
#else
TX_LANEWISE1(tx_round, rintf)
TX_LANEWISE1(tx_floor, floorf)
TX_LANEWISE1(tx_ceil, ceilf)
TX_LANEWISE1(tx_trunc, truncf)
#endif

TX_INLINE vf tx_sqrt(vf x) {
#if TX_512
    return (vf)_mm512_sqrt_ps((__m512)x);
#elif TX_256
    return (vf)_mm256_sqrt_ps((__m256)x);
#elif TX_128
    return (vf)_mm_sqrt_ps((__m128)x);
#elif TX_NEON
    return (vf)vsqrtq_f32((float32x4_t)x);
#else
    for (int l = 0; l < TX_LANES; l++) x[l] = sqrtf(x[l]);
    return x;
#endif
}
TX_INLINE vf tx_rsqrt(vf x) { return 1.0f / tx_sqrt(x); }
TX_INLINE vf tx_abs(vf x) { return (vf)((vi)x & 0x7fffffff); }
TX_INLINE vf tx_neg(vf x) { return (vf)((vu)x ^ 0x80000000u); }
TX_INLINE vf tx_copysign(vf x, vf sign) { return (vf)(((vi)x & 0x7fffffff) | (vi)((vu)sign & 0x80000000u)); }
TX_INLINE vm tx_isinf(vf x) { return tx_eq(tx_abs(x), tx_splat(__builtin_inff())); }

/* p 2^n for integral n in [-252, 254]; otherwise in two halves, so that the result may be subnormal or infinite. */
TX_INLINE vf tx_ldexp(vf p, vf n) {
#if TX_512
    return (vf)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
    const vi whole = tx_to_i(n), half = whole >> 1;
    return p * (vf)((half + 127) << 23) * (vf)((whole - half + 127) << 23);
#endif
}

/* expm1(r) for |r| <= ln 2 / 2. */
TX_INLINE vf tx_expm1_small(vf r) {
    const vf p = (((0x1.6d99bep-10f * r + 0x1.12288p-7f) * r + 0x1.555486p-5f) * r + 0x1.5554aep-3f) * r + 0.5f;
    return (r * r) * p + r;
}
TX_INLINE vf tx_reduce_exp(vf x, vf* n) {
    *n = tx_round(x * TX_LOG2E);
    return (x - *n * TX_LN2_HI) - *n * TX_LN2_LO;
}
/* exp for x <= 88. */
TX_INLINE vf tx_exp_low(vf x) {
    vf n;
    const vf r = tx_reduce_exp(tx_max_c(x, tx_splat(-105.0f)), &n);
    return tx_ldexp(tx_expm1_small(r) + 1.0f, n);
}
/* 2^(t - floor(t)), within 2 units in the last place. */
TX_INLINE vf tx_exp2_mantissa(vf t) {
#if TX_512
    const vf f = (vf)_mm512_reduce_ps((__m512)t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
#else
    const vf f = t - tx_floor(t);
#endif
    const vf p = (0x1.e974fcp-10f * f + 0x1.277854p-7f) * f + 0x1.c91ce6p-5f;
    return ((p * f + 0x1.ebdb56p-3f) * f + 0x1.62e4bap-1f) * f + 1.0f;
}
/* 2^t, within 2 units in the last place of t given exactly: for where the error of t = x log2(e) does no harm. */
TX_INLINE vf tx_exp2(vf t) {
#if TX_512
    return (vf)_mm512_scalef_ps((__m512)tx_exp2_mantissa(t), (__m512)t); /* takes the floor of t */
#else
    t = tx_min_c(tx_max_c(t, tx_splat(-160.0f)), tx_splat(129.0f));
    return tx_ldexp(tx_exp2_mantissa(t), tx_floor(t));
#endif
}
/* The same, but where it is subnormal some number between 0 and the least normal one: where only a general power takes
 * two factors, its exponent is added to the mantissa's bits. At -127 these are 0, at 128 infinity's. */
TX_INLINE vf tx_exp2_flush(vf t) {
#if TX_512
    return tx_exp2(t);
#else
    t = tx_min_c(tx_max_c(t, tx_splat(-127.0f)), tx_splat(128.0f));
    return (vf)((vu)tx_exp2_mantissa(t) + ((vu)tx_to_i(tx_floor(t)) << 23));
#endif
}
/* 2^t as tx_exp2, 0 where that is subnormal: for weights that are added to 1, which they cannot change, and multiplied,
 * for which x86 takes more than a hundred cycles where a factor is subnormal (Agner Fog, The microarchitecture of Intel,
 * AMD and VIA CPUs). */
#define TX_LEAST_POWER -126.0f
#if TX_512
#define TX_WEIGHT(mantissa, t)                                                                                       \
    (vf)_mm512_maskz_scalef_ps(_mm512_cmp_ps_mask((__m512)(t), _mm512_set1_ps(TX_LEAST_POWER), _CMP_NLT_UQ),         \
                               (__m512)(mantissa), (__m512)(t)) /* NaN is not less */
TX_INLINE vf tx_weight(vf t) { return TX_WEIGHT(tx_exp2_mantissa(t), t); }
#else
TX_INLINE vf tx_weight(vf t) {
    const vf y = tx_exp2_flush(t);
    return tx_select(tx_lt(t, tx_splat(TX_LEAST_POWER)), tx_zero(), y);
}
#endif
TX_INLINE vf tx_exp(vf x) { return tx_exp_low(tx_min_c(x, tx_splat(89.0f))); }
TX_INLINE vf tx_expm1(vf x) {
    vf n;
    const vf r = tx_reduce_exp(tx_min_c(tx_max_c(x, tx_splat(-25.0f)), tx_splat(89.0f)), &n);
    const vf half = tx_ldexp(tx_splat(0.5f), n); /* 2^(n-1), finite for every n */
    return 2.0f * (half * tx_expm1_small(r) + (half - 0.5f));
}

TX_INLINE vf tx_log(vf x) {
    const vm tiny = tx_lt(x, tx_splat(0x1p-126f));
    const vi bits = (vi)tx_select(tiny, x * 0x1p23f, x);
    const vi e = (bits - 0x3f3504f3) >> 23; /* mantissa in [sqrt(1/2), sqrt(2)) */
    const vf n = tx_to_f(tx_select_i(tiny, e - 23, e));
    const vf f = (vf)(bits - (vi)((vu)e << 23)) - 1.0f, z = f * f;
    vf p = (((7.0376836292e-2f * f - 1.1514610310e-1f) * f + 1.1676998740e-1f) * f - 1.2420140846e-1f) * f;
    p = ((((p + 1.4249322787e-1f) * f - 1.6668057665e-1f) * f + 2.0000714765e-1f) * f - 2.4999993993e-1f) * f;
    const vf tail = (p + 3.3333331174e-1f) * f * z + n * TX_LN2_LO - 0.5f * z;
    const vf inf = tx_splat(__builtin_inff());
    vf y = n * TX_LN2_HI + (f + tail);
    y = tx_select(tx_lt(x, inf), y, x);
    y = tx_select(tx_le(x, tx_zero()), tx_select(tx_eq(x, tx_zero()), -inf, tx_splat(__builtin_nanf(""))), y);
    return y;
}
/* log(1 + x): the rounding of u = 1 + x is made good by (x - (u - 1)) / u. */
TX_INLINE vf tx_log1p(vf x) {
    const vf u = 1.0f + x, lost = x - (u - 1.0f);
    const vf y = tx_log(u) + lost / u;
    const vm plain = tx_lt(tx_zero(), u) & tx_lt(u, tx_splat(__builtin_inff()));
    return tx_select(plain, y, tx_log(u));
}

/* Odd functions that end at 1 as quotients of x and polynomials of x^2, fitted by least squares whose weights make the
 * largest relative error smallest, up to where the function rounds to 1. */
TX_INLINE vf tx_within_1(vf y) { return tx_min_c(tx_max_c(y, tx_splat(-1.0f)), tx_splat(1.0f)); }
/* 2t / (1 + t^2) of t = tanh(x/2), which is m / (2 + 2e): an error of t counts the less the nearer it is to 1, and one of d,
 * 4 + 4e, hardly where x is small. Relative error of the fit 7.5e-9, of the result 2.8e-7; less than 4 units in the last
 * place for every x, fused or not. */
TX_INLINE vf tx_tanh(vf x) {
    x = tx_min_c(tx_max_c(x, tx_splat(-9.02f)), tx_splat(9.02f));
    const vf z = x * x;
    const vf m = x * z * (1.1427031e-4f * z + 2.9774571e-2f) + x; /* no term is rounded with 1 */
    const vf e = ((1.2293435e-6f * z + 1.2066293e-3f) * z + 1.1310787e-1f) * z, d = 4.0f * e + 4.0f;
    return tx_within_1(m * d / (e * d + (m * m + d)));
}
/* 1 / d for d >= 1, infinity and NaN: a table look-up and one step of Newton's method take half a division's time. */
TX_INLINE vf tx_invert(vf d) {
#if TX_512
    const __m512 r = _mm512_rcp14_ps((__m512)d), e = _mm512_fnmadd_ps((__m512)d, r, _mm512_set1_ps(1.0f));
    return (vf)_mm512_mask_fmadd_ps(r, tx_lt(d, tx_splat(__builtin_inff())), e, r);
#else
    return 1.0f / d;
#endif
}
TX_INLINE vf tx_sigmoid(vf x) { return tx_invert(1.0f + tx_exp2_flush(x * -TX_LOG2E)); }

/* erfc(a) for a >= 0, within 1.2e-7 absolute. */
TX_INLINE vf tx_erfc_positive(vf a) {
    vf p = ((-3.2376067e-7f * a + 8.7015860e-6f) * a - 9.6791620e-5f) * a + 5.6014291e-4f;
    p = ((p * a - 1.5611660e-3f) * a - 8.7517983e-4f) * a + 2.8435925e-2f;
    p = ((p * a - 1.4858440e-1f) * a - 9.1839361e-1f) * a - 1.6279101f;
    return tx_exp2_flush(p * a);
}
/* 1 + erf(x): keeps its digits where erf(x) is near -1. */
TX_INLINE vf tx_erf_plus1(vf x) {
    const vf c = tx_erfc_positive(tx_abs(x));
    return tx_select(tx_lt(x, tx_zero()), c, 2.0f - c);
}
/* Relative error of the fit 1.9e-8, of the result 3.6e-7. */
TX_INLINE vf tx_erf(vf x) {
    x = tx_min_c(tx_max_c(x, tx_splat(-3.93f)), tx_splat(3.93f));
    const vf z = x * x;
    vf p = (2.0419422e-6f * z + 2.8480697e-4f) * z + 3.7796176e-3f;
    p = ((p * z + 5.2790300e-2f) * z + 1.9078422e-1f) * z + 1.1283791f;
    vf q = (3.8003697e-5f * z + 1.1652115e-3f) * z + 1.4997454e-2f;
    q = ((q * z + 1.1425766e-1f) * z + 5.0241087e-1f) * z + 1.0f;
    return tx_within_1(x * p / q);
}

/* sin or cos of r + quadrant pi/2. */
TX_INLINE vf tx_sin_quadrant(vf r, vi quadrant) {
    const vf z = r * r;
    const vf s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * (z * r) + r;
    const vf c = ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * (z * z) - 0.5f * z + 1.0f;
    const vf y = tx_select(tx_eq_i(quadrant & 1, (vi){0}), s, c);
    return (vf)((vi)y ^ (vi)((vu)(quadrant & 2) << 30));
}
TX_INLINE vf tx_reduce_half_pi(vf x, vi* quadrant) {
    const vf n = tx_round(x * 0.636619772367581343f);
    *quadrant = tx_to_i(n);
    return ((x - n * 1.5703125f) - n * 4.837512969970703125e-4f) - n * 7.54978995489188216e-8f;
}
TX_LANEWISE1(tx_sin_far, sinf)
TX_LANEWISE1(tx_cos_far, cosf)
TX_INLINE vf tx_sin(vf x) {
    vi q;
    const vf r = tx_reduce_half_pi(x, &q);
    if (TX_LIKELY(!tx_any(tx_not(tx_le(tx_abs(x), tx_splat(8192.0f)))))) return tx_sin_quadrant(r, q);
    return tx_sin_far(x);
}
TX_INLINE vf tx_cos(vf x) {
    vi q;
    const vf r = tx_reduce_half_pi(x, &q);
    if (TX_LIKELY(!tx_any(tx_not(tx_le(tx_abs(x), tx_splat(8192.0f)))))) return tx_sin_quadrant(r, q + 1);
    return tx_cos_far(x);
}

/* tan of r + quadrant pi/2, and inverse functions, as Cephes has them. */
TX_LANEWISE1(tx_tan_far, tanf)
TX_INLINE vf tx_tan(vf x) {
    vi q;
    const vf r = tx_reduce_half_pi(x, &q), z = r * r;
    if (TX_LIKELY(!tx_any(tx_not(tx_le(tx_abs(x), tx_splat(8192.0f)))))) {
        vf p = (9.38540185543e-3f * z + 3.11992232697e-3f) * z + 2.44301354525e-2f;
        p = ((p * z + 5.34112807005e-2f) * z + 1.33387994085e-1f) * z + 3.33331568548e-1f;
        const vf t = p * (z * r) + r;
        return tx_select(tx_eq_i(q & 1, (vi){0}), t, -1.0f / t);
    }
    return tx_tan_far(x);
}

#define TX_PI 3.14159265358979324f
#define TX_HALF_PI 1.57079632679489662f

/* asin of a in [0, 1/2]; of a above, asin of sqrt((1 - a) / 2), which is (pi/2 - asin a) / 2. */
TX_INLINE vf tx_asin_half(vf a, vm is_large) {
    const vf z = tx_select(is_large, 0.5f - 0.5f * a, a * a), x = tx_select(is_large, tx_sqrt(z), a);
    vf p = (4.2163199048e-2f * z + 2.4181311049e-2f) * z + 4.5470025998e-2f;
    p = (p * z + 7.4953002686e-2f) * z + 1.6666752422e-1f;
    return p * (z * x) + x;
}
TX_INLINE vf tx_asin(vf x) {
    const vf a = tx_abs(x);
    const vm is_large = tx_lt(tx_splat(0.5f), a);
    const vf p = tx_asin_half(a, is_large);
    return tx_copysign(tx_select(is_large, TX_HALF_PI - 2.0f * p, p), x);
}
TX_INLINE vf tx_acos(vf x) {
    const vf a = tx_abs(x);
    const vm is_large = tx_lt(tx_splat(0.5f), a);
    const vf p = tx_asin_half(a, is_large), twice = 2.0f * p;
    const vf large = tx_select(tx_lt(x, tx_zero()), TX_PI - twice, twice);
    return tx_select(is_large, large, TX_HALF_PI - tx_copysign(p, x));
}
/* Above tan(3 pi/8): pi/2 + atan(-1/a); above tan(pi/8): pi/4 + atan((a - 1) / (a + 1)). */
TX_INLINE vf tx_atan(vf x) {
    const vf a = tx_abs(x), one = tx_splat(1.0f);
    const vm is_far = tx_lt(tx_splat(2.414213562373095f), a), is_mid = tx_lt(tx_splat(0.4142135623730950f), a);
    const vf over = tx_select(is_far, -one, tx_select(is_mid, a - 1.0f, a));
    const vf under = tx_select(is_far, a, tx_select(is_mid, a + 1.0f, one));
    const vf start = tx_select(is_far, tx_splat(TX_HALF_PI), tx_select(is_mid, tx_splat(0.5f * TX_HALF_PI), tx_zero()));
    const vf t = over / under, z = t * t;
    const vf p = ((8.05374449538e-2f * z - 1.38776856032e-1f) * z + 1.99777106478e-1f) * z - 3.33329491539e-1f;
    return tx_copysign(start + (p * (z * t) + t), x);
}

/* exp(a) / 2 for a >= 0: finite where sinh and cosh are. */
TX_INLINE vf tx_half_exp(vf a) {
    vf n;
    const vf r = tx_reduce_exp(tx_min_c(a, tx_splat(91.0f)), &n);
    return tx_ldexp(tx_expm1_small(r) + 1.0f, n - 1.0f);
}
TX_INLINE vf tx_sinh(vf x) {
    const vf a = tx_abs(x), z = x * x, h = tx_half_exp(a);
    const vf small = ((2.03721912945e-4f * z + 8.33028376239e-3f) * z + 1.66667160211e-1f) * (z * x) + x;
    return tx_select(tx_le(a, tx_splat(1.0f)), small, tx_copysign(h - 0.25f / h, x));
}
TX_INLINE vf tx_cosh(vf x) {
    const vf h = tx_half_exp(tx_abs(x));
    return h + 0.25f / h;
}
#define TX_LN2 0.693147180559945309f
/* log(a + root); above 4096, where the root is a to the last place and its square may be infinite, log(2 a). */
TX_INLINE vf tx_log_sum(vf a, vf root) {
    const vm is_large = tx_lt(tx_splat(4096.0f), a);
    return tx_log(tx_select(is_large, a, a + root)) + tx_select(is_large, tx_splat(TX_LN2), tx_zero());
}
TX_INLINE vf tx_asinh(vf x) {
    const vf a = tx_abs(x), z = x * x;
    const vf p = ((2.0122003309e-2f * z - 4.2699340972e-2f) * z + 7.4847586088e-2f) * z - 1.6666288134e-1f;
    return tx_select(tx_lt(a, tx_splat(0.5f)), p * (z * x) + x, tx_copysign(tx_log_sum(a, tx_sqrt(z + 1.0f)), x));
}
TX_INLINE vf tx_acosh(vf x) {
    const vf z = x - 1.0f;
    vf p = (1.7596881071e-3f * z - 7.5272886713e-3f) * z + 2.6454905019e-2f;
    p = (p * z - 1.1784741703e-1f) * z + 1.4142135263f;
    return tx_select(tx_lt(z, tx_splat(0.5f)), p * tx_sqrt(z), tx_log_sum(x, tx_sqrt(z * (x + 1.0f))));
}
TX_INLINE vf tx_atanh(vf x) {
    const vf a = tx_abs(x), z = x * x;
    vf p = (1.81740078349e-1f * z + 8.24370301058e-2f) * z + 1.46691431730e-1f;
    p = (p * z + 1.99782164500e-1f) * z + 3.33337300303e-1f;
    const vf far = 0.5f * tx_log((1.0f + a) / (1.0f - a));
    return tx_select(tx_lt(a, tx_splat(0.5f)), p * (z * x) + x, tx_copysign(far, x));
}

/* Powers by 2^(y log2 x) in double, half a vector at a time, so that float32 is rounded once: of a mantissa m in
   [sqrt(1/2), sqrt(2)) log m is 2 artanh of s = (m - 1) / (m + 1), whose series is within 2^-39 after s^13, and 2^r of r in
   [-1/2, 1/2] within 2^-32 after r^8. Exponents are taken and given by adding numbers whose last bits are units: fewer
   processors convert 64-bit integers. */
typedef double tx_d __attribute__((vector_size(4 * TX_LANES)));
typedef uint64_t tx_d_bits __attribute__((vector_size(4 * TX_LANES)));
typedef float tx_f_half __attribute__((vector_size(2 * TX_LANES)));
TX_INLINE tx_d tx_log2_d(tx_d x) { /* of normal numbers */
    const tx_d_bits e = ((tx_d_bits)x - 0x3fe6a09e667f3bcdu + 0x3ff0000000000000u) >> 52;
    const tx_d m = (tx_d)((tx_d_bits)x - (e << 52) + 0x3ff0000000000000u), s = (m - 1.0) / (m + 1.0), w = s * s;
    tx_d p = ((1.0 / 13 * w + 1.0 / 11) * w + 1.0 / 9) * w + 1.0 / 7;
    p = ((p * w + 1.0 / 5) * w + 1.0 / 3) * w + 1.0;
    return p * (s * 2.885390081777926815) + ((tx_d)(e | 0x4330000000000000u) - (0x1p52 + 1023.0));
}
TX_INLINE tx_d tx_exp2_d(tx_d t) { /* for |t| < 1000 */
    const tx_d whole = t + 0x1.8p52, r = t - (whole - 0x1.8p52);
    tx_d p = ((1.3215486790144307e-6 * r + 1.5252733804059841e-5) * r + 1.5403530393381609e-4) * r + 1.3333558146428443e-3;
    p = ((p * r + 9.6181291076284772e-3) * r + 5.5504108664821580e-2) * r + 0.24022650695910071;
    p = (p * r + 0.69314718055994531) * r + 1.0;
    return (tx_d)((tx_d_bits)p + ((tx_d_bits)whole << 52));
}
TX_INLINE tx_d tx_choose_d(tx_d_bits m, tx_d a, tx_d b) { return (tx_d)((m & (tx_d_bits)a) | (~m & (tx_d_bits)b)); }
/* x^y for x >= 0; anything where one of them is NaN, or y is 0. */
TX_INLINE tx_d tx_pow_d(tx_d x, tx_d y) {
    const tx_d inf = (tx_d){0} + (double)INFINITY, zero = (tx_d){0}, most = zero + 200.0;
    tx_d log = tx_choose_d((tx_d_bits)(x == zero), -inf, tx_log2_d(x));
    log = tx_choose_d((tx_d_bits)(x == inf), inf, log);
    tx_d t = tx_choose_d((tx_d_bits)(log == zero), zero, log * y);
    t = tx_choose_d((tx_d_bits)(t < most), t, most);
    return tx_exp2_d(tx_choose_d((tx_d_bits)(t > -most), t, -most));
}
/* What C's powf gives for any numbers; squares are products, whatever tells the exponent. */
TX_RARE vf tx_pow(vf x, vf y) {
    if (!tx_any(tx_not(tx_eq(y, tx_splat(2.0f))))) return x * x;
    const vf a = tx_abs(x), zero = tx_zero(), inf = tx_splat(__builtin_inff()), half = 0.5f * y;
    tx_f_half base[2], power[2];
    vf r;
    memcpy(base, &a, sizeof a);
    memcpy(power, &y, sizeof y);
    for (int i = 0; i < 2; i++)
        base[i] = __builtin_convertvector(
            tx_pow_d(__builtin_convertvector(base[i], tx_d), __builtin_convertvector(power[i], tx_d)), tx_f_half);
    memcpy(&r, base, sizeof r);
    const vm whole = tx_eq(tx_trunc(y), y), even = tx_eq(tx_trunc(half), half);
    r = tx_select(tx_isnan(y) & tx_not(tx_eq(a, tx_splat(1.0f))), y, r);
    r = tx_select(whole & tx_not(even), tx_copysign(r, x), r);
    r = tx_select(tx_lt(x, zero) & tx_lt(a, inf) & tx_not(whole), tx_splat(__builtin_nanf("")), r);
    r = tx_select(tx_isnan(x), x, r);
    return tx_select(tx_eq(y, zero), tx_splat(1.0f), r);
}

/* Powers of integers as the double that pow gives becomes one, by products of doubles: those that int32 holds are exact, and
   what lies beyond is as far beyond. From 64 on, only whether an exponent is odd matters: 2^62 lies beyond. */
typedef int32_t tx_i_half __attribute__((vector_size(2 * TX_LANES)));
typedef int64_t tx_i_wide __attribute__((vector_size(4 * TX_LANES)));
TX_RARE vi tx_pow_i(vi x, vi y) {
    const vi sign = y >> 31, size = (y ^ sign) - sign;
    const vm many = tx_lt_i(tx_splat_i(63), size) | tx_lt_i(size, tx_splat_i(0)); /* the lowest has no magnitude */
    const vi count = tx_select_i(many, (size & 1) | 62, size);
    const int bits = tx_any(tx_lt_i(tx_splat_i(3), count)) ? 6 : 2;
    tx_i_half base[2], left[2], below[2];
    memcpy(base, &x, sizeof x);
    memcpy(left, &count, sizeof x);
    memcpy(below, &sign, sizeof x);
    for (int i = 0; i < 2; i++) {
        tx_d b = __builtin_convertvector(base[i], tx_d), r = (tx_d){0} + 1.0;
        for (int k = 0; k < bits; k++, b *= b)
            r = tx_choose_d((tx_d_bits)__builtin_convertvector(-((left[i] >> k) & 1), tx_i_wide), r * b, r);
        r = tx_choose_d((tx_d_bits)__builtin_convertvector(below[i], tx_i_wide), 1.0 / r, r);
        base[i] = __builtin_convertvector(r, tx_i_half);
    }
    memcpy(&x, base, sizeof x);
    return x;
}

/* What a division leaves, with the dividend's sign. A quotient below 2^28 has no more than 29 bits, so that its product
   with a divisor of 24 is exact in double, and what is left of the dividend, too; the quotient itself may have been
   rounded up to a whole number. */
#define TX_FMOD_NEAR 0x1p28
TX_INLINE double tx_fmod_step(double a, double b, double quotient) {
    double r = a - (double)(int32_t)quotient * b;
    r = r < 0.0 ? r + b : r;
    r = r >= b ? r - b : r;
    return a < b ? a : r; /* of an infinite divisor the product above is NaN */
}
/* Of larger quotients, by divisors that are multiples of the given one, so that at most 28 bits go at a time. */
TX_RARE float tx_fmod_far(float x, float y) {
    double a = fabs((double)x);
    const double b = fabs((double)y);
    if (!(a < (double)INFINITY && b > 0.0)) return fmodf(x, y);
    while (a >= b) {
        double multiple = b;
        while (a >= multiple * TX_FMOD_NEAR) multiple *= TX_FMOD_NEAR / 2;
        a = tx_fmod_step(a, multiple, a / multiple);
    }
    return copysignf((float)a, x);
}
TX_RARE vf tx_fmod(vf x, vf y) {
    float left[TX_LANES], right[TX_LANES], r[TX_LANES];
    int far = 0;
    memcpy(left, &x, sizeof x);
    memcpy(right, &y, sizeof y);
    for (int l = 0; l < TX_LANES; l++) {
        const double a = fabs((double)left[l]), b = fabs((double)right[l]), quotient = a / b;
        const int near = a < b * TX_FMOD_NEAR;
        r[l] = copysignf((float)tx_fmod_step(a, b, near ? quotient : 0.0), left[l]);
        far |= !near;
    }
    for (int l = 0; far && l < TX_LANES; l++)
        if (!(fabs((double)left[l]) < fabs((double)right[l]) * TX_FMOD_NEAR)) r[l] = tx_fmod_far(left[l], right[l]);
    memcpy(&x, r, sizeof x);
    return x;
}
/* The remainder with the divisor's sign, as numpy's and Python's. */
TX_RARE vf tx_mod(vf x, vf y) {
    vf r = tx_fmod(x, y);
    for (int l = 0; l < TX_LANES; l++)
        r[l] = r[l] == 0.0f ? copysignf(0.0f, y[l]) : (r[l] < 0.0f) != (y[l] < 0.0f) ? r[l] + y[l] : r[l];
    return r;
}
