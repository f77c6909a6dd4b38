"""Kernels of several entries: each has its own parameters and launch, all share one source."""

from __future__ import annotations

from collections.abc import Sequence

from tactix.base.dims import Dim, dmax
from tactix.contracts.artifact import KernelArtifact, Launch, Packed, Source
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext
from tactix_codegen.c.text import block
from tactix_codegen.cuda import text
from tactix_codegen.cuda.target import required_features
from tactix_codegen.layout import folded

STATIC_SHARED = 48 << 10
"""Bytes of shared memory that every device gives a block without being asked."""


class KernelEntry(text.CudaArgs):
    """One kernel of a source; ``symbol`` names it where it is not the artifact's entry."""

    def __init__(self, node: Node, threads: int, symbol: str = "") -> None:
        super().__init__(node)
        self.threads, self.symbol = threads, symbol

    def kernel(self, *body: str, blocks: int = 1, wait: str = text.WAIT) -> str:
        """The kernel's text; ``blocks``: how many of them a multiprocessor should hold at least.

        ``wait``: empty if the body itself waits for other kernels.
        """
        name = f"TX_NAME({self.symbol})" if self.symbol else "TX_ENTRY"
        bounds = f"__launch_bounds__({self.threads}, {blocks})"
        head = f'extern "C" __global__ void {bounds} {name}({self.parameters()})'
        sizes = self.size_declarations("\n".join(body))
        return folded(block(head, *sizes, *([wait] if wait else []), *body)) + "\n"

    def launch(self, grid: Dim, shared_bytes: int = 0) -> Launch:
        """The launch of at least one block with the parameters asked for so far."""
        grids = (dmax(grid, 1),)
        return Launch(
            self.arguments(), grids, (self.threads,), shared_bytes=shared_bytes, symbol=self.symbol
        )


def artifact(
    texts: Sequence[str],
    launches: Sequence[Launch],
    entries: Sequence[KernelEntry],
    ctx: CompileContext,
    *,
    more: Sequence[str] = (),
    workspace: Dim = 0,
) -> KernelArtifact:
    """The artifact of some entries with their texts and launches, in order; ``more``: names of
    preludes.
    """
    constants: dict[str, Packed] = {}
    own: dict[str, None] = {}
    for e in entries:
        constants |= e.constants
        own |= dict.fromkeys(e.preludes())
    return KernelArtifact(
        launcher=text.LAUNCHER,
        launches=tuple(launches),
        code=Source("cuda_c", "\n".join(texts), text.preludes(*own, *more)),
        workspace=workspace,
        constants=tuple(constants.items()),
        requires=required_features(ctx.device),
        params=text.WAITS,
    )
