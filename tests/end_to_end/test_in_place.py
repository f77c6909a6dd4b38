"""Outputs that lie where an input lies: only what changes is written, and only where that is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tactix
from tactix.base.errors import InvalidArgument
from tactix.contracts.graph import Value
from tactix.network.definition import NetworkDefinition
from tactix.run.engine import Engine
from tactix_cpu.compiler import CCompiler

pytestmark = pytest.mark.skipif(bool(CCompiler().available()), reason="no C compiler")

LENGTH = 9


def _tensor_scatter(net: NetworkDefinition, cache: Value, update: Value, at: Value) -> Value:
    return net.add_layer("tactix.TensorScatter", [cache, update, at], axis=2)[0]


def _scatter_nd(net: NetworkDefinition, cache: Value, update: Value, at: Value) -> Value:
    """Rows of the cache's first axis."""
    return net.add_layer("tactix.ScatterND", [cache, at, update])[0]


def _engine(kind: str, reads_again: bool = False) -> Engine:
    builder = tactix.Builder()
    net = builder.create_network(kind)
    nd = kind == "ScatterND"
    cache = net.add_input("cache", "f32", (LENGTH, 4) if nd else (2, 3, LENGTH, 4))
    update = net.add_input("update", "f32", (2, 4) if nd else (2, 3, 1, 4))
    at = net.add_input("at", "i64", (2, 1) if nd else (2,))
    grown = (_scatter_nd if nd else _tensor_scatter)(net, cache, update, at)
    net.mark_output(grown, "grown")
    read = net.add_layer("tactix.Mul", [cache if reads_again else grown, grown])[0]
    net.mark_output(read, "read")
    config = builder.create_builder_config()
    config.builder_optimization_level = 0
    return builder.build(net, config)


def _feeds(kind: str) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    nd = kind == "ScatterND"
    return {
        "cache": rng.standard_normal((LENGTH, 4) if nd else (2, 3, LENGTH, 4)).astype("f"),
        "update": rng.standard_normal((2, 4) if nd else (2, 3, 1, 4)).astype("f"),
        "at": np.array([[7], [2]] if nd else [7, 2]),
    }


@pytest.mark.parametrize("kind", ["TensorScatter", "ScatterND"])
def test_a_cache_is_changed_where_it_lies(kind: str) -> None:
    engine, feeds = _engine(kind), _feeds(kind)
    assert engine.plan.in_place == {("cache", "grown")}
    wanted = engine(**feeds)
    context = engine.create_execution_context()
    cache, read = feeds["cache"].copy(), np.empty_like(wanted["read"])
    for name, array in {**feeds, "cache": cache, "grown": cache, "read": read}.items():
        context.set_tensor_address(name, array)
    context.execute_async_v3()
    np.testing.assert_array_equal(cache, wanted["grown"])
    np.testing.assert_array_equal(read, wanted["read"])
    context.execute_v2([context.get_tensor_address(n) for n in (*feeds, "grown", "read")])
    np.testing.assert_array_equal(cache, wanted["grown"])


def test_memory_apart_is_copied() -> None:
    engine, feeds = _engine("TensorScatter"), _feeds("TensorScatter")
    before = feeds["cache"].copy()
    assert not np.array_equal(engine(**feeds)["grown"], before)
    np.testing.assert_array_equal(feeds["cache"], before)


@pytest.mark.parametrize("shift", [0, 64])
def test_an_output_in_an_input_that_is_read_again_is_refused(shift: int) -> None:
    """Where another step reads the cache; and where the two do not begin together."""
    engine, feeds = _engine("TensorScatter", reads_again=not shift), _feeds("TensorScatter")
    memory = np.zeros(feeds["cache"].size + 16, np.float32)
    context = engine.create_execution_context()
    addresses = {name: x.ctypes.data for name, x in feeds.items()}
    addresses |= {"cache": memory.ctypes.data, "grown": memory.ctypes.data + shift}
    addresses["read"] = np.empty_like(feeds["cache"]).ctypes.data
    for name, x in feeds.items():
        context.set_input_shape(name, x.shape)
    with pytest.raises(InvalidArgument, match="'grown' lies in the memory of input 'cache'"):
        context.execute_v2([*addresses.values()])


def _chain(reads_again: bool) -> Engine:
    """Two steps, and where the input is read again a third one."""
    builder = tactix.Builder()
    net = builder.create_network("chain")
    x = net.add_input("x", "f32", (3, 5))
    (y,) = net.add_layer("tactix.Softmax", [x], axis=1)
    (y,) = net.add_layer("tactix.CumSum", [y], axis=0)
    if reads_again:
        (y,) = net.add_layer("tactix.Add", [x, y])
    net.mark_output(y, "y")
    config = builder.create_builder_config()
    config.builder_optimization_level = 0
    return builder.build(net, config)


def test_an_output_may_lie_where_an_input_was_read_before() -> None:
    engine, x = _chain(reads_again=False), np.arange(15, dtype=np.float32).reshape(3, 5) / 7
    assert engine.plan.in_place == frozenset()
    wanted, place = engine(x), x.copy()
    assert engine.create_execution_context().execute_v2([place.ctypes.data] * 2)
    np.testing.assert_array_equal(place, wanted)


def test_an_output_may_not_lie_where_an_input_is_read_again() -> None:
    place = np.zeros((3, 5), np.float32)
    with pytest.raises(InvalidArgument, match="'y' lies in the memory of input 'x'"):
        _chain(reads_again=True).create_execution_context().execute_v2([place.ctypes.data] * 2)
