"""Rule: a pattern over the network, a replacement in the same words, and an example that proves it.

    Rule(
        "acme.swish",
        P.tactix.Mul(x, P.tactix.Sigmoid(x)),
        replace=lambda x: P.acme.Swish(x),
        example=...,
    )

``var("x")`` matches any tensor (the same one wherever it appears twice), ``const("w")`` a constant.
``P.ns.Name(...)`` matches a layer of that name at any version whose attributes are those written,
``P.ns.Name(..., alpha=1)``, and else the layer's defaults; ``alpha=ANY`` matches every value, and
so does a node that the rule looks at itself, as ``>> "n"`` binds it or as ``root``. ``any_of(p,
q)`` tries alternatives; ``pointwise(x, ...)`` matches any pointwise layer, ``anchor()`` a node that
takes an epilogue, and ``pointwise().reading("ns.Name")`` one that reads what such a layer makes.
``when`` and ``replace`` are called with the bound names that their parameters
ask for: tensors as Value, nodes as Node; ``root`` is the matched node and ``graph`` answers
questions about the rest of the network (uses, outputs, order, who depends on whom). ``when``
returns True, or False or a text that says why not. ``replace`` returns a template: a pattern
expression over Values and numbers, a Value, ``literal(array)``, ``fuse(...)``, or a tuple of these,
one per matched output.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

from tactix.base.arrays import Array
from tactix.base.errors import PluginError
from tactix.base.spelling import did_you_mean
from tactix.contracts.graph import Node, Value

Made = TypeVar("Made")


class AnyAttribute:
    """The type of ANY."""

    def __repr__(self) -> str:
        return "ANY"


ANY = AnyAttribute()
"""In a pattern: an attribute of whatever value."""


@dataclass(frozen=True)
class Var:
    """Matches any tensor; ``constant`` only a constant."""

    name: str
    constant: bool = False


@dataclass(frozen=True, eq=False)
class Op:
    """Matches a node by layer name, or by trait ``"*pointwise"``, ``"*anchor"``, ``"*"``; its
    inputs from the front.

    ``inputs`` of None matches any; ``reads`` is a layer, one of which makes some input. As a
    template it makes the node.
    """

    layer: str
    inputs: tuple[Pattern, ...] | None
    attrs: tuple[tuple[str, object], ...] = ()
    bind: str = ""
    output: int = 0
    reads: str = ""

    def __rshift__(self, name: str) -> Op:
        return replace(self, bind=name)

    def out(self, index: int) -> Op:
        """Another output of the node than the first."""
        return replace(self, output=index)

    def reading(self, layer: str) -> Op:
        """One of whose inputs such a layer makes: of a pattern that says nothing else of inputs."""
        return replace(self, reads=layer)


@dataclass(frozen=True, eq=False)
class AnyOf:
    """Matches the first alternative that does."""

    options: tuple[Pattern, ...]


@dataclass(frozen=True, eq=False)
class Fuse:
    """Template: run these nodes, in this order, as one; the outputs of the last stand for it."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Literal:
    """Template: a constant array."""

    array: Array


Pattern: TypeAlias = Var | Op | AnyOf | Fuse | Literal | Value | float | None
"""What a pattern or a template is made of. A number stands for a constant, None for an optional
input that is not there.
"""


class _Name:
    def __init__(self, path: str) -> None:
        self._path = path

    def __getattr__(self, name: str) -> _Name:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Name(f"{self._path}.{name}" if self._path else name)

    def __call__(self, *inputs: Pattern, **attrs: object) -> Op:
        return Op(self._path, tuple(inputs), tuple(sorted(attrs.items(), key=lambda kv: kv[0])))


P = _Name("")
"""Layers by name: ``P.tactix.Relu(x)``."""


def var(name: str) -> Var:
    """Any tensor."""
    return Var(name)


def const(name: str) -> Var:
    """A constant tensor."""
    return Var(name, constant=True)


def any_of(*options: Pattern) -> AnyOf:
    return AnyOf(options)


def pointwise(*inputs: Pattern) -> Op:
    """Any node that is pointwise, fused groups included; without inputs, whatever they are."""
    return Op("*pointwise", inputs or None)


def anchor(*inputs: Pattern) -> Op:
    """Any node that is not pointwise."""
    return Op("*anchor", inputs or None)


def anything() -> Op:
    """Any node at all."""
    return Op("*", None)


def fuse(*nodes: Node | None) -> Fuse:
    """Raises PluginError for the producer of a tensor that has none."""
    if None in nodes:
        raise PluginError("a rule fuses what no node makes", do="Look at the producer in `when`")
    return Fuse(tuple(n for n in nodes if n is not None))


def literal(array: Array) -> Literal:
    return Literal(array)


NUMERICS = ("exact", "reassociates", "fp16", "bf16")
PHASES = ("canonical", "fuse")
RIVAL = "rival"
"""The phase of rules that give another form of what is fused already, which competes with it."""


