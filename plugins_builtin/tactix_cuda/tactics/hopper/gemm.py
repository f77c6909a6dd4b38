"""MatMul, WideMatMul and Gemm with constant weights by Hopper's matrix instructions and copy
engine.

Knobs: those of a Flow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tactix.base.dims import evaluate, prod, symbols
from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.cuda import results
from tactix_codegen.cuda.product import CudaProduct, product
from tactix_cuda.tactics import gemm
from tactix_cuda.tactics.hopper import flow as hopper
from tactix_cuda.tactics.hopper.flow import DEPTH, Flow, FlowEntry, Made, PreloadedRows, flow_of
from tactix_cuda.tactics.tile import ProductSizes
from tactix_cuda.tensor_maps import TensorMap

UNIT = 8
"""Elements in the 16 bytes that rows must be multiples of (CUDA driver API, cuTensorMapEncodeTiled:
``globalStrides``).
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [HopperGemmTactic()]


class HopperGemmTactic(Tactic[CudaProduct]):
    """float16 and bfloat16, summed in float32; one constant b, rows of a as they lie."""

    key = "tactix.cuda_hopper_gemm@1"
    implements = ("tactix.MatMul@1", "tactix.Gemm@1", "tactix.WideMatMul@1")
    device = "cuda"
    source = "cuda_c"

    def match(self, node: Node, device: DeviceProperties) -> CudaProduct | Reject:
        p = product(node)
        if isinstance(p, Reject):
            return p
        if not hopper.usable(p.dtype, device):
            return Reject(f"no matrix instructions of sm_90a for {p.dtype.value} on this device")
        if not p.can_pack or p.batch or p.a.turned or int(p.k) % UNIT:  # type: ignore[arg-type]
            return Reject("it takes rows of whole 16 bytes and one constant matrix")
        reason = results.why_not(p.epi)
        return Reject(reason) if reason else p

    def variants(self, p: CudaProduct, device: DeviceProperties) -> Sequence[Variant] | Reject:
        return hopper.variants(hopper.best(gemm.works(p), device))

    def cost(self, p: CudaProduct, variant: Variant, ctx: CompileContext) -> float | None:
        if not symbols(prod((p.m, p.n, p.k))) <= set(ctx.opt):
            return None
        m, n, k = (evaluate(d, ctx.opt) for d in (p.m, p.n, p.k))
        return hopper.seconds(ProductSizes(1, m, n, k), flow_of(variant), ctx.device)

    def compile(self, p: CudaProduct, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        f = flow_of(variant)
        e = FlowEntry(p.node, f.threads)
        k = int(p.k)  # type: ignore[arg-type]
        rows = PreloadedRows(e, p.node, p.epi, p.lead, p.n)
        made = Made(e, f, hopper.KINDS[p.dtype], rows, p.m, p.n, -(-k // DEPTH))
        a = e.map_input(p.a.index, TensorMap(p.dtype, (k, p.m), (k * 2,), (DEPTH, f.rows)))
        b = made.map_b(p.dtype, _pack(p, f, made.stages))
        return hopper.artifact(made, *made.text(f"tx_matrix{{{a}}}", b, ctx.device), ctx)


def _pack(p: CudaProduct, f: Flow, stages: int) -> Packed:
    """The constant b as ``hopper.pack`` lays it, zero outside."""
    n, k = int(p.n), int(p.k)  # type: ignore[arg-type]
    panels = -(-n // f.cols)
    steps: tuple[tuple[str, Any], ...] = (
        (("reshape", (n, k)),)
        if p.b.turned
        else (
            ("reshape", (k, n)),
            ("transpose", (1, 0)),
        )
    )
    outside = ("pad", ((0, panels * f.cols - n), (0, stages * DEPTH - k)))
    return Packed(p.b.index, (*steps, outside, *hopper.pack(panels, f.cols, stages)))
