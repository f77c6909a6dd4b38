"""Attributes that a user gives are held to the annotations of the layer's schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tactix
from tactix.base.dims import Dim, sym
from tactix.base.dtypes import DType
from tactix.base.errors import InvalidArgument
from tactix.contracts.layer import Layer
from tactix.contracts.schema import attributes_of
from tactix_sdk import layer


@dataclass(frozen=True)
class ToldAttrs:
    whole: int = 1
    share: float = 1.0
    flag: bool = False
    mode: str = "none"
    pads: tuple[int, ...] = ()
    pair: tuple[int, int] = (0, 0)
    sizes: tuple[Dim, ...] = ()
    to: DType = DType.FP32
    most: int | None = None
    own: NotToBeFound = ()  # type: ignore[name-defined]  # noqa: F821


class Told(Layer):
    key, Attrs = "toy.Told@1", ToldAttrs


GOOD: list[tuple[str, Any, Any]] = [
    ("whole", np.int64(3), 3),
    ("share", 2, 2),
    ("share", np.float32(0.5), 0.5),
    ("share", np.int8(4), 4),
    ("flag", np.True_, True),
    ("pads", [np.int32(1), 2], (1, 2)),
    ("pair", (1, 2), (1, 2)),
    ("sizes", (sym("n") * 2, 3), (sym("n") * 2, 3)),
    ("most", None, None),
    ("most", np.int64(3), 3),
    ("own", "anything", "anything"),
]
BAD: list[tuple[str, Any, str]] = [
    ("whole", 2.5, "2.5: a float is no int. Give int"),
    ("whole", True, "True: a bool is no int. Give int"),
    ("whole", np.float64(2), "a float64 is no int"),
    ("share", "a", "'a': a str is no float. Give float"),
    ("share", True, "a bool is no float"),
    ("flag", "no", "a str is no bool"),
    ("mode", 3, "an int is no str"),
    ("pads", 3, r"an int is no tuple\[int, ...\]"),
    ("pads", (1, 2.5), r"a tuple is no tuple\[int, ...\]"),
    ("pair", (1, 2, 3), r"a tuple is no tuple\[int, int\]"),
    ("to", "f32", "a str is no DType"),
    ("most", 1.5, r"a float is no int \| None"),
]


@pytest.mark.parametrize(("name", "given", "held"), GOOD)
def test_what_fits_is_taken_as_pythons_own(name: str, given: Any, held: Any) -> None:
    got = getattr(attributes_of(Told(), {name: given}), name)
    assert got == held
    assert type(got) is type(held)


@pytest.mark.parametrize(("name", "given", "why"), BAD)
def test_what_does_not_fit_is_named_with_its_layer(name: str, given: Any, why: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"^toy\.Told@1: attribute '{name}' is .*{why}"):
        attributes_of(Told(), {name: given})


def test_a_built_in_layer_says_so_where_it_is_added() -> None:
    net = tactix.Builder().create_network("softmax")
    x = net.add_input("x", "f32", (2, 3))
    with pytest.raises(InvalidArgument, match=r"tactix\.Softmax@1: attribute 'axis' is 1\.5"):
        net.add_layer("tactix.Softmax", [x], axis=1.5)


def test_parameters_of_a_function_are_held_to_their_annotations_or_defaults() -> None:
    @layer("toy.Scaled@1")
    def scaled(x: Any, *, g: float = 1, axis=0, anything=None) -> Any:
        return x

    assert attributes_of(scaled, {"g": 0.5, "axis": 1, "anything": "a"})
    for given in ({"g": "a"}, {"axis": 2.5}):
        with pytest.raises(InvalidArgument, match=r"toy\.Scaled@1: attribute"):
            attributes_of(scaled, given)
