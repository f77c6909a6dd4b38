"""The timing cache file: merge, damage, versions."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from kept_log import KeptLog

import tactix
from tactix.base.errors import TimingCacheError
from tactix.base.logger import Logger
from tactix.plan.schema import Plan
from tactix.select.timing_cache import Timing, TimingCache, default_path


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
    "text",
    ["", "{", "[]", '{"version": 99, "timings": {}}', '{"version": 1, "timings": {"a": [1]}}'],
)
def test_a_damaged_file_costs_a_warning(tmp_path: Path, text: str) -> None:
    """And is whole again after the build."""
    path = tmp_path / "timings.json"
    path.write_text(text)
    heard = KeptLog()
    assert len(built(heard, path).steps) == 1
    (warning,) = (w for w in heard.warnings if "timings.json: cannot read the timing cache" in w)
    assert "is measured again" in warning
    assert TimingCache(path, warn=pytest.fail).entries


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    """A device may have no end."""
    warnings: list[str] = []
    assert TimingCache(os.devnull, warn=warnings.append).entries == {}
    (warning,) = warnings
    assert "that is no regular file" in warning


@pytest.mark.parametrize(
    "row",
    [
        [-1.0, 0, 0, 0], [float("nan"), 0, 0, 0], [float("inf"), 0, 0, 0], [1, -1, 0, 0], [1, float("inf"), 0, 0],
        [1, 0, float("nan"), 0], [1, 0, -1, 0], [1, 0, 0, float("nan")], [1, 0, 0, -0.5], [1, 0, 0, float("inf")],
    ],
)  # fmt: skip
def test_times_that_nobody_can_have_measured_are_none(tmp_path: Path, row: list[float]) -> None:
    path = tmp_path / "timings.json"
    rows = {"odd": row, "right": [1.0, 0.0, 0.0, 0.0], "wrong": [float("inf"), 0.0, 3.0, 0.0]}
    path.write_text(json.dumps({"version": 1, "timings": rows}))
    assert TimingCache(path, warn=pytest.fail).entries.keys() == {"right", "wrong"}


@pytest.mark.skipif(os.name != "posix", reason="users have no numbers here")
@pytest.mark.parametrize("change", ["owner", "group", "world"])
def test_the_users_own_file_is_nobody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setenv("TACTIX_CACHE_DIR", str(tmp_path / "deep" / "cache"))
    path = default_path()
    cache = TimingCache(path, private=True)
    cache.put("a", Timing(1.0, 0.0, 0.0))
    cache.save()
    assert [stat.S_IMODE(os.stat(p).st_mode) for p in (path, path.parent, path.parent.parent)] == [
        0o600,
        0o700,
        0o700,
    ]
    assert TimingCache(path, private=True, warn=pytest.fail).entries
    if change == "owner":
        of_another_user(monkeypatch)
    else:
        path.chmod(0o620 if change == "group" else 0o602)
    heard = KeptLog()
    foreign = TimingCache(path, private=True, warn=heard.warning)
    assert foreign.entries == {}
    assert "others own it or can write it" in heard.warnings[0]
    assert TimingCache(path, warn=pytest.fail).entries, "who names a file answers for it"


def of_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if files that are open were of a user who is neither this one nor root."""
    real, user = os.fstat, os.geteuid() + 1

    def fstat(descriptor: int) -> os.stat_result:
        found = list(real(descriptor))
        found[stat.ST_UID] = user
        return os.stat_result(found)

    monkeypatch.setattr(os, "fstat", fstat)


def test_nothing_new_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "timings.json"
    TimingCache(path).save()
    assert not path.exists()
    cache = TimingCache(path)
    cache.put("a", Timing(1.0, 0.0, 0.0))
    cache.save()
    assert json.loads(path.read_text())["timings"] == {"a": [1.0, 0.0, 0.0, 0.0]}


@pytest.mark.compiler
def test_a_cache_that_cannot_be_written_costs_a_warning_not_the_build(tmp_path: Path) -> None:
    """The folder of the cache is a file."""
    (tmp_path / "file").write_bytes(b"")
    path = tmp_path / "file" / "timings.json"
    cache = TimingCache(path)
    cache.put("a", Timing(1.0, 0.0, 0.0))
    with pytest.raises(TimingCacheError, match=r"timings\.json: cannot write.* Name another file"):
        cache.save()
    heard = KeptLog()
    assert len(built(heard, path).steps) == 1
    assert [w for w in heard.warnings if "timings.json: cannot write the timing cache" in w]
    assert os.listdir(tmp_path) == ["file"]


def built(logger: Logger, path: Path) -> Plan:
    builder = tactix.Builder(logger)
    network = builder.create_network("small")
    x = network.add_input("x", "f32", (8, 8))
    network.mark_output(network.add_layer("tactix.Softmax", [x], axis=1)[0], "y")
    return builder.build_plan(
        network, tactix.BuilderConfig(builder_optimization_level=1, timing_cache=path)
    )


def test_rows_of_earlier_versions_were_not_delayed(tmp_path: Path) -> None:
    path = tmp_path / "timings.json"
    path.write_text('{"version": 1, "timings": {"a": [1.0, 0.5, 0.25]}}')
    assert TimingCache(path).get("a") == Timing(1.0, 0.5, 0.25, 0.0)
