"""Max and average pooling and norms of windows in CUDA, in 1 to 3 dimensions, with pointwise layers
behind; floats of 16 bits and more, 8-bit maxima.

A thread makes one window: in nhwc, of as many channels as 16 bytes hold; in linear tensors, of one
channel. Global pooling is a reduction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.base.tensor import LINEAR, NHWC, Format
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.epilogue import EpilogueOperand
from tactix_codegen.c.power import Power
from tactix_codegen.c.text import block
from tactix_codegen.cuda import fused, text
from tactix_codegen.cuda.fused import Around
from tactix_codegen.cuda.site import OutputSite
from tactix_codegen.cuda.text import CudaArgs
from tactix_codegen.operations import pool
from tactix_codegen.operations.pool import PoolWindow, window_of
from tactix_cuda.tactics.rows import FLOATS
from tactix_ops.layers.integer import BYTES

NORM = "tactix.LpPool@1"
LINEAR_FACTOR = 2
"""How many times longer ``cost`` takes linear tensors to be pooled, where a thread has one channel
and not the eight of 16 bytes. It puts formats in order; no measurement of it is recorded.
"""
UNROLLED = 4
"""Taps of an axis up to which the loop over them is unrolled."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudaPoolTactic()]


@dataclass(frozen=True)
class CudaPoolWork:
    """What to pool, and what surrounds that; ``power``: of the norm, if it is one."""

    node: Node
    window: PoolWindow
    around: Around
    power: Power | None


class CudaPoolTactic(Tactic[CudaPoolWork]):
    """One variant per format; input and output share it."""

    key = "tactix.cuda_pool@1"
    implements = (*pool.KINDS, NORM)
    device = "cuda"
    source = "cuda_c"

    def match(self, node: Node, device: DeviceProperties) -> CudaPoolWork | Reject:
        found = _around(node)
        if isinstance(found, Reject):
            return found
        dtype, window = found.spec.dtype, window_of(node)
        assert node.anchor is not None
        order = node.anchor.attrs.p if node.anchor.layer.key == NORM else None
        is_largest = order is None and not window.average
        is_float = dtype in (*FLOATS, DType.FP64)
        if not is_float and not (is_largest and dtype in BYTES):
            return Reject(f"no pooling of {dtype.value} in CUDA")
        if order is not None and order < 1:
            return Reject(f"no {order}-norm in CUDA")
        return CudaPoolWork(node, window, found, None if order is None else Power(order, dtype))

    def variants(self, work: CudaPoolWork, device: DeviceProperties) -> Sequence[Variant]:
        return [v for f in (NHWC, LINEAR) if (v := _variant(work, f))]

    def cost(self, work: CudaPoolWork, variant: Variant, ctx: CompileContext) -> float | None:
        # seconds: each tensor moved once; windows that overlap read again what a cache has
        seconds = text.traffic(work.node, variant, ctx)
        slow = LINEAR_FACTOR if variant.input_format(0).is_linear else 1
        return None if seconds is None else seconds * slow

    def compile(self, work: CudaPoolWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        writer = _Pool(CudaArgs(work.node), work, variant)
        body = writer.body()
        return text.kernel(writer.args, body, ctx, text.blocks(writer.site.threads))


def _around(node: Node) -> Around | Reject:
    """What surrounds the pooling, where what is pooled may be read again: as one more operand
    behind it.
    """
    found = fused.around(node, prologue=False)
    if isinstance(found, Reject) or not found.reads_source:
        return found
    x = found.spec
    if x.shape != found.shape:
        return Reject("what is pooled is read again behind the pooling, and its shape is another")
    again = EpilogueOperand(0, x.dtype, x.shape, c_text.contiguous_strides(x.shape), True)
    return replace(found, after={**found.after, found.own: again})


def _variant(work: CudaPoolWork, fmt: Format) -> Variant | None:
    made = fused.variant_in(work.node, work.around, fmt)
    try:
        OutputSite(CudaArgs(work.node), work.around, made)
    except ShapeError:
        return None
    return made


class _Pool:
    """The text of one kernel. Axis ``i`` has names ``o<i>`` (window), ``h<i>`` (element)."""

    def __init__(self, args: CudaArgs, work: CudaPoolWork, variant: Variant) -> None:
        self.args, self.w, self.spec = args, work.window, work.around.spec
        self.power = work.power
        self.number = "double" if self.spec.dtype is DType.FP64 else "float"
        self.site = OutputSite(args, work.around, variant)
        self.v = self.site.width
        self.channels_last = variant.input_format(0) == NHWC
        self.source = c_text.contiguous_strides(
            variant.input_format(0).storage_shape(self.spec.shape)
        )

    def body(self) -> list[str]:
        w, site = self.w, self.site
        if 0 in (*site.sizes, *self.spec.shape):
            return []
        start, mean = "0.0f" if w.average or self.power else "-TX_INF", w.average
        out = [*site.head(), f"{self.number} y[{self.v}];", *text.lanes(self.v, f"y[k] = {start};")]
        out += ["int count = 0;"] if mean else []
        out.append(self._windows())
        out += text.lanes(self.v, f"y[k] /= ({self.number})count;") if mean else []
        return [*out, *site.finish(self.power.root("y[k]") if self.power else "y[k]")]

    def _windows(self) -> str:
        """Loops over the taps around the join of those inside."""
        w = self.w
        inside = " && ".join(
            f"h{i} >= 0 && h{i} < {self.args.dim(w.size[i])}" for i in range(w.rank)
        )
        body = [
            block(
                f"if ({inside})",
                *self._tap(),
                *(["count++;"] if w.average and not w.with_pads else []),
            )
        ]
        if w.with_pads:
            ends = [self.args.dim(w.size[i] + w.after[i]) for i in range(w.rank)]
            padded = " && ".join(f"h{i} < {end}" for i, end in enumerate(ends))
            body.append(f"if ({padded}) count++;")
        for i in reversed(range(w.rank)):
            at = f"o{i} * {w.strides[i]} - {self.args.dim(w.before[i])} + k{i} * {w.dilations[i]}"
            head = f"for (int k{i} = 0; k{i} < {w.kernel[i]}; k{i}++)"
            taps = block(head, f"const {self.site.kind} h{i} = {at};", *body)
            body = ["#pragma unroll", taps] if w.kernel[i] <= UNROLLED else [taps]
        return "\n".join(body)

    def _tap(self) -> list[str]:
        spatial = [f"h{i}" for i in range(self.w.rank)]
        names = ["n", *spatial, "c"] if self.channels_last else ["n", "c", *spatial]
        step: Dim = 1
        place = f"{self.args.input(0)} + ({self.args.offset(self.source, names)})"
        loads, x = text.fetch(self.args, "x", place, self.spec.dtype, step, self.v)
        added = self.power.term(x) if self.power else x if self.w.average else ""
        largest = f"{'TX_MAX' if self.number == 'double' else 'tx_fmax'}(y[k], {x})"
        join = f"y[k] + {added}" if added else largest
        return [*loads, *text.lanes(self.v, f"y[k] = {join};")]
