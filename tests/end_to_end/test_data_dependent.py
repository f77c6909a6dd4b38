"""Shapes that only running tells: phases, symbols bound on the way, several in a row."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tactix
from tactix.base.errors import (
    EngineClosed,
    ExecutionError,
    InvalidArgument,
    PlanCompatibilityError,
    ShapeError,
)
from tactix.contracts.flavour import Options
from tactix.network.definition import NetworkDefinition
from tactix.run.engine import Engine
from tactix_runtime.segment import Segment


def config(**fields: object) -> tactix.BuilderConfig:
    return tactix.BuilderConfig(timing_cache=False, builder_optimization_level=0, **fields)  # type: ignore[arg-type]


def network(builder: tactix.Builder) -> NetworkDefinition:
    """y = relu(range(0, limit) * 2) + 1; z = x reshaped to the given shape, its first axis summed."""
    net = builder.create_network("data")
    limit = net.add_input("limit", "f32", ())
    x = net.add_input("x", "f32", ("n", 6))
    shape = net.add_input("shape", "i64", (2,))
    (r,) = net.add_layer(
        "tactix.Range",
        [net.add_constant(np.float32(0)), limit, net.add_constant(np.float32(1))],
        symbol="count",
    )
    (y,) = net.add_layer("tactix.Mul", [r, net.add_constant(np.float32(2))])
    (y,) = net.add_layer("tactix.Relu", [y])
    (y,) = net.add_layer("tactix.Add", [y, net.add_constant(np.float32(1))])
    (z,) = net.add_layer("tactix.DynamicReshape", [x, shape], symbol="z")
    (w,) = net.add_layer("tactix.ReduceSum", [z], axes=(0,), keepdims=False)
    net.mark_output(y, "y")
    net.mark_output(z, "z")
    net.mark_output(w, "w")
    return net


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> tactix.Engine:
    path: Path = tmp_path_factory.mktemp("plans") / "data.plan"
    builder = tactix.Builder()
    builder.build(network(builder), config()).save(path)
    return tactix.load(path)


def check(engine: tactix.Engine, limit: float, n: int, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(n).standard_normal((n, 6), dtype=np.float32)
    got = engine(np.float32(limit), x, np.array(shape))
    np.testing.assert_allclose(got["y"], np.arange(0, limit, dtype=np.float32) * 2 + 1)
    np.testing.assert_array_equal(got["z"], x.reshape(shape))
    np.testing.assert_allclose(got["w"], x.reshape(shape).sum(0), rtol=1e-5, atol=1e-5)


def test_right_at_every_content(engine: tactix.Engine) -> None:
    for limit, n, shape in (
        (5, 2, (3, 4)),
        (0, 2, (12, 1)),
        (17.5, 4, (-1, 8)),
        (5, 2, (4, 3)),
        (1, 1, (1, 6)),
    ):
        check(engine, limit, n, shape)


def test_contexts_of_several_threads(engine: tactix.Engine) -> None:
    failures: list[BaseException] = []

    def work(k: int) -> None:
        try:
            for i in range(20):
                check(engine, k + i, 2 + k, (-1, 3))
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_execute_v2_copies_and_tells_the_shape(engine: tactix.Engine) -> None:
    context = engine.create_execution_context()
    arrays = [np.float32(3).reshape(()), np.ones((2, 6), np.float32), np.array([4, 3])]
    room = [np.zeros(64, np.float32) for _ in engine.outputs]
    for io, a in zip(engine.inputs, arrays, strict=True):
        context.set_input_shape(io.name, a.shape)
    assert context.execute_v2([a.__array_interface__["data"][0] for a in (*arrays, *room)])
    assert context.get_tensor_shape("y") == (3,)
    assert context.get_tensor_shape("z") == (4, 3)
    np.testing.assert_array_equal(room[0][:3], [1, 3, 5])
    np.testing.assert_array_equal(room[2][:3], [4, 4, 4])


def test_content_that_makes_no_sense_is_named(engine: tactix.Engine) -> None:
    with pytest.raises(ExecutionError, match="12 elements do not go into the shape"):
        engine(np.float32(3), np.ones((2, 6), np.float32), np.array([5, 5]))
    check(engine, 4, 2, (2, 6))


def arrays(z: tuple[int, int]) -> dict[str, Any]:
    """Arrays to set for 5 values of y, with a guard row behind z, and 3 values of w."""
    given = {
        "limit": np.array(5, np.float32),
        "x": np.ones((2, 6), np.float32),
        "shape": np.array([4, 3]),
    }
    return given | {
        "y": np.zeros(5, np.float32),
        "z": np.full(z, -1, np.float32),
        "w": np.zeros(3, np.float32),
    }


def test_arrays_that_are_too_small_are_not_written(engine: tactix.Engine) -> None:
    context, given = engine.create_execution_context(), arrays((5, 3))
    for name, x in given.items():
        context.set_tensor_address(name, x[:3] if name == "z" else x)
    with pytest.raises(ShapeError, match=r"'z' is \(4, 3\), its array is \(3, 3\)"):
        context.execute_async_v3()
    assert (given["z"] == -1).all()
    context.set_tensor_address("z", given["z"])  # room is enough
    context.execute_async_v3()
    assert (given["z"][:4] == 1).all()
    assert (given["z"][4] == -1).all()
    assert context.get_tensor_shape("z") == (4, 3)
    context.set_input_shape("x", (9, 6))  # more than the array holds
    with pytest.raises(ShapeError, match=r"'x' is \(9, 6\), its array is \(2, 6\)"):
        context.execute_async_v3()


def test_what_a_context_refuses(engine: tactix.Engine) -> None:
    context, x = engine.create_execution_context(), np.ones((2, 6), np.float32)
    with pytest.raises(InvalidArgument, match="no array for 'x', 'shape'"):
        context.infer([np.float32(3)])
    context.close()
    with pytest.raises(ExecutionError, match="the context is closed"):
        context.run({"limit": np.float32(3), "x": x, "shape": np.array([4, 3])})


def test_results_in_the_callers_arrays_and_after_the_end() -> None:
    builder = tactix.Builder()
    engine = builder.build(network(builder), config())
    x = np.random.default_rng(2).standard_normal((2, 6), dtype=np.float32)
    f = {"limit": np.float32(3), "x": x, "shape": np.array([4, 3])}
    y, z = np.zeros(3, np.float32), np.zeros((4, 3), np.float32)
    for _ in range(3):  # step by step, and as one call
        y[:], z[:] = 0, 0
        got = engine.run(f, {"y": y, "z": z})
        assert got["y"] is y
        assert np.array_equal(y, [1, 3, 5])
        assert np.array_equal(z, x.reshape(4, 3))
        np.testing.assert_allclose(got["w"], z.sum(0), rtol=1e-5, atol=1e-6)
    with pytest.raises(ShapeError, match=r"'y' is \(3\) at these inputs"):
        engine.run(f, {"y": np.zeros(4, np.float32)})
    with pytest.raises(InvalidArgument, match="output 'z' lies in the memory of input 'x'"):
        engine.run(f, {"z": x.reshape(4, 3)})
    context = engine.create_execution_context()
    context.run(f)
    engine.close()
    for call in (context.run, engine.run, engine):
        with pytest.raises(EngineClosed):
            call(f)


def test_contexts_without_phases_refuse_the_plan(engine: tactix.Engine) -> None:
    with pytest.raises(PlanCompatibilityError, match=r"shapes that follow from data.*'default'"):
        Engine(engine.plan, tactix.Session(group="runtime"), engine.device, Options(1))


def test_measuring_at_guessed_sizes() -> None:
    builder = tactix.Builder()
    plan = builder.build_plan(
        network(builder), tactix.BuilderConfig(timing_cache=False, builder_optimization_level=1)
    )
    statuses = {s.info["tactic"]: s.info["status"] for s in plan.steps}
    assert statuses["tactix.c_pointwise@1"] == "measured"
    assert statuses["tactix.c_told_range@1"] == "estimated"


def test_nothing_is_laid_out_between_steps_that_follow_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    laid: list[int] = []
    lay_out = Segment.lay_out
    monkeypatch.setattr(
        Segment, "lay_out", lambda self, env: laid.append(len(self.steps)) or lay_out(self, env)
    )
    builder = tactix.Builder()
    net = builder.create_network()
    sizes = net.add_input("sizes", "i64", [2])
    (y,) = net.add_layer("tactix.DynamicFill", [sizes], symbol="k", value=1.5)
    net.mark_output(y, "y")
    engine = builder.build(net, tactix.BuilderConfig(timing_cache=False))
    for shape in ((2, 3), (4, 1)):
        np.testing.assert_array_equal(engine(np.array(shape)), np.full(shape, 1.5, np.float32))
    assert not laid
