"""MatMul, WideMatMul, Gemm and IntegerMatMul with constant weights by Hopper's matrix instructions
and copy engine.

Knobs: those of a Flow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tactix.base.dims import evaluate, prod, symbols
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.cuda import results
from tactix_codegen.cuda.product import CudaProduct, product
from tactix_cuda.tactics import gemm
from tactix_cuda.tactics.hopper import flow as hopper
from tactix_cuda.tactics.hopper.flow import FlowEntry, Made, PreloadedRows, WgmmaTypes, flow_of
from tactix_cuda.tactics.tile import ProductSizes
from tactix_cuda.tensor_maps import TensorMap

UNIT = 16
"""Bytes that rows must be multiples of (CUDA driver API, cuTensorMapEncodeTiled:
``globalStrides``).
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [HopperGemmTactic(), HopperIntegerGemmTactic(), HopperFloat8GemmTactic()]


class HopperGemmTactic(Tactic[CudaProduct]):
    """float16 and bfloat16, summed in float32; one constant b, rows of a as they lie."""

    key = "tactix.cuda_hopper_gemm@1"
    implements: tuple[str, ...] = ("tactix.MatMul@1", "tactix.Gemm@1", "tactix.WideMatMul@1")
    device = "cuda"
    source = "cuda_c"
    kinds: Mapping[DType, WgmmaTypes] = hopper.KINDS

    def match(self, node: Node, device: DeviceProperties) -> CudaProduct | Reject:
        p = product(node)
        if isinstance(p, Reject):
            return p
        if not hopper.usable(p.dtype, device, self.kinds):
            return Reject(f"no matrix instructions of sm_90a for {p.dtype.value} on this device")
        if not p.can_pack or p.batch or p.a.turned or _row(p) % UNIT:
            return Reject("it takes rows of whole 16 bytes and one constant matrix")
        reason = results.why_not(p.epi)
        return Reject(reason) if reason else p

    def variants(self, p: CudaProduct, device: DeviceProperties) -> Sequence[Variant] | Reject:
        return hopper.variants(hopper.best(gemm.works(p), device, self.kinds[p.dtype]))

    def cost(self, p: CudaProduct, variant: Variant, ctx: CompileContext) -> float | None:
        if not symbols(prod((p.m, p.n, p.k))) <= set(ctx.opt):
            return None
        m, n, k = (evaluate(d, ctx.opt) for d in (p.m, p.n, p.k))
        sizes, kind = ProductSizes(1, m, n, k), self.kinds[p.dtype]
        return hopper.seconds(sizes, flow_of(variant), ctx.device, kind)

    def compile(self, p: CudaProduct, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        f, kind = flow_of(variant), self.kinds[p.dtype]
        e = FlowEntry(p.node, f.threads)
        k = int(p.k)  # type: ignore[arg-type]
        rows = PreloadedRows(e, p.node, p.epi, p.lead, p.n, cols=f.cols)
        made = Made(e, f, kind, rows, p.m, p.n, -(-k // kind.depth))
        a = e.map_input(p.a.index, TensorMap(p.dtype, (k, p.m), (_row(p),), (kind.depth, f.rows)))
        b = made.map_b(_pack(p, made))
        text = made.text(f"tx_matrix<{kind.depth}>{{{a}}}", b, ctx.device)
        return hopper.artifact(made, *text, ctx)


class HopperIntegerGemmTactic(HopperGemmTactic):
    """8-bit integers by a constant b of signed ones, summed in int32."""

    key = "tactix.cuda_hopper_integer_gemm@1"
    implements = ("tactix.IntegerMatMul@1",)
    kinds = hopper.BYTES


class HopperFloat8GemmTactic(HopperGemmTactic):
    """8-bit floats by a constant b of the same type. The instruction sums in fewer bits than
    float32 has.
    """

    key = "tactix.cuda_hopper_float8_gemm@1"
    implements = ("tactix.Float8MatMul@1",)
    kinds = hopper.FLOATS8
    numerics = "short_sums"


def _row(p: CudaProduct) -> int:
    """Bytes of a row of a."""
    return int(p.k) * p.dtype.itemsize  # type: ignore[arg-type]


def _pack(p: CudaProduct, made: Made) -> Packed:
    """The constant b as ``hopper.pack`` lays it, zero outside."""
    n, k = int(p.n), int(p.k)  # type: ignore[arg-type]
    f, stages, kind = made.flow, made.stages, made.kind
    panels = -(-n // f.cols)
    steps: tuple[tuple[str, Any], ...] = (
        (("reshape", (n, k)),)
        if p.b.turned
        else (
            ("reshape", (k, n)),
            ("transpose", (1, 0)),
        )
    )
    outside = ("pad", ((0, panels * f.cols - n), (0, stages * kind.depth - k)))
    return Packed(p.b.index, (*steps, outside, *hopper.pack(panels, f.cols, stages, kind)))
