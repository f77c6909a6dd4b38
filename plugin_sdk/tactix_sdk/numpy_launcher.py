"""Runs a layer's numpy reference as a step: every layer works, none of them fast."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from tactix.base.dims import Env, evaluate_shape
from tactix.base.dtypes import DType
from tactix.base.errors import ExecutionError, TactixError
from tactix.base.host_memory import check_array_fits
from tactix.contracts.attrs import symbols_in
from tactix.contracts.launcher import Launcher, LinkContext, Operand, Runnable, Step, StepBody
from tactix.contracts.layer import Layer
from tactix.contracts.reference import computed, failed
from tactix.contracts.region import decode, resolve


class NumpyLauncher(Launcher):
    """Steps whose ``params`` are ``region.encode(layer, attrs)``. Absent inputs are written as a
    fused body's -1.
    """

    key = "tactix.numpy@1"
    device = "cpu"
    host_code = False

    def link(self, steps: Sequence[Step], ctx: LinkContext) -> Runnable:
        """Raises ExecutionError for params that are no layer, or a layer that is not there."""
        return NumpyRun([NumpyStep(s, *_decode(s, ctx)) for s in steps])

    def produce(
        self,
        step: Step,
        env: Env,
        values: Sequence[Any],
        bodies: Sequence[StepBody],
        ctx: LinkContext,
    ) -> list[Any]:
        """The results in memory of their own. Raises ExecutionError."""
        meaning = _meaning(step, ctx)
        layer = meaning.layer
        try:
            found = _computed(step.name, layer, meaning.at(env), values)
            kept = held(values)
            return [owned(r, o.spec.dtype, kept) for o, r in zip(step.outputs, found, strict=True)]
        except (ValueError, TypeError, LookupError, ArithmeticError, MemoryError) as e:
            raise failed(layer, values, e, step.name) from e


def held(values: Sequence[Any]) -> frozenset[int]:
    """The ids of what lists among a step's inputs hold: all of it is owned."""
    return frozenset(map(id, chain.from_iterable(v for v in values if isinstance(v, list))))


def owned(result: Any, dtype: DType | None = None, kept: frozenset[int] = frozenset()) -> Any:
    """A contiguous array; a copy if it looks at other memory, which may be gone before the result
    is. In lists, too, but for what is ``held`` already: a list grows by one element at a time.
    """
    import numpy as np

    if isinstance(result, (list, tuple)):
        return [x if id(x) in kept else owned(x) for x in result]
    if result is None or isinstance(result, dict):
        return result
    a = np.asarray(result)
    wanted = a.dtype if dtype is None or dtype is DType.OPTIONAL else dtype.numpy
    fits = a.base is None and a.dtype == wanted and a.flags.carray
    if fits:
        return a
    check_array_fits(a.shape, wanted)  # the result may be a view that repeats few elements
    return np.array(a, wanted, order="C")


@dataclass(frozen=True)
class Meaning:
    """What a step computes. ``is_open``: whether its attributes hang on sizes."""

    step: Step
    layer: Layer
    attrs: Any
    is_open: bool

    def at(self, env: Env) -> Any:
        """The attributes at those sizes."""
        return resolve(self.layer, self.attrs, env) if self.is_open else self.attrs


def _meaning(step: Step, ctx: LinkContext) -> Meaning:
    """Of a step of a plan, decoded once. Raises ExecutionError."""
    known = ctx.kept.get(id(step))
    if isinstance(known, Meaning) and known.step is step:
        return known
    layer, attrs = _decode(step, ctx)
    made = ctx.kept[id(step)] = Meaning(step, layer, attrs, bool(symbols_in(attrs)))
    return made


def _computed(name: str, layer: Layer, attrs: Any, inputs: Sequence[Any]) -> Sequence[Any]:
    """The layer's outputs. Raises ExecutionError."""
    import numpy as np

    with np.errstate(all="ignore"):
        return computed(layer, attrs, inputs, name)


