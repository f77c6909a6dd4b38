"""LinearAttention: which inputs there are, sizes of a head, and what a step does to its state."""

from __future__ import annotations

from dataclasses import dataclass

from tactix.base.dims import Shape
from tactix.base.dtypes import DType
from tactix.contracts.graph import Node
from tactix.contracts.tactic import Reject
from tactix_codegen.c import text as c_text

Q, K, V, STATE, DECAY, BETA = range(6)
"""The layer's inputs."""


@dataclass(frozen=True)
class LinearAttentionWork:
    """``places``: of the layer's inputs that are there, which of the given ones they are.

    ``keys``, ``values``: rows and columns of a state; ``shared``: query heads of a state;
    ``decays``, ``corrects``: what the rule does to the state.
    """

    node: Node
    places: dict[int, int]
    keys: int
    values: int
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


def linear_attention_of(node: Node) -> LinearAttentionWork | Reject:
    """What a node does, where heads and their sizes are known."""
    kinds = {v.spec.dtype for v in node.given}
    if node.is_fused:
        return Reject("it takes no epilogue")
    if not all(t.is_float and c_text.has_ctype(t) for t in kinds):
        return Reject("no linear attention of these dtypes in C or CUDA")
    attrs, state = node.attrs, node.outputs[1].spec.shape
    if not all(isinstance(d, int) for v in node.given for d in _inner(v.spec.shape)):
        return Reject("heads and their sizes are not known")
    if DType.FP64 in kinds and kinds != {DType.FP64}:
        return Reject("float64 beside narrower numbers")
    places = {i: k for i, k in enumerate(node.places) if k >= 0}
    decays = "gated" in attrs.update_rule and DECAY in places
    shared, corrects = attrs.q_num_heads // attrs.kv_num_heads, "delta" in attrs.update_rule
    keys, values = (int(d) for d in state[2:])  # type: ignore[arg-type]
    return LinearAttentionWork(node, places, keys, values, shared, decays, corrects)


def _inner(shape: Shape) -> Shape:
    """Without the batch, and without the sequence of what has three axes."""
    return shape[2:] if len(shape) == 3 else shape[1:]
