"""Whether what steps read and write lies in their buffers: decided when a plan is decoded, or else
at each shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tactix.base import dims
from tactix.base.dims import Assumption, Dim, Env
from tactix.base.errors import PlanFormatError, ShapeError
from tactix.base.tensor import TensorSpec
from tactix.plan.parts import around

if TYPE_CHECKING:
    from tactix.contracts.launcher import Step
    from tactix.plan.schema import Buffer, Plan

SIZE_LIMIT = 1 << 47
"""Bytes that nothing has: more than an address space of today holds."""


@dataclass(frozen=True)
class Extent:
    """That a step can keep a tensor or scratch: ``nbytes`` of a buffer's ``capacity`` in bytes."""

    step: str
    buffer: str
    nbytes: Dim
    capacity: Dim

    def decided(self) -> bool:
        """Whether it holds at every shape. Raises PlanFormatError if it holds at none."""
        if self.nbytes == self.capacity:
            return True
        order = dims.compare(self.nbytes, self.capacity)
        if order == ">":
            what = f"takes {self.nbytes} bytes of buffer {self.buffer!r}, which has {self.capacity}"
            raise PlanFormatError(what, who=f"step {self.step!r}")
        return order in ("<", "<=", "==")

    def conditions(self) -> tuple[Assumption, ...]:
        """What it comes to."""
        room = Assumption(self.capacity, ">=", self.nbytes)
        return (
            room,
            Assumption(self.nbytes, ">=", 0),
            Assumption(SIZE_LIMIT - 1, ">=", self.capacity),
        )

    def check(self, env: Env) -> None:
        """Raises ShapeError if it does not hold at those symbols."""
        nbytes, capacity = (size_at(d, env, self.step) for d in (self.nbytes, self.capacity))
        if nbytes > capacity:
            what = (
                f"a tensor of {nbytes} bytes is larger than its buffer "
                f"{self.buffer!r}, which has {capacity}"
            )
            raise ShapeError(what, who=self.step, why=f"at {dict(env)}")


def size_at(d: Dim, env: Env, who: str) -> int:
    """A size in bytes. Raises ShapeError."""
    try:
        found = dims.evaluate(d, env)
    except ShapeError as e:
        e.who = e.who or who
        raise
    if 0 <= found < SIZE_LIMIT:
        return found
    at = ", ".join(f"{s} is {env[s]}" for s in sorted(dims.symbols(d)))
    what = f"a size of {d} bytes makes no sense: {found}"
    raise ShapeError(what, who=who, why=at, do="Give inputs of other shapes")


def extents(plan: Plan) -> Mapping[int, tuple[Extent, ...]]:
    """What has to be checked at each shape, by step. Raises PlanFormatError for what holds at none.

    What a produced step gives has memory of its own.
    """
    out: dict[int, tuple[Extent, ...]] = {}
    for i, s in enumerate(plan.steps):
        taken = {e: None for e in _of_step(plan, s, i in plan.produced) if not e.decided()}
        if taken:
            out[i] = tuple(taken)
    return out


def _of_step(plan: Plan, s: Step, produced: bool) -> Iterator[Extent]:
    buffers = plan.buffers
    for o in s.inputs:
        if o.buffer >= 0 and not o.spec.dtype.on_host:
            buffer = buffers[o.buffer]
            yield Extent(s.name, buffer.name, o.spec.nbytes(o.format), _content(buffer))
    yield from _of_parts(s, buffers)
    if produced:
        return
    for o in s.outputs:
        buffer = buffers[o.buffer]
        yield Extent(s.name, buffer.name, o.spec.nbytes(o.format), buffer.nbytes)
    if s.workspace >= 0:
        buffer = buffers[s.workspace]
        yield Extent(s.name, buffer.name, s.artifact.workspace, buffer.nbytes)


def _of_parts(s: Step, buffers: Sequence[Buffer]) -> Iterator[Extent]:
    """That parts end where the buffers end that they lie in, or before."""
    for operand in (o.buffer for o in (*s.inputs, *s.outputs) if o.buffer >= 0):
        for i in (operand, *around(buffers, operand)):
            if (part := buffers[i]).inside >= 0:
                whole = buffers[part.inside]
                yield Extent(s.name, whole.name, part.offset + part.nbytes, whole.nbytes)


def _content(buffer: Buffer) -> Dim:
    """Bytes of a buffer that mean something: a weight's own, or what the step that wrote it has
    written.
    """
    return (
        buffer.nbytes
        if buffer.kind == "weight"
        else TensorSpec(buffer.dtype, buffer.shape).nbytes(buffer.format)
    )


class Checked(Protocol):
    """What is looked at when sizes are known."""

    def check(self, env: Env) -> None:
        """Raises ShapeError."""

    def conditions(self) -> tuple[Assumption, ...]:
        """What must hold for that."""


def check(extents: Iterable[Checked], env: Env) -> None:
    """Raises ShapeError for the first that does not hold."""
    for e in extents:
        e.check(env)
