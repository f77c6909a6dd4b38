"""Values of one run of a plan in segments: arrays and objects by buffer, and where the device
finds them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tactix.base.dims import Env, evaluate_shape
from tactix.base.dtypes import DType
from tactix.base.errors import AllocationError, ExecutionError
from tactix.base.host_memory import check_array_fits
from tactix.base.tensor import LINEAR
from tactix.contracts.launcher import Operand
from tactix.run.arrays import address_of, read
from tactix.run.link import LinkedPlan
from tactix.run.memory import Memory


class RunValues:
    """On a device that reads host memory: a value is where its array is. ``addresses``: by buffer.

    ``weights``: the program's addresses as they were when the run began, by which all of it goes.
    """

    def __init__(self, program: LinkedPlan) -> None:
        self.program, self.weights = program, program.addresses
        self.addresses = list(self.weights)
        self.values: dict[int, Any] = {}

    def put(self, buffer: int, x: Any, dtype: DType) -> None:
        """A linear array, or an object, that the host made. Raises ExecutionError for one of
        another dtype.
        """
        self.values[buffer] = x if dtype.on_host else self._plain(buffer, x, dtype)
        self.addresses[buffer] = 0 if dtype.on_host else address_of(self.values[buffer])

    def _plain(self, buffer: int, x: Any, dtype: DType) -> Any:
        """The array, contiguous: steps that run at addresses read it as what the plan declares."""
        if x.dtype != dtype.numpy:
            name = self.program.plan.buffers[buffer].name
            raise ExecutionError(
                f"{name!r} is {dtype.value}, got {x.dtype}", do="Build the plan again"
            )
        return x if x.flags.c_contiguous else np.ascontiguousarray(x)

    def make(self, buffer: int, shape: tuple[int, ...], dtype: Any) -> None:
        """Room for what steps of the device will write."""
        made = self.values[buffer] = empty_array(shape, dtype)
        self.addresses[buffer] = address_of(made)

    def place(self, buffers: Sequence[int]) -> None:
        """See to it that the device can read them."""

    def found(self, buffer: int) -> Any:
        """What was put or made."""
        return self.values[buffer]

    def value(self, step: str, o: Operand, env: Env) -> Any:
        """An operand of a step, whose extents hold, as a linear array or an object. Raises
        ExecutionError.
        """
        if o.spec.dtype.on_host:
            return self.found(o.buffer)
        try:
            return self._array(o, evaluate_shape(o.spec.shape, env), env)
        except (ValueError, ArithmeticError, MemoryError) as e:
            what = (
                f"buffer {o.buffer} cannot be read as {o.spec} of {o.spec.nbytes(o.format)} bytes"
            )
            raise ExecutionError(
                what, who=step, why=f"{e} at {dict(env)}", do="Build the plan again"
            ) from None

    def _array(self, o: Operand, shape: tuple[int, ...], env: Env) -> Any:
        """Raises ValueError, ArithmeticError, MemoryError."""
        if o.buffer in self.values:
            x = self.found(o.buffer)
            if x.dtype != o.spec.dtype.numpy or x.size != math.prod(shape):
                raise ValueError(f"it holds {x.dtype}{x.shape}")
            return x.reshape(shape)
        if o.buffer < 0:
            raise ValueError("it is absent")
        if o.format == LINEAR:
            return self._stored(o.buffer, o.spec.dtype, shape)
        storage = evaluate_shape(o.format.storage_shape(o.spec.shape), env)
        return o.format.unpack(self._stored(o.buffer, o.spec.dtype, storage), shape)

    def _stored(self, buffer: int, dtype: DType, shape: tuple[int, ...]) -> Any:
        return read(self.program.device, dtype, shape, self.addresses[buffer])


class MirroredValues(RunValues):
    """On a device with memory of its own: copied to it when its steps read a value, and back when
    the host does.
    """

    def __init__(self, program: LinkedPlan) -> None:
        super().__init__(program)
        self._memory: dict[int, Memory] = {}
        self._made: set[int] = set()

    def put(self, buffer: int, x: Any, dtype: DType) -> None:
        self.values[buffer] = x if dtype.on_host else self._plain(buffer, x, dtype)
        self.addresses[buffer] = 0
        self._memory.pop(buffer, None)
        self._made.discard(buffer)

    def make(self, buffer: int, shape: tuple[int, ...], dtype: Any) -> None:
        made = self.values[buffer] = empty_array(shape, dtype)
        self._made.add(buffer)
        self._allocate(buffer, made)

    def _allocate(self, buffer: int, x: Any) -> None:
        self._memory[buffer] = Memory.allocate(self.program.allocator, max(1, x.nbytes))
        self.addresses[buffer] = self._memory[buffer].address

    def place(self, buffers: Sequence[int]) -> None:
        for b in buffers:
            if b in self.values and b not in self._memory:
                self._allocate(b, self.values[b])
                self.program.device.copy_in(self.addresses[b], self.values[b])

    def found(self, buffer: int) -> Any:
        if buffer in self._made:
            self._made.discard(buffer)
            self.program.device.copy_out(self.values[buffer], self.addresses[buffer])
        return self.values[buffer]

    def _stored(self, buffer: int, dtype: DType, shape: tuple[int, ...]) -> Any:
        """Weights are on the host as well."""
        blob = self.program.plan.buffers[buffer].blob
        if not blob:
            return super()._stored(buffer, dtype, shape)
        size = math.prod(shape) * dtype.itemsize
        return (
            np.frombuffer(self.program.plan.blobs[blob], np.uint8)[:size]
            .view(dtype.numpy)
            .reshape(shape)
        )


def empty_array(shape: tuple[int, ...], dtype: Any) -> Any:
    """A new array on the host. Raises AllocationError."""
    try:
        check_array_fits(shape, np.dtype(dtype))
        return np.empty(shape, dtype)
    except (MemoryError, ValueError, OverflowError) as e:
        raise AllocationError(f"no memory for an output of shape {shape}", why=str(e)) from None
