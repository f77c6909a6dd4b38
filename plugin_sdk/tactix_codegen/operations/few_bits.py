"""FewBitsMatMul: rows times constant weights of a few bits, whose blocks along k have a scale each
and perhaps a zero point.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeVar

from tactix.base.dims import Dim, Shape, prod
from tactix.base.dtypes import DType
from tactix.contracts.graph import Node
from tactix.contracts.tactic import Reject
from tactix_codegen.c.epilogue import Epilogue, epilogue

ZEROS = (DType.UINT8, DType.FP32, DType.FP16)
"""Zero points that kernels take."""


@dataclass(frozen=True)
class FewBitsWork:
    """``inputs``: given ones for x, weights, scales and zero points, -1 for none; ``lead``: the
    axes that rows flatten; ``block``: numbers along k that share a scale.
    """

    node: Node
    inputs: tuple[int, int, int, int]
    lead: Shape
    n: int
    k: int
    bits: int
    block: int
    epi: Epilogue

    @property
    def m(self) -> Dim:
        """Rows of x."""
        return prod(self.lead)

    @property
    def dtype(self) -> DType:
        """Of x."""
        return self.node.given[self.inputs[0]].spec.dtype

    @property
    def blocks(self) -> int:
        return -(-self.k // self.block)


W = TypeVar("W", bound=FewBitsWork)


def few_bits(
    node: Node,
    kind: type[W],
    floats: Collection[DType],
    scales: Collection[DType],
    vector: bool = True,
) -> W | Reject:
    """What a node computes, or why no kernel takes it.

    ``floats``, ``scales``: dtypes of x and of scales that the kernel takes; ``vector``: see
    ``epilogue``.
    """
    epi, anchor = epilogue(node, vector=vector), node.anchor
    if isinstance(epi, Reject):
        return epi
    assert anchor is not None
    a, w, scale, zero = (*anchor.inputs, -1)[:4]
    specs = [v.spec for v in node.given]
    if not all(i < 0 or specs[i].is_const for i in (w, scale, zero)):
        return Reject("this kernel takes constant weights, scales and zero points")
    if specs[a].dtype not in floats:
        return Reject(f"this kernel takes {_listed(floats)}")
    if specs[scale].dtype not in scales:
        return Reject(f"this kernel takes scales of {_listed(scales)}")
    if zero >= 0 and specs[zero].dtype not in ZEROS:
        return Reject(f"this kernel takes zero points of {_listed(ZEROS)}")
    n, k, attrs = specs[w].shape[0], specs[a].shape[-1], anchor.attrs
    if 0 in (k, *epi.shape):
        return Reject("a tensor is empty")
    assert isinstance(n, int)
    assert isinstance(k, int)
    inputs, lead = (a, w, scale, zero), epi.shape[:-1]
    return kind(node, inputs, lead, n, k, attrs.bits, attrs.block_size, epi)


def _listed(dtypes: Collection[DType]) -> str:
    return ", ".join(t.value for t in dtypes)
