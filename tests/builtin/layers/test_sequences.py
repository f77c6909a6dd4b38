"""Sequences and optionals: what inference says of elements, references, edges of positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tactix.base.dims import sym
from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError, InvalidArgument, ShapeError
from tactix.base.tensor import Element, TensorSpec
from tactix_ops.layers.sequences import LAYERS, element_of, join, outside, sequence

BY_NAME = {x.name: x for x in LAYERS}
F32, I64 = DType.FP32, DType.INT64


def spec(*shape: Any, dtype: DType = F32) -> TensorSpec:
    return TensorSpec(dtype, shape)


def infer(name: str, *inputs: TensorSpec | None, **attrs: Any) -> TensorSpec:
    layer = BY_NAME[name]
    return layer.infer(layer.Attrs(**attrs), inputs)[0]


def run(name: str, *inputs: Any, **attrs: Any) -> Any:
    layer = BY_NAME[name]
    return layer.reference(layer.Attrs(**attrs), *inputs)[0]


def test_elements_join_to_what_fits_all() -> None:
    n = sym("n")
    assert join(element_of(spec(2, 3)), element_of(spec(2, 3))) == Element(F32, (2, 3))
    assert join(element_of(spec(2, n)), element_of(spec(4, n))) == Element(F32, (None, n))
    assert join(element_of(spec(2)), element_of(spec(2, 3))).shape is None
    assert join(Element(F32, none=True), element_of(spec(5))) == Element(F32, (5,))
    with pytest.raises(DTypeError, match="f32 and i64"):
        join(element_of(spec(2)), element_of(spec(2, dtype=I64)))


def test_what_a_sequence_gives_back() -> None:
    built = infer("SequenceConstruct", spec(2, 3), spec(4, 3))
    assert str(built) == "seq<f32(?, 3)>"
    at = infer("SequenceAt", built, spec(dtype=I64), symbol="s")
    assert at.shape == (sym("s_0"), 3)
    one = infer("SequenceInsert", infer("SequenceEmpty"), spec(7))
    assert infer("SequenceAt", one, spec(dtype=I64)).shape == (7,)
    assert infer("ConcatFromSequence", built, axis=0, symbol="c").shape == (sym("c_0"), 3)
    assert infer("ConcatFromSequence", one, axis=-1, new_axis=True, symbol="c").shape == (
        7,
        sym("c_1"),
    )
    assert infer("SequenceLength", built) == spec(dtype=I64)


def test_a_rank_that_nothing_tells_is_refused_but_where_it_is_declared() -> None:
    mixed = infer("SequenceConstruct", spec(2), spec(2, 3))
    with pytest.raises(ShapeError, match="rank"):
        infer("SequenceAt", mixed, spec(dtype=I64))
    assert infer("SequenceAt", mixed, spec(dtype=I64), shape=(2, None), symbol="s").shape == (
        2,
        sym("s_1"),
    )
    with pytest.raises(DTypeError, match="takes a sequence"):
        infer("SequenceAt", spec(2), spec(dtype=I64))


def test_positions_count_from_both_ends() -> None:
    a, b, c = (np.full(2, i, np.float32) for i in range(3))
    assert [x[0] for x in run("SequenceInsert", [a, b], c)] == [0, 1, 2]
    assert [x[0] for x in run("SequenceInsert", [a, b], c, np.array(-2))] == [2, 0, 1]
    assert [x[0] for x in run("SequenceErase", [a, b, c])] == [0, 1]
    assert [x[0] for x in run("SequenceErase", [a, b, c], np.array(-3))] == [1, 2]
    assert run("SequenceAt", [a, b, c], np.array(-1))[0] == 2
    for name, at in (("SequenceAt", 3), ("SequenceAt", -4), ("SequenceErase", 3)):
        with pytest.raises(IndexError, match="of a sequence of 3"):
            run(name, [a, b, c], np.array(at))


@pytest.mark.parametrize(
    ("sizes", "keepdims", "shapes"),
    [
        (None, True, [(3, 1)] * 5),
        (None, False, [(3,)] * 5),
        (np.array(2), True, [(3, 2), (3, 2), (3, 1)]),
        (np.array([1, 4]), True, [(3, 1), (3, 4)]),
    ],
)
def test_splitting_and_joining(sizes: Any, keepdims: bool, shapes: list[tuple[int, ...]]) -> None:
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    given = (x,) if sizes is None else (x, sizes)
    parts = run("SplitToSequence", *given, axis=1, keepdims=keepdims)
    assert [p.shape for p in parts] == shapes
    back = run("ConcatFromSequence", parts, axis=1, new_axis=not keepdims)
    np.testing.assert_array_equal(back, x)


def test_splitting_into_sizes_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="of an axis of 5"):
        run("SplitToSequence", np.zeros(5, np.float32), np.array([2, 2]))


def test_optionals() -> None:
    some, none = infer("Optional", spec(3)), infer("Optional", dtype=I64, is_sequence=True)
    assert infer("OptionalGetElement", some) == spec(3)
    assert str(none) == "opt<seq<i64(...)>>"
    assert infer("OptionalHasElement", none) == spec(dtype=DType.BOOL)
    assert (run("OptionalHasElement", None), run("OptionalHasElement", [])) == (False, True)
    with pytest.raises(InvalidArgument, match="empty"):
        run("OptionalGetElement", None)


def test_dims_that_only_a_body_knows_are_none_outside() -> None:
    n, inner = sym("n"), sym("inner")
    held = Element(DType.SEQUENCE, (), Element(F32, (n, inner + 1, 4)))
    assert outside(held, frozenset({"n"})).of == Element(F32, (n, None, 4))
    assert sequence(held).element == held
