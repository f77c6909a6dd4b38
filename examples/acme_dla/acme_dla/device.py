"""The accelerator: it shares the host's memory, runs subgraphs, and knows how long a real one would
take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from acme_dla import limits
from acme_dla.tactics import HOST, KIND, SUBGRAPH
from tactix_cpu.allocator import ArenaAllocator
from tactix_cpu.device import CpuDevice
from tactix_sdk import DeviceProperties, Launcher, LinkContext, Runnable, Step, errors
from tactix_sdk.numpy_launcher import NumpyLauncher, NumpyRun


class SharedMemory(ArenaAllocator):
    """The host's, as on a Jetson."""

    key = "acme_dla.memory"
    device = KIND


class Subgraph(NumpyRun):
    """One loadable. The emulation computes by the layers' references; its own clock goes by the
    data sheet.
    """

    @property
    def seconds(self) -> float:
        """Of one run."""
        return sum(
            limits.seconds(sum(x.array.nbytes for x in (*s.inputs, *s.outputs))) for s in self.steps
        )


class SubgraphLauncher(NumpyLauncher):
    """Steps that follow each other become one subgraph."""

    key = SUBGRAPH
    device = KIND

    def link(self, steps: Sequence[Step], ctx: LinkContext) -> Runnable:
        """As that of numpy."""
        run = super().link(steps, ctx)
        assert isinstance(run, NumpyRun)
        return Subgraph(run.steps)


class HostLauncher(NumpyLauncher):
    """Steps of the host between subgraphs: its memory is the accelerator's, so nothing is copied."""

    key = HOST
    device = KIND


class Accelerator(CpuDevice):
    """One core. Streams, events and copies are the host's."""

    key = "acme_dla.dla@1"
    kind = KIND

    @property
    def bench(self) -> Any:
        """What chooses whole plans for it."""
        from acme_dla.bench import AcceleratorBench

        return AcceleratorBench

    def properties(self) -> DeviceProperties:
        return DeviceProperties(KIND, "an emulated DLA", facts={"subgraphs": limits.SUBGRAPHS})

    def target(self, name: str) -> DeviceProperties:
        """Raises InvalidArgument: there is one model."""
        raise errors.InvalidArgument(f"no target {name!r}", who=self.key, why="there is one model")

    def link(
        self, steps: Sequence[Step], launchers: Mapping[str, Launcher], ctx: LinkContext
    ) -> Runnable:
        """Raises ExecutionError for more subgraphs than there may be."""
        starts = [
            next(group)
            for key, group in groupby(steps, lambda s: s.artifact.launcher)
            if key == SUBGRAPH
        ]
        if len(starts) > limits.SUBGRAPHS:
            raise errors.ExecutionError(
                f"{len(starts)} subgraphs, the DLA has room for {limits.SUBGRAPHS}",
                who=starts[limits.SUBGRAPHS].name,
                do="Build the plan for this device",
            )
        return super().link(steps, launchers, ctx)

    def measure(self, runnable: Runnable, times: int) -> float:
        """By the accelerator's clock; the host's steps by the host's."""
        return (
            times * runnable.seconds
            if isinstance(runnable, Subgraph)
            else super().measure(runnable, times)
        )
