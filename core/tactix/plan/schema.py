"""What a plan holds. Made by the builder, run by the runtime; checked here, so that neither has to
trust the other.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from tactix.base import dims
from tactix.base.dims import Dim, Shape
from tactix.base.dtypes import DType
from tactix.base.errors import PlanFormatError
from tactix.base.tensor import LINEAR, Element, Format, TensorSpec
from tactix.contracts.artifact import Arg
from tactix.contracts.launcher import Operand, Step
from tactix.contracts.states import States
from tactix.contracts.trust import Seal
from tactix.plan import states
from tactix.plan.demands import Demand, demands
from tactix.plan.extents import Checked, Extent, extents
from tactix.plan.in_place import in_place, one_memory
from tactix.plan.kernel_sets import check as check_sets
from tactix.plan.kernel_sets import kernel_sets
from tactix.plan.parts import PART, Ready, located
from tactix.plan.parts import check as check_part

KINDS = ("input", "output", "arena", "workspace", "weight", "object", PART)
WRITTEN = ("output", "arena", "object", PART)
_NAMES = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)? ([A-Za-z0-9][A-Za-z0-9.!+_-]*)?")
DEEPEST = 16
"""How deep plans may lie in each other."""


@dataclass(frozen=True)
class Buffer:
    """One piece of memory; its id is its place in ``plan.buffers``.

    ``kind``: one of KINDS. ``nbytes``: size in storage of that format. ``first``, ``last``: steps
    between which an arena or workspace buffer is live. ``blob``: name of a weight's content. An
    object has no memory, and a part that of the buffer ``inside`` which it lies, from ``offset``
    bytes on; it lives as long.
    """

    kind: str
    name: str
    dtype: DType
    shape: Shape
    format: Format
    nbytes: Dim
    first: int = -1
    last: int = -1
    blob: str = ""
    inside: int = -1
    offset: Dim = 0


@dataclass(frozen=True)
class TensorIO:
    """An input or output of the engine; always linear."""

    name: str
    buffer: int
    dtype: DType
    shape: Shape
    element: Element | None = None


@dataclass(frozen=True)
class Profile:
    """Range of each symbol: lowest, the one tuned for, highest (None: no limit)."""

    name: str
    dims: Mapping[str, tuple[int, int, int | None]]


@dataclass(frozen=True)
class Requirement:
    """A plugin object that the plan needs at run time, and the distribution that provides it.

    ``embedded``: the blob that is named by ``digest`` is its wheel, else that is the sha256 of its
    installed files.
    """

    key: str
    dist: str
    version: str
    digest: str = ""
    embedded: bool = False
    host_code: bool = False


@dataclass(frozen=True, eq=False)
class Plan:
    """A serialized engine before it is bytes. Two are the same if ``container.dump`` gives the same
    bytes.

    ``blobs``: name to bytes-like content: weights, and after loading also machine code. ``ledger``:
    how it was built.
    ``device``: facts of the target. ``meta``: versions and builder options. The last three are
    JSON.
    ``given``: symbols that the plan around this one knows, or that a caller tells who runs its
    ``states``. ``seal``: of the file that it was read
    from; None for a plan that was made in this process.
    """

    name: str
    inputs: tuple[TensorIO, ...]
    outputs: tuple[TensorIO, ...]
    profiles: tuple[Profile, ...]
    buffers: tuple[Buffer, ...]
    steps: tuple[Step[Plan], ...]
    blobs: Mapping[str, Any] = field(default_factory=dict, repr=False)
    ledger: Mapping[str, Any] = field(default_factory=dict, repr=False)
    requirements: tuple[Requirement, ...] = ()
    device: Mapping[str, Any] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    given: frozenset[str] = frozenset()
    seal: Seal | None = field(default=None, repr=False)

    def get_used_plugin_libraries(self) -> list[str]:
        """The distributions that running it needs beside tactix itself, as pip takes them:
        ``acme-swish==1.2``.
        """
        packs = {
            (r.dist, r.version)
            for r in self.requirements
            if r.dist and not r.key.startswith("tactix.")
        }
        return [f"{dist}=={version}" for dist, version in sorted(packs)]

    def nested(self) -> Iterator[Plan]:
        """Itself and the plans of bodies, those in bodies of these among them."""
        yield self
        for inner in (p for s in self.steps for p in s.plans):
            yield from inner.nested()

    @property
    def model_names(self) -> dict[str, str]:
        """What the model calls the outputs, by their names here: an output that has an input's
        name in the model has one of its own in the plan, as addresses are set by name.
        """
        renamed = self.meta.get("renamed")
        known = renamed if isinstance(renamed, Mapping) else {}
        return {io.name: str(known.get(io.name, io.name)) for io in self.outputs}

    @property
    def stripped(self) -> frozenset[str]:
        """Weights that were left out, until the plan is refitted."""
        named = self.meta.get("stripped")
        return (
            frozenset(map(str, named)) - self.blobs.keys()
            if isinstance(named, list)
            else frozenset()
        )

    @functools.cached_property
    def symbols(self) -> frozenset[str]:
        """Symbols that the input shapes, the plan around this one or the caller give a value to."""
        return self.given | frozenset(
            n for io in self.inputs for d in io.shape if (n := dims.symbol_name(d))
        )

    @functools.cached_property
    def produced(self) -> Mapping[int, frozenset[str]]:
        """Steps for ``Launcher.produce``, with the symbols that they define: output shapes that
        only running tells.

        So do steps that hold plans, and steps over Python objects.
        """
        known = set(self.symbols)
        out: dict[int, frozenset[str]] = {}
        if self.kernel_sets:
            return out
        for i, s in enumerate(self.steps):
            named = {n for o in s.outputs for d in o.spec.shape if (n := dims.symbol_name(d))}
            fresh = frozenset(named - known)
            if fresh or s.plans or any(o.spec.dtype.on_host for o in (*s.inputs, *s.outputs)):
                out[i] = fresh
                known |= fresh
        return out

    @functools.cached_property
    def extents(self) -> Mapping[int, tuple[Extent, ...]]:
        """What of the steps' operands has to be compared with their buffers at each shape. Raises
        PlanFormatError.
        """
        return extents(self)

    @functools.cached_property
    def kernel_sets(self) -> tuple[int, ...]:
        """For each profile the index of its plan among those of the one step, in whose place it
        runs; empty for a plan of one set of kernels. Raises PlanFormatError.
        """
        return kernel_sets(self)

    @functools.cached_property
    def states(self) -> States | None:
        """The states that runs append to, if it keeps some. Raises PlanFormatError."""
        return states.decoded(self)

    @functools.cached_property
    def in_place(self) -> frozenset[tuple[str, str]]:
        """Names of inputs and outputs that are made of them, in place where they are one piece of
        memory.
        """
        return in_place(self)

    @functools.cached_property
    def one_memory(self) -> frozenset[tuple[str, str]]:
        """Names of inputs and outputs that may be one piece of memory: those, and outputs that are
        written once the input has been read.
        """
        return one_memory(self)

    @functools.cached_property
    def demands(self) -> Mapping[int, tuple[Demand, ...]]:
        """What is asked of the symbols, by the step before which they have values. Raises
        PlanFormatError.
        """
        return demands(self)

    @functools.cached_property
    def known(self) -> frozenset[str]:
        """All symbols that have a value at the end of a run."""
        return self.symbols.union(*self.produced.values())

    @functools.cached_property
    def named(self) -> frozenset[str]:
        """Symbols on which a size hangs: of its steps, their operands or its buffers, or what is
        asked of symbols; those of plans inside included.
        """
        asked = chain.from_iterable(self.demands.values())
        inside = (p.named for s in self.steps for p in s.plans)
        return symbols_of(self.steps, self.buffers, asked).union(*inside)


def symbols_of(
    steps: Iterable[Step], buffers: Iterable[Buffer], asked: Iterable[Checked]
) -> frozenset[str]:
    """Symbols on which a size of steps, their operands or buffers hangs, or what is asked."""
    sizes = [d for b in buffers for d in (*b.shape, b.nbytes, b.offset)]
    for s in steps:
        sizes += (d for o in (*s.inputs, *s.outputs) for d in o.spec.shape)
        sizes += s.artifact.sizes
    conditions = (c.symbols for a in asked for c in a.conditions())
    return frozenset[str]().union(*map(dims.symbols, sizes), *conditions)


def validate(plan: Plan, around: frozenset[str] = frozenset(), depth: int = 0) -> Plan:
    """The plan itself, if ids, kinds, lifetimes and symbols fit together. Raises PlanFormatError.

    ``around``: symbols of the plan that this one lies in.
    """
    told = {plan.states.length} if plan.states and not depth else set()
    _require(
        plan.given <= around | told,
        f"nothing gives it {sorted(plan.given - around)[:1]}",
        f"plan {plan.name!r}",
    )
    _require(
        depth <= DEEPEST, f"plans lie more than {DEEPEST} deep in each other", f"plan {plan.name!r}"
    )
    for i, b in enumerate(plan.buffers):
        _buffer(plan, i, f"buffer {i} ({b.name})")
    _interface(plan)
    for p in plan.profiles:
        _profile(p)
    for r in plan.requirements:
        named = _NAMES.fullmatch(f"{r.dist} {r.version}") is not None
        _require(named, "no name and version of a package", f"requirement {r.key!r}")
        _require(
            not r.embedded or r.digest in plan.blobs,
            "no blob with its wheel",
            f"requirement {r.key!r}",
        )
    for i, s in enumerate(plan.steps):
        _step(plan, i, s, f"step {i} ({s.name})")
    _order(plan)
    _ = plan.extents, plan.demands
    states.check(plan)
    check_sets(plan)
    for inner in (inner for s in plan.steps for inner in s.plans):
        validate(inner, plan.known, depth + 1)
    return plan


def _order(plan: Plan) -> None:
    """Nothing is read before it is written; what a step has produced has memory of its own, and
    stays as it is.
    """
    given = (i for i, b in enumerate(plan.buffers) if b.kind in ("input", "weight"))
    ready = Ready(plan.buffers, (-1, *given))
    wholes = {b.inside for b in plan.buffers}
    produced = set[int]()
    for i, s in enumerate(plan.steps):
        where = f"step {i} ({s.name})"
        early = [o.buffer for o in s.inputs if o.buffer not in ready]
        _require(not early, f"reads buffer {early[:1]} before it is written", where)
        own = {o.buffer for o in s.outputs}
        _require(len(own) == len(s.outputs), "writes a buffer twice", where)
        again = {b for b in own if b in (ready if i in plan.produced else produced)}
        _require(
            not again, f"writes buffer {min(again, default=-1)} again, which was produced", where
        )
        if i in plan.produced:
            shared = {b for b in own if b in wholes or plan.buffers[b].inside >= 0}
            _require(
                not shared, f"produces buffer {min(shared, default=-1)}, which has parts", where
            )
            produced |= own
        ready.add(own)
    for io in plan.outputs:
        _require(io.buffer in ready, "no step writes it", f"output {io.name!r}")


def _require(condition: bool, what: str, who: str) -> None:
    if not condition:
        raise PlanFormatError(what, who=who)


def _closed(plan: Plan, where: str, *values: Dim) -> None:
    """Dims must follow from the input shapes, or from steps that define them."""
    known = plan.known
    for d in values:
        if isinstance(d, dims.Expr) and not dims.symbols(d) <= known:
            unknown = sorted(dims.symbols(d) - known)
            raise PlanFormatError(
                f"dimension {unknown[0]!r} follows from no input shape", who=where
            )


def _buffer(plan: Plan, index: int, where: str) -> None:
    b = plan.buffers[index]
    _require(b.kind in KINDS, f"unknown kind {b.kind!r}", where)
    fits = b.kind in ("object", "input", "output") if b.dtype.on_host else b.kind != "object"
    _require(fits, f"a {b.dtype.value} in a buffer of kind {b.kind}", where)
    _require(
        (b.kind == "weight") == bool(b.blob), "a weight, and nothing else, names a blob", where
    )
    _require(
        b.format.fits(len(b.shape)),
        f"format {b.format.name} does not fit rank {len(b.shape)}",
        where,
    )
    _closed(plan, where, b.nbytes, b.offset, *b.shape)
    _require(isinstance(b.nbytes, dims.Expr) or b.nbytes >= 0, "negative size", where)
    if b.kind in ("arena", "workspace"):
        _require(
            0 <= b.first <= b.last < max(1, len(plan.steps)),
            f"live from step {b.first} to {b.last}",
            where,
        )
    _require(
        (b.kind == PART) == (b.inside >= 0), "a part, and nothing else, lies in another", where
    )
    if b.kind == PART:
        check_part(plan, index, where)
    if b.kind == "weight":
        left_out = b.blob in plan.stripped
        _require(left_out or b.blob in plan.blobs, f"no blob {b.blob!r}", where)
        found = b.nbytes if left_out else memoryview(plan.blobs[b.blob]).nbytes
        _require(b.nbytes == found, f"{b.nbytes} bytes, but the blob has {found}", where)


def _interface(plan: Plan) -> None:
    names: set[str] = set()
    taken: set[int] = set()
    for kind, ios in (("input", plan.inputs), ("output", plan.outputs)):
        for io in ios:
            where = f"{kind} {io.name!r}"
            _require(bool(io.name) and io.name not in names, "empty or repeated name", where)
            _require(
                0 <= io.buffer < len(plan.buffers) and io.buffer not in taken,
                f"buffer {io.buffer}",
                where,
            )
            b = plan.buffers[io.buffer]
            nbytes = TensorSpec(io.dtype, io.shape).nbytes()
            fits = (b.kind, b.dtype, b.shape, b.format, b.nbytes) == (
                kind,
                io.dtype,
                io.shape,
                LINEAR,
                nbytes,
            )
            _require(fits, f"does not fit buffer {io.buffer}", where)
            has_element = io.dtype.has_element
            _require(
                has_element == (io.element is not None),
                "sequences, optionals and maps alone have elements",
                where,
            )
            names.add(io.name)
            taken.add(io.buffer)
    loose = [
        i for i, b in enumerate(plan.buffers) if b.kind in ("input", "output") and i not in taken
    ]
    _require(not loose, "an input or output buffer that no name stands for", f"buffer {loose[:1]}")


def _profile(p: Profile) -> None:
    for symbol, (low, opt, high) in p.dims.items():
        ordered = 0 <= low <= opt and (high is None or opt <= high)
        _require(
            ordered,
            f"min {low}, opt {opt}, max {high} are not in order",
            f"profile {p.name!r}: {symbol}",
        )


def _step(plan: Plan, index: int, s: Step, where: str) -> None:
    used = [o.buffer for o in s.inputs if o.buffer != -1] + [*s.constants.values()]
    written = [o.buffer for o in s.outputs] + ([s.workspace] if s.workspace != -1 else [])
    for b in (*used, *written):
        _require(0 <= b < len(plan.buffers), f"no buffer {b}", where)
        live = plan.buffers[located(plan.buffers, b)[0]]
        _require(
            live.first < 0 or live.first <= index <= live.last, f"buffer {b} is not live", where
        )
    for o in (*s.inputs, *s.outputs):
        _closed(plan, where, *o.spec.shape)
        _require(
            o.format.fits(o.spec.rank),
            f"format {o.format.name} does not fit rank {o.spec.rank}",
            where,
        )
        fits = o.buffer == -1 or o.spec.dtype.on_host == plan.buffers[o.buffer].dtype.on_host
        _require(fits, f"reads buffer {o.buffer} as {o.spec.dtype.value}", where)
    for o in s.outputs:
        target = plan.buffers[o.buffer]
        _require(
            target.kind in WRITTEN, f"writes buffer {o.buffer}, which is a {target.kind}", where
        )
        # what nobody wrote would be what lay in memory before
        _require(
            _writes_all(o, target), f"buffer {o.buffer} is not written as it is declared", where
        )
    for b in s.constants.values():
        _require(
            plan.buffers[b].kind == "weight",
            f"constant buffer {b} is a {plan.buffers[b].kind}",
            where,
        )
    fits = s.workspace == -1 or plan.buffers[s.workspace].kind == "workspace"
    _require(fits, f"buffer {s.workspace} is no workspace", where)
    _closed(plan, where, s.artifact.workspace)
    tells = bool(plan.produced.get(index))
    for launch in s.artifact.launches:
        _closed(plan, where, *launch.grid, *launch.block, *launch.cluster, launch.shared_bytes)
        for a in launch.args:
            _require(_argument_fits(s, a, tells), f"argument {a.kind} {a.index} {a.name}", where)
            _closed(plan, where, a.value)


def _writes_all(o: Operand, target: Buffer) -> bool:
    """Whether a step's output is all of a buffer: as that is declared, or linear and as long, where
    the buffer is an output of the plan that is a view of it.
    """
    if (o.spec.dtype, o.format) != (target.dtype, target.format):
        return False
    is_view = target.kind == "output" and o.format.is_linear and not o.spec.dtype.on_host
    return o.spec.shape == target.shape or (is_view and o.spec.nbytes() == target.nbytes)


def _argument_fits(s: Step, a: Arg, tells: bool) -> bool:
    """``tells``: only running tells shapes of the step's outputs."""
    sides = {"input": s.inputs, "output": s.outputs}
    if a.kind in sides:
        return 0 <= a.index < len(sides[a.kind]) and sides[a.kind][a.index].buffer >= 0
    known = {
        "constant": a.name in s.constants,
        "scalar": True,
        "told": tells,
        "fault": True,
        "workspace": s.workspace >= 0,
    }
    return known.get(a.kind, False)
