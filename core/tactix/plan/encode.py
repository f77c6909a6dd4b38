"""Plans to JSON and blobs: the other way than ``decode``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tactix.base import dims
from tactix.base.dims import Shape
from tactix.base.errors import PlanFormatError
from tactix.base.tensor import Element
from tactix.contracts import attrs as attribute
from tactix.contracts.artifact import Binary, KernelArtifact, encode_launch
from tactix.contracts.launcher import Operand, Step
from tactix.plan.decode import REQUIREMENT, BlobTable
from tactix.plan.parts import PART
from tactix.plan.schema import Buffer, Plan, TensorIO


def encode_plan(plan: Plan) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header (without the table of blobs) and all blobs, in the order in which a run first
    needs them.
    """
    blob_table = BlobTable()
    header = _encode_header(plan, blob_table)
    weights = {b.blob: plan.blobs[b.blob] for b in plan.buffers if b.blob in plan.blobs}
    rest = {**plan.blobs, **blob_table.blobs}
    return header, {**weights, **{k: rest[k] for k in sorted(rest) if k not in weights}}


def _encode_header(plan: Plan, blob_table: BlobTable) -> dict[str, Any]:
    return {
        **{k: plain(getattr(plan, k)) for k in ("name", "ledger", "device", "meta")},
        **{k: [_encode_io(io) for io in getattr(plan, k)] for k in ("inputs", "outputs")},
        "profiles": [
            {"name": p.name, "dims": {k: list(v) for k, v in p.dims.items()}} for p in plan.profiles
        ],
        "buffers": [_encode_buffer(b) for b in plan.buffers],
        "steps": [_encode_step(s, blob_table) for s in plan.steps],
        "requirements": [{k: getattr(r, k) for k in REQUIREMENT} for r in plan.requirements],
        "given": sorted(plan.given),
    }


def plain(value: Any) -> Any:
    """A JSON value of notes for people: tuples become lists, and a number that is not finite
    becomes null.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    raise PlanFormatError(f"a plan cannot hold a {type(value).__name__}", why=repr(value)[:80])


def _encode_shape(shape: Shape) -> list[Any]:
    return [dims.to_json(d) for d in shape]


def _encode_io(io: TensorIO) -> dict[str, Any]:
    own = {
        "name": io.name,
        "buffer": io.buffer,
        "dtype": io.dtype.value,
        "shape": _encode_shape(io.shape),
    }
    return own | {"element": _encode_element(io.element)}


def _encode_element(e: Element | None) -> Any:
    return (
        None
        if e is None
        else [*map(attribute.encode, (e.dtype, e.shape, e.none)), _encode_element(e.of)]
    )


def _encode_buffer(b: Buffer) -> dict[str, Any]:
    own = {k: getattr(b, k) for k in ("kind", "name", "first", "last", "blob")}
    own |= {"dtype": b.dtype.value, "shape": _encode_shape(b.shape), "format": b.format.name}
    own |= {"nbytes": dims.to_json(b.nbytes)}
    return own | ({"inside": b.inside, "offset": dims.to_json(b.offset)} if b.kind == PART else {})


def _encode_step(s: Step, blob_table: BlobTable) -> dict[str, Any]:
    inputs, outputs = ([_encode_operand(o) for o in side] for side in (s.inputs, s.outputs))
    own = {
        "name": s.name,
        "inputs": inputs,
        "outputs": outputs,
        "workspace": s.workspace,
        "info": plain(s.info),
    }
    own |= {"artifact": encode_artifact(s.artifact, blob_table), "constants": dict(s.constants)}
    return own | {"plans": [_encode_header(p, blob_table) for p in s.plans]}


def _encode_operand(o: Operand) -> list[Any]:
    return [o.buffer, o.spec.dtype.value, _encode_shape(o.spec.shape), o.format.name]


def encode_artifact(a: KernelArtifact, blob_table: BlobTable) -> dict[str, Any]:
    """JSON of an artifact; its code and source text go to the table. Raises PlanFormatError if not
    compiled.
    """
    return {
        "launcher": a.launcher,
        "launches": [encode_launch(x) for x in a.launches],
        "code": _encode_code(a, blob_table),
        "workspace": dims.to_json(a.workspace),
        "requires": list(a.requires),
        "params": a.params,
        "constants": [[name, p.index, attribute.encode(p.steps)] for name, p in a.constants],
        "host_code": a.host_code,
    }


def _encode_code(a: KernelArtifact, blob_table: BlobTable) -> dict[str, Any] | None:
    if a.code is None:
        return None
    if not isinstance(a.code, Binary):
        raise PlanFormatError("a step's source is not compiled", who=a.launcher)
    source = blob_table.add(a.code.source) if a.code.source else ""
    return {"blob": blob_table.add(a.code.blob), "symbol": a.code.symbol, "source": source}
