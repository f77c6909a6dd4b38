"""The arithmetic of shapes, run by the executor of a plan."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from tactix.base.arithmetic import OPERATIONS, IntegerArithmetic


class NativeArithmetic:
    """Arithmetic in the memory of machine code. ``address``: of its txe_arithmetic; ``values`` and
    ``results`` in their order. Raises OverflowError for constants of more than 64 bits.
    """

    def __init__(self, arithmetic: IntegerArithmetic) -> None:
        import numpy as np

        rows = [(OPERATIONS.index(o.kind), o.left, o.right, o.to) for o in arithmetic.operations]
        self._operations = np.array(rows, np.int32).reshape(-1, 4)
        self.values = np.array(arithmetic.values, np.int64)
        self._places = np.array(arithmetic.results, np.int64)
        self.results = np.zeros(max(1, len(arithmetic.results)), np.int64)
        where = self.values.ctypes.data, self._operations.ctypes.data, len(rows)
        found = self._places.ctypes.data, self.results.ctypes.data, len(arithmetic.results)
        self._native = np.array([*where, *found], np.int64)
        self.address: int = self._native.ctypes.data


class NativeEvaluator:
    """An ``Evaluator`` in machine code. Thread-safe.

    ``caller``: gives a call of tx_evaluate for the address of a txe_arithmetic. Raises
    OverflowError as NativeArithmetic does.
    """

    def __init__(
        self, caller: Callable[[int], Callable[[], int]], arithmetic: IntegerArithmetic
    ) -> None:
        self._made, self._count = NativeArithmetic(arithmetic), len(arithmetic.results)
        self._evaluate = caller(self._made.address)
        self._given = memoryview(self._made.values.data)
        self._lock = threading.Lock()

    def __call__(self, values: Sequence[int]) -> memoryview | None:
        """The results, of 8 bytes each; None where an operation has no value in 64 bits."""
        given = self._given
        with self._lock:
            try:
                for i, value in enumerate(values):
                    given[i] = value
            except ValueError:  # more than 64 bits
                return None
            return self._made.results[: self._count].copy().data if self._evaluate() else None
