"""A small plan with machine code, and a trust store of its own for every test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tactix
from tactix.plan.schema import Plan


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Makes the trust store of another user the one in use, and gives its file."""

    def become(name: str) -> Path:
        monkeypatch.setenv("TACTIX_HOME", str(tmp_path / f"home-{name}"))
        return tmp_path / f"home-{name}" / "trust.json"

    become("maker")
    return become


@pytest.fixture(scope="session")
def plan() -> Plan:
    """x @ w + 1, in machine code."""
    builder = tactix.Builder()
    network = builder.create_network("small")
    x = network.add_input("x", "f32", ("batch", 3))
    w = network.add_constant(np.arange(15, dtype=np.float32).reshape(3, 5))
    (y,) = network.add_layer("tactix.MatMul", [x, w])
    (z,) = network.add_layer("tactix.Add", [y, network.add_constant(np.ones(5, np.float32))])
    network.mark_output(z, "z")
    return builder.build_plan(
        network, tactix.BuilderConfig(builder_optimization_level=0, timing_cache=False)
    )


@pytest.fixture
def path(plan: Plan, tmp_path: Path) -> Path:
    """Its file, signed by the maker."""
    tactix.Runtime().load(plan).save(tmp_path / "small.plan")
    return tmp_path / "small.plan"
