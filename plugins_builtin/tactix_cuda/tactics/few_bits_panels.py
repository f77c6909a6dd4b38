"""Weights of few bits as kernels of CUDA keep them: in panels of columns, and chunks along k."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from tactix.base.dtypes import DType
from tactix.contracts.artifact import Packed
from tactix_codegen.operations.few_bits import FewBitsWork


class PanelledFewBits(FewBitsWork):
    """``panel``: columns of a panel; ``chunk``: numbers of a chunk along k."""

    panel: ClassVar[int]
    chunk: ClassVar[int]

    @property
    def panels(self) -> int:
        return -(-self.n // self.panel)

    @property
    def chunks(self) -> int:
        """Of a panel."""
        return -(-self.blocks * self.block // self.chunk)

    @property
    def scale_dtype(self) -> DType:
        """In which scales are stored."""
        own = self.node.given[self.inputs[2]].spec.dtype
        return DType.FP16 if own is DType.FP16 else DType.FP32

    def scale_bytes(self) -> int:
        return self.scale_dtype.itemsize

    def zero_bytes(self) -> int:
        """Of a zero point; 0 if all are mid-range."""
        return self.node.given[self.inputs[3]].spec.dtype.itemsize if self.inputs[3] >= 0 else 0

    def packed_weights(self, split: Sequence[int], order: Sequence[int]) -> Packed:
        """Bytes (n, blocks, bytes), of whole panels and chunks, with their axes ``split`` and in
        that ``order``.
        """
        stored, deep = self.blocks * self.block * self.bits // 8, self.chunks * self.chunk
        behind = deep * self.bits // 8 - stored
        return Packed(
            self.inputs[1],
            (
                ("reshape", (self.n, stored)),
                ("pad", ((0, self.panels * self.panel - self.n), (0, behind))),
                ("reshape", tuple(split)),
                ("transpose", tuple(order)),
            ),
        )

    def packed_blocks(self, index: int, groups: int, stored: int) -> Packed:
        """Numbers (n, blocks) of given input ``index`` as [panel][block][column % groups][column /
        groups], ``stored`` blocks of a panel.
        """
        steps: tuple[tuple[str, Any], ...] = (
            ("reshape", (self.n, self.blocks)),
            ("pad", ((0, self.panels * self.panel - self.n), (0, stored - self.blocks))),
            ("reshape", (self.panels, self.panel // groups, groups, stored)),
            ("transpose", (0, 3, 2, 1)),
        )
        wide = self.node.given[index].spec.dtype is DType.BF16
        return Packed(index, (("cast", "f32"), *steps) if wide else steps)
