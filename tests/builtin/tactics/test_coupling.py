"""c_coupling: numbers of classes, dtypes, sure and symbolic samples."""

from __future__ import annotations

import numpy as np
import pytest
from harness import Case, check, check_all, node

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix_cpu.tactics.coupling import CouplingTactic

TACTIC = CouplingTactic()


@pytest.mark.parametrize("code", ["f64", "f32", "f16", "bf16"])
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_every_number_of_classes(code, classes):
    rng = np.random.default_rng(classes)
    pairs = classes * (classes - 1) // 2
    x = rng.uniform(0.05, 0.95, (37, pairs)).astype(DType(code).numpy)
    check_all([Case(node("PairwiseCoupling", [x], classes=classes), TACTIC, [x], nt=(1, 3))])


def test_pairs_that_are_sure():
    x = np.array([[0, 1, 0.5], [1, 1, 1], [0, 0, 0]], np.float32)
    check(node("PairwiseCoupling", [x], classes=3), TACTIC, [x])


@pytest.mark.parametrize("rows", [0, 5])
def test_symbolic_samples(rows):
    x = TensorSpec(DType.FP32, (dims.sym("n"), 3))
    check(node("PairwiseCoupling", [x], classes=3), TACTIC, env={"n": rows})
