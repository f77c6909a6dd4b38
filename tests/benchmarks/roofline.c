/* What this machine can do at most: multiply-add peaks and read bandwidth, in registers and in plain loops.
 *
 * For every line "KIND THREADS SECONDS BYTES" on stdin it prints operations (or bytes) in a second, summed over threads.
 * Kinds: fp32, bf16, int8 (each by the widest instruction that the compiler may use; a multiply-add is two operations)
 * and read (of BYTES split over the threads). Prints 0 for what the machine has no instruction for. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__AMX_TILE__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(__AVX512F__)
enum { WIDTH = 64 };
#elif defined(__AVX__)
enum { WIDTH = 32 };
#else
enum { WIDTH = 16 };
#endif
typedef float vector __attribute__((vector_size(WIDTH)));
typedef long long bits __attribute__((vector_size(WIDTH)));
enum { BATCH = 2000, MOST = 256 };

typedef struct {
    const char *kind;
    double seconds, rate;
    char *data;
    size_t bytes;
    pthread_barrier_t *start;
} job;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

/* Chains of one register each, as many as hide the latency; the empty asm keeps each value in its register. */
#define EACH12(m) m(0) m(1) m(2) m(3) m(4) m(5) m(6) m(7) m(8) m(9) m(10) m(11)
#define KEEP(v) __asm__ volatile("" : "+x"(v))
#define DECLARE(i) vector s##i = {i};
#define STEP_FP32(i) s##i = s##i * x + y; KEEP(s##i);

static double fp32(void) {
    vector x = {0}, y = {0};
    x += 0.999f;
    y += 1e-4f;
    EACH12(DECLARE)
    for (int k = 0; k < BATCH; k++) {
        EACH12(STEP_FP32)
    }
    return 2.0 * 12 * (WIDTH / 4) * BATCH;
}

#if defined(__AMX_TILE__) && defined(__linux__)
typedef struct {
    unsigned char palette, row, zero[14];
    unsigned short columns[16];
    unsigned char rows[16];
} tile_shape;

/* Asks the system for the tile registers and gives eight of them 16 rows of 64 bytes. */
static int tiles(void) {
    tile_shape shape = {.palette = 1};
    for (int i = 0; i < 8; i++) shape.columns[i] = 64, shape.rows[i] = 16;
    if (syscall(SYS_arch_prctl, 0x1023, 18)) return 0;
    _tile_loadconfig(&shape);
    return 1;
}
#define TILE_LOOP(op)                                                    \
    for (int k = 0; k < BATCH / 4; k++) {                                \
        op(0, 4, 6); op(1, 4, 7); op(2, 5, 6); op(3, 5, 7);              \
    }
#endif

#define DOT(op, i) __asm__ volatile(op " %2, %1, %0" : "+v"(s##i) : "v"(x), "v"(y));

static double bf16(void) {
#if defined(__AMX_BF16__) && defined(__linux__)
    if (tiles()) {
        TILE_LOOP(_tile_dpbf16ps)
        return 2.0 * 16 * 16 * 32 * BATCH;
    }
#endif
#if defined(__AVX512BF16__)
    vector x = {0}, y = {0};
#define STEP_BF16(i) DOT("vdpbf16ps", i)
    EACH12(DECLARE)
    for (int k = 0; k < BATCH; k++) {
        EACH12(STEP_BF16)
    }
    return 2.0 * 12 * 32 * BATCH;
#else
    return 0;
#endif
}

static double int8(void) {
#if defined(__AMX_INT8__) && defined(__linux__)
    if (tiles()) {
        TILE_LOOP(_tile_dpbusd)
        return 2.0 * 16 * 16 * 64 * BATCH;
    }
#endif
#if defined(__AVX512VNNI__)
    vector x = {0}, y = {0};
#define STEP_INT8(i) DOT("vpdpbusd", i)
    EACH12(DECLARE)
    for (int k = 0; k < BATCH; k++) {
        EACH12(STEP_INT8)
    }
    return 2.0 * 12 * 64 * BATCH;
#else
    return 0;
#endif
}

static double stream(const char *data, size_t bytes) {
    bits a = {0}, b = {0}, c = {0}, d = {0};
    for (size_t i = 0; i + 4 * WIDTH <= bytes; i += 4 * WIDTH) {
        const bits *p = (const bits *)(data + i);
        a += p[0], b += p[1], c += p[2], d += p[3];
    }
    a += b + c + d;
    KEEP(a);
    return (double)bytes;
}

static double once(const job *j) {
    if (!strcmp(j->kind, "fp32")) return fp32();
    if (!strcmp(j->kind, "bf16")) return bf16();
    if (!strcmp(j->kind, "int8")) return int8();
    return stream(j->data, j->bytes);
}

static void *work(void *p) {
    job *j = p;
    pthread_barrier_wait(j->start);
    double done = 0, begin = now(), end;
    do {
        done += once(j);
        end = now();
    } while (end - begin < j->seconds);
    j->rate = done / (end - begin);
    return NULL;
}

/* Memory of that size with content, the same as last time if the size is. */
static char *filled(size_t bytes) {
    static char *data;
    static size_t held;
    if (bytes != held) {
        free(data);
        data = aligned_alloc(4096, bytes);
        if (data) memset(data, 1, bytes);
        held = data ? bytes : 0;
    }
    return data;
}

static double measure(const char *kind, int threads, double seconds, size_t bytes) {
    static job jobs[MOST];
    pthread_t handles[MOST];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, threads);
    size_t part = (bytes / threads + 4095) / 4096 * 4096;
    char *data = filled(part * threads + 4096);
    if (!data) return 0;
    for (int i = 0; i < threads; i++) {
        jobs[i] = (job){kind, seconds, 0, data + i * part, part, &start};
        pthread_create(&handles[i], NULL, work, &jobs[i]);
    }
    double rate = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(handles[i], NULL);
        rate += jobs[i].rate;
    }
    pthread_barrier_destroy(&start);
    return rate;
}

int main(void) {
    char kind[8];
    int threads;
    double seconds;
    size_t bytes;
    while (scanf("%7s %d %lf %zu", kind, &threads, &seconds, &bytes) == 4) {
        if (threads < 1 || threads > MOST) return 1;
        printf("%.6e\n", measure(kind, threads, seconds, bytes));
        fflush(stdout);
    }
    return 0;
}
