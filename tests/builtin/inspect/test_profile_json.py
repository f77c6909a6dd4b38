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
    with pytest.raises(InvalidArgument, match="seconds of step 0 is"):
        PlanProfile.from_json(told)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"steps": [{"index": 0}]}, "step 0 has no 'name'"),
        ({"steps": {}}, "steps: no list but {}"),
        ({"steps": [3]}, "step 0: no object but 3"),
        ({"shapes": [1]}, r"shapes of the profile: no object but \[1\]"),
        ({"speed": 3}, "the profile has 'speed', which no profile has"),
        ({"seconds": "x"}, "seconds of the profile is 'x'"),
        ({"roofline": {"flops": {}}}, "the roofline has no 'nbytes'"),
    ],
)
def test_a_damaged_profile_is_refused(changed: dict[str, object], said: str) -> None:
    told = f"p.json: a damaged profile: {said}. Write one"
    with pytest.raises(InvalidArgument, match=told):
        PlanProfile.from_json({**example().to_json(), **changed}, "p.json")
