"""Weights out of what kernels hold: the inverse of every packing that a native tactic asks for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import asked
import numpy as np
import pytest
from target_cases import table

from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.artifact import Packed
from tactix.contracts.tactic import CompileContext, Reject
from tactix_cpu.levels import target
from tactix_runtime.references import MOST_STEPS, unpacked

TILES = {"amx_tile", "amx_int8", "amx_bf16"}


def packings(level: str) -> Iterator[tuple[str, Packed, list[Any]]]:
    """Of every variant of every case that its tactic takes: the constants that are made of an
    input.
    """
    widest = target(level)
    for c in table(
        replace(widest, features=widest.features | TILES) if level == "x86-64-v4" else widest
    ):
        offered = asked.variants(c.tactic, c.node, c.device)
        for v in () if isinstance(offered, Reject) else offered:
            made = asked.artifact(c.tactic, c.node, v, CompileContext(c.device, dict(c.env), 2))
            given = [x.const for x in c.node.given]
            yield from (
                (f"{c.tactic.key} {v} {name}", p, given)
                for name, p in made.constants
                if p.index >= 0
            )


@pytest.mark.parametrize("level", ["x86-64-v4", "x86-64-v3", "armv8"])
def test_every_packing_can_be_taken_back(level: str) -> None:
    seen = set()
    for title, packed, given in packings(level):
        want = given[packed.index]
        got = unpacked(
            packed.apply(given), packed.steps, TensorSpec(DType.of(want.dtype), want.shape)
        )
        for name, what in packed.steps:
            want = want.astype(DType.of(what).numpy) if name == "cast" else want
            seen.add(name)
        np.testing.assert_array_equal(got.astype(want.dtype), want, err_msg=title)
    assert seen == {"cast", "reshape", "transpose", "pad"}


X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    ("steps", "spec"),
    [
        ((("pad", ((0, 0), (0, 1))),), ("f32", (2, 3))),
        ((("pad", ((-1, 0), (0, 0))),), ("f32", (3, 3))),
        ((("pad", ((5, -5), (0, 0))),), ("f32", (2, 3))),
        ((("pad", ((0, 0),)),), ("f32", (2, 3))),
        ((("pad", 3),), ("f32", (2, 3))),
        ((("transpose", (0, 0)),), ("f32", (2, 3))),
        ((("transpose", (0, 1, 5)),), ("f32", (2, 3))),
        ((("transpose", None),), ("f32", (3, 2))),
        ((("reshape", (2, 3)),), ("f32", (4, 2))),
        ((("reshape", (-1, 3)),), ("f32", (1 << 40, 3))),
        ((("reshape", (-1, -1)),), ("f32", (6,))),
        ((("reshape", (0, -1)),), ("f32", (6,))),
        ((("reshape", ("x",)),), ("f32", (6,))),
        ((("cast", "f64"),), ("f32", (2, 3))),
        ((("cast", "str"), ("cast", "f32")), ("f32", (2, 3))),
        ((("cast", "f32"),), ("str", (2, 3))),
        ((("cast", 7),), ("f32", (2, 3))),
        ((("eval", "1"),), ("f32", (2, 3))),
        ((("cast", "f32"),) * (MOST_STEPS + 1), ("f32", (2, 3))),
        ((), ("i32", (2, 3))),
    ],
)
def test_steps_that_make_no_such_array(steps: Any, spec: tuple[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError, LookupError, ArithmeticError)):
        unpacked(X, steps, TensorSpec(DType(spec[0]), spec[1]))


def test_a_single_number_as_a_shape() -> None:
    np.testing.assert_array_equal(
        unpacked(X.reshape(6), (("reshape", 6),), TensorSpec(DType.FP32, (2, 3))), X
    )
