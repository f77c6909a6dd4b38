"""The generated CUDA tactics: every kernel of the table runs on the host, a fiber for each thread,
and is right.
"""

from __future__ import annotations

import pytest
import simt
from tactic_cases import TABLE


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_results_are_those_of_the_reference(name, tmp_path):
    simt.check_all(TABLE[name](), tmp_path, simt.SHORT)
