"""Plans from JSON and blobs. Machine code and source texts are blobs that are named by their
sha256.
"""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from tactix.base.dims import Dim
from tactix.base.errors import PlanFormatError
from tactix.base.tensor import Element, TensorSpec
from tactix.contracts import attrs as attribute
from tactix.contracts.artifact import Arg, Binary, KernelArtifact, Launch, Packed
from tactix.contracts.launcher import Operand, Step
from tactix.plan.parts import PART
from tactix.plan.reader import LIMIT, Reader
from tactix.plan.schema import DEEPEST, Buffer, Plan, Profile, Requirement, TensorIO, validate

T = TypeVar("T")

PLAN = tuple(f.name for f in fields(Plan) if f.name not in ("blobs", "seal"))
IO = ("name", "buffer", "dtype", "shape", "element")
BUFFER = ("kind", "name", "dtype", "shape", "format", "nbytes", "first", "last", "blob")
PLACE = ("inside", "offset")
STEP = ("name", "artifact", "inputs", "outputs", "constants", "workspace", "info", "plans")
ARTIFACT = (
    "launcher",
    "launches",
    "code",
    "workspace",
    "constants",
    "requires",
    "params",
    "host_code",
)
CODE = ("blob", "symbol", "source")
LAUNCH: dict[str, Callable[[Reader], Any]] = {
    **dict.fromkeys(("grid", "block", "cluster"), Reader.shape),
    "shared_bytes": Reader.dim,
    "symbol": Reader.text,
}
REQUIREMENT = ("key", "dist", "version", "digest", "embedded", "host_code")


REPRODUCIBLE = 2
"""The version of marshal's format in which equal values give equal bytes, whoever else holds them.
"""


class BlobTable:
    """Blobs named by their sha256, while a header is written or read; equal content is handled
    once.
    """

    def __init__(self, blobs: Mapping[str, Any] | None = None) -> None:
        self.blobs: dict[str, Any] = dict(blobs or {})
        self._names: dict[int, str] = {}
        self._bytes: dict[str, bytes] = {}
        self._texts: dict[str, str] = {}
        self._artifacts: dict[bytes, KernelArtifact] = {}

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

    def artifact(self, r: Reader) -> KernelArtifact:
        """As ``decode_artifact``: one for all steps that run the same."""
        key = marshal.dumps(r.value, REPRODUCIBLE)
        if key not in self._artifacts:
            self._artifacts[key] = decode_artifact(r, self)
        return self._artifacts[key]

    def text(self, r: Reader) -> str:
        """Source text; empty where none is named."""
        name = r.text()
        if name and name not in self._texts:
            self._texts[name] = Reader(self.code(r), parent=r).parse(
                lambda b: b.decode(), "UTF-8 text"
            )
        return self._texts.get(name, "")


def decode_plan(header: Any, blobs: Mapping[str, Any]) -> Plan:
    """A validated plan. ``blobs``: content by name. Raises PlanFormatError."""
    return validate(_plan(Reader(header), BlobTable(blobs), blobs))


def _plan(r: Reader, blob_table: BlobTable, blobs: Mapping[str, Any], depth: int = 0) -> Plan:
    h = r.only(*PLAN)
    if depth > DEEPEST:
        raise PlanFormatError(f"plans lie more than {DEEPEST} deep in each other", who=r.path)

    def each(key: str, read: Callable[[Reader], T]) -> tuple[T, ...]:
        return tuple(map(read, h.at(key).items()))

    steps = tuple(_step(r, blob_table, blobs, depth) for r in h.at("steps").items())
    return Plan(
        h.at("name").text(),
        each("inputs", _io),
        each("outputs", _io),
        each("profiles", _profile),
        each("buffers", _buffer),
        steps,
        blobs,
        h.at("ledger").mapping(),
        each("requirements", _requirement),
        h.at("device").mapping(),
        h.at("meta").mapping(),
        frozenset(each("given", Reader.text)),
    )


def _io(r: Reader) -> TensorIO:
    r.only(*IO)
    own = (
        r.at("name").text(),
        r.at("buffer").integer(),
        r.at("dtype").dtype(),
        r.at("shape").shape(),
    )
    return TensorIO(*own, _element(r.at("element")))


