"""A profile is what its JSON says."""

from __future__ import annotations

import json

import pytest

from tactix.base.errors import InvalidArgument
from tactix_inspect.profile import PlanProfile, Roofline, StepTime


def example() -> PlanProfile:
    step = StepTime(0, "a + b", "tactix.Gemm@1", "tactix.c_matmul@1", 2e-6, 1e-6, 3e-6, 0.0)
    roofline = Roofline({"float32": 1e11}, 1e10)
    shapes = {"x": (1, 3)}
    return PlanProfile("net", "", {}, 1, 9, "timestamps", shapes, 2e-6, 2e-6, (step,), roofline)


def test_json_gives_the_same_profile() -> None:
    assert PlanProfile.from_json(json.loads(json.dumps(example().to_json()))) == example()


@pytest.mark.parametrize("told", [None, [], {"format": "other"}, {"format": "tactix profile"}])
def test_what_is_no_profile_is_refused(told: object) -> None:
    with pytest.raises(InvalidArgument, match="profile"):
        PlanProfile.from_json(told)


@pytest.mark.parametrize("seconds", ["many", float("nan"), None])
def test_times_that_are_none_are_refused(seconds: object) -> None:
    told = example().to_json()
    told["steps"][0]["seconds"] = seconds
    with pytest.raises(InvalidArgument, match="seconds of a step is"):
        PlanProfile.from_json(told)


def test_a_damaged_profile_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="damaged"):
        PlanProfile.from_json({**example().to_json(), "steps": [{"index": 0}]})
