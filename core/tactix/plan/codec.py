"""A plan's header as JSON, and back. Machine code and source texts become blobs that are named by their sha256."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tactix.contracts import attrs as attribute
from tactix.contracts.artifact import Binary, KernelArtifact, Launch, Packed, decode_launch, encode_launch
from tactix.contracts.launcher import Operand, Step
from tactix.plan.reader import LIMIT, Reader
from tactix.plan.schema import DEEPEST, Buffer, Plan, Profile, Requirement, TensorIO, validate
from tactix.words import dims
from tactix.words.dims import Shape
from tactix.words.dtypes import DType
from tactix.words.errors import PlanFormatError
from tactix.words.tensor import Element, TensorSpec

PLAN = tuple(f.name for f in fields(Plan) if f.name != "blobs")
IO = ("name", "buffer", "dtype", "shape", "element")
BUFFER = ("kind", "name", "dtype", "shape", "format", "nbytes", "first", "last", "blob")
STEP = ("name", "artifact", "inputs", "outputs", "constants", "workspace", "info", "plans")
ARTIFACT = ("launcher", "launches", "code", "workspace", "constants", "requires", "params", "host_code")
CODE = ("blob", "symbol", "source")
REQUIREMENT = ("key", "dist", "version", "digest", "embedded", "host_code")


class Shelf:
    """Blobs named by their sha256, while a header is written or read; equal content is handled once."""

    def __init__(self, blobs: Mapping[str, Any] | None = None) -> None:
        self.blobs: dict[str, Any] = dict(blobs or {})
        self._names: dict[int, str] = {}
        self._bytes: dict[str, bytes] = {}
        self._texts: dict[str, str] = {}

    def add(self, content: bytes | str) -> str:
        """Keep bytes or text; returns the name."""
        if id(content) not in self._names:
            raw = content.encode() if isinstance(content, str) else content
            name = self._names[id(content)] = hashlib.sha256(raw).hexdigest()
            self.blobs.setdefault(name, raw)
        return self._names[id(content)]

    def code(self, r: Reader) -> bytes:
        """The content that the text names, checked against that name."""
        name = r.text()
        if name not in self._bytes:
            if name not in self.blobs:
                raise PlanFormatError(f"no blob {name[:70]!r}", who=r.path)
            content = bytes(self.blobs[name])
            if hashlib.sha256(content).hexdigest() != name:
                raise PlanFormatError("code does not fit its sha256", who=r.path)
            self._bytes[name] = content
        return self._bytes[name]

    def text(self, r: Reader) -> str:
        """Source text; empty where none is named."""
        name = r.text()
        if name and name not in self._texts:
            self._texts[name] = Reader(self.code(r), parent=r).parse(lambda b: b.decode(), "UTF-8 text")
        return self._texts.get(name, "")


# -- to JSON -----------------------------------------------------------------------------------------------------------


def encode_plan(plan: Plan) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header (without the table of blobs) and all blobs, in the order in which a run first needs them."""
    shelf = Shelf()
    header = _encode_header(plan, shelf)
    weights, rest = {b.blob: plan.blobs[b.blob] for b in plan.buffers if b.blob}, {**plan.blobs, **shelf.blobs}
    return header, {**weights, **{k: rest[k] for k in sorted(rest) if k not in weights}}


def _encode_header(plan: Plan, shelf: Shelf) -> dict[str, Any]:
    return {
        "name": plan.name,
        "inputs": [_encode_io(io) for io in plan.inputs],
        "outputs": [_encode_io(io) for io in plan.outputs],
        "profiles": [{"name": p.name, "dims": {k: list(v) for k, v in p.dims.items()}} for p in plan.profiles],
        "buffers": [_encode_buffer(b) for b in plan.buffers],
        "steps": [_encode_step(s, shelf) for s in plan.steps],
        "ledger": plain(plan.ledger),
        "requirements": [{k: getattr(r, k) for k in REQUIREMENT} for r in plan.requirements],
        "device": plain(plan.device),
        "meta": plain(plan.meta),
        "given": sorted(plan.given),
    }


