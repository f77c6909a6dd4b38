"""Imports go down only, and the core knows no operator and no vendor. Held over every import
statement there is.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
from source_imports import Import, imports

CORE = Path(__file__).resolve().parents[2] / "core" / "tactix"

BASE = frozenset({"base"})
CONTRACTS = BASE | {"contracts"}
PLUGINS = CONTRACTS | {"plugins"}
NETWORK = PLUGINS | {"network"}
FUSE = NETWORK | {"fuse"}
PLAN = PLUGINS | {"plan"}
MAY_IMPORT = {
    "base": BASE,
    "contracts": CONTRACTS,
    "plugins": PLUGINS,
    "network": NETWORK,
    "fuse": FUSE,
    "select": FUSE | {"select"},
    "plan": PLAN,
    "run": PLAN | {"run"},
    "config": FUSE | PLAN | {"select", "run", "config"},
    "pipeline": FUSE | PLAN | {"select", "run", "config", "pipeline"},
}
LIBRARIES = {
    "numpy", "ml_dtypes", "pluggy", "importlib_metadata", "click", "rich", "filelock", "platformdirs"
}  # fmt: skip
LAZY = {"numpy", "ml_dtypes", "rich", "filelock", "platformdirs"}


def floor_of(module: str) -> str:
    """The floor of a module of the core; files directly in the package are the roof."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in MAY_IMPORT else "roof"


def violations(source: str, module: str) -> list[str]:
    """What a file of the core imports and must not."""
    floor, out = floor_of(module), []
    for found in imports(ast.parse(source), module.rpartition(".")[0]):
        where = f"{module}:{found.line}"
        if not _may_import(floor, found):
            out.append(f"{where} imports {found.name}")
        if found.top == "pluggy" and floor != "plugins":
            out.append(f"{where} imports pluggy outside the plugins floor")
    return out


def _may_import(floor: str, found: Import) -> bool:
    if found.top != "tactix":
        return found.top in sys.stdlib_module_names or found.top in LIBRARIES
    if floor == "roof" or found.name == "tactix.__version__":
        return True
    return floor_of(found.name) in MAY_IMPORT[floor]


def eager(source: str) -> list[str]:
    """Libraries that a file imports when it is itself imported."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or (
            isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        ):
            node.body = [ast.Pass()]
    return sorted({found.top for found in imports(tree, "")} & LAZY)


FILES = sorted(CORE.rglob("*.py"))


def module_of(path: Path) -> str:
    parts = path.relative_to(CORE.parent).with_suffix("").parts
    return ".".join(parts)


def test_there_is_a_core() -> None:
    floors = {floor_of(module_of(p)) for p in FILES}
    assert {"base", "contracts", "plugins"} <= floors
    folders = {p.parent.name for p in CORE.glob("*/*.py")}
    assert folders <= set(MAY_IMPORT), "every folder of the core is a floor"


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_imports_go_down_only(path: Path) -> None:
    assert violations(path.read_text(encoding="utf-8"), module_of(path)) == []


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_libraries_are_imported_inside_functions(path: Path) -> None:
    assert eager(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [("tactix.base.dims", "from tactix.contracts import layer"),
     ("tactix.base.dims", "import tactix.contracts.layer"),
     ("tactix.base.dims", "from ..contracts.layer import Layer"),
     ("tactix.contracts.tool", "from tactix import plugins"),
     ("tactix.contracts.tool", "import tactix\ndef f():\n    return tactix.build"),
     ("tactix.contracts.tool", "import tactix as everything"),
     ("tactix.contracts.tool", "from tactix.config import BuilderConfig"),
     ("tactix.plugins.session", "def f():\n    from tactix.network.definition import NetworkDefinition"),
     ("tactix.network.verify", "if TYPE_CHECKING:\n    from tactix.fuse.trace import Trace"),
     ("tactix.plan.schema", "from tactix.network.definition import NetworkDefinition"),
     ("tactix.run.engine", "from tactix.select.bench import Bench"),
     ("tactix.config", "from tactix.pipeline.state import BuildState"),
     ("tactix.select.bench", "from tactix.config import BuilderConfig"),
     ("tactix.pipeline.select", "from tactix.builder import Builder"),
     ("tactix.run.engine", "importlib.import_module('tactix.fuse.rewrite')"),
     ("tactix.plan.schema", "from tactix.run.engine import Engine"),
     ("tactix.builder", "import tactix_ops"),
     ("tactix.builder", "def f():\n    from tactix_sdk import Layer"),
     ("tactix.network.definition", "import onnx"),
     ("tactix.run.engine", "from cuda.bindings import driver"),
     ("tactix.base.dims", "import pluggy")],
)  # fmt: skip
def test_the_check_sees(module: str, source: str) -> None:
    assert len(violations(source, module)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [("tactix.plugins.session", "import pluggy\nfrom tactix import __version__ as v\nfrom tactix.base import dims"),
     ("tactix.run.engine", "from tactix.plan.schema import Plan\nimport ctypes, numpy\nfrom . import context"),
     ("tactix.builder", "import tactix\nfrom tactix.select.bench import Bench\ntactix.build()"),
     ("tactix.run.engine", "import tactix\nv = tactix.__version__")],
)  # fmt: skip
def test_the_check_lets_pass(module: str, source: str) -> None:
    assert violations(source, module) == []


def test_the_check_of_eager_imports() -> None:
    assert eager("import numpy as np\nclass A:\n    from ml_dtypes import bfloat16") == [
        "ml_dtypes",
        "numpy",
    ]
    lazy = "if TYPE_CHECKING:\n    import numpy\nclass A:\n    def g(self):\n        import rich"
    assert eager(lazy) == []
