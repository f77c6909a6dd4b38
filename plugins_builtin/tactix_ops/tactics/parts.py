"""Concat, Split and Slice as views: what they take or give lies in one whole, and nothing runs.

A Concat's inputs lie one behind the other in its output's storage, and what Split and Slice take is
one piece of their input's, where no axis in front of theirs is longer than 1: images of a batch of
1 along channels, which in blocks must fill these, and any tensors along the first axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tactix.base.dims import Dim
from tactix.base.tensor import NHWC, Format, blocked
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix.plan.parts import may_begin_at
from tactix_codegen.c.copy import Copy
from tactix_codegen.operations import move


@dataclass(frozen=True)
class PartStarts:
    """``starts``: for each format in which parts are pieces, bytes from the begin of the whole to
    each.
    """

    node: Node
    starts: Mapping[Format, tuple[Dim, ...]]


class PartsTactic(Tactic[PartStarts]):
    """Any device. One variant for each format; all tensors of the node share it."""

    key = "tactix.parts@1"
    beyond = "its results and inputs lie in each other, which those of the network cannot"
    implements: tuple[str, ...] = tuple(f"tactix.{k}@1" for k in ("Concat", "Split", "Slice"))
    source = "view"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> PartStarts | Reject:
        beside = (NHWC, blocked(device.lanes)) if device.lanes > 1 else (NHWC,)
        offered = move.variants(node, beside, "views")
        if isinstance(offered, Reject):
            return offered
        formats = [v.output_format(0) for v in offered]
        starts = {f: s for f in formats if (s := _starts(node, f)) is not None}
        return (
            PartStarts(node, starts) if starts else Reject("parts are no pieces at multiples of 64")
        )

    def variants(self, parts: PartStarts, device: DeviceProperties) -> Sequence[Variant]:
        n = parts.node
        return [Variant.of([f] * len(n.given), [f] * len(n.outputs)) for f in parts.starts]

    def cost(self, parts: PartStarts, variant: Variant, ctx: CompileContext) -> float:
        return 0.0

    def compile(self, parts: PartStarts, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        starts = parts.starts[variant.output_format(0)]
        if parts.node.layer.name == "Concat":
            return KernelArtifact("", alias=True, joins=starts)
        return KernelArtifact("", alias=True, cuts=starts)


def _starts(node: Node, fmt: Format) -> tuple[Dim, ...] | None:
    """Bytes from the begin of the whole to each part, or None if some part is not one piece of it
    at a place where parts may begin, or if those that are joined may leave some of it out.
    """
    width = node.given[0].spec.dtype.itemsize
    copies = move.copies(node, fmt)
    starts = tuple((c.source_offset + c.target_offset) * width for c in copies)
    if not (all(map(_is_one_piece, copies)) and all(map(may_begin_at, starts))):
        return None
    return starts if node.layer.name != "Concat" or _is_filled(node, fmt, starts) else None


def _is_filled(node: Node, fmt: Format, starts: Sequence[Dim]) -> bool:
    """Whether each part ends where the next begins, the last with the whole, whatever the symbols
    stand for: sizes along other axes are equal when it runs, but may have different names.
    """
    ends = [start + v.spec.nbytes(fmt) for start, v in zip(starts, node.given, strict=True)]
    return ends == [*starts[1:], node.outputs[0].spec.nbytes(fmt)]


def _is_one_piece(copy: Copy) -> bool:
    """Whether a copy reads as it writes, of which one is without gaps."""
    loops = zip(copy.sizes, copy.source_strides, copy.target_strides, strict=True)
    return all(size == 1 or source == target for size, source, target in loops)


def tactics() -> list[Tactic]:
    """The tactic of this file."""
    return [PartsTactic()]
