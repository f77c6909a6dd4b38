"""The lean runtime as a wheel: what is in it, that it is the same every time, and that it runs
plans alone.
"""

from __future__ import annotations

import ast
import importlib
import io
import json
import os
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tactix_sdk
from tactix.base.errors import InternalError
from tactix.contracts.flavour import TempfileControlFlag
from tactix_runtime import lean_runtime
from tactix_ship.lean import modules, wheel
from tactix_ship.lean.text import lean_text
from tactix_tools.cli import main

RUN = """
import json, sys
import numpy as np, tactix_lean
plan, inputs, outputs = sys.argv[1:]
with np.load(inputs) as f: feed = dict(f)
found = tactix_lean.load(plan).create_execution_context().run(feed)
np.savez(outputs, *found.values())
tops = sorted({m.partition(".")[0] for m in sys.modules} - set(sys.stdlib_module_names))
rare = [m for m in sys.modules if m.startswith(("tactix_lean.ops.layers", "tactix_lean.cuda"))]
missing = 0
for name in ("onnx", "pluggy", "tactix", "tactix_ops", "ml_dtypes", "click"):
    try: __import__(name)
    except ImportError: missing += 1
print(json.dumps([tops, rare, missing]))
"""


def run_alone(
    python: Path, plan: Path, feed: dict[str, np.ndarray], folder: Path
) -> tuple[list[np.ndarray], list[Any]]:
    """Results in the bare interpreter, and what it imported."""
    np.savez(folder / "in.npz", **feed)  # type: ignore[arg-type]
    command = [
        str(python),
        "-I",
        "-c",
        RUN,
        str(plan),
        str(folder / "in.npz"),
        str(folder / "out.npz"),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    with np.load(folder / "out.npz") as f:
        return list(f.values()), json.loads(done.stdout)


@pytest.mark.parametrize("model", ["mlp", "lenet", "gru"])
def test_it_runs_compiled_plans(
    model: str, built: Callable[..., Any], bare_python: Path, tmp_path: Path
) -> None:
    plan, feed, expected = built(model)
    found, (tops, rare, missing) = run_alone(bare_python, plan, feed, tmp_path)
    assert [y.tobytes() for y in found] == [y.tobytes() for y in expected]
    assert missing == 6
    assert {"numpy", "tactix_lean"} == {t for t in tops if not t.startswith(("_", "sitecustomize"))}
    assert rare == []


@pytest.mark.parametrize(
    ("model", "source"), [("lenet", "numpy"), ("encoder", "numpy"), ("loops/greedy", "")]
)
def test_it_runs_references_and_loops(
    model: str, source: str, built: Callable[..., Any], bare_python: Path, tmp_path: Path
) -> None:
    plan, feed, expected = built(model, source=source)
    found, (_, rare, _) = run_alone(bare_python, plan, feed, tmp_path)
    assert [y.tobytes() for y in found] == [y.tobytes() for y in expected]
    assert rare


def test_it_is_small() -> None:
    assert 300_000 < wheel.installed_size() < 1_080_000
    assert len(wheel.wheel()) < 380_000


def test_the_same_sources_give_the_same_bytes() -> None:
    assert wheel.made() == wheel.wheel()


def test_it_is_made_once_of_the_same_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    another_process, calls = wheel.wheel.__wrapped__, list[str]()
    monkeypatch.setenv("TACTIX_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(wheel, "made", lambda: calls.append("made") or b"a wheel")
    assert another_process() == another_process() == b"a wheel"
    assert calls == ["made"]
    (tmp_path / "tactix").mkdir()
    (tmp_path / "tactix" / "changed.py").write_text("x = 1\n")
    monkeypatch.setattr(wheel, "source_folder", lambda top: tmp_path / "tactix")
    assert another_process() == b"a wheel"
    assert calls == ["made"] * 2


def test_every_file_is_recorded() -> None:
    with zipfile.ZipFile(io.BytesIO(wheel.wheel())) as z:
        (record,) = [n for n in z.namelist() if n.endswith("RECORD")]
        rows = dict(line.split(",", 1) for line in z.read(record).decode().splitlines())
        assert rows.keys() == set(z.namelist())
        assert all(
            rows[i.filename].endswith(f",{i.file_size}")
            for i in z.infolist()
            if i.filename != record
        )


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lean-wheel", "--out", str(tmp_path / "new"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert Path(facts["wheel"]).read_bytes() == wheel.wheel()
    assert facts["installed_bytes"] == wheel.installed_size()


def test_what_is_in_it() -> None:
    found = modules.closure()
    assert {"tactix.run.engine", "tactix_cpu.launcher", "tactix_ops.layers.rnn"} <= found.keys()
    strangers = (
        "tactix.network",
        "tactix_cpu.levels",
        "tactix_trust.key_exchange",
        "tactix.fuse",
        "tactix.select",
        "tactix.builder",
        "tactix_cpu.tactics",
    )
    assert not [m for m in found if modules.within(m, strangers)]
    imported = {top for source in found.values() for top in _tops(ast.parse(source))}
    assert not imported & {"onnx", "pluggy", "click", "rich"}


def test_a_pack_finds_the_whole_sdk() -> None:
    package = lean_runtime.admit(
        lean_runtime.unpack(wheel.wheel()), TempfileControlFlag.ALLOW_IN_MEMORY_FILES, None
    )
    lean = importlib.import_module(f"{package.__name__}.sdk")
    for name in tactix_sdk.__all__:
        ours, theirs = getattr(tactix_sdk, name), getattr(lean, name)
        if str(getattr(ours, "__module__", "")).startswith("tactix"):
            assert theirs.__module__.startswith(f"{package.__name__}."), name
        if name != "hookimpl":
            assert type(theirs).__name__ == type(ours).__name__, name
            assert getattr(theirs, "__qualname__", "") == getattr(ours, "__qualname__", ""), name
    with pytest.raises(ImportError, match="nothing"):
        exec(f"from {lean.__name__} import nothing")


def _tops(tree: ast.AST) -> set[str]:
    plain = {
        a.name.partition(".")[0]
        for n in ast.walk(tree)
        if isinstance(n, ast.Import)
        for a in n.names
    }
    return plain | {
        (n.module or "").partition(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)
    }


SOURCE = r'''"""Doc."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import tactix
from tactix.base import dims
from tactix_cpu.launcher import (
    ElfLauncher,  # why
)

if TYPE_CHECKING:
    from tactix.run.engine import Engine

NAMES: dict[str, int] = {}
"""Below an attribute, over
two lines."""


class Box(ElfLauncher, tactix.Engine):
    """Doc."""

    size: ClassVar[int] = 3  # why

    def grow(self, by: int = 1) -> str:
        """Doc."""
        from tactix_runtime.memory_importer import MemoryImporter

        return f"{', '.join('a  b')}" + """ no docstring """


class Nothing(Box):
    """Doc."""
'''
LEAN = r'''
from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .. import this as tactix
from ..base import dims
from ..cpu.launcher import (
    ElfLauncher,  # why
)

if TYPE_CHECKING:
    from ..run.engine import Engine

NAMES: dict[str, int] = {}


class Box(ElfLauncher, tactix.Engine):

    size: ClassVar[int] = 3  # why

    def grow(self, by: int = 1) -> str:
        from ..runtime.memory_importer import MemoryImporter

        return f"{', '.join('a  b')}" + """ no docstring """


class Nothing(Box):
    pass
'''


def test_modules_are_as_they_are_written() -> None:
    assert lean_text("tactix_cpu.launcher", SOURCE) == LEAN


def test_every_module_is_the_code_that_was_written() -> None:
    """But for docstrings and the way to a module, in every one of them."""
    for module, source in modules.closure().items():
        found, written = ast.parse(lean_text(module, source)), ast.parse(source)
        assert _without_texts(found) == _without_texts(written), module


def _without_texts(tree: ast.AST) -> list[str]:
    """Its statements without those that stand for docstrings, and imports by their names alone."""
    code = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            code.append(" ".join(a.asname or a.name for a in node.names))
        elif isinstance(node, ast.stmt) and not hasattr(node, "body"):
            text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            code += [] if text or isinstance(node, ast.Pass) else [ast.dump(node)]
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            code.append(node.name)
    return sorted(code)


@pytest.mark.parametrize(
    "line", ["import tactix.base.dims", "import tactix as t", "import os, tactix"]
)
def test_what_cannot_be_rewritten_is_told(line: str) -> None:
    with pytest.raises(InternalError, match="cannot rewrite"):
        lean_text("tactix.run.engine", f"x = 1\n{line}\n")


def test_what_types_alone_name_is_not_in_it() -> None:
    lines = "if TYPE_CHECKING:\n    import tactix.builder\nelse:\n    import tactix.base.dims"
    assert list(modules.imported(ast.parse(lines))) == ["tactix.base.dims"]


def test_what_is_left_out_must_not_be_needed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "LEFT_OUT", (*modules.LEFT_OUT, "tactix.plan.container"))
    with pytest.raises(InternalError, match=r"no tactix\.plan\.container"):
        modules.closure()
