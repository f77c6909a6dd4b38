"""What the attacks on plans share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def samples() -> dict[str, bytes]:
    """Sound plan files by name."""
    from plan_samples import files

    return files()


@pytest.fixture(scope="session")
def trial() -> Any:
    """Tries a file as far as native code; raises what is no typed error."""
    from plan_samples import plans
    from plan_trial import Trial, poisoned

    poisoned()
    return Trial(plans())
