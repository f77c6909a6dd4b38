"""The timing cache file: merge, damage, versions."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import tactix
from tactix.select.timing_cache import Timing, TimingCache
from tactix.words.errors import TimingCacheError
from tactix.words.logger import Logger, Severity


def test_what_was_put_is_found_by_another_process_and_old_entries_stay(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "timings.json"
    first, second = TimingCache(path), TimingCache(path)
    first.put("a", Timing(1e-6, 0.1, 0.2))
    second.put("b", Timing(float("inf"), 0.0, 7.0))
    first.save()
    second.save()
    found = TimingCache(path)
    assert found.get("a") == Timing(1e-6, 0.1, 0.2)
    assert found.get("b") == Timing(float("inf"), 0.0, 7.0)
    assert found.get("c") is None
    assert (found.hits, found.misses) == (2, 1)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 99, "timings": {}}', '{"version": 1, "timings": {"a": [1]}}']
)
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "timings.json"
    path.write_text(text)
    with pytest.raises(TimingCacheError, match=r"timings\.json"):
        TimingCache(path)


def test_nothing_new_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "timings.json"
    TimingCache(path).save()
    assert not path.exists()
    cache = TimingCache(path)
    cache.put("a", Timing(1.0, 0.0, 0.0))
    cache.save()
    assert json.loads(path.read_text())["timings"] == {"a": [1.0, 0.0, 0.0, 0.0]}


def test_a_cache_that_cannot_be_written_costs_a_warning_not_the_build(tmp_path: Path) -> None:
    """The folder of the cache is a file."""
    (tmp_path / "file").write_bytes(b"")
    path = tmp_path / "file" / "timings.json"
    cache = TimingCache(path)
    cache.put("a", Timing(1.0, 0.0, 0.0))
    with pytest.raises(TimingCacheError, match=r"timings\.json: cannot write"):
        cache.save()
    heard = Heard()
    builder = tactix.Builder(heard)
    network = builder.create_network("small")
    x = network.add_input("x", "f32", (8, 8))
    network.mark_output(network.add_layer("tactix.Softmax", [x], axis=1)[0], "y")
    plan = builder.build_plan(network, tactix.BuilderConfig(builder_optimization_level=1, timing_cache=path))
    assert len(plan.steps) == 1
    assert [w for w in heard.warnings if "timings.json: cannot write the timing cache" in w]
    assert os.listdir(tmp_path) == ["file"]


class Heard(Logger):
    def __init__(self) -> None:
        super().__init__()
        self.warnings: list[str] = []

    def log(self, severity: Severity, msg: str) -> None:
        if severity <= Severity.WARNING:
            self.warnings.append(msg)


def test_rows_of_earlier_versions_were_not_delayed(tmp_path: Path) -> None:
    path = tmp_path / "timings.json"
    path.write_text('{"version": 1, "timings": {"a": [1.0, 0.5, 0.25]}}')
    assert TimingCache(path).get("a") == Timing(1.0, 0.5, 0.25, 0.0)
