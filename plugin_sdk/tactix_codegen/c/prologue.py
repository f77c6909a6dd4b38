"""Prologues: the pointwise part before an anchor, as a function of one vector of its input.

For kernels that read one tensor and pass every element through the same expression, which may read
tensors beside it, such as a mean for each row or a factor for each channel:

    before = prologue(node)                # Prologue or Reject; None where nothing is before
    value = before.of(load(dtype, place))  # in place of the load alone
    kernel(args, body, ctx, helpers=before.helpers)
"""

from __future__ import annotations

from dataclasses import dataclass

from tactix.base.dtypes import DType
from tactix.contracts import expr
from tactix.contracts.expr import Scalar
from tactix.contracts.graph import Node
from tactix.contracts.region import Body, Expressions
from tactix.contracts.tactic import Reject
from tactix_codegen.c.scalar import emit_vector, why_not_vector
from tactix_codegen.c.text import block, vector_type


@dataclass(frozen=True)
class Prologue:
    """``result``: an expression of variables, which stand for the given inputs ``source``, whose
    elements are the anchor's, and ``beside``; ``dtypes``: of these in that order.
    """

    result: Scalar
    source: int
    beside: tuple[int, ...]
    dtypes: tuple[DType, ...]

    @property
    def helpers(self) -> str:
        """The function, as ``kernel`` takes it."""
        names = ["x", *(f"beside{i}" for i in range(len(self.beside)))]
        code = emit_vector([self.result], names, self.dtypes, "b")
        parameters = [
            f"{vector_type(t)} {name}" for name, t in zip(names, self.dtypes, strict=True)
        ]
        head = f"TX_INLINE vf TX_NAME(before)({', '.join(parameters)})"
        return block(head, *code.statements, f"return {code.results[0]};")

    @staticmethod
    def of(*vectors: str) -> str:
        """The C expression of a vector that went through; with those of what is beside it."""
        return f"TX_NAME(before)({', '.join(vectors)})"


def prologue(node: Node) -> Prologue | Reject | None:
    """What the node computes before the anchor reads it: of the first given input with the elements
    of the anchor's first, and of others.
    """
    body, anchor = node.body, node.anchor
    if anchor is None or not body.anchor:
        return None
    known = Expressions(body, node.specs)
    for k in range(body.anchor):
        known.read(k)
    made = anchor.inputs[0]
    result, specs = known.of(made), node.specs
    used = expr.variables([result])
    leaves = [(v, i) for v, i in enumerate(known.leaves) if v in used]
    alike = [v for v, i in leaves if i < body.arity and specs[i].shape == specs[made].shape]
    if not alike or any(i >= body.arity for _, i in leaves):
        return Reject("what stands before the anchor is not computed of one tensor like its input")
    ordered = sorted(leaves, key=lambda leaf: leaf[0] != alike[0])
    dtypes = tuple(specs[i].dtype for _, i in ordered)
    result = expr.replace_vars(result, {v: expr.var(n) for n, (v, _) in enumerate(ordered)})
    if _is_shown(node.body):
        return Reject("what stands before the anchor is read by others, too")
    if reason := why_not_vector([result], dtypes):
        return Reject(reason)
    source, *beside = (i for _, i in ordered)
    return Prologue(result, source, tuple(beside), dtypes)


def _is_shown(body: Body) -> bool:
    """Whether more than the anchor's first input reads what is made before the anchor."""
    assert body.anchor is not None
    anchor, *after = body.nodes[body.anchor :]
    reads = (*anchor.inputs[1:], *(i for n in after for i in n.inputs), *body.results)
    return any(body.arity <= i < body.first_id(body.anchor) for i in reads)
