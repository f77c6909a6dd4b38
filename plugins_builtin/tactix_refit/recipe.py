"""Recipes: how a plan's constants follow from named weights, as a blob of JSON in the plan.

    {"weights": {name: {"dtype", "shape", "finite", "sha256"}}, "fixed": {name: why},
     "others": {name: sha256},
     "terms": [[op, [places of earlier terms], [parameters], dtype, shape], ...],
     "constants": {blob: place}}

``weight`` and ``literal`` are the terms without arguments; a literal names a blob. ``sha256`` is
empty where a weight may have any content; ``others`` are the model's constants that are no weights.
Nothing in it is code: operations are those of ``ops.OPS``.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.base.errors import InvalidArgument, PlanFormatError
from tactix.base.tensor import TensorSpec
from tactix.contracts.graph import Node
from tactix.network.definition import NetworkDefinition, inner_networks
from tactix.plan.container import parse
from tactix.plan.reader import Reader
from tactix.plan.schema import Plan
from tactix_refit import ops

META = "refit"
"""The entry of a plan's ``meta`` that names the blob."""

STRIPPED = "stripped"
"""The entry that is there where constants were left out."""

GROWTH, SMALL = 16, 1 << 20
"""A term has at most so many times the bytes of all weights, and these bytes more."""


@dataclass(frozen=True)
class Weight:
    """``finite``: whether its elements must be. ``sha256``: what its content must be; empty for
    anything.
    """

    dtype: DType
    shape: tuple[int, ...]
    finite: bool
    sha256: str = ""

    @property
    def spec(self) -> TensorSpec:
        return TensorSpec(self.dtype, self.shape)


@dataclass(frozen=True)
class RecipeStep:
    """One term: an operation over earlier ones."""

    op: str
    args: tuple[int, ...]
    params: tuple[Any, ...]
    dtype: DType
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Recipes:
    """All of a plan. ``needs``: of each term the weights that it is made of, of each constant its
    term's.

    ``others``: the sha256 of what the model holds beside weights, by name.
    """

    weights: Mapping[str, Weight]
    fixed: Mapping[str, str]
    terms: tuple[RecipeStep, ...]
    constants: Mapping[str, int]
    needs: tuple[frozenset[str], ...] = field(repr=False, default=())
    others: Mapping[str, str] = field(repr=False, default_factory=dict)

    def of(self, blob: str) -> frozenset[str]:
        """The weights that a constant is made of."""
        return self.needs[self.constants[blob]]

    def order(self, blobs: Iterable[str]) -> list[int]:
        """The terms that these constants are made of, in order."""
        seen: set[int] = set()
        stack = [self.constants[b] for b in blobs]
        while stack:
            k = stack.pop()
            if k not in seen:
                seen.add(k)
                stack += self.terms[k].args
        return sorted(seen)


def write(recipes: Recipes) -> bytes:
    """The blob; equal recipes give equal bytes."""
    body = {
        "weights": {
            name: {
                "dtype": w.dtype.value,
                "shape": list(w.shape),
                "finite": w.finite,
                "sha256": w.sha256,
            }
            for name, w in recipes.weights.items()
        },
        "fixed": dict(recipes.fixed),
        "others": dict(recipes.others),
        "terms": [
            [t.op, list(t.args), list(t.params), t.dtype.value, list(t.shape)]
            for t in recipes.terms
        ],
        "constants": dict(recipes.constants),
    }
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def read(plan: Plan) -> Recipes:
    """A plan's recipes. Raises InvalidArgument if it has none, PlanFormatError."""
    name = plan.meta.get(META)
    if not isinstance(name, str):
        who = f"plan {plan.name or 'without name'}"
        raise InvalidArgument(
            "it cannot be refitted", who=who, do="Build it with BuilderFlag.REFIT (--refit)"
        )
    if name not in plan.blobs:
        raise PlanFormatError("no blob of that name", who=f"meta.{META}")
    content = bytes(plan.blobs[name])
    if hashlib.sha256(content).hexdigest() != name:
        raise PlanFormatError("content does not fit its sha256", who="the recipes")
    root = Reader(parse(content, "the recipes"), "refit").only(
        "weights", "fixed", "others", "terms", "constants"
    )
    weights = {n: _weight(r) for n, r in root.at("weights").fields().items()}
    terms = tuple(_step(r, k) for k, r in enumerate(root.at("terms").items()))
    places = {b: r.integer(0, len(terms)) for b, r in root.at("constants").fields().items()}
    fixed, others = (
        {n: r.text() for n, r in root.at(k).fields().items()} for k in ("fixed", "others")
    )
    return _checked(Recipes(weights, fixed, terms, places, needs(terms), others), plan)


