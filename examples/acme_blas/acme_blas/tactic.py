"""The bid: which products BLAS takes."""

from dataclasses import asdict, dataclass

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


@dataclass(frozen=True)
class BlasWork:
    """``a`` times ``b``, and what is ``added``: given inputs, -1 for nothing."""

    a: int
    b: int
    added: int


class BlasProduct(Tactic[BlasWork]):
    """A tensor of float32 or float64 times a matrix, given or constant; a tensor or a row may be
    added.
    """

    key = "acme_blas.gemm@1"
    implements = ("tactix.MatMul@1",)
    source = "acme_blas"

    def match(self, node: Node, device: DeviceProperties) -> BlasWork | Reject:
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
        if gemm(a.dtype.value) is None:
            return Reject("no BLAS was found")
        return BlasWork(*op.ids, followers[0].other if followers else -1)

    def compile(self, work: BlasWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return KernelArtifact("acme_blas.gemm@1", params=asdict(work))
