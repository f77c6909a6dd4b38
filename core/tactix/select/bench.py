"""Run one candidate on sample inputs: to check it and to time it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, overload

from tactix.base.dims import Env, evaluate
from tactix.base.errors import ExecutionError, PluginError, TactixError
from tactix.base.host_memory import check_array_fits
from tactix.base.tensor import Format, TensorSpec
from tactix.contracts.allocator import Allocator, allocated
from tactix.contracts.artifact import Binary, KernelArtifact, Source
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node, Value, run_node
from tactix.contracts.launcher import Launcher, LinkContext, Operand, Runnable, Step, bind
from tactix.contracts.region import resolve
from tactix.contracts.tactic import Variant
from tactix.select.accuracy import departure, drawn_departure
from tactix.select.compile import Toolchain, joined
from tactix.select.error_bounds import ErrorBound, bounds

if TYPE_CHECKING:
    from tactix.select.enumerate import Bids, Candidate

ALIGNMENT = 64
Strangers = Mapping[str, Any]
"""Who provides the tactics and launchers that are not tactix's own, by key."""


class Untriable(ExecutionError):
    """There is no way to run a candidate on samples, which says nothing of what it computes."""


class FatalTrial(ExecutionError):
    """A candidate that ended or blocked the process in which it was tried, or lost the device to
    it.
    """


def sample(node: Node, env: Env, seed: int = 0) -> list[Any]:
    """Random valid arrays for the node's given inputs at the shapes of ``env``; what is known is as
    it must be. Raises MemoryError where this machine cannot hold them.
    """
    import numpy as np

    rng = np.random.default_rng(seed)
    specs = [
        None if v is None else replace(v.spec, shape=v.spec.at(dict(env)), value=None)
        for v in node.inputs
    ]
    for v in node.given:
        check_array_fits(v.spec.at(dict(env)), v.spec.dtype.numpy)
    attrs = resolve(node.layer, node.attrs, env)
    arrays = node.layer.sample(attrs, specs, rng)
    return [
        _known(v.spec, a, env) for v, a in zip(node.inputs, arrays, strict=True) if v is not None
    ]


def _known(spec: TensorSpec, sampled: Any, env: Env) -> Any:
    """The content of a constant or of a shape tensor, else the sample."""
    if spec.const is not None or spec.value is None:
        return sampled if spec.const is None else spec.const
    import numpy as np

    return np.array([evaluate(d, env) for d in spec.value], spec.dtype.numpy).reshape(
        spec.at(dict(env))
    )


class Expected(Sequence[Any]):
    """What a node's outputs must be on some inputs: arrays by its reference, and how far a kernel's
    may be off.

    Raises ExecutionError if the reference fails, PluginError if it disagrees with ``infer``.
    """

    def __init__(self, node: Node, given: Sequence[Any], env: Env) -> None:
        import numpy as np

        self.node, self.env = node, env
        self._given = given
        arrays = iter(given)
        try:
            with np.errstate(all="ignore"):
                made = run_node(
                    node, [None if v is None else next(arrays) for v in node.inputs], env
                )
        except PluginError:  # its reference disagrees with its infer: no kernel could be right
            raise
        except Exception as e:
            who = f"{node.name} ({node.kind})"
            why = str(e) if isinstance(e, TactixError) else repr(e)
            raise ExecutionError("the reference failed on sample inputs", who=who, why=why) from e
        self._arrays = list(made)

    @overload
    def __getitem__(self, j: int) -> Any: ...
    @overload
    def __getitem__(self, j: slice) -> list[Any]: ...
    def __getitem__(self, j: int | slice) -> Any:
        return self._arrays[j]

    def __len__(self) -> int:
        return len(self._arrays)

    def departure(self, j: int, got: Any, granted: float = 1.0, rows: Any = None) -> float:
        """How far output ``j`` is off, in so many budgets: at most 1 passes.

        ``rows``: those of the expected array that ``got`` has, if it has not all.
        """
        want = self[j] if rows is None else self[j][rows]
        if self._draws:
            return drawn_departure(got, want)
        near = departure(got, want, self.node.outputs[j].spec.dtype) / granted
        if near <= 1 or got.shape != want.shape or not self._bounds:
            return near
        return min(near, self._bounds[j].departure(got, granted, rows))

    @cached_property
    def _draws(self) -> bool:
        return any(n.layer.draws(n.attrs) for n in self.node.body.nodes)

    @cached_property
    def _bounds(self) -> Sequence[ErrorBound]:
        """Of every output; none where the layers' references do not run on other numbers than the
        network's.
        """
        import numpy as np

        try:
            with np.errstate(all="ignore"):
                return bounds(self.node, self._given, self.env)
        except (
            Exception
        ):  # a pack's reference may take its own dtypes only, or check its inputs: then (1) stands
            return ()


