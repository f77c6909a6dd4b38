"""Plans of what was chosen."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tactix
from tactix.pipeline import assemble, assembler
from tactix.select.compile import Toolchain


def test_weights_are_made_while_kernels_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    compiling = threading.Event()
    compile_, stored = Toolchain.compile, assembler.stored

    def noted(*args: Any) -> Any:
        compiling.set()
        return compile_(*args)

    def waiting(make: Any) -> Any:
        assert compiling.wait(60), "nothing is compiled before the weights are made"
        return stored(make)

    monkeypatch.setattr(Toolchain, "compile", noted)
    monkeypatch.setattr(assemble, "stored", waiting)
    builder = tactix.Builder()
    network = builder.create_network("small")
    weight = network.add_constant(np.arange(6, dtype=np.float32).reshape(2, 3))
    (y,) = network.add_layer("tactix.Add", [network.add_input("x", "f32", (2, 3)), weight])
    network.mark_output(y, "y")
    config = tactix.BuilderConfig(
        timing_cache=False, builder_optimization_level=0, tactic_sources={"numpy"}
    )
    (buffer,) = (b for b in builder.build_plan(network, config).buffers if b.kind == "weight")
    assert buffer.shape == (2, 3)


def test_copies_that_are_alike_share_their_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    bid = assemble.bid
    monkeypatch.setattr(
        assemble, "bid", lambda node, *more: asked.append(node.name) or bid(node, *more)
    )
    builder = tactix.Builder()
    network = builder.create_network("copies")
    for k in range(4):
        network.mark_output(network.add_input(f"x{k}", "f32", (2, 3)), f"y{k}")
    network.mark_output(network.add_input("z", "f32", (4,)), "w")
    config = tactix.BuilderConfig(
        timing_cache=False, builder_optimization_level=0, tactic_sources={"c", "view"}
    )
    network_plan = builder.build_plan(network, config)
    assert len(network_plan.steps) == 5
    assert len(asked) == 2
