// What this GPU can do at most: PEAK_FP32, PEAK_FP16, PEAK_BF16, PEAK_FP8 or PEAK_INT8
// multiply-adds, by the widest instruction that the target has, or PEAK_READ. Blocks split the
// memory of `nbytes` bytes, or each makes the same operations, `rounds` times. The first thread
// writes the operations of a round of all blocks (a multiply-add is two) or the bytes, 0 where the
// target has no instruction for them.
typedef unsigned int tx_bits;
typedef unsigned long long tx_wide;

// Random signs and fractions: on zeros a GPU takes less power, and is faster than on data.
#if defined(PEAK_FP16)
#define KEEP 0x83ff83ffu // in [0.5, 1) by the exponent's bits, as all of these
#define SET 0x38003800u
#elif defined(PEAK_BF16)
#define KEEP 0x807f807fu
#define SET 0x3f003f00u
#elif defined(PEAK_FP8)
#define KEEP 0x87878787u
#define SET 0x30303030u
#else
#define KEEP 0xffffffffu
#define SET 0u
#endif
__device__ static tx_bits TX_NAME(number)(tx_bits i) {
    i = (i ^ 61) * 0x9e3779b9u;
    i = (i ^ (i >> 15)) * 0x85ebca6bu;
    return ((i ^ (i >> 13)) & KEEP) | SET;
}

#if defined(PEAK_INT8)
typedef int TX_NAME(sum);
#define SUM "r"
#else
typedef float TX_NAME(sum);
#define SUM "f"
#endif

// What the assembler takes for used: it leaves out instructions whose results nobody reads.
enum { NEVER = 0x1234567 };
__device__ static void TX_NAME(keep)(long long *told, bool never) {
    if (never)
        told[1] = 1;
}
__device__ static TX_NAME(sum) TX_NAME(total)(const TX_NAME(sum) * s, int n) {
    TX_NAME(sum) all = 0;
#pragma unroll
    for (int i = 0; i < n; i++)
        all += s[i];
    return all;
}

#if defined(PEAK_READ)
#define BYTES 1
#elif defined(PEAK_FP32)
// Sixteen chains of one register each hide the latency.
enum { CHAINS = 16 };
#define OPERATIONS (2 * CHAINS * blockDim.x)
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
// wgmma: four warps multiply 64 rows, from registers, by 128 columns, from shared memory; a row and
// a column of an instruction have 32 bytes.
enum { ROWS = 64, COLS = 128, ROW_BYTES = 32, EACH = 4, SUMS = 64 };
#if defined(PEAK_FP16)
#define TYPES "k16.f32.f16.f16"
#define LAST "1, 1, 0"
enum { DEPTH = 16 };
#elif defined(PEAK_BF16)
#define TYPES "k16.f32.bf16.bf16"
#define LAST "1, 1, 0"
enum { DEPTH = 16 };
#elif defined(PEAK_FP8)
#define TYPES "k32.f32.e4m3.e4m3"
#define LAST "1, 1"
enum { DEPTH = 32 };
#else
#define TYPES "k32.s32.s8.s8"
enum { DEPTH = 32 };
#endif
#if defined(LAST)
#define SCALES ", " LAST
#else
#define SCALES
#endif
#define WARPGROUP 1
#define OPERATIONS (2 * ROWS * COLS * DEPTH * EACH * (blockDim.x / 128))
#define EIGHT(i) \
    "+" SUM(s[i]), "+" SUM(s[i + 1]), "+" SUM(s[i + 2]), "+" SUM(s[i + 3]), "+" SUM(s[i + 4]), \
        "+" SUM(s[i + 5]), "+" SUM(s[i + 6]), "+" SUM(s[i + 7])
