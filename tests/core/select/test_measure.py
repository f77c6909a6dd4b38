"""Racing: how many samples are taken of whom, on a clock of the test's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import tactix
from tactix.base.errors import DeviceLost
from tactix.base.progress import SilentProgress
from tactix.contracts.artifact import KernelArtifact, Source
from tactix.contracts.compiler import Compiler
from tactix.select.compile import Toolchain
from tactix.select.enumerate import Bids, Candidate
from tactix.select.interleave import HOPELESS, LEAST_ROUNDS, MOST_ROUNDS, ROUNDS, interleave
from tactix.select.measure import Measurer


class Clock:
    """Runnables are names. ``seconds``: of one run; ``noise``: factors of the samples in turn, then
    1.
    """

    def __init__(
        self, seconds: dict[str, float], noise: dict[str, list[float]] | None = None
    ) -> None:
        self.seconds, self.noise = seconds, noise or {}
        self.asked: list[tuple[str, int]] = []

    def measure(self, name: Any, times: int) -> float:
        self.asked.append((name, times))
        turn = sum(n == name for n, _ in self.asked) - 1
        factors = self.noise.get(name, [])
        return self.seconds[name] * times * (factors[turn] if turn < len(factors) else 1.0)

    def race(self, asked: float = float("inf")) -> dict[str, list[float]]:
        """``asked``: measurements after which the time is over."""
        names: Any = list(self.seconds)
        samples = interleave(self.measure, names, lambda: len(self.asked) >= asked)
        return dict(zip(self.seconds, samples, strict=True))


def test_a_clear_winner_is_known_after_few_rounds() -> None:
    samples = Clock({"a": 1e-5, "b": 2e-5, "c": 1e-4, "d": 1e-2}).race()
    assert [len(s) for s in samples.values()] == [LEAST_ROUNDS, LEAST_ROUNDS, LEAST_ROUNDS, 2]
    assert samples["a"] == pytest.approx([1e-5] * LEAST_ROUNDS)


def test_close_ones_are_sampled_longer() -> None:
    samples = Clock({"a": 1.00e-5, "b": 1.01e-5, "c": 1e-5 * HOPELESS * 1.01}).race()
    assert [len(s) for s in samples.values()] == [ROUNDS, ROUNDS, LEAST_ROUNDS]


@pytest.mark.parametrize("factor", [3.0, 1000.0])
def test_a_sample_that_was_disturbed_takes_nobody_out(factor: float) -> None:
    disturbed = {"a": [factor, factor], "b": [1.0, 1.0, 1.0, 1.5]}
    samples = Clock({"a": 1.00e-5, "b": 1.10e-5}, disturbed).race()
    assert min(samples["a"]) == pytest.approx(1.00e-5)
    assert min(samples["b"]) == pytest.approx(1.10e-5)


def test_a_kernel_that_stops_of_the_process_hid_is_sampled_until_its_time_is_met_again() -> None:
    """Of 2.8 ms: its samples of a single run all meet a stop of 10 ms, or two, at first."""
    stopped = {"a": [4.6, 4.6, 8.2, 4.9, 5.3, 8.5]}
    samples = Clock({"a": 2.8e-3, "b": 2.9e-3}, stopped).race()
    assert min(samples["a"]) == pytest.approx(2.8e-3)


def test_what_no_stop_explains_leaves_the_race_unconfirmed() -> None:
    wild = [1.0 + 0.1 * i for i in range(MOST_ROUNDS, -1, -1)]
    samples = Clock({"a": 0.1, "b": 0.02}, {"a": wild}).race()
    assert len(samples["a"]) == LEAST_ROUNDS


def test_how_often_a_sample_runs_follows_from_the_shortest_time_so_far() -> None:
    clock = Clock({"a": 1e-6}, {"a": [1e5]})
    clock.race()
    assert [times for _, times in clock.asked] == [1, 1, 1000, 1000]


def test_noise_that_does_not_end_ends_the_race_nevertheless() -> None:
    rising = [1.0 + 0.1 * i for i in range(MOST_ROUNDS, 0, -1)]
    samples = Clock({"a": 1e-5, "b": 1e-5}, {"a": [1.0, *rising]}).race()
    assert len(samples["a"]) == MOST_ROUNDS


def test_what_fails_meanwhile_leaves_the_race() -> None:
    samples = Clock({"a": float("inf"), "b": 1e-5}).race()
    assert len(samples["b"]) == LEAST_ROUNDS
    assert Clock({"a": float("inf")}).race()["a"][0] == float("inf")


@pytest.mark.parametrize("asked", [0, 1, 2, 4, 2 + 2 * LEAST_ROUNDS - 1])
def test_a_race_that_ends_before_its_least_rounds_gives_no_times(asked: int) -> None:
    clock = Clock({"a": 1.00e-5, "b": 1.01e-5})
    assert clock.race(asked) == {"a": [], "b": []}
    assert len(clock.asked) == asked


def test_a_race_that_ends_later_keeps_its_times() -> None:
    clock = Clock({"a": 1.00e-5, "b": 1.01e-5})
    samples = clock.race(2 + 2 * LEAST_ROUNDS + 1)
    assert [len(s) for s in samples.values()] == [LEAST_ROUNDS + 1, LEAST_ROUNDS]


class Stopped(SilentProgress):
    """Cancelled from the beginning of the phase ``bid`` on."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}

    def phase(self, name: str, total: int) -> None:
        self.totals[name] = total

    def cancelled(self) -> bool:
        return "bid" in self.totals


