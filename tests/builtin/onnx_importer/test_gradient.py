"""Gradients of random compositions against finite differences in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from tactix.base.errors import UnsupportedOperator
from tactix_sdk.evaluate import evaluate

PREVIEW = "ai.onnx.preview.training"
F64 = np.float64
STEP = 1e-6
make = onnx.helper.make_node
INTS = {"axes": np.array([1]), "two": np.array([0, 2]), "shape": np.array([4, -1]), "wide": np.array([2, 3, 4]),
        "begin": np.array([1]), "end": np.array([3]), "sizes": np.array([1, 3])}  # fmt: skip


def network(
    nodes: Sequence[Any],
    feed: dict[str, Any],
    model: Any,
    imported: Any,
    shapes: dict[str, Any] | None = None,
    given: Sequence[str] | None = None,
    more: Sequence[Any] = (),
    outputs: Sequence[str] = (),
    **attrs: Any,
) -> Any:
    """Outputs y and d_x for each x, all of them inputs; ``y`` is the last node's output."""
    xs = attrs.pop("xs", list(feed))
    names = [f"d_{x}" for x in xs]
    gradient = make(
        "Gradient",
        list(given or [*xs, *attrs.get("zs", [])]),
        names,
        domain=PREVIEW,
        xs=xs,
        y="y",
        **attrs,
    )
    declared = {k: (a.dtype, (shapes or {}).get(k, a.shape)) for k, a in feed.items()}
    domains = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid(PREVIEW, 1)]
    every = [*nodes, gradient, *more]
    used = {name for n in every for name in n.input}
    ints = {k: v for k, v in INTS.items() if k in used}
    return imported(model(every, declared, ["y", *names, *outputs], ints, opset_imports=domains))


def check(
    nodes: Sequence[Any], feed: dict[str, Any], model: Any, imported: Any, **more: Any
) -> None:
    """Every element's gradient of the sum of y."""
    net = network(nodes, feed, model, imported, **more)
    found = evaluate(net, feed)
    for name, x in feed.items():
        assert found[f"d_{name}"].dtype == x.dtype
        assert found[f"d_{name}"].shape == x.shape
        want = np.zeros_like(x)
        for i in np.ndindex(x.shape):
            ends = []
            for sign in (1, -1):
                moved = x.copy()
                moved[i] += sign * STEP
                ends.append(evaluate(net, {**feed, name: moved})["y"].sum())
            want[i] = (ends[0] - ends[1]) / (2 * STEP)
        np.testing.assert_allclose(found[f"d_{name}"], want, rtol=2e-6, atol=2e-7, err_msg=name)


def arrays(*shapes: tuple[int, ...], low: float = 0.3, signs: bool = False) -> dict[str, Any]:
    """Inputs a, b... away from kinks and poles."""
    rng = np.random.default_rng(7)
    out = {}
    for name, shape in zip("abc", shapes):
        out[name] = rng.uniform(low, 2, shape)
        if signs:
            out[name] *= rng.choice([-1, 1], shape)
    return out


UNARY = ("Neg", "Exp", "Tanh", "Sigmoid", "Relu", "Erf", "Abs", "Sin", "Cos", "Softplus", "Reciprocal", "LeakyRelu",
         "Identity", "Softmax", "LogSoftmax", "Flatten")  # fmt: skip


@pytest.mark.parametrize("op", UNARY)
def test_one_input(op: str, model: Any, imported: Any) -> None:
    """Weighed by itself, so that the output's gradient is no constant."""
    nodes = [make("Exp", ["a"], ["e"]), make(op, ["a"], ["t"]), make("Flatten", ["e"], ["f"]),
             make("Flatten", ["t"], ["u"]), make("Mul", ["f", "u"], ["y"])]  # fmt: skip
    check(nodes, arrays((3, 4), signs=True), model, imported)


@pytest.mark.parametrize("op", ["Log", "Sqrt"])
def test_one_positive_input(op: str, model: Any, imported: Any) -> None:
    check([make(op, ["a"], ["t"]), make("Mul", ["t", "t"], ["y"])], arrays((3, 4)), model, imported)


SHAPES = [((3, 4), (3, 4)), ((3, 4), (4,)), ((2, 1, 4), (3, 1)), ((), (2, 3)), ((1,), (1, 1))]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum", "Mean"])
def test_two_inputs_are_broadcast(op: str, shapes: Any, model: Any, imported: Any) -> None:
    check(
        [make(op, ["a", "b"], ["t"]), make("Mul", ["t", "t"], ["y"])],
        arrays(*shapes),
        model,
        imported,
    )


MATRICES = [((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 1, 3, 4), (5, 4, 2)),
            ((4,), (2, 4, 3)), ((2, 3, 4), (4,))]  # fmt: skip


