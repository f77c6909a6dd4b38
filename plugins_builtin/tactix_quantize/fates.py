"""What became of each QuantizeLinear and DequantizeLinear of a network: of the ledger's words on
what rules were given and did, and of the steps that came out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tactix.contracts.graph import Node
from tactix.fuse.trace import Trace
from tactix.network.definition import NetworkDefinition
from tactix.pipeline.ledger import source_rows
from tactix.plan.schema import Plan

QUANTIZE, DEQUANTIZE = "tactix.QuantizeLinear", "tactix.DequantizeLinear"
PRODUCTS = ("tactix.Convolution", "tactix.ConvTranspose", "tactix.MatMul", "tactix.Gemm")
"""Layers that become products of bytes where they read dequantised tensors."""
MOVES = ("tactix.Reshape", "tactix.Transpose", "tactix.Slice", "tactix.Gather")
"""Layers that stand between a dequantised tensor and such a product."""
REFORMAT = "tactix.Reformat"
INTEGER = ("tactix.Integer", "tactix.ByteMatMul")
"""How the layers of products of bytes begin."""
TO_BYTES = "tactix.dequantize"
"""The rule that reads bytes with one scale."""
TO_FLOATS = frozenset({
    "tactix.float_convolution_of_bytes", "tactix.exact_convolution_of_bytes",
})  # fmt: skip
"""The rules that give a convolution of bytes to kernels of floats."""
IN_FLOATS = frozenset({"tactix.rounded_in_floats", "tactix.dequantize_in_floats"})
"""The rules that compute in floats what no kernel reads as bytes."""
NO_KERNEL = (
    "its windows are computed in floats: kernels of bytes take one or two axes of fixed sizes, and "
    "groups of one channel"
)
FEW_BITS = "tactix.FewBits"
"""How layers begin that read packed weights."""
INTEGERS, PACKED, FUSED, ALONE = "integers", "packed", "fused", "alone"
ERASED, CONSTANT = "erased", "constant"
WAYS = (ALONE, FUSED, CONSTANT, PACKED, INTEGERS, ERASED)
"""What a node may become; of one in several steps the first of these counts."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class MadeStep:
    """A step that came out. ``kind``: the layer that it is around; ``layers``: all of its own;
    ``origin``: nodes that it stands for; ``tactic``: what runs it, empty where nothing was built.
    """

    name: str
    kind: str
    layers: tuple[str, ...]
    origin: frozenset[str]
    tactic: str = ""

    def is_around(self, product: str) -> bool:
        """Whether it is the product of bytes that a product of the model became."""
        own = tuple(f"{product}/{layer.rsplit('.', 1)[-1]}" for layer in INTEGER)
        return any(part.startswith(own) for part in self.name.split(" + "))

    @classmethod
    def of_plan(cls, plan: Plan) -> Iterator[MadeStep]:
        """Those of a plan, without what is in its branches and loops."""
        for s in plan.steps:
            told: Row = {"kind": "", "layers": (), "origin": (), "tactic": "", **s.info}
            layers, origin = tuple(told["layers"]), frozenset(told["origin"])
            yield cls(s.name, told["kind"], layers, origin, told["tactic"])

    @classmethod
    def of_node(cls, n: Node) -> MadeStep:
        """What would be one, of a network that was fused and not built."""
        layers = tuple(b.layer.key for b in n.body.nodes)
        return cls(n.name, n.kind, layers, frozenset(n.origin))


@dataclass(frozen=True)
class StepOfNode:
    """One step that a node is in. ``how``: ``integers``, if the step reads its bytes; ``packed``,
    if it reads weights of few bits, and computes in floats; ``fused``, if it is computed beside
    others; ``alone``, if the step does nothing else.
    """

    step: str
    how: str
    tactic: str


@dataclass(frozen=True)
class Fate:
    """``node``, ``layer``: which, without namespace. ``tensor``, ``dtype``, ``shape``: what it
    makes if it quantises, what it reads if it dequantises. ``scales``: the shape of its scales.

    ``parts``: the steps that it is in; ``gone``: where there is none, ``constant`` for one that was
    computed while building, else ``erased``. ``rules``: that took it along, in order. ``why``: what
    keeps floats around it, and what to do, each once; empty where nothing does.
    """

    node: str
    layer: str
    tensor: str
    dtype: str
    shape: str
    scales: str
    parts: tuple[StepOfNode, ...]
    gone: str
    rules: tuple[str, ...]
    why: tuple[str, ...]

    @property
    def became(self) -> str:
        """One of ``WAYS``."""
        ways = {p.how for p in self.parts} or {self.gone}
        return next(way for way in WAYS if way in ways)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "became": self.became}


def of_plan(plan: Plan) -> list[Fate]:
    """All of a plan, those in branches and loops behind the others; none of a plan that does not
    tell its layers.
    """
    return [
        fate
        for p in plan.nested()
        for fate in Fates(
            p.ledger.get("source", {}), p.ledger.get("fusion", {}), MadeStep.of_plan(p)
        )
    ]


