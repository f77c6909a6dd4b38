"""Debug tensors: outputs of a plan that its engine hides, and that a listener is told of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tactix.run.memory import Memory
from tactix_tensorrt.api.callbacks import IDebugListener
from tactix_tensorrt.api.enums import DataType, TensorLocation
from tactix_tensorrt.api.plan_facts import PlanFacts
from tactix_tensorrt.api.values import FROM_NATIVE, Dims

if TYPE_CHECKING:
    from tactix.contracts.allocator import Allocator
    from tactix.plan.schema import Plan


@dataclass(frozen=True)
class Seen:
    """Where a tensor lies after a run, and its shape."""

    address: int
    shape: Dims


class HiddenMemory:
    """Memory of outputs that an engine does not show, as tactix asks for it.

    What was given stays until this goes: a run in a stream may still write it.
    """

    def __init__(self, allocator: Allocator) -> None:
        self._allocator = allocator
        self._held: dict[str, list[Memory]] = {}
        self._shapes: dict[str, Dims] = {}

    def reallocate_output(self, name: str, memory: int, size: int, alignment: int) -> int:
        held = self._held.setdefault(name, [])
        if not held or held[-1].size < size:
            held.append(Memory.allocate(self._allocator, size))
        return held[-1].address

    def notify_shape(self, name: str, shape: tuple[int, ...]) -> None:
        self._shapes[name] = Dims(shape)

    def seen(self, name: str) -> Seen:
        """After a run."""
        return Seen(self._held[name][-1].address, self._shapes[name])


class DebugTensors:
    """Of a context: which tensors are told of, and to whom."""

    def __init__(self, plan: Plan, facts: PlanFacts, allocator: Allocator) -> None:
        self._facts = facts
        self.memory = HiddenMemory(allocator)
        self.listener: IDebugListener | None = None
        self.states = dict.fromkeys(facts.debug, False)
        self.unfused = False
        ios = (*plan.inputs, *plan.outputs)
        self._dtypes: dict[str, DataType] = {io.name: FROM_NATIVE[io.dtype] for io in ios}

    def tell(self, seen: Callable[[str], Seen], stream: int, location: TensorLocation) -> list[str]:
        """Call the listener for what is on; gives names of tensors that it could not take.

        ``seen``: where one lies that the program gave memory for.
        """
        if self.listener is None:
            return []
        wanted = [name for name, on in self.states.items() if on]
        wanted += self._facts.unfused if self.unfused else ()
        failed = []
        for name in dict.fromkeys(wanted):
            hidden = name in self._facts.hidden
            at = self.memory.seen(name) if hidden else seen(name)
            given = (at.address, location, self._dtypes[name], at.shape, name, stream)
            if self.listener.process_debug_tensor(*given) is False:
                failed.append(name)
        return failed
