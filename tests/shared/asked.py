"""What a tactic says of a node, asked as the builder asks: ``match`` first, then the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant


def variants(
    tactic: Tactic[Any], node: Node, device: DeviceProperties
) -> Sequence[Variant] | Reject:
    """The variants for a node, on a device that need not have what the tactic requires."""
    work = tactic.match(node, device)
    return work if isinstance(work, Reject) else tactic.variants(work, device)


def cost(tactic: Tactic[Any], node: Node, variant: Variant, ctx: CompileContext) -> float | None:
    """The estimate for one variant, in seconds."""
    return tactic.cost(_work(tactic, node, ctx), variant, ctx)


def artifact(
    tactic: Tactic[Any], node: Node, variant: Variant, ctx: CompileContext
) -> KernelArtifact:
    """The kernel of one variant."""
    return tactic.compile(_work(tactic, node, ctx), variant, ctx)


def _work(tactic: Tactic[Any], node: Node, ctx: CompileContext) -> Any:
    work = tactic.match(node, ctx.device)
    assert not isinstance(work, Reject), work.reason
    return work
