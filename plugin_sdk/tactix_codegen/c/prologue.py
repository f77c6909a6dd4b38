"""Prologues: the pointwise part before an anchor, as a function of one vector of its input.

For kernels that read one tensor and pass every element through the same expression, which may read
one tensor beside it, such as a mean for each row:

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
from tactix.contracts.region import Expressions
from tactix.contracts.tactic import Reject
from tactix_codegen.c.scalar import emit_vector, why_not_vector
from tactix_codegen.c.text import block


@dataclass(frozen=True)
class Prologue:
    """``result``: an expression of variables, which stand for the given inputs ``leaves``, all of
    ``dtype``: 0, and at most one more.
    """

    result: Scalar
    dtype: DType
    leaves: tuple[int, ...] = (0,)

    @property
    def beside(self) -> int:
        """The given input that it reads beside input 0; 0 for none."""
        return max(self.leaves)

    @property
    def helpers(self) -> str:
        """The function, as ``kernel`` takes it."""
        names = ["beside" if i else "x" for i in self.leaves]
        code = emit_vector([self.result], names, [self.dtype] * len(names), "b")
        head = f"TX_INLINE vf TX_NAME(before)(vf x{', vf beside' * bool(self.beside)})"
        return block(head, *code.statements, f"return {code.results[0]};")

    @staticmethod
    def of(*vectors: str) -> str:
        """The C expression of a vector that went through; with that of what is beside it."""
        return f"TX_NAME(before)({', '.join(vectors)})"


def prologue(node: Node) -> Prologue | Reject | None:
    """What the node computes of its input 0, and at most one more, before the anchor reads it."""
    body, anchor = node.body, node.anchor
    if anchor is None or not body.anchor:
        return None
    known = Expressions(body, node.specs)
    for k in range(body.anchor):
        known.read(k)
    result = known.of(anchor.inputs[0])
    leaves = tuple(known.leaves)
    if 0 not in leaves or len(leaves) > 2 or not expr.variables([result]):
        return Reject("what stands before the anchor reads more than its input and one tensor")
    dtype = node.given[0].spec.dtype
    if any(node.specs[i].dtype is not dtype for i in (*leaves, anchor.inputs[0])):
        return Reject("what stands before the anchor changes the dtype")
    reason = why_not_vector([result], [dtype] * len(leaves))
    return Reject(reason) if reason else Prologue(result, dtype, leaves)
