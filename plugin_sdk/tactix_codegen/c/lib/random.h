/* Random numbers as numpy's generators give them: the same numbers for the same seed. */

#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#define TX_ENTROPY(words, bytes) (syscall(SYS_getrandom, words, bytes, 0) == (bytes)) /* older C libraries lack it */
#else
#include <sys/random.h>
#define TX_ENTROPY(words, bytes) (getentropy(words, bytes) == 0)
#endif

/* PCG64: a congruential generator of 128 bits, of which 64 are given, xored and rotated (O'Neill, PCG: A Family of
   Simple Fast Space-Efficient Statistically Good Algorithms for Random Number Generation, 2014, XSL RR 128/64). */
typedef unsigned __int128 tx_u128;
typedef struct {
    tx_u128 state, step;
} tx_pcg;
#define TX_U128(high, low) ((tx_u128)(high) << 64 | (low))
#define TX_PCG_FACTOR TX_U128(2549297995355413924ULL, 4865540595714422341ULL)

TX_INLINE uint64_t tx_pcg_next(tx_pcg* g) {
    const tx_u128 s = g->state = g->state * TX_PCG_FACTOR + g->step;
    const uint64_t v = (uint64_t)(s >> 64) ^ (uint64_t)s;
    const int by = (int)(s >> 122);
    return v >> by | v << (-by & 63);
}
/* In [0, 1), a multiple of 2^-53. */
TX_INLINE double tx_pcg_double(tx_pcg* g) { return (double)(tx_pcg_next(g) >> 11) * 0x1p-53; }

/* n numbers on, by squaring: the n-th power of the map from state to state. */
TX_INLINE void tx_pcg_skip(tx_pcg* g, uint64_t n) {
    tx_u128 factor = 1, sum = 0, by = TX_PCG_FACTOR, plus = g->step;
    for (; n; n >>= 1) {
        if (n & 1) factor *= by, sum = sum * by + plus;
        plus = (by + 1) * plus;
        by *= by;
    }
    g->state = factor * g->state + sum;
}

/* The state of a generator that nobody has seeded, from the system; whether there is one. */
TX_INLINE int tx_pcg_fresh(uint64_t* words) { return TX_ENTROPY(words, 32); }
TX_INLINE tx_pcg tx_pcg_of(const uint64_t* words) {
    return (tx_pcg){TX_U128(words[0], words[1]), TX_U128(words[2], words[3]) | 1};
}

/* A float that becomes the 16-bit float that x itself would: what is cut off leaves a mark in the last bit. */
TX_INLINE float tx_marked(double x) {
    const float f = (float)x;
    const double back = (double)f;
    if (back == x || x != x || isinf(f)) return f;
    return tx_float_of((tx_bits_of(f) - (fabs(back) > fabs(x))) | 1);
}

/* The ziggurat of 256 layers (Marsaglia and Tsang, The Ziggurat Method for Generating Random Variables, 2000), as numpy
   takes bits for it: 8 for the layer, one for the sign, 52 for the place. */
TX_INLINE double tx_pcg_normal(tx_pcg* g, const double* width, const double* height, const uint64_t* inner, double end) {
    for (;;) {
        const uint64_t bits = tx_pcg_next(g), place = bits >> 9 & 0xfffffffffffffULL;
        const int layer = (int)(bits & 0xff);
        const double x = bits >> 8 & 1 ? -((double)place * width[layer]) : (double)place * width[layer];
        if (place < inner[layer]) return x;
        if (layer == 0) {
            double over, height_of;
            do {
                over = -log1p(-tx_pcg_double(g)) / end;
                height_of = -log1p(-tx_pcg_double(g));
            } while (height_of + height_of <= over * over);
            return place >> 8 & 1 ? -(end + over) : end + over;
        }
        if ((height[layer - 1] - height[layer]) * tx_pcg_double(g) + height[layer] < exp(-0.5 * x * x)) return x;
    }
}

/* The Mersenne twister of 32 bits (Matsumoto and Nishimura, 1998), behind RandomState: its key makes so many words at
   once, of which two make a number. */
#define TX_TWISTER_WORDS 624
#define TX_TWISTER_NUMBERS 312

TX_INLINE uint32_t tx_twisted(uint32_t a, uint32_t b) {
    const uint32_t y = (a & 0x80000000u) | (b & 0x7fffffffu);
    return y >> 1 ^ (-(y & 1) & 0x9908b0dfu);
}
/* The next numbers in [0, 1), multiples of 2^-53. */
TX_INLINE void tx_twister(uint32_t* key, double* numbers) {
    enum { AHEAD = 397, LATE = TX_TWISTER_WORDS - AHEAD };
    uint32_t words[TX_TWISTER_WORDS];
    for (int i = 0; i < LATE; i++) key[i] = key[i + AHEAD] ^ tx_twisted(key[i], key[i + 1]);
    for (int i = LATE; i < TX_TWISTER_WORDS - 1; i++) key[i] = key[i - LATE] ^ tx_twisted(key[i], key[i + 1]);
    key[TX_TWISTER_WORDS - 1] = key[AHEAD - 1] ^ tx_twisted(key[TX_TWISTER_WORDS - 1], key[0]);
    for (int i = 0; i < TX_TWISTER_WORDS; i++) {
        uint32_t y = key[i];
        y ^= y >> 11;
        y ^= y << 7 & 0x9d2c5680u;
        y ^= y << 15 & 0xefc60000u;
        words[i] = y ^ y >> 18;
    }
    for (int i = 0; i < TX_TWISTER_NUMBERS; i++) {
        const double high = (double)(int32_t)(words[2 * i] >> 5), low = (double)(int32_t)(words[2 * i + 1] >> 6);
        numbers[i] = (high * 67108864.0 + low) * 0x1p-53;
    }
}
