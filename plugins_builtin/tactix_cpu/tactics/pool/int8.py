"""MaxPool of bytes in a blocked format: a pixel of one channel block is one vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.base.dtypes import DType
from tactix.base.tensor import blocked
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import int_range
from tactix_codegen.c.text import Args, block, kernel, loop
from tactix_codegen.operations.pool import PoolWindow, window_of


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [BytePoolTactic()]


@dataclass(frozen=True)
class BytePoolWork:
    """What to pool."""

    node: Node
    window: PoolWindow


class BytePoolTactic(Tactic[BytePoolWork]):
    """u8 or i8, two spatial axes of known size."""

    key = "tactix.c_int8_pool@1"
    implements = ("tactix.MaxPool@1",)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> BytePoolWork | Reject:
        x = node.given[0].spec
        if node.is_fused or x.dtype not in (DType.INT8, DType.UINT8) or x.rank != 4:
            return Reject("this kernel takes bytes of rank 4, and no epilogue")
        known = (*x.shape[1:], *node.outputs[0].spec.shape[1:], *node.attrs.pads)
        if not all(isinstance(d, int) for d in known) or 0 in known[:6]:
            return Reject("the sizes of the image are not known, or it is empty")
        return BytePoolWork(node, window_of(node))

    def variants(self, work: BytePoolWork, device: DeviceProperties) -> Sequence[Variant]:
        x, lanes = work.node.given[0].spec, max(4, device.lanes)
        whole = x.shape[1] % (4 * lanes) == 0  # type: ignore[operator]
        wide = [blocked(4 * lanes)] if whole else []
        return [Variant.of([fmt], [fmt]) for fmt in (blocked(lanes), *wide)]

    def cost(self, work: BytePoolWork, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.traffic(work.node, variant, ctx)

    def compile(self, work: BytePoolWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, w, lanes = Args(work.node), work.window, variant.input_format(0).lanes
        x = work.node.given[0].spec
        (high, wide), (out_high, out_wide) = w.size, w.out
        (kh, kw), (sy, sx), (dy, dx), (top, left) = w.kernel, w.strides, w.dilations, w.before
        kind, low = "pixel", int_range(x.dtype)[0]
        tap = _larger(kind, f"row + (bx + j * {dx}) * {lanes}", lanes)
        line = wide * lanes  # type: ignore[operator]
        start = f"const char* row = plane + (by + i * {dy}) * {line};"
        pixel = [
            f"const int64_t bx = x * {sx} - {left};",
            f"const int64_t fx = tx_first_tap(bx, {dx}), ex = tx_end_tap(bx, {dx}, {wide}, {kw});",
            f"{kind} best = ({kind}){{0}} + ({low});",
            loop("i", "fy", "ey", start, loop("j", "fx", "ex", tap)),
            f"memcpy(out + x * {lanes}, &best, {lanes});",
        ]
        body = [
            f"const int64_t by = u % {out_high} * {sy} - {top};",
            f"const int64_t fy = tx_first_tap(by, {dy}), ey = tx_end_tap(by, {dy}, {high}, {kh});",
            f"const char* plane = {args.bytes_in(0)} + u / {out_high} * {high * line};",
            f"char* out = {args.bytes_out(0)} + u * {out_wide * lanes};",  # type: ignore[operator]
            loop("x", "0", str(out_wide), *pixel),
        ]
        blocks = -(-int(x.shape[1]) // lanes)  # type: ignore[arg-type]
        total = args.dim(x.shape[0] * (blocks * out_high))
        preludes = (*c_text.vector_preludes(), c_text.prelude("pool.h"))
        pixel_of = f"typedef {c_text.ctype(x.dtype)} pixel __attribute__((vector_size({lanes})));"
        return kernel(
            args,
            [pixel_of, c_text.split(total), loop("u", "lo", "hi", *body)],
            ctx,
            preludes=preludes,
        )


def _larger(kind: str, pointer: str, lanes: int) -> str:
    """Statements that keep the larger of ``best`` and the bytes at a pointer."""
    return block(
        "",
        f"{kind} v;",
        f"memcpy(&v, {pointer}, {lanes});",
        "const __typeof__(v > best) m = v > best;",
        f"best = ({kind})((v & ({kind})m) | (best & ~({kind})m));",
    )
