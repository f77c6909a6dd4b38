/* Vectors of TX_LANES float32 (16, 8 or 4): types, masks, loads, stores, reductions over lanes, thread split.

   vf: floats, vi: int32, vu: uint32, vm: one truth value per lane (a k-register with AVX-512, else an int32 vector of
   0 and -1). Plain GCC vector extensions; intrinsics only where they save instructions. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <math.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#ifndef TX_LANES
#if defined(__AVX512F__)
#define TX_LANES 16
#elif defined(__AVX__)
#define TX_LANES 8
#else
#define TX_LANES 4
#endif
#endif

#if TX_LANES == 16 && defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define TX_512 1
#elif TX_LANES == 8 && defined(__AVX2__)
#define TX_256 1
#elif TX_LANES == 4 && defined(__SSE4_1__)
#define TX_128 1
#elif TX_LANES == 4 && defined(__aarch64__)
#define TX_NEON 1
#endif

#define TX_INLINE static inline __attribute__((always_inline, unused))
#define TX_RARE static __attribute__((noinline, unused))
#define TX_LIKELY(x) __builtin_expect(!!(x), 1)

typedef float vf __attribute__((vector_size(4 * TX_LANES)));
typedef int32_t vi __attribute__((vector_size(4 * TX_LANES)));
typedef uint32_t vu __attribute__((vector_size(4 * TX_LANES)));
typedef float tx_f_at __attribute__((vector_size(4 * TX_LANES), aligned(4), may_alias));
typedef int32_t tx_i_at __attribute__((vector_size(4 * TX_LANES), aligned(4), may_alias));
typedef int16_t tx_s16 __attribute__((vector_size(2 * TX_LANES)));
typedef uint16_t tx_u16 __attribute__((vector_size(2 * TX_LANES)));
typedef int8_t tx_s8 __attribute__((vector_size(TX_LANES)));
typedef uint8_t tx_u8 __attribute__((vector_size(TX_LANES)));
#if TX_512
typedef __mmask16 vm;
#else
typedef vi vm;
#endif

/* This thread's part [lo, hi) of total units: multiples of grain, but for the end. */
TX_INLINE void tx_split(int64_t total, int64_t grain, int tid, int nt, int64_t* lo, int64_t* hi) {
    const int64_t units = (total + grain - 1) / grain;
    const int64_t b = units * tid / nt * grain, e = units * (tid + 1) / nt * grain;
    *lo = b < total ? b : total;
    *hi = e < total ? e : total;
}

TX_INLINE vf tx_splat(float x) { return x - (vf){0}; }
TX_INLINE vi tx_splat_i(int32_t x) { return x - (vi){0}; }
TX_INLINE vf tx_zero(void) { return (vf){0}; }
TX_INLINE vi tx_bits(vf x) { return (vi)x; }
TX_INLINE vf tx_float(vi x) { return (vf)x; }
TX_INLINE vf tx_to_f(vi x) { return __builtin_convertvector(x, vf); }
TX_INLINE vi tx_to_i(vf x) { return __builtin_convertvector(x, vi); } /* truncates */

/* Sums of products where there are 16 registers: `register vf sum TX_KEPT(4)` stays in register 4 all along, to which
   tx_fma(sum, a, b), sum + a * b, adds. No function may be called that is not inlined as long as such a sum is needed. */
#if TX_256 && defined(__FMA__) && defined(__x86_64__)
#define TX_KEPT(n) __asm__("ymm" #n)
TX_INLINE vf tx_fma(vf sum, vf a, vf b) {
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
    return sum;
}
#else
#define TX_KEPT(n)
TX_INLINE vf tx_fma(vf sum, vf a, vf b) { return sum + a * b; }
#endif

TX_INLINE vi tx_lane_numbers(void) {
    vi v;
    for (int l = 0; l < TX_LANES; l++) v[l] = l;
    return v;
}

