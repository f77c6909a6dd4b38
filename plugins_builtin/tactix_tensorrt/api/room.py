"""Whether tensors have room where they lie, as far as the stand-in for CUDA's memory tells."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tactix.base.errors import InvalidArgument

if TYPE_CHECKING:
    from tactix_tensorrt.cuda_stand_in.memory import AllocationTable

MACHINE = "tactix_tensorrt.cuda_stand_in.machine"


class RoomCheck:
    """Of the tensors of one context on the host: looked at when addresses or shapes changed
    (``due``), or allocations of the process did. Nothing is where nothing is allocated with the
    stand-in.
    """

    def __init__(self) -> None:
        self.due = True
        self._changes = 0
        self._bindings: Sequence[int] = ()

    def is_due(self, bindings: Sequence[int] = ()) -> bool:
        """Whether something changed since the last time. ``bindings``: addresses of this run, where
        it has its own.
        """
        table = _table()
        if table is None:
            return False
        if bindings != self._bindings:
            self.due, self._bindings = True, bindings
        return self.due or table.changes != self._changes

    def check(self, tensors: Iterator[tuple[str, int, int]]) -> None:
        """``tensors``: names, addresses, bytes. Raises InvalidArgument for one without room."""
        table = _table()
        if table is None:
            return
        changes = table.changes
        for name, address, needed in tensors:
            found = table.room(address, needed) if address else needed
            if found < needed:
                what = (
                    f"tensor {name!r} needs {needed} bytes at {address:#x}, and {found} are there"
                )
                do = "Allocate memory for its shape, and free it after the run"
                raise InvalidArgument(what, do=do)
        self.due, self._changes = False, changes


def _table() -> AllocationTable | None:
    """Where a program has allocated memory with the stand-in: a process that has not loaded it is
    not made to.
    """
    machine = sys.modules.get(MACHINE)
    found = None if machine is None else machine.MACHINE.memory
    return found if found is not None and found.changes else None
