// Matrix instructions and copies of the engine for attention (sm_90a); see hopper.cuh.

// A box of rows of a head's matrix from column x, row y on; zeros outside. The barrier counts the bytes.
TX_INLINE void tx_fetch_rows(tx_shared_t to, const tx_map& map, tx_shared_t bar, int x, int y, int head, int batch) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];"
               ::"r"(to), "l"(&map), "r"(bar), "r"(x), "r"(y), "r"(head), "r"(batch) : "memory");
}

// add: d += a b where a is in a team's registers, 64 rows, 16 deep, and rows of b lie in shared memory, 64 columns of them
// (see tx_operand): the assembler loses what stays in registers as a left side from one turn of a loop to the next.
#define TX_WIDE(kind)                                                                                                 \
  struct tx_wide_##kind : tx_##kind {                                                                                 \
    TX_INLINE void add(float (*d)[4], const uint32_t (&a)[4], uint64_t b) {                                           \
      asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." #kind "." #kind " "                                  \
                     "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "\
                     "{%32, %33, %34, %35}, %36, 1, 1, 1, 1;"                                                         \
                   : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]),\
                     "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]),\
                     "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),\
                     "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3])\
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                             \
    }                                                                                                                 \
  };
TX_WIDE(f16)
TX_WIDE(bf16)
// The same of four sums.
TX_INLINE void tx_made(float (&d)[4]) { asm volatile("" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])::"memory"); }