def _element(r: Reader) -> Element | None:
    if r.value is None:
        return None
    dtype, shape, none, of = r.row(4)
    sizes = None if shape.value is None else tuple(map(_optional_dim, shape.items()))
    return Element(dtype.at("dtype").dtype(), sizes, _element(of), none.flag())


def _optional_dim(r: Reader) -> Dim | None:
    return None if r.value is None else (r.at("dim") if type(r.value) is dict else r).dim()


def _profile(r: Reader) -> Profile:
    r.only("name", "dims")
    return Profile(r.at("name").text(), {k: _range(v) for k, v in r.at("dims").fields().items()})


def _range(r: Reader) -> tuple[int, int, int | None]:
    low, opt, high = r.row(3)
    return low.integer(), opt.integer(), None if high.value is None else high.integer()


def _buffer(r: Reader) -> Buffer:
    kind = r.at("kind").text()
    part = kind == PART
    r.only(*BUFFER, *(PLACE if part else ()))
    return Buffer(
        kind,
        r.at("name").text(),
        r.at("dtype").dtype(),
        r.at("shape").shape(),
        r.at("format").format(),
        r.at("nbytes").dim(),
        r.at("first").integer(-1),
        r.at("last").integer(-1),
        r.at("blob").text(),
        r.at("inside").integer() if part else -1,
        r.at("offset").dim() if part else 0,
    )


def _step(r: Reader, blob_table: BlobTable, blobs: Mapping[str, Any], depth: int) -> Step:
    r.only(*STEP)
    inputs, outputs = (tuple(map(_operand, r.at(side).items())) for side in ("inputs", "outputs"))
    constants = {k: v.integer() for k, v in r.at("constants").fields().items()}
    plans = tuple(_plan(p, blob_table, blobs, depth + 1) for p in r.at("plans").items())
    own = (inputs, outputs, constants, r.at("workspace").integer(-1), r.at("info").mapping(), plans)
    return Step(r.at("name").text(), blob_table.artifact(r.at("artifact")), *own)


def _operand(r: Reader) -> Operand:
    buffer, dtype, shape, fmt = r.row(4)
    return Operand(buffer.integer(-1), TensorSpec(dtype.dtype(), shape.shape()), fmt.format())


def decode_artifact(r: Reader, blob_table: BlobTable) -> KernelArtifact:
    """Inverse of ``encode_artifact``. Raises PlanFormatError."""
    r.only(*ARTIFACT)
    return KernelArtifact(
        launcher=r.at("launcher").text(),
        launches=tuple(_launch(x) for x in r.at("launches").items()),
        code=None if r.at("code").value is None else _code(r.at("code"), blob_table),
        workspace=r.at("workspace").dim(),
        constants=tuple(_constant(c) for c in r.at("constants").items()),
        params=r.at("params").mapping(),
        requires=tuple(q.text() for q in r.at("requires").items()),
        host_code=r.at("host_code").flag(),
    )


def _launch(r: Reader) -> Launch:
    given = r.only("args", *(LAUNCH.keys() & r.fields())).fields()
    args = tuple(map(_argument, given.pop("args").items()))
    return Launch(args, **{name: LAUNCH[name](value) for name, value in given.items()})


def _argument(r: Reader) -> Arg:
    kind, index, name, value = r.row(4)
    return Arg(kind.text(), index.integer(-LIMIT), name.text(), value.dim())


def _code(r: Reader, blob_table: BlobTable) -> Binary:
    r.only(*CODE)
    return Binary(
        blob_table.code(r.at("blob")), r.at("symbol").text(), blob_table.text(r.at("source"))
    )


def _constant(r: Reader) -> tuple[str, Packed]:
    name, index, steps = r.row(3)
    rows = [step.row(2) for step in steps.items()]
    found = tuple((step.text(), what.parse(attribute.decode, "what to do")) for step, what in rows)
    return name.text(), Packed(index.integer(-1), found)


def _requirement(r: Reader) -> Requirement:
    r.only(*REQUIREMENT)
    key, dist, version, digest = (r.at(k).text() for k in ("key", "dist", "version", "digest"))
    return Requirement(
        key, dist, version, digest, r.at("embedded").flag(), r.at("host_code").flag()
    )
