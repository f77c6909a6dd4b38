"""Rewrite a network with rules to a fixpoint, and tell what happened.

Nodes wait in a queue, producers first; each is tried against the rules whose root can be it, best
benefit first. After a rewrite the new nodes and all their neighbours wait again; passes over all
nodes repeat until one changes nothing. ``canonical`` rules are exhausted before ``fuse`` rules
start; ``rival`` rules (``rivals``) take no part.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from tactix.base.dims import show
from tactix.base.errors import InternalError, NetworkError, PluginError, TactixError
from tactix.contracts.graph import Node, Value
from tactix.contracts.region import FUSED
from tactix.contracts.rule import PHASES, Fuse, Literal, Op, Rule, call, of_root
from tactix.fuse.match import Match, Needs, fits, is_open, match_node, needs, sources
from tactix.fuse.region import known_specs, merge
from tactix.fuse.trace import Firing, Trace
from tactix.network.definition import NetworkDefinition, Use

FEW = 8
"""Readers of one tensor, at most, that are looked at again when another of them is gone; a pass
over all finds the rest. It is what is allowed of a tensor with one reader or two that changes with
their number.
"""


class View:
    """What ``when`` and ``replace`` may ask about the rest of the network, as the parameter
    ``graph``.
    """

    def __init__(self, rewriter: Rewriter) -> None:
        self._rewriter = rewriter

    def uses(self, value: Value) -> list[Use]:
        """Where the tensor is read inside the network."""
        return list(self._rewriter.users.get(value, ()))

    def is_output(self, value: Value) -> bool:
        """Whether the network gives the tensor to the caller."""
        return self._rewriter.net.is_output(value)

    def only_use(self, value: Value) -> Node | None:
        """The one node that reads the tensor, if it is read once and is not an output."""
        uses = self._rewriter.users.get(value, {})
        return next(iter(uses))[0] if len(uses) == 1 and not self.is_output(value) else None

    def depends(self, node: Node, on: Node) -> bool:
        """Whether ``node`` needs ``on``, directly or not."""
        return _reaches([node], {on})

    def position(self, node: Node) -> float:
        """Where the node stands in the model's order."""
        return self._rewriter.net.position(node)

    def holds(self, node: Node) -> bool:
        """Whether the node is in the network still."""
        return node in self._rewriter.alive

    def weights(self) -> int:
        """Bytes of the constants that the network had before it was rewritten."""
        return self._rewriter.weights

    def symbols(self) -> frozenset[str]:
        """Names of the symbols that the inputs' shapes give."""
        return self._rewriter.symbols


def _reaches(start: Iterable[Node], targets: set[Node]) -> bool:
    """Whether a producer of one of the nodes, direct or not, is a target."""
    stack = list(start)
    seen = set(stack)
    while stack:
        for v in stack.pop().given:
            p = v.producer
            if p in targets:
                return True
            if p is not None and p not in seen:
                seen.add(p)
                stack.append(p)
    return False


