"""Launcher: runs one kind of artifact. Linked once per engine and context; nothing is looked up per
call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from tactix.base.dims import Env, evaluate_shape
from tactix.base.errors import ExecutionError, ShapeError
from tactix.base.logger import Logger
from tactix.base.tensor import Format, TensorSpec
from tactix.contracts.artifact import KernelArtifact

if TYPE_CHECKING:
    from tactix.contracts.device import Device
    from tactix.contracts.layer import Layer
    from tactix.contracts.program import (
        BoundBody,
        ChangingSizes,
        GrowingBody,
        NativeProgram,
        Part,
        PlacedPart,
    )


Plan = TypeVar("Plan", covariant=True)

Call = Callable[[Sequence[object]], list[object]]
"""Inputs to outputs, both as a plan orders them."""


@dataclass(frozen=True)
class Operand:
    """A tensor of a step: the id of its buffer, and how to read it. The spec carries no content.

    Buffer -1: a constant input whose raw form the artifact does not use.
    """

    buffer: int
    spec: TensorSpec
    format: Format


@dataclass(frozen=True)
class Step(Generic[Plan]):
    """One artifact with its operands. ``constants``: name to buffer. ``workspace``: scratch buffer,
    or -1.

    ``info``: JSON for people (tactic, variant, origin, layers, seconds). In it ``reference`` is
    what the step computes, as ``Node.meaning`` has it, unless its artifact's ``params`` say so: for
    where its code must not run, or is to be compared; nothing else depends on it.
    ``plans``: plans of the layer's bodies.
    """

    name: str
    artifact: KernelArtifact
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    constants: Mapping[str, int] = field(default_factory=dict)
    workspace: int = -1
    info: Mapping[str, object] = field(default_factory=dict)
    plans: tuple[Plan, ...] = ()


class Runnable(Protocol):
    """A linked run of steps, owned by one context."""

    def bind(self, env: Env, addresses: Sequence[int]) -> None:
        """Fix the shapes and the address of every buffer (0 where not yet known); before the first
        call, on change.
        """

    def rebind(self, buffer: int, address: int) -> None:
        """Change one buffer's address."""

    def __call__(self) -> None:
        """Run once, on the calling thread; raises ExecutionError naming the step."""

    def repeat(self, times: int) -> None:
        """Run so many times with as little overhead as possible: for measuring."""


@dataclass(frozen=True)
class StepSpan:
    """When one step of a run took place, in seconds by ``time.perf_counter``; ``threads``: how long
    each thread worked on it, and ``begun`` from when on; nothing where that is not known.
    """

    begin: float
    end: float
    threads: tuple[float, ...] = ()
    begun: tuple[float, ...] = ()

    @property
    def seconds(self) -> float:
        return self.end - self.begin


class TimedRunnable(Runnable, Protocol):
    """Steps that run as they do otherwise, with timestamps between them."""

    def spans(self) -> Callable[[], Sequence[StepSpan]]:
        """Of the last run, worked out when that is called: one for each step, and the next begins
        where one ends.
        """


class BindableBody(Protocol):
    """A plan of a step's at shapes of its inputs."""

    def results(self, shapes: Sequence[tuple[int, ...]]) -> Sequence[tuple[int, ...] | None]:
        """The shapes of the outputs; None for what only running tells. Raises ShapeError."""

    def bound(self, shapes: Sequence[tuple[int, ...]]) -> BoundBody | None:
        """Until it is asked for other shapes. None where a run needs Python, as only running tells
        a shape or a step runs in it.
        """

    def growing(
        self,
        shapes: Sequence[tuple[int, ...]],
        states: Sequence[tuple[int, int]],
        runs: int,
        most: int,
    ) -> GrowingBody | None:
        """At shapes before the first of about ``runs`` runs, and no more than ``most``, of which
        each takes the states that the one before gave. ``states``: as which input a run takes each,
        and as which output it gives it. Until it is asked for anything else.

        None where none of them grows, or not by as much in each run, where a run needs Python, and
        where there is room for a few runs alone.
        """


class StepBody(BindableBody, Protocol):
    """A plan of a step's, to be run as often as the step says."""

    def __call__(self, values: Sequence[object], /) -> list[object]: ...