class Bench:
    """Links candidates of one node over the same arrays. ``allocator``: where the device reads no
    host memory.

    A device's own may keep the code of ``strangers`` out of this process: it overrides ``of``,
    ``barred``, ``compile`` and ``review``; and ``keep_nothing`` if it remembers from build to build
    what failed. ``stopped``: whether to give up what is being tried, set by who measures.
    """

    stopped: Callable[[], bool] = staticmethod(lambda: False)

    trial_budget = inf
    """Seconds that trials of one stranger's kernels may take that fail, set by who builds."""

    least: Mapping[str, int] = MappingProxyType({})
    """The smallest sizes that a plan must run at, by symbol, set by who builds."""

    weights = 0
    """Bytes of the network's constants that a run reads whole, set by who builds."""

    apart = False
    """Whether candidates are tried in a process of their own, where the device's bench can do that;
    set by who builds.
    """

    duels = True
    """Whether nodes of two attempts are timed in turns where precision is decided by that."""

    def __init__(
        self,
        context: LinkContext,
        launchers: Mapping[str, Launcher],
        allocator: Allocator | None = None,
        strangers: Strangers = MappingProxyType({}),
    ) -> None:
        self.context, self.device, self.launchers, self.allocator = (
            context,
            context.device,
            launchers,
            allocator,
        )
        self.strangers = strangers
        self._buffers, self._addresses, self._outputs = list[Any](), list[int](), list[int]()

    @property
    def conditions(self) -> Sequence[str]:
        """How candidates are timed where that is another way than usual: of the timing cache's
        keys.
        """
        return ()

    def begin(self) -> None:
        """Let begin what trials take, as there will be some; again and again, if need be."""

    def trial(self, node: Node, env: Env) -> tuple[list[Any], Expected]:
        """Sample inputs for ``prepare``, and the outputs that ``check`` compares with. Raises
        ExecutionError.
        """
        arrays = sample(node, env)
        return arrays, Expected(node, arrays, env)

    def of(self, c: Candidate) -> Bench:
        """What ``prepare``, ``keep`` and ``check`` are asked of for a candidate."""
        return self

    def barred(self, c: Candidate) -> str:
        """Why a candidate is not to be tried; empty if it is."""
        return ""

    def compile(
        self, toolchain: Toolchain, candidates: Sequence[Candidate], device: DeviceProperties
    ) -> Mapping[str, Binary]:
        """Binaries by source digest of those that compile; the others are rejected. Raises
        ToolchainError.
        """
        written = [c for c in candidates if isinstance(c.artifact.code, Source)]
        return joined(toolchain, (), written, device, self.title)

    def title(self, c: Candidate) -> str:
        """What a candidate is called, and whose it is if that is a stranger."""
        provider = self.strangers.get(c.tactic.key)
        if provider is None:
            return c.title
        return f"{c.title} of {provider}" if provider.dist else f"{c.title} ({provider})"

    def close(self) -> None:
        """The build is over, well or not: what was started for trials ends."""

    def keep_nothing(self) -> None:
        """From now on, neither believe nor write down what earlier builds found of candidates."""

    def review(self, bids: Sequence[Bids]) -> None:
        """Look at all times once more, after all that can be has been measured."""

    def delay(self) -> float:
        """By what share of itself a time may be too long, as others use the machine; 0 if that is
        not known.
        """
        return 0.0

    def watch(self) -> Callable[[], float]:
        """Begin to watch the machine: what comes tells ``delay`` of what is timed from now on."""
        return lambda: 0.0

    def measure(self, runnable: Runnable, times: int) -> float:
        """Seconds that so many runs of what ``prepare`` gave take together; infinite if it is
        rejected meanwhile, or cannot be run any more. Raises what running it raises.
        """
        return self.device.measure(runnable, times)

    def fastest(
        self, tried: Sequence[Any], complete: Callable[[Any], Any], load: Callable[[Any], Any]
    ) -> Any:
        """The plan of the attempt that is fastest of those tried; ``load`` makes an engine of a
        plan, to be timed.
        """
        return complete(min(tried, key=lambda attempt: attempt.choice.seconds))

    def prepare(
        self,
        node: Node,
        artifact: KernelArtifact,
        variant: Variant,
        arrays: Sequence[Any],
        env: Env,
    ) -> tuple[Runnable, list[Any]]:
        """A bound runnable, and its outputs in storage shape."""
        self._buffers, self._addresses = [], []
        step = self._step(node, artifact, variant, arrays, env)
        runnable = self._linked(step, node, env)
        self._outputs = [o.buffer for o in step.outputs]
        return runnable, [self._buffers[i] for i in self._outputs]

    def prepare_row(
        self, row: Sequence[tuple[Node, KernelArtifact, Variant]], env: Env
    ) -> Runnable:
        """A bound runnable of nodes one after the other, over samples: each reads what nodes before
        it made, where it is in the format that it takes. Views run nothing.
        """
        self._buffers, self._addresses = [], []
        made: dict[tuple[Value, Format], Operand] = {}
        steps: list[Step] = []
        for node, artifact, variant in row:
            if artifact.alias:
                made |= _seen(node, artifact, variant, made)
                continue
            step = self._step(node, artifact, variant, sample(node, env), env, made)
            made |= {(v, o.format): o for v, o in zip(node.outputs, step.outputs, strict=True)}
            steps.append(step)
        runnable = self.device.link(steps, self.launchers, self.context)
        bind(runnable, steps, env, self._addresses)
        return runnable

    def _step(
        self,
        node: Node,
        artifact: KernelArtifact,
        variant: Variant,
        arrays: Sequence[Any],
        env: Env,
        made: Mapping[tuple[Value, Format], Operand] = MappingProxyType({}),
    ) -> Step:
        """A node's step over new arrays; over what is ``made`` in a format that it takes."""
        import numpy as np

        read = [variant.input_format(i) for i in range(len(node.given))]
        written = [variant.output_format(i) for i in range(len(node.outputs))]
        inputs = [
            made.get((v, f)) or self._operand(v, f, f.pack(a))
            for v, f, a in zip(node.given, read, arrays, strict=True)
        ]
        outputs = [
            self._operand(v, f, self._garbage(v.spec, f, env))
            for v, f in zip(node.outputs, written, strict=True)
        ]
        constants = {name: self._hold(p.apply(arrays)) for name, p in artifact.constants}
        size = evaluate(artifact.workspace, env)
        scratch = self._hold(np.empty(size, np.uint8)) if size else -1
        return Step(node.name, artifact, tuple(inputs), tuple(outputs), constants, scratch)

    def _linked(self, step: Step, node: Node, env: Env) -> Runnable:
        """A node's step over the arrays of this ``prepare``."""
        runnable = self.device.link([step], self.launchers, self.context)
        bind(runnable, [step], env, self._addresses)
        return runnable

    def keep(self) -> list[Any]:
        """The arrays of the last ``prepare``: hold them as long as its runnable runs."""
        return self._buffers

    def check(
        self, node: Node, variant: Variant, got: Sequence[Any], want: Expected, granted: float = 1.0
    ) -> float:
        """The largest departure of any output, in so many of its budgets; of what was prepared
        last.
        """
        for i in () if self.device.host_memory else self._outputs:
            self.device.copy_out(self._buffers[i], self._addresses[i])
        return max(
            want.departure(i, variant.output_format(i).unpack(g, w.shape), granted)
            for i, (g, w) in enumerate(zip(got, want, strict=True))
        )

    def _operand(self, v: Value, fmt: Format, array: Any) -> Operand:
        return Operand(self._hold(array), v.spec.plain(), fmt)

    def _hold(self, array: Any) -> int:
        made = self.aligned(array)
        address = made.__array_interface__["data"][0]
        if not self.device.host_memory and self.allocator is not None:
            address = allocated(self.allocator, max(1, made.nbytes), ALIGNMENT)
            weakref.finalize(made, self.allocator.deallocate, address).atexit = False
            self.device.copy_in(address, made)
        self._buffers.append(made)
        self._addresses.append(address)
        return len(self._buffers) - 1

    @staticmethod
    def aligned(array: Any) -> Any:
        """A contiguous copy that starts at a cache line."""
        import numpy as np

        raw = np.empty(array.nbytes + ALIGNMENT, np.uint8)
        start = -raw.__array_interface__["data"][0] % ALIGNMENT
        out = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        out[...] = array
        return out

    @staticmethod
    def _garbage(spec: Any, fmt: Any, env: Env) -> Any:
        """An output array whose old content would be noticed."""
        import numpy as np

        shape = tuple(evaluate(d, env) for d in fmt.storage_shape(spec.shape))
        out = np.empty(shape, spec.dtype.numpy)
        if out.size:
            out.view(np.uint8).fill(0xA5) if out.ndim else out.fill(1)
        return out


def _seen(
    node: Node,
    artifact: KernelArtifact,
    variant: Variant,
    made: Mapping[tuple[Value, Format], Operand],
) -> dict[tuple[Value, Format], Operand]:
    """What a view gives, where it is of all that a node before it made."""
    source = made.get((node.given[0], variant.input_format(0)))
    if source is None or artifact.joins or artifact.cuts:
        return {}
    v, fmt = node.outputs[0], variant.output_format(0)
    return {(v, fmt): replace(source, spec=v.spec.plain(), format=fmt)}
