"""What each built-in pack may import: the floors below it, and what is offered to it; over every
import there is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

TREE = Path(__file__).resolve().parents[2]
ROOTS = (TREE / "plugin_sdk", TREE / "plugins_builtin")

GROUND = frozenset({"tactix", "tactix_codegen", "tactix_sdk"})
MEANING = GROUND | {"tactix_ops"}
MAY_IMPORT: dict[str, frozenset[str]] = {
    "tactix_codegen": frozenset({"tactix"}),
    "tactix_sdk": frozenset({"tactix", "tactix_codegen"}),
    "tactix_ops": GROUND,
    "tactix_onnx": MEANING,
    "tactix_trust": GROUND,
    "tactix_refit": MEANING,
    "tactix_lock": GROUND,
    "tactix_isolate": MEANING,
    "tactix_cpu": MEANING | {"tactix_trust", "tactix_isolate"},
    "tactix_cuda": MEANING | {"tactix_trust"},
    "tactix_cublaslt": GROUND | {"tactix_cuda"},
    "tactix_cudnn": GROUND | {"tactix_cuda", "tactix_trust"},
    "tactix_runtime": MEANING | {"tactix_refit"},
    "tactix_ship": MEANING
    | {
        "tactix_cpu",
        "tactix_cuda",
        "tactix_cublaslt",
        "tactix_cudnn",
        "tactix_runtime",
        "tactix_trust",
    },
}
"""The command line, ``tactix_tools``, is the roof: it may import every pack, and none imports it.
"""

PACKS = sorted(p.name for root in ROOTS for p in root.iterdir() if (p / "__init__.py").is_file())


def imported(tree: ast.AST) -> Iterator[str]:
    """The top-level packages of ours that are imported anywhere, once for each name."""
    for node in ast.walk(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""] * len(node.names)
        yield from (top for n in names if (top := n.partition(".")[0]).startswith("tactix"))


def against(pack: str) -> dict[tuple[str, str], int]:
    """How many names a pack imports of each that it may not import."""
    (folder,) = (root / pack for root in ROOTS if (root / pack).is_dir())
    allowed = MAY_IMPORT.get(pack, frozenset(PACKS) | {"tactix"}) | {pack}
    out: dict[tuple[str, str], int] = {}
    for path in folder.rglob("*.py"):
        for top in imported(ast.parse(path.read_text(encoding="utf-8"))):
            if top not in allowed:
                out[pack, top] = out.get((pack, top), 0) + 1
    return out


@pytest.mark.parametrize("pack", PACKS)
def test_a_pack_imports_what_the_table_says(pack: str) -> None:
    assert against(pack) == {}


def test_the_table_has_every_pack_and_no_ring() -> None:
    assert {*MAY_IMPORT, "tactix_tools"} == set(PACKS)
    tuple(TopologicalSorter(MAY_IMPORT).static_order())


@pytest.mark.parametrize(
    "source",
    [
        "from tactix_cuda.device import CudaDevice",
        "import tactix_cuda",
        "def f():\n    from tactix_cuda import launchers",
        "if TYPE_CHECKING:\n    from tactix_cuda.stream import CudaStream",
    ],
)
def test_the_check_sees(source: str) -> None:
    assert list(imported(ast.parse(source))) == ["tactix_cuda"]
