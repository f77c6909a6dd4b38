"""Candidates on a CUDA device: checked over few rows that come again, timed with constants that are
in no cache.

Where a node treats the rows of its inputs (axis 0) one by one, ROWS of them are sampled and laid
out over the whole in random order. So the reference is asked for ROWS rows, and every row that a
kernel made is compared nevertheless: with the reference, or bit by bit, on the device, with an
equal row that was. Whether rows are independent is tried on the reference.

For timing a node stands in a graph many times over, each time with a copy of its constants,
together larger than the device's L2 cache (COLD): in a network other layers' constants have been
read since the last run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from tactix.base.dims import Env, Shape, evaluate
from tactix.base.errors import AllocationError, ExecutionError, TactixError
from tactix.base.tensor import Format
from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.attrs import Attributes
from tactix.contracts.graph import Node, Value
from tactix.contracts.launcher import Operand, Runnable, Step
from tactix.contracts.region import Body, resolve
from tactix.contracts.tactic import Variant
from tactix.pipeline.mixtures import Attempt
from tactix.plan.schema import Plan
from tactix.run.engine import Engine
from tactix.run.memory import Memory
from tactix.select.accuracy import departure
from tactix.select.bench import Bench, Expected, sample
from tactix_codegen.cuda.target import COLD
from tactix_cuda import row_twins
from tactix_cuda.whole_plan_tuning import WholePlanTuning

if TYPE_CHECKING:
    from tactix_cuda.device import CudaDevice

T = TypeVar("T")

ROWS, SOME = 4, (3, 1)
"""Rows that are sampled, and those of them that the reference must give alone as it gives them
among the others.
"""
COPIES = 96
"""How often a node stands in a graph at most; smaller constants, which are not cold then, are
measured warm. With COLD, 96 MiB, that is so for constants of less than 1 MiB.
"""
FEW = 32
"""Rows that are copied to the host one by one: each takes some microseconds more than its bytes."""
GARBAGE = 0xA5
"""What outputs hold before, so that what is not written is noticed."""


@dataclass(frozen=True)
class SampleRows:
    """``inputs``: which given inputs have rows; ``index``: for each row of the whole the one of the
    sample.
    """

    inputs: frozenset[int]
    index: Any

    def spread(self, i: int, packed: Any) -> Any:
        """An input at its whole size, from its sample; axis 0 is the first one in every format."""
        return packed[self.index] if i in self.inputs else packed


def rows_of(node: Node, env: Env) -> tuple[SampleRows, list[Any], Expected] | None:
    """Rows, sampled inputs, and the outputs' rows; None if the node has few rows, or treats them
    together.
    """
    import numpy as np

    heads = {v.spec.at(dict(env))[:1] for v in node.outputs}
    (count,) = next(iter(heads)) or (0,)
    if len(heads) > 1 or count < 2 * ROWS:
        return None
    free = [i for i, v in enumerate(node.given) if v.const is None and v.spec.value is None]
    inputs = frozenset(i for i in free if node.given[i].spec.at(dict(env))[:1] == (count,))
    try:
        few, fewer = (_cut(node, inputs, n, env) for n in (ROWS, len(SOME)))
        arrays = sample(few, env)
        want = Expected(few, arrays, env)
        picked = [a[list(SOME)] if i in inputs else a for i, a in enumerate(arrays)]
        alone = Expected(fewer, picked, env)
    except (TactixError, ValueError, IndexError):  # shapes that only fit at the whole size
        return None
    pairs = zip(alone, want, node.outputs, strict=True)
    if not inputs or any(departure(a, w[list(SOME)], v.spec.dtype) > 1 for a, w, v in pairs):
        return None
    index = np.random.default_rng(count).integers(0, ROWS, count)
    index[:ROWS] = np.arange(ROWS)
    return SampleRows(inputs, index), arrays, want


def _cut(node: Node, inputs: frozenset[int], count: int, env: Env) -> Node:
    """The node at so many rows. Raises ExecutionError if its outputs do not have as many."""
    made: dict[int, Value] = {}
    for i, v in enumerate(node.given):
        shape = v.spec.at(dict(env))
        shape = (count, *shape[1:]) if i in inputs else shape
        made[i] = Value(v.name, replace(v.spec, shape=shape))
    given = iter(made.values())
    out = Node(
        node.name,
        node.layer,
        _cut_attributes(node, count, env),
        [None if v is None else next(given) for v in node.inputs],
    )
    specs = out.layer.infer(out.attrs, [None if v is None else v.spec for v in out.inputs])
    if any(
        s.shape != (count, *v.spec.at(dict(env))[1:])
        for s, v in zip(specs, node.outputs, strict=True)
    ):
        raise ExecutionError("its outputs do not have the rows of its inputs", who=node.name)
    out.outputs = tuple(Value(v.name, s.plain()) for s, v in zip(specs, node.outputs, strict=True))
    return out


def _cut_attributes(node: Node, count: int, env: Env) -> Attributes:
    """The node's attributes with so many rows where they state the shape of what is made, as those
    of a Resize or a Reshape do.
    """
    attrs = resolve(node.layer, node.attrs, env)
    if not isinstance(attrs, Body):
        return _with_rows(attrs, count, [v.spec.at(dict(env)) for v in node.outputs])
    specs = attrs.infer([replace(v.spec, shape=v.spec.at(dict(env))) for v in node.given])
    nodes = []
    for k, n in enumerate(attrs.nodes):
        first = attrs.first_id(k)
        shapes = [s.shape for s in specs[first : first + n.outputs]]
        nodes.append(replace(n, attrs=_with_rows(n.attrs, count, shapes)))
    return replace(attrs, nodes=tuple(nodes))


def _with_rows(attrs: Attributes, count: int, shapes: Sequence[Shape]) -> Attributes:
    """Attributes whose fields that are one of these shapes have ``count`` as their first size."""
    found = {f.name: getattr(attrs, f.name) for f in fields(attrs)}
    cut = {k: (count, *x[1:]) for k, x in found.items() if x and x in shapes}
    return replace(attrs, **cut) if cut else attrs


@contextmanager
def host_memory(node: Node) -> Iterator[None]:
    """Raises AllocationError where the host has no memory for the node's samples."""
    try:
        yield
    except MemoryError as e:
        raise AllocationError("no host memory for its samples", who=node.name, why=str(e)) from None


