"""The bid: which products BLAS takes."""

from collections.abc import Sequence

from acme_blas.blas import LETTERS, gemm
from tactix_sdk import (
    CompileContext,
    DeviceProperties,
    KernelArtifact,
    Node,
    Operation,
    Reject,
    Tactic,
    Variant,
)


class BlasProduct(Tactic):
    """A tensor of float32 or float64 times a matrix, given or constant; a tensor or a row may be
    added.
    """

    key = "acme_blas.gemm@1"
    implements = ("tactix.MatMul@1",)
    source = "acme_blas"

    def variants(self, node: Node, device: DeviceProperties) -> Sequence[Variant] | Reject:
        op = Operation(node, device, Variant())
        a, b = op.inputs
        if a.dtype.value not in LETTERS or a.rank < 2 or b.rank != 2:
            return Reject("a tensor of float32 or float64 times a matrix")
        followers = op.followers()
        if isinstance(followers, Reject):
            return followers
        if len(followers) > 1 or any(f.key != "tactix.Add@1" for f in followers):
            return Reject("more is fused behind than an addition")
        added = [node.given[f.other].spec.shape for f in followers]
        if any(shape not in (op.output.shape, op.output.shape[-1:]) for shape in added):
            return Reject("what is added is neither a row nor of the result's shape")
        return [Variant()] if gemm(a.dtype.value) else Reject("no BLAS was found")

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        op = Operation(node, ctx.device, variant)
        followers = op.followers()
        assert not isinstance(followers, Reject)
        added = followers[0].other if followers else -1
        return KernelArtifact(
            "acme_blas.gemm@1", params={"a": op.ids[0], "b": op.ids[1], "added": added}
        )
