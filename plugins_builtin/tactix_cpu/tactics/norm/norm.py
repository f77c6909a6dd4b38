"""Layer, RMS, instance and group normalisation in C, with a pointwise epilogue; f32, f16 and bf16, linear format.

Mean and variance are taken in two passes over the row, so that nothing cancels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix.words import dims
from tactix.words.dims import Dim, Shape
from tactix.words.dtypes import DType
from tactix.words.errors import ShapeError
from tactix_codegen.c import text as c_text
from tactix_codegen.c.epilogue import Epilogue, epilogue
from tactix_codegen.c.scalar import float_literal
from tactix_codegen.c.space import Space, collapse
from tactix_cpu.tactics.norm.rows import OUTER, ROW, Rows


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [NormTactic()]


@dataclass(frozen=True)
class Plan:
    """``space``: rows to normalise; ``parameters``: the given inputs that hold scale and bias."""

    space: Space
    epilogue: Epilogue
    parameters: tuple[int, ...]


def plan_of(node: Node) -> Plan | Reject:
    """How the node's tensor falls into rows, or why it does not."""
    if node.given[0].spec.dtype not in (DType.FP32, DType.FP16, DType.BF16):
        return Reject(f"no normalisation of {node.given[0].spec.dtype.value} in C")
    found = epilogue(node)
    if isinstance(found, Reject):
        return found
    assert node.anchor is not None
    parameters = tuple(i for i in node.anchor.inputs[1:] if i >= 0)
    if any(not node.given[i].spec.dtype.is_float or node.given[i].spec.dtype.bits > 32 for i in parameters):
        return Reject("a parameter is not of f32, f16 or bf16")
    try:
        return Plan(_space(node, found, parameters), found, parameters)
    except ShapeError as e:
        return Reject(e.what)


class NormTactic(Tactic):
    """A row per thread step; scale and bias may be constants or inputs."""

    key = "tactix.c_norm@1"
    implements = (
        "tactix.LayerNormalization@1",
        "tactix.RMSNormalization@1",
        "tactix.InstanceNormalization@1",
        "tactix.GroupNormalization@1",
    )
    source = "c"
    by_signature = True

    def variants(self, node: Node, device: DeviceProperties) -> Sequence[Variant] | Reject:
        plan = plan_of(node)
        return plan if isinstance(plan, Reject) else [Variant()]

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.traffic(node, variant, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        plan = plan_of(node)
        assert isinstance(plan, Plan)
        assert node.anchor is not None
        args = c_text.Args(node)
        rows = Rows(args, plan.space, plan.epilogue, plan.parameters)
        centre = node.anchor.layer.name != "RMSNormalization"
        return c_text.kernel(args, rows.body(_row(rows, centre, node.anchor.attrs.epsilon)), ctx)


def _row(rows: Rows, centre: bool, epsilon: float) -> list[str]:
    """Statements for one row: mean, variance, and the map."""
    count, zero = f"(float){rows.count}", "tx_zero()"
    names = ["s0", "s1", "s2", "s3"]
    out = []
    if centre:
        out += rows.sweep(names, zero, "{s} + {v}", "{a} + {b}", "{v}")
        out.append(f"const vf mean = tx_splat(tx_hsum(s0) / {count});")
    square = "({v} - mean) * ({v} - mean)" if centre else "{v} * {v}"
    squares = [n.replace("s", "t") for n in names]
    masked = "tx_select(tx_first({n}), {v}, mean)" if centre else "{v}"
    out += rows.sweep(squares, zero, f"{{s}} + {square}", "{a} + {b}", masked)
    out.append(f"const vf scale = tx_splat(1.0f / sqrtf(tx_hsum(t0) / {count} + {float_literal(epsilon)}));")

    def value(x: str, parameter: object) -> list[str]:
        standard = f"({x} - mean) * scale" if centre else f"{x} * scale"
        factors = [parameter(k) for k in range(len(rows.parameters))]  # type: ignore[operator]
        text = standard + (f" * {factors[0]}" if factors else "") + (f" + {factors[1]}" if len(factors) > 1 else "")
        return [f"const vf y = {text};"]

    return [*out, *rows.map(value)]


def _space(node: Node, found: Epilogue, parameters: Sequence[int]) -> Space:
    """Loops over the rows and along them. Raises ShapeError."""
    assert node.anchor is not None
    shape = node.given[0].spec.shape
    name = node.anchor.layer.name
    operands = [o.strides for _, o in sorted(found.operands.items())]
    own = c_text.contiguous_strides(shape)
    if name in ("LayerNormalization", "RMSNormalization"):
        axis = node.anchor.attrs.axis % len(shape)
        of_parameters = [c_text.broadcast_strides(node.given[i].spec.shape, shape) for i in parameters]
        tags = [OUTER] * axis + [ROW] * (len(shape) - axis)
        return _ending_in_a_row(collapse(shape, [own, own, *of_parameters, *operands], tags))
    groups: Dim = shape[1] if name == "InstanceNormalization" else node.anchor.attrs.num_groups
    per_channel = (0, 1, *(0 for _ in shape[2:]))
    strides = [_grouped(s, shape, groups) for s in (own, own, *[per_channel] * len(parameters), *operands)]
    sizes = (shape[0], groups, dims.floordiv(shape[1], groups), *shape[2:])
    tags = [OUTER, OUTER] + [ROW] * (len(shape) - 1)
    return _ending_in_a_row(collapse(sizes, strides, tags))


def _grouped(strides: Sequence[Dim], shape: Shape, groups: Dim) -> tuple[Dim, ...]:
    """Strides over (N, C, ...) as strides over (N, groups, channels of a group, ...)."""
    batch, channel, *rest = strides
    return (batch, channel * dims.floordiv(shape[1], groups), channel, *rest)


def _ending_in_a_row(space: Space) -> Space:
    """With a row of one element where the normalised axes all have length 1."""
    if space.tags[-1] == ROW:
        return space
    if space.tags == (None,):
        return Space((1,), space.strides, (ROW,))
    return Space((*space.sizes, 1), tuple((*s, 1) for s in space.strides), (*space.tags, ROW))
