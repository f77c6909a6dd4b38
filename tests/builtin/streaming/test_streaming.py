"""Weights that come and go: schedules, equal answers at every budget, and what stays in memory."""

from __future__ import annotations

import shutil
import sys
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from looped import INSIDE, looped
from looped import WIDTH as ACROSS
from looped import X as FED
from onnx import TensorProto, helper, numpy_helper
from resident import resident

import tactix
from tactix import BuilderFlag
from tactix.base.errors import EngineClosed, InvalidArgument
from tactix.run import weight_schedule as schedule
from tactix_refit.refitter import Refitter
from tactix_runtime.streaming.engine import StreamedEngine
from tactix_runtime.streaming.pages import Pages

STREAMING = {BuilderFlag.WEIGHT_STREAMING}
WIDTH, LAYERS = 256, 10
X = np.random.default_rng(3).standard_normal((2, WIDTH), dtype=np.float32)


def deep() -> bytes:
    """Products in a row; the first matrix is read again by the last."""
    rng, nodes, x = np.random.default_rng(1), [], "x"
    names = [*(f"w{i}" for i in range(LAYERS)), "w0"]
    for i, w in enumerate(names):
        nodes.append(helper.make_node("MatMul", [x, w], [f"m{i}"]))
        x = "y" if i == LAYERS else f"t{i}"
        nodes.append(helper.make_node("Tanh", [f"m{i}"], [x]))
    held = [
        numpy_helper.from_array(rng.standard_normal((WIDTH, WIDTH), dtype=np.float32) / 16, f"w{i}")
        for i in range(LAYERS)
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "deep", [info("x", TensorProto.FLOAT, ["n", WIDTH])],
                              [info("y", TensorProto.FLOAT, ["n", WIDTH])], held)  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    proto.ir_version = 8
    return proto.SerializeToString()  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("streaming") / "deep.plan"
    tactix.build(deep(), flags=STREAMING, level=0, timing_cache=False, threads=1).save(out)
    return out


SLOTS = st.sampled_from([2, 3, 4])


@st.composite
def networks(
    draw: Any,
) -> tuple[list[frozenset[str]], dict[str, int], int, schedule.StreamingWindow]:
    multiple = draw(st.sampled_from([1, 64]))
    sizes = draw(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 50), min_size=1))
    sizes = {b: multiple * n for b, n in sizes.items()}
    steps = draw(
        st.lists(st.frozensets(st.sampled_from(sorted(sizes)), max_size=3), min_size=1, max_size=12)
    )
    low, most = schedule.least(steps, sizes), draw(st.none() | st.integers(0, 100 * multiple))
    return (
        steps,
        sizes,
        draw(st.integers(low, low + 200 * multiple)),
        schedule.StreamingWindow(draw(SLOTS), most, multiple),
    )


@settings(suppress_health_check=[HealthCheck.too_slow])  # a busy machine draws examples slowly
@given(networks())
def test_a_schedule_keeps_to_its_budget(case: Any) -> None:
    steps, sizes, budget, want = case
    everything, low = frozenset().union(*steps), schedule.least(steps, sizes)
    found = schedule.plan(steps, sizes, budget, want)
    groups = found.groups(steps)
    assert [g.first for g in groups] == [0, *(g.stop for g in groups[:-1])]
    assert groups[-1].stop == len(steps)
    if sum(sizes[b] for b in everything) <= budget:
        assert (found.kept, found.window, len(groups), groups[0].blobs) == (everything, 0, 1, ())
        return
    assert sum(sizes[b] for b in found.kept) + found.window <= budget
    assert found.limit % want.multiple == 0
    assert want.most is None or found.window <= max(want.most, found.slots * low)
    for g in groups:
        assert set(g.blobs) == {b for s in steps[g.first : g.stop] for b in s} - found.kept
        assert sum(sizes[b] for b in g.blobs) <= found.limit
    assert [g.slot for g in groups] == [i % found.slots for i in range(len(groups))]
    assert found.slots in (2, want.slots) or budget < 2 * low


