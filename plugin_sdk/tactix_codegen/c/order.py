"""Order in C: keys of numbers, and ranks of elements (``c/lib/order.h``)."""

from __future__ import annotations

from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dims import Dim, Shape
from tactix.base.dtypes import DType
from tactix.contracts.graph import Node
from tactix.contracts.tactic import Reject
from tactix_codegen.c import text as c_text

PLACES = 1 << 32
"""Elements that ranks of 64 bits tell apart."""


def preludes() -> tuple[str, ...]:
    """Preludes of kernels that put elements in order."""
    return (*c_text.vector_preludes(), c_text.prelude("move.h"), c_text.prelude("order.h"))


def why_not(node: Node, axis: int) -> Reject | None:
    """Why the elements of a node's first input cannot be ranked along an axis, if they cannot."""
    spec = node.given[0].spec
    if node.is_fused:
        return Reject("elements are chosen, not computed: no epilogue")
    if not c_text.has_ctype(spec.dtype):
        return Reject(f"no elements of {spec.dtype.value} in C")
    if spec.rank == 0:
        return Reject("a scalar has no axis")
    size = spec.shape[axis]
    if isinstance(size, int) and size > PLACES:
        return Reject(f"places of {size} elements need more than 32 bits")
    return None


@dataclass(frozen=True)
class Ranks:
    """How elements of a dtype are ranked: larger ones higher, or smaller ones."""

    dtype: DType
    largest: bool = True

    @property
    def is_wide(self) -> bool:
        """Whether keys have 64 bits, and ranks 128."""
        return self.dtype.bits > 32

    @property
    def bits(self) -> int:
        """Of a rank: the end of the names of functions over ranks."""
        return 128 if self.is_wide else 64

    @property
    def type(self) -> str:
        """The C type of a rank."""
        return "tx_wide" if self.is_wide else "uint64_t"

    @property
    def half(self) -> str:
        """The C type of a key, and of a place in a rank."""
        return "uint64_t" if self.is_wide else "uint32_t"

    @property
    def element(self) -> str:
        """The C type of an element as its bits."""
        return f"uint{8 * self.dtype.itemsize}_t"

    @property
    def nbytes(self) -> int:
        """Of a rank."""
        return self.bits // 8

    def key(self, element: str) -> str:
        """The key of an element's bits: the highest rank has the largest."""
        key = f"tx_key_{self.dtype.value}({element})"
        return key if self.largest else f"({self.half})~{key}"

    def rank(self, key: str, place: str) -> str:
        """Of a key and the element's place."""
        return f"(({self.type})({key}) << {self.bits // 2} | ({self.half})~({place}))"

    def place(self, rank: str) -> str:
        """The place in a rank."""
        return f"(int64_t)({self.half})~({self.half})({rank})"


@dataclass(frozen=True)
class Lines:
    """A tensor as lines along one axis: ``outer * inner`` of ``size`` elements, ``inner`` apart."""

    outer: Dim
    size: Dim
    inner: Dim

    @classmethod
    def along(cls, shape: Shape, axis: int) -> Lines:
        """The lines of a shape along an axis, which may count from the end."""
        at = axis % len(shape)
        return cls(dims.prod(shape[:at]), shape[at], dims.prod(shape[at + 1 :]))

    @property
    def count(self) -> Dim:
        return self.outer * self.inner