def plain(value: Any) -> Any:
    """A JSON value of notes for people: tuples become lists, and a number that is not finite becomes null."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise PlanFormatError(f"a plan cannot hold a {type(value).__name__}", why=repr(value)[:80])


def _encode_shape(shape: Shape) -> list[Any]:
    return [dims.to_json(d) for d in shape]


def _encode_io(io: TensorIO) -> dict[str, Any]:
    own = {"name": io.name, "buffer": io.buffer, "dtype": io.dtype.value, "shape": _encode_shape(io.shape)}
    return own | {"element": _encode_element(io.element)}


def _encode_element(e: Element | None) -> Any:
    return None if e is None else [*map(attribute.encode, (e.dtype, e.shape, e.none)), _encode_element(e.of)]


def _encode_buffer(b: Buffer) -> dict[str, Any]:
    own = {k: getattr(b, k) for k in ("kind", "name", "first", "last", "blob")}
    return own | {
        "dtype": b.dtype.value,
        "shape": _encode_shape(b.shape),
        "format": b.format.name,
        "nbytes": dims.to_json(b.nbytes),
    }


def _encode_step(s: Step, shelf: Shelf) -> dict[str, Any]:
    return {
        "name": s.name,
        "artifact": encode_artifact(s.artifact, shelf),
        "inputs": [_encode_operand(o) for o in s.inputs],
        "outputs": [_encode_operand(o) for o in s.outputs],
        "constants": dict(s.constants),
        "workspace": s.workspace,
        "info": plain(s.info),
        "plans": [_encode_header(p, shelf) for p in s.plans],
    }


def _encode_operand(o: Operand) -> list[Any]:
    return [o.buffer, o.spec.dtype.value, _encode_shape(o.spec.shape), o.format.name]


def encode_artifact(a: KernelArtifact, shelf: Shelf) -> dict[str, Any]:
    """JSON of an artifact; its code and source text go to the shelf. Raises PlanFormatError if not compiled."""
    return {
        "launcher": a.launcher,
        "launches": [encode_launch(x) for x in a.launches],
        "code": _encode_code(a, shelf),
        "workspace": dims.to_json(a.workspace),
        "constants": [[name, p.index, attribute.encode(p.steps)] for name, p in a.constants],
        "requires": list(a.requires),
        "params": a.params,
        "host_code": a.host_code,
    }


def _encode_code(a: KernelArtifact, shelf: Shelf) -> dict[str, Any] | None:
    if a.code is None:
        return None
    if not isinstance(a.code, Binary):
        raise PlanFormatError("a step's source is not compiled", who=a.launcher)
    source = shelf.add(a.code.source) if a.code.source else ""
    return {"blob": shelf.add(a.code.blob), "symbol": a.code.symbol, "source": source}


# -- from JSON ---------------------------------------------------------------------------------------------------------


def decode_plan(header: Any, blobs: Mapping[str, Any]) -> Plan:
    """A validated plan. ``blobs``: content by name. Raises PlanFormatError."""
    return validate(_plan(Reader(header), Shelf(blobs), blobs))


def _plan(r: Reader, shelf: Shelf, blobs: Mapping[str, Any], depth: int = 0) -> Plan:
    h = r.only(*PLAN)
    if depth > DEEPEST:
        raise PlanFormatError(f"plans lie more than {DEEPEST} deep in each other", who=r.path)
    return Plan(
        name=h.at("name").text(),
        inputs=tuple(_io(r) for r in h.at("inputs").items()),
        outputs=tuple(_io(r) for r in h.at("outputs").items()),
        profiles=tuple(_profile(r) for r in h.at("profiles").items()),
        buffers=tuple(_buffer(r) for r in h.at("buffers").items()),
        steps=tuple(_step(r, shelf, blobs, depth) for r in h.at("steps").items()),
        blobs=blobs,
        ledger=h.at("ledger").mapping(),
        requirements=tuple(_requirement(r) for r in h.at("requirements").items()),
        device=h.at("device").mapping(),
        meta=h.at("meta").mapping(),
        given=frozenset(s.text() for s in h.at("given").items()),
    )


def _io(r: Reader) -> TensorIO:
    r.only(*IO)
    own = (r.at("name").text(), r.at("buffer").integer(), r.at("dtype").dtype(), r.at("shape").shape())
    return TensorIO(*own, r.at("element").parse(_element, "an element"))


def _element(j: Any) -> Element | None:
    if j is None:
        return None
    dtype, shape, none = map(attribute.decode, j[:3])
    return Element(DType.of(dtype), shape, _element(j[3]), none)


def _profile(r: Reader) -> Profile:
    r.only("name", "dims")
    return Profile(r.at("name").text(), {k: _range(v) for k, v in r.at("dims").fields().items()})


def _range(r: Reader) -> tuple[int, int, int | None]:
    low, opt, high = r.row(3)
    return low.integer(), opt.integer(), None if high.value is None else high.integer()


def _buffer(r: Reader) -> Buffer:
    r.only(*BUFFER)
    return Buffer(
        kind=r.at("kind").text(),
        name=r.at("name").text(),
        dtype=r.at("dtype").dtype(),
        shape=r.at("shape").shape(),
        format=r.at("format").format(),
        nbytes=r.at("nbytes").dim(),
        first=r.at("first").integer(-1),
        last=r.at("last").integer(-1),
        blob=r.at("blob").text(),
    )


def _step(r: Reader, shelf: Shelf, blobs: Mapping[str, Any], depth: int) -> Step:
    r.only(*STEP)
    return Step(
        name=r.at("name").text(),
        artifact=decode_artifact(r.at("artifact"), shelf),
        inputs=tuple(_operand(o) for o in r.at("inputs").items()),
        outputs=tuple(_operand(o) for o in r.at("outputs").items()),
        constants={k: v.integer() for k, v in r.at("constants").fields().items()},
        workspace=r.at("workspace").integer(-1),
        info=r.at("info").mapping(),
        plans=tuple(_plan(p, shelf, blobs, depth + 1) for p in r.at("plans").items()),
    )


def _operand(r: Reader) -> Operand:
    buffer, dtype, shape, fmt = r.row(4)
    return Operand(buffer.integer(-1), TensorSpec(dtype.dtype(), shape.shape()), fmt.format())


def decode_artifact(r: Reader, shelf: Shelf) -> KernelArtifact:
    """Inverse of ``encode_artifact``. Raises PlanFormatError."""
    r.only(*ARTIFACT)
    return KernelArtifact(
        launcher=r.at("launcher").text(),
        launches=tuple(_launch(x) for x in r.at("launches").items()),
        code=None if r.at("code").value is None else _code(r.at("code"), shelf),
        workspace=r.at("workspace").dim(),
        constants=tuple(_constant(c) for c in r.at("constants").items()),
        requires=tuple(q.text() for q in r.at("requires").items()),
        params=r.at("params").mapping(),
        host_code=r.at("host_code").flag(),
    )


def _launch(r: Reader) -> Launch:
    for arg in r.at("args").items():
        kind, index, name, value = arg.row(4)
        kind.text(), index.integer(-LIMIT), name.text(), value.dim()
    fields = r.fields()
    for optional in ("grid", "block", "cluster"):
        if optional in fields:
            fields[optional].shape()
    if "shared_bytes" in fields:
        fields["shared_bytes"].dim()
    return r.parse(decode_launch, "a launch")


def _code(r: Reader, shelf: Shelf) -> Binary:
    r.only(*CODE)
    return Binary(shelf.code(r.at("blob")), r.at("symbol").text(), shelf.text(r.at("source")))


def _constant(r: Reader) -> tuple[str, Packed]:
    name, index, steps = r.row(3)
    return name.text(), Packed(index.integer(-1), steps.parse(_packing, "packing steps"))


def _packing(j: Any) -> tuple[tuple[str, Any], ...]:
    steps = attribute.decode(j)
    return tuple((str(name), what) for name, what in steps)


def _requirement(r: Reader) -> Requirement:
    r.only(*REQUIREMENT)
    key, dist, version, digest = (r.at(k).text() for k in ("key", "dist", "version", "digest"))
    return Requirement(key, dist, version, digest, r.at("embedded").flag(), r.at("host_code").flag())