@dataclass(frozen=True, eq=False)
class Rule:
    """One rewrite.

    ``key``: ``namespace.name``. ``benefit``: higher is tried first. ``numerics``: ``exact``,
    ``reassociates`` (rounding differs), or what float32 is lowered to, ``fp16`` or ``bf16``;
    builder flags gate these. ``device``: the kind of devices that it is for, empty for all.
    ``exclusive``: interior tensors must have no use outside the match.
    ``fits``: asked where ``when`` agrees, with the same names: whether what the rule computes of
    constants stays within their dtype. It alone may hang on what weights hold: a build for refits
    asks it once, of the weights that it is given.
    ``example``: a function of a NetworkDefinition that adds a case on which the rule fires.
    ``phase``: ``canonical`` rules run to a fixpoint before ``fuse`` rules; ``rival`` rules change
    no network: of a node of the fused one that they match, the layers that it runs are rewritten by
    them and then by all others, and the faster of both forms runs. ``captures_root``: whether
    ``when``, ``fits`` or ``replace`` looks at the root's attributes by itself; by default, whether
    one of them has a parameter ``root``.

    Raises PluginError for a field that makes no sense.
    """

    key: str
    pattern: Pattern
    replace: Callable[..., Pattern | tuple[Pattern, ...]]
    when: Callable[..., bool | str] | None = None
    benefit: int = 1
    numerics: str = "exact"
    exclusive: bool = True
    example: Callable[..., None] | None = None
    phase: str = "canonical"
    device: str = ""
    where: str = field(default="", compare=False)
    captures_root: bool | None = None
    fits: Callable[..., bool | str] | None = None

    def __post_init__(self) -> None:
        if self.captures_root is None:
            functions = (self.when, self.fits, self.replace)
            asked = [_signature(f)[1] or () for f in functions if callable(f)]
            object.__setattr__(self, "captures_root", any("root" in names for names in asked))
        if not self.where:
            frame = sys._getframe(2)
            object.__setattr__(self, "where", f"{frame.f_code.co_filename}:{frame.f_lineno}")
        self.roots()
        if not isinstance(self.benefit, (int, float)):
            raise PluginError(f"its benefit is {self.benefit!r}", who=self.key, do="Give a number")
        for name, known in (("numerics", NUMERICS), ("phase", (*PHASES, RIVAL))):
            if (said := getattr(self, name)) not in known:
                raise PluginError(
                    f"its {name} is {said!r}", who=self.key, do=f"There are: {', '.join(known)}"
                )

    def verdict(self, bound: Mapping[str, object]) -> bool | str:
        """True where it fires on what is bound; else False, or the reason."""
        verdict = True if self.when is None else call(self.when, bound)
        return verdict if verdict is not True or self.fits is None else call(self.fits, bound)

    @property
    def phases(self) -> tuple[str, ...]:
        """Those of a rewriting that it takes part in, in their order."""
        return (RIVAL, *PHASES) if self.phase == RIVAL else PHASES

    def roots(self) -> frozenset[str]:
        """Layer names (or traits) that the pattern's root can be. Raises PluginError if it is
        something else.
        """
        options = self.pattern.options if isinstance(self.pattern, AnyOf) else (self.pattern,)
        layers = [o.layer for o in options if isinstance(o, Op)]
        if len(layers) < len(options):
            raise PluginError(
                "its pattern is no layer",
                who=self.key,
                do="Write P.namespace.Layer(...), or any_of",
            )
        return frozenset(layers)


def call(function: Callable[..., Made], bound: Mapping[str, object]) -> Made:
    """Call with the bound names that the function's parameters ask for; a parameter with a default
    may be unbound. Raises PluginError for one without.
    """
    required, names = _signature(function)
    try:
        given = bound if names is None else {name: bound[name] for name in names}
    except KeyError:
        given = {name: bound[name] for name in names or () if name in bound}
    if len(given) < len(required) or not required <= given.keys():
        unbound = required - bound.keys()
        raise PluginError(
            f"{getattr(function, '__name__', function)} takes {min(unbound)!r}",
            why="the pattern binds nothing of that name",
            do=did_you_mean(min(unbound), bound, f"There are: {', '.join(sorted(bound))}"),
        )
    return function(**given)


def of_root(function: Callable[..., Made]) -> Callable[[object, object], Made] | None:
    """``call`` for a function of no more than ``root`` and ``graph``, as a function of these two;
    None for others.
    """
    required, names = _signature(function)
    if names is None or not required <= {"root", "graph"}:
        return None
    if {"root", "graph"} <= set(names):
        return lambda root, graph: function(root=root, graph=graph)
    if "root" in names:
        return lambda root, graph: function(root=root)
    return (lambda root, graph: function(graph=graph)) if "graph" in names else None


@functools.lru_cache(4096)
def _signature(
    function: Callable[..., object],
) -> tuple[frozenset[str], tuple[str, ...] | None]:
    """Names of its parameters without a default, and of all; None if it takes any."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(function).parameters.values()
    required = frozenset(p.name for p in parameters if p.kind in kinds and p.default is p.empty)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    return required, None if takes_any else tuple(p.name for p in parameters)
