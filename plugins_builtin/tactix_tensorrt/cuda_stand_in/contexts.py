"""Contexts: handles and each thread's stack of them. Memory is the same in all."""

from __future__ import annotations

import threading

from tactix_tensorrt.cuda_stand_in.handles import HandleTable

PRIMARY_CONTEXT = 1
"""Handle of the context that the runtime API uses."""


class _Stack(threading.local):
    def __init__(self) -> None:
        self.handles: list[int] = []


class ContextTable:
    """Methods raise CudaRefusal for a context that is not in use."""

    def __init__(self) -> None:
        self._handles = HandleTable[None]("context", {PRIMARY_CONTEXT: None})
        self._stack = _Stack()

    def create(self) -> int:
        """A new one, which is this thread's current one."""
        made = self._handles.new(None)
        self.push(made)
        return made

    def destroy(self, handle: int) -> None:
        self._handles.destroy(handle)
        if self.current() == handle:
            self.pop()

    def push(self, handle: int) -> None:
        """``handle``: 0 for none."""
        if handle:
            self._handles.state(handle)
        self._stack.handles.append(handle)

    def pop(self) -> int:
        """What was the current one; 0 for none."""
        return self._stack.handles.pop() if self._stack.handles else 0

    def current(self) -> int:
        """0 for none."""
        return self._stack.handles[-1] if self._stack.handles else 0
