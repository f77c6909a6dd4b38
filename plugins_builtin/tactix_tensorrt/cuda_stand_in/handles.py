"""Handles of streams, events, contexts and pools, in the form that cuda-python gives them."""

from __future__ import annotations

import ctypes
import itertools
import threading
from typing import Generic, SupportsIndex, TypeVar

from tactix_tensorrt.cuda_stand_in.statuses import INVALID_HANDLE, CudaRefusal

State = TypeVar("State")

_FIRST, _STEP = 0x10000, 0x10
"""Handles look like addresses; no page of a process lies so low."""


class Handle:
    """A number with a type, as cuda-python wraps what is a pointer in C."""

    def __init__(self, init_value: object = 0) -> None:
        value = 0 if init_value is None else init_value
        if not isinstance(value, (SupportsIndex, Handle)):
            raise TypeError(f"an integer is required, not {type(init_value).__name__}")
        self._cell = ctypes.c_void_p(int(value))

    def __int__(self) -> int:
        return self._cell.value or 0

    def getPtr(self) -> int:
        """The address at which the number is stored."""
        return ctypes.addressof(self._cell)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and int(self) == int(other)

    def __hash__(self) -> int:
        return hash(int(self))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {int(self):#x}>"


class HandleTable(Generic[State]):
    """Handles of one kind that are in use, each with what belongs to it; any thread may call.

    ``what``: what such a handle stands for; ``always``: numbers that need not be made.
    """

    def __init__(self, what: str, always: dict[int, State] | None = None) -> None:
        self._what, self._always = what, dict(always or {})
        self._live = dict(self._always)
        self._numbers = itertools.count(_FIRST, _STEP)
        self._lock = threading.RLock()  # finalizers destroy handles, in whatever thread they run

    def new(self, state: State) -> int:
        with self._lock:
            number = next(self._numbers)
            self._live[number] = state
        return number

    def state(self, number: int) -> State:
        """Raises CudaRefusal for a handle that is not in use."""
        with self._lock:
            if number not in self._live:
                raise self._unknown(number)
            return self._live[number]

    def set(self, number: int, state: State) -> None:
        """Raises CudaRefusal for a handle that is not in use."""
        with self._lock:
            if number not in self._live:
                raise self._unknown(number)
            self._live[number] = state

    def destroy(self, number: int) -> None:
        """Raises CudaRefusal for a handle that is not in use, or that every process has."""
        with self._lock:
            if number in self._always or number not in self._live:
                raise self._unknown(number)
            del self._live[number]

    def _unknown(self, number: int) -> CudaRefusal:
        return CudaRefusal(
            INVALID_HANDLE,
            f"{number:#x} is no {self._what} that was made here and not destroyed since",
        )
