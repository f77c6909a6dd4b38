"""What a network observably rounds to 16 bits is rounded in generated CUDA, before an anchor and
after it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import harness as h
import numpy as np
import pytest
import simt
from rounding_cases import GROUPS, KINDS, WIDER, group
from tactic_cases import TACTICS

from tactix.base.dtypes import DType
from tactix_codegen.cuda.fused import Around, around


@pytest.mark.parametrize("kind", KINDS)
def test_roundings_that_show(kind: str, tmp_path: Path) -> None:
    made = [group(name, kind) for name in GROUPS]
    simt.check_all(
        [simt.Case(n, TACTICS["pointwise"], arrays, budget=0.0) for n, arrays in made], tmp_path
    )


def half(*shape: int) -> Any:
    return np.ones(shape, np.float16)


def test_before_an_anchor_only_what_shows() -> None:
    narrow = h.fused(
        [half(3, 8), half(3, 8)], [("Mul", [0, 1], {}), ("Softmax", [2], {})], anchor=1
    )
    found = around(narrow)
    assert isinstance(found, Around)
    assert str(found.source) == "mul(x0, x1)"
    nodes = [
        ("Mul", [0, 1], {}),
        ("Cast", [2], WIDER),
        ("Softmax", [3], {}),
        ("Cast", [4], {"to": DType.FP16}),
    ]
    found = around(h.fused([half(3, 8), half(3, 8)], nodes, anchor=2))
    assert isinstance(found, Around)
    assert str(found.source) == "cast(cast(mul(x0, x1), f16), f32)"


def test_an_anchor_before_a_jump() -> None:
    found = around(h.fused([half(3, 8)], [("Softmax", [0], {}), ("Round", [1], {})], anchor=0))
    assert isinstance(found, Around)
    assert [str(r) for r in found.results] == ["round(cast(x2, f16))"]
