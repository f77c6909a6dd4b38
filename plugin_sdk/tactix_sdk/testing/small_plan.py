"""A network of a few layers that any build can have, and plans of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tactix import Builder, BuilderConfig
from tactix.network.definition import NetworkDefinition
from tactix.plan.schema import Plan
from tactix.plugins.session import Session


def network(session: Session) -> NetworkDefinition:
    """``y = relu(x w)`` for x of any number of rows; the weights have a name."""
    import numpy as np

    net = Builder(session=session).create_network("small")
    x = net.add_input("x", "f32", ("n", 16))
    w = net.add_constant(np.random.default_rng(2).standard_normal((16, 24), np.float32), "w")
    (y,) = net.add_layer("tactix.MatMul", [x, w])
    net.mark_output(net.add_layer("tactix.Relu", [y])[0], "y")
    return net


def growing(session: Session) -> NetworkDefinition:
    """``y = relu(present)`` of a state that grows: ``present`` is ``past`` with the rows of ``x``
    behind it.
    """
    net = Builder(session=session).create_network("growing")
    past, x = net.add_input("past", "f32", (2, "p", 16)), net.add_input("x", "f32", (2, "n", 16))
    (present,) = net.add_layer("tactix.Concat", [past, x], axis=1)
    net.mark_output(net.add_layer("tactix.Relu", [present])[0], "y")
    net.mark_output(present, "present")
    return net


def plan(session: Session, **options: Any) -> Plan:
    """Of the network, for the processor; the quickest build there is. ``options``: of the
    configuration. Raises what ``Builder.build_plan`` does.
    """
    config = BuilderConfig(
        **{"timing_cache": False, "builder_optimization_level": 0, "sign": False, **options}
    )
    return Builder(session=session).build_plan(network(session), config)


def feed(rows: int = 5) -> dict[str, Any]:
    """Inputs."""
    import numpy as np

    return {"x": np.random.default_rng(rows).standard_normal((rows, 16), np.float32)}


def answers(engine: Any) -> Mapping[str, bytes]:
    """What an engine gives at several sizes, by output and rows."""
    context = engine.create_execution_context()
    try:
        found = {n: context.run(feed(n)) for n in (5, 1, 0, 33)}
    finally:
        context.close()
    return {
        f"{name} of {n} rows": y.tobytes() for n, out in found.items() for name, y in out.items()
    }
