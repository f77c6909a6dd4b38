"""What tests of several packs share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Any]:
    """Ray, with a cluster on this machine: it takes seconds to start, and gives up where the machine
    is too busy for that. It has more CPUs than there are cores, so that no test waits for one.
    """
    ray = pytest.importorskip("ray")
    serve = pytest.importorskip("ray.serve")
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
    try:
        ray.init(num_cpus=16, **quiet)
    except Exception as e:
        pytest.skip(f"Ray does not start here: {e}")
    yield ray
    serve.shutdown()
    ray.shutdown()