/* Masks. The first n lanes; logic; selection; whether any lane holds. */
#if TX_512
TX_INLINE vm tx_first(int64_t n) { return (vm)(n >= 16 ? 0xffff : n <= 0 ? 0 : (1u << n) - 1); }
TX_INLINE vm tx_lt(vf a, vf b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LT_OQ); }
TX_INLINE vm tx_le(vf a, vf b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LE_OQ); }
TX_INLINE vm tx_eq(vf a, vf b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_EQ_OQ); }
TX_INLINE vm tx_isnan(vf a) { return _mm512_cmp_ps_mask((__m512)a, (__m512)a, _CMP_UNORD_Q); }
TX_INLINE vm tx_lt_i(vi a, vi b) { return _mm512_cmplt_epi32_mask((__m512i)a, (__m512i)b); }
TX_INLINE vm tx_le_i(vi a, vi b) { return _mm512_cmple_epi32_mask((__m512i)a, (__m512i)b); }
TX_INLINE vm tx_eq_i(vi a, vi b) { return _mm512_cmpeq_epi32_mask((__m512i)a, (__m512i)b); }
TX_INLINE vm tx_not(vm a) { return (vm)~a; }
TX_INLINE vm tx_splat_m(int x) { return (vm)(x ? 0xffff : 0); }
TX_INLINE int tx_any(vm m) { return m != 0; }
TX_INLINE vf tx_select(vm m, vf a, vf b) { return (vf)_mm512_mask_blend_ps(m, (__m512)b, (__m512)a); }
TX_INLINE vi tx_select_i(vm m, vi a, vi b) { return (vi)_mm512_mask_blend_epi32(m, (__m512i)b, (__m512i)a); }
TX_INLINE vi tx_mask_i(vm m) { return (vi)_mm512_maskz_set1_epi32(m, 1); }
TX_INLINE vm tx_truth(vi x) { return _mm512_test_epi32_mask((__m512i)x, (__m512i)x); }
#else
TX_INLINE vm tx_first(int64_t n) { return tx_lane_numbers() < (int32_t)(n > TX_LANES ? TX_LANES : n); }
TX_INLINE vm tx_lt(vf a, vf b) { return a < b; }
TX_INLINE vm tx_le(vf a, vf b) { return a <= b; }
TX_INLINE vm tx_eq(vf a, vf b) { return a == b; }
TX_INLINE vm tx_isnan(vf a) { return a != a; }
TX_INLINE vm tx_lt_i(vi a, vi b) { return a < b; }
TX_INLINE vm tx_le_i(vi a, vi b) { return a <= b; }
TX_INLINE vm tx_eq_i(vi a, vi b) { return a == b; }
TX_INLINE vm tx_not(vm a) { return ~a; }
TX_INLINE vm tx_splat_m(int x) { return tx_splat_i(x ? -1 : 0); }
TX_INLINE int tx_any(vm m) {
#if TX_256
    return _mm256_movemask_ps((__m256)m) != 0;
#elif TX_128
    return _mm_movemask_ps((__m128)m) != 0;
#elif TX_NEON
    return vmaxvq_u32((uint32x4_t)m) != 0;
#else
    int32_t any = 0;
    for (int l = 0; l < TX_LANES; l++) any |= m[l];
    return any != 0;
#endif
}
TX_INLINE vi tx_select_i(vm m, vi a, vi b) {
#if TX_256
    return (vi)_mm256_blendv_epi8((__m256i)b, (__m256i)a, (__m256i)m);
#elif TX_128
    return (vi)_mm_blendv_epi8((__m128i)b, (__m128i)a, (__m128i)m);
#else
    return (m & a) | (~m & b);
#endif
}
TX_INLINE vf tx_select(vm m, vf a, vf b) { return (vf)tx_select_i(m, (vi)a, (vi)b); }
TX_INLINE vi tx_mask_i(vm m) { return m & 1; }
TX_INLINE vm tx_truth(vi x) { return x != 0; }
#endif

