"""Engines that know their contexts."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from tactix.run.context import ExecutionContext
from tactix.run.inspector import InspectedEngine


class TrackedEngine(InspectedEngine):
    """``_contexts``: those that are there. ``_births``: held while one is made, or while none may
    be.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._contexts: weakref.WeakSet[ExecutionContext] = weakref.WeakSet()
        self._births = threading.RLock()

    def create_execution_context(self) -> ExecutionContext:
        """Raises what making it raises."""
        with self._births:
            context = super().create_execution_context()
            self._contexts.add(context)
        return context
