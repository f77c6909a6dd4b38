"""What a build, an engine and a context tell the log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from kept_log import KeptLog

import tactix
from tactix.base.errors import ModelImportError, ShapeError, TactixError
from tactix.base.logger import LogEvent, Logger, Severity
from tactix.run.engine import Engine

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
MEMORY = re.compile(
    r"\[MemUsageChange\] (Init|End) (.+): CPU [+-]\d+, GPU [+-]\d+, now: CPU \d+, GPU \d+ \(MiB\)"
)


@dataclass(frozen=True)
class Built:
    log: KeptLog
    engine: Engine


@pytest.fixture(scope="module")
def built() -> Built:
    """Without compiling: by estimates, of what numpy runs."""
    log = KeptLog()
    engine = tactix.build(
        DIGITS, logger=log, builder_optimization_level=0, tactic_sources={"numpy", "view"}
    )
    engine(np.zeros((1, 1, 8, 8), np.float32))
    return Built(log, engine)


def test_each_rule_has_a_line_and_each_fusion_another(built: Built) -> None:
    fired = built.engine.plan.ledger["fusion"]["fired"]
    rules = built.log.named("rule")
    assert {e.fields["rule"]: e.fields["count"] for e in rules} == built.engine.plan.ledger["rules"]
    assert all(len(e.fields["nodes"]) <= 3 for e in rules)  # type: ignore[arg-type]
    most = max(rules, key=lambda e: e.fields["count"])  # type: ignore[arg-type, return-value]
    assert f"{most.fields['count']} times" in most.text
    assert "more" in most.text
    told = built.log.named("fusion")
    assert [(e.fields["rule"], list(e.fields["removed"])) for e in told] == [  # type: ignore[call-overload]
        (row["rule"], row["removed"]) for row in fired
    ]
    heard = built.log.of(Severity.INFO), built.log.of(Severity.VERBOSE)
    assert rules[0].text in heard[0]
    assert told[0].text in heard[1]


def test_each_node_says_what_runs_it_and_why_not_others(built: Built) -> None:
    told = {str(e.fields["node"]): e for e in built.log.named("tactic")}
    nodes = built.engine.plan.ledger["nodes"]
    assert told.keys() == nodes.keys()
    for name, row in nodes.items():
        chosen = next(c for c in row["candidates"] if c["chosen"])
        assert told[name].fields["tactic"] == chosen["tactic"]
        assert told[name].fields["seconds"] == chosen["seconds"]
        lost = {r["reason"] for r in row["rejections"]}
        others = told[name].fields["others"]
        assert {o.partition(": ")[2] for o in others} == lost  # type: ignore[attr-defined]


def test_memory_is_told_at_both_ends_of_builds_engines_and_contexts(built: Built) -> None:
    found = [MEMORY.fullmatch(x) for x in built.log.lines if x.startswith("[MemUsageChange]")]
    assert [(m[1], m[2]) for m in found if m] == [
        (phase, f"{what} of digits")
        for what in ("build", "engine", "context")
        for phase in ("Init", "End")
    ]
    assert len(built.log.named("context_memory")) == 1
    (weights,) = built.log.named("weights")
    assert weights.fields["bytes"] == built.log.named("engine_weights")[0].fields["bytes"]
    (pool,) = built.log.named("pool")
    assert (pool.fields["bytes"], pool.fields["limit"]) == (0, None)


def test_nothing_is_made_of_what_nobody_hears() -> None:
    class Deaf(Logger):
        """Hears warnings alone, and keeps what it is told even so."""

        def __init__(self) -> None:
            super().__init__()
            self.told: list[LogEvent] = []

        def tell(self, severity: Severity, event: LogEvent) -> None:
            self.told.append(event)

    deaf = Deaf()
    tactix.build(DIGITS, logger=deaf, builder_optimization_level=0, tactic_sources={"numpy"})
    assert {e.name for e in deaf.told} <= {"built", "engine_weights", "context_memory"}


def test_an_error_of_a_run_is_logged_once(built: Built) -> None:
    before = len(built.log.of(Severity.ERROR))
    with pytest.raises(ShapeError):
        built.engine(np.zeros((1, 1, 8, 7), np.float32))
    assert len(built.log.of(Severity.ERROR)) == before + 1


def test_an_error_of_an_import_is_kept_or_logged(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.onnx"
    wrong.write_bytes(b"no model")
    log, recorder = KeptLog(), tactix.ErrorRecorder()
    with pytest.raises(ModelImportError):
        tactix.Builder(log).import_model(wrong)
    assert len(log.of(Severity.ERROR)) == 1
    with pytest.raises(ModelImportError):
        tactix.Builder(log, error_recorder=recorder).import_model(wrong)
    assert (len(log.of(Severity.ERROR)), recorder.num_errors()) == (1, 1)


def test_a_cached_plan_that_does_not_fit_is_no_error(tmp_path: Path) -> None:
    log = KeptLog()
    options = {"builder_optimization_level": 0, "tactic_sources": {"numpy", "view"}}
    tactix.load_or_build(DIGITS, cache=tmp_path, logger=log, **options)
    (kept,) = tmp_path.glob("*.plan")
    kept.write_bytes(b"damaged")
    tactix.load_or_build(DIGITS, cache=tmp_path, logger=log, **options)
    assert not log.of(Severity.ERROR)
    assert any("is built again" in text for text in log.of(Severity.WARNING))


def test_an_engine_reports_to_the_recorder_of_its_builder() -> None:
    recorder = tactix.ErrorRecorder()
    builder = tactix.Builder(error_recorder=recorder)
    config = tactix.BuilderConfig(builder_optimization_level=0, tactic_sources={"numpy", "view"})
    engine = builder.build(builder.import_model(DIGITS), config)
    with pytest.raises(TactixError):
        engine(np.zeros((1, 1, 8, 7), np.float32))
    assert recorder.num_errors() == 1
