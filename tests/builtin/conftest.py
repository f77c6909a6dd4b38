"""What tests of several packs share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Any]:
    """Ray, with a cluster on this machine: it takes seconds to start. It has more CPUs than there
    are cores, so that no test waits for one.
    """
    ray = pytest.importorskip("ray")
    serve = pytest.importorskip("ray.serve")
    ray.init(num_cpus=16, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield ray
    serve.shutdown()
    ray.shutdown()
