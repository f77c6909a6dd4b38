"""Tensor maps: what the copy engine of sm_90 and later must know of a tensor. A kernel takes one as
a parameter.

An artifact's ``params["maps"]`` has, for every launch, the maps of its first arguments: such an
argument gives the address of the tensor. A plan keeps sizes as dims; ``encode`` asks the driver for
the 128 bytes once shapes and addresses are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tactix.base import dims
from tactix.base.dims import Shape
from tactix.base.dtypes import DType
from tactix.base.errors import InvalidArgument
from tactix.contracts.artifact import KernelArtifact
from tactix_cuda.driver import Driver

BYTES = 128
"""Of a map: a CUtensorMap, which a kernel takes by value as a ``__grid_constant__`` parameter."""
ALIGNMENT = 64
"""Bytes that a map's address is a multiple of (CUDA driver API, CUtensorMap)."""
ROW = 128
"""Bytes of a row in shared memory, with its chunks of 16 permuted: chunk c of row r lies at c XOR r
modulo 8 (CU_TENSOR_MAP_SWIZZLE_128B), so that eight rows of one chunk lie in different banks, and
as ``wgmma`` reads operands of that layout.
"""
_TYPES = {
    DType.FP16: "FLOAT16",
    DType.BF16: "BFLOAT16",
    DType.INT8: "UINT8",
    DType.UINT8: "UINT8",
    DType.FP8: "UINT8",
    DType.FP8E5M2: "UINT8",
}
"""What the driver calls elements; of bytes it knows one kind, and copies and zeros are the same."""


@dataclass(frozen=True)
class TensorMap:
    """A tensor's ``shape``, innermost axis first, and the ``strides`` in bytes of its further axes.

    ``box``: elements along each axis that one copy takes. With ``corners`` one takes (channels,
    pixels) ``box`` of windows instead: the axes are (channels, x, y, n), windows start from
    ``corners[0]`` (x, y) on and, as counted from the last pixel, up to ``corners[1]``, ``steps``
    apart. ``offset``: bytes from the argument's address to the tensor.
    """

    dtype: DType
    shape: Shape
    strides: Shape
    box: tuple[int, ...]
    steps: tuple[int, ...] = ()
    corners: tuple[tuple[int, int], ...] = ()
    offset: int = 0

    def to_json(self) -> dict[str, Any]:
        """For ``KernelArtifact.params``."""
        out = {n: [dims.to_json(d) for d in getattr(self, n)] for n in ("shape", "strides")}
        more = {"box": [*self.box], "steps": [*self.steps], "corners": [[*c] for c in self.corners]}
        return {"dtype": self.dtype.value, "offset": self.offset, **out, **more}

    @classmethod
    def from_json(cls, j: Mapping[str, Any]) -> TensorMap:
        """Inverse of ``to_json``; raises InvalidArgument."""
        try:
            shape, strides = (tuple(dims.from_json(d) for d in j[n]) for n in ("shape", "strides"))
            box, steps = (tuple(int(n) for n in j[name]) for name in ("box", "steps"))
            corners = tuple((int(x), int(y)) for x, y in j["corners"])
            return cls(DType(j["dtype"]), shape, strides, box, steps, corners, int(j["offset"]))
        except (KeyError, TypeError, ValueError) as e:
            raise InvalidArgument("not a tensor map", why=str(e)) from None

    @property
    def dims(self) -> Shape:
        """What depends on shapes: all sizes, then all strides."""
        return (*self.shape, *self.strides)

    def encode(self, driver: Driver, address: int, numbers: Sequence[int]) -> bytes:
        """The map for an argument's address; ``numbers``: the values of ``dims``. Raises
        CudaFailure.
        """
        api, rank, address = driver.api, len(self.shape), address + self.offset
        sizes = [
            api.cuuint64_t(max(1, n)) for n in numbers[:rank]
        ]  # nothing is copied of an empty tensor
        strides = [api.cuuint64_t(n) for n in numbers[rank:]]
        steps = [api.cuuint32_t(n) for n in self.steps or (1,) * rank]
        box = [api.cuuint32_t(n) for n in self.box]
        # no interleaving: channels are innermost already; what is fetched comes into the L2 cache
        # by 256 bytes, so that a row's next stage is there; zeros outside, which add nothing
        kind = getattr(api.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_TYPES[self.dtype]}")
        how = (
            api.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            api.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            api.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            api.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
        if not self.corners:
            made = driver.call(
                "cuTensorMapEncodeTiled", kind, rank, address, sizes, strides, box, steps, *how
            )
        else:
            lower, upper = ([*c] for c in self.corners)
            windows = (lower, upper, self.box[0], self.box[1], steps)
            made = driver.call(
                "cuTensorMapEncodeIm2col", kind, rank, address, sizes, strides, *windows, *how
            )
        return b"".join(int(word).to_bytes(8, "little") for word in made.opaque)


def maps_of(artifact: KernelArtifact) -> list[list[TensorMap]]:
    """The maps of every launch's first arguments; empty if it has none. Raises InvalidArgument."""
    if "maps" not in artifact.params:
        return []
    if not isinstance(said := artifact.params["maps"], (list, tuple)):
        raise InvalidArgument(f"tensor maps are no list but {said!r}")
    out = [[TensorMap.from_json(j) for j in some] for some in said]
    fits = [len(m) <= len(x.args) for m, x in zip(out, artifact.launches, strict=False)]
    if len(out) != len(artifact.launches) or not all(fits):
        raise InvalidArgument("tensor maps for other launches than there are")
    return out


class MapMemory:
    """Room for encoded maps, which kernels' arguments are taken from. ``places``: the addresses."""

    def __init__(self, count: int) -> None:
        import numpy as np

        self._bytes = np.zeros(count * BYTES + ALIGNMENT, np.uint8)
        first = -(-self._bytes.ctypes.data // ALIGNMENT) * ALIGNMENT
        self._first = first - self._bytes.ctypes.data
        self.places = [first + i * BYTES for i in range(count)]

    def put(self, index: int, encoded: bytes) -> None:
        """Keep a map's bytes at its place."""
        import numpy as np

        at = self._first + index * BYTES
        self._bytes[at : at + BYTES] = np.frombuffer(encoded, np.uint8)