@pytest.mark.parametrize("shapes", MATRICES, ids=str)
def test_products(shapes: Any, model: Any, imported: Any) -> None:
    check(
        [make("MatMul", ["a", "b"], ["t"]), make("Tanh", ["t"], ["y"])],
        arrays(*shapes),
        model,
        imported,
    )


@pytest.mark.parametrize("bias", [(5,), (3, 1), ()], ids=str)
@pytest.mark.parametrize("turned", [(0, 0), (0, 1), (1, 0), (1, 1)], ids=str)
def test_gemm(turned: tuple[int, int], bias: Any, model: Any, imported: Any) -> None:
    a, b = ((4, 3) if turned[0] else (3, 4)), ((5, 4) if turned[1] else (4, 5))
    attrs = {"transA": turned[0], "transB": turned[1], "alpha": 0.5, "beta": -1.5}
    nodes = [make("Gemm", ["a", "b", "c"], ["t"], **attrs), make("Tanh", ["t"], ["y"])]
    check(nodes, arrays(a, b, bias), model, imported)


SQUARED = make("Mul", ["t", "t"], ["y"])
MOVED: dict[str, list[Any]] = {
    "transpose": [make("Transpose", ["a"], ["t"], perm=[2, 0, 1])],
    "reshape": [make("Reshape", ["a", "shape"], ["t"])],
    "unsqueeze": [make("Unsqueeze", ["a", "axes"], ["t"])],
    "expand": [make("ReduceSum", ["a", "two"], ["s"]), make("Expand", ["s", "wide"], ["t"])],
    "sum": [make("ReduceSum", ["a", "axes"], ["t"], keepdims=0)],
    "sum of all": [make("ReduceSum", ["a"], ["t"], keepdims=0)],
    "mean": [make("ReduceMean", ["a", "two"], ["t"])],
    "greatest": [make("ReduceMax", ["a", "two"], ["t"])],
    "least": [make("ReduceMin", ["a", "axes"], ["t"], keepdims=0)],
    "concat": [make("Exp", ["a"], ["e"]), make("Concat", ["a", "e", "a"], ["t"], axis=1)],
    "split": [make("Split", ["a", "sizes"], ["p", "q"], axis=2), make("Mul", ["p", "q"], ["t"])],
    "part of a split": [make("Split", ["a", "sizes"], ["", "t"], axis=2)],
    "slice": [make("Slice", ["a", "begin", "end", "axes"], ["t"])],
    "where": [
        make("Sin", ["a"], ["s"]),
        make("Greater", ["a", "s"], ["g"]),
        make("Where", ["g", "a", "s"], ["t"]),
    ],
    "cast": [
        make("Cast", ["a"], ["i"], to=7),
        make("Cast", ["i"], ["f"], to=11),
        make("Mul", ["a", "f"], ["t"]),
    ],
    "softmax": [make("Softmax", ["a"], ["t"], axis=1)],
}


@pytest.mark.parametrize("what", MOVED)
def test_movements_and_reductions(what: str, model: Any, imported: Any) -> None:
    feed = arrays((2, 3, 4))
    feed["a"] += 0.1 if what == "cast" else 0  # not beside a whole number
    check([*MOVED[what], SQUARED], feed, model, imported)


def test_bounds_cut_gradients(model: Any, imported: Any) -> None:
    nodes = [make("Relu", ["a"], ["r"]), make("LeakyRelu", ["a"], ["l"], alpha=0.25), make("Add", ["r", "l"], ["t"]),
             make("Clip", ["t"], ["c"]), make("Mul", ["c", "a"], ["y"])]  # fmt: skip
    check(nodes, arrays((4, 5), signs=True), model, imported)


def test_symbolic_shapes(model: Any, imported: Any) -> None:
    nodes = [make("Mul", ["a", "b"], ["t"]), make("ReduceMean", ["t"], ["m"], keepdims=1),
             make("Sub", ["t", "m"], ["s"]), make("Mul", ["s", "s"], ["y"])]  # fmt: skip
    check(nodes, arrays((3, 4), (4,)), model, imported, shapes={"a": ["n", 4]})


def test_a_small_classifier(model: Any, imported: Any) -> None:
    nodes = [make("Gemm", ["a", "b"], ["h"]), make("Tanh", ["h"], ["t"]), make("MatMul", ["t", "c"], ["s"]),
             make("LogSoftmax", ["s"], ["p"], axis=-1), make("Neg", ["p"], ["y"])]  # fmt: skip
    check(nodes, arrays((3, 4), (4, 5), (5, 6), signs=True), model, imported)