def _decode(step: Step, ctx: LinkContext) -> tuple[Layer, Any]:
    try:
        return decode(step.artifact.params, ctx.layer)
    except (TactixError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as e:
        raise ExecutionError("its layer cannot be had", who=step.name, why=repr(e)) from e


class Slot:
    """An operand at a shape: the array over its memory, in storage format."""

    __slots__ = ("array", "dtype", "operand", "shape", "storage", "writable")

    def __init__(self, operand: Operand, writable: bool) -> None:
        self.operand, self.writable = operand, writable
        self.dtype = operand.spec.dtype.numpy
        self.shape: tuple[int, ...] = ()
        self.storage: tuple[int, ...] = ()
        self.array: Any = None

    def bind(self, env: Env, address: int) -> None:
        self.shape = self.operand.spec.at(dict(env))
        self.storage = evaluate_shape(
            self.operand.format.storage_shape(self.operand.spec.shape), env
        )
        self.place(address)

    def place(self, address: int) -> None:
        """Look at another address; 0 for nowhere, which is enough for no elements."""
        import numpy as np

        size = math.prod(self.storage) * self.dtype.itemsize
        if address or not size:
            memory: Any = (ctypes.c_char * size).from_address(address) if size else None
            self.array = np.ndarray(self.storage, self.dtype, memory)
            self.array.flags.writeable = self.writable
        else:
            self.array = None

    def read(self) -> Any:
        """The linear array. Raises ValueError where there is no memory."""
        if self.array is None:
            raise ValueError(f"buffer {self.operand.buffer} has no memory")
        return self.operand.format.unpack(self.array, self.shape)

    def write(self, result: Any) -> None:
        """Store a linear array. Raises ValueError if it is not what the step declares."""
        if result.shape != self.shape or result.dtype != self.dtype:
            raise ValueError(
                f"the layer gave {result.dtype}{result.shape}, declared is {self.dtype}{self.shape}"
            )
        self.array[...] = self.operand.format.pack(result)


class NumpyStep:
    """One layer over slots."""

    def __init__(self, step: Step, layer: Layer, attrs: Any) -> None:
        self.name, self.layer, self.attrs = step.name, layer, attrs
        self.inputs = [Slot(o, False) for o in step.inputs]
        self.outputs = [Slot(o, True) for o in step.outputs]
        self._resolved: Any = None

    def bind(self, env: Env, addresses: Sequence[int]) -> None:
        try:
            for s in self.outputs:
                s.bind(env, addresses[s.operand.buffer])
            self._resolved = resolve(self.layer, self.attrs, env)
            for s in self.inputs:
                s.bind(env, addresses[s.operand.buffer] if s.operand.buffer >= 0 else 0)
        except (ValueError, TypeError, LookupError, ArithmeticError, MemoryError) as e:
            raise failed(self.layer, (), e, self.name) from e

    def run(self) -> None:
        import numpy as np

        given: list[Any] = []
        try:
            given += (s.read() for s in self.inputs)
            found = _computed(self.name, self.layer, self._resolved, given)
            for s, r in zip(self.outputs, found, strict=True):
                s.write(np.asarray(r))
        except ExecutionError:
            raise
        except Exception as e:
            raise failed(self.layer, given, e, self.name) from e


class NumpyRun:
    """Steps in order."""

    def __init__(self, steps: Sequence[NumpyStep]) -> None:
        self.steps = tuple(steps)
        self._users: dict[int, list[Slot]] = {}
        for s in self.steps:
            for slot in (*s.inputs, *s.outputs):
                self._users.setdefault(slot.operand.buffer, []).append(slot)

    def bind(self, env: Env, addresses: Sequence[int]) -> None:
        for s in self.steps:
            s.bind(env, addresses)

    def rebind(self, buffer: int, address: int) -> None:
        for slot in self._users.get(buffer, ()):
            slot.place(address)

    def __call__(self) -> None:
        for s in self.steps:
            s.run()

    def repeat(self, times: int) -> None:
        for _ in range(times):
            self()
