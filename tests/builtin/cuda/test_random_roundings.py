"""Random networks of 16 bits, node by node on the emulator: every kernel passes the gate that
builds have.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import asked
import growers  # noqa: F401
import movers  # noqa: F401
import numpy as np
import simt
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from narrow import NARROW
from strategies import BF16, F16, F32, Case, builder, inside, networks
from tactic_cases import TACTICS

from tactix.contracts.tactic import Reject
from tactix.fuse.rewrite import fuse

GENERATED = ("pointwise", "rows", "reduce")
SIXTEEN = st.sampled_from([F16, BF16]).flatmap(
    lambda t: networks(2, 5, [*NARROW, "unary", "binary", "reduction"], (*(t,) * 9, F32))
)


def cases(case: Case) -> Iterator[simt.Case]:
    """Every node that generated CUDA takes, at the first sizes; nodes whose tensors are empty are
    left out.
    """
    rules = [r for r in builder().session.active_rules() if r.numerics in ("exact", "reassociates")]
    net, _ = fuse(case.net, rules)
    env = case.envs[0]
    known = inside(net, case.feeds[0], env)
    for n in net.nodes:
        for name in GENERATED:
            tactic = TACTICS[name]
            fits = n.kind in tactic.implements and all(
                known[v].size for v in (*n.given, *n.outputs)
            )
            if fits and not isinstance(asked.variants(tactic, n, simt.DEVICE), Reject):
                yield simt.Case(n, tactic, [known[v] for v in n.given], env)


@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(SIXTEEN)
def test_kernels_of_random_networks(case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder, np.errstate(all="ignore"):
        if made := list(cases(case)):
            simt.check_all(made, Path(folder))