def test_second_derivatives(model: Any, imported: Any) -> None:
    """d/dx of the gradient 3 x^2 is 6 x."""
    nodes = [make("Mul", ["a", "a"], ["s"]), make("Mul", ["s", "a"], ["y"])]
    again = make("Gradient", ["a"], ["dd"], domain=PREVIEW, xs=["a"], y="d_a")
    feed = arrays((3,))
    found = evaluate(network(nodes, feed, model, imported, more=[again], outputs=["dd"]), feed)
    np.testing.assert_allclose(found["d_a"], 3 * feed["a"] ** 2)
    np.testing.assert_allclose(found["dd"], 6 * feed["a"])


def test_inner_tensors_are_independent(model: Any, imported: Any) -> None:
    """By zs the path through them is cut; xs may be results, too."""
    nodes = [make("Mul", ["a", "a"], ["h"]), make("Mul", ["h", "a"], ["y"])]
    feed = arrays((3,))
    found = evaluate(network(nodes, feed, model, imported, xs=["a"], zs=["h"]), feed)
    np.testing.assert_allclose(found["d_a"], feed["a"] ** 2)
    found = evaluate(network(nodes, feed, model, imported, xs=["h"], zs=["a"]), feed)
    np.testing.assert_allclose(found["d_h"], feed["a"])


def test_other_values_may_be_given(model: Any, imported: Any) -> None:
    """The gradient is that at the node's inputs, not at the tensors that xs and zs name."""
    nodes = [make("Mul", ["a", "a"], ["h"]), make("Mul", ["h", "b"], ["y"])]
    feed = arrays((3,), (3,), (3,))
    net = network(nodes, feed, model, imported, xs=["a"], zs=["b"], given=["c", "a"])
    found = evaluate(net, feed)
    np.testing.assert_allclose(found["d_a"], 2 * feed["c"] * feed["a"])
    np.testing.assert_allclose(found["y"], feed["a"] ** 2 * feed["b"])


def test_constants_have_gradients(model: Any, imported: Any) -> None:
    """What was computed of constants while importing is taken apart again."""
    domains = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid(PREVIEW, 1)]
    w, x = np.array([0.5, 2.0, 3.0]), np.array([1.0, -2.0, 4.0])
    gradient = make("Gradient", ["w"], ["d"], domain=PREVIEW, xs=["w"], y="y")
    for nodes, want in [
        ([make("Mul", ["w", "w"], ["s"]), make("Mul", ["s", "x"], ["y"])], 2 * w * x),
        ([make("Mul", ["w", "w"], ["s"]), make("Exp", ["s"], ["y"])], 2 * w * np.exp(w * w)),
    ]:
        net = imported(
            model(
                [*nodes, gradient], {"x": (F64, [3])}, ["y", "d"], {"w": w}, opset_imports=domains
            )
        )
        np.testing.assert_allclose(evaluate(net, {"x": x})["d"], want)


def test_constants_beside_shapes_are_refused(model: Any, imported: Any) -> None:
    """Their product is a number that follows from shapes, whose factors are lost."""
    nodes = [make("Shape", ["x"], ["i"]), make("Cast", ["i"], ["n"], to=1), make("Mul", ["n", "w"], ["s"]),
             make("Mul", ["s", "x"], ["y"]),
             make("Gradient", ["w"], ["d"], domain=PREVIEW, xs=["w"], y="y")]  # fmt: skip
    domains = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid(PREVIEW, 1)]
    constants = {"w": np.array([2], np.float32)}
    with pytest.raises(UnsupportedOperator, match="shapes"):
        imported(
            model(nodes, {"x": (np.float32, ["n"])}, ["y", "d"], constants, opset_imports=domains)
        )


def test_what_y_does_not_need_has_no_slope(model: Any, imported: Any) -> None:
    feed = arrays((2, 3), (4,))
    found = evaluate(network([make("Exp", ["a"], ["y"])], feed, model, imported), feed)
    assert found["d_b"].tolist() == [0, 0, 0, 0]


def test_a_layer_without_a_rule_is_named(model: Any, imported: Any) -> None:
    nodes = [make("CumSum", ["a", "axes"], ["y"])]
    with pytest.raises(UnsupportedOperator, match=r"the gradient of tactix\.CumSum"):
        network(nodes, arrays((3, 4)), model, imported)


def test_integers_have_no_gradient(model: Any, imported: Any) -> None:
    with pytest.raises(UnsupportedOperator, match="no tensor of floats"):
        network([make("Mul", ["a", "a"], ["y"])], {"a": np.array([1, 2])}, model, imported)


def test_a_broadcast_that_only_running_tells_is_refused(model: Any, imported: Any) -> None:
    with pytest.raises(UnsupportedOperator, match="only known by running"):
        network(
            [make("Mul", ["a", "b"], ["y"])],
            arrays((3,), (3,)),
            model,
            imported,
            shapes={"a": ["n"], "b": ["m"]},
        )
