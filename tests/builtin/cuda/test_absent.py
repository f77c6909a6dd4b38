"""Builds for a GPU that is not here: what is compiled, what is chosen by estimate, what errors say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tactix
from tactix.base.errors import ConfigError, NoTacticError, TimingCacheError
from tactix.base.logger import Logger
from tactix.base.progress import SilentProgress
from tactix.config import BuilderFlag
from tactix.select.measure import BY_ESTIMATE
from tactix_cuda.nvrtc import NvrtcCompiler, why_missing
from tactix_tools.check import Heard

TARGET = "sm_120"
needs_nvrtc = pytest.mark.skipif(bool(why_missing()), reason=why_missing())


class Watched(SilentProgress):
    def __init__(self) -> None:
        self.totals: list[tuple[str, int]] = []

    def phase(self, name: str, total: int) -> None:
        self.totals.append((name, total))


def build(logger: Logger | None = None, **fields: Any) -> tactix.Plan:
    """Of one product, which several variants of several tactics bid for."""
    builder = tactix.Builder(logger)
    net = builder.create_network("product")
    x, w = net.add_input("x", "f16", (64, 128)), net.add_input("w", "f16", (128, 96))
    net.mark_output(net.add_layer("tactix.MatMul", [x, w], name="product")[0], "y")
    given = {"timing_cache": False, "target": TARGET, **fields}
    return builder.build_plan(net, tactix.BuilderConfig(device="tactix.cuda@1", **given))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many sources each call of the compiler got."""
    counts: list[int] = []
    own = NvrtcCompiler.compile
    monkeypatch.setattr(
        NvrtcCompiler, "compile", lambda self, s, d: counts.append(len(s)) or own(self, s, d)
    )
    return counts


@needs_nvrtc
def test_only_what_is_chosen_is_compiled(compiled: list[int]) -> None:
    heard, watched = Heard(), Watched()
    plan = build(heard, progress_monitor=watched)
    assert len(plan.ledger["nodes"]["product"]["candidates"]) > 1
    assert compiled == [1]
    assert ("compile", 0) in watched.totals
    assert heard.warnings == [
        f"{TARGET} (RTX 5090) is not here; different layers chosen by estimate: 1. {BY_ESTIMATE}"
    ]


@needs_nvrtc
def test_a_frozen_build_names_the_device_whose_timings_are_missing(tmp_path: Path) -> None:
    with pytest.raises(
        TimingCacheError,
        match=r"product: .* missing for sm_120 \(RTX 5090\), the first is tactix\.",
    ):
        build(frozen=True, timing_cache=tmp_path / "timings.json")


def test_without_a_compiler_nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NvrtcCompiler, "available", lambda self: "no such compiler")
    with pytest.raises(ConfigError, match="nothing can be compiled for cuda: no such compiler"):
        build()


def test_what_no_kernel_can_do_runs_on_the_host_unless_that_is_forbidden() -> None:
    builder = tactix.Builder()
    net = builder.create_network("det")
    net.mark_output(
        net.add_layer("tactix.Det", [net.add_input("x", "f32", (4, 4))], name="det")[0], "y"
    )
    config = tactix.BuilderConfig(device="tactix.cuda@1", target=TARGET, timing_cache=False)
    plan = builder.build_plan(net, config)
    assert [s.artifact.launcher for s in plan.steps] == ["tactix.cuda.host@1"]
    assert [c["crosses"] for c in plan.ledger["nodes"]["det"]["candidates"] if c["chosen"]] == [
        True
    ]
    config.flags |= {BuilderFlag.GPU_FALLBACK, BuilderFlag.NO_FALLBACK}
    with pytest.raises(
        NoTacticError, match=r"det \(tactix.Det@1\): only the reference could run it: .*NO_FALLBACK"
    ):
        builder.build_plan(net, config)
