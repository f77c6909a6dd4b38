"""Pointwise identities, powers, choices, casts, equal nodes."""

from __future__ import annotations

import numpy as np
import pytest

from tactix.base.dtypes import DType
from tactix_ops.rules.canonical import NEUTRAL

ARITHMETIC = [(name, number) for name, number in NEUTRAL if name not in ("And", "Or", "Xor")]


@pytest.mark.parametrize(("name", "number"), ARITHMETIC)
@pytest.mark.parametrize("shape", [(), (1, 5), (4, 5)])
def test_neutral_operands_vanish(net, apply, name, number, shape):
    y = net.add(name, net.x("n", 4, 5), net.c(np.full(shape, number)))
    net.mark_output(net.add("Softmax", y), "y")
    assert apply(net, f"neutral_{name.lower()}")[0] == ["Softmax"]


@pytest.mark.parametrize(("name", "number"), ARITHMETIC)
def test_other_operands_stay(net, apply, name, number):
    y = net.add(
        name, net.x("n", 5), net.c([number] * 4 + [number + 0.5 if np.isfinite(number) else 3])
    )
    net.mark_output(net.add("Softmax", y), "y")
    assert apply(net, f"neutral_{name.lower()}")[0] == [name, "Softmax"]


@pytest.mark.parametrize("name", ["Add", "Mul", "Max", "Min"])
def test_the_constant_may_stand_first(net, apply, name):
    y = net.add(name, net.c(dict(NEUTRAL)[name]), net.x("n", 5))
    net.mark_output(net.add("Softmax", y), "y")
    assert apply(net, f"neutral_{name.lower()}")[0] == ["Softmax"]


@pytest.mark.parametrize("name", ["Sub", "Div", "Pow"])
def test_first_and_second_operand_differ(net, apply, name):
    y = net.add(name, net.c(dict(NEUTRAL)[name]), net.x("n", 5))
    net.mark_output(net.add("Softmax", y), "y")
    assert apply(net, f"neutral_{name.lower()}")[0] == [name, "Softmax"]


def test_a_wider_constant_repeats(net, apply):
    y = net.add("Mul", net.x("n", 1), net.c(np.ones((3, 1, 5))))
    net.mark_output(net.add("Softmax", y), "y")
    assert apply(net, "neutral_mul")[0] == ["Expand", "Softmax"]


@pytest.mark.parametrize("dtype", ["f32", "i32"])
def test_powers(net, apply, dtype):
    x = net.x("n", 5, dtype=dtype)
    for power in (2, 3, 4, 5):
        net.mark_output(
            net.add("Pow", x, net.c(power, np.float32 if dtype == "f32" else np.int32)), f"y{power}"
        )
    kinds = apply(net, "power")[0]
    assert {k: kinds.count(k) for k in kinds} == {"Mul": 5, "Pow": 1}


@pytest.mark.parametrize(
    ("power", "layers"),
    [
        (1, []),
        (0.5, ["Sqrt"]),
        (-0.5, ["Sqrt", "Reciprocal"]),
        (-1, ["Reciprocal"]),
        (-2, ["Mul", "Reciprocal"]),
        (0.25, ["Pow"]),
    ],
)
def test_powers_of_floats(net, apply, power, layers):
    net.mark_output(net.add("Pow", net.add("Exp", net.x("n", 5)), net.c(power)), "y")
    assert apply(net, "power")[0] == ["Exp", *layers]


def test_the_square_root_of_integers_stays_a_power(net, apply):
    net.mark_output(net.add("Pow", net.x("n", 5, dtype="i32"), net.c(0.5)), "y")
    assert apply(net, "power")[0] == ["Pow"]


@pytest.mark.parametrize("truth", [True, False])
def test_a_constant_condition_chooses(net, apply, truth):
    a, b = net.x("n", 5, name="a"), net.x("n", 1, name="b")
    y = net.add("Where", net.c(np.full((5,), truth), np.bool_), a, b)
    net.mark_output(net.add("Softmax", y), "y")
    assert apply(net, "constant_choice")[0] == ([] if truth else ["Expand"]) + ["Softmax"]


def test_a_mixed_condition_stays(net, apply):
    a, b = net.x("n", 5, name="a"), net.x("n", 5, name="b")
    net.mark_output(net.add("Where", net.c([1, 0, 1, 0, 1], np.bool_), a, b), "y")
    assert apply(net, "constant_choice")[0] == ["Where"]


def test_casts(net, apply):
    x = net.x("n", 5)
    y = net.add("Cast", x, to=x.spec.dtype)
    net.mark_output(net.add("Softmax", y), "y")
    net.mark_output(net.add("Cast", y, to=net.c(0, np.int32).spec.dtype), "z")
    assert sorted(apply(net, "same_cast")[0]) == ["Cast", "Softmax"]


def test_equal_nodes_become_one(net, apply):
    x, z = net.x("n", 5), net.x("n", 5, name="z")
    one = net.add("Softmax", net.add("Add", x, z), axis=-1)
    two = net.add("Softmax", net.add("Add", z, x), axis=-1)
    net.mark_output(net.add("Sub", net.add("Exp", one), net.add("Neg", two)), "y")
    assert sorted(apply(net, "merge_equal")[0]) == ["Add", "Exp", "Neg", "Softmax", "Sub"]


def test_equal_nodes_of_several_outputs(net, apply):
    x = net.x("n", 5)
    (a, _), (_, b) = (net.add_layer("tactix.Split", [x], axis=1, sizes=(2, 3)) for _ in range(2))
    net.mark_output(net.add("Exp", a), "a")
    net.mark_output(net.add("Exp", b), "b")
    assert sorted(apply(net, "merge_equal")[0]) == ["Exp", "Exp", "Split"]


def test_equal_nodes_without_inputs(net, apply):
    x = net.x("n", "s")
    for i in range(2):
        s = net.add("Dims", values=(x.spec.shape[1],), shape=(), dtype=DType.FP32)
        net.mark_output(net.add("Softmax", net.add("Mul", x, s), axis=i), f"y{i}")
    assert sorted(apply(net, "merge_equal")[0]) == ["Dims", "Mul", "Softmax", "Softmax"]


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_numbers_of_half_precision(net, apply, dtype):
    one = net.c(1, DType(dtype).numpy)
    y = net.add("Mul", net.x("n", 5, dtype=dtype), one)
    net.mark_output(net.add("Softmax", y), "y")
    assert apply(net)[0] == ["Softmax"]


@pytest.mark.parametrize("case", ["attributes", "order", "constants", "outputs"])
def test_nodes_that_differ_stay(net, apply, case):
    x, z = net.x("n", 5), net.x("n", 5, name="z")
    pair = {
        "attributes": lambda: [net.add("LeakyRelu", x, alpha=a) for a in (0.1, 0.2)],
        "order": lambda: [net.add("Sub", x, z), net.add("Sub", z, x)],
        "constants": lambda: [net.add("Mul", x, net.c(a)) for a in (2, 3)],
        "outputs": lambda: [net.add("Neg", x), net.add("Neg", x)],
    }[case]()
    for i, v in enumerate(pair):
        net.mark_output(v if case == "outputs" else net.add("Exp", v), f"y{i}")
    assert len(apply(net, "merge_equal")[0]) == (2 if case == "outputs" else 4)
