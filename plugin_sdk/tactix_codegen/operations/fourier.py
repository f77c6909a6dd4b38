"""DFT and STFT as transforms of many signals: where these lie, how long they are, what is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.contracts.graph import Node


@dataclass(frozen=True)
class Signals:
    """Where a tensor has the signals: signal ``i`` begins at ``outer * (i / each) + inner * (i %
    each)``, its elements lie ``step`` apart, and each has so many ``parts``.
    """

    each: Dim
    outer: Dim
    inner: Dim
    step: Dim
    parts: int


@dataclass(frozen=True)
class FourierTransform:
    """``count`` transforms of ``length``: signals of ``size`` elements become ones of ``bins``.

    ``inverse``: back from frequencies; ``half``: only the first half of them is given. ``real``:
    imaginary parts that are given do not count. ``window``: the input with factors of a signal's
    elements, -1 for none.
    """

    node: Node
    count: Dim
    length: Dim
    size: Dim
    bins: Dim
    source: Signals
    target: Signals
    inverse: bool = False
    half: bool = False
    real: bool = False
    window: int = -1

    @classmethod
    def of(cls, node: Node) -> Self:
        """Those of a DFT or an STFT."""
        return cls._frames(node) if node.layer.name == "STFT" else cls._whole(node)

    @classmethod
    def _whole(cls, node: Node) -> Self:
        """DFT: along an axis."""
        x, y, a = node.given[0].spec, node.outputs[0].spec, node.attrs
        axis = a.axis % x.rank
        outer, inner = dims.prod(x.shape[:axis]), dims.prod(x.shape[axis + 1 : -1])
        size, bins = x.shape[axis], y.shape[axis]
        half = a.onesided and a.inverse
        length = a.length if a.length != 0 else bins if half else size

        def signals(elements: Dim, parts: int) -> Signals:
            return Signals(inner, elements * inner * parts, parts, inner * parts, parts)

        ends = (signals(size, parts_of(x.shape[-1])), signals(bins, parts_of(y.shape[-1])))
        count = outer * inner
        return cls(node, count, length, size, bins, *ends, a.inverse, half, a.onesided)

    @classmethod
    def _frames(cls, node: Node) -> Self:
        """STFT: of frames, which begin a step apart."""
        x, y, a = node.given[0].spec, node.outputs[0].spec, node.attrs
        frames, bins, parts = y.shape[1], y.shape[2], parts_of(x.shape[2])
        source = Signals(frames, x.shape[1] * parts, a.frame_step * parts, parts, parts)
        target = Signals(frames, frames * bins * 2, bins * 2, 2, 2)
        size, window = a.frame_length, 1 if len(node.given) > 1 else -1
        count = x.shape[0] * frames
        return cls(node, count, size, size, bins, source, target, real=a.onesided, window=window)


def parts_of(size: Dim) -> int:
    """Real and imaginary part, or the real one alone."""
    return 1 if size == 1 else 2
