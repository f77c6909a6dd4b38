"""Pointwise groups in C: any expression over broadcast operands, one loop nest, each element read and written once.

float32, 16-bit floats, int32 and narrower, and bool run in vectors; other dtypes and mixtures element by element.
Formats: linear, and for vectors also nhwc and ``cB`` with B the device's lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tactix.contracts import region
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.region import Program
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix.words import dims
from tactix.words.dims import Dim, Shape
from tactix.words.dtypes import DType
from tactix.words.errors import ShapeError
from tactix.words.tensor import LINEAR, NHWC, Format, TensorSpec, blocked
from tactix_codegen.c import scalar as c_scalar
from tactix_codegen.c import text as c_text
from tactix_codegen.c.space import Space, collapse, strides_in
from tactix_cpu.tactics.pointwise.nest import Nest, Operand


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [PointwiseTactic()]


@dataclass(frozen=True)
class Group:
    """A pointwise node: its expressions, the given inputs they read, and the common shape of its results."""

    program: Program
    dtypes: tuple[DType, ...]
    shape: Shape
    vector: bool


def whole_group(node: Node) -> Group | Reject:
    """What to compute; or why it is no work for one loop over elements."""
    body = node.body
    if body.anchor is not None:
        return Reject("the node is not pointwise")
    program = region.program(body, node.specs)
    dtypes = tuple(node.given[i].spec.dtype for i in program.leaves)
    shape = node.outputs[0].spec.shape
    if any(v.spec.shape != shape for v in node.outputs):
        return Reject("the results have different shapes")
    return Group(program, dtypes, shape, True)


def group_of(node: Node) -> Group | Reject:
    """What to compute; or why this tactic cannot."""
    group = whole_group(node)
    if isinstance(group, Reject) or not c_scalar.why_not_vector(group.program.results, group.dtypes):
        return group
    reason = c_scalar.why_not_scalar(group.program.results, group.dtypes)
    return Reject(reason) if reason else replace(group, vector=False)


class PointwiseTactic(Tactic):
    """One variant per format that all full operands share; operands that broadcast stay linear where they can."""

    key = "tactix.c_pointwise@1"
    implements = ("pointwise",)
    source = "c"
    by_signature = True

    def variants(self, node: Node, device: DeviceProperties) -> Sequence[Variant] | Reject:
        group = group_of(node)
        if isinstance(group, Reject):
            return group
        try:
            formats: list[Format] = [LINEAR]
            if group.vector and len(group.shape) >= 3:
                formats += [blocked(device.lanes), NHWC]
            found = [v for f in formats for v in _variants(node, group, f)]
        except ShapeError as e:
            return Reject(e.what)
        return found

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        group = group_of(node)
        slow = 1 if isinstance(group, Reject) or group.vector else 4
        seconds = c_text.traffic(node, variant, ctx)
        return None if seconds is None else seconds * slow

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        group = group_of(node)
        assert isinstance(group, Group)
        args = c_text.Args(node)
        space, tail = _space(node, group, variant)
        operands = [
            Operand(args.input(i), group.dtypes[k], space.strides[k]) for k, i in enumerate(group.program.leaves)
        ]
        results = [Operand(args.output(j), v.spec.dtype, space.strides[-1]) for j, v in enumerate(node.outputs)]
        nest = Nest(args, space.sizes, operands, results, group.program.results, group.vector, tail)
        return c_text.kernel(args, nest.text(ctx), ctx)


def _variants(node: Node, group: Group, fmt: Format) -> list[Variant]:
    """Variants with the outputs in ``fmt``. Raises ShapeError if there is none even for linear."""
    if fmt.is_linear:
        for i in group.program.leaves:
            strides_in(node.given[i].spec, LINEAR, group.shape, LINEAR)
        return [Variant()]
    choices = []
    for prefer_linear in (True, False):
        chosen = [_format_of(v.spec, group.shape, fmt, prefer_linear) for v in node.given]
        if None not in chosen:
            choices.append(Variant.of([f for f in chosen if f is not None], [fmt] * len(node.outputs)))
    return list(dict.fromkeys(choices))


def _format_of(spec: TensorSpec, shape: Shape, fmt: Format, prefer_linear: bool) -> Format | None:
    if spec.shape == shape:
        return fmt
    options = (LINEAR, fmt) if prefer_linear or spec.is_const or fmt == NHWC else (fmt, LINEAR)
    return next((f for f in options if _walkable(spec, f, shape, fmt)), None)


def _walkable(spec: TensorSpec, fmt: Format, shape: Shape, out_fmt: Format) -> bool:
    try:
        return strides_in(spec, fmt, shape, out_fmt)[-1] in (0, 1)
    except ShapeError:
        return False


def _space(node: Node, group: Group, variant: Variant) -> tuple[Space, Dim | None]:
    """The loops, and where blocks have unused lanes the number of channels: loop 1 then counts the blocks."""
    fmt = variant.output_format(0)
    sizes = fmt.storage_shape(group.shape)
    strides = [strides_in(node.given[i].spec, variant.input_format(i), group.shape, fmt) for i in group.program.leaves]
    strides.append(c_text.contiguous_strides(sizes))
    if fmt.lanes == 1 or dims.mod(group.shape[1], fmt.lanes) == 0:
        return _steady(collapse(sizes, strides)), None
    full = all(s == strides[-1] for s in strides)
    if full and c_scalar.keeps_zero(group.program.results, group.dtypes):
        return collapse(sizes, strides), None
    middle = collapse(sizes[2:-1], [s[2:-1] for s in strides])
    joined = tuple((*s[:2], *m, s[-1]) for s, m in zip(strides, middle.strides, strict=True))
    loops = (*sizes[:2], *middle.sizes, sizes[-1])
    return Space(loops, joined, (None,) * len(loops)), group.shape[1]


def _steady(space: Space) -> Space:
    """With a last loop of one step where only running tells whether the last one moves an operand."""
    if all(s[-1] in (0, 1) for s in space.strides):
        return space
    return Space((*space.sizes, 1), tuple((*s, 1) for s in space.strides), (*space.tags, None))
