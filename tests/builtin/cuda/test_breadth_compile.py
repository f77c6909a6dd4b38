"""Kernels of the table of rarer layers compile for every architecture, keep to its limits, and
spill no registers.
"""

from __future__ import annotations

import pytest
from breadth_cases import TABLE
from test_gemm_compile import fit_in_turns

from tactix_cuda import nvrtc

pytestmark = pytest.mark.skipif(bool(nvrtc.why_missing()), reason="needs NVRTC")


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_kernels_compile(name: str) -> None:
    """The first and the last case of each group, whose options differ most, with their first
    variant.
    """
    cases = TABLE[name]()
    fit_in_turns([cases[0], cases[-1]])
