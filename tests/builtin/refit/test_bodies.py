"""Refitting weights inside of branches and loops."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from refit_models import branches, loop, normal, scan
from refit_threads import inferring, one_of

import tactix
from tactix import BuilderFlag
from tactix.base.errors import ExecutionError, PlanFormatError
from tactix_refit import recipe
from tactix_refit.refitter import Refitter

from .conftest import REFIT, assert_same, built, run

STRIPPED = REFIT | {BuilderFlag.STRIP_PLAN}
CASES = {
    "branches": (branches(1, 5), branches(2, 6), normal(0, x=(2, 4))),
    "loop": (loop(1.5), loop(0.5), normal(0, x=(3, 16))),
    "scan": (scan(1), scan(2), normal(0, h0=(1, 3, 2, 3), x=(4, 1, 3, 2, 3))),
}


@pytest.mark.parametrize("name", CASES)
def test_as_a_build_of_the_new_model(name: str, tmp_path: Path) -> None:
    first, second, feeds = CASES[name]
    engine, want = built(first), run(built(second), feeds)
    context = engine.create_execution_context()
    before = context.run(feeds)
    assert_same(context.run(feeds), before)  # from now on one native call, where that can be
    assert any((before[k] != want[k]).any() for k in want)
    refitter = Refitter(engine)
    refitter.refit_from_onnx(second)
    assert_same(context.run(feeds), want)
    refitter.save(tmp_path / "new.plan")
    assert_same(run(tactix.load(tmp_path / "new.plan", on_untrusted="allow"), feeds), want)
    refitter.refit_from_onnx(first)
    assert_same(context.run(feeds), before)


def test_both_branches_and_their_names() -> None:
    engine, want = built(branches(1, 5)), built(branches(1, 7))
    refitter, context = Refitter(engine), engine.create_execution_context()
    inner = [n for n in refitter.get_all_weights() if "/" in n]
    assert sorted(n.rsplit("/", 2)[1:] for n in inner) == [
        ["0", "ac"],
        ["0", "av"],
        ["1", "bc"],
        ["1", "bv"],
    ]
    weights = normal(7, av=(3, 3), ac=(3,)) | normal(8, bv=(3, 3), bc=(3,))
    for name in inner:
        refitter.set_named_weights(name, weights[name.rsplit("/", 1)[1]])
    refitter.refit()
    for sign in (1, -1):
        for x in (sign * np.ones((1, 4), np.float32), sign * normal(3, x=(5, 4))["x"]):
            assert_same(context.run({"x": x}), run(want, {"x": x}))


@pytest.mark.parametrize("name", CASES)
def test_stripped_plans(name: str, tmp_path: Path) -> None:
    first, second, feeds = CASES[name]
    plan = built(first, STRIPPED)
    plan.save(tmp_path / "stripped.plan")
    for source in (plan, tactix.load(tmp_path / "stripped.plan")):
        with pytest.raises(ExecutionError, match="weights are missing"):
            source.create_execution_context()
        Refitter(source).refit_from_onnx(second)
        assert_same(run(source, feeds), run(built(second), feeds))
    refitter = Refitter(tmp_path / "stripped.plan")
    refitter.refit_from_onnx(first)
    refitter.save(tmp_path / "full.plan")
    whole = tactix.load(tmp_path / "full.plan", on_untrusted="allow")
    assert_same(run(whole, feeds), run(built(first), feeds))


def test_no_loop_runs_with_some_of_both() -> None:
    engine, x = built(loop(1.0)), np.ones((2, 16), np.float32)
    refitter = Refitter(engine)
    with inferring(one_of(engine, x, [1.0, 64.0])):
        for i in range(40):
            refitter.refit_from_onnx(loop(2.0 if i % 2 == 0 else 1.0))
            assert float(engine(x)[0, 0]) == pytest.approx(64.0 if i % 2 == 0 else 1.0)


def test_a_recipe_gives_as_much_as_the_body_reads() -> None:
    """Else a body would read beyond what was refitted."""
    plan = built(CASES["branches"][0]).plan
    found = recipe.read(plan)
    inner = {b.blob for s in plan.steps for p in s.plans for b in p.buffers}
    blob = next(b for b in found.constants if b in inner)
    place = found.constants[blob]
    part = recipe.RecipeStep("index", (place,), ([[0, 1, None]],), found.terms[place].dtype, (1,))
    constants = {**found.constants, blob: len(found.terms)}
    text = recipe.write(replace(found, terms=(*found.terms, part), constants=constants))
    name = hashlib.sha256(text).hexdigest()
    with pytest.raises(PlanFormatError, match="its recipe gives another size"):
        recipe.read(
            replace(plan, blobs={**plan.blobs, name: text}, meta={**plan.meta, recipe.META: name})
        )


def test_recipes_that_would_grow_are_not_decoded() -> None:
    plan = built(CASES["branches"][0]).plan
    text = b'{"terms":[' + b"[]," * 200_000 + b"[]]}"
    name = hashlib.sha256(text).hexdigest()
    with pytest.raises(PlanFormatError, match="commas and brackets"):
        recipe.read(
            replace(plan, blobs={**plan.blobs, name: text}, meta={**plan.meta, recipe.META: name})
        )