class Rewriter:
    """One run over one network, which it changes.

    ``careful``: whether it is made sure after each rewrite that it made no cycle, which takes long
    in large networks.
    """

    def __init__(
        self, net: NetworkDefinition, rules: Sequence[Rule], trace: Trace, careful: bool = False
    ) -> None:
        self.net, self.rules, self.trace, self._careful = net, rules, trace, careful
        self.users: dict[Value, dict[Use, None]] = {
            v: dict.fromkeys(uses) for v, uses in net.users().items()
        }
        self.weights = sum(n for v in net.constants if isinstance(n := v.spec.nbytes(), int))
        self.symbols = frozenset(net.symbols())
        self.alive = dict.fromkeys(net.nodes)
        self.view = View(self)
        self._kept = set(net.definers().values())
        self.limit = 1000 + 50 * len(self.alive)
        self._made: list[Node] = []
        self._gone: list[Node] = []

    def run(self, phases: Sequence[str] = PHASES) -> None:
        """Exhaust the rules of each of these phases, one phase after the other."""
        for phase in phases:
            table = RulesByRoot([r for r in self.rules if r.phase == phase])
            fired = -1
            while fired < len(self.trace.firings):
                fired = len(self.trace.firings)
                self._pass(table)

    def _pass(self, table: RulesByRoot) -> None:
        queue = deque(self.net.nodes)
        waiting = set(queue)
        while queue:
            node = queue.popleft()
            waiting.discard(node)
            if node in self.alive:
                for n in self._try(node, table):
                    if n in self.alive and n not in waiting:
                        queue.append(n)
                        waiting.add(n)

    def _try(self, node: Node, table: RulesByRoot) -> Iterable[Node]:
        for rule, ask in table.of(node):
            verdict = None if ask is None else self._verdict(rule, ask, node)
            if verdict is False:
                continue
            fitting: Iterable[Match] = (
                match_node(rule.pattern, node, bool(rule.captures_root))
                if ask is None
                else (Match({}, (node,)),)
            )
            for m in fitting:
                near = self._apply(rule, m, verdict)
                if near is not None:
                    return near
        return ()

    def _verdict(self, rule: Rule, ask: Ask, root: Node) -> bool | str:
        """As ``Rule.verdict``, of a rule whose pattern binds nothing."""
        try:
            return ask(root, self.view)
        except Exception as e:
            _fail(rule, root, e)

    def _apply(self, rule: Rule, m: Match, verdict: bool | str | None) -> list[Node] | None:
        """Rewrite and return the nodes to look at again; None if the rule does not apply here.

        ``verdict``: the rule's on this match, if it was asked already.
        """
        start = time.perf_counter()
        root = m.nodes[0]
        if rule.exclusive and len(m.nodes) > 1 and self._leaks(m):
            self.trace.miss(rule.key, root.name, "a tensor inside the pattern is used elsewhere")
            return None
        try:
            made = self._ask(rule, m, verdict)
            if made is None or self._robs_output(rule, root, made):
                return None
            self._made, self._gone = [], []
            near = self._replace(rule, m, made)
        except Exception as e:
            _fail(rule, root, e)
        if near is not None:
            removed, added = tuple(n.name for n in self._gone), tuple(n.name for n in self._made)
            self.trace.firings.append(
                Firing(rule.key, root.name, removed, added, time.perf_counter() - start)
            )
            self._check_end()
        return near

    def _ask(self, rule: Rule, m: Match, verdict: bool | str | None) -> tuple[Any, ...] | None:
        """The rule's templates for this match; None if it declines."""
        bound = {**m.bound, "root": m.nodes[0], "graph": self.view}
        verdict = rule.verdict(bound) if verdict is None else verdict
        if isinstance(verdict, str):
            self.trace.miss(rule.key, m.nodes[0].name, verdict)
        if verdict is not True:
            return None
        made = call(rule.replace, bound)
        if made is None:
            do = "Return what takes the place of the root; what declines a match is when="
            raise PluginError("its replace gave None", do=do)
        return made if isinstance(made, tuple) else (made,)

    def _robs_output(self, rule: Rule, root: Node, templates: tuple[Any, ...]) -> bool:
        """Whether an output of the network would be no node's own any more; then the node must
        stay.
        """
        for old, t in zip(root.outputs, templates, strict=False):
            shared = (
                isinstance(t, Value)
                and t is not old
                and (t.producer is None or self.view.is_output(t))
            )
            if self.view.is_output(old) and (shared or isinstance(t, Literal)):
                self.trace.miss(rule.key, root.name, "its output must stay a tensor of its own")
                return True
        return False

    def _check_end(self) -> None:
        if len(self.trace.firings) > self.limit:
            often = max(self.trace.counts.items(), key=lambda kv: kv[1])[0]
            why = (
                f"{self.limit} rewrites; it fires again on what it made, "
                "or on what another made of that"
            )
            raise InternalError(
                "rewriting does not end", who=often, why=why, do="Disable that rule's pack"
            )

    def _leaks(self, m: Match) -> bool:
        inside = set(m.nodes)
        return any(self._needed(v, inside) for n in m.nodes[1:] for v in n.outputs)

    def _needed(self, v: Value, inside: Collection[Node] = ()) -> bool:
        """Whether the caller or a node outside reads the tensor."""
        return self.view.is_output(v) or any(
            user not in inside for user, _ in self.users.get(v, ())
        )

    # -- replacing --------------------------------------------------------------------------------

    def _replace(self, rule: Rule, m: Match, templates: tuple[Any, ...]) -> list[Node] | None:
        """Put the templates in place of the root's outputs; the neighbours, or None if nothing
        changed.
        """
        root = m.nodes[0]
        builder: _Builder | None = None
        leaving = dict.fromkeys(m.nodes)
        pairs: list[tuple[Value, Value]] = []
        for old, template in zip(root.outputs, templates, strict=False):
            if isinstance(template, Fuse):
                pairs += self._fuse(rule, template)
                leaving.update(dict.fromkeys(template.nodes))
            else:
                builder = builder or _Builder(self, m, rule.exclusive, templates)
                pairs.append((old, builder.make(template, old)))
        pairs = [(was, new) for was, new in pairs if was is not new]
        for was, new in pairs:
            self._check(rule, was, new)
        near = [n for was, new in pairs for n in self._redirect(was, new)]
        if self._careful and any(self._in_cycle(new) for _, new in pairs):
            raise InternalError(
                "a rule made a cycle", who=f"{rule.key} ({rule.where})", why=f"at {root.name!r}"
            )
        for n in leaving:
            near += self._sweep(n)
        return list(dict.fromkeys(near)) if pairs else None

    def _in_cycle(self, v: Value) -> bool:
        """Whether the tensor is made of what reads it."""
        readers = {user for user, _ in self.users.get(v, ())}
        return v.producer is not None and (v.producer in readers or _reaches([v.producer], readers))

    @staticmethod
    def _check(rule: Rule, old: Value, new: Value) -> None:
        a, b = old.spec, new.spec
        sizes = zip(a.shape, b.shape, strict=False)
        differ = any(isinstance(x, int) and isinstance(y, int) and x != y for x, y in sizes)
        if a.dtype is not b.dtype or a.rank != b.rank or differ:
            why = (
                f"{old.name!r} was {a.dtype.value}{show(a.shape)}, "
                f"its replacement is {b.dtype.value}{show(b.shape)}"
            )
            raise InternalError(
                "a rule changed a tensor's type", who=f"{rule.key} ({rule.where})", why=why
            )

    def _fuse(self, rule: Rule, template: Fuse) -> list[tuple[Value, Value]]:
        """Make one node of several; pairs of a tensor and what takes its place."""
        nodes = sorted(template.nodes, key=self._order(template.nodes))
        inside = set(nodes)
        last = nodes[-1]
        kept = [v for n in nodes for v in n.outputs if n is last or self._needed(v, inside)]
        body, inputs = merge(nodes, kept)
        outside = [v.producer for v in inputs if v.producer is not None]
        if len(kept) > len(last.outputs) and _reaches(outside, inside):
            raise InternalError(
                "a rule made a cycle", who=f"{rule.key} ({rule.where})", why=body.title
            )
        origin = tuple(dict.fromkeys(o for n in nodes for o in n.origin))
        position = self.net.position(last)
        specs = [v.spec.plain() for v in kept]
        outputs = self.net.add_layer(FUSED, inputs, body.title, origin, body, position, specs)
        fused = outputs[0].producer
        self.adopt(fused)
        if fused is not None and (known := known_specs(nodes, inputs)):
            fused.know(known)
        return list(zip(kept, outputs, strict=True))

    @staticmethod
    def _order(nodes: Iterable[Node]) -> Callable[[Node], int]:
        """Producers before users, among these nodes."""
        rank: dict[Node, int] = {}
        inside = set(nodes)
        for n in nodes:
            _rank(n, inside, rank)
        return rank.__getitem__

    def adopt(self, node: Node | None) -> None:
        """Take note of a node that was added to the network."""
        assert node is not None
        self.alive[node] = None
        self._made.append(node)
        if node.rounds:
            _call(node.outputs[0], node.given[0])
        for i, v in enumerate(node.inputs):
            if v is not None:
                self.users.setdefault(v, {})[node, i] = None

    def _redirect(self, old: Value, new: Value) -> list[Node]:
        """Let every reader of ``old`` read ``new``; the nodes around."""
        around = [u for u, _ in self.users.get(old, ())]
        for user, i in self.users.pop(old, {}):
            user.inputs = (*user.inputs[:i], new, *user.inputs[i + 1 :])
            self.users.setdefault(new, {})[user, i] = None
        self.net.redirect_output(old, new)
        self.net.call(new, *old.called)
        _call_before_rounding(new)
        if new.producer is not None:
            around += [
                new.producer,
                *(v.producer for v in new.producer.given if v.producer is not None),
            ]
        return around

    def _sweep(self, node: Node) -> list[Node]:
        """Remove the node if nothing needs it, then what only it needed; neighbours that stay."""
        stay: list[Node] = []
        stack = [node]
        while stack:
            n = stack.pop()
            if n not in self.alive or n in self._kept or any(map(self._needed, n.outputs)):
                continue
            del self.alive[n]
            self._gone.append(n)
            self.net.discard(n)
            for i, v in enumerate(n.inputs):
                if v is None:
                    continue
                uses = self.users.setdefault(v, {})
                uses.pop((n, i), None)
                if len(uses) <= FEW:  # of more, finding the first takes long where many are gone
                    stay += [u for u, _ in uses]
                if v.producer is not None:
                    stay.append(v.producer)
                    stack.append(v.producer)
        return stay


