"""Layer, RMS, instance and group normalisation in C, with a pointwise epilogue; f32, f16 and bf16,
linear format.

Mean and variance are taken in two passes over the row, so that nothing cancels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from tactix.base.dims import Dim, Shape
from tactix.base.dtypes import DType
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

    ``centre``: whether their mean is taken off. ``likely``: where only running tells which axes of
    parameters repeat, the rows where none does, as whenever both of each of ``alike`` are equal;
    ``space`` is right in any case.
    """

    node: Node
    space: Space
    likely: Space | None
    alike: tuple[tuple[Dim, Dim], ...]
    epilogue: Epilogue
    parameters: tuple[int, ...]
    centre: bool
    epsilon: float


def _space(node: Node, anchor: BodyNode, found: Epilogue, parameters: Sequence[Shape]) -> Space:
    """Strides of the input, the output, the parameters of these shapes, and the operands."""
    shape = node.given[0].spec.shape
    own = c_text.contiguous_strides(shape)
    of_parameters = [rows.parameter_strides(anchor, p, shape) for p in parameters]
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
        shapes = [node.given[i].spec.shape for i in parameters]
        loops, likely = _space(node, anchor, found, shapes), None
        alike: list[tuple[Dim, Dim]] = []
        if anchor.layer.name not in rows.PER_CHANNEL:
            x = node.given[0].spec.shape
            moving = [rows.repeats_nothing(p, x) for p in shapes]
            each = (zip(p, m, strict=True) for p, m in zip(shapes, moving, strict=True))
            alike = [(d, own) for d, own in dict.fromkeys(chain(*each)) if d != own]
            likely = _space(node, anchor, found, moving) if alike else None
        centre = anchor.layer.name != "RMSNormalization"
        return NormWork(
            node,
            rows.steady(loops),
            likely,
            tuple(alike),
            found,
            parameters,
            centre,
            anchor.attrs.epsilon,
        )

    def cost(self, work: NormWork, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.traffic(work.node, variant, ctx)

    def compile(self, work: NormWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args = c_text.Args(work.node)
        text = _rows(args, work, work.space)
        if work.likely is not None:
            holds = " && ".join(f"{args.dim(a)} == {args.dim(b)}" for a, b in work.alike)
            text = [c_text.choice(holds, _rows(args, work, work.likely), text)]
        return c_text.kernel(args, text, ctx)


def _rows(args: c_text.Args, work: NormWork, space: Space) -> list[str]:
    writer = CpuRowKernel(args, space, work.epilogue, work.parameters)
    return writer.body(_row(writer, work.centre, work.epsilon))


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
