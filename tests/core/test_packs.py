"""What each built-in pack may import: the floors below it, and what is offered to it; over every
import there is.
"""

from __future__ import annotations

from collections.abc import Iterable
from graphlib import TopologicalSorter

import pytest
import structure
from structure import ROOT, Module

ROOTS = (ROOT / "plugin_sdk", ROOT / "plugins_builtin")

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
    "tactix_cluster": GROUND,
    "tactix_serve": GROUND | {"tactix_cluster"},
    "tactix_quantize": MEANING,
    "tactix_isolate": MEANING,
    "tactix_bridges": GROUND,
    "tactix_cpu": MEANING | {"tactix_trust", "tactix_isolate"},
    "tactix_cuda": MEANING | {"tactix_trust", "tactix_isolate"},
    "tactix_cublaslt": GROUND | {"tactix_cuda"},
    "tactix_cudnn": GROUND | {"tactix_cuda", "tactix_trust"},
    "tactix_runtime": MEANING | {"tactix_refit"},
    "tactix_inspect": MEANING | {"tactix_refit", "tactix_runtime"},
    "tactix_ship": MEANING
    | {
        "tactix_cpu",
        "tactix_cuda",
        "tactix_cublaslt",
        "tactix_cudnn",
        "tactix_runtime",
        "tactix_trust",
    },
    "tactix_trtops": MEANING | {"tactix_onnx"},
    "tactix_tensorrt": MEANING
    | {
        "tactix_refit",
        "tactix_cpu",
        "tactix_inspect",
        "tactix_trust",
        "tactix_trtops",
        "tactix_quantize",
    },
}
"""The command line, ``tactix_tools``, is the roof: it may import every pack, and none imports it.
"""

PACKS = sorted(p.name for root in ROOTS for p in root.iterdir() if (p / "__init__.py").is_file())


def against(pack: str, found: Iterable[Module]) -> list[str]:
    """What these modules of a pack import of ours and may not."""
    allowed = MAY_IMPORT.get(pack, frozenset(PACKS) | {"tactix"}) | {pack}
    return [
        f"{module.at(i.line)} imports {i.name}"
        for module in found
        for i in module.imports
        if i.top.startswith("tactix") and i.top not in allowed
    ]


@pytest.fixture(scope="module")
def sources() -> list[Module]:
    return structure.modules()


@pytest.mark.parametrize("pack", PACKS)
def test_a_pack_imports_what_the_table_says(pack: str, sources: list[Module]) -> None:
    own = [m for m in sources if m.pack == pack]
    assert own
    assert against(pack, own) == []


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
    module = Module(ROOT / "plugins_builtin" / "tactix_cpu" / "made_up.py", "tactix_cpu.made_up")
    module.__dict__["text"] = source
    assert len(against("tactix_cpu", [module])) == 1
