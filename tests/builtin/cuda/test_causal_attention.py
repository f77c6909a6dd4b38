"""Attention of sm_90a under causal masks: what is not read, not multiplied, and which blocks come
first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import asked
import numpy as np
import product_cases as pc
import pytest
import simt
from hopper_cases import ATTENTION, DEVICE, causals
from test_products_run import Mutated

from tactix.contracts.artifact import KernelArtifact, Source
from tactix.contracts.tactic import CompileContext, Reject, Variant
from tactix_cuda.tactics import attention


def offered(case: simt.Case) -> Sequence[Variant]:
    found = asked.variants(case.tactic, case.node, case.device)
    assert not isinstance(found, Reject), found.reason
    return found


def made(case: simt.Case) -> KernelArtifact:
    return asked.artifact(
        case.tactic, case.node, offered(case)[-1], CompileContext(case.device, dict(case.env))
    )


def text(artifact: KernelArtifact) -> str:
    assert isinstance(artifact.code, Source)
    return artifact.code.text


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_results_are_those_of_the_reference(dtype: str, tmp_path: Path) -> None:
    """Every variant in turn: of one dtype all, of the other one each."""
    cases = causals(dtype)
    few = [[v] for c, i in zip(cases, (0, 4, 3, 1, 2), strict=True) for v in offered(c)[i : i + 1]]
    every = [None] * len(cases) if dtype == "f16" else few
    simt.check_all([replace(c, only=only) for c, only in zip(cases, every, strict=True)], tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(team + 1) * 64 + C::AHEAD", "team * 64 + C::AHEAD"),
        ("first + C::AHEAD + 1 : keys", "first + C::AHEAD : keys"),
        ("left + C::CAUSAL * own >=", "left + C::CAUSAL * (own + 16) >="),
        ("i < stages; i++", "i < count - 1; i++"),
        ("past / together", "past / together + 1"),
    ],
)  # fmt: skip
def test_a_fault_is_noticed(old: str, new: str, tmp_path: Path) -> None:
    case = causals("f16")[0]
    wrong = replace(case, tactic=Mutated(ATTENTION, old, new), only=offered(case)[:1])
    with pytest.raises(AssertionError, match=r"times the budget|block|no result"):
        simt.check_all([wrong], tmp_path)


@pytest.mark.parametrize("many", [1, 4, 5])
def test_heads_that_the_cache_does_not_keep_take_turns(
    many: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six heads: one at a time, four and two, five and one."""
    case = causals("f16")[-1]
    monkeypatch.setattr(attention, "CACHED", many * 190 * 2 * 128)
    assert f"{many} * TILES" in text(made(case))
    simt.check_all([replace(case, only=offered(case)[:1])], tmp_path)


def test_masks_that_are_causal_are_not_read() -> None:
    nearly = pc.causal("f16", 330)
    nearly[300, 7] = 1
    arrays = [pc.real("f16", 1, 1, 330, 64)] * 3
    read = [pc.plain(ATTENTION, "Attention", [*arrays, nearly], [3], scale=0.1),
            pc.plain(ATTENTION, "Attention", [*arrays, pc.causal("f16", 330)], [3], scale=-0.1),
            pc.plain(ATTENTION, "Attention", [*arrays, pc.causal("f16", 330)], scale=0.1)]  # fmt: skip
    for case, reads in [*((c, False) for c in causals("f16")), *((c, True) for c in read)]:
        artifact = made(replace(case, device=DEVICE))
        assert (3 in [a.index for a in artifact.launches[0].args if a.kind == "input"]) is reads
        assert f"CAUSAL = {int(not reads)};" in text(artifact)


def test_a_mask_with_a_number_below_the_diagonal_hides_but_is_read() -> None:
    mask = np.triu(np.full((5, 7), -np.inf, np.float32), 3)
    assert attention.is_causal(mask)
    mask[4, 0] = -0.5
    assert not attention.is_causal(mask)
    assert attention.hidden_after(mask) == 2


def test_stages_and_teams_fit() -> None:
    narrow, wide = causals("f16")[:2]
    few = [(2, 64), (1, 64), (1, 128), (2, 128)]
    assert [(v.knob("teams"), v.knob("keys")) for v in offered(narrow)] == few
    assert [(v.knob("teams"), v.knob("keys")) for v in offered(wide)] == [*few, (3, 64)]
    texts = [
        text(asked.artifact(ATTENTION, wide.node, v, CompileContext(DEVICE))) for v in offered(wide)
    ]
    assert [int(t.split("STAGES = ")[1][0]) for t in texts] == [4, 4, 3, 3, 4]
