/* bfloat16: sums of products in float32 lanes, two at a time. */

/* sum[l] + u0 s0 + u1 s1, where lane l of u and s holds two bfloat16. */
#if TX_512 && defined(__AVX512BF16__)
TX_INLINE vf tx_dot2(vf sum, vi u, vi s) {
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(u), "v"(s)); /* the intrinsic costs GCC moves */
    return sum;
}
#else
TX_INLINE vf tx_dot2(vf sum, vi u, vi s) {
    const vi high = tx_splat_i((int32_t)0xffff0000);
    return sum + (vf)(u << 16) * (vf)(s << 16) + (vf)(u & high) * (vf)(s & high);
}
#endif