def bind(runnable: Runnable, steps: Sequence[Step], env: Env, addresses: Sequence[int]) -> None:
    """``runnable.bind`` for what was linked of these steps.

    Raises ShapeError that names the step of which a size makes no sense at these shapes.
    """
    try:
        runnable.bind(env, addresses)
    except ShapeError as e:
        e.who = e.who or next((s.name for s in steps if _senseless(s, env)), "")
        raise
    except (ZeroDivisionError, OverflowError) as e:  # of a pack's own launcher
        raise ShapeError(f"the plan cannot run at {dict(env)}", why=str(e)) from None


def _senseless(step: Step, env: Env) -> bool:
    """Whether a size of the step's kernels has no value."""
    try:
        evaluate_shape(step.artifact.sizes, env)
    except ShapeError:
        return True
    return False


MOST_THREADS = 255
"""Of one inference: pools of launchers have room for so many."""


@dataclass(frozen=True)
class LinkContext:
    """What a launcher gets to link: the device, intra-op threads, how to find a layer by key, whom
    to warn.

    ``weights``: bytes of the plan's constant buffers. ``max_aux_streams``: how many steps may run
    beside one, where the device can do that; -1 leaves it to the device.
    ``persistent_cache_limit``: bytes of its cache for weights. ``kept``: what a launcher keeps of
    steps that it has produced, by their ids, for as long as the plan is linked.
    """

    device: Device
    threads: int
    layer: Callable[[str], Layer]
    weights: Mapping[int, int] = field(default_factory=dict, hash=False)
    max_aux_streams: int = -1
    persistent_cache_limit: int = 0
    warn: Callable[[str], None] = Logger().warning
    kept: dict[int, object] = field(default_factory=dict, compare=False, repr=False)


class Launcher:
    """``key``: what artifacts name. ``device``: the device kind.

    ``switches``: whether it runs nothing, but stands for a choice between plans of its step, which
    the runtime makes.
    ``host_code``: whether it runs code out of plans in this process, which then must be trusted.
    Its own code, layers of plugins, and code of a device are none; machine code in an artifact must
    be trusted in any case.
    ``iterates``: whether it makes programs of what it links.
    ``nests``: whether its steps can be parts of programs.
    """

    key: str
    device: str = "cpu"
    host_code: bool = True
    iterates: bool = False
    nests: bool = False
    switches: bool = False

    def link(self, steps: Sequence[Step], ctx: LinkContext) -> Runnable:
        """One runnable of consecutive steps that all name this launcher.

        Raises ExecutionError, also for a step that lacks what it needs, as in a damaged plan.
        """
        raise NotImplementedError(f"{self.key}: link")

    def link_timed(self, steps: Sequence[Step], ctx: LinkContext) -> TimedRunnable | None:
        """As ``link``; None where it cannot tell the times of steps that run together, so that each
        has to run by itself.
        """
        return None

    def program(
        self,
        parts: Sequence[Part],
        addresses: Sequence[int],
        moving: Sequence[int],
        sizes: ChangingSizes | None = None,
    ) -> NativeProgram | None:
        """The parts of a plan one after the other, at the addresses of its buffers; None where it
        cannot run them so.

        ``moving``: buffers whose addresses are told before each run. ``sizes``: those that may
        change from run to run; a launcher that cannot do that runs the program at those expected.
        """
        return None

    def told(self, step: Step) -> frozenset[str]:
        """Symbols of a step's outputs that it may tell anew in each run of a program."""
        return frozenset()

    def part(
        self,
        step: Step,
        env: Env,
        expected: Env,
        bodies: Sequence[BindableBody],
        ctx: LinkContext,
    ) -> PlacedPart | None:
        """A step as a part of a program at these sizes; None where a run of it needs Python.

        ``expected``: of symbols that it tells, where they are known.
        """
        return None

    def produce(
        self,
        step: Step,
        env: Env,
        values: Sequence[object],
        bodies: Sequence[StepBody],
        ctx: LinkContext,
    ) -> list[object]:
        """Run one step of which only running tells the output shapes, or that takes or gives Python
        objects.

        ``values``: the inputs as linear host arrays, lists of these for sequences, None for an
        empty optional.
        ``bodies``: the step's plans. The results have memory of their own. Raises ExecutionError.
        """
        raise ExecutionError(
            f"launcher {self.key} cannot run a step of unknown output shape", who=step.name
        )