def _rank(node: Node, inside: Collection[Node], rank: dict[Node, int]) -> None:
    """Number a node, if it is inside, behind what it reads there. A function inside of the one that
    asks would leave Python a cycle to find for each of thousands of fusions.
    """
    if node in inside and node not in rank:
        for v in node.given:
            if v.producer is not None:
                _rank(v.producer, inside, rank)
        rank[node] = len(rank)


def _fail(rule: Rule, root: Node, e: Exception) -> NoReturn:
    """Raises what tells that the rule failed at a node."""
    if not isinstance(e, TactixError):
        who, why = f"{rule.key} ({rule.where})", f"{e!r} at {root.name!r}"
        raise InternalError("a rule failed", who=who, why=why) from e
    if rule.key not in e.who:
        e.who = f"{rule.key} ({rule.where}) at {root.name!r}: {e.who}".rstrip(": ")
    raise e


def _call(value: Value, as_is: Value) -> None:
    """Give a tensor that has no name those of one that it is, up to rounding."""
    if not value.called:
        NetworkDefinition.call(value, *as_is.called)


def _call_before_rounding(v: Value) -> None:
    """Give what is rounded to a tensor the names of that."""
    while v.producer is not None and v.producer.rounds:
        _call(v.producer.given[0], v)
        v = v.producer.given[0]


