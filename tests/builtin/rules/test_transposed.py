"""Transposed convolutions as convolutions: every stride, pad and group, and what stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.builtin.rules.conftest import arrays, compare, names

from tactix.base.dtypes import DType
from tactix.fuse.rewrite import fuse
from tactix.fuse.rivals import rival
from tactix.network.verify import verify
from tactix_ops.rules import reordering_rules
from tactix_ops.rules.transposed import phases_of

GEOMETRIES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((5,), {"strides": (2,)}),
    ((16,), {"strides": (8,), "pads": (4, 4)}),
    ((3,), {"strides": (4,), "output_padding": (3,)}),
    ((4,), {"strides": (2,), "pads": (3, 0), "output_padding": (1,)}),
    ((3,), {"dilations": (2,), "pads": (1, 3)}),
    ((4, 3), {"strides": (2, 1), "pads": (1, 2, 1, 0)}),
    ((2, 2), {"strides": (2, 2), "group": 2}),
    ((5, 4), {"strides": (3, 2), "pads": (2, 1, 4, 1), "group": 2, "output_padding": (2, 1)}),
    ((2, 3, 2), {"strides": (2, 1, 3), "pads": (0, 1, 0, 0, 1, 1)}),
]


def rewritten(net: Any, sizes: Any = ((3, 4, 5), (1, 7, 2)), rtol: float = 2e-5) -> list[str]:
    """What nodes are made of; both networks give the same numbers."""
    out, _ = fuse(net, reordering_rules())
    verify(out, deep=True)
    for seed, at in enumerate(sizes):
        compare(net, out, arrays(net, seed, at), rtol)
    return names(out)


@pytest.mark.parametrize(("kernel", "attrs"), GEOMETRIES, ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_every_geometry(net: Any, kernel: Any, attrs: Any, bias: bool) -> None:
    group = attrs.get("group", 1)
    x = net.x("n", 4, *("h", "w", 3)[: len(kernel)])
    terms = [net.random(3 * group)] if bias else []
    net.mark_output(net.add("ConvTranspose", x, net.random(4, 3, *kernel), *terms, **attrs), "y")
    found = rewritten(net)
    assert found[0] == "Convolution"
    assert "ConvTranspose" not in found


def test_stride_one_moves_nothing(net: Any) -> None:
    net.mark_output(net.add("ConvTranspose", net.x(1, 2, 5, 6), net.random(2, 3, 3, 2)), "y")
    assert rewritten(net) == ["Convolution"]


@pytest.mark.parametrize("dtype", [np.float16, DType.BF16.numpy])
def test_sixteen_bits(net: Any, dtype: Any) -> None:
    w, b = (net.add_constant(net.random(*s).array.astype(dtype)) for s in ((4, 3, 3), (3,)))
    x = net.x("n", 4, "w", dtype=DType.of(np.dtype(dtype)).value)
    net.mark_output(net.add("ConvTranspose", x, w, b, strides=(2,)), "y")
    assert rewritten(net, rtol=1e-2)[0] == "Convolution"


def test_no_tap_is_multiplied_for_nothing_where_the_stride_divides_the_kernel(net: Any) -> None:
    w = net.random(4, 3, 16)
    net.mark_output(net.add("ConvTranspose", net.x(1, 4, 9), w, strides=(8,), pads=(4, 4)), "y")
    (axis,) = phases_of(net.nodes[0]) or []
    assert (axis.taps, axis.begin, axis.pads) == (2, 4, (1, 1))


@pytest.mark.parametrize(
    ("attrs", "kernel"),
    [
        ({"strides": (2, 2)}, (2, 2)),  # windows apart: there are kernels for it
        ({"strides": (2, 1), "dilations": (2, 1)}, (3, 3)),
        ({"strides": (1, 1), "pads": (3, 0, 0, 0)}, (3, 3)),  # it cuts more than taps reach
    ],
)
def test_others_stay(net: Any, attrs: Any, kernel: Any) -> None:
    net.mark_output(
        net.add("ConvTranspose", net.x(1, 2, 5, 6), net.random(2, 3, *kernel), **attrs), "y"
    )
    assert rewritten(net) == ["ConvTranspose"]


def test_computed_weights_and_empty_tensors_stay(net: Any) -> None:
    w = net.x(2, 3, 3, name="w")
    net.mark_output(net.add("ConvTranspose", net.x(1, 2, 5), w, strides=(2,)), "y")
    x = net.x(0, 2, 5, name="none")
    net.mark_output(net.add("ConvTranspose", x, net.random(2, 3, 3), strides=(2,)), "z")
    assert rewritten(net) == ["ConvTranspose", "ConvTranspose"]


@pytest.mark.parametrize(("kernel", "attrs"), GEOMETRIES, ids=str)
@pytest.mark.parametrize("bias", ["", "constant", "computed"])
def test_columns_compete_where_weights_are_computed(
    net: Any, kernel: Any, attrs: Any, bias: str
) -> None:
    group = attrs.get("group", 1)
    x, w = net.x("n", 4, *(5, 4, 3)[: len(kernel)]), net.x(4, 3, *kernel, name="w")
    b = {"constant": net.random, "computed": lambda size: net.x(size, name="b")}
    terms = [b[bias](3 * group)] if bias else []
    net.mark_output(net.add("ConvTranspose", x, w, *terms, **attrs), "y")
    out, _ = fuse(net, reordering_rules())
    form = rival(out, out.nodes[0], reordering_rules())
    assert (form is not None) == (max(attrs.get("strides", (1,))) > 1)
    if form is not None:
        assert {"MatMul", "Col2Im"} <= {*names(form.network)}
        form.take_its_place(out)
        verify(out, deep=True)
        for seed, n in enumerate((3, 1, 0)):
            compare(net, out, arrays(net, seed, (n,)), 2e-5)


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize(
    ("x", "w"),
    [(("n", 4, "s"), (4, 3, 5)), ((1, "b", "s"), ("b", "c", 5)), (("n", 4, "s"), (4, "c", "k"))],
    ids=str,
)
def test_columns_of_open_sizes_compete(net: Any, x: Any, w: Any, group: int) -> None:
    fields = {"strides": (3,), "pads": (1, 2), "output_padding": (1,), "group": group}
    net.mark_output(net.add("ConvTranspose", net.x(*x), net.x(*w, name="w"), **fields), "y")
    out, _ = fuse(net, reordering_rules())
    form = rival(out, out.nodes[0], reordering_rules())
    assert form is not None
    form.take_its_place(out)
    assert {"MatMul", "Col2Im"} <= {*names(out)}
    verify(out, deep=True)
    for seed, sizes in enumerate(((4, 2, 7, 5), (2, 5, 3, 6))):
        compare(net, out, arrays(net, seed, sizes), 2e-5)


def test_columns_of_sixteen_bits_do_not_compete(net: Any) -> None:
    given = net.x(1, 4, 6, dtype="f16"), net.x(4, 3, 5, name="w", dtype="f16")
    net.mark_output(net.add("ConvTranspose", *given, strides=(2,)), "y")
    assert rival(net, net.nodes[0], reordering_rules()) is None


def test_what_follows_joins_the_convolution(net: Any) -> None:
    y = net.add("ConvTranspose", net.x("n", 4, "w"), net.random(4, 3, 5), strides=(2,), pads=(1, 1))
    net.mark_output(net.add("Cast", net.add("Relu", y), to=DType.BF16), "y")
    found = rewritten(net, rtol=1e-2)
    assert found == ["Convolution", "Relu", "Cast", "Reshape", "Transpose", "Reshape", "Slice"]


def test_what_others_read_too_stays(net: Any) -> None:
    y = net.add("ConvTranspose", net.x("n", 4, "w"), net.random(4, 3, 4), strides=(2,), pads=(1, 1))
    net.mark_output(net.add("Add", net.add("Relu", y), y), "y")
    assert rewritten(net)[-2:] == ["Relu", "Add"]


def test_widening_stays_behind_the_moves(net: Any) -> None:
    half = DType.BF16.numpy
    w = net.add_constant(net.random(4, 3, 4).array.astype(half))
    x = net.x("n", 4, "w", dtype="bf16")
    y = net.add("ConvTranspose", x, w, strides=(2,), pads=(1, 1))
    net.mark_output(net.add("Cast", y, to=DType.FP32), "y")
    assert rewritten(net, rtol=1e-2)[-1] == "Cast"
