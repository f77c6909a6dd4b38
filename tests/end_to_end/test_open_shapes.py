"""Models whose inputs have symbols of their own are built without a profile: sizes are found that
make sense.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as node
from small_models import agree, model

import tactix
from tactix.base import dims
from tactix.base.errors import ShapeError
from tactix.pipeline.constraints import settled
from tactix.pipeline.profiles import LARGEST, ranges

F, I64 = np.float32, np.int64
RNG = np.random.default_rng(0)


def random(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(F)


def of(nodes: list[Any], shapes: dict[str, tuple[Any, ...]], **constants: Any) -> onnx.ModelProto:
    """Of float32 inputs with one output, ``y``."""
    return model(nodes, {k: (F, s) for k, s in shapes.items()}, ["y"], constants)


SCORES = [
    node("Concat", ["past", "k"], ["all"], axis=2),
    node("Transpose", ["all"], ["turned"], perm=[0, 1, 3, 2]),
    node("MatMul", ["k", "turned"], ["scores"]),
    node("Unsqueeze", ["mask", "axes"], ["wide"]),
    node("Add", ["scores", "wide"], ["y"]),
]
"""A decoder's scores over what was said before and now, and a mask over both."""


def scores(past: tuple[Any, ...], k: tuple[Any, ...], mask: tuple[Any, ...]) -> onnx.ModelProto:
    return of(SCORES, {"past": past, "k": k, "mask": mask}, axes=np.array([1, 2]))


