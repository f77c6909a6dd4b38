"""What the page tells of a plan's steps. Notes in a plan may hold any JSON: what is no text, number
or list of these is left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.contracts.artifact import Binary
from tactix.contracts.launcher import Operand, Step
from tactix.plan.precision import precision
from tactix.plan.schema import Plan
from tactix.select.compile import COMPILED

Row = dict[str, Any]

LONGEST = 60
"""Characters of an attribute that are shown."""
_COMMENT = re.compile(r"/\*\s*(.*?)\s*\*/|//\s*([^\n]*)", re.DOTALL)


def step_row(plan: Plan, step: Step[Plan], makers: Sequence[int], sizes: Mapping[str, int]) -> Row:
    """JSON. ``makers``: the node that each input comes from; ``sizes``: values of symbols."""
    info = step.info
    row: Row = {
        "name": step.name,
        "kind": short(text(info.get("kind"))),
        "layers": [short(x) for x in texts(info.get("layers"))],
        "origin": texts(info.get("origin")),
        "makes": texts(info.get("makes")),
        "consumes": texts(info.get("consumes")),
        "tactic": text(info.get("tactic")) or step.artifact.launcher,
        "variant": text(info.get("variant")),
        "status": text(info.get("status")),
        "source": text(info.get("source")),
        "seconds": number(info.get("seconds")),
        "precision": precision(step),
        "launcher": step.artifact.launcher,
        "host_code": step.artifact.host_code,
        "inputs": [
            {**_operand(plan, o, sizes), "from": m}
            for o, m in zip(step.inputs, makers, strict=True)
        ],
        "outputs": [_operand(plan, o, sizes) for o in step.outputs],
        "constants": [_constant(plan, name, i, sizes) for name, i in step.constants.items()],
        "workspace": _bytes(plan.buffers[step.workspace].nbytes, sizes)
        if step.workspace >= 0
        else 0,
        "inner": list(_inner(info.get("reference"))),
        "kernel": _kernel(plan, step),
    }
    return {k: v for k, v in row.items() if v not in ("", [], None, False, 0)}


def short(key: str) -> str:
    """tactix's own layers without name space; all without a version of 1."""
    return key.removeprefix("tactix.").removesuffix("@1")


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


def texts(value: object) -> list[str]:
    return [x for x in value if isinstance(x, str)] if isinstance(value, (list, tuple)) else []


def number(value: object) -> float | None:
    """None for what is none, or not finite."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return float(value)


def shape(dimensions: Sequence[Dim]) -> list[int | str]:
    return [d if isinstance(d, int) else str(d) for d in dimensions]


def _bytes(size: Dim, sizes: Mapping[str, int]) -> int | None:
    """None where only running tells."""
    return dims.evaluate(size, sizes) if dims.symbols(size) <= sizes.keys() else None


def _operand(plan: Plan, o: Operand, sizes: Mapping[str, int]) -> Row:
    on_host = o.spec.dtype.on_host
    return {
        "name": plan.buffers[o.buffer].name if o.buffer >= 0 else "",
        "dtype": o.spec.dtype.value,
        "shape": shape(o.spec.shape),
        "format": o.format.name,
        "bytes": None if on_host else _bytes(o.spec.nbytes(o.format), sizes),
    }


def _constant(plan: Plan, name: str, buffer: int, sizes: Mapping[str, int]) -> Row:
    b = plan.buffers[buffer]
    return {
        "name": b.name or name,
        "dtype": b.dtype.value,
        "shape": shape(b.shape),
        "format": b.format.name,
        "bytes": _bytes(b.nbytes, sizes),
    }


def _inner(meaning: object) -> Iterator[Row]:
    """The nodes of a fused group; nothing of other steps."""
    body = meaning.get("body") if isinstance(meaning, Mapping) else None
    nodes = body.get("nodes") if isinstance(body, Mapping) else None
    for n in nodes if isinstance(nodes, list) else ():
        if isinstance(n, Mapping):
            yield {
                "op": short(text(n.get("layer"))),
                "name": text(n.get("name")),
                "attrs": _attributes(n.get("attrs")),
            }


def _attributes(attrs: object) -> str:
    """``axis=1, pads=[0, 0]``: those that say something plain."""
    told = attrs.items() if isinstance(attrs, Mapping) else ()
    plain = [(k, v) for k, v in told if v not in (None, "", [], False) and not _nested(v)]
    return ", ".join(f"{k}={str(v)[:LONGEST]}" for k, v in plain)


def _nested(value: object) -> bool:
    if isinstance(value, list):
        return any(isinstance(x, (list, Mapping)) for x in value)
    return isinstance(value, Mapping)


def _kernel(plan: Plan, step: Step[Plan]) -> Row | None:
    """What machine code runs, and the first comment of the text that it was compiled from."""
    code = step.artifact.code
    if not isinstance(code, Binary):
        return None
    noted = plan.ledger.get(COMPILED, {})
    compiled = noted.get(code.symbol, {}) if isinstance(noted, Mapping) else {}
    return {
        "entry": code.symbol,
        "language": text(compiled.get("language")),
        "compiler": text(compiled.get("compiler")),
        "title": _title(code.source),
        "lines": code.source.count("\n"),
        "bytes": len(code.blob),
    }


def _title(source: str) -> str:
    """The first comment of a text."""
    found = _COMMENT.search(source)
    return " ".join((found[1] or found[2] or "").split())[:200] if found else ""
