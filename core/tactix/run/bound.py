"""The plan linked and bound at one shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from tactix.base.arrays import Array
from tactix.base.host_memory import check_array_fits
from tactix.contracts.launcher import Runnable, bind
from tactix.run.arrays import AcceptedArrays, address_of
from tactix.run.layout import Layout
from tactix.run.link import LinkedPlan
from tactix.run.memory import Memory
from tactix.run.run_times import RunTimes

KEPT_BYTES = 1 << 13
"""Outputs of so many bytes in all are written to one place in each run, and copied from there:
a copy takes less time than to ask where a new array lies, and to tell kernels.
"""


class BoundPlan:
    """``current``: the io addresses in the tables, in the engine's order, 0 where not yet given.

    ``memory``: what the tables point into; None if they have to be bound before the next run.
    ``times``: of runs that others measured. ``link``: links the steps, now unless ``runnable`` is
    given: linked steps, which those of another shape may have been.
    """

    def __init__(
        self,
        program: LinkedPlan,
        layout: Layout,
        link: Callable[[], Runnable],
        runnable: Runnable | None = None,
    ) -> None:
        import numpy as np

        self.program, self.layout = program, layout
        self._link = link
        self.runnable = runnable or link()
        self._surrendered = False
        shapes = layout.shapes
        self.buffers = program.io_buffers
        expected = AcceptedArrays((dtype, shapes[name]) for name, dtype in program.input_dtypes)
        self.accepts = expected.accepts
        self.results = [(shapes[name], dtype) for name, dtype in program.output_dtypes]
        for shape, dtype in self.results:
            check_array_fits(shape, dtype)
        self.current = [0] * len(self.buffers)
        self.memory: Memory | None = None
        self.times = RunTimes()
        self._empty = np.empty
        self._kept: list[Array] = []
        if sum(math.prod(shape) * dtype.itemsize for shape, dtype in self.results) <= KEPT_BYTES:
            self._kept = [np.empty(shape, dtype) for shape, dtype in self.results]
        self._kept_at = [address_of(y) for y in self._kept]

    def infer(self, given: Sequence[Array], memory: Memory) -> list[Array]:
        """New outputs for inputs that are accepted. Raises as ``run``, and MemoryError."""
        if self._kept:
            self.run([*map(address_of, given), *self._kept_at], memory)
            return [y.copy() for y in self._kept]
        outputs = [self._empty(shape, dtype) for shape, dtype in self.results]
        self.run([*map(address_of, given), *map(address_of, outputs)], memory)
        return outputs

    def run(self, addresses: list[int], memory: Memory) -> None:
        """Run on inputs and outputs at these addresses. Raises ShapeError, ExecutionError."""
        current = self.current
        if memory is not self.memory:
            self._bind(addresses, memory)
        elif addresses != current:
            rebind = self.runnable.rebind
            for i, address in enumerate(addresses):
                if address != current[i]:
                    rebind(self.buffers[i], address)
            self.current = addresses
        self.runnable()

    def surrender(self) -> Runnable:
        """The linked steps, for another shape; what still runs at this one links them again."""
        self.memory, self._surrendered = None, True
        return self.runnable

    def _bind(self, ios: list[int], memory: Memory) -> None:
        """Shapes, weights, intermediate memory, inputs and outputs."""
        if self._surrendered:
            self.runnable, self._surrendered = self._link(), False
        import numpy as np

        found = self.program.based(memory.address) + np.asarray(self.layout.offsets, np.int64)
        addresses = found.data
        for buffer, address in zip(self.buffers, ios, strict=True):
            addresses[buffer] = address
        bind(self.runnable, self.program.plan.steps, self.layout.env, addresses)
        self.current, self.memory = list(ios), memory  # a copy: the caller may change its list

    def move(self, addresses: Mapping[int, int]) -> None:
        """Weights lie elsewhere, by buffer."""
        for buffer, address in addresses.items() if self.memory else ():
            self.runnable.rebind(buffer, address)
