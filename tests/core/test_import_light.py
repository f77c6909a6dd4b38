"""What importing costs: names of the core bring no library with them until they are used."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CORE = Path(__file__).resolve().parents[2] / "core" / "tactix"
PACKS = sorted(p.parent.name for p in (CORE.parents[1] / "plugins_builtin").glob("*/plugin.py"))
HEAVY = [
    "numpy",
    "onnx",
    "ml_dtypes",
    "click",
    "rich",
    "onnxruntime",
    "cuda",
    "pycuda",
    "torch",
    *PACKS,
]


def loaded_after(*modules: str) -> set[str]:
    """Top-level modules in a fresh interpreter that has imported these."""
    code = "import sys, json, importlib\nfor m in sys.argv[1:]: importlib.import_module(m)\n"
    code += "print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    done = subprocess.run(
        [sys.executable, "-c", code, *modules], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def modules_of(floor: str) -> list[str]:
    return [
        f"tactix.{floor}.{p.stem}"
        for p in sorted((CORE / floor).glob("*.py"))
        if p.stem != "__init__"
    ]


def test_the_package_imports_nothing() -> None:
    assert not loaded_after("tactix") & {*HEAVY, "pluggy", "importlib_metadata", "logging"}


@pytest.mark.parametrize("floor", ["base", "contracts"])
def test_lower_floors(floor: str) -> None:
    modules = modules_of(floor)
    assert len(modules) > 5
    assert not loaded_after(*modules) & {*HEAVY, "pluggy", "importlib_metadata"}


@pytest.mark.parametrize("floor", ["plugins", "network", "fuse", "select", "plan", "run"])
def test_upper_floors(floor: str) -> None:
    assert not loaded_after(*modules_of(floor)) & {*HEAVY}


def test_what_an_author_imports() -> None:
    assert not loaded_after("tactix_sdk") & {*HEAVY}


def test_the_hooks_of_the_built_ins() -> None:
    assert len(PACKS) > 5
    assert not loaded_after(*(f"{p}.plugin" for p in PACKS)) & {*HEAVY, "pluggy"} - {*PACKS}


def test_the_check_sees() -> None:
    assert "numpy" in loaded_after("tactix.base.dtypes", "numpy")
