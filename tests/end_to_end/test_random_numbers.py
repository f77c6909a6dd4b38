"""Random numbers: measured builds take kernels for them, each run draws others."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import tactix

HEAD = '<ir_version: 9, opset_import: ["" : 20]>\n'


@pytest.mark.compiler
@pytest.mark.parametrize(
    "op", ["RandomNormalLike (x)", "RandomUniformLike (x)", "Bernoulli (x)", "Multinomial (x)"]
)
def test_numbers_without_a_seed_are_drawn_by_a_kernel(op: str) -> None:
    text = f"g (float[n, 64] x) => (float[n, m] y) {{ d = {op}  y = Cast <to=1> (d) }}"
    model = onnx.parser.parse_model(HEAD + text)
    engine = tactix.build(model, level=1, timing_cache=False, shapes={"x": (64, 64)})
    assert {s.info["source"] for s in engine.plan.steps} == {"c"}
    x = np.full((64, 64), 0.5, np.float32)
    first, second = engine(x), engine(x)
    assert first.shape == second.shape
    if op.startswith("Multinomial"):
        assert set(first.ravel()) <= set(range(64))
    assert not np.array_equal(first, second)
