"""Replays are the same in every process, and tell which tactic's text changed, and how."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

sys.path.insert(0, str(Path(__file__).parent))

with mock.patch.dict(os.environ):  # what it sets is for a process of its own
    import replay
    import replay_networks
    import replay_texts

from tactix.contracts.artifact import KernelArtifact, Source
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Tactic, Variant

Compile = Callable[[Tactic, Node, Variant, CompileContext], KernelArtifact]
SCRIPT = Path(replay.__file__)
FEW = "family/norm"


def recorded(path: Path, seed: int) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    command = [sys.executable, str(SCRIPT), "record", str(path), "--quick"]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=600)
    body: dict[str, Any] = json.loads(path.read_text())
    return body


def tactic(name: str) -> Tactic:
    return next(t for t in replay.the_session().active_tactics() if t.key == name)


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """A record of one network, with its texts beside it."""
    path = tmp_path / "few.json"
    assert (
        replay.main(["record", str(path), "--only", FEW, "--texts", str(tmp_path / "few.gz")]) == 0
    )
    return path


def test_two_processes_record_the_same(tmp_path: Path) -> None:
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    first, second = recorded(a, 1), recorded(b, 2)
    assert first == second
    assert replay.main(["compare", str(a), str(b)]) == 0
    digests, identifiers = first["digests"], first["identifiers"]
    assert {k.split(" | ")[1] for k in digests if not k.startswith("preludes")} == {
        t.name for t in replay.TARGETS
    }
    assert {k.split(" | ")[0] for k in digests} == {*replay_networks.QUICK, "preludes"}
    for kind in (
        "c_gemm@1",
        "c_gemm_amx@1",
        "cuda_hopper_gemm@1",
        "cuda_tf32_gemm@1",
        "c_int8_gemm@1",
    ):
        assert any(f" | {kind} | " in k for k in digests), kind
        assert identifiers["tactic"][f"tactix.{kind}"] > 0


def test_a_text_that_changed_is_told_with_its_tactic_and_its_lines(
    few: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line more in one tactic's kernels: nothing else changes but the plans that have it."""
    changed = type(tactic("tactix.c_norm@1"))
    plain: Compile = changed.compile

    def longer(self: Tactic, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        made = plain(self, node, variant, ctx)
        assert isinstance(made.code, Source)
        return replace(made, code=replace(made.code, text=made.code.text + "// one line more\n"))

    monkeypatch.setattr(changed, "compile", longer)
    assert (
        replay.main(["compare", str(few), "--texts", str(few.with_suffix(".gz")), "--show", "100"])
        == 1
    )
    told = capsys.readouterr().out
    assert "+// one line more" in told
    keys = [
        line.removeprefix("  changed: ")
        for line in told.split("\n")
        if line.startswith("  changed: ")
    ]
    assert {replay._subject(k) for k in keys} == {"c_norm@1", "plan"}
    assert all("x86-64" in k for k in keys)


def test_an_estimate_that_changed_is_told(few: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(tactic("tactix.c_norm@1")), "cost", lambda *arguments: 1.0)
    assert replay.main(["compare", str(few)]) == 1


def test_a_tactic_of_another_pack_and_module_has_moved(
    few: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its key is told; its texts and the plans that name it are the same."""
    monkeypatch.setattr(type(tactic("tactix.c_norm@1")), "key", "tactix_cpu.c_norm@1")
    assert replay.main(["compare", str(few)]) == 0
    told = capsys.readouterr().out
    assert "tactic tactix.c_norm@1" in told
    assert "tactic tactix_cpu.c_norm@1: 0 ->" in told
    assert " 0 changed" in told


def test_what_has_another_name_is_no_change_of_text() -> None:
    old = {
        "n | t | fp32 | a | x@1 | v": "1",
        "n | t | fp32 | b | x@1 | v": "2",
        "n | t | fp32 | c": "3",
    }
    new = {
        "n | t | fp32 | a | y@1 | v": "1",
        "n | t | fp32 | b | x@1 | v": "9",
        "n | t | fp32 | d": "4",
    }
    found = replay.difference(old, new)
    assert found.changed == ["n | t | fp32 | b | x@1 | v"]
    assert found.moved == [("n | t | fp32 | a | x@1 | v", "n | t | fp32 | a | y@1 | v")]
    assert (found.gone, found.come) == (["n | t | fp32 | c"], ["n | t | fp32 | d"])
    assert not replay.difference(old, old)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ('launcher: "tactix.cpu.elf@1"', 'launcher: "elf@1"'),
        ("tactix_cpu.elf@1 [unroll=2]", "elf@1 [unroll=2]"),
        ("of tactix_cuda.bench, or so", "of <module>, or so"),
        ("void tactix_kernel(float x) { x.y; }", "void tactix_kernel(float x) { x.y; }"),
    ],
)
def test_keys_and_paths_of_modules_are_no_part_of_a_text(text: str, want: str) -> None:
    assert replay_texts.neutral(text) == want


def test_models_that_are_not_there_are_told(
    few: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    body = json.loads(few.read_text())
    body["digests"]["exported/mlp | sm_80 | fp32 | plan"] = "0"
    body["digests"]["preludes | 1"] = "1"
    body["scope"]["only"] = "*/norm"
    few.write_text(json.dumps(body))
    assert replay.main(["compare", str(few), "--models", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert "not compared: exported/mlp" in told.out
    assert "left out: exported/gpt2" in told.err


def test_a_file_that_is_no_record_ends_it(tmp_path: Path) -> None:
    path = tmp_path / "no.json"
    path.write_text('{"replay": 0}')
    with pytest.raises(SystemExit, match="no record of version 1"):
        replay.main(["compare", str(path)])
    with pytest.raises(SystemExit, match="no record"):
        replay.main(["compare", str(tmp_path / "none.json")])


def test_its_help_says_what_it_compares(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        replay.main(["record", "--help"])
    assert "--models DIR" in capsys.readouterr().out
