"""What all contexts of an engine share: launchers, layers, weights, and the memory layout of each shape."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tactix.contracts.allocator import Allocator
from tactix.contracts.device import Device
from tactix.contracts.launcher import Launcher, LinkContext, Runnable
from tactix.contracts.region import STRUCTURAL
from tactix.plan.memory import plan_memory
from tactix.plan.schema import Plan
from tactix.run.memory import Weights
from tactix.run.shapes import evaluated
from tactix.words import dims
from tactix.words.dims import Dim, Env
from tactix.words.errors import PlanCompatibilityError, PluginError, ShapeError

LAYOUTS = 64
"""Shapes whose memory layout is kept."""

SIZE_LIMIT = 1 << 47

_STRUCTURAL = {layer.key for layer in STRUCTURAL}


@dataclass(frozen=True)
class Options:
    """How an engine runs: intra-op threads, and whether weights are copied out of the plan file."""

    threads: int = 1
    copy_weights: bool = False
    allocator: str = ""


@dataclass(frozen=True)
class Layout:
    """A bound shape: shapes of inputs and outputs by name, bytes of the arena, offsets and sizes in it by buffer."""

    env: Env
    shapes: Mapping[str, tuple[int, ...]]
    offsets: Mapping[int, int]
    arena: int
    sizes: Mapping[int, int]


class Program:
    """A plan on a device. Immutable for its users. Raises PlanCompatibilityError, PluginError, AllocationError."""

    def __init__(self, plan: Plan, session: Any, device: Device, options: Options) -> None:
        self.device = device
        self.allocator = allocator_of(session, device, options.allocator)
        _check_requirements(plan, session)
        self.launchers: dict[str, Launcher] = {
            key: session.launchers[key] for key in sorted({s.artifact.launcher for s in plan.steps})
        }
        self.context = LinkContext(device, options.threads, session.layers.__getitem__)
        self.weights = Weights(plan, device, self.allocator, options.copy_weights)
        self.plan = replace(plan, blobs=self.weights.blobs)
        self.addresses = [self.weights.addresses.get(b.blob, 0) for b in plan.buffers]
        self.bodies = {
            i: [Program(p, session, device, options) for p in s.plans] for i, s in enumerate(plan.steps) if s.plans
        }
        self._doubtful = _doubtful(plan)
        self._placed = [i for i, b in enumerate(plan.buffers) if b.kind in ("arena", "workspace")]
        self._lifetimes = [(plan.buffers[i].first, plan.buffers[i].last) for i in self._placed]
        self._sizes = {b.nbytes: b.name for b in plan.buffers} | {d: step for step, d, _ in self._doubtful}
        self._layouts: OrderedDict[tuple[Any, ...], Layout] = OrderedDict()
        self._lock = threading.Lock()

    def link(self) -> Runnable:
        """All steps as one callable, not bound yet. Raises ExecutionError."""
        return self.device.link(self.plan.steps, self.launchers, self.context)

    def layout(self, env: Env) -> Layout:
        """Sizes and offsets for those symbols; kept for the next time. Raises ShapeError."""
        key = tuple(sorted(env.items()))
        with self._lock:
            if key in self._layouts:
                self._layouts.move_to_end(key)
                return self._layouts[key]
        made = self._layout(dict(env))
        with self._lock:
            self._layouts[key] = made
            while len(self._layouts) > LAYOUTS:
                self._layouts.popitem(last=False)
        return made

    def _layout(self, env: Env) -> Layout:
        plan = self.plan
        known = {d: _size(d, env, who) for d, who in self._sizes.items()}
        sizes = dict(zip(self._placed, [known[plan.buffers[i].nbytes] for i in self._placed], strict=True))
        for step, nbytes, buffer in self._doubtful:
            if known[nbytes] > known[plan.buffers[buffer].nbytes]:
                raise ShapeError("a tensor is larger than its buffer", who=step, why=f"at {dict(env)}")
        offsets, total = plan_memory(list(sizes.values()), self._lifetimes)
        shapes = {io.name: evaluated(io, env) for io in (*plan.inputs, *plan.outputs)}
        return Layout(env, shapes, dict(zip(sizes, offsets, strict=True)), total, sizes)


def _size(d: Dim, env: Env, who: str) -> int:
    """A size in bytes."""
    with contextlib.suppress(ZeroDivisionError):
        if 0 <= (found := dims.evaluate(d, env)) < SIZE_LIMIT:
            return found
    raise ShapeError(f"size {d} makes no sense at {dict(env)}", who=who)


def _doubtful(plan: Plan) -> list[tuple[str, Dim, int]]:
    """Operands that are not known to fit their buffers for every shape: step, bytes, buffer."""
    out = []
    for s in plan.steps:
        found: Sequence[tuple[Dim, int]] = [(o.spec.nbytes(o.format), o.buffer) for o in (*s.inputs, *s.outputs)]
        if s.workspace >= 0:
            found = [*found, (s.artifact.workspace, s.workspace)]
        for nbytes, b in found:
            if b >= 0 and nbytes != plan.buffers[b].nbytes and (s.name, nbytes, b) not in out:
                out.append((s.name, nbytes, b))
    return out


def allocator_of(session: Any, device: Device, key: str = "") -> Allocator:
    """The first allocator for the device, or the one of that key. Raises PluginError."""
    for a in session.allocators.values():
        if a.device == device.kind and key in ("", a.key):
            return a  # type: ignore[no-any-return]
    raise PluginError(f"no allocator {key!r} for {device.kind}", do=f"There are: {', '.join(session.allocators)}")


def _check_requirements(plan: Plan, session: Any) -> None:
    """Everything that is missing, with the command that would install it. Raises PlanCompatibilityError."""
    missing: dict[str, str] = {}
    for what, registry, keys in (
        ("launcher", session.launchers, {s.artifact.launcher for s in plan.steps}),
        ("layer", session.layers, {k for s in plan.steps for k in layer_keys(s.artifact.params)}),
    ):
        missing.update({k: what for k in keys if k not in registry})
    if missing:
        dists = {f"{r.dist}=={r.version}" for r in plan.requirements if r.key in missing and r.dist}
        do = f"pip install {' '.join(sorted(dists))}" if dists else "Install the plugins that provide them"
        reasons = tuple(f"there is no {missing[k]} {k!r}" for k in sorted(missing))
        raise PlanCompatibilityError("the plan cannot run here", reasons=reasons, do=do)


def layer_keys(params: Any) -> set[str]:
    """Keys of the layers that an artifact's params name, but the core's own."""
    if isinstance(params, Mapping):
        own = params.get("layer")
        found = {own} if isinstance(own, str) and own not in _STRUCTURAL else set()
        return found.union(*(layer_keys(v) for v in params.values()))
    return set().union(*(layer_keys(v) for v in params)) if isinstance(params, (list, tuple)) else set()
