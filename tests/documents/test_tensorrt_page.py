"""docs/tensorrt.md is current, and tells of every class."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))

from tensorrt_page import COMMAND, PAGE, classes, members, page, standing

from tactix_tensorrt import api
from tactix_tensorrt.api.standing import IGNORED, NOT_CALLED, REFUSED


def test_the_table_of_members_is_current() -> None:
    text = PAGE.read_text()
    assert page(text) == text, f"run {COMMAND}"


def test_what_is_said_of_members_is_of_members() -> None:
    for owner, names in [*IGNORED.items(), *REFUSED.items()]:
        assert names <= set(members(getattr(api, owner))), owner
    assert set(api.__all__) >= NOT_CALLED


def test_standings() -> None:
    found = {standing(c, n) for c in classes() for n in members(c)}
    assert found == {"yes", "refused", "ignored"}
    assert standing(api.INetworkDefinition, "add_dist_collective") == "refused"
    assert standing(api.INetworkDefinition, "add_activation") == "yes"
    assert standing(api.IBuilderConfig, "tiling_optimization_level") == "ignored"
    assert standing(api.IInt8MinMaxCalibrator, "get_batch") == "yes"
    assert standing(api.IOutputAllocator, "notify_shape") == "yes"
