"""Reshape and Transpose as views: the output is the input's memory, and nothing runs.

That is so where both tensors' storage has the same elements in the same order. In linear storage
every Reshape is. A Transpose that moves the last axis behind the first (tokens to an image) gives
in nhwc what it reads in linear storage, and one that moves channels to the end takes nhwc so; a
Reshape that keeps batch and channels keeps nhwc and blocks of channels, too. What is next to them
is then asked for the format that costs least, and elements move once or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tactix.base import dims
from tactix.base.dims import Shape
from tactix.base.tensor import LINEAR, NHWC, Format, blocked
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant

Pair = tuple[Format, Format]
"""Formats of the input and of the output."""


class ViewTactic(Tactic[Node]):
    """Any device. A variant for each pair of formats between which no element moves."""

    key = "tactix.view@1"
    beyond = "its results are its inputs' memory, which an output of the network cannot be"
    implements: tuple[str, ...] = ("tactix.Reshape@1", "tactix.Transpose@1")
    source = "view"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        return Reject("an epilogue needs a kernel") if node.is_fused else node

    def variants(self, node: Node, device: DeviceProperties) -> Sequence[Variant] | Reject:
        beside = (NHWC, blocked(device.lanes)) if device.lanes > 1 else (NHWC,)
        if node.layer.name == "Transpose":
            found = list(_moved_pairs(node))
        else:
            found = [(LINEAR, LINEAR), *_kept_pairs(node, beside)]
        made = [Variant.of([source], [target]) for source, target in dict.fromkeys(found)]
        return made or Reject("elements change their order in every format")

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float:
        return 0.0

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return KernelArtifact("", alias=True)


def _moved_pairs(node: Node) -> Iterator[Pair]:
    """Of a Transpose: axes longer than 1 must stand in the same order in both tensors' storage."""
    shape, perm = node.given[0].spec.shape, node.attrs.perm
    axes = range(len(perm))
    formats = (LINEAR, NHWC) if len(perm) > 2 else (LINEAR,)
    for source in formats:
        have = [axis for axis in _stored(source, axes) if shape[axis] != 1]
        for target in formats:
            order = [perm[axis] for axis in _stored(target, axes)]
            if have == [axis for axis in order if shape[axis] != 1]:
                yield source, target


def _stored(fmt: Format, axes: Sequence[int]) -> Sequence[int]:
    """Axes in the order of a format's storage."""
    return (axes[0], *axes[2:], axes[1]) if fmt == NHWC else axes


def _kept_pairs(node: Node, beside: Sequence[Format]) -> Iterator[Pair]:
    """Of a Reshape that keeps batch and channels: pixels are only counted in another way; where
    there is one pixel, the formats are the same storage.
    """
    source, target = node.given[0].spec.shape, node.outputs[0].spec.shape
    if min(len(source), len(target)) < 2 or source[:2] != target[:2]:
        return
    for fmt in beside:
        if len(source) > 2 and len(target) > 2:
            yield fmt, fmt
        elif len(source) > 2 and _is_flat(source, fmt):
            yield fmt, LINEAR
        elif len(target) > 2 and _is_flat(target, fmt):
            yield LINEAR, fmt


def _is_flat(shape: Shape, fmt: Format) -> bool:
    """Whether a tensor of one pixel is stored in that format as in linear order."""
    one = dims.prod(shape[2:]) == 1
    return one and (fmt.lanes == 1 or dims.mod(shape[1], fmt.lanes) == 0)


def tactics() -> list[Tactic]:
    """The tactic of this file."""
    return [ViewTactic()]
