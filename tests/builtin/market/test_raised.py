"""Errors of another process arrive as what they were."""

from __future__ import annotations

import json

import pytest

from tactix.base.errors import AllocationError, DeviceLost, ExecutionError, TactixError
from tactix.select.bench import Untriable
from tactix_isolate.raised import made, told


class PackError(ExecutionError):
    """A pack's own, which takes something else."""

    def __init__(self, number: int) -> None:
        super().__init__(f"number {number}", why="it is odd")


def sent(e: BaseException) -> Exception:
    return made(json.loads(json.dumps(told(e))))


@pytest.mark.parametrize("kind", [AllocationError, DeviceLost, Untriable, TactixError])
def test_errors_of_ours_keep_their_parts(kind: type[TactixError]) -> None:
    e = kind("it failed", who="somebody", why="for a reason", do="something")
    got = sent(e)
    assert type(got) is kind
    assert str(got) == str(e)


def test_an_error_of_a_pack_is_the_nearest_of_ours() -> None:
    got = sent(PackError(3))
    assert type(got) is ExecutionError
    assert str(got) == "number 3: it is odd"


@pytest.mark.parametrize("e", [TypeError("no such argument"), MemoryError(), KeyError("x")])
def test_errors_of_python_are_what_they_were(e: Exception) -> None:
    assert type(sent(e)) is type(e)


def test_others_are_told_by_name() -> None:
    got = sent(type("Odd", (Exception,), {})("text"))
    assert type(got) is ExecutionError
    assert str(got) == "Odd: text"


def test_causes_and_places_are_told() -> None:
    try:
        try:
            raise MemoryError
        except MemoryError as e:
            raise ValueError("too large") from e
    except ValueError as e:
        got = sent(e)
    assert type(got.__cause__) is MemoryError
    assert "test_raised.py" in got.__notes__[0]