def test_what_stays_is_spread_over_the_run() -> None:
    sizes = {f"w{i:02}": 10 for i in range(40)} | {"bias": 1}
    steps = [frozenset({f"w{i:02}"}) for i in range(40)]
    steps[7] |= {"bias"}
    found = schedule.plan(steps, sizes, 220, schedule.StreamingWindow(2, 40))
    kept = sorted(found.kept)
    assert found.slots == 2
    assert len(kept) == 18  # 17 tens and the bias fit beside a window of 40
    places = [int(b[1:]) for b in kept if b != "bias"]
    assert {b - a for a, b in pairwise(places)} <= {1, 2, 3}
    assert len(found.groups(steps)) >= 10
    half = found.groups(steps[20:])  # steps of a part of the plan
    assert {b for g in half for b in g.blobs} == {f"w{i:02}" for i in range(20, 40)} - found.kept


def test_one_large_blob_stays_so_that_others_come_ahead() -> None:
    sizes = {"table": 100} | {f"w{i:02}": 10 for i in range(40)}
    steps = [
        frozenset({"table"}),
        *(frozenset({f"w{i:02}"}) for i in range(40)),
        frozenset({"table"}),
    ]
    assert schedule.plan(steps, sizes, 100, schedule.StreamingWindow()).slots == 1
    found = schedule.plan(steps, sizes, 150, schedule.StreamingWindow(3, 0))
    assert (found.slots, found.window) == (2, 20)
    assert "table" in found.kept
    assert len(found.kept) == 4


