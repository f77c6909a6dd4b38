"""Layers that few networks use: the kernels that a GPU would get run on the host, and are right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import asked
import pytest
import simt
from breadth_cases import TABLE

from tactix.contracts.tactic import Reject


def alone(case: simt.Case) -> simt.Case:
    """Variants whose blocks do not wait for each other: here they run one after the other."""
    offered = asked.variants(case.tactic, case.node, simt.DEVICE)
    assert not isinstance(offered, Reject), offered.reason
    return replace(case, only=[v for v in offered if dict(v.knobs).get("slices", 1) == 1])


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_results_are_those_of_the_reference(name: str, tmp_path: Path) -> None:
    simt.check_all([alone(c) for c in TABLE[name]()], tmp_path, simt.SHORT)
