"""Layer, RMS, instance and group normalisation in C, with a pointwise epilogue; f32, f16 and bf16,
linear format.

Mean and variance are taken in two passes over the row, so that nothing cancels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.region import BodyNode
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.epilogue import Epilogue, epilogue
from tactix_codegen.c.scalar import float_literal
from tactix_codegen.c.space import Space
from tactix_codegen.operations import rows
from tactix_cpu.tactics.norm.rows import CpuRowKernel


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [NormTactic()]


@dataclass(frozen=True)
class NormWork:
    """``space``: rows to normalise; ``parameters``: the given inputs that hold scale and bias.

    ``centre``: whether their mean is taken off.
    """

    node: Node
    space: Space
    epilogue: Epilogue
    parameters: tuple[int, ...]
    centre: bool
    epsilon: float


def _space(node: Node, anchor: BodyNode, found: Epilogue, parameters: Sequence[int]) -> Space:
    """Strides of the input, the output, the parameters and the operands. Raises ShapeError."""
    shape = node.given[0].spec.shape
    own = c_text.contiguous_strides(shape)
    of_parameters = [
        rows.parameter_strides(anchor, node.given[i].spec.shape, shape) for i in parameters
    ]
    operands = [o.strides for _, o in sorted(found.operands.items())]
    return rows.space(anchor, shape, [own, own, *of_parameters, *operands])


class NormTactic(Tactic[NormWork]):
    """A row per thread step; scale and bias may be constants or inputs."""

    key = "tactix.c_norm@1"
    implements = rows.NORMALIZATIONS
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> NormWork | Reject:
        if node.given[0].spec.dtype not in (DType.FP32, DType.FP16, DType.BF16):
            return Reject(f"no normalisation of {node.given[0].spec.dtype.value} in C")
        found, anchor = epilogue(node), node.anchor
        if isinstance(found, Reject):
            return found
        assert anchor is not None
        parameters = tuple(i for i in anchor.inputs[1:] if i >= 0)
        if any(
            not node.given[i].spec.dtype.is_float or node.given[i].spec.dtype.bits > 32
            for i in parameters
        ):
            return Reject("a parameter is not of f32, f16 or bf16")
        try:
            loops = _space(node, anchor, found, parameters)
        except ShapeError as e:
            return Reject(e.what)
        centre = anchor.layer.name != "RMSNormalization"
        return NormWork(node, loops, found, parameters, centre, anchor.attrs.epsilon)

    def cost(self, work: NormWork, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.traffic(work.node, variant, ctx)

    def compile(self, work: NormWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        writer = CpuRowKernel(c_text.Args(work.node), work.space, work.epilogue, work.parameters)
        return c_text.kernel(writer.args, writer.body(_row(writer, work.centre, work.epsilon)), ctx)


def _row(writer: CpuRowKernel, centre: bool, epsilon: float) -> list[str]:
    """Statements for one row: mean, variance, and the map.

    Sums go to four vectors in turns, since an addition takes about 4 cycles (Agner Fog, Instruction
    tables). The row is read three times; after the first it comes from a near cache.
    """
    count, zero = f"(float){writer.count}", "tx_zero()"
    names = ["s0", "s1", "s2", "s3"]
    out = []
    if centre:
        out += writer.sweep(names, zero, "{s} + {v}", "{a} + {b}", "{v}")
        out.append(f"const vf mean = tx_splat(tx_hsum(s0) / {count});")
    square = "({v} - mean) * ({v} - mean)" if centre else "{v} * {v}"
    squares = [n.replace("s", "t") for n in names]
    masked = "tx_select(tx_first({n}), {v}, mean)" if centre else "{v}"
    out += writer.sweep(squares, zero, f"{{s}} + {square}", "{a} + {b}", masked)
    out.append(
        "const vf scale "
        f"= tx_splat(1.0f / sqrtf(tx_hsum(t0) / {count} + {float_literal(epsilon)}));"
    )

    def value(x: str, parameter: object) -> list[str]:
        standard = f"({x} - mean) * scale" if centre else f"{x} * scale"
        factors = [parameter(k) for k in range(len(writer.parameters))]  # type: ignore[operator]
        text = (
            standard
            + (f" * {factors[0]}" if factors else "")
            + (f" + {factors[1]}" if len(factors) > 1 else "")
        )
        return [f"const vf y = {text};"]

    return [*out, *writer.map(value)]
