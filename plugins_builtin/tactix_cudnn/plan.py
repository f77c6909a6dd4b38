"""Plans of cuDNN that were kept as text, and their runs: what a runtime needs of the library's
graphs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tactix.base.errors import PlanFormatError
from tactix_cudnn import library as dnn
from tactix_cudnn.library import Cudnn, Descriptor

FAILED = "!"
"""What the text of a plan never begins with: why there is none follows."""


@dataclass(frozen=True)
class Binding:
    """Where a plan's tensors are. ``tensors``: the id of each argument's tensor, and by how many
    bytes it begins later.

    ``scalars``: the bytes of numbers on the host, by the id of their tensors.
    """

    tensors: tuple[tuple[int, int], ...]
    scalars: tuple[tuple[int, bytes], ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "tensors": [list(t) for t in self.tensors],
            "scalars": [[i, b.hex()] for i, b in self.scalars],
        }

    @classmethod
    def from_json(cls, j: Mapping[str, Any]) -> Binding:
        """Raises PlanFormatError."""
        try:
            tensors = tuple((int(uid), int(start)) for uid, start in j["tensors"])
            return cls(
                tensors, tuple((int(uid), bytes.fromhex(text)) for uid, text in j["scalars"])
            )
        except (TypeError, KeyError, ValueError) as e:
            raise PlanFormatError("not the tensors of a plan of cuDNN", why=str(e)) from None


class CudnnPlan:
    """A plan that was kept as text. Raises LibraryFailure."""

    def __init__(self, library: Cudnn, binding: Binding, text: bytes) -> None:
        self.library, self.tensors = library, binding.tensors
        self._scalars = {uid: ctypes.create_string_buffer(x, len(x)) for uid, x in binding.scalars}
        made = Descriptor(library, dnn.PLAN).text(405, text)
        self.descriptor = made.set(400, dnn.HANDLE, library.handle).finalize()
        (self.workspace,) = self.descriptor.get(402, dnn.INT64)

    def bind(self, arguments: Sequence[int]) -> CudnnPlan:
        """All sizes are settled already."""
        return self

    def enqueue(self, arguments: Sequence[int], stream: int) -> None:
        """``arguments``: addresses of the binding's tensors in order, and of the workspace or 0."""
        *given, workspace = arguments
        places = {
            uid: place + start for place, (uid, start) in zip(given, self.tensors, strict=True)
        }
        places |= {uid: ctypes.addressof(x) for uid, x in self._scalars.items()}
        pack = Descriptor(self.library, dnn.VARIANT_PACK).set(1000, dnn.INT64, *places)
        pack.set(1001, dnn.VOID_PTR, *places.values()).set(1003, dnn.VOID_PTR, workspace)
        self.library.execute(self.descriptor, pack.finalize(), stream)
