"""Run a network with the layers' references: the oracle for everything else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tactix.base.dims import evaluate_shape, learn
from tactix.base.errors import InvalidArgument, ShapeError
from tactix.contracts.graph import Value, run_node
from tactix.network.definition import NetworkDefinition

_NONE: Mapping[str, int] = {}


def bind_symbols(
    net: NetworkDefinition, shapes: Mapping[str, tuple[int, ...]], given: Mapping[str, int] = _NONE
) -> dict[str, int]:
    """Values of the symbols from input shapes. Raises ShapeError where they disagree. ``given``:
    some more values.
    """
    env = dict(given)
    for v in net.inputs:
        shape = shapes[v.name]
        if len(shape) != v.spec.rank:
            raise ShapeError(f"input {v.name!r} has rank {v.spec.rank}, got shape {shape}")
        learn(v.spec.shape, shape, env)
    for v in net.inputs:  # a dim may use a symbol that only a later input gives
        if evaluate_shape(v.spec.shape, env) != tuple(shapes[v.name]):
            raise ShapeError(f"input {v.name!r} is {v.spec}, got shape {shapes[v.name]}")
    for name, highest in net.limits.items():
        if env.get(name, 0) > highest:
            raise ShapeError(
                f"dimension {name!r} is {env[name]}, the network takes at most {highest}"
            )
    return env


def evaluate(
    net: NetworkDefinition, inputs: Mapping[str, Any], given: Mapping[str, int] = _NONE
) -> dict[str, Any]:
    """Output arrays by name. ``given``: values of symbols that no input shape tells."""
    missing = [v.name for v in net.inputs if v.name not in inputs]
    if missing:
        raise InvalidArgument(
            f"no array for input {missing[0]!r}",
            do=f"Give: {', '.join(v.name for v in net.inputs)}",
        )
    env = bind_symbols(
        net, {v.name: getattr(inputs[v.name], "shape", ()) for v in net.inputs}, given
    )
    known: dict[Value, Any] = {v: inputs[v.name] for v in net.inputs}
    known.update({v: v.const for v in net.constants})
    for n in net.nodes:
        results = run_node(n, [None if v is None else known[v] for v in n.inputs], env)
        for v, y in zip(n.outputs, results, strict=True):
            learn(v.spec.shape, getattr(y, "shape", ()), env)
        known.update(zip(n.outputs, results, strict=True))
    return {k: known[v] for k, v in zip(net.output_names, net.outputs, strict=True)}
