"""What a build with REFIT does more: weights are traced through rules, bids and packing, recipes go
into the plan.

What was decided by looking at the content of a weight would be wrong for another content. So a rule
that looks at a weight before it fires does not fire; single numbers are looked at freely, and are
then built in, as is what a rule or tactic looks at while it makes something. Nothing follows from a
rule that declines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.contracts.build_stage import Content
from tactix.contracts.graph import Node, Value, run_node
from tactix.contracts.rule import AnyOf, Op, Rule, call, const
from tactix.network.definition import NetworkDefinition
from tactix.pipeline.stages import Part
from tactix.plan.schema import Plan
from tactix_ops.layers.control import Control
from tactix_refit.recipe import (
    META,
    STRIPPED,
    Recipes,
    RecipeStep,
    Weight,
    bodies_of,
    constants_of,
    digest,
    write,
)
from tactix_refit.trace import Term, Traced, Tracer

Array = Any
FLOATS = frozenset({DType.FP64, DType.FP32, DType.FP16, DType.BF16})
QUANTIZED = frozenset({"QuantizeLinear", "DequantizeLinear"})
IMPORTED = "the importer built its values into a layer"


class RefitBuild(Tracer, Part):
    """One build. ``identical``: weights will be the same again, so that anything may be decided by
    them.

    ``strip``: constants that recipes give are left out of the plan.
    """

    def __init__(self, identical: bool, strip: bool) -> None:
        super().__init__()
        self.identical, self.strip = identical, strip
        self._weights: dict[str, Array] = {}
        self._traced: dict[str, Traced] = {}
        self._constants: dict[str, Term] = {}
        self._model: dict[str, Array] = {}

    def network(self, given: NetworkDefinition) -> NetworkDefinition:
        """A copy of the network whose weights are traced."""
        self._model = dict(constants_of(given))
        return self._copy(given)

    def _copy(self, given: NetworkDefinition, path: str = "") -> NetworkDefinition:
        """``path``: before the names of a body's weights."""
        out = given.copy()
        self.fixed |= (
            {} if self.identical else {path + name: why for name, why in _fixed(out).items()}
        )
        for v in out.constants:
            name = path + v.name
            if v.spec.dtype in FLOATS and v.array.size and name not in self.fixed:
                made = self._derived(out.origins[v.name], path) if v.name in out.origins else None
                if made is None:
                    self._weights[name] = v.const
                    made = self.weight(name, v.const)
                self._traced[name] = made
                v.spec = replace(v.spec, const=made)
        for n in out.nodes:
            if isinstance(n.layer, Control):
                traced = tuple(self._copy(body, inside) for inside, body in bodies_of(n, path))
                n.attrs = replace(n.attrs, bodies=replace(n.attrs.bodies, networks=traced))
        return out

    def _derived(self, result: Value, path: str) -> Traced | None:
        """What the importer computed of weights, traced; None where it looks at them."""

        def of(v: Value) -> Any:
            if v.producer is None:
                return self._traced.get(path + v.name, v.const)
            inputs = [None if x is None else of(x) for x in v.producer.inputs]
            return run_node(v.producer, inputs, {})[v.index]

        with self.scope() as looks:
            made = of(result)
        self.fixed |= dict.fromkeys(looks, IMPORTED)
        return made if isinstance(made, Traced) and not looks else None

    def look(self, weights: frozenset[str]) -> None:
        """Nothing, where weights will be the same."""
        if not self.identical:
            super().look(weights)

    # -- rules ------------------------------------------------------------------------------------

    def rules(self, rules: Sequence[Rule]) -> list[Rule]:
        """The rules, which fire only where that does not hang on the content of a weight."""
        return [self._gated(r) for r in rules]

    def _gated(self, rule: Rule) -> Rule:
        numbers: dict[str, float] = {}
        pattern = _without_numbers(rule.pattern, numbers)
        seen: dict[Node, set[str]] = {}

        def when(**bound: Any) -> bool | str:
            with self.scope() as looks:
                if not all(
                    _is(bound.pop(name), number)
                    for name, number in numbers.items()
                    if name in bound
                ):
                    return False
                verdict = True if rule.when is None else call(rule.when, bound)
            if verdict is True and (
                tensors := sorted(n for n in looks if self._weights[n].size > 1)
            ):
                return f"it would build in the values of {tensors[0]!r}"
            seen[bound["root"]] = looks
            return verdict  # type: ignore[no-any-return]

        def fits(**bound: Any) -> bool | str:
            with self.pause():
                return True if rule.fits is None else call(rule.fits, bound)

        def fire(**bound: Any) -> Any:
            with self.scope() as looks:
                made = call(rule.replace, {k: v for k, v in bound.items() if k not in numbers})
            for name in looks | seen.pop(bound["root"], set()):
                self.fixed.setdefault(name, f"its values are built in by rule {rule.key}")
            return made

        return replace(rule, pattern=pattern, when=when, fits=fits, replace=fire)

    # -- the plan ---------------------------------------------------------------------------------

    def racing(self) -> AbstractContextManager[None]:
        """What is tried decides nothing by the content of a weight."""
        return self.pause()

    def constants(self, stored: Content) -> Content:
        """What gives name, bytes and spec of a stored constant: one with a recipe is named after
        that.
        """

        def named(make: Callable[[], Any]) -> tuple[str, Any, Any]:
            found = make()
            if not isinstance(found, Traced):
                return stored(lambda: found)
            name = f"refit-{found.term.digest[:40]}"
            self._constants[name] = found.term
            return (name, *stored(lambda: found.value)[1:])

        return named

    def plan(self, plan: Plan) -> Plan:
        """The plan with its recipes; without the constants that they give, if they are to be left
        out.
        """
        used = {b.blob for p in plan.nested() for b in p.buffers} & self._constants.keys()
        flat = _Flat(
            {n: self._weights[n] for n in self.fixed.keys() & self._weights.keys()}, self.literals
        )
        places = {
            b: flat.add(t)
            for b in sorted(used)
            if (t := self._constants[b]).weights - self.fixed.keys()
        }
        weights = {n: self._described(n) for n in sorted(flat.named)}
        for n in self._weights.keys() - weights.keys():
            self.fixed.setdefault(n, "nothing that is stored is made of it")
        others = {
            n: digest(a)
            for n, a in sorted(self._model.items())
            if n in self.fixed or n not in self._traced
        }
        fixed = dict(sorted(self.fixed.items()))
        text = write(Recipes(weights, fixed, tuple(flat.steps), places, others=others))
        name = hashlib.sha256(text).hexdigest()
        plan = _without(plan, places.keys()) if self.strip else plan
        return replace(
            plan, blobs={**plan.blobs, **flat.literals, name: text}, meta={**plan.meta, META: name}
        )

    def _described(self, name: str) -> Weight:
        array = self._weights[name]
        sha256 = digest(array) if self.identical else ""
        return Weight(DType.of(array.dtype), array.shape, bool(np.isfinite(array).all()), sha256)