def of_network(source: NetworkDefinition, fused: NetworkDefinition, trace: Trace) -> list[Fate]:
    """Of a network that rules rewrote, before anything is chosen."""
    steps = [MadeStep.of_node(n) for n in fused.nodes]
    return list(Fates(source_rows(source), trace.to_json(), steps))


class Fates:
    """Over one network. ``source``: its nodes by name; ``fusion``: the trace of its rewriting."""

    def __init__(self, source: Mapping[str, Row], fusion: Row, steps: Iterable[MadeStep]) -> None:
        self._source, self._steps = source, {s.name: s for s in steps}
        self._nearly: dict[str, list[Row]] = {}
        for row in fusion.get("nearly", ()):
            self._nearly.setdefault(row["node"], []).append(row)
        self._readers: dict[str, list[str]] = {}
        for name, row in source.items():
            for v in row["reads"]:
                self._readers.setdefault(v["name"], []).append(name)
        self._makers = {v["name"]: n for n, row in source.items() for v in row["makes"]}
        products = [n for n, row in source.items() if _is(row, *PRODUCTS)]
        marked = [n for n, row in source.items() if _is(row, QUANTIZE, DEQUANTIZE)]
        self._marked = frozenset(marked)
        self._trails = _trails([*marked, *products], fusion)
        self._of = {name: self._steps_of(name) for name in self._trails}
        self._users = Counter(s.name for steps in self._of.values() for s in steps)
        self._found = tuple(self._fate(name) for name in marked)

    def __iter__(self) -> Iterator[Fate]:
        return iter(self._found)

    def _fate(self, name: str) -> Fate:
        row, trail = self._source[name], self._trails[name]
        kept = row["makes" if _is(row, QUANTIZE) else "reads"][0]
        parts = tuple(self._parts(name))
        gone = "" if parts else CONSTANT if row["reads"][0].get("constant") else ERASED
        return Fate(
            name,
            row["layer"].split("@")[0].rsplit(".", 1)[-1],
            kept["name"],
            kept["dtype"],
            kept["shape"],
            row["reads"][1]["shape"],
            parts,
            gone,
            tuple(trail.rules),
            tuple(dict.fromkeys(self._whys(name, parts, gone))),
        )

    def _steps_of(self, name: str) -> list[MadeStep]:
        """Steps that a node became a part of, by its own name or by those of what it became."""
        names = self._trails[name].names
        return [s for s in self._steps.values() if s.name in names or name in s.origin]

    def _parts(self, name: str) -> Iterator[StepOfNode]:
        constant = self._source[name]["reads"][0].get("constant")
        if constant and TO_FLOATS.intersection(self._trails[name].rules):
            return
        for step in self._of[name]:
            how = self._how(name, step)
            read = how in (INTEGERS, PACKED) and not _is({"layer": step.kind}, *MOVES[:3])
            if read or not (constant and step.kind.startswith((*INTEGER, *MOVES[:3]))):
                yield StepOfNode(step.name, how, step.tactic)

    def _how(self, name: str, step: MadeStep) -> str:
        if _is(self._source[name], QUANTIZE) and _is({"layer": step.kind}, *MOVES, REFORMAT):
            return INTEGERS  # it was taken along past moves, which bear its name
        if self._is_alone(name, step):
            return ALONE
        if not _is(self._source[name], DEQUANTIZE) or IN_FLOATS.intersection(
            self._trails[name].rules
        ):
            return FUSED
        if step.kind.startswith(INTEGER):
            return INTEGERS if any(map(step.is_around, self._products(name))) else FUSED
        if step.kind.startswith(FEW_BITS) and self._source[name]["reads"][0].get("constant"):
            return PACKED
        back = any("Dequantize" in key for key in step.layers)
        return FUSED if back or step.kind == "pointwise" else INTEGERS

    def _is_alone(self, name: str, step: MadeStep) -> bool:
        """Whether a step does nothing else; of the layers that one node of the model became, as
        QLinearConv does, all have its name.
        """
        return step.origin <= {name} and self._users[step.name] == 1

    # -- why --------------------------------------------------------------------------------------

    def _whys(self, name: str, parts: Sequence[StepOfNode], gone: str) -> Iterator[str]:
        if _is(self._source[name], QUANTIZE):
            alone = any(p.how == ALONE for p in parts)
            yield from self._why_alone(name) if alone else ()
            return
        if gone == ERASED or (parts and all(p.how in (INTEGERS, PACKED) for p in parts)):
            return
        own = [r["reason"] for r in self._nearly.get(name, ()) if r["rule"] == TO_BYTES]
        yield from own
        alone = any(p.how == ALONE for p in parts)
        for reader in self._read_by(name):
            if _is(self._source[reader], *PRODUCTS):
                yield from self._why_floats(reader, bool(own))
            elif alone and not _is(self._source[reader], QUANTIZE):
                yield f"{self._told(reader)} is computed in floats"

    def _why_alone(self, name: str) -> Iterator[str]:
        """Why what makes a tensor does not quantise it on the way."""
        tensor, scale = (v["name"] for v in self._source[name]["reads"][:2])
        if scale in self._makers:
            return  # only running tells its bytes
        yield from (row["reason"] for row in self._nearly.get(name, ()))
        maker = self._makers.get(tensor)
        if maker is None:
            yield f"{tensor!r} comes from the caller: give the model bytes to save the step"
        elif len(self._readers[tensor]) > 1:
            others = ", ".join(repr(n) for n in self._readers[tensor] if n != name)
            yield f"{tensor!r} is read as floats, too, by {others}"
        else:
            yield f"{self._told(maker)} does not store bytes"

    def _why_floats(self, reader: str, is_known: bool) -> Iterator[str]:
        """Why a product reads floats; ``is_known``: whether what it reads has a reason already."""
        row, trail = self._source[reader], self._trails[reader]
        if TO_FLOATS.intersection(trail.rules):
            yield f"{self._told(reader)}: {NO_KERNEL}"
        elif not any(s.kind.startswith(INTEGER) for s in self._of[reader]):
            found = [
                m["reason"]
                for m in self._nearly.get(reader, ())
                if m["rule"].startswith("tactix.integer_")
            ]
            missing = [] if is_known else self._missing(row)
            yield from (f"{self._told(reader)}: {why}" for why in found or missing)

    def _missing(self, product: Row) -> list[str]:
        """What a product of bytes would read that this one does not."""
        x, w = product["reads"][:2]
        if self._is_constant(x["name"]):
            return ["its constant is on the left: transpose it to the right"]
        source = self._dequantizer(x["name"])
        if source is None:
            return ["its activations are not quantised: put QuantizeLinear in front of it"]
        if source["reads"][0]["dtype"].startswith("f8"):
            return ["products of 8-bit floats have kernels on GPUs alone: elsewhere floats do it"]
        if not self._is_constant(w["name"]) and not w.get("constant"):
            return ["its other factor is not quantised: put QuantizeLinear in front of it"]
        return ["its weights are floats: put int8 ones behind a DequantizeLinear"]

    def _dequantizer(self, tensor: str) -> Row | None:
        """The DequantizeLinear that makes a tensor, perhaps through moves."""
        maker = self._makers.get(tensor)
        while maker is not None and _is(self._source[maker], *MOVES):
            maker = self._makers.get(self._source[maker]["reads"][0]["name"])
        if maker is None or not _is(self._source[maker], DEQUANTIZE):
            return None
        return self._source[maker]

    def _is_constant(self, tensor: str) -> bool:
        """Whether a DequantizeLinear makes it of constants."""
        maker = self._makers.get(tensor)
        return (
            maker is not None
            and _is(self._source[maker], DEQUANTIZE)
            and all(v.get("constant") for v in self._source[maker]["reads"])
        )

    def _read_by(self, name: str) -> list[str]:
        """What reads a tensor, those between that only move it left out."""
        direct = [r for v in self._source[name]["makes"] for r in self._readers.get(v["name"], ())]
        found: list[str] = []
        for r in direct:
            found += self._read_by(r) if _is(self._source[r], *MOVES) else [r]
        return list(dict.fromkeys(found))

    def _products(self, name: str) -> list[str]:
        return [r for r in self._read_by(name) if _is(self._source[r], *PRODUCTS)]

    def _told(self, name: str) -> str:
        layer = self._source[name]["layer"].split("@")[0].rsplit(".", 1)[-1]
        return f"{layer} {name!r}"


def _is(row: Row, *layers: str) -> bool:
    return row["layer"].split("@")[0] in layers


@dataclass
class _Trail:
    """``names``: what nodes that a node became a part of are called now; ``rules``: that did it."""

    names: set[str]
    rules: list[str]


def _trails(nodes: Iterable[str], fusion: Row) -> dict[str, _Trail]:
    """What each node became in a rewriting, by what left and what came in its place."""
    trails = {name: _Trail({name}, []) for name in nodes}
    carried: dict[str, set[str]] = {name: {name} for name in trails}
    for row in fusion.get("fired", ()):
        gone = [n for n in row["removed"] if n in carried]
        moved = set[str]().union(*(carried.pop(n) for n in gone))
        for name in moved:
            trails[name].names -= {*gone}
            trails[name].names |= {*row["added"]}
            trails[name].rules.append(row["rule"])
        for added in row["added"] if moved else ():
            carried[added] = carried.get(added, set()) | moved
    for row in fusion.get("split", ()):
        for name in carried.get(row["node"], ()):
            trails[name].names |= {*row["parts"]}
    return trails
