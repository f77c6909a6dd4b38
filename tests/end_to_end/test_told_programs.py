"""Plans with steps that tell sizes: one native call where these are what they were, and right where
they are not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tactix
from tactix.base.arrays import Array
from tactix.base.errors import ExecutionError
from tactix.network.definition import NetworkDefinition
from tactix_cpu.programs import ElfProgram
from tactix_runtime import weave
from tactix_sdk.evaluate import evaluate

pytestmark = pytest.mark.compiler

Ended = list[int | None]


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Ended:
    """How native calls of whole plans ended: at which part, or None."""
    seen, call = Ended(), ElfProgram.__call__

    def noting(self: ElfProgram) -> int | None:
        seen.append(call(self))
        return seen[-1]

    monkeypatch.setattr(ElfProgram, "__call__", noting)
    return seen


def network(builder: tactix.Builder) -> NetworkDefinition:
    """Rows of x up to a computed number, where they are positive, and how often a value comes."""
    net = builder.create_network("told")
    x, end = net.add_input("x", "f32", ("n", 5)), net.add_input("end", "i64", (1,))
    zero, one = (net.add_constant(np.array([v], np.int64)) for v in (0, 1))
    (a,) = net.add_layer("tactix.Relu", [x])
    (b,) = net.add_layer("tactix.DynamicSlice", [a, zero, end, zero, one], symbol="rows")
    (c,) = net.add_layer("tactix.Mul", [b, net.add_constant(np.float32(2))])
    (d,) = net.add_layer("tactix.NonZero", [c], symbol="found")
    (e,) = net.add_layer("tactix.Transpose", [d], perm=(1, 0))
    (f,) = net.add_layer("tactix.GatherND", [c, e])
    (g,) = net.add_layer("tactix.Exp", [f])
    net.mark_output(b, "b")
    net.mark_output(e, "e")
    net.mark_output(g, "g")
    return net


def build(threads: int = 1) -> tuple[tactix.Engine, NetworkDefinition]:
    builder = tactix.Builder()
    config = tactix.BuilderConfig(timing_cache=False, builder_optimization_level=0, threads=threads)
    net = network(builder)
    return builder.build(net, config), net


def feeds(n: int, end: int, sign: float = 0.0) -> dict[str, Array]:
    x = np.random.default_rng(n).standard_normal((n, 5)).astype(np.float32)
    return {"x": sign * np.abs(x) if sign else x, "end": np.array([end], np.int64)}


def check(engine: tactix.Engine, net: NetworkDefinition, given: dict[str, Array]) -> dict[str, Any]:
    got, want = engine(given), evaluate(net, given)
    for name, w in want.items():
        assert got[name].shape == w.shape
        assert got[name].dtype == w.dtype
        np.testing.assert_allclose(got[name], w, rtol=1e-5)
    return dict(got)


@pytest.mark.parametrize("threads", [1, 2])
def test_one_call_while_sizes_stay_and_right_where_they_change(
    ended: Ended, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setenv("TACTIX_ALWAYS_PARALLEL", str(threads - 1))
    monkeypatch.setattr(weave, "LEAST_ROOM", 1)
    engine, net = build(threads)
    kept = []
    for n, end, sign in (
        *((9, 6, 0.0),) * 4,  # one or two step by step, then native calls
        *((9, end, 0.0) for end in (3, 5, 1, 9, 2)),  # within and beyond the room that there is
        *((9, 9, 1.0),) * 3,
        (9, 9, -1.0),  # the second tells 0
        *((9, 9, -1.0),) * 3,
        (9, 0, 0.0),
        *((9, 0, 0.0),) * 3,
        *((40, 40, 1.0),) * 3,  # more than there was memory for
        (40, 400, 1.0),  # the same sizes by another end
        *((9, 6, 0.0),) * 3,
    ):
        given = feeds(n, end, sign)
        kept.append((given, check(engine, net, given)))
    whole = [e is None for e in ended]
    assert whole.count(True) >= 12
    assert whole.count(False) >= 1
    for given, got in kept:  # results have memory of their own
        for name, w in evaluate(net, given).items():
            np.testing.assert_allclose(got[name], w, rtol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
def test_sizes_that_are_others_in_every_run(
    ended: Ended, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    """Native calls bind what follows from them anew; beyond their room steps run one by one."""
    monkeypatch.setenv("TACTIX_ALWAYS_PARALLEL", str(threads - 1))
    engine, net = build(threads)
    rng, n, kept = np.random.default_rng(5), 30, []
    for run in range(90):
        n = int(rng.integers(0, 200)) if run % 15 == 14 else n
        end = int(rng.integers(-n, 2 * n + 1)) if run % 3 else 0
        given = {"x": rng.standard_normal((n, 5)).astype(np.float32), "end": np.array([end])}
        kept.append((given, check(engine, net, given)))
    assert ended.count(None) > 10
    for given, got in kept:  # results have memory of their own, whole or in larger ones
        for name, w in evaluate(net, given).items():
            np.testing.assert_allclose(got[name], w, rtol=1e-5)


def test_a_watched_run_after_native_ones_binds_anew() -> None:
    engine, net = build()
    context = engine.create_execution_context()
    seen: list[str] = []

    class Profiler:
        def report_layer_time(self, name: str, milliseconds: float) -> None:
            seen.append(name)

    for end in (6, 6, 6, 4, 6, 5):
        for profiler in (None, Profiler()):
            context.profiler = profiler
            given = feeds(8, end)
            got, want = context.run(given), evaluate(net, given)
            for name, w in want.items():
                np.testing.assert_allclose(got[name], w, rtol=1e-5)
    assert seen


def test_what_is_told_in_a_run_that_was_refused_does_no_harm(ended: Ended) -> None:
    builder = tactix.Builder()
    net = builder.create_network("refused")
    x, places = net.add_input("x", "f32", (8,)), net.add_input("places", "i64", (6,))
    (d,) = net.add_layer("tactix.NonZero", [x], symbol="found")
    (g,) = net.add_layer("tactix.Gather", [d, places], axis=1)
    net.mark_output(d, "d")
    net.mark_output(g, "g")
    config = tactix.BuilderConfig(timing_cache=False, builder_optimization_level=0)
    engine = builder.build(net, config)
    few, many = np.arange(8, dtype=np.float32) % 2, np.ones(8, np.float32)
    low, high = np.arange(6) % 4, np.arange(6)
    for x_, p in ((many, high), (many, high), (many, high), (few, low), (many, low), (many, high)):
        check(engine, net, {"x": x_, "places": p})
    for _ in range(3):
        check(engine, net, {"x": many, "places": high})
        with pytest.raises(ExecutionError):
            engine(few, high)
        check(engine, net, {"x": few, "places": low})
    assert None in ended


def test_contexts_copy_what_a_native_call_made(ended: Ended) -> None:
    engine, net = build()
    context = engine.create_execution_context()
    for n, end in ((7, 5), (7, 5), (7, 5), (7, 2), (7, 2), (7, 2), (7, 2)):
        given = feeds(n, end)
        want = evaluate(net, given)
        out = {k: np.empty(w.shape, w.dtype) for k, w in want.items()}
        context.set_input_shape("x", given["x"].shape)
        order = [given[io.name] for io in engine.inputs] + [out[io.name] for io in engine.outputs]
        context.execute_v2([a.ctypes.data for a in order])
        for name, w in want.items():
            assert context.get_tensor_shape(name) == w.shape
            np.testing.assert_allclose(out[name], w, rtol=1e-5)
    assert None in ended
