"""Network and choices to a plan: steps, buffers, weights, changes of format between steps."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, TypeVar

from tactix.base.dims import Dim, to_json
from tactix.base.dtypes import DType
from tactix.base.tensor import LINEAR, Format, TensorSpec
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.build_stage import Content
from tactix.contracts.graph import Node, Value
from tactix.contracts.launcher import Launcher, Operand, Step
from tactix.contracts.region import REFORMAT, ReformatAttrs
from tactix.network.definition import NetworkDefinition
from tactix.pipeline.placement import Placement, written
from tactix.plan.parts import PART, located
from tactix.plan.schema import Buffer, Plan, TensorIO
from tactix.run.admission import runs_host_code
from tactix.select.choose import produced_format
from tactix.select.enumerate import Candidate

Reformatter = Callable[[Node], Candidate]
Planner = Callable[[Any], Plan]
T = TypeVar("T")

NATIVE = "one native call"
"""How a body runs whose runs need no Python, for people."""


@dataclass
class Assembled:
    """What of a plan follows from the network: the rest is metadata."""

    inputs: list[TensorIO] = field(default_factory=list)
    outputs: list[TensorIO] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    blobs: dict[str, Any] = field(default_factory=dict)


class Assembler:
    """Walks the nodes in order. ``reformatter``: the candidate for a change of format; ``planner``:
    a body's plan.

    A step of host code, or of none of ``launchers``, keeps what it computes, with all weights for
    that: untrusted, its references run in its place.
    ``content``: gives what ``stored`` gives.
    """

    def __init__(
        self,
        net: NetworkDefinition,
        chosen: Mapping[Node, Candidate],
        reformatter: Reformatter,
        planner: Planner,
        launchers: Mapping[str, Launcher],
        content: Content,
    ) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self.net, self.chosen, self.reformatter, self.planner = net, chosen, reformatter, planner
        self.launchers, self._content = launchers, content
        self.names = output_names(net)
        self.out = Assembled()
        self._where: dict[tuple[Value, Format], int] = {}
        self._final: dict[Value, tuple[str, Value]] = {}
        self._claimed: set[str] = set()
        self._placement = Placement(net, chosen)
        self._weights: dict[tuple[Any, ...], int] = {}
        self._pool, self._contents = ThreadPoolExecutor(os.cpu_count()), dict[int, Any]()

    def run(self, meanwhile: Callable[[Sequence[Step]], T]) -> tuple[Assembled, T]:
        """What a plan is made of, and what ``meanwhile`` gives of its steps: it is called while
        other threads make the weights.
        """
        with self._pool:
            self._run()
            made = meanwhile(self.out.steps)
            self._fill()
        self._lifetimes()
        return self.out, made

    def _run(self) -> None:
        for v in self.net.inputs:
            self._where[v, LINEAR] = self._buffer("input", v.name, v.spec, LINEAR)
            self.out.inputs.append(
                TensorIO(v.name, self._where[v, LINEAR], v.spec.dtype, v.spec.shape, v.spec.element)
            )
        self._claim_outputs()
        for n in self.net.nodes:
            self._node(n)
        for name, v in zip(self.names, self.net.outputs, strict=True):
            self._output(name, v)

    def _claim_outputs(self) -> None:
        """Outputs that a step can write in place: made by a node, in linear format, and asked for
        once; an output that is a view of what a step makes, too.
        """
        for name, v in zip(self.names, self.net.outputs, strict=True):
            made = written(v, self.chosen)
            if made is not None and made not in self._final:
                self._final[made] = name, v
                self._claimed.add(name)

    # -- steps ------------------------------------------------------------------------------------

    def _node(self, n: Node) -> None:
        c = self.chosen[n]
        if c.artifact.alias:
            self._view(n, c)
            return
        used = self._used_inputs(n, c.artifact)
        inputs = [
            Operand(
                self._fetch(v, c.variant.input_format(i))
                if v.const is None or used is None or i in used
                else -1,
                v.spec.plain(),
                c.variant.input_format(i),
            )
            for i, v in enumerate(n.given)
        ]
        outputs = [self._place(v, c.variant.output_format(i)) for i, v in enumerate(n.outputs)]
        self._step(n, c, inputs, outputs)

    def _view(self, n: Node, c: Candidate) -> None:
        if c.artifact.joins:
            self._join(n, c)
        elif c.artifact.cuts:
            self._cut(n, c)
        else:
            seen = self._fetch(n.given[0], c.variant.input_format(0))
            self._where[n.outputs[0], c.variant.output_format(0)] = seen

    def _join(self, n: Node, c: Candidate) -> None:
        """Parts that were not written in the whole are copied there."""
        whole = self._made(n.outputs[0], c.variant.output_format(0))
        for i, (v, offset) in enumerate(zip(n.given, c.artifact.joins, strict=True)):
            fmt = c.variant.input_format(i)
            if i in self._placement.copied[n]:
                name = f"{v.name}/in {n.outputs[0].name}"
                self._reformat(v, fmt, fmt, self._part(name, v.spec, fmt, whole, offset))
            else:
                self._fetch(v, fmt)

    def _cut(self, n: Node, c: Candidate) -> None:
        """A whole that is not in the arena is copied there."""
        v, fmt = n.given[0], c.variant.input_format(0)
        whole = self._fetch(v, fmt)
        if self._placement.copied[n]:
            copy = self._buffer("arena", f"{v.name}/copy", v.spec, fmt)
            whole = self._reformat(v, fmt, fmt, copy)
        for i, (out, offset) in enumerate(zip(n.outputs, c.artifact.cuts, strict=True)):
            own = c.variant.output_format(i)
            self._where[out, own] = self._part(out.name, out.spec, own, whole, offset)

    def _step(
        self, n: Node, c: Candidate, inputs: Sequence[Operand], outputs: Sequence[Operand]
    ) -> None:
        constants = {name: self._packed(n, name, p) for name, p in c.artifact.constants}
        scratch = -1
        named = any(a.kind == "workspace" for launch in c.artifact.launches for a in launch.args)
        if named or c.artifact.workspace != 0:
            spec = TensorSpec(DType.UINT8, (c.artifact.workspace,))
            scratch = self._buffer("workspace", f"{n.name}/workspace", spec, LINEAR)
        info = {
            "tactic": c.tactic.key,
            "source": c.tactic.source,
            "variant": str(c.variant),
            "kind": n.kind,
            "layers": [b.layer.key for b in n.body.nodes],
            "origin": list(n.origin),
            "makes": [self._called(v) for v in n.outputs],
            "consumes": [self._called(v) for v in n.given],
            "operations": to_json(n.operations),
            "seconds": c.seconds,
            "status": c.status,
        }
        meaning, bodies = n.meaning, n.layer.bodies(n.attrs)
        tells_itself = c.artifact.params == meaning  # as the reference does
        if not bodies and (not tells_itself or runs_host_code(c.artifact, self.launchers)):
            info["reference"] = meaning
        plans = tuple(self.planner(body) for body in bodies)
        if plans:
            info["body_runs"] = [self._how_it_runs(p) for p in plans]
        self.out.steps.append(
            Step(n.name, c.artifact, tuple(inputs), tuple(outputs), constants, scratch, info, plans)
        )

    def _called(self, v: Value) -> str:
        """What the model calls a tensor: as an output, if it is one; empty for what it has not."""
        as_outputs = (name for name in v.called if name in self.names)
        return next(as_outputs, next(iter(v.called), ""))

    def _how_it_runs(self, body: Plan) -> str:
        """A run of a body's steps, for people."""
        produced = ((body.steps[k], tells) for k, tells in body.produced.items())
        alone = [step for step, tells in produced if not self._nests(step, tells)]
        if alone:
            return f"step by step: {alone[0].name} is run by itself"
        ordinary = [s for k, s in enumerate(body.steps) if k not in body.produced]
        needed = sorted({s.artifact.launcher for s in ordinary})
        if [k for k, x in self.launchers.items() if k in needed and x.iterates] == needed:
            return NATIVE
        return f"step by step: it has steps of {', '.join(needed)}"

    def _nests(self, step: Step, tells: frozenset[str]) -> bool:
        """Whether a step that is produced runs in the native call of what is around it. ``tells``:
        symbols that it gives.
        """
        launcher = self.launchers.get(step.artifact.launcher)
        objects = any(o.spec.dtype.on_host for o in (*step.inputs, *step.outputs))
        if objects or launcher is None or not launcher.nests:
            return False
        runs = step.info.get("body_runs", ())
        return tells <= launcher.told(step) and runs in ((), [NATIVE] * len(step.plans))

    def _hosts(self, n: Node, artifact: KernelArtifact) -> bool:
        """Whether its references can take the place of its host code."""
        return runs_host_code(artifact, self.launchers) and not n.layer.bodies(n.attrs)

    def _used_inputs(self, n: Node, artifact: KernelArtifact) -> set[int] | None:
        """Inputs that launches name, or that references could have nowhere else; None if the
        launcher may read all.
        """
        if not artifact.launches:
            return None
        used = {a.index for launch in artifact.launches for a in launch.args if a.kind == "input"}
        packed = {p.index for _, p in artifact.constants}
        return used | (set(range(len(n.given))) - packed if self._hosts(n, artifact) else set())

    def _place(self, v: Value, fmt: Format) -> Operand:
        """The buffer that a node writes."""
        if v in self._final:
            name, as_given = self._final[v]
            spec = as_given.spec
            buffer = self._buffer("output", name, spec, LINEAR)
            self.out.outputs.append(TensorIO(name, buffer, spec.dtype, spec.shape, spec.element))
            self._where[v, fmt] = buffer
        else:
            buffer = self._made(v, fmt)
        return Operand(buffer, v.spec.plain(), fmt)

    def _fetch(self, v: Value, fmt: Format) -> int:
        """The buffer in which to read a tensor in that format; adds a change of format where it is
        not there yet.
        """
        if (v, fmt) not in self._where:
            if v.const is not None:
                self._where[v, fmt] = self._weight(v.name, partial(fmt.pack, v.const))
            else:
                have = produced_format(v, self.chosen)
                if have.lies_as(fmt, v.spec.shape) and (v, fmt) not in self._placement.inside:
                    self._where[v, fmt] = self._fetch(v, have)
                else:
                    self._reformat(v, have, fmt, self._made(v, fmt))
        return self._where[v, fmt]

    def _reformat(self, v: Value, source: Format, target: Format, buffer: int) -> int:
        name = f"{v.name} {source.name}->{target.name}"
        node = Node(name, REFORMAT, ReformatAttrs(source, target), (v,), (), (v.name,))
        made = Value(f"{v.name}/{target.name}", v.spec.plain(), node, called=v.called)
        node.outputs = (made,)
        read = Operand(self._fetch(v, source), v.spec.plain(), source)
        self._step(node, self.reformatter(node), [read], [Operand(buffer, v.spec.plain(), target)])
        return buffer

    def _output(self, name: str, v: Value) -> None:
        """An output that no step wrote in place is copied."""
        if name in self._claimed:
            return
        buffer = self._buffer("output", name, v.spec, LINEAR)
        self.out.outputs.append(TensorIO(name, buffer, v.spec.dtype, v.spec.shape, v.spec.element))
        have = (
            LINEAR
            if v.const is not None or (v, LINEAR) in self._where
            else produced_format(v, self.chosen)
        )
        self._reformat(v, have, LINEAR, buffer)

    # -- buffers ----------------------------------------------------------------------------------

    def _made(self, v: Value, fmt: Format) -> int:
        """The buffer of what steps make: a part of another, or one of its own."""
        if (v, fmt) not in self._where:
            name = v.name if fmt == produced_format(v, self.chosen) else f"{v.name}/{fmt.name}"
            part = self._placement.inside.get((v, fmt))
            self._where[v, fmt] = (
                self._part(name, v.spec, fmt, self._made(*part.whole), part.offset)
                if part
                else self._buffer("arena", name, v.spec, fmt)
            )
        return self._where[v, fmt]

    def _part(self, name: str, spec: TensorSpec, fmt: Format, whole: int, offset: Dim) -> int:
        part = Buffer(
            PART, name, spec.dtype, spec.shape, fmt, spec.nbytes(fmt), inside=whole, offset=offset
        )
        self.out.buffers.append(part)
        return len(self.out.buffers) - 1

    def _buffer(self, kind: str, name: str, spec: TensorSpec, fmt: Format) -> int:
        size: Dim = spec.nbytes(fmt)
        kind = "object" if kind == "arena" and spec.dtype.on_host else kind
        self.out.buffers.append(Buffer(kind, name, spec.dtype, spec.shape, fmt, size))
        return len(self.out.buffers) - 1

    def _packed(self, n: Node, name: str, packed: Any) -> int:
        source = n.given[packed.index] if packed.index >= 0 else n
        key = (source, packed.steps, id(packed.array))
        if key not in self._weights:
            label = f"{n.name}/{name}" if source is n else f"{source.name}/packed"
            self._weights[key] = self._weight(
                label, partial(packed.apply, [v.const for v in n.given])
            )
        return self._weights[key]

    def _weight(self, name: str, make: Callable[[], Any]) -> int:
        """A buffer whose content another thread makes."""
        self._contents[len(self.out.buffers)] = self._pool.submit(self._content, make)
        return self._buffer("weight", name, TensorSpec(DType.UINT8, (0,)), LINEAR)

    def _fill(self) -> None:
        """Weights to their buffers; equal contents are stored once."""
        for i, content in self._contents.items():
            blob, raw, s = content.result()
            self.out.blobs.setdefault(blob, raw)
            stored = self.out.buffers[i]
            self.out.buffers[i] = replace(
                stored, dtype=s.dtype, shape=s.shape, nbytes=s.nbytes(), blob=blob
            )

    def _lifetimes(self) -> None:
        """First and last step that touch each arena and workspace buffer, or a part of it."""
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for k, s in enumerate(self.out.steps):
            touched = (*(o.buffer for o in (*s.inputs, *s.outputs)), s.workspace)
            for b in (located(self.out.buffers, b)[0] for b in touched if b >= 0):
                first.setdefault(b, k)
                last[b] = k
        for i, stored in enumerate(self.out.buffers):
            if stored.kind in ("arena", "workspace"):
                self.out.buffers[i] = replace(stored, first=first.get(i, 0), last=last.get(i, 0))
        order = {name: i for i, name in enumerate(self.names)}
        self.out.outputs.sort(key=lambda io: order[io.name])


def output_names(net: NetworkDefinition) -> list[str]:
    """Names of the plan's outputs: one that is an input's, too, gets another, as addresses are set
    by name.
    """
    taken = {*net.output_names, *(v.name for v in net.inputs)}
    out = []
    for name in net.output_names:
        if any(v.name == name for v in net.inputs):
            name = next(n for n in (f"{name}_out{i or ''}" for i in count()) if n not in taken)
            taken.add(name)
        out.append(name)
    return out


def stored(make: Callable[[], Any]) -> tuple[str, Any, TensorSpec]:
    """Name, bytes and spec of a weight."""
    import numpy as np

    data = np.ascontiguousarray(make())
    raw: Any = data.reshape(-1).view(np.uint8).data if data.size else b""
    return hashlib.sha256(raw).hexdigest(), raw, TensorSpec(DType.of(data.dtype), data.shape)
