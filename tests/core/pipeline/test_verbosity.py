"""What plans tell of their layers, by verbosity; they run the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tactix
from tactix import ProfilingVerbosity


@pytest.fixture(scope="module")
def engines() -> dict[ProfilingVerbosity, tactix.Engine]:
    found = {}
    for verbosity in ProfilingVerbosity:
        builder = tactix.Builder()
        net = builder.create_network("small")
        x = net.add_input("x", "f32", (2, 3))
        (y,) = net.add_layer("tactix.MatMul", [x, net.add_constant(np.ones((3, 4), np.float32))])
        (z,) = net.add_layer("tactix.Softmax", [y], "secret")
        net.mark_output(z, "z")
        config = tactix.BuilderConfig(
            builder_optimization_level=0, timing_cache=False, profiling_verbosity=verbosity
        )
        found[verbosity] = builder.build(net, config)
    return found


def test_each_holds_what_it_names(engines: dict[ProfilingVerbosity, tactix.Engine]) -> None:
    told: dict[str, Any] = {v.name: e.plan.steps[-1] for v, e in engines.items()}
    assert {"tactic", "variant", "operations", "makes"} <= told["DETAILED"].info.keys()
    named = told["LAYER_NAMES_ONLY"]
    assert named.name == told["DETAILED"].name == "secret"
    assert named.info["makes"] == ["z"]
    assert not {"tactic", "variant", "operations", "seconds"} & named.info.keys()
    assert told["NONE"].name == f"step {len(engines[ProfilingVerbosity.NONE].plan.steps) - 1}"
    assert not told["NONE"].info.keys() - {"kind", "reference"}
    for verbosity, engine in engines.items():
        nodes = engine.plan.ledger["nodes"]
        assert bool(nodes) is (verbosity is ProfilingVerbosity.DETAILED)


def test_all_compute_the_same(engines: dict[ProfilingVerbosity, tactix.Engine]) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    first, *others = (e(x) for e in engines.values())
    for y in others:
        np.testing.assert_array_equal(y, first)
