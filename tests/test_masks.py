"""``make masks``: which masks are laid over which processor."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tactix.contracts.device import DeviceProperties
from tactix_cpu.features import MASK, V2, V3, V4

SPEC = importlib.util.spec_from_file_location("masks", Path(__file__).with_name("masks.py"))
assert SPEC
assert SPEC.loader
masks = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(masks)

RUN = {
    V4 | {"avx512_bf16"}: ["x86-64-v4", "x86-64-v3", "x86-64-v2"],
    V4: ["x86-64-v3", "x86-64-v2"],
    V3 | {"avx_vnni"}: ["x86-64-v4", "x86-64-v2"],
    V2: [],
}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Masks of the calls of pytest, none of which is made; each has kernels compiled in full."""
    found: list[str] = []

    def run(command: list[str], **options: Any) -> SimpleNamespace:
        assert options["env"][masks.FULL]
        share = options["env"].get(masks.SHARE)
        found.append(options["env"][MASK] + (f" {share}" if share else ""))
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(masks.subprocess, "run", run)
    monkeypatch.delenv(MASK, raising=False)
    return found


@pytest.mark.parametrize("here", RUN, ids=lambda f: f"{len(f)} features")
def test_a_mask_that_takes_nothing_away_is_left_out(
    here: frozenset[str],
    runs: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    properties = DeviceProperties("cpu", "some processor", frozenset(here))
    monkeypatch.setattr(masks.CpuDevice, "properties", lambda self: properties)
    assert masks.main([masks.WHOLE]) == 0
    assert runs == RUN[here]
    said = capsys.readouterr().out
    assert [m for m in masks.MASKS if f"{m}: it takes nothing away" in said] == [
        m for m in masks.MASKS if m not in runs
    ]


def test_under_each_mask_its_share_of_the_tests_runs(
    runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = DeviceProperties("cpu", "some processor", V4 | {"avx512_bf16"})
    monkeypatch.setattr(masks.CpuDevice, "properties", lambda self: properties)
    assert masks.main([]) == 0
    assert runs == [f"{mask} {share}" for mask, share in masks.MASKS.items()]


def test_masks_are_not_laid_over_another(runs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MASK, "x86-64-v3")
    assert masks.main([]) == 2
    assert runs == []


def test_what_runs_under_them_is_there() -> None:
    assert all((masks.ROOT / path).exists() for path in (*masks.PARTS, *masks.ONCE))


def test_a_share_is_the_same_tests_each_time(tmp_path: Path) -> None:
    """Together the shares are all."""
    tests = tmp_path / "test_ten.py"
    tests.write_text("import pytest\n@pytest.mark.parametrize('i', range(30))\ndef test(i): pass\n")
    (tmp_path / "conftest.py").write_text((masks.ROOT / "tests" / "conftest.py").read_text())

    def collected(share: str) -> set[str]:
        environment = {**os.environ, masks.SHARE: share, "PYTHONPATH": str(masks.ROOT / "tests")}
        command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"]
        made = subprocess.run(
            [*command, str(tests)], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        return {line for line in made.stdout.splitlines() if "::" in line}

    shares = [collected(f"{k}/3") for k in range(3)]
    assert sum(map(len, shares)) == len(set().union(*shares)) == 30
    assert collected("1/3") == shares[1]
