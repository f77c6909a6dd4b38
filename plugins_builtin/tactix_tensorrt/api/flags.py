"""A mask of flags, and the methods that programs change it by."""

from __future__ import annotations

from typing import Generic, TypeVar

from tactix_tensorrt.api.enums import Enum

F = TypeVar("F", bound=Enum)


class Flagged(Generic[F]):
    """``flags``: a mask, in which each flag of an enum has the bit of its number."""

    flags = 0

    def set_flag(self, flag: F) -> None:
        self.flags |= flag.mask

    def clear_flag(self, flag: F) -> None:
        self.flags &= ~flag.mask

    def get_flag(self, flag: F) -> bool:
        return bool(self.flags & flag.mask)
