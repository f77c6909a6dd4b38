"""Which tensors lie in others: those that a Concat puts side by side are written where they will be
read, and those that a Split gives are read where they lie. Artifacts say so
(``KernelArtifact.joins``, ``cuts``).

It is done where it is faster than a kernel that copies, and the network then needs no more memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tactix.base.dims import Dim, Env, evaluate, symbol_name, symbols
from tactix.base.tensor import LINEAR, Format
from tactix.contracts.device import Costs
from tactix.contracts.graph import Node, Value
from tactix.network.definition import NetworkDefinition
from tactix.plan.memory import lower_bound
from tactix.select.choose import Choice, produced_format
from tactix.select.enumerate import Candidate

Chosen = Mapping[Node, Candidate]
Stored = tuple[Value, Format]
"""A tensor in a format: what has memory of its own, or is a part of another."""


@dataclass(frozen=True)
class Part:
    """The tensor that another lies in, ``offset`` bytes behind its begin."""

    whole: Stored
    offset: Dim


class Placement:
    """Where the tensors of a network lie, with a candidate for every node.

    ``inside``: those that are parts. ``copied``: inputs of nodes of which the artifact makes parts
    that have to be copied, by their places, since they lie elsewhere: in the caller's memory, a
    constant's, or another whole.
    """

    def __init__(self, net: NetworkDefinition, chosen: Chosen) -> None:
        self._chosen = chosen
        self.inside: dict[Stored, Part] = {}
        self.copied: dict[Node, list[int]] = {}
        self._written = {made for v in net.outputs if (made := written(v, chosen)) is not None}
        self._given_out = {stored(v, LINEAR, chosen) for v in net.outputs}
        self._told, self._produced = _told(net)
        self._joined: dict[tuple[Stored, ...], Node] = {}
        for n in net.nodes:
            if chosen[n].artifact.joins:
                self._join(n)
            elif chosen[n].artifact.cuts:
                self._cut(n)

    def _join(self, n: Node) -> None:
        c, late = self._chosen[n], list[int]()
        offsets, whole = c.artifact.joins, self._made(n)
        parts = tuple(
            stored(v, c.variant.input_format(i), self._chosen) for i, v in enumerate(n.given)
        )
        sized = symbols(sum(offsets, start=whole[0].spec.nbytes())).isdisjoint(self._told)
        run = self._run(parts, offsets) if sized else range(0)
        if run:
            before = self._made(self._joined[parts[run.start : run.stop]])
            self.inside[before] = Part(whole, offsets[run.start])
        for i in (i for i in range(len(parts)) if i not in run):
            if sized and parts[i] not in self.inside and self.is_free(parts[i]):
                self.inside[parts[i]] = Part(whole, offsets[i])
            else:
                late.append(i)
        self.copied[n] = late
        self._joined.setdefault(parts, n)

    def _run(self, parts: tuple[Stored, ...], offsets: Sequence[Dim]) -> range:
        """The most of them, first or last ones, that a node before has put side by side: a dense
        block does so with all layers before.
        """
        many = len(parts)
        for length in range(many - 1, 1, -1):
            for run in (range(length), range(many - length, many)):
                n = self._joined.get(parts[run.start : run.stop])
                begin = offsets[run.start]
                if n is not None and self._made(n) not in self.inside:
                    alike = [begin + d for d in self._chosen[n].artifact.joins]
                    if alike == [*offsets[run.start : run.stop]]:
                        return run
        return range(0)

    def _made(self, n: Node) -> Stored:
        return n.outputs[0], self._chosen[n].variant.output_format(0)

    def _cut(self, n: Node) -> None:
        c = self._chosen[n]
        whole = stored(n.given[0], c.variant.input_format(0), self._chosen)
        self.copied[n] = [] if self.is_free(whole) else [0]
        for i, (v, offset) in enumerate(zip(n.outputs, c.artifact.cuts, strict=True)):
            self.inside[v, c.variant.output_format(i)] = Part(whole, offset)

    def share(self, n: Node, env: Env) -> float:
        """Of the bytes that a kernel would move for a node of which the artifact makes parts, the
        share that is copied nonetheless, as an output of the network, too.
        """
        moved = [*(n.given[i] for i in self.copied[n]), *self.given_out(n)]
        all_bytes = sum(evaluate(v.spec.nbytes(), env) for v in n.outputs)
        return sum(evaluate(v.spec.nbytes(), env) for v in moved) / max(1, all_bytes)

    def given_out(self, n: Node) -> list[Value]:
        """What a node makes that outputs of the network are."""
        c = self._chosen[n]
        made = ((v, c.variant.output_format(i)) for i, v in enumerate(n.outputs))
        return [v for v, fmt in made if (v, fmt) in self._given_out]

    def is_free(self, tensor: Stored) -> bool:
        """Whether a step writes it to memory that the plan may choose."""
        v, fmt = tensor
        if v.const is not None:
            return False
        if fmt != produced_format(v, self._chosen):
            return True  # a change of format makes it
        return v.producer is not None and v not in self._written and v not in self._produced


def stored(v: Value, fmt: Format, chosen: Chosen) -> Stored:
    """What a tensor is a view of, in all of its bytes; itself if of nothing."""
    while (n := v.producer) is not None and fmt == chosen[n].variant.output_format(v.index):
        a = chosen[n].artifact
        if not a.alias or a.joins or a.cuts:
            break
        v, fmt = n.given[0], chosen[n].variant.input_format(0)
    return v, fmt


def written(v: Value, chosen: Chosen) -> Value | None:
    """What a step writes to the buffer of an output of the network: that, or what it is a view of;
    None where that is not linear, has other bytes, or is made of parts or a part.
    """
    seen = v
    while (n := seen.producer) is not None and produced_format(seen, chosen).is_linear:
        c = chosen[n]
        if not c.artifact.alias:
            views = seen is v or not (c.tactic.produces or c.tactic.tells)
            return seen if views else None
        source = n.given[0]
        same = source.spec.dtype is v.spec.dtype and source.spec.nbytes() == v.spec.nbytes()
        apart = c.artifact.joins or c.artifact.cuts
        if apart or not same or not c.variant.input_format(0).is_linear:
            return None
        seen = source
    return None


def _told(net: NetworkDefinition) -> tuple[set[str], set[Value]]:
    """Symbols that only running tells, and what has memory of its own, as a step produces it."""
    known = {name for v in net.inputs for d in v.spec.shape if (name := symbol_name(d))}
    told, produced = set[str](), set[Value]()
    for n in net.nodes:
        fresh = {s for v in n.outputs for d in v.spec.shape if (s := symbol_name(d))} - known
        objects = any(v.spec.dtype.on_host for v in (*n.given, *n.outputs))
        if fresh or objects or n.layer.bodies(n.attrs):
            produced.update(n.outputs)
        told |= fresh
        known |= fresh
    return told, produced


# -- is it worth it -------------------------------------------------------------------------------


def settled(
    net: NetworkDefinition,
    choice: Choice,
    options: Mapping[Node, Sequence[Candidate]],
    env: Env,
    costs: Costs,
) -> Choice:
    """The choice with kernels that copy in place of parts where these would cost as much, or more
    memory than kernels need.
    """
    rivals = {n: r for n, c in choice.candidates.items() if (r := _rival(c, options[n]))}
    if not rivals:
        return choice
    chosen = dict(choice.candidates)

    def price(c: Candidate) -> float:
        return c.seconds + costs.launch * len(c.artifact.launches)

    while lost := _lost(Placement(net, chosen), rivals, env):
        chosen |= {n: rivals[n] for n in lost}
    apart = {n: r for n, r in rivals.items() if chosen[n] is not r}
    chosen = _roomy(net, chosen, apart, env)
    found = Placement(net, chosen)
    late = sum(found.share(n, env) * price(r) for n, r in rivals.items() if n in found.copied)
    kernels = sum(price(r) for n, r in rivals.items() if chosen[n] is r)
    return replace(choice, candidates=chosen, seconds=choice.seconds + late + kernels)


def _lost(found: Placement, rivals: Mapping[Node, Candidate], env: Env) -> list[Node]:
    """Nodes that copy as much as their kernels: all that make outputs of the network, whatever
    becomes of others, else the first, by whose kernel others may gain.
    """
    lost = [n for n in found.copied if n in rivals and found.share(n, env) >= 1]
    return [n for n in lost if found.given_out(n)] or lost[:1]


def _rival(c: Candidate, options: Sequence[Candidate]) -> Candidate | None:
    """The fastest of the same formats that needs no parts, if the candidate does."""
    if not (c.artifact.joins or c.artifact.cuts):
        return None
    formats = (c.variant.inputs, c.variant.outputs)
    alike = [
        x
        for x in options
        if (x.variant.inputs, x.variant.outputs) == formats
        and x.status != "rejected"
        and not x.artifact.alias
    ]
    return min(alike, key=lambda x: x.order, default=None)


def _roomy(
    net: NetworkDefinition, chosen: Chosen, apart: Mapping[Node, Candidate], env: Env
) -> dict[Node, Candidate]:
    """All parts if they need no more memory than kernels; else those, one after the other, that do
    not.
    """
    taken = {**chosen, **apart}
    most = _peak(net, taken, env) if apart else 0
    if not apart or _peak(net, chosen, env) <= most:
        return dict(chosen)
    for n in apart:
        tried = {**taken, n: chosen[n]}
        if _peak(net, tried, env) <= most:
            taken = tried
    return taken


def _peak(net: NetworkDefinition, chosen: Chosen, env: Env) -> int:
    """The most bytes of tensors and workspaces that live at once."""
    found = Placement(net, chosen)
    scratch = [(k, evaluate(chosen[n].artifact.workspace, env)) for k, n in enumerate(net.nodes)]
    lives = dict[Stored, tuple[int, int]]()
    for k, n in enumerate(net.nodes):
        for tensor in _used(n, chosen, bool(found.copied.get(n))):
            whole = tensor
            while whole in found.inside:
                whole = found.inside[whole].whole
            if found.is_free(whole):
                lives[whole] = lives.get(whole, (k, k))[0], k
    sizes = [evaluate(v.spec.nbytes(fmt), env) for v, fmt in lives]
    times = [*lives.values(), *((k, k) for k, _ in scratch)]
    return lower_bound([*sizes, *(size for _, size in scratch)], times)


def _used(n: Node, chosen: Chosen, copies: bool) -> list[Stored]:
    """The tensors that steps of a node read and write, those that change formats for it, too."""
    c = chosen[n]
    if c.artifact.alias and not copies:
        return []
    given = [(v, c.variant.input_format(i)) for i, v in enumerate(n.given) if v.const is None]
    sources = [(v, produced_format(v, chosen)) for v, _ in given]
    outputs = [(v, c.variant.output_format(i)) for i, v in enumerate(n.outputs)]
    return [*outputs, *(stored(v, fmt, chosen) for v, fmt in dict.fromkeys((*given, *sources)))]
