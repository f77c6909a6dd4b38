"""The timing cache file: merge, damage, versions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tactix.select.timing_cache import Timing, TimingCache
from tactix.words.errors import TimingCacheError


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


def test_rows_of_earlier_versions_were_not_delayed(tmp_path: Path) -> None:
    path = tmp_path / "timings.json"
    path.write_text('{"version": 1, "timings": {"a": [1.0, 0.5, 0.25]}}')
    assert TimingCache(path).get("a") == Timing(1.0, 0.5, 0.25, 0.0)
