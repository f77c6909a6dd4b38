"""What a variant says of its knobs."""

from __future__ import annotations

import pytest

from tactix.base.errors import InvalidArgument
from tactix.contracts.tactic import Variant


def test_a_number_is_read_as_one() -> None:
    made = Variant.of(rows=4, alternate=True, kind="f16")
    assert made.number("rows") + made.number("alternate") == 5
    assert made.knob("kind") == "f16"


def test_what_is_no_number_is_not_taken_for_one() -> None:
    with pytest.raises(InvalidArgument, match="'kind' is 'f16'"):
        Variant.of(kind="f16").number("kind")