class Turns:
    """One candidate. ``link``: its runnable so many times over, each with constants of its own, up
    to ``copies``.
    """

    def __init__(self, link: Callable[[int], Runnable], copies: int) -> None:
        self.copies, self._link = copies, link
        self._linked = {1: link(1)}
        self.bind, self.rebind, self.repeat = (
            getattr(self._linked[1], n) for n in ("bind", "rebind", "repeat")
        )

    def __call__(self) -> None:
        self._linked[1]()

    def many(self, times: int) -> tuple[Runnable, int]:
        """What to measure instead of so many runs: the candidate that often over, or as often as
        there are copies.
        """
        count = max(1, min(times, self.copies))
        if count not in self._linked:
            self._linked[count] = self._link(count)
        return self._linked[count], count


class CudaBench(Bench):
    """What the candidates of a node read, and where they write, is on the device once for all of
    them.
    """

    device: CudaDevice
    duels = False  # whole plans are timed beside each other (whole_plan_tuning.py)
    _rows: SampleRows | None = None
    _arrays: Any = None
    _outputs_at: Sequence[int] = ()

    def trial(self, node: Node, env: Env) -> tuple[list[Any], Expected]:
        with host_memory(node):
            found = rows_of(node, env)
            arrays, want = super().trial(node, env) if found is None else found[1:]
        self._arrays, self._rows, self._shared = (
            arrays,
            found[0] if found else None,
            dict[Any, Any](),
        )
        return arrays, want

    def measure(self, runnable: Runnable, times: int) -> float:
        """Of a slow candidate fewer copies are run: beside its time that of reading constants is
        little.
        """
        linked, count = runnable.many(times) if isinstance(runnable, Turns) else (runnable, 1)
        passes = max(1, round(times / count))
        return self.device.measure(linked, passes) * times / (passes * count)

    def fastest(
        self,
        tried: Sequence[Attempt],
        complete: Callable[[Attempt], Plan],
        load: Callable[[Plan], Engine],
    ) -> Plan:
        return WholePlanTuning(tried, complete, load).plan()

    # -- one candidate ----------------------------------------------------------------------------

    def prepare(
        self,
        node: Node,
        artifact: KernelArtifact,
        variant: Variant,
        arrays: Sequence[Any],
        env: Env,
    ) -> tuple[Runnable, list[Any]]:
        if arrays is not self._arrays:
            self._arrays, self._rows, self._shared = arrays, None, {}
        with host_memory(node):
            return self._prepared(node, artifact, variant, env)

    def _prepared(
        self, node: Node, artifact: KernelArtifact, variant: Variant, env: Env
    ) -> tuple[Runnable, list[Any]]:
        self._buffers, self._addresses = [], []
        read = [variant.input_format(i) for i in range(len(node.given))]
        made = [variant.output_format(i) for i in range(len(node.outputs))]
        used = {a.index for x in artifact.launches for a in x.args if a.kind == "input"}
        inputs = [
            Operand(
                self._put(self._input(i, f)) if i in used or not artifact.launches else -1,
                v.spec.plain(),
                f,
            )
            for i, (v, f) in enumerate(zip(node.given, read, strict=True))
        ]
        results = [
            self._result(i, v, f, env)
            for i, (v, f) in enumerate(zip(node.outputs, made, strict=True))
        ]
        outputs = [
            Operand(self._put(m), v.spec.plain(), f)
            for v, f, (m, _) in zip(node.outputs, made, results, strict=True)
        ]
        self._outputs_at = [m.address for m, _ in results]
        size = evaluate(artifact.workspace, env)
        scratch = (
            self._put(self._share(("workspace", size), lambda: self._memory(size))) if size else -1
        )
        step: Step = Step(node.name, artifact, tuple(inputs), tuple(outputs), {}, scratch)
        fixed: dict[str | int, list[Memory]] = {
            name: self._constant(p) for name, p in artifact.constants
        }
        fixed |= {
            i: self._copies(i, f)
            for i, f in enumerate(read)
            if node.given[i].const is not None and i in used
        }
        return Turns(*self._turns(step, fixed, env)), [host for _, host in results]

    def _turns(
        self, step: Step, fixed: Mapping[str | int, list[Memory]], env: Env
    ) -> tuple[Callable[[int], Runnable], int]:
        """How to link the step many times over, and how often.

        ``fixed``: copies of its constants, those of the artifact by name, the node's own by their
        places.
        """
        own = {m[0].address: m[0].size for m in fixed.values()}
        moved = sum({m.address: m.size for m in self._buffers if m.address not in own}.values())
        # a network reads other weights before it comes back to these, so no cache holds them: as
        # many copies as make one round, with what is read and written, longer than any L2 cache
        copies = -(-max(1, COLD - moved) // max(1, sum(own.values())))
        kept = list(self._buffers)

        def link(count: int) -> Runnable:
            memory, steps = list(kept), []
            for k in range(count):
                places = {where: len(memory) + n for n, where in enumerate(fixed)}
                memory += [self._copy(made, k) for made in fixed.values()]
                inputs = tuple(
                    replace(o, buffer=places.get(i, o.buffer)) for i, o in enumerate(step.inputs)
                )
                named = {name: place for name, place in places.items() if isinstance(name, str)}
                steps.append(replace(step, inputs=inputs, constants=named))
            runnable = self.device.link(steps, self.launchers, self.context)
            runnable.bind(env, [m.address for m in memory])
            return runnable

        return link, copies if copies <= COPIES else 1

    def _copy(self, made: list[Memory], k: int) -> Memory:
        """A copy of a constant, which all candidates use."""
        while len(made) <= k:
            made.append(self._memory(made[0].size))
            self.device.copy_within(made[-1].address, made[0].address, made[0].size)
        return made[k]

    def check(
        self, node: Node, variant: Variant, got: Sequence[Any], want: Expected, granted: float = 1.0
    ) -> float:
        worst = 0.0
        for i, host in enumerate(got):
            worst = max(worst, self._departure(i, host, want, variant.output_format(i), granted))
        return worst

    def _departure(self, i: int, host: Any, want: Expected, fmt: Format, granted: float) -> float:
        """Of a whole output; of rows with the bits of an equal one, that one alone is looked at."""
        import numpy as np

        address = self._outputs_at[i]
        if self._rows is None:
            self.device.copy_out(host, address)
            return want.departure(i, fmt.unpack(host, want[i].shape), granted)
        index = self._rows.index
        other = self._differing(address, len(index), host.nbytes // len(index))
        self._copy_rows(host, address, other)
        looked = np.concatenate([np.arange(ROWS), other])
        shape = (len(looked), *want[i].shape[1:])
        return want.departure(i, fmt.unpack(host[looked], shape), granted, index[looked])

    def _differing(self, address: int, rows: int, row_bytes: int) -> Any:
        """Numbers of rows that are not those of the sample, bit by bit, but ought to be."""
        import numpy as np

        assert self._rows is not None
        index = self._rows.index
        twins = self._share("twins", lambda: self._memory(rows * 4, index.astype(np.uint32)))
        differ = self._share("differ", lambda: self._memory(rows))
        return row_twins.differing(
            self.device, address, twins.address, differ.address, rows, row_bytes
        )

    def _copy_rows(self, host: Any, address: int, other: Any) -> None:
        """The sample's rows and the others into the host's array; all, if these are many."""
        if len(other) > FEW:
            self.device.copy_out(host, address)
            return
        width = host.nbytes // len(host)
        self.device.copy_out(host[:ROWS], address)
        for row in other:
            self.device.copy_out(host[row : row + 1], address + int(row) * width)

    # -- memory -----------------------------------------------------------------------------------

    def _share(self, key: Hashable, make: Callable[[], T]) -> T:
        """What all candidates of the node have in common."""
        if key not in self._shared:
            self._shared[key] = make()
        found: T = self._shared[key]
        return found

    def _put(self, memory: Memory) -> int:
        """The buffer of some memory."""
        self._buffers.append(memory)
        self._addresses.append(memory.address)
        return len(self._buffers) - 1

    def _memory(self, size: int, content: Any = None) -> Memory:
        assert self.allocator is not None
        made = Memory.allocate(self.allocator, max(1, size))
        if content is not None:
            self.device.copy_in(made.address, content)
        return made

    def _input(self, i: int, fmt: Format) -> Memory:
        def make() -> Memory:
            packed = fmt.pack(self._arrays[i])
            whole = self._rows.spread(i, packed) if self._rows else packed
            return self._memory(whole.nbytes, whole)

        return self._share(("input", i, fmt), make)

    def _result(self, i: int, v: Value, fmt: Format, env: Env) -> tuple[Memory, Any]:
        """Where an output is written, full of garbage, and the host's array for it."""
        import numpy as np

        shape = tuple(evaluate(d, env) for d in fmt.storage_shape(v.spec.shape))
        size = math.prod(shape) * v.spec.dtype.itemsize
        memory, host = self._share(
            ("output", i, shape), lambda: (self._memory(size), np.empty(shape, v.spec.dtype.numpy))
        )
        self.device.fill(memory.address, GARBAGE, size)
        return memory, host

    def _copies(self, i: int, fmt: Format) -> list[Memory]:
        """Copies of a constant input, the first one at least."""
        return self._share(("copies", i, fmt), lambda: [self._input(i, fmt)])

    def _constant(self, p: Packed) -> list[Memory]:
        """Copies of a constant, the first one at least; ``p`` is kept, so that its array is no
        other one's.
        """

        def make() -> tuple[list[Memory], Packed]:
            packed = p.apply(self._arrays)
            return [self._memory(packed.nbytes, packed)], p

        return self._share(("constant", p.index, p.steps, id(p.array)), make)[0]