class _Builder:
    """Makes the nodes of one rule's templates; an expression or literal that stands twice is made
    once.
    """

    def __init__(
        self, rewriter: Rewriter, m: Match, exclusive: bool, templates: Sequence[Any]
    ) -> None:
        self._rewriter, self._net, self._first = rewriter, rewriter.net, m.nodes[0]
        self._leaving = m.nodes if exclusive else m.nodes[:1]
        in_order = sorted(m.nodes, key=self._net.position)
        self._origin = tuple(dict.fromkeys(o for n in in_order for o in n.origin))
        self._made: dict[tuple[Any, ...], tuple[Value, ...]] = {}
        self._literals: dict[Literal, Value] = {}
        self._named = len(templates) < len(self._first.outputs)

    def make(self, template: Any, old: Value) -> Value:
        """The tensor that the template stands for; the first node takes the name of the one whose
        place it takes.
        """
        if not isinstance(template, Op):
            return self._operand(template, old)
        operands = self._operands(template, old)
        name = self._first.name
        if not self._named:
            name = next((n.name for n in self._leaving if fits(template.layer, n)), name)
            self._net.free_name(name)
        self._named = True
        return self._add(template, operands, name)

    def _operand(self, template: Any, old: Value) -> Value:
        import numpy as np

        if isinstance(template, Value):
            return template
        if isinstance(template, Op):
            operands = self._operands(template, old)
            tail = "/" + template.layer.split("@")[0].rsplit(".", 1)[-1]
            return self._add(template, operands, self._first.name.removesuffix(tail) + tail)
        name = f"{self._first.name}/const"
        if not isinstance(template, Literal):
            return self._net.add_constant(np.asarray(template, old.spec.dtype.numpy), name)
        if template not in self._literals:
            self._literals[template] = self._net.add_constant(template.array, name)
        return self._literals[template]

    def _operands(self, template: Op, old: Value) -> list[Value | None]:
        return [None if t is None else self._operand(t, old) for t in template.inputs or ()]

    def _add(self, op: Op, operands: list[Value | None], name: str) -> Value:
        key = (op.layer, op.attrs, tuple(operands))
        if key not in self._made:
            position = self._net.position(self._first)
            attrs: dict[str, Any] = dict(op.attrs)
            made = self._net.add_layer(
                op.layer, operands, name, self._origin, position=position, **attrs
            )
            self._rewriter.adopt(made[0].producer)
            self._made[key] = made
        return self._made[key][op.output]