__device__ static void TX_NAME(multiply)(TX_NAME(sum) * s, const tx_bits *a, tx_wide columns) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0; "
                 "wgmma.mma_async.sync.aligned.m64n128" TYPES " {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "{%64, %65, %66, %67}, %68, p" SCALES "; }"
                 : EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32), EIGHT(40), EIGHT(48),
                   EIGHT(56)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(columns));
}
#elif !defined(PEAK_FP8)
// mma: a warp multiplies 16 rows by 8 columns, both from registers; eight sums hide the latency.
enum { EACH = 8, SUMS = 4 };
#if defined(PEAK_FP16)
#define TYPES "m16n8k16.row.col.f32.f16.f16.f32"
enum { DEPTH = 16 };
#elif defined(PEAK_BF16)
#define TYPES "m16n8k16.row.col.f32.bf16.bf16.f32"
enum { DEPTH = 16 };
#else
#define TYPES "m16n8k32.row.col.s32.s8.s8.s32"
enum { DEPTH = 32 };
#endif
#define WARP 1
#define OPERATIONS (2 * 16 * 8 * DEPTH * EACH * (blockDim.x / 32))
__device__ static void TX_NAME(multiply)(TX_NAME(sum) * s, const tx_bits *a, const tx_bits *b) {
    asm volatile("mma.sync.aligned." TYPES
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+" SUM(s[0]), "+" SUM(s[1]), "+" SUM(s[2]), "+" SUM(s[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

extern "C" __global__ void __launch_bounds__(256)
TX_ENTRY(long long *told, const uint4 *data, long long nbytes, long long rounds) {
    const bool first = !threadIdx.x && !blockIdx.x;
#if defined(BYTES)
    const long long all = nbytes / 16, step = (long long)gridDim.x * blockDim.x;
    tx_bits sum = 0;
    for (long long k = 0; k < rounds; k++) {
#pragma unroll 4
        for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += step) {
            const uint4 v = data[i];
            sum ^= v.x ^ v.y ^ v.z ^ v.w;
        }
        asm volatile("" : "+r"(sum) : : "memory"); // each round reads anew
    }
    TX_NAME(keep)(told, sum == 0x12345678u); // of ones it never is
    if (first)
        *told = all * 16;
#elif defined(PEAK_FP32)
    float s[CHAINS], x = 0.999f, y = 1e-4f * threadIdx.x;
#pragma unroll
    for (int i = 0; i < CHAINS; i++)
        s[i] = i;
    for (long long k = 0; k < rounds; k++) {
#pragma unroll
        for (int i = 0; i < CHAINS; i++) // as written, not worked out by the compiler
            asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(s[i]) : "f"(x), "f"(y));
    }
    TX_NAME(keep)(told, TX_NAME(total)(s, CHAINS) == NEVER);
#elif defined(WARPGROUP)
    __shared__ __align__(128) tx_bits columns[COLS * ROW_BYTES / 4];
    for (int i = threadIdx.x; i < COLS * ROW_BYTES / 4; i += blockDim.x)
        columns[i] = TX_NAME(number)(i);
    asm volatile("fence.proxy.async;" ::: "memory"); // wgmma reads by the asynchronous proxy
    __syncthreads();
    // Not permuted: pieces of 8 rows of 16 bytes, the second of k 128 bytes on, the next 8 columns
    // 256 (PTX ISA, wgmma, "Matrix Descriptor Format": all in chunks of 16 bytes).
    const tx_wide at = (tx_wide)__cvta_generic_to_shared(columns) >> 4;
    const tx_wide described = at | (tx_wide)(128 >> 4) << 16 | (tx_wide)(256 >> 4) << 32;
    tx_bits a[4];
    TX_NAME(sum) s[SUMS];
#pragma unroll
    for (int i = 0; i < 4; i++)
        a[i] = TX_NAME(number)(4 * threadIdx.x + i + 77);
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        s[i] = 0;
    for (long long k = 0; k < rounds; k++) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int i = 0; i < EACH; i++)
            TX_NAME(multiply)(s, a, described);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
    TX_NAME(keep)(told, TX_NAME(total)(s, SUMS) == NEVER);
#elif defined(WARP)
    tx_bits a[4], b[2];
    TX_NAME(sum) s[EACH][SUMS];
#pragma unroll
    for (int i = 0; i < 4; i++)
        a[i] = TX_NAME(number)(4 * threadIdx.x + i + 77);
#pragma unroll
    for (int i = 0; i < 2; i++)
        b[i] = TX_NAME(number)(2 * threadIdx.x + i);
#pragma unroll
    for (int i = 0; i < EACH * SUMS; i++)
        s[i / SUMS][i % SUMS] = 0;
    for (long long k = 0; k < rounds; k++) {
#pragma unroll
        for (int i = 0; i < EACH; i++)
            TX_NAME(multiply)(s[i], a, b);
    }
    TX_NAME(keep)(told, TX_NAME(total)(s[0], EACH * SUMS) == NEVER);
#endif
#if defined(OPERATIONS)
    if (first)
        *told = (long long)OPERATIONS * gridDim.x;
#elif !defined(BYTES)
    if (first)
        *told = 0;
#endif
}
