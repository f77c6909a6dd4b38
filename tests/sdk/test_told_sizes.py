"""Tactics that tell sizes of outputs are held to the reference by what their launchers produce."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

import tactix
from tactix.contracts.artifact import KernelArtifact, Source
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Tactic, Variant
from tactix_cpu.tactics.pool.told_columns import MOST_AXES, CpuToldColumnsTactic
from tactix_cpu.tactics.pool.unpool import CpuUnpoolTactic
from tactix_cpu.tactics.select.nonzero import CompressTactic, NonZeroTactic
from tactix_sdk import errors
from tactix_sdk.testing import Subject, shipping
from tactix_sdk.testing.bids import (
    SHAPES,
    Ran,
    Trial,
    candidates,
    fixed_trials,
    is_told,
    open_trials,
    run,
)


class Changed(NonZeroTactic):
    """With something else in place of a part of its text."""

    def __init__(self, old: str, new: str) -> None:
        self.old, self.new = old, new

    def compile(self, work: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        made = super().compile(work, variant, ctx)
        assert isinstance(made.code, Source)
        assert self.old in made.code.text
        return replace(
            made, code=replace(made.code, text=made.code.text.replace(self.old, self.new))
        )


@pytest.fixture(scope="module")
def subject() -> Subject:
    return Subject("tactix.cpu")


def ran(subject: Subject, tactic: Tactic) -> list[Ran]:
    return list(run(subject, list(fixed_trials(subject, tactic))))


@pytest.mark.compiler
def test_one_that_is_right_passes_at_fixed_and_open_sizes(subject: Subject) -> None:
    found = ran(subject, NonZeroTactic())
    more = list(run(subject, list(open_trials(subject, NonZeroTactic()))))
    assert found
    assert more
    assert [r.wrong for r in (*found, *more) if r.wrong] == []


@pytest.mark.compiler
@pytest.mark.parametrize(
    "change", [("sum += ", "sum += 1 + "), ("count += (", "count += !(")], ids=["size", "places"]
)
def test_one_that_is_wrong_is_named(subject: Subject, change: tuple[str, str]) -> None:
    assert any("departs from the reference" in r.wrong for r in ran(subject, Changed(*change)))


def test_a_tactic_is_tried_on_what_a_build_asks_it_for(subject: Subject) -> None:
    trials = list(fixed_trials(subject, CpuUnpoolTactic()))
    told = [t for t in trials if is_told(t.node)]
    known = [t for t in trials if not is_told(t.node)]
    assert told
    assert [c for t in told for c in candidates(subject, t)] == []
    assert all(candidates(subject, t) for t in known)
    assert known
    compress = Trial(NonZeroTactic(), known[0].node, {}, "no node of which running tells sizes")
    assert candidates(subject, compress) == []


@pytest.mark.compiler
def test_sizes_for_which_the_reference_has_no_answer_are_left_out(subject: Subject) -> None:
    """Among the other sizes is a condition that asks for slices of an axis that has none."""
    found = list(run(subject, list(fixed_trials(subject, CompressTactic(), SHAPES))))
    assert found
    assert [r.wrong for r in found if r.wrong] == []


def test_an_image_of_many_axes_is_left_to_the_reference(subject: Subject) -> None:
    trials = list(fixed_trials(subject, CpuToldColumnsTactic(), ({2: 3 * MOST_AXES},)))
    assert any(is_told(t.node) for t in trials)
    assert [c for t in trials for c in candidates(subject, t)] == []


def test_regions_of_another_length_are_refused() -> None:
    b = tactix.Builder()
    net = b.create_network("regions")
    x = net.add_input("x", "f32", (1, 2, 8, 8))
    regions, owners = net.add_input("regions", "f32", (3, 5)), net.add_input("of", "i64", (3,))
    with pytest.raises(errors.ShapeError, match="each has 4 numbers"):
        net.add_layer("tactix.RoiAlign", [x, regions, owners])


def test_a_number_without_axes_is_queued_as_such() -> None:
    engine = mock.MagicMock()
    shipped = mock.MagicMock(results={}, feed={"x": np.zeros((), np.float32)}, keep=[])
    shipping._queued(engine, shipped)
    context = engine.create_execution_context.return_value
    context.set_input_shape.assert_called_once_with("x", ())
