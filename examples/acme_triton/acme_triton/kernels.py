"""The Triton kernel. Only the compiler of this pack imports this module: plans run without Triton."""

import triton
import triton.language as tl


@triton.jit
def matmul(
    a,
    b,
    bias,
    rest,
    y,
    m,
    N: tl.constexpr,
    K: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    BIAS: tl.constexpr,
    REST: tl.constexpr,
    ACT: tl.constexpr,
):
    """y (m, N) = act(a (m, K) @ b (K, N) + bias (N) + rest (m, N)), summed in float32; row-major."""
    pid = tl.program_id(0)
    down, across = tl.cdiv(m, BM).to(tl.int32), tl.cdiv(N, BN)
    first = pid // (GROUP * across) * GROUP  # neighbours share columns of b in the cache
    height = min(down - first, GROUP)
    rows = (first + pid % (GROUP * across) % height) * BM + tl.arange(0, BM)
    columns = pid % (GROUP * across) // height * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    inside = (rows[:, None] < m) & (columns[None, :] < N)
    at = rows.to(tl.int64)[:, None] * N + columns[None, :]
    left = a + rows.to(tl.int64)[:, None] * K + depth[None, :]
    right = b + depth[:, None] * N + columns[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        if K % BK == 0:
            x = tl.load(left, mask=rows[:, None] < m, other=0.0)
            w = tl.load(right, mask=columns[None, :] < N, other=0.0)
        else:
            x = tl.load(left, mask=(rows[:, None] < m) & (depth[None, :] < K - k), other=0.0)
            w = tl.load(right, mask=(depth[:, None] < K - k) & (columns[None, :] < N), other=0.0)
        total = tl.dot(x, w, total)
        left += BK
        right += BK * N
    if BIAS:
        total += tl.load(bias + columns, mask=columns < N, other=0.0).to(tl.float32)[None, :]
    if REST:
        total += tl.load(rest + at, mask=inside, other=0.0).to(tl.float32)
    if ACT == "relu":
        total = tl.maximum(total, 0.0)
    if ACT == "gelu":
        total = 0.5 * total * (1.0 + tl.erf(total * 0.7071067811865476))
    tl.store(y + at, total.to(y.dtype.element_ty), mask=inside)
