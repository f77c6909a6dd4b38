// Names for types and marks that generated kernels use. No header is included.
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;

#define TX_INLINE static __device__ __forceinline__
#define TX_RARE static __device__ __noinline__
#define TX_INF __int_as_float(0x7f800000)
#define TX_NAN __int_as_float(0x7fc00000)
#ifndef INT64_MIN
#define INT64_MIN (-9223372036854775807LL - 1)
#endif

// A kernel may be started before those that it follows are over (see graph.py); until then it touches nothing of theirs.
TX_INLINE void tx_wait_for_others() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// What kernels before write, for reads behind the wait: a compiler may read what no kernel of its own writes as early as it
// likes, and takes a parameter that is const and __restrict__ for such.
template <class T>
TX_INLINE const T* tx_of_others(const T* p) {
#if __CUDA_ARCH__ >= 900
  asm volatile("" : "+l"(p)::"memory");
  __builtin_assume(__isGlobal(p));
#endif
  return p;
}

// N neighbouring elements, moved by one instruction where they are at most 16 bytes.
template <class T, int N>
struct alignas(sizeof(T) * N) tx_pack {
  T v[N];
};
struct alignas(16) tx_bytes16 {
  uint64_t v[2];
};

// An index that may count from the end; kept within the axis, since a kernel cannot raise.
TX_INLINE int64_t tx_index(int64_t i, int64_t size) {
  i = i < 0 ? i + size : i;
  return i < 0 ? 0 : i < size ? i : size - 1;
}