/* Loads and stores at any element-aligned address; the _n forms touch the first n elements only, zeros after them. */
TX_INLINE vf tx_load_f32(const void* p) { return *(const tx_f_at*)p; }
TX_INLINE vi tx_load_i32(const void* p) { return *(const tx_i_at*)p; }
TX_INLINE void tx_store_f32(void* p, vf x) { *(tx_f_at*)p = x; }
TX_INLINE void tx_store_i32(void* p, vi x) { *(tx_i_at*)p = x; }
TX_INLINE vi tx_load_n_i32(const void* p, int64_t n) {
#if TX_512
    return (vi)_mm512_maskz_loadu_epi32(tx_first(n), p);
#elif TX_256
    return (vi)_mm256_maskload_epi32((const int*)p, (__m256i)tx_first(n));
#else
    vi x = {0};
    memcpy(&x, p, (size_t)(n < TX_LANES ? n : TX_LANES) * 4);
    return x;
#endif
}
TX_INLINE void tx_store_n_i32(void* p, vi x, int64_t n) {
#if TX_512
    _mm512_mask_storeu_epi32(p, tx_first(n), (__m512i)x);
#elif TX_256
    _mm256_maskstore_epi32((int*)p, (__m256i)tx_first(n), (__m256i)x);
#else
    memcpy(p, &x, (size_t)(n < TX_LANES ? n : TX_LANES) * 4);
#endif
}
TX_INLINE vf tx_load_n_f32(const void* p, int64_t n) { return (vf)tx_load_n_i32(p, n); }
TX_INLINE void tx_store_n_f32(void* p, vf x, int64_t n) { tx_store_n_i32(p, (vi)x, n); }
TX_INLINE vf tx_splat_f32(const void* p) { return tx_splat(*(const float*)p); }
TX_INLINE vi tx_splat_i32(const void* p) { return tx_splat_i(*(const int32_t*)p); }

/* Zero after the first n lanes. */
TX_INLINE vf tx_keep(vf x, int64_t n) { return tx_select(tx_first(n), x, tx_zero()); }
TX_INLINE vi tx_keep_i(vi x, int64_t n) { return tx_select_i(tx_first(n), x, (vi){0}); }
TX_INLINE vm tx_keep_m(vm x, int64_t n) { return x & tx_first(n); }

/* Larger and smaller; NaN if either is. The c forms need c not NaN and are one instruction. */
#if TX_512
TX_INLINE vf tx_max_c(vf x, vf c) { return (vf)_mm512_max_ps((__m512)c, (__m512)x); }
TX_INLINE vf tx_min_c(vf x, vf c) { return (vf)_mm512_min_ps((__m512)c, (__m512)x); }
#elif TX_256
TX_INLINE vf tx_max_c(vf x, vf c) { return (vf)_mm256_max_ps((__m256)c, (__m256)x); }
TX_INLINE vf tx_min_c(vf x, vf c) { return (vf)_mm256_min_ps((__m256)c, (__m256)x); }
#elif TX_128
TX_INLINE vf tx_max_c(vf x, vf c) { return (vf)_mm_max_ps((__m128)c, (__m128)x); }
TX_INLINE vf tx_min_c(vf x, vf c) { return (vf)_mm_min_ps((__m128)c, (__m128)x); }
#elif TX_NEON
TX_INLINE vf tx_max_c(vf x, vf c) { return (vf)vmaxq_f32((float32x4_t)x, (float32x4_t)c); }
TX_INLINE vf tx_min_c(vf x, vf c) { return (vf)vminq_f32((float32x4_t)x, (float32x4_t)c); }
#else
TX_INLINE vf tx_max_c(vf x, vf c) { return tx_select(tx_lt(x, c), c, x); }
TX_INLINE vf tx_min_c(vf x, vf c) { return tx_select(tx_lt(c, x), c, x); }
#endif
TX_INLINE vf tx_max(vf a, vf b) { return tx_select(tx_isnan(b), b, tx_max_c(a, b)); }
TX_INLINE vf tx_min(vf a, vf b) { return tx_select(tx_isnan(b), b, tx_min_c(a, b)); }
TX_INLINE vi tx_max_i(vi a, vi b) { return tx_select_i(tx_lt_i(a, b), b, a); }
TX_INLINE vi tx_min_i(vi a, vi b) { return tx_select_i(tx_lt_i(b, a), b, a); }

