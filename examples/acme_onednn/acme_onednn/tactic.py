"""The bid: products, and which layers behind them are post-operations of oneDNN's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from acme_onednn import library as dnnl
from tactix_sdk import (
    CompileContext,
    DeviceProperties,
    Follower,
    KernelArtifact,
    Node,
    Operation,
    Reject,
    Tactic,
    Variant,
)

NEEDS = {"f32": (), "bf16": ("avx512_bf16",), "f16": ("avx512_fp16",)}
"""Dtypes, and the instructions without which oneDNN has no fast kernel for them."""
BINARY = {"tactix.Add@1": dnnl.ADD, "tactix.Mul@1": dnnl.MULTIPLY}
ELEMENTWISE = {
    "tactix.Relu@1": dnnl.RELU, "tactix.LeakyRelu@1": dnnl.RELU, "tactix.Tanh@1": dnnl.TANH,
    "tactix.Sigmoid@1": dnnl.LOGISTIC,
}  # fmt: skip
GELU = {"none": dnnl.GELU_ERF, "tanh": dnnl.GELU_TANH}

Post = tuple[int, float, int]
"""The algorithm, its alpha, and the node's given input that is its operand, or -1."""


@dataclass(frozen=True)
class OneDnnWork:
    """``a`` times ``b``, given inputs, of a dtype, and what comes after."""

    a: int
    b: int
    dtype: str
    posts: list[Post]


class OneDnnProduct(Tactic[OneDnnWork]):
    """A tensor times a matrix; rows and tensors of the result's shape added or multiplied, and
    activations.

    On one thread or on all: OpenMP's wait for each other, which small products, and busy machines,
    do not repay.
    """

    key = "acme_onednn.matmul@1"
    implements = ("tactix.MatMul@1",)
    source = "acme_onednn"

    def match(self, node: Node, device: DeviceProperties) -> OneDnnWork | Reject:
        op = Operation(node, device, Variant())
        a, b = op.inputs
        dtypes = {v.spec.dtype.value for v in (*node.given, *node.outputs)}
        if (
            len(dtypes) > 1
            or a.dtype.value not in NEEDS
            or a.rank < 2
            or b.rank != 2
            or b.shape[0] == 0
        ):
            return Reject("a tensor times a matrix, all of one float dtype")
        if not device.has(*NEEDS[a.dtype.value]):
            return Reject(f"{a.dtype.value} needs {NEEDS[a.dtype.value][0]}")
        posts = posts_of(op)
        if isinstance(posts, Reject):
            return posts
        if dnnl.library() is None:
            return Reject("no oneDNN was found: pip install 'acme-onednn[library]'")
        return OneDnnWork(*op.ids, a.dtype.value, posts)

    def variants(self, work: OneDnnWork, device: DeviceProperties) -> Sequence[Variant]:
        return [Variant.of(threads="one"), Variant.of(threads="all")]

    def compile(self, work: OneDnnWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        params = {
            "a": work.a,
            "b": work.b,
            "posts": work.posts,
            "threads": variant.knob("threads"),
        }
        return KernelArtifact("acme_onednn.matmul@1", params=params, requires=NEEDS[work.dtype])


def posts_of(op: Operation) -> list[Post] | Reject:
    """What is fused behind, or why it cannot be."""
    followers = op.followers()
    if isinstance(followers, Reject):
        return followers
    out = [_post(op, f) for f in followers]
    return next((p for p in out if isinstance(p, Reject)), None) or out  # type: ignore[return-value]


def _post(op: Operation, f: Follower) -> Post | Reject:
    if f.key in BINARY:
        shape = op.node.given[f.other].spec.shape
        fits = shape in (op.output.shape, op.output.shape[-1:])
        return (
            (BINARY[f.key], 0.0, f.other)
            if fits
            else Reject("neither a row nor of the result's shape")
        )
    attrs: Any = f.attrs
    if f.key == "tactix.Gelu@1":
        return GELU[attrs.approximate], 0.0, -1
    if f.key in ELEMENTWISE:
        return ELEMENTWISE[f.key], getattr(attrs, "alpha", 0.0), -1
    return Reject(f"oneDNN has no {f.key} behind a product")