def test_answers_are_the_same_at_any_budget(path: Path) -> None:
    plain = tactix.load(path, max_threads=1)
    want = {rows: plain(X[:rows]) for rows in (1, 2)}
    engine = tactix.load(path, max_threads=1)
    assert isinstance(engine, StreamedEngine)
    low, size = engine.minimum_weight_streaming_budget, engine.streamable_weights_size
    assert WIDTH * WIDTH * 4 <= low < 2 * WIDTH * WIDTH * 4
    assert size >= LAYERS * WIDTH * WIDTH * 4
    assert engine.weight_streaming_budget_v2 == size
    for budget in (low, low + 1, 2 * low, size // 2, size - 1, size, 10 * size):
        engine.weight_streaming_budget_v2 = budget
        assert engine.weight_streaming_budget_v2 == min(budget, size)
        for rows in (2, 1, 2):
            np.testing.assert_array_equal(engine(X[:rows]), want[rows])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_is_in_memory_stays_below_the_budget(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(shutil.copy(path, tmp_path / "own.plan"))  # that no other engine maps
    engine = tactix.load(path, max_threads=1)
    low, size = engine.minimum_weight_streaming_budget, engine.streamable_weights_size  # type: ignore[attr-defined]
    engine(X)
    assert resident(path) >= size // 2
    seen: list[int] = []
    drop = Pages.drop

    def noted(self: Pages, blobs: Any) -> None:
        seen.append(resident(path))
        drop(self, blobs)

    monkeypatch.setattr(Pages, "drop", noted)
    around = (
        128 << 10
    )  # the system maps some pages beside one that is read; the header is mapped, too
    beside = path.stat().st_size - size + around
    for budget in (low, 2 * low, 4 * low):
        engine.weight_streaming_budget_v2 = budget  # type: ignore[attr-defined]
        seen.clear()
        for _ in range(3):
            engine(X)
        assert len(seen) >= 3 * (LAYERS // 4)
        assert max(seen) <= budget + beside
    assert resident(path) <= 4 * low + beside


def test_budgets_that_cannot_be(path: Path) -> None:
    engine: Any = tactix.load(path)
    with pytest.raises(InvalidArgument, match=r"a budget of 4096 bytes.*a step needs"):
        engine.weight_streaming_budget_v2 = 4096
    for odd in (float("nan"), 1e9, "25%", None, [1 << 30]):
        with pytest.raises(InvalidArgument, match=r"a budget of .*Give bytes, an int"):
            engine.weight_streaming_budget_v2 = odd
        assert engine.weight_streaming_budget_v2 == engine.streamable_weights_size
    context = engine.create_execution_context()
    with pytest.raises(InvalidArgument, match="contexts are there"):
        engine.weight_streaming_budget_v2 = engine.minimum_weight_streaming_budget
    del context
    engine.weight_streaming_budget_v2 = engine.minimum_weight_streaming_budget
    for other in (path.read_bytes(), path):
        held: Any = tactix.load(other, copy_weights=other is path)
        assert held.streamable_weights_size == 0
        with pytest.raises(InvalidArgument, match=r"cannot be streamed.*Load the plan from a file"):
            held.weight_streaming_budget_v2 = 1 << 30
        np.testing.assert_array_equal(held(X), engine(X))


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_a_closed_engine_lets_go_of_the_file(path: Path, tmp_path: Path) -> None:
    own = shutil.copy(path, tmp_path / "closed.plan")
    engine = tactix.load(own, max_threads=1)
    assert isinstance(engine, StreamedEngine)
    engine.weight_streaming_budget_v2 = engine.minimum_weight_streaming_budget
    engine(X)
    engine.close()
    assert "closed.plan" not in Path("/proc/self/maps").read_text()
    with pytest.raises(EngineClosed):
        engine(X)
    with pytest.raises(EngineClosed):
        print(engine.streamable_weights_size)


def test_several_contexts_at_once(path: Path) -> None:
    engine: Any = tactix.load(path, max_threads=1)
    want = engine(X)
    engine.weight_streaming_budget_v2 = 2 * engine.minimum_weight_streaming_budget
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(20):
            if not np.array_equal(engine(X), want):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_bodies_of_loops_share_the_budget(tmp_path: Path) -> None:
    built = tactix.build(looped(), flags=STREAMING, level=0, timing_cache=False, threads=1)
    built.save(tmp_path / "plan")
    want = built(FED)
    engine: Any = tactix.load(tmp_path / "plan", max_threads=1)
    low, size = engine.minimum_weight_streaming_budget, engine.streamable_weights_size
    assert low >= INSIDE * ACROSS * 4
    assert size >= (2 * INSIDE + 3 * ACROSS) * ACROSS * 4
    for budget in (low, 2 * low, size - 1, size):
        engine.weight_streaming_budget_v2 = budget
        for _ in range(2):
            np.testing.assert_array_equal(engine(FED), want)
        assert engine.inspect()["memory"]["streamed"] >= size - budget


def test_plans_with_both_are_refitted_as_plans(tmp_path: Path) -> None:
    engine = tactix.build(
        deep(), flags=STREAMING | {BuilderFlag.REFIT}, level=0, timing_cache=False, threads=1
    )
    engine.save(tmp_path / "a.plan")
    with pytest.raises(InvalidArgument, match=r"cannot be refitted.*Refit the plan"):
        Refitter(tactix.load(tmp_path / "a.plan"))
    refitter = Refitter(tmp_path / "a.plan")
    refitter.refit_from_onnx(deep())
    refitter.save(tmp_path / "b.plan")
    streamed: Any = tactix.load(tmp_path / "b.plan", on_untrusted="allow", max_threads=1)
    streamed.weight_streaming_budget_v2 = streamed.minimum_weight_streaming_budget
    np.testing.assert_array_equal(streamed(X), engine(X))


def test_plans_without_the_flag_have_no_budget() -> None:
    engine = tactix.build(deep(), level=0, timing_cache=False, threads=1)
    assert not isinstance(engine, StreamedEngine)
    assert not hasattr(engine, "weight_streaming_budget_v2")