TWO = {"x": ("a", "b"), "z": ("c", "d")}
CASES: dict[str, tuple[onnx.ModelProto, dict[str, Any]]] = {
    "a row of a batch of one": (
        of([node("MatMul", ["x", "w"], ["m"]), node("Gather", ["m", "one"], ["y"])], {"x": ("batch", "seq", 64)},
           w=random(64, 8), one=np.array(1)),
        {"x": random(2, 5, 64)},
    ),
    "the last row but one": (of([node("Gather", ["x", "i"], ["y"])], {"x": ("a", "b")}, i=np.array(-2)),
                             {"x": random(4, 2)}),
    "elements": (of([node("GatherElements", ["x", "i"], ["y"])], {"x": ("a", "b")}, i=np.array([[2, 1], [0, 3]])),
                 {"x": random(4, 2)}),
    "places": (of([node("GatherND", ["x", "i"], ["y"])], {"x": ("a", "b")}, i=np.array([[2, 1], [0, 200]])),
               {"x": random(4, 201)}),
    "another's shape": (of([node("Shape", ["x"], ["s"]), node("Reshape", ["z", "s"], ["w"]),
                            node("Add", ["w", "x"], ["y"])], TWO),
                        {"x": random(6, 2), "z": random(4, 3)}),
    "whole rows": (of([node("Reshape", ["x", "s"], ["v"]), node("Relu", ["v"], ["y"])], {"x": ("a", "b")},
                      s=np.array([-1, 3, 7])), {"x": random(3, 14)}),
    "an axis of one": (of([node("Squeeze", ["x", "i"], ["v"]), node("Relu", ["v"], ["y"])], {"x": ("a", "b")},
                          i=np.array([1])), {"x": random(4, 1)}),
    "parts": (of([node("Split", ["x", "s"], ["v", "w"], axis=0), node("Add", ["v", "w"], ["y"])], {"x": ("a", "b")},
                 s=np.array([3, 3])), {"x": random(6, 14)}),
    "a product": (of([node("MatMul", ["x", "z"], ["y"])], TWO), {"x": random(4, 5), "z": random(5, 6)}),
    "a past": (scores(("b", 2, "past", 4), ("b", 2, "seq", 4), ("b", "total")),
               {"past": random(1, 2, 3, 4), "k": random(1, 2, 2, 4), "mask": random(1, 5)}),
    "a past of its own batch": (scores(("p", 2, "past", 4), ("b", 2, "seq", 4), ("m", "total")),
                                {"past": random(2, 2, 3, 4), "k": random(2, 2, 2, 4), "mask": random(2, 5)}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_no_profile_is_needed(name: str) -> None:
    agree(*CASES[name], tolerance=1e-4, level=1)


def test_a_profile_for_some_inputs_settles_the_others() -> None:
    m = of([node("Add", ["x", "z"], ["y"])], {"x": ("a", "b"), "z": ("a", "c")})
    agree(m, {"x": random(2, 256), "z": random(2, 256)}, level=1, shapes={"x": (2, 256)})
    m = CASES["a past"][0]
    plan = tactix.build(m, level=0, shapes={"past": (1, 2, 40, 4)}).plan
    opt = {s: r[1] for s, r in plan.profiles[0].dims.items()}
    assert (opt["past"], opt["total"]) == (40, 40 + opt["seq"])
    plan = tactix.build(m, level=0, shapes={"mask": (1, 300)}).plan
    opt = {s: r[1] for s, r in plan.profiles[0].dims.items()}
    assert opt["total"] == 300 == opt["past"] + opt["seq"]


@pytest.mark.parametrize("axes", [5, 7])
def test_many_open_axes_are_tuned_for_small_ones(axes: int) -> None:
    names = [f"d{i}" for i in range(axes)]
    m = of([node("Mul", ["x", "x"], ["v"]), node("Exp", ["v"], ["y"])], {"x": tuple(names)})
    dims_of = tactix.build(m, level=0).plan.profiles[0].dims
    assert 4 < np.prod([dims_of[n][1] for n in names]) <= LARGEST
    agree(m, {"x": random(*range(1, axes + 1))})


def test_sequences_are_tuned_for_128() -> None:
    m = of([node("MatMul", ["x", "w"], ["y"])], {"x": ("batch", "seq", 16)}, w=random(16, 100_000))
    found = tactix.build(m, level=0).plan.profiles[0].dims
    assert (found["batch"][:2], found["seq"][:2]) == ((0, 1), (0, 128))


def test_what_cannot_be_met_is_left_as_it_is() -> None:
    from tactix.builder import Builder

    builder = Builder()
    net = builder.import_model(
        of([node("Add", ["x", "z"], ["y"])], {"x": ("a", "b"), "z": ("a", "c")})
    )
    assert settled(net, {"a": 1, "b": 128, "c": 7}, {}) == {"a": 1, "b": 128, "c": 7}
    assert settled(net, {"a": 1, "b": 128, "c": 7}, {"c": 100})["c"] == 1
    assert settled(net, {"a": 1, "b": 128, "c": 7}, {"c": None})["c"] == 128
    assert ranges(net, tactix.BuilderConfig())[0].dims["b"][1] == 128


def test_a_layer_that_no_length_suits_is_named() -> None:
    builder = tactix.Builder()
    net = builder.create_network("blocks")
    x = net.add_input("x", "f32", ("batch", 1, "length"))
    parts = []
    for block, more in ((16, 2), (8, 3)):  # as many as each other at no length
        (y,) = net.add_layer("tactix.MaxPool", [x], kernel_shape=(block,), strides=(block,))
        (y,) = net.add_layer("tactix.Pad", [y], pads=(0, 0, 0, 0, 0, more))
        parts.append(y)
    (y,) = net.add_layer("tactix.Add", parts)
    (y,) = net.add_layer("tactix.MaxPool", [y], kernel_shape=(2,), name="blocks")
    net.mark_output(y, "y")
    why = r"layer 'blocks': cannot run at .*\(batch=1, length=\d+\): dimensions .* Give shapes"
    with pytest.raises(ShapeError, match=why):
        builder.build_plan(net)


def test_assumptions_are_noted_only_where_they_are_asked_for() -> None:
    a, b = dims.sym("a"), dims.sym("b")
    dims.assume(a, "==", b)
    with dims.assumptions() as noted:
        dims.assume(a, "==", b)
        dims.assume(3, "==", 3)
        with dims.assumptions() as inner:
            dims.assume(a, ">=", 2)
    assert (noted, inner) == ([dims.Assumption(a, "==", b)], [dims.Assumption(a, ">=", 2)])
    assert noted[0].holds({"a": 2, "b": 2})
    assert not noted[0].holds({"a": 2, "b": 3})
    assert not inner[0].holds({"a": 1})


def grown(outputs: list[str], new: tuple[Any, ...]) -> onnx.ModelProto:
    """What is new behind what is past, along the axis before the last."""
    nodes = [
        node("Reshape", ["new", "shape"], ["row"]),
        node("Concat", ["past", "row"], ["present"], axis=1),
        node("Neg", ["new"], ["y"]),
    ]
    inputs = {"past": (F, (1, "past", 4)), "new": (F, new)}
    return model(nodes, inputs, outputs, {"shape": np.array([1, -1, 4])})


@pytest.mark.parametrize(
    ("outputs", "new", "alone"),
    [
        (["present", "y"], ("step", 4), True),
        (["y"], ("step", 4), True),  # of one row as batches are: it is the first axis
        (["present", "y"], (1, "step", 2, 2), True),
        (["y"], (1, "step", 2, 2), False),  # the state is no output: nothing grows
        (["present", "y"], (1, "step", 4), False),  # either may be what grows
    ],
)
def test_a_state_that_grows_is_tuned_for_steps_of_one(
    outputs: list[str], new: tuple[Any, ...], alone: bool
) -> None:
    network = tactix.Builder().import_model(grown(outputs, new))
    (profile,) = ranges(network, tactix.BuilderConfig())
    assert (profile.dims["step"][1] == 1) == alone
    assert profile.dims["past"][1] > 1
