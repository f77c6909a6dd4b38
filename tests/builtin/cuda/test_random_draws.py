"""Random numbers without a seed on the emulator: distributed as numpy's, and others in each run."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import asked
import harness as h
import numpy as np
import pytest
import simt
from tactic_cases import TACTICS, N, one, real

from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value
from tactix.contracts.tactic import CompileContext, Reject


def drawn(name: str, env: dict[str, int] | None = None, **attrs: Any) -> simt.Case:
    """A node without inputs."""
    layer = h.layer(name)
    made = layer.Attrs(**attrs)
    node = Node(name.lower(), layer, made, [], [Value("out0", layer.infer(made, [])[0])])
    return simt.Case(node, TACTICS["draw"], [], env or {})


def test_distributions_are_those_of_the_reference(tmp_path: Path) -> None:
    chances = np.repeat(np.array([0, 0.2, 0.9, 1], np.float32), 500).reshape(4, 500)
    scores = np.array([[0, -1, 2, -np.inf, 1, 0.5]] * 4, np.float16)
    many = real(3, 70).astype(np.float64)
    cases = [
        drawn("RandomUniform", shape=(7, 301), low=-1.5, high=3.25),
        drawn("RandomNormal", shape=(41, 97), dtype=DType.FP64, mean=-2.0, scale=0.3),
        drawn("RandomNormal", {"n": 3}, shape=(N, 1000), dtype=DType.FP16),
        drawn("RandomNormal", {"n": 0}, shape=(N, 3), dtype=DType.BF16),
        one("draw", "RandomBernoulli", [chances.astype(np.float64)], dtype=DType.BOOL),
        one("multinomial", "RandomMultinomial", [scores], sample_size=500),
        one("multinomial", "RandomMultinomial", [many], sample_size=400, dtype=DType.INT64),
        one("multinomial", "RandomMultinomial", [scores[:0]], sample_size=2),
    ]
    simt.check_all(cases, tmp_path)


def test_each_run_gives_other_numbers_and_each_row_too(tmp_path: Path) -> None:
    p = np.full((2, 64), 0.5, np.float32)
    cases = [
        drawn("RandomUniform", shape=(2, 64)),
        one("draw", "RandomBernoulli", [p]),
        one("multinomial", "RandomMultinomial", [p], sample_size=64),
    ]
    context, made = CompileContext(simt.DEVICE), []
    for case in cases:
        (variant,) = asked.variants(case.tactic, case.node, simt.DEVICE)
        made.append((case, variant, asked.artifact(case.tactic, case.node, variant, context)))
    kernels = [simt.Emulated(f"k{i}", a.code, a.launches) for i, (_, _, a) in enumerate(made)]
    library = ctypes.CDLL(str(simt.library_of(kernels, tmp_path)))
    for i, (case, variant, artifact) in enumerate(made):
        found = [
            simt._run(library, f"k{i}", case, variant, artifact, case.arrays, 0, case.node.name)[0]
            for _ in range(3)
        ]
        assert len({x.tobytes() for x in found}) == 3
        assert all(not np.array_equal(*x) for x in found)


@pytest.mark.parametrize("name", ["RandomUniform", "RandomNormal"])
def test_numbers_of_a_seed_are_left_to_the_reference(name: str) -> None:
    case = drawn(name, shape=(3,), seed=1.0)
    found = asked.variants(case.tactic, case.node, simt.DEVICE)
    assert isinstance(found, Reject)
    assert "seed" in found.reason
