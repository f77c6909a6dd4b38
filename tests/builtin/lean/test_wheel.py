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
from tactix_ship.lean.shrink import shrink
from tactix_ship.lean.strip_types import without_types
from tactix_tools.cli import main

RUN = """
import json, sys
import numpy as np, tactix_lean
plan, inputs, outputs = sys.argv[1:]
with np.load(inputs) as f: feed = dict(f)
found = tactix_lean.load(plan).create_execution_context().run(feed)
np.savez(outputs, *found.values())
tops = sorted({m.partition(".")[0] for m in sys.modules} - set(sys.stdlib_module_names))
cold = [m for m in sys.modules if m.startswith(("tactix_lean.ops.layers", "tactix_lean.cuda"))]
missing = 0
for name in ("onnx", "pluggy", "tactix", "tactix_ops", "ml_dtypes", "click"):
    try: __import__(name)
    except ImportError: missing += 1
print(json.dumps([tops, cold, missing]))
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
    found, (tops, cold, missing) = run_alone(bare_python, plan, feed, tmp_path)
    assert [y.tobytes() for y in found] == [y.tobytes() for y in expected]
    assert missing == 6
    assert {"numpy", "tactix_lean"} == {t for t in tops if not t.startswith(("_", "sitecustomize"))}
    assert cold == []


@pytest.mark.parametrize(
    ("model", "source"), [("lenet", "numpy"), ("encoder", "numpy"), ("loops/greedy", "")]
)
def test_it_runs_references_and_loops(
    model: str, source: str, built: Callable[..., Any], bare_python: Path, tmp_path: Path
) -> None:
    plan, feed, expected = built(model, source=source)
    found, (_, cold, _) = run_alone(bare_python, plan, feed, tmp_path)
    assert [y.tobytes() for y in found] == [y.tobytes() for y in expected]
    assert cold


def test_it_is_small() -> None:
    assert 100_000 < wheel.installed_size() < 240_000


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
    imported = {top for tree in found.values() for top in _tops(tree)}
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
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from dataclasses import dataclass
import tactix
from tactix.base import dims
from tactix_runtime.memory_importer import MemoryImporter
if TYPE_CHECKING:
    from tactix.run.engine import Engine
NAMES: Mapping[str, int] = {}
__all__ = ["dims"]
"""Below an attribute."""
@dataclass
class Box(Sequence, MemoryImporter, tactix.Engine):
    """Doc."""
    size: int = 3  # why
    text: str = "a = b,  c"
    def grow(self, by: int = 1) -> int:
        """Doc."""
        out: int = self.size + by * -1
        return out
    def either(self, x: int) -> Any:
        if x:
            for i in (1, 2):
                x += i
        else:
            return f"{x!r:>{5}} a  b" if not x else b" x " + rb'"'
        @property
        def inner() -> str: return "'" + '"' + """ ' " """
        return inner
    def nothing(self) -> None: ...
'''
SMALL = r"""
from collections.abc import Sequence;from dataclasses import dataclass
from..import this as tactix;from..base import dims;from..runtime.memory_importer import MemoryImporter
NAMES:0={};__all__=['dims']
@dataclass
class Box(Sequence,MemoryImporter,tactix.Engine):
 size:0=3;text:0='a = b,  c'
 def grow(self,by=1):out=self.size+by*-1;return out
 def either(self,x):
  if x:
   for i in(1,2):x+=i
  else:return f'{x!r:>{5}} a  b'if not x else b' x '+b'"'
  @property
  def inner():return"'"+'"'+' \' " '
  return inner
 def nothing(self):...
"""


def test_shrinking() -> None:
    module = "tactix_cpu.launcher"
    found = shrink(module, without_types(module, ast.parse(SOURCE)))
    broken = found.replace("dataclass;from", "dataclass\nfrom", 1).replace(";NAMES", "\nNAMES", 1)
    assert broken == SMALL.lstrip()


@pytest.mark.parametrize("line", [
    """f"a {{{', '.join('b c')}}} d" """, """f"{x!r:>5}{'b  c':{w}}" """, """f"{f'{w:>{x}}, '!s:<9} e" """,
    """f"{x}, {w}" """,
])  # fmt: skip
def test_text_with_strings_inside_is_read_by_every_python(line: str) -> None:
    """Without quotes of one kind in each other, as newer versions write them."""
    found = shrink("tactix.run.engine", ast.parse(line.strip()))
    inside = [n for n in ast.walk(ast.parse(found)) if isinstance(n, ast.FormattedValue)]
    assert not any(isinstance(n.value, ast.Constant | ast.JoinedStr) for n in inside)
    assert eval(found, {"x": 3, "w": 7}) == eval(line, {"x": 3, "w": 7})


@pytest.mark.parametrize(
    "line", ["import tactix.base.dims", "import tactix as t", "import os, tactix"]
)
def test_what_cannot_be_rewritten_is_told(line: str) -> None:
    with pytest.raises(InternalError, match="cannot rewrite"):
        shrink("tactix.run.engine", ast.parse(line))


def test_annotations_that_dataclasses_read_are_told() -> None:
    with pytest.raises(InternalError, match="dataclasses look"):
        without_types("tactix.run.engine", ast.parse("class A:\n    n: ClassVar[int] = 1"))


def test_imports_that_annotations_alone_name_are_left_out() -> None:
    lines = "import os, sys\nfrom a.b import C, D, E as F, G\n__all__ = ['D']\ndef f(x: C = sys.x) -> os.X: return F"
    found = ast.unparse(without_types("tactix.run.engine", ast.parse(lines)))
    assert found.splitlines() == [
        "import sys",
        "from a.b import D, E as F",
        "__all__ = ['D']",
        "",
        "def f(x=sys.x):",
        "    return F",
    ]


def test_what_is_left_out_must_not_be_needed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "LEFT_OUT", (*modules.LEFT_OUT, "tactix.plan.container"))
    with pytest.raises(InternalError, match=r"no tactix\.plan\.container"):
        modules.closure()
