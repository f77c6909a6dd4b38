"""What all contexts of an engine share: launchers, layers, weights, and the memory layout of each
shape.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tactix.base.dims import Env
from tactix.base.errors import (
    ConfigError,
    InvalidArgument,
    PlanCompatibilityError,
    PluginError,
    punctuated,
)
from tactix.base.logger import LogEvent, Severity
from tactix.contracts.allocator import Allocator, AllocatorOfMany
from tactix.contracts.device import Device
from tactix.contracts.flavour import Options
from tactix.contracts.launcher import Launcher, LinkContext, Runnable, Step
from tactix.contracts.session import SessionView
from tactix.plan.schema import Plan, Requirement
from tactix.plugins.identity import own_first
from tactix.plugins.names import OWN
from tactix.run.layout import Layout, Layouts
from tactix.run.memory import Weights
from tactix.run.observed import ObservedSteps
from tactix.run.segments import TimedSteps, timed_parts
from tactix.run.shapes import Solver, admits
from tactix.run.watchers import UNWATCHED, Watchers

LAYOUTS = 64
"""Shapes whose memory layout is kept."""


class LinkedPlan:
    """A plan on a device. Immutable for its users. Raises PlanCompatibilityError, PluginError,
    AllocationError.
    """

    def __init__(
        self,
        plan: Plan,
        session: SessionView,
        device: Device,
        options: Options,
        weights: Weights | None = None,
    ) -> None:
        self.device = device
        self.allocator = allocator_of(session, device, options.allocator)
        check_requirements(plan, session)
        self.launchers: dict[str, Launcher] = {
            key: session.launchers[key] for key in sorted({s.artifact.launcher for s in plan.steps})
        }
        sizes = {
            i: b.nbytes
            for i, b in enumerate(plan.buffers)
            if b.kind == "weight" and isinstance(b.nbytes, int)
        }
        aux, self.logger = plan.meta.get("max_aux_streams"), options.logger
        self.context = LinkContext(
            device,
            options.threads,
            lambda key: session.layers[key],
            sizes,
            aux if isinstance(aux, int) else -1,
            warn=self.logger.warning,
        )
        self.weights = weights or Weights(plan, device, self.allocator, options.copy_weights)
        text = f"{plan.name or 'a plan'}: {self.weights.nbytes} bytes of weights on {device.kind}"
        facts = {"engine": plan.name, "bytes": self.weights.nbytes, "device": device.kind}
        self.logger.tell(Severity.INFO, LogEvent("engine_weights", text, facts))
        self.io_buffers = [io.buffer for io in (*plan.inputs, *plan.outputs)]
        self.input_dtypes = [(io.name, io.dtype.numpy) for io in plan.inputs]
        self.output_dtypes = [(io.name, io.dtype.numpy) for io in plan.outputs]
        self.plan, self.bodies = plan, dict[int, list[LinkedPlan]]()
        self.take_weights()
        self.bodies = {
            i: [LinkedPlan(p, session, device, options, self.weights) for p in s.plans]
            for i, s in enumerate(plan.steps)
            if s.plans
        }
        spread = device.spread if self.context.max_aux_streams else 0
        make = partial(device.evaluator, steps=plan.steps)
        self._made, self.solve = Layouts(plan, spread, make), Solver(plan.inputs).solve
        self.placed, self.sizes = self._made.placed, self._made.sizes
        self._in_arena = [*self.placed, *self._made.parts]
        self._layouts: OrderedDict[tuple[Any, ...], Layout] = OrderedDict()
        self._lock = threading.Lock()

    def __getstate__(self) -> None:
        raise InvalidArgument(
            "contexts cannot be copied or pickled",
            do="Save the plan, and load it there",
        )

    def after_fork(self) -> None:
        """In the child, where the thread that held the lock is not."""
        self._lock = threading.Lock()
        for p in (p for programs in self.bodies.values() for p in programs):
            p.after_fork()

    def take_weights(self) -> None:
        """Content and addresses of the weights as they are now, for bodies as well."""
        self.plan = replace(self.plan, blobs=self.weights.blobs)
        found = self.weights.addresses
        self.addresses = [found.get(b.blob, 0) for b in self.plan.buffers]
        self._based: tuple[int, Any] = (-1, None)  # memory, and where all lies
        for p in (p for programs in self.bodies.values() for p in programs):
            p.take_weights()

    def based(self, memory: int) -> Any:
        """Where each buffer lies whose offset in a context's memory is 0: int64 of numpy, which
        stay as they are; 0 for inputs and outputs.
        """
        import numpy as np

        known, based = self._based
        if known != memory:
            based = np.array(self.addresses, np.int64)
            based[self._in_arena] += memory
            self._based = memory, based
        return based

    def link(self, cached: int = 0, watch: Watchers = UNWATCHED) -> Runnable:
        """All steps as one callable, not bound yet; ``cached``: bytes of weights to keep so. Raises
        ExecutionError.
        """
        context = replace(self.context, persistent_cache_limit=cached) if cached else self.context
        return self.link_steps(self.plan.steps, context, watch)

    def link_steps(
        self, steps: Sequence[Step[Plan]], context: LinkContext, watch: Watchers
    ) -> Runnable:
        """Some steps that follow each other, as ``link``."""
        if watch.is_off:
            return self.device.link(steps, self.launchers, context)
        if watch.observer is not None:
            parts = [self.device.link([s], self.launchers, context) for s in steps]
            return ObservedSteps(self.plan, steps, parts, self.device, watch.observer)
        assert watch.profiler is not None
        timed = timed_parts(self.device, steps, self.launchers, context)
        first = next((i for i, s in enumerate(self.plan.steps) if s is steps[0]), 0)
        return TimedSteps(timed, self.plan, first, watch.profiler)

    def at(self, env: Env, profile: int = -1) -> LinkedPlan:
        """What runs at these symbols: another plan where the profile has kernels of its own.

        ``profile``: its index; -1 for the first that takes the symbols.
        """
        sets = self.plan.kernel_sets
        if not sets:
            return self
        taking = (i for i, p in enumerate(self.plan.profiles) if admits(p, env))
        return self.bodies[0][sets[profile if profile >= 0 else next(taking, 0)]]

    def layout(self, env: Env) -> Layout:
        """Sizes and offsets for those symbols; kept for the next time. Raises ShapeError."""
        key = tuple(env.items())
        with self._lock:
            if key in self._layouts:
                self._layouts.move_to_end(key)
                return self._layouts[key]
        made = self._made.at(dict(env))
        with self._lock:
            self._layouts[key] = made
            while len(self._layouts) > LAYOUTS:
                self._layouts.popitem(last=False)
        return made


def device_of(session: SessionView, wanted: str) -> Device:
    """The device of that key or kind, tactix's own before packs': the first, or with ``:1`` and so
    on behind it another. Raises ConfigError if there is none.
    """
    name, numbered, ordinal = wanted.rpartition(":")
    for key in own_first(session.devices, _namespace):
        device: Device = session.devices[key]
        if (name if numbered else wanted) in (key, device.kind):
            return _sibling(device, wanted, ordinal) if numbered else device
    known = ", ".join(f"{d.kind} ({key})" for key, d in session.devices.items())
    why, cure = session.why_missing(OWN, "tactix_devices")
    do = punctuated((cure, f"There are: {known or 'none'}"))
    raise ConfigError(f"no plugin provides device {wanted!r}", why=why, do=do)


def _sibling(first: Device, wanted: str, ordinal: str) -> Device:
    for device in first.siblings():
        if ordinal == str(device.ordinal):
            return device
    known = ", ".join(d.label for d in first.siblings())
    why = first.available()
    raise ConfigError(
        f"device {wanted!r} is not here", why=why, do="" if why else f"There are: {known}"
    )


def _namespace(key: str) -> str:
    return key.partition(".")[0]


def allocator_of(session: SessionView, device: Device, wanted: str | Allocator = "") -> Allocator:
    """The first allocator for the device, tactix's own before packs', or the one of that key.
    Raises PluginError.
    """
    if not isinstance(wanted, str) and wanted.device == device.kind:
        return _allocator_on(device, wanted)
    for key in own_first(session.allocators, _namespace):
        a = session.allocators[key]
        if a.device == device.kind and wanted in ("", key):
            return _allocator_on(device, a)
    raise PluginError(
        f"no allocator {wanted!r} for {device.kind}",
        do=f"There are: {', '.join(session.allocators)}",
    )


def _allocator_on(device: Device, allocator: Allocator) -> Allocator:
    """Raises PluginError for one that serves the first device alone."""
    if isinstance(allocator, AllocatorOfMany):
        return allocator.on(device.ordinal)
    if device.ordinal:
        what = f"allocator {allocator.key!r} has no memory of {device.label}"
        do = "Choose another, or give it a method `on(ordinal)`"
        raise PluginError(what, why="it serves the first device of its kind alone", do=do)
    return allocator


def check_requirements(plan: Plan, session: SessionView, refused: Collection[str] = ()) -> None:
    """Everything that is missing, with the command that would install it. Raises
    PlanCompatibilityError.

    ``refused``: keys that the plan's own packs would provide, which may not run here.
    """
    missing: dict[str, str] = {}
    brought = {r.key for r in plan.requirements if r.embedded}
    launchers = {s.artifact.launcher for s in plan.steps} - brought
    layers = {k for s in plan.steps for k in layer_keys(s.artifact.params)} - brought
    missing.update({k: "launcher" for k in launchers if k not in session.launchers})
    missing.update(
        {k: "layer" for k in layers if k not in session.layers}
    )  # imported only where some are named
    if missing:
        rows = {r.key: r for r in plan.requirements if r.key in missing and r.dist}
        unused = {
            k: session.why_unused(_namespace(k), f"tactix_{kind}s") for k, kind in missing.items()
        }
        absent = sorted(k for k in missing if not unused[k][0])
        cures = dict.fromkeys(cure for _, cure in unused.values())
        do = punctuated((*cures, _installing(absent, rows, refused)), "; ")
        of = {key: f" (of {r.dist} {r.version})" for key, r in rows.items()}
        reasons = tuple(
            punctuated((f"there is no {missing[k]} {k!r}{of.get(k, '')}", unused[k][0]), ": ")
            for k in sorted(missing)
        )
        raise PlanCompatibilityError("the plan cannot run here", reasons=reasons, do=do)


def _installing(
    absent: Collection[str], rows: Mapping[str, Requirement], refused: Collection[str]
) -> str:
    """What helps against missing keys that nothing here would provide."""
    if not absent:
        return ""
    wanted = sorted({f"{rows[k].dist}=={rows[k].version}" for k in absent if k in rows})
    if not wanted:
        return "Install the plugins that provide them"
    return f"pip install {' '.join(wanted)}; {_other_cure(absent, refused)}"


def _other_cure(missing: Collection[str], refused: Collection[str]) -> str:
    """What helps beside installing the packs of missing keys."""
    if set(missing) <= set(refused):
        return "the plan brings its packs, which run here once it is trusted"
    return "a plan built with --embed brings its packs"


def layer_keys(params: Any) -> set[str]:
    """Keys of the layers that an artifact's params name, but the core's own."""
    if params is None or isinstance(params, (str, int, float)):  # most, and no slow Mapping
        return set()
    if isinstance(params, Mapping):
        found: set[str] = set()
        if isinstance(own := params.get("layer"), str):
            from tactix.contracts.region import (
                STRUCTURAL,
            )  # with the layers: not for plans of compiled steps alone

            found = {own} - {layer.key for layer in STRUCTURAL}
        return found.union(*(layer_keys(v) for v in params.values()))
    return (
        set().union(*(layer_keys(v) for v in params))
        if isinstance(params, (list, tuple))
        else set()
    )
