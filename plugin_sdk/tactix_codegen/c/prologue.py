"""Prologues: the pointwise part before an anchor, as a function of one vector of its input.

For kernels that read one tensor and pass every element through the same expression:

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
    """``result``: an expression of variable 0, the anchor's given input, of ``dtype``."""

    result: Scalar
    dtype: DType

    @property
    def helpers(self) -> str:
        """The function, as ``kernel`` takes it."""
        code = emit_vector([self.result], ["x"], [self.dtype], "b")
        head = "TX_INLINE vf TX_NAME(before)(vf x)"
        return block(head, *code.statements, f"return {code.results[0]};")

    @staticmethod
    def of(vector: str) -> str:
        """The C expression of a vector that went through."""
        return f"TX_NAME(before)({vector})"


def prologue(node: Node) -> Prologue | Reject | None:
    """What the node computes of its input 0 before the anchor reads it."""
    body, anchor = node.body, node.anchor
    if anchor is None or not body.anchor:
        return None
    known = Expressions(body, node.specs)
    for k in range(body.anchor):
        known.read(k)
    result = known.of(anchor.inputs[0])
    if known.leaves != [0] or not expr.variables([result]):
        return Reject("what stands before the anchor reads more than its input")
    dtype = node.given[0].spec.dtype
    if dtype is not node.specs[anchor.inputs[0]].dtype:
        return Reject("what stands before the anchor changes the dtype")
    reason = why_not_vector([result], [dtype])
    return Reject(reason) if reason else Prologue(result, dtype)