def _weight(r: Reader) -> Weight:
    r.only("dtype", "shape", "finite", "sha256")
    return Weight(
        r.at("dtype").dtype(), _shape(r.at("shape")), r.at("finite").flag(), r.at("sha256").text()
    )


def _shape(r: Reader) -> tuple[int, ...]:
    return tuple(d.integer() for d in r.items())


def _step(r: Reader, place: int) -> RecipeStep:
    op, args, params, dtype, shape = r.row(5)
    if op.text() not in ("weight", "literal") and op.text() not in ops.OPS:
        raise PlanFormatError(f"no operation {op.text()[:40]!r}", who=r.path)
    found = tuple(a.integer(0, place) for a in args.items())
    made = RecipeStep(
        op.text(), found, tuple(params.of(list, "an array")), dtype.dtype(), _shape(shape)
    )
    if (made.op in ("weight", "literal")) != (not found):
        raise PlanFormatError(f"{made.op} of {len(found)} terms", who=r.path)
    return made


def needs(terms: tuple[RecipeStep, ...]) -> tuple[frozenset[str], ...]:
    out: list[frozenset[str]] = []
    for t in terms:
        own = frozenset(str(p) for p in t.params) if t.op == "weight" else frozenset()
        out.append(own.union(*(out[a] for a in t.args)))
    return tuple(out)


def _checked(recipes: Recipes, plan: Plan) -> Recipes:
    """Raises PlanFormatError where recipes and plan do not fit each other."""
    most = SMALL + GROWTH * sum(
        math.prod(w.shape) * w.dtype.itemsize for w in recipes.weights.values()
    )
    for k, t in enumerate(recipes.terms):
        if t.nbytes > most:
            raise PlanFormatError(f"{t.op} gives {t.nbytes} bytes", who=f"refit.terms[{k}]")
        name, fits = str(t.params[0]) if t.params else "", True
        if t.op == "weight":
            weight = recipes.weights.get(name)
            fits = weight is not None and (weight.dtype, weight.shape) == (t.dtype, t.shape)
        elif t.op == "literal":
            fits = name in plan.blobs and memoryview(plan.blobs[name]).nbytes == t.nbytes
        if not fits:
            raise PlanFormatError(
                f"no {t.op} {name[:70]!r} of that type and shape", who=f"refit.terms[{k}]"
            )
    sizes = {b.blob: b.nbytes for p in plan.nested() for b in p.buffers if b.blob}
    for blob, k in recipes.constants.items():
        if sizes.get(blob, recipes.terms[k].nbytes) != recipes.terms[k].nbytes:
            raise PlanFormatError("its recipe gives another size", who=f"blob {blob!r}")
    return recipes


def digest(array: Any) -> str:
    """sha256 of an array's content in C order."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def constants_of(net: NetworkDefinition, path: str = "") -> Iterator[tuple[str, Any]]:
    """The constants of a network by name, and those of its bodies by a longer one."""
    yield from ((path + v.name, v.const) for v in net.constants)
    for n in net.nodes:
        for inside, body in bodies_of(n, path):
            yield from constants_of(body, inside)


def bodies_of(n: Node, path: str = "") -> list[tuple[str, NetworkDefinition]]:
    """The bodies of a node, each with what goes before the names of its constants."""
    return [(f"{path}{n.name}/{k}/", body) for k, body in enumerate(inner_networks(n))]


def computed(t: RecipeStep, args: Sequence[Any], shape: tuple[int, ...]) -> Any:
    """What a term's operation gives, which is to have that shape. Raises ValueError, and what numpy
    raises.
    """
    if ops.growth(t.op, [a.shape for a in args], t.params) * t.dtype.itemsize > max(t.nbytes, 1):
        raise ValueError(f"{t.op} gives more than {t.nbytes} bytes")
    x = ops.run(t.op, args, t.params)
    if x.shape != shape or x.dtype != t.dtype.numpy:
        raise ValueError(f"{t.op} gives {x.dtype}{x.shape}, not {t.dtype.value}{shape}")
    return x


def literal(plan: Plan, t: RecipeStep) -> Any:
    """The array of a literal."""
    return np.frombuffer(plan.blobs[t.params[0]], np.uint8).view(t.dtype.numpy).reshape(t.shape)
