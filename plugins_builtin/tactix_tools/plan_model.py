"""Whether a plan was built from a model, as far as the names of both tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator

import onnx

from tactix.base.errors import InvalidArgument
from tactix.plan.schema import Plan
from tactix_onnx.order import name_of, ordered, reads

PRODUCTS = ("Conv", "MatMul", "Gemm", "LSTM", "GRU", "RNN")
"""Operators that no rule leaves out, if an output needs them."""
SHOWN = 3


def check_plan_of(plan: Plan, path: str) -> None:
    """Names of inputs, outputs and layers must be those of the ONNX model; plans that name no
    layers pass. Raises InvalidArgument.
    """
    try:
        graph = onnx.load(path, load_external_data=False).graph
    except Exception as e:  # protobuf raises its own
        raise InvalidArgument("that is no ONNX model", who=path, why=str(e)[:200]) from e
    why = "; ".join(_differences(plan, graph))
    if why:
        raise InvalidArgument(
            f"the plan {plan.name or 'without a name'} is of another model",
            who=path,
            why=why,
            do="Give a plan of this one, or none, and one is built",
        )


def _differences(plan: Plan, graph: onnx.GraphProto) -> Iterator[str]:
    yield from _unknown("input", [io.name for io in plan.inputs], [v.name for v in graph.input])
    yield from _unknown("output", [io.name for io in plan.outputs], [v.name for v in graph.output])
    told = {name for p in plan.nested() for s in p.steps for name in _origin(s.info.get("origin"))}
    if told:
        yield from _unknown("layer", _products(graph), told, "the plan has no")


def _unknown(
    what: str, names: Iterable[str], known: Container[str], told: str = "the model has no"
) -> Iterator[str]:
    missing = [n for n in names if n not in known]
    if missing:
        more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        yield f"{told} {what} {', '.join(map(repr, missing[:SHOWN]))}{more}"


def _origin(told: object) -> tuple[str, ...]:
    return tuple(map(str, told)) if isinstance(told, (list, tuple)) else ()


def _products(graph: onnx.GraphProto) -> list[str]:
    """Of the outermost graph, those that hang on an input, and that an output hangs on."""
    weights = {t.name for t in graph.initializer}
    live = {v.name for v in graph.input} - weights
    known = {*weights, *live, *(t.values.name for t in graph.sparse_initializer)}
    found = []
    for i, n in ordered(graph.node, [v.name for v in graph.output], known):
        if live.isdisjoint(reads(n)):
            continue
        live.update(n.output)
        if n.op_type in PRODUCTS:
            found.append(name_of(i, n))
    often = Counter(n.name for n in graph.node)
    return [name for name in found if often[name] <= 1]