/* Reductions over lanes, by halves. */
#define TX_HORIZONTAL(name, type, vector, op)                    \
    TX_INLINE type name(vector x) {                              \
        type t[TX_LANES];                                        \
        memcpy(t, &x, sizeof t);                                 \
        for (int h = TX_LANES / 2; h > 0; h /= 2)                \
            for (int l = 0; l < h; l++) t[l] = op(t[l], t[l + h]); \
        return t[0];                                             \
    }
#define TX_ADD_OF(a, b) ((a) + (b))
#define TX_MUL_OF(a, b) ((a) * (b))
#define TX_MAX_OF(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define TX_MIN_OF(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
#if TX_512
TX_INLINE float tx_hsum(vf x) { return _mm512_reduce_add_ps((__m512)x); }
#else
TX_HORIZONTAL(tx_hsum, float, vf, TX_ADD_OF)
#endif
TX_HORIZONTAL(tx_hprod, float, vf, TX_MUL_OF)
TX_HORIZONTAL(tx_hmax_any, float, vf, TX_MAX_OF)
TX_HORIZONTAL(tx_hmin_any, float, vf, TX_MIN_OF)
TX_INLINE float tx_hmax(vf x) {
#if TX_512
    return TX_LIKELY(!tx_any(tx_isnan(x))) ? _mm512_reduce_max_ps((__m512)x) : __builtin_nanf("");
#else
    return tx_hmax_any(x);
#endif
}
TX_INLINE float tx_hmin(vf x) {
#if TX_512
    return TX_LIKELY(!tx_any(tx_isnan(x))) ? _mm512_reduce_min_ps((__m512)x) : __builtin_nanf("");
#else
    return tx_hmin_any(x);
#endif
}
/* The largest where it does not matter what NaN gives. */
TX_INLINE float tx_hmax_c(vf x) {
#if TX_512
    return _mm512_reduce_max_ps((__m512)x);
#else
    return tx_hmax_any(x);
#endif
}

/* Turn TX_LANES vectors around their diagonal: blocks off the diagonal swap places, at halving sizes. */
#ifdef __clang__
#define TX_SWAP_BLOCKS(a, b, s, na, nb)                        \
    for (int l = 0; l < TX_LANES; l++) {                       \
        na[l] = l & s ? b[l & s ? l - s : l] : a[l];           \
        nb[l] = l & s ? b[l] : a[l & s ? l : l + s];           \
    }
#else
#define TX_SWAP_BLOCKS(a, b, s, na, nb)                        \
    vi ma, mb;                                                 \
    for (int l = 0; l < TX_LANES; l++) {                       \
        ma[l] = l & s ? TX_LANES + l - s : l;                  \
        mb[l] = l & s ? TX_LANES + l : l + s;                  \
    }                                                          \
    na = __builtin_shuffle(a, b, ma);                          \
    nb = __builtin_shuffle(a, b, mb);
#endif
TX_INLINE void tx_transpose(vi* r) {
    _Pragma("GCC unroll 4") for (int s = TX_LANES / 2; s > 0; s /= 2) {
        _Pragma("GCC unroll 16") for (int i = 0; i < TX_LANES; i++) {
            if (i & s) continue;
            const vi a = r[i], b = r[i + s];
            vi na, nb;
            TX_SWAP_BLOCKS(a, b, s, na, nb)
            r[i] = na;
            r[i + s] = nb;
        }
    }
}
