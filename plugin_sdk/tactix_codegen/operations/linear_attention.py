"""LinearAttention: which inputs there are, sizes of a head, and what a step does to its state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from tactix.base.dims import Dim, Shape
from tactix.base.dtypes import DType
from tactix.contracts.graph import Node
from tactix.contracts.tactic import Reject
from tactix_codegen.c import text as c_text

Q, K, V, STATE, DECAY, BETA = range(6)
"""The layer's inputs."""


Size = TypeVar("Size", bound=Dim)


@dataclass(frozen=True)
class LinearAttentionWork(Generic[Size]):
    """``places``: of the layer's inputs that are there, which of the given ones they are.

    ``keys``, ``values``: rows and columns of a state; ``shared``: query heads of a state;
    ``decays``, ``corrects``: what the rule does to the state. ``Size``: int where heads' sizes are
    known.
    """

    node: Node
    places: dict[int, int]
    keys: Size
    values: Size
    shared: int
    decays: bool
    corrects: bool

    @property
    def real(self) -> DType:
        """The dtype that is computed in."""
        return DType.FP64 if self.node.given[0].spec.dtype is DType.FP64 else DType.FP32

    @property
    def heads(self) -> int:
        return int(self.node.attrs.kv_num_heads)


def known_linear_attention(node: Node) -> LinearAttentionWork[int] | Reject:
    """As ``linear_attention_of``, where heads' sizes are known before running."""
    if not all(isinstance(d, int) for v in node.given for d in _inner(v.spec.shape)):
        return Reject("heads and their sizes are not known")
    return cast("LinearAttentionWork[int] | Reject", linear_attention_of(node))


def _inner(shape: Shape) -> Shape:
    """Without the batch, and without the sequence of what has three axes."""
    return shape[2:] if len(shape) == 3 else shape[1:]


def linear_attention_of(node: Node) -> LinearAttentionWork[Dim] | Reject:
    """What a node does."""
    kinds = {v.spec.dtype for v in node.given}
    if node.is_fused:
        return Reject("it takes no epilogue")
    if not all(t.is_float and c_text.has_ctype(t) for t in kinds):
        return Reject("no linear attention of these dtypes in C or CUDA")
    attrs, state = node.attrs, node.outputs[1].spec.shape
    if DType.FP64 in kinds and kinds != {DType.FP64}:
        return Reject("float64 beside narrower numbers")
    places = {i: k for i, k in enumerate(node.places) if k >= 0}
    decays = "gated" in attrs.update_rule and DECAY in places
    shared, corrects = attrs.q_num_heads // attrs.kv_num_heads, "delta" in attrs.update_rule
    return LinearAttentionWork(node, places, state[2], state[3], shared, decays, corrects)