Ask = Callable[[Node, View], bool | str]
Rooted = tuple[Rule, Ask | None]
"""A rule, and what gives its verdict on a node: where its pattern fits whatever node has its root
and its needs, and its verdict hangs on no more.
"""


class RulesByRoot:
    """Rules by what their patterns' roots can be."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._table: dict[str, list[Rule]] = {}
        self._named: dict[tuple[bool, str], list[tuple[Rule, Needs]]] = {}
        self._found: dict[tuple[bool, str, frozenset[str]], list[Rooted]] = {}
        for r in rules:
            for name in r.roots():
                self._table.setdefault(name, []).append(r)

    def of(self, node: Node) -> list[Rooted]:
        """Those whose roots the node may be, by what it is and what its inputs are, in the order in
        which they are tried.
        """
        is_pointwise, layer, there = node.is_pointwise, node.layer.key, frozenset(sources(node))
        key = is_pointwise, layer, there
        if key not in self._found:
            self._found[key] = [
                (r, _ask_of(r))
                for r, needed in self._rooted(is_pointwise, layer)
                if any(map(there.issuperset, needed))
            ]
        return self._found[key]

    def _rooted(self, is_pointwise: bool, layer: str) -> list[tuple[Rule, Needs]]:
        """Those for such a root, with what they need."""
        key = is_pointwise, layer
        if key not in self._named:
            names = ("*", "*pointwise" if is_pointwise else "*anchor", layer.split("@")[0], layer)
            rules = (r for name in names for r in self._table.get(name, ()))
            ordered = sorted(rules, key=lambda r: (-r.benefit, r.key))
            self._named[key] = [(r, needs(r.pattern)) for r in ordered]
        return self._named[key]


def _ask_of(rule: Rule) -> Ask | None:
    """What gives the rule's verdict on a node alone, where nothing else is needed for it."""
    if rule.when is None or rule.fits is not None or not is_open(rule.pattern):
        return None
    return of_root(rule.when)


def _has_cycle(net: NetworkDefinition) -> bool:
    with suppress(NetworkError):
        _ = net.nodes
        return False
    return True


def fuse(
    net: NetworkDefinition, rules: Sequence[Rule], phases: Sequence[str] = PHASES
) -> tuple[NetworkDefinition, Trace]:
    """A copy of the network, rewritten by the rules of these phases, and the trace.

    Raises InternalError for a rule that fails, never ends or makes a cycle.
    """
    out, trace = net.copy(), Trace()
    try:
        Rewriter(out, rules, trace).run(phases)
        _ = out.nodes
    except TactixError:
        if _has_cycle(out):  # the same again tells whose it is, whatever it led to
            Rewriter(net.copy(), rules, Trace(), careful=True).run(phases)
        raise
    read = {v for n in out.nodes for v in n.given} | set(out.outputs)
    out.constants = [v for v in out.constants if v in read]
    return out, trace
