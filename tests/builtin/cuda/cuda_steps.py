"""Two small artifacts as steps: a sum of vectors, and two launches with a workspace and a constant
between them.
"""

from __future__ import annotations

from tactix.base.dims import ceildiv, sym
from tactix.base.dtypes import DType
from tactix.base.tensor import LINEAR, TensorSpec
from tactix.contracts.artifact import (
    Binary,
    KernelArtifact,
    Launch,
    Packed,
    Source,
    constant,
    scalar,
    tensor_in,
    tensor_out,
    workspace,
)
from tactix.contracts.launcher import Operand, Step

N = sym("n")
BLOCK = 256
LAUNCHER = "tactix.cuda.cubin@1"

ADD = Source(
    "cuda_c",
    """
extern "C" __global__ void TX_ENTRY(const float* x, const float* y, float* z, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) z[i] = x[i] + y[i];
}
""",
)

SCALE = Source(
    "cuda_c",
    """
extern "C" __global__ void TX_ENTRY(const float* x, const float* c, float* w, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) w[i] = times(x[i], c[i % 4]);
}
extern "C" __global__ void TX_NAME(shift)(const float* w, const float* x, float* y, long long n) {
    extern __shared__ float tile[];
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? w[i] : 0.0f;
    __syncthreads();
    if (i < n) y[i] = tile[threadIdx.x] - x[i];
}
""",
    preludes=("static __device__ inline float times(float a, float b) { return a * b; }",),
)

SHARED = 64 << 10
"""More than a kernel may have without asking."""


def operand(buffer: int) -> Operand:
    return Operand(buffer, TensorSpec(DType.FP32, (N,)), LINEAR)


def add_step(code: Source | Binary = ADD) -> Step:
    """Buffer 2 = buffer 0 + buffer 1."""
    args = (tensor_in(0), tensor_in(1), tensor_out(), scalar(N))
    artifact = KernelArtifact(LAUNCHER, (Launch(args, (ceildiv(N, BLOCK),), (BLOCK,)),), code)
    return Step("add", artifact, (operand(0), operand(1)), (operand(2),))


def scale_step(code: Source | Binary = SCALE) -> Step:
    """Buffer 3 = buffer 2 * c - buffer 2; c is buffer 4, of 4 elements; the workspace, 5, is used
    from byte 256 on.
    """
    grid, last = (ceildiv(N, BLOCK),), {"shared_bytes": SHARED, "symbol": "shift"}
    launches = (
        Launch((tensor_in(0), constant("c"), workspace(256), scalar(N)), grid, (BLOCK,)),
        Launch((workspace(256), tensor_in(0), tensor_out(), scalar(N)), grid, (BLOCK,), **last),
    )
    constants = (("c", Packed(1)),)
    artifact = KernelArtifact(LAUNCHER, launches, code, workspace=256 + 4 * N, constants=constants)
    return Step("scale", artifact, (operand(2),), (operand(3),), {"c": 4}, 5)
