/* What this processor can do at most: PEAK_FP32, PEAK_BF16 or PEAK_INT8 multiply-adds in registers, by the widest
 * instruction that the target has, or PEAK_READ. a[0]: where something is written, so that the work is done;
 * a[1]: memory of a[2] bytes; a[3]: rounds. Threads split the rounds, or the memory. Writes the operations of a round
 * (a multiply-add is two) or the bytes, 0 where the target has no instruction for them. */
#if defined(__AVX512F__)
enum { WIDTH = 64 };
#elif defined(__AVX__)
enum { WIDTH = 32 };
#else
enum { WIDTH = 16 };
#endif
#if defined(__x86_64__)
#define REGISTER "x"
#else
#define REGISTER "w"
#endif
typedef float TX_NAME(floats) __attribute__((vector_size(WIDTH)));
typedef long long TX_NAME(bits) __attribute__((vector_size(WIDTH)));

/* Twelve chains of one register each hide the latency; the empty asm keeps each in its register. */
#define EACH12(m) m(0) m(1) m(2) m(3) m(4) m(5) m(6) m(7) m(8) m(9) m(10) m(11)
#define DECLARE(i) TX_NAME(floats) s##i = {i};
#define DOT(op, i) __asm__ volatile(op " %2, %1, %0" : "+v"(s##i) : "v"(x), "v"(y));
#if defined(PEAK_FP32)
#define STEP(i) s##i = s##i * x + y; __asm__ volatile("" : "+" REGISTER(s##i));
#define OPERATIONS (2 * 12 * (WIDTH / 4))
#elif defined(PEAK_BF16) && defined(__AVX512BF16__)
#define STEP(i) DOT("vdpbf16ps", i)
#define OPERATIONS (2 * 12 * (WIDTH / 2))
#elif defined(PEAK_INT8) && defined(__AVX512VNNI__)
#define STEP(i) DOT("vpdpbusd", i)
#define OPERATIONS (2 * 12 * WIDTH)
#endif

void TX_ENTRY(const int64_t *a, int tid, int nt) {
    int64_t *told = (int64_t *)a[0];
#if defined(PEAK_READ)
    const int64_t part = a[2] / nt / (4 * WIDTH) * (4 * WIDTH);
    const char *data = (const char *)a[1] + tid * part;
    TX_NAME(bits) p = {0}, q = {0}, r = {0}, s = {0};
    for (int64_t k = 0; k < a[3]; k++) {
        for (int64_t i = 0; i < part; i += 4 * WIDTH) {
            const TX_NAME(bits) *v = (const TX_NAME(bits) *)(data + i);
            p += v[0], q += v[1], r += v[2], s += v[3];
        }
        __asm__ volatile("" : "+" REGISTER(p) : : "memory"); /* each round reads anew */
    }
    p += q + r + s;
    __asm__ volatile("" : "+" REGISTER(p));
    if (!tid)
        *told = part * nt;
#elif defined(OPERATIONS)
    TX_NAME(floats) x = {0}, y = {0};
    x += 0.999f;
    y += 1e-4f;
    EACH12(DECLARE)
    for (int64_t k = a[3] * tid / nt; k < a[3] * (tid + 1) / nt; k++) {
        EACH12(STEP)
    }
    if (!tid)
        *told = OPERATIONS;
#else
    if (!tid)
        *told = 0;
    (void)nt;
#endif
}
