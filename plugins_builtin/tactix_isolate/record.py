"""What a record of the quarantine says of a trial, and the trial made again from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import tactix
from tactix.base import dims
from tactix.base.dims import Env
from tactix.base.dtypes import DType
from tactix.base.errors import ExecutionError
from tactix.base.tensor import TensorSpec
from tactix.contracts.graph import Node, Value
from tactix.contracts.launcher import LinkContext
from tactix.contracts.region import decode
from tactix.contracts.tactic import CompileContext, Reject
from tactix.plugins.session import Session
from tactix.select.accuracy import GRANTED
from tactix.select.bench import Bench, sample
from tactix.select.enumerate import Candidate

SEED = 0
"""Of the arrays that a bench samples."""

SCRIPT = '''"""{reason}

It happened on {when} with tactix {tactix}. \
The pack must be installed, in the version that failed: {pack} {version}.
With here=True the kernel runs in this process, for a debugger.
"""
import sys

from tactix.base.errors import TactixError
from tactix_isolate.record import replay

try:
    print(replay({case!r}, here=False))
except TactixError as e:  # nothing could be tried
    sys.exit(str(e))
'''


def of(
    c: Candidate,
    node: Node,
    env: Env,
    threads: int,
    strangers: Mapping[str, Any],
    verdict: Any,
    reason: str,
) -> dict[str, Any]:
    """JSON of what a candidate did."""
    provider = strangers[c.tactic.key]
    case = {
        "tactic": c.tactic.key,
        "variant": c.variant.id,
        "layer": node.meaning,
        "env": dict(env),
        "threads": threads,
        "seed": SEED,
        "inputs": [_input(v) for v in node.given],
    }
    return {
        "kind": verdict.kind,
        "reason": reason,
        "said": verdict.said,
        "tactic": c.tactic.key,
        "variant": str(c.variant),
        "pack": provider.dist,
        "version": provider.version,
        "artifact": c.artifact.digest,
        "node": node.name,
        "layer": node.kind,
        "shapes": [str(v.spec.plain()) for v in (*node.given, *node.outputs)],
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "tactix": tactix.__version__,
        "case": case,
    }


def script(record: Mapping[str, Any]) -> str:
    """A program that makes the trial again."""
    return SCRIPT.format(**record)


def _input(v: Value) -> dict[str, Any]:
    shape = [dims.to_json(d) for d in v.spec.shape]
    return {"dtype": v.spec.dtype.value, "shape": shape, "constant": v.const is not None}


def replay(case: Mapping[str, Any], here: bool = False, plugins: Iterable[Any] = ()) -> str:
    """What the kernel does now, in words. Constants are random, too: a record does not hold a
    model's weights.

    ``here``: run it in this process. ``plugins``: as for a Session. Raises PluginError if the pack
    is not there, ExecutionError if it does not offer the variant any longer, CompilerError.
    """
    session = Session(plugins=plugins, enable=[case["tactic"].split(".")[0]])
    device, tactic = session.devices["tactix.cpu@1"], session.tactics[case["tactic"]]
    node, env = _node(case, session), dict(case["env"])
    context = CompileContext(device.properties(), env, case["threads"])
    offered = tactic.offers(node, context.device)
    known = () if isinstance(offered, Reject) else offered.variants
    variant = next((v for v in known if v.id == case["variant"]), None)
    if isinstance(offered, Reject) or variant is None:
        raise ExecutionError(
            "the pack has changed since the record",
            who=case["tactic"],
            why=f"it no longer offers the variant {case['variant']}",
        )
    c = Candidate(
        tactic, variant, offered.compile(variant, context), offered.cost(variant, context)
    )
    bench = _bench(session, case["threads"], here)
    try:
        return f"{c.title}: departs by {_tried(c, node, env, bench, session):.3g} budgets"
    except ExecutionError as e:
        return str(e)


def _tried(c: Candidate, node: Node, env: Env, bench: Bench, session: Session) -> float:
    """The departure from the reference. Raises ExecutionError."""
    from tactix.select.compile import Toolchain, with_binary

    properties = bench.device.properties()
    binaries = Toolchain(session.active_compilers()).compile([c.artifact], properties)
    own = bench.of(c)
    arrays, want = bench.trial(node, env)
    runnable, got = own.prepare(node, with_binary(c.artifact, binaries), c.variant, arrays, env)
    runnable.repeat(1)
    return own.check(node, c.variant, got, want, GRANTED.get(c.tactic.numerics, 1.0))


def _bench(session: Session, threads: int, here: bool) -> Bench:
    """One that writes nothing down."""
    from tactix_isolate.bench import CpuBench

    link = LinkContext(
        session.devices["tactix.cpu@1"],
        threads,
        session.layers.__getitem__,
        warn=lambda message: None,
    )
    if here:
        return Bench(link, session.launchers)
    made = CpuBench(link, session.launchers, None, session.strangers())
    made.keep_nothing()
    return made


def _node(case: Mapping[str, Any], session: Session) -> Node:
    layer, attrs = decode(case["layer"], session.layers.__getitem__)
    shapes = [tuple(dims.from_json(d) for d in i["shape"]) for i in case["inputs"]]
    given = [
        Value(f"x{k}", TensorSpec(DType(i["dtype"]), s))
        for k, (i, s) in enumerate(zip(case["inputs"], shapes))
    ]
    node = Node("replayed", layer, attrs, given)
    made = layer.infer(attrs, [v.spec for v in given])
    node.outputs = tuple(Value(f"y{k}", s.plain(), node, k) for k, s in enumerate(made))
    arrays = sample(node, case["env"], case["seed"])
    for v, i, a in zip(given, case["inputs"], arrays, strict=True):
        if i["constant"]:
            v.spec = replace(v.spec, const=a)
    return node
