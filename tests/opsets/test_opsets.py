"""Operators at every version at which they changed agree with ONNX Runtime; differences are listed
with reasons.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "onnx_suite"))
sys.path.insert(0, str(Path(__file__).parent))

from forms import FORMS, ML, Case, Form, versions
from oracle import expected
from sweep import REFERENCES, all_cases, apart, run

pytest.importorskip("onnxruntime")

DIFFERENCES = Path(__file__).with_name("differences.txt")
CHUNKS = 8
SAMPLED = 20
"""Of so many cases one runs with every tactic source, C included."""

ELSEWHERE = {
    "Attention": "tests/onnx_suite has its cases at each version",
    "Bernoulli": "random numbers",
    "Multinomial": "random numbers",
    "Optional": "no kernel of ONNX Runtime takes it in a model of one node",
    "OptionalGetElement": "as Optional",
    "OptionalHasElement": "as Optional",
    "RandomNormal": "random numbers",
    "RandomNormalLike": "random numbers",
    "RandomUniform": "random numbers",
    "RandomUniformLike": "random numbers",
    "ai.onnx.ml::CastMap": "refused: it takes a map",
    "ai.onnx.ml::DictVectorizer": "refused: it takes a map",
    "ai.onnx.ml::TreeEnsemble": "tests/onnx_suite has its cases",
    "ai.onnx.ml::ZipMap": "tests/builtin/onnx_importer/test_ml.py has its cases",
}
"""Operators of several versions, and of ai.onnx.ml, without cases here, and why."""

UNTOLD = {"GlobalLpPool", "InstanceNormalization", "Mean"}
"""Operators with cases that neither ONNX Runtime nor onnx's reference can run: float64 and float16
before others do.
"""


def differences() -> dict[str, str]:
    """Reasons by case."""
    lines = (line.rpartition(": ") for line in DIFFERENCES.read_text().splitlines() if line)
    return {name: why for name, _, why in lines}


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return all_cases()


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_version_of_an_operator(cases: list[Case], chunk: int) -> None:
    own = cases[chunk::CHUNKS]
    found = run(own, REFERENCES)
    known = differences().keys() & {c.id for c in own}
    assert {o.case.id: o.error for o in found if o.error and o.case.id not in known} == {}
    assert known - {o.case.id for o in found if o.error} == set(), "what agrees is no difference"
    assert {o.case.op for o in found if not o.by} <= UNTOLD


@pytest.mark.parametrize("part", range(2))
def test_a_sample_with_every_tactic_source(cases: list[Case], part: int) -> None:
    own = cases[part * SAMPLED // 2 :: SAMPLED]
    known = differences()
    assert {o.case.id: o.error for o in run(own, None) if o.error and o.case.id not in known} == {}


def test_every_operator_of_several_versions_is_here(cases: list[Case]) -> None:
    schemas = onnx.defs.get_all_schemas_with_history()
    several = {s.name for s in schemas if not s.domain and len(versions(s.name)) > 1}
    several |= {f"{ML}::{s.name}" for s in schemas if s.domain == ML}
    assert several - FORMS.keys() == ELSEWHERE.keys() & several
    assert {(op, v) for op in FORMS for v in versions(op)} == {(c.op, c.version) for c in cases}
    assert len({c.id for c in cases}) == len(cases) > 1800


def test_differences_have_reasons(cases: list[Case]) -> None:
    known = differences()
    assert known.keys() <= {c.id for c in cases}
    assert all(known.values())


def test_operator_sets_are_told_apart() -> None:
    """Softmax flattened before 13."""
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    flat, single = (Case("Softmax", v, Form("x", [x], {"axis": 1})) for v in (11, 13))
    assert [(o.by, o.error) for o in run([flat, single], REFERENCES)] == [("ONNX Runtime", "")] * 2
    (before, after) = (expected(c) for c in (flat, single))
    assert before is not None
    assert after is not None
    assert "differ" in apart(before.values[0], after.values[0], 1e-5)


@pytest.mark.parametrize(
    ("got", "said"),
    [
        (np.float32([1, 2]), ""),
        (np.float32([1, 2.1]), "1 of 2 elements differ: 2.1 instead of 2"),
        (np.float64([1, 2]), "float64(2,) instead of float32(2,)"),
        (np.float32([[1, 2]]), "float32(1, 2) instead of float32(2,)"),
    ],
)
def test_what_is_wrong_is_said(got: Any, said: str) -> None:
    assert apart(got, np.float32([1, 2]), 1e-5) == said
