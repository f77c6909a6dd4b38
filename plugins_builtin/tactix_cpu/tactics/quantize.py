"""QuantizeLinear by itself, one scale for the whole tensor: floats to bytes, divided as the layer
says.
"""

from __future__ import annotations

from collections.abc import Sequence

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


class ByteQuantizeTactic(Tactic[Node]):
    """float32 to u8 or i8 with a constant scale and zero point."""

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
        if (
            any(p.const is None or p.const.size != 1 for p in parameters)
            or parameters[0].dtype is not DType.FP32
        ):
            return Reject("this kernel takes one constant scale and zero point")
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
        (low, high), zero = int_range(dtype), self._zero(node)
        scale = float_literal(float(node.given[1].spec.const.reshape(())))
        x, y = args.input(0), args.output()

        def step(count: str) -> str:
            value = f"{c_text.load(DType.FP32, f'{x} + i', count)} / {scale}"
            rounded = f"tx_rounded({value}, {float_literal(high - zero)}, {low - zero}, {zero})"
            return c_text.store(dtype, f"{y} + i", rounded, count)

        body = [
            c_text.split(size, GRAIN),
            "const int64_t whole = lo + (hi - lo) / TX_LANES * TX_LANES;",
            loop("i", "lo", "whole", step(""), step="TX_LANES"),
            f"if (whole < hi) {{ const int64_t i = whole; {step('hi - i')} }}",
        ]
        return byte.without_fma(kernel(args, body, ctx, preludes=byte.preludes()))

    @staticmethod
    def _zero(node: Node) -> int:
        return int(node.given[2].spec.const.reshape(())) if len(node.given) > 2 else 0
