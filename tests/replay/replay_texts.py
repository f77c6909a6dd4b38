"""What tactics and builds make, as text: the same text is the same kernel, and texts can be
compared line by line.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from tactix.base import dims
from tactix.contracts import region
from tactix.contracts.artifact import KernelArtifact, Source, encode_launch
from tactix.contracts.graph import Node
from tactix.network.definition import NetworkDefinition
from tactix.plan.encode import encode_plan
from tactix.plan.schema import Plan
from tactix.select.enumerate import Candidate

LARGEST = 1 << 20
"""Bytes of constants whose content is part of a text; that of larger ones is in the plans, if it
was chosen.
"""

_MODULE = re.compile(r"\btactix_\w+(\.\w+)+(?!@)\b")
_KEY = re.compile(r"\btactix(_\w+)?\.(\w+\.)*(?=[A-Za-z_]\w*@\d+)")


def neutral(text: str) -> str:
    """A text without what moving code may change: the one place where that is said.

    Paths of modules say where Python lies, not what it does. Of a key (``tactix.cpu.elf@1``) all
    but the last name is whose it is. Keys are counted by themselves (``Record.identifiers``), so
    that a change is seen there.
    """
    return _MODULE.sub("<module>", _KEY.sub("", text)) if "tactix" in text else text


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def of_source(source: Source) -> str:
    """A source text, with its preludes by their digests."""
    shared = [f"prelude {digest(p)}" for p in source.preludes]
    head = f"language {source.language}, flags {list(source.flags)}"
    return neutral("\n".join([head, *shared, source.text]))


def preludes(artifact: KernelArtifact) -> Sequence[str]:
    """Texts that many kernels have in common: an artifact's text names them by their digests."""
    return artifact.code.preludes if isinstance(artifact.code, Source) else ()


def of_candidate(c: Candidate, node: Node) -> str:
    """A bid: its estimate, how it is launched, what its constants are, its source text."""
    a = c.artifact
    head = {
        "cost": c.estimate, "launcher": a.launcher, "workspace": dims.to_json(a.workspace), "alias": a.alias,
        "host_code": a.host_code, "requires": list(a.requires), "numerics": c.tactic.numerics, "params": a.params,
    }  # fmt: skip
    lines = [f"{k}: {_json(v)}" for k, v in head.items()]
    lines += [f"launch: {_json(encode_launch(x))}" for x in a.launches]
    lines += [f"constant {name}: {_constant(p, node)}" for name, p in a.constants]
    return neutral("\n".join([*lines, *_code(a)]))


def of_network(net: NetworkDefinition) -> str:
    """Inputs, nodes with attributes and bodies, small constants, outputs."""
    lines = [f"input {v.name}: {v.spec}" for v in net.inputs]
    lines += [f"constant {v.name}: {v.spec} {_content(v.const)}" for v in net.constants]
    lines += [_node(n) for n in net.nodes]
    lines += [f"output {k}: {v.name}" for k, v in zip(net.output_names, net.outputs, strict=True)]
    return neutral("\n".join(lines))


def of_plan(plan: Plan) -> str:
    """The header, in which blobs have the sha256 of their content for names; not the ledger and not
    who built it.
    """
    header, _ = encode_plan(plan)
    return neutral(json.dumps(_built(header), sort_keys=True, indent=1))


def _built(header: dict[str, Any]) -> dict[str, Any]:
    """Without what is in other lines (bids, fusion) or tells of versions; so in the plans of
    bodies.
    """
    left = {k: v for k, v in header.items() if k not in ("ledger", "requirements", "meta")}
    return left | {
        "steps": [s | {"plans": [_built(p) for p in s["plans"]]} for s in header["steps"]]
    }


def _node(n: Node) -> str:
    bodies = n.layer.bodies(n.attrs)
    what = (
        f"{n.layer.key} with {len(bodies)} bodies"
        if bodies
        else _json(region.encode(n.layer, n.attrs))
    )
    inputs = ", ".join("-" if v is None else v.name for v in n.inputs)
    outputs = ", ".join(f"{v.name} {v.spec}" for v in n.outputs)
    return f"{n.name}: {what} ({inputs}) -> {outputs} of {', '.join(n.origin)}"


def _constant(packed: Any, node: Node) -> str:
    """How it is packed, and what comes out if that is small."""
    given = [v.const for v in node.given]
    read = given if packed.index < 0 else [given[packed.index]]
    recipe = f"{packed.index} {packed.steps}"
    if sum(x.nbytes for x in read if x is not None) > LARGEST:
        return f"{recipe} (large)"
    return f"{recipe} {_content(packed.apply(given))}"


def _content(array: Any) -> str:
    """dtype, shape, and the digest of a small array's content."""
    head = f"{array.dtype}{list(array.shape)}"
    if array.nbytes > LARGEST:
        return f"{head} (large)"
    raw = (
        repr(array.tolist()).encode()
        if array.dtype == object
        else np.ascontiguousarray(array).tobytes()
    )
    return f"{head} {hashlib.sha256(raw).hexdigest()[:16]}"


def _code(a: KernelArtifact) -> list[str]:
    if isinstance(a.code, Source):
        return [of_source(a.code)]
    return [] if a.code is None else [f"binary {a.code.digest}"]


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
