"""Constants and layers of a plan are what they are asked for, or say that they are not."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import pytest

from tactix.base.dtypes import DType
from tactix.base.errors import InvalidArgument
from tactix.base.tensor import TensorSpec
from tactix.contracts import region
from tactix.contracts.graph import Node, Value


def test_a_constant_has_an_array() -> None:
    x = np.zeros(2, np.float32)
    assert Value("w", TensorSpec(DType.FP32, (2,), const=x)).array is x
    with pytest.raises(InvalidArgument, match="x: it is no constant"):
        _ = Value("x", TensorSpec(DType.FP32, (2,))).array


@pytest.mark.parametrize(
    "damaged",
    [
        {"layer": 3, "attrs": {}},
        {"layer": "tactix.Reformat@1", "attrs": []},
        {"layer": "tactix.Fused@1", "body": {"nodes": 1, "results": []}},
    ],
)
def test_a_damaged_layer_says_which_field_it_is(damaged: dict[str, object]) -> None:
    def find(key: str) -> NoReturn:
        raise AssertionError(key)

    with pytest.raises(InvalidArgument, match=r"a layer's (layer|attrs|nodes) is"):
        region.decode(damaged, find)


def test_a_node_makes_its_body_once_and_anew_when_something_of_it_changes() -> None:
    spec = TensorSpec(DType.FP32, (2,))
    x, y = Value("x", spec), Value("y", spec)
    node = Node("n", region.REFORMAT, region.ReformatAttrs(), [x, None, y])
    node.outputs = (Value("z", spec, node),)
    first = node.body
    assert node.body is first
    assert (first.arity, node.given) == (2, (x, y))
    node.inputs = (x, None, None)
    assert (node.body.arity, node.given) == (1, (x,))
