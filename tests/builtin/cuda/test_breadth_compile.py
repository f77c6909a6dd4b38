"""Kernels of the table of rarer layers compile for every architecture, keep to its limits, and
spill no registers.
"""

from __future__ import annotations

import asked
import pytest
from breadth_cases import TABLE
from test_gemm_compile import TARGETS, fits

from tactix.contracts.tactic import CompileContext, Reject
from tactix_codegen.cuda.target import target
from tactix_cuda import nvrtc

pytestmark = pytest.mark.skipif(bool(nvrtc.why_missing()), reason="needs NVRTC")


@pytest.mark.parametrize("arch", TARGETS)
@pytest.mark.parametrize("name", TABLE)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_kernels_compile(name: str, arch: str) -> None:
    """The first and the last case of each group, whose options differ most, with their first
    variant.
    """
    device, cases = target(arch), TABLE[name]()
    for case in (cases[0], cases[-1]):
        offered = asked.variants(case.tactic, case.node, device)
        assert not isinstance(offered, Reject)
        fits(
            asked.artifact(
                case.tactic, case.node, offered[0], CompileContext(device, dict(case.env))
            ),
            device,
            dict(case.env),
        )
