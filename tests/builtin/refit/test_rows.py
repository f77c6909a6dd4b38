"""Large constants in parts, shared by threads: the same bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from refit_models import model, normal

from tactix import BuilderFlag
from tactix.base.dtypes import DType
from tactix.base.errors import PlanFormatError
from tactix_refit import parts as rows
from tactix_refit import replay
from tactix_refit.moves import composed
from tactix_refit.recipe import RecipeStep
from tactix_refit.refitter import Refitter

from .conftest import REFIT, built, constants


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every constant is large. The rows of each part are noted."""
    seen: list[int] = []
    part = rows.Rows.part

    def noted(self: rows.Rows, first: int, stop: int) -> Any:
        seen.append(stop - first)
        return part(self, first, stop)

    monkeypatch.setattr(replay, "LARGE", 1)
    monkeypatch.setattr(replay, "PART", 20)
    monkeypatch.setattr(rows.Rows, "part", noted)
    return seen


def products(seed: int) -> bytes:
    """Sizes that no register tile of any processor pads, which would be done at once: whole panels
    of 2, 3 or 4 vectors of up to 16 floats; a product with a scaled weight.
    """
    weights = normal(seed, a=(32, 192), b=(192, 192), c=(192,))
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["p"]),
        helper.make_node("Relu", ["p"], ["q"]),
        helper.make_node("Gemm", ["q", "b", "c"], ["y"], transB=1, alpha=0.5),
    ]
    return model(nodes, {"x": ["n", 32]}, ["y"], weights)


@pytest.mark.parametrize("flags", [(), (BuilderFlag.BF16,)], ids=["fp32", "bf16"])
def test_as_a_build(flags: tuple[BuilderFlag, ...], small: list[int]) -> None:
    engine, want = (
        built(products(1), REFIT | set(flags)),
        constants(built(products(2), REFIT | set(flags))),
    )
    Refitter(engine, threads=3).refit_from_onnx(products(2))
    assert constants(engine) == want
    assert len(small) > 10


def chain(seed: int) -> tuple[list[RecipeStep], Any, dict[str, Any]]:
    """Terms over ``w`` (48, 6, 5) and ``s`` (48, 1, 1); what they give; the weights."""
    held = normal(seed, w=(48, 6, 5), s=(48, 1, 1))
    held["w"][3] = 1e6
    f32, f16, shape = DType.FP32, DType.FP16, (48, 6, 5)
    terms = [
        RecipeStep("weight", (), ("w",), f32, shape),
        RecipeStep("weight", (), ("s",), f32, (48, 1, 1)),
        RecipeStep("square", (1,), (), f32, (48, 1, 1)),
        RecipeStep("multiply", (0, 2), (), f32, shape),
        RecipeStep("clip", (3,), (-65504.0, 65504.0), f32, shape),
        RecipeStep("finite_or", (3, 4), (), f32, shape),
        RecipeStep("cast", (5,), ("f16",), f16, shape),
    ]
    whole = np.clip(held["w"] * held["s"] ** 2, -65504, 65504).astype(np.float16)
    return terms, whole, held


def test_rows_of_a_chain() -> None:
    terms, whole, held = chain(3)
    order = rows.order_of(terms, 6)
    assert order == [0, 2, 3, 4, 5, 6]  # what is small is made before
    found = rows.Rows(terms, order, lambda k: held["w"] if k == 0 else held["s"] ** 2)
    for first, stop in ((0, 48), (0, 1), (5, 9), (47, 48)):
        np.testing.assert_array_equal(found.part(first, stop), whole[first:stop])


def test_more_than_single_elements() -> None:
    terms, _, _ = chain(3)
    terms[3] = RecipeStep("transpose", (0,), ((0, 1, 2),), DType.FP32, (48, 6, 5))
    assert rows.order_of(terms, 6) == []


@pytest.mark.parametrize(
    "moves",
    [
        [],
        [("transpose", ((2, 0, 1),))],
        [("reshape", ((3, 16, 30),)), ("transpose", ((1, 0, 2),))],
        [("reshape", ((24, 60),)), ("transpose", ((1, 0),))],
        [("reshape", ((1440,),))],
    ],
)
def test_ranges_cover_everything_once(moves: Any) -> None:
    t = RecipeStep("weight", (), ("w",), DType.FP32, (48, 6, 5))
    move = composed(t.shape, moves)
    assert move is not None
    x, seen = np.arange(1440).reshape(t.shape), []
    source = x.reshape(move.source_shape)
    for i, j, place in rows.spans(t, move, 100):
        np.testing.assert_array_equal(x[i:j].ravel(), source[place].ravel())
        seen += range(i, j)
    assert seen == list(range(48))


def test_an_error_in_a_part_is_typed(small: list[int]) -> None:
    refitter = Refitter(built(products(1)), threads=3)
    shift = refitter._recipes.terms
    wrong = [s for s in shift if s.op == "multiply"]
    assert wrong
    refitter._replay.terms = tuple(
        RecipeStep(s.op, s.args[:1], s.params, s.dtype, s.shape) if s.op == "multiply" else s
        for s in shift
    )
    with pytest.raises(PlanFormatError, match="a recipe cannot be followed"):
        refitter.refit_from_onnx(products(2))
