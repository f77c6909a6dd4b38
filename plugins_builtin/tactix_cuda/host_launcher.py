"""Steps of a CUDA plan that run on the host, between copies from the device and back.

Consecutive steps are one run: what one of them made is not copied for the next. Such a run cuts the
graph of kernels in two and waits for the stream, since the host has to see the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tactix.base.dims import Env, evaluate
from tactix.contracts.device import Device
from tactix.contracts.launcher import Launcher, LinkContext, Operand, Runnable, Step, StepBody

CROSSING_BANDWIDTH = 10e9
"""Bytes per second that estimates assume between pageable host memory and the device."""
CROSSING_SECONDS = 10e-6
"""What a copy and the wait for it take at least."""


class HostLauncher(Launcher):
    """``params`` are those of ``tactix.numpy@1``, or of ``tactix.control@1`` for a step with
    bodies.
    """

    key = "tactix.cuda.host@1"
    device = "cuda"
    host_code = False

    def link(self, steps: Sequence[Step], ctx: LinkContext) -> Runnable:
        """Raises ExecutionError for params that are no layer, or a layer that is not there."""
        from tactix_sdk.numpy_launcher import NumpyLauncher

        return HostRun(steps, NumpyLauncher().link(steps, ctx), ctx.device)

    def produce(
        self,
        step: Step,
        env: Env,
        values: Sequence[Any],
        bodies: Sequence[StepBody],
        ctx: LinkContext,
    ) -> list[Any]:
        """Results in host memory of their own. Raises ExecutionError, and what a body raises."""
        from tactix_ops.control_launcher import ControlLauncher
        from tactix_sdk.numpy_launcher import NumpyLauncher

        own: Launcher = ControlLauncher() if bodies else NumpyLauncher()
        return own.produce(step, env, values, bodies, ctx)


def crossings(steps: Sequence[Step]) -> tuple[list[Operand], list[Operand]]:
    """What consecutive host steps copy from the device before them, and to it behind them: an
    operand for each.
    """
    read: dict[int, Operand] = {}
    written: dict[int, Operand] = {}
    for s in steps:
        for o in s.inputs:
            if o.buffer >= 0 and o.buffer not in written and not o.spec.dtype.on_host:
                read.setdefault(o.buffer, o)
        written |= {o.buffer: o for o in s.outputs if not o.spec.dtype.on_host}
    return list(read.values()), list(written.values())


class HostRun:
    """``inner`` runs over host memory that stands for the device's buffers."""

    def __init__(self, steps: Sequence[Step], inner: Runnable, device: Device) -> None:
        self._inner, self._device = inner, device
        self._read, self._written = crossings(steps)
        self._operands = [o for s in steps for o in (*s.inputs, *s.outputs)]
        self._arrays: dict[int, Any] = {}
        self._places: dict[int, int] = {}

    def bind(self, env: Env, addresses: Sequence[int]) -> None:
        import numpy as np

        sizes = {o.buffer: 0 for o in (*self._read, *self._written)}
        for o in (
            o for o in self._operands if o.buffer in sizes
        ):  # one step may see more of a buffer than another
            sizes[o.buffer] = max(sizes[o.buffer], evaluate(o.spec.nbytes(o.format), env))
        self._arrays = {b: np.zeros(n, np.uint8) for b, n in sizes.items()}
        self._places = {b: addresses[b] for b in sizes}
        own = [0] * len(addresses)
        for b, array in self._arrays.items():
            own[b] = array.__array_interface__["data"][0]
        self._inner.bind(env, own)

    def rebind(self, buffer: int, address: int) -> None:
        if buffer in self._places:
            self._places[buffer] = address

    def __call__(self) -> None:
        for o in self._read:
            self._device.copy_out(self._arrays[o.buffer], self._places[o.buffer])
        self._inner()
        for o in self._written:
            self._device.copy_in(self._places[o.buffer], self._arrays[o.buffer])

    def repeat(self, times: int) -> None:
        for _ in range(times):
            self()
