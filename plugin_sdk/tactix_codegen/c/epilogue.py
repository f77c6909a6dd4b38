"""Epilogues: the pointwise part of a fused node as vector statements over accumulators and
broadcast operands.

For the tactics of anchored layers (GEMM, convolution, reductions, normalisation, pooling):

    epi = epilogue(node)                      # Epilogue or Reject
    code = epi.emit(["acc0"], lambda leaf: load(leaf.dtype, f"{args.input(leaf.index)} + {offset}"))
    body = [*code.statements, *(store(t, pointer, r) for r, t in zip(code.results, code.dtypes))]

``epi.emit`` asks ``place`` for each operand at the current position; ``EpilogueOperand.strides``
says how it lies along the dims of the output: 0 where it repeats, so that
``args.offset(operand.strides, ["n", "c", "i"])`` is its element offset. A node that is not fused
has the identity as epilogue: ``emit`` then gives the accumulators back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tactix.base.dims import Dim, Shape
from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts import region
from tactix.contracts.expr import Scalar
from tactix.contracts.graph import Node
from tactix.contracts.tactic import Reject
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import (
    Code,
    element,
    emit_scalar,
    emit_vector,
    stored,
    why_not_vector,
)
from tactix_codegen.c.text import Args


@dataclass(frozen=True)
class EpilogueOperand:
    """An epilogue operand: the given input ``index``, its dtype and shape, and its strides along
    the output's dims.

    Strides count elements of the linear tensor, 0 where it repeats. ``is_full``: it has the
    output's shape.
    """

    index: int
    dtype: DType
    shape: Shape
    strides: tuple[Dim, ...]
    is_full: bool


@dataclass(frozen=True)
class Epilogue:
    """``operands``: variable index to EpilogueOperand; ``accumulators``: variable index to the
    anchor's output number.

    ``results``: one expression per output of the node; ``dtypes``: of every variable, accumulators
    as the anchor's outputs are declared. ``shape``: of every output. ``emitted``: what was emitted
    before, by the names given.
    """

    results: tuple[Scalar, ...]
    dtypes: tuple[DType, ...]
    operands: dict[int, EpilogueOperand]
    accumulators: dict[int, int]
    shape: Shape
    emitted: dict[tuple[Any, ...], Code] = field(
        init=False, default_factory=dict, compare=False, repr=False
    )

    def emit(
        self,
        accumulators: Sequence[str],
        place: Callable[[EpilogueOperand], str],
        tag: str = "e",
        scalar: bool = False,
    ) -> Code:
        """Statements, result names and dtypes. ``accumulators``: the C name of each of the anchor's
        outputs (``vf``).

        ``place(operand)``: the C expression of its vector here, as ``c_text.load`` or ``splat``
        give; each is asked once and named. ``scalar``: single elements, as ``c_scalar.element``
        gives, instead of vectors.
        """
        heads, leaves = [], []
        for i, t in enumerate(self.dtypes):
            if i in self.accumulators:
                leaves.append(accumulators[self.accumulators[i]])
                continue
            kind = _scalar_kind(t) if scalar else c_text.vector_type(t)
            heads.append(f"const {kind} {tag}x{i} = {place(self.operands[i])};")
            leaves.append(f"{tag}x{i}")
        key = (*leaves, tag, scalar)
        if key not in self.emitted:
            emit = emit_scalar if scalar else emit_vector
            self.emitted[key] = emit(self.results, leaves, self.dtypes, tag)
        code = self.emitted[key]
        return Code((*heads, *code.statements), code.results, code.dtypes)


def _scalar_kind(dtype: DType) -> str:
    return "float" if dtype.is_float and dtype.bits < 32 else c_text.ctype(dtype)


def epilogue(
    node: Node, vector: bool = True, prologue: bool = False, summary: bool = False
) -> Epilogue | Reject:
    """What follows the anchor, if it is first in the node and all results have its shape; else why
    not.

    With ``vector``, also rejects what ``emit_vector`` cannot do. ``prologue``: whether the kernel
    takes layers before the anchor. ``summary``: whether it sums up its first result, where a last
    layer does; that one is left out here.
    """
    body, anchor = node.body, node.anchor
    if summary:
        body = body.unsummarized or body
    if anchor is None or body.anchor is None or (body.anchor != 0 and not prologue):
        return Reject("layers before the anchor are not fused by this tactic")
    if body.is_chain:
        return Reject("two layers that are not pointwise are not fused by this tactic")
    specs = node.specs
    first = body.first_id(body.anchor)
    shape = specs[first].shape
    if any(specs[i].shape != shape for i in body.results) and len(node.body.nodes) > 1:
        return Reject("an output of the fused group has another shape than its anchor's")
    program = region.program(node.body, specs)
    if body is not node.body:
        program = replace(program, results=program.results[:-1], leaves=program.leaves[:-1])
    dtypes = tuple(specs[i].dtype for i in program.leaves)
    made = range(first, first + anchor.outputs)
    try:
        operands = {
            v: operand_of(i, specs[i], shape) for v, i in enumerate(program.leaves) if i not in made
        }
    except ShapeError as e:
        return Reject(e.what)
    reason = why_not_vector(program.results, dtypes) if vector else ""
    if reason:
        return Reject(reason)
    accumulators = {v: i - first for v, i in enumerate(program.leaves) if i in made}
    return Epilogue(program.results, dtypes, operands, accumulators, shape)


def stored_element(
    args: Args, epi: Epilogue, value: str, where: Callable[[EpilogueOperand], str], at: str
) -> list[str]:
    """Statements that bring one element, the variable ``value``, through the epilogue into element
    ``at`` of each output. ``where``: which element of an operand that takes.
    """

    def place(o: EpilogueOperand) -> str:
        return element(o.dtype, f"{args.input(o.index)}[{where(o)}]")

    code = epi.emit([value], place, scalar=True)
    stores = [
        f"{args.output(k)}[{at}] = {stored(t, name)};"
        for k, (name, t) in enumerate(zip(code.results, code.dtypes, strict=True))
    ]
    return [*code.statements, *stores]


def operand_of(index: int, spec: TensorSpec, shape: Shape) -> EpilogueOperand:
    """The given input ``index`` as it broadcasts to ``shape``. Raises ShapeError."""
    if spec.rank > len(shape):
        raise ShapeError(f"an epilogue operand has rank {spec.rank}, the output {len(shape)}")
    return EpilogueOperand(
        index,
        spec.dtype,
        spec.shape,
        c_text.broadcast_strides(spec.shape, shape),
        spec.shape == shape,
    )


def anchor_spec(node: Node, output: int = 0) -> TensorSpec:
    """The spec of one of the anchor's outputs, which an epilogue may change afterwards."""
    body = node.body
    assert body.anchor is not None
    return node.specs[body.first_id(body.anchor) + output]
