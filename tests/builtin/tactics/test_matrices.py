"""c_matrices: determinants and inverses of every size and dtype, singular and badly scaled ones."""

from __future__ import annotations

import numpy as np
import pytest
from harness import Case, check, check_all, node, opened

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix_cpu.tactics.matrices import MatricesTactic

TACTIC = MatricesTactic()
BUDGETS = {"f64": 1e-9, "f32": 1e-3, "f16": 1e-2, "bf16": 5e-2}


def drawn(code, *shape):
    """Matrices that are far from singular."""
    x = np.random.default_rng(9).standard_normal(shape) + 3 * np.eye(shape[-1])
    return x.astype(DType(code).numpy)


@pytest.mark.parametrize("layer", ["Det", "Inverse"])
@pytest.mark.parametrize("code", BUDGETS)
def test_every_size_and_dtype(layer, code):
    given = [drawn(code, *s) for s in ((1, 1), (2, 2), (5, 3, 3), (2, 3, 7, 7), (17, 17))]
    made = [Case(node(layer, [x]), TACTIC, [x], budget=BUDGETS[code], nt=(1, 3)) for x in given]
    check_all(made)


@pytest.mark.parametrize("layer", ["Det", "Inverse"])
def test_rows_are_swapped_and_singular_matrices_are_seen(layer):
    x = np.array(
        [
            [[0, 1], [1, 0]], [[1, 2], [2, 4]], [[0, 0], [0, 0]], [[0, 2], [3, 0]], [[1e-30, 0], [0, 1e-30]],
            [[1e30, 0], [0, 1e-30]], [[1, 2], [3, 4]],
        ],
        np.float32,
    )  # fmt: skip
    check_all([Case(node(layer, [v]), TACTIC, [v], budget=1e-4) for v in x])


def test_a_product_that_overflows_on_the_way():
    x = np.diag([1e30, 1e30, 1e-30, 1e-30, 3]).astype(np.float32)
    check(node("Det", [x]), TACTIC, [x], budget=1e-4)


@pytest.mark.parametrize("env", [{"b": 0, "n": 3}, {"b": 2, "n": 5}])
def test_symbolic_sizes(env):
    n = dims.sym("n")
    given = drawn("f32", env["b"], env["n"], env["n"])
    (each,), sizes = opened(given)
    for x in (TensorSpec(DType.FP32, (dims.sym("b"), n, n)), each):
        for layer in ("Det", "Inverse"):
            check(node(layer, [x]), TACTIC, [given], env=env | sizes, budget=1e-3)