def test_nothing_is_compiled_to_be_measured_once_a_build_was_stopped() -> None:
    builder, monitor = tactix.Builder(), Stopped()
    net = builder.create_network("stopped")
    (y,) = net.add_layer("tactix.Softmax", [net.add_input("x", "f32", (7, 37))], axis=1)
    net.mark_output(y, "y")
    config = tactix.BuilderConfig(timing_cache=False, threads=1, progress_monitor=monitor)
    plan = builder.build_plan(net, config)
    assert {s.info["status"] for s in plan.steps} == {"estimated"}
    assert (monitor.totals["bid"], monitor.totals["compile"]) == (1, 0)


class Slow(Compiler):
    """Takes five seconds for a source, and one for all if it is quick."""

    key, language, launcher = "test.slow@1", "c", "tactix.cpu.elf@1"

    def __init__(self, hurries: bool = False) -> None:
        self.hurries = hurries

    def available(self) -> str:
        return ""

    def quick(self) -> Slow:
        return Slow(hurries=True)

    def seconds(self, sources: Sequence[Source]) -> float:
        return 1.0 if self.hurries else 5.0 * len(sources)


@pytest.mark.parametrize(("left", "hurries"), [(9.0, True), (11.0, False)])
def test_quick_compilers_take_over_where_time_is_too_short_for_the_others(
    left: float, hurries: bool
) -> None:
    toolchain = Toolchain([Slow()])
    sources = (Source("c", "one"), Source("c", "two"), Source("c", "one"))
    toolchain.hurry([KernelArtifact("l", (), s) for s in sources], left)
    assert toolchain.hurries is hurries
    (compiler,) = toolchain.by_language.values()
    assert isinstance(compiler, Slow)
    assert compiler.hurries is hurries


def test_a_budget_that_is_too_short_to_compile_well_measures_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hurry(self: Toolchain, artifacts: object, left: float) -> None:
        self.hurries = True

    monkeypatch.setattr(Toolchain, "hurry", hurry)
    builder = tactix.Builder()
    net = builder.create_network("hurried")
    (y,) = net.add_layer("tactix.Softmax", [net.add_input("x", "f32", (7, 37))], axis=1)
    net.mark_output(y, "y")
    config = tactix.BuilderConfig(timing_cache=False, threads=1, budget=1000.0)
    plan = builder.build_plan(net, config)
    assert {s.info["status"] for s in plan.steps} == {"estimated"}


def test_who_loses_the_device_is_named_and_left_out_of_the_next_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lost: list[str] = []
    tried = Measurer._tried

    def lose_once(self: Measurer, b: Bids, c: Candidate, *given: Any) -> Any:
        if lost or c.is_reference:
            return tried(self, b, c, *given)
        lost.append(c.title)
        raise DeviceLost("cuEventSynchronize failed", why="CUDA_ERROR_LAUNCH_FAILED")

    monkeypatch.setattr(Measurer, "_tried", lose_once)
    builder = tactix.Builder()
    net = builder.create_network("lost")
    (y,) = net.add_layer(
        "tactix.Softmax", [net.add_input("x", "f32", (70, 37))], axis=1, name="node"
    )
    net.mark_output(y, "y")
    config = tactix.BuilderConfig(timing_cache=tmp_path / "timings.json", threads=1)
    try:
        builder.build_plan(net, config)
    except DeviceLost as e:
        told = str(e)
    else:
        pytest.skip("one candidate alone was there, which is not raced")
    assert "node: " in told
    assert lost[0] in told
    assert "CUDA_ERROR_LAUNCH_FAILED. Build again, in a new process: it is left out" in told
    plan = builder.build_plan(net, config)
    candidates = plan.ledger["nodes"]["node"]["candidates"]
    reasons = {f"{c['tactic']} [{c['variant']}]": c.get("reason", "") for c in candidates}
    assert "lost the device" in reasons[lost[0]]
