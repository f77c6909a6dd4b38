"""What a fused node computes around its anchor: expressions that make the anchor's first input, and
its results.

Variables stand for given inputs, for the anchor's first input (``source``) and for the anchor's
outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.base.dims import Shape
from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.base.tensor import LINEAR, Format, TensorSpec
from tactix.contracts import expr
from tactix.contracts.expr import Scalar
from tactix.contracts.graph import Node
from tactix.contracts.region import BodyNode, Expressions
from tactix.contracts.tactic import Reject, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.epilogue import EpilogueOperand
from tactix_codegen.cuda import scalar


@dataclass(frozen=True)
class Around:
    """``source``: the anchor's first input, of ``spec``; ``results``: one per output of the node,
    of ``shape``.

    ``dtypes``: of every variable. ``before``, ``after``: operands by variable, with strides along
    the first input's dims and along the output's. ``own``: the variable of the first input after
    the anchor. ``made``: anchor outputs by variable. ``parameters``: given inputs that the anchor
    reads besides the first, -1 for an absent one.
    """

    source: Scalar
    results: tuple[Scalar, ...]
    dtypes: tuple[DType, ...]
    before: dict[int, EpilogueOperand]
    after: dict[int, EpilogueOperand]
    own: int
    made: dict[int, int]
    spec: TensorSpec
    shape: Shape
    parameters: tuple[int, ...]

    @property
    def is_plain(self) -> bool:
        """Whether the first input is a given one as it is."""
        return self.source.op == "var"

    @property
    def reads_source(self) -> bool:
        """Whether a result reads the first input again."""
        return self.own in expr.variables(self.results)


def _read(node: Node, known: Expressions) -> tuple[Scalar, int]:
    """The anchor's first input as an expression, and the variable that stands for it afterwards;
    all nodes are read.
    """
    body = node.body
    source, own = expr.var(-1), -1
    for k, n in enumerate(body.nodes):
        if k == body.anchor:
            source, own = known.of(n.inputs[0]), len(known.leaves)
            known.fresh(n.inputs[0])
        else:
            known.read(k)
    return source, own


def around(node: Node, prologue: bool = True) -> Around | Reject:
    """What surrounds the node's anchor; or why a kernel of the anchor cannot do it.

    ``prologue``: whether the kernel takes layers before the anchor.
    """
    body, anchor = node.body, node.anchor
    if anchor is None or body.anchor is None:
        return Reject("the node has no anchor")
    if body.anchor != 0 and not prologue:
        return Reject("layers before the anchor are not fused by this tactic")
    if any(i >= body.arity for i in anchor.inputs[1:]):
        return Reject("a parameter of the anchor is computed in the group")
    return _around(node, body.anchor, anchor)


def _around(node: Node, place: int, anchor: BodyNode) -> Around | Reject:
    body = node.body
    specs = node.specs
    first = body.first_id(place)
    shape = specs[first].shape
    if any(v.spec.shape != shape for v in node.outputs) and len(body.nodes) > 1:
        return Reject("an output of the fused group has another shape than its anchor's")
    known = Expressions(body, specs)
    source, own = _read(node, known)
    results = tuple(known.of(i) for i in body.results)
    spec = specs[anchor.inputs[0]].plain()
    made = {v: i - first for v, i in enumerate(known.leaves) if first <= i < first + anchor.outputs}
    dtypes = tuple(specs[i].dtype for i in known.leaves)
    reason = scalar.why_not([source], dtypes) or scalar.why_not(results, dtypes)
    if reason:
        return Reject(reason)
    try:
        before = _operands([source], known.leaves, specs, spec.shape, {})
        after = _operands(results, known.leaves, specs, shape, {own: 0, **made})
    except ShapeError as e:
        return Reject(e.what)
    return Around(
        source, results, dtypes, before, after, own, made, spec, shape, tuple(anchor.inputs[1:])
    )


def _operands(
    results: Sequence[Scalar],
    leaves: Sequence[int],
    specs: Sequence[TensorSpec],
    shape: Shape,
    but: dict[int, int],
) -> dict[int, EpilogueOperand]:
    """Variables of the results that are given inputs. Raises ShapeError."""
    found = {}
    for v in sorted(expr.variables(results) - set(but)):
        spec = specs[leaves[v]]
        if spec.rank > len(shape):
            raise ShapeError(f"an operand has rank {spec.rank}, the group {len(shape)}")
        strides = c_text.broadcast_strides(spec.shape, shape)
        found[v] = EpilogueOperand(leaves[v], spec.dtype, spec.shape, strides, spec.shape == shape)
    return found


def variant_in(node: Node, found: Around, fmt: Format, **knobs: int) -> Variant:
    """Input 0, full operands and outputs in ``fmt``, all else linear."""
    formats = [fmt, *[LINEAR] * (len(node.given) - 1)]
    for o in found.after.values():
        formats[o.index] = fmt if o.is_full else LINEAR
    return Variant.of(formats, [fmt] * len(node.outputs), **knobs)
