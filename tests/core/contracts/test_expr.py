"""What a scalar expression's node holds is read by its kind."""

from __future__ import annotations

import numpy as np
import pytest

from tactix.base.dtypes import DType
from tactix.base.errors import InvalidArgument
from tactix.contracts import expr


def test_each_kind_of_node_tells_what_it_holds() -> None:
    x = expr.var(3)
    double = expr.Primitive("double", 1, lambda a: np.asarray(2 * a))
    assert x.index == 3
    assert expr.const(2).number == 2
    assert expr.cast(x, DType.FP16).dtype is DType.FP16
    assert double(x).primitive is double


@pytest.mark.parametrize("what", ["index", "number", "dtype", "primitive"])
def test_a_node_without_it_says_so(what: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^add holds no {what}"):
        getattr(expr.var(0) + expr.var(1), what)
