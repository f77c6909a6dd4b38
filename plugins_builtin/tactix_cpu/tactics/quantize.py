"""QuantizeLinear by itself, one scale for the whole tensor: floats to bytes, divided as the layer
says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.base.dims import prod
from tactix.base.dtypes import DType
from tactix.base.tensor import LINEAR, Format, blocked
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import float_literal, int_range
from tactix_codegen.c.text import Args, kernel, loop
from tactix_cpu.tactics import dot_tile as byte


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [ByteQuantizeTactic()]


GRAIN = 64
"""Elements that a thread has a multiple of: a line of the cache of bytes."""


@dataclass(frozen=True)
class _Scaling:
    """C text of a scale, of a zero point, and of the ends of the range less that. ``known``:
    statements that these names come from.
    """

    scale: str
    high: str
    low: str
    zero: str
    known: tuple[str, ...]


class ByteQuantizeTactic(Tactic[Node]):
    """float32 to u8 or i8 with one scale and zero point, constant or not."""

    key = "tactix.c_int8_quantize@1"
    implements = ("tactix.QuantizeLinear@1",)
    source = "c"
    beyond = "it takes groups that fusing makes"

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        x, *parameters = (v.spec for v in node.given)
        if (
            node.is_fused
            or x.dtype is not DType.FP32
            or node.attrs.dtype not in (DType.INT8, DType.UINT8)
        ):
            return Reject("this kernel makes bytes of float32")
        one = all(d == 1 for p in parameters for d in p.shape)
        if not one or parameters[0].dtype is not DType.FP32:
            return Reject("this kernel takes one scale and zero point")
        return node

    def variants(self, node: Node, device: DeviceProperties) -> Sequence[Variant]:
        x, lanes = node.given[0].spec, max(4, device.lanes)
        out = [Variant()]
        if x.rank > 2 and isinstance(x.shape[1], int) and x.shape[1] % lanes == 0:
            out.append(Variant.of([blocked(lanes)], [blocked(lanes)]))
        return out

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.traffic(node, variant, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, dtype = Args(node), node.attrs.dtype
        fmt: Format = variant.input_format(0)
        size = args.dim(
            prod((fmt if not fmt.is_linear else LINEAR).storage_shape(node.given[0].spec.shape))
        )
        x, y, by = args.input(0), args.output(), self._scaling(args, node)

        def step(count: str) -> str:
            value = f"{c_text.load(DType.FP32, f'{x} + i', count)} / {by.scale}"
            rounded = f"tx_rounded({value}, {by.high}, {by.low}, {by.zero})"
            return c_text.store(dtype, f"{y} + i", rounded, count)

        body = [
            *by.known,
            c_text.split(size, GRAIN),
            "const int64_t whole = lo + (hi - lo) / TX_LANES * TX_LANES;",
            loop("i", "lo", "whole", step(""), step="TX_LANES"),
            f"if (whole < hi) {{ const int64_t i = whole; {step('hi - i')} }}",
        ]
        return byte.without_fma(kernel(args, body, ctx, preludes=byte.preludes()))

    @staticmethod
    def _scaling(args: Args, node: Node) -> _Scaling:
        scale, *zeros = (v.spec for v in node.given[1:])
        low, high = int_range(node.attrs.dtype)
        known, divisor = [], "scale"
        if scale.const is None:
            known.append(f"const float scale = {args.input(1)}[0];")
        else:
            divisor = float_literal(float(scale.const.reshape(())))
        if all(z.const is not None for z in zeros):
            zero = int(zeros[0].const.reshape(())) if zeros else 0
            highest = float_literal(high - zero)
            return _Scaling(divisor, highest, f"{low - zero}", f"{zero}", tuple(known))
        known.append(f"const int32_t zero = {args.input(2)}[0];")
        return _Scaling(divisor, f"{high} - zero", f"{low} - zero", "zero", tuple(known))
