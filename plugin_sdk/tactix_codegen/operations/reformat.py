"""Changes of format: what a Reformat node asks for, and which of them are one copy."""

from __future__ import annotations

from dataclasses import dataclass

from tactix.base import dims
from tactix.base.tensor import Format, TensorSpec
from tactix.contracts.graph import Node
from tactix.contracts.tactic import Reject
from tactix_codegen.c.copy import Copy, movable


@dataclass(frozen=True)
class ReformatWork:
    """A tensor from one format to another.

    ``copy``: what moves all of it, or None where blocks of channels are made, torn apart or joined.
    """

    node: Node
    spec: TensorSpec
    source: Format
    target: Format
    copy: Copy | None


def work_of(node: Node, language: str) -> ReformatWork | Reject:
    """What a node asks for, or why there is no such tensor; ``language``: of the kernels."""
    spec, source, target = node.given[0].spec, node.attrs.source, node.attrs.target
    if not movable(spec.dtype):
        return Reject(f"no elements of {spec.dtype.value} in {language}")
    if not source.fits(spec.rank) or not target.fits(spec.rank):
        return Reject(f"a tensor of rank {spec.rank} cannot be {source.name} or {target.name}")
    return ReformatWork(node, spec, source, target, _copy(spec, source, target))


def _copy(spec: TensorSpec, source: Format, target: Format) -> Copy | None:
    """All of it as it lies, or the swap of channels with all spatial axes."""
    if source == target:
        n = dims.prod(source.storage_shape(spec.shape))
        return Copy(0, 0, (n,), (1,), (1,))
    if max(source.lanes, target.lanes) > 1:
        return None
    n, c, space = spec.shape[0], spec.shape[1], dims.prod(spec.shape[2:])
    if target.is_linear:
        return Copy(0, 0, (n, c, space), (c * space, 1, c), (c * space, space, 1))
    return Copy(0, 0, (n, space, c), (c * space, 1, space), (c * space, c, 1))