def _without_numbers(pattern: Any, numbers: dict[str, float]) -> Any:
    """The pattern with any constant in place of each number, which is noted under a new name: no
    match is a look.
    """
    if isinstance(pattern, (int, float)):
        name = f"number {len(numbers)}"
        numbers[name] = pattern
        return const(name)
    if isinstance(pattern, AnyOf):
        return AnyOf(tuple(_without_numbers(p, numbers) for p in pattern.options))
    if isinstance(pattern, Op) and pattern.inputs:
        return replace(pattern, inputs=tuple(_without_numbers(p, numbers) for p in pattern.inputs))
    return pattern


def _is(v: Value, number: float) -> bool:
    return bool(v.array.size == 1 and v.array.item() == number)


def _fixed(net: NetworkDefinition) -> dict[str, str]:
    """Constants that are no weights for refitting, with the reason."""
    out = {v.name: IMPORTED for v in net.constants if v.name in net.read and v.spec.dtype in FLOATS}
    for v in {v for n in net.nodes for v in n.given if v.const is not None}:
        if v.spec.dtype.bits <= 8 and v.spec.dtype is not DType.BOOL:
            out[v.name] = (
                f"it is {v.spec.dtype.value}, and only floating-point weights are refitted"
            )
    for n in net.nodes:
        if any(v.spec.value is not None for v in n.outputs):
            out |= {
                v.name: "shapes follow from it"
                for v in n.given
                if v.spec.dtype in FLOATS and v.const is not None
            }
        beside = any(v.producer is not None and v.producer.layer.name in QUANTIZED for v in n.given)
        if n.layer.name in QUANTIZED or beside:
            out |= {
                v.name: "it is part of a quantized layer" for v in n.given if v.const is not None
            } | out
    return out


def _without(plan: Plan, blobs: Collection[str]) -> Plan:
    """The plan and those of its bodies without these constants."""
    steps = tuple(
        replace(s, plans=tuple(_without(p, blobs) for p in s.plans)) if s.plans else s
        for s in plan.steps
    )
    kept = {k: v for k, v in plan.blobs.items() if k not in blobs}
    return replace(plan, steps=steps, blobs=kept, meta={**plan.meta, STRIPPED: sorted(blobs)})


class _Flat:
    """Terms as numbered steps. ``fixed``: weights that became literals."""

    def __init__(self, fixed: Mapping[str, Array], known: Mapping[str, Array]) -> None:
        self._fixed, self._known = fixed, known
        self.steps: list[RecipeStep] = []
        self.named: set[str] = set()
        self.literals: dict[str, bytes] = {}
        self._places: dict[Term, int] = {}

    def add(self, root: Term) -> int:
        """The place of a term, after those that it is made of."""
        stack = [root]
        while stack:
            t = stack[-1]
            if missing := [a for a in t.args if a not in self._places]:
                stack += missing
                continue
            stack.pop()
            if t not in self._places:
                self.steps.append(self._step(t))
                self._places[t] = len(self.steps) - 1
        return self._places[root]

    def _step(self, t: Term) -> RecipeStep:
        op, params = t.op, t.params
        if op == "literal":
            params = (self._stored(self._known[params[0]]),)
        elif op == "weight" and params[0] in self._fixed:
            op, params = "literal", (self._stored(self._fixed[params[0]]),)
        elif op == "weight":
            self.named.add(params[0])
        return RecipeStep(op, tuple(self._places[a] for a in t.args), params, t.dtype, t.shape)

    def _stored(self, array: Array) -> str:
        content = np.ascontiguousarray(array).tobytes()
        name = hashlib.sha256(content).hexdigest()
        self.literals[name] = content
        return name
