"""Constants are packed by what they are made of, or say that they are made of nothing."""

from __future__ import annotations

import numpy as np
import pytest

from tactix.base.errors import InvalidArgument
from tactix.contracts.artifact import Packed


def test_steps_are_done_in_order() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    steps = (("transpose", (1, 0)), ("pad", ((0, 1), (0, 0))), ("cast", "int8"), ("reshape", (-1,)))
    packed = Packed(0, steps).apply([x])
    assert packed.dtype == np.int8
    assert packed.tolist() == [0, 3, 1, 4, 2, 5, 0, 0]


def test_what_is_made_of_nothing_says_so() -> None:
    with pytest.raises(InvalidArgument, match="no input and has no array"):
        Packed(-1).apply([])
