"""c_pad_tables and c_told_move: pads that repeat, and movements whose numbers are tensors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from harness import COMPILER, NATIVE, Case, Run, _compile, _library, check, check_all, node
from select_cases import drawn

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix_cpu.tactics.move.mapped import PadByTablesTactic, ToldMoveTactic

PAD, TOLD = PadByTablesTactic(), ToldMoveTactic()
MODES = ("constant", "edge", "reflect", "wrap")
PADS = ((0, 2, 3, 0, 1, 4), (1, 0, 0, 2, 0, 0), (9, 0, 20, 7, 0, 11), (-1, 1, -2, 2, -3, 0))
I64 = np.int64


@pytest.mark.parametrize("code", ["f32", "f16", "u8", "i64"])
@pytest.mark.parametrize("mode", MODES)
def test_pads_of_every_mode(mode, code):
    x, cases = drawn(code, 4, 5, 70), []
    for pads in PADS:
        made = node("Pad", [x], pads=pads, mode=mode, value=1.0)
        told = [x, np.array(pads), np.ones((), x.dtype)]
        cases.append(Case(made, PAD, [x], nt=(1, 3)))
        cases.append(Case(node("DynamicPad", told, mode=mode), TOLD, told, nt=(1, 3)))
    check_all(cases)


@pytest.mark.parametrize("sizes", [(0, 3), (2, 1), (4, 50)])
def test_symbolic_sizes(sizes):
    env = dict(zip("ns", sizes, strict=True))
    n, s = dims.sym("n"), dims.sym("s")
    x = TensorSpec(DType.FP32, (n, s))
    for mode in MODES:
        check(node("Pad", [x], pads=(0, n, 0, 2), mode=mode), PAD, env=env)
    for layer, numbers in (("DynamicPad", (4,)), ("DynamicTile", (2,)), ("DynamicExpand", (2,))):
        check(node(layer, [x, TensorSpec(DType.INT64, numbers)]), TOLD, env=env)
    ends = TensorSpec(DType.INT64, (2,))
    check(node("DynamicSlice", [x, ends, ends]), TOLD, env=env)


@pytest.mark.parametrize("code", ["f32", "f16", "u8", "i64"])
def test_pieces_of_rows_and_rows_in_one_go(code):
    """Short pieces and long ones, repeated, filled and looked up; rows that lie together, of one
    element, too; nothing at all.
    """
    x, cases = drawn(code, 4, 5, 30), []
    for y, starts, ends in ((x, (1, 0), (9, 9)), (x, (1, 3), (4, 5)), (x[..., :1], (0, 1), (4, 4))):
        given = [y.copy(), np.array(starts), np.array(ends)]
        cases.append(Case(node("DynamicSlice", given), TOLD, given, nt=(1, 3)))
    for y, shape in ((x[..., :1], (4, 5, 70)), (x[:, :1], (4, 9, 30)), (x[:1], (3, 5, 30))):
        given = [y.copy(), np.array(shape)]
        cases.append(Case(node("DynamicExpand", given), TOLD, given, nt=(1, 3)))
    for y, repeats in (
        (x, (2, 1, 3)),
        (x[..., :3], (1, 2, 9)),
        (x[0, 0], (4,)),
        (x[0, 0, :1], (0,)),
    ):
        given = [y.copy(), np.array(repeats)]
        cases.append(Case(node("DynamicTile", given), TOLD, given, nt=(1, 3)))
    for pads in ((0, 0, 9, 0, 0, 70), (0, 2, 1, 3, 0, 2), (0, 0, -30, 0, 0, 9)):
        given = [x, np.array(pads), np.ones((), x.dtype)]
        cases.append(Case(node("DynamicPad", given, mode="constant"), TOLD, given, nt=(1, 3)))
    check_all(cases)


@pytest.mark.parametrize("integer", [np.int64, np.int32])
def test_slices(integer):
    x, cases = drawn("f32", 6, 30, 70), []
    big = np.iinfo(integer).max
    for starts, ends, axes, steps in (
        ((0, 1), (6, 29), None, None), ((2, -3), (big, -1), (2, 0), None), ((-1,), (-big - 1,), (1,), (-1,)),
        ((29, 69, 0), (0, -big, 6), (1, 2, 0), (-3, -7, 2)), ((5,), (5,), (-1,), (4,)), ((99,), (-99,), (0,), (-2,)),
        ((0,), (30,), (1,), (-big - 1,)),
    ):  # fmt: skip
        given = [None if a is None else np.array(a, integer) for a in (starts, ends, axes, steps)]
        made = node("DynamicSlice", [x, *given])
        cases.append(Case(made, TOLD, [a for a in (x, *given) if a is not None], nt=(1, 3)))
    check_all(cases)


def test_expansions_and_tiles():
    x, row, cases = drawn("f16", 3, 1, 50), drawn("f16", 1, 4, 1), []
    for y, shape in (
        (x, (3, 5, 1)),
        (x, (2, 3, 5, 50)),
        (row, (2, 1, 30)),
        (row, (0, 4, 1)),
        (x, (1,)),
    ):
        arrays = [y, np.array(shape)]
        cases.append(Case(node("DynamicExpand", arrays), TOLD, arrays))
    for repeats in ((1, 2, 3), (0, 1, 1), (2, 70, 1)):
        arrays = [x, np.array(repeats)]
        cases.append(Case(node("DynamicTile", arrays), TOLD, arrays))
    check_all(cases)


@pytest.mark.parametrize(
    ("layer", "numbers", "found"),
    [
        ("DynamicSlice", [[0], [1], [7]], (7, 0)),
        ("DynamicSlice", [[0], [1], [1], [0]], (1, 0)),
        ("DynamicPad", [[0, -3, 0, -3]], (1, 5)),
        ("DynamicExpand", [[4, 5]], (3, 4)),
        ("DynamicTile", [[1, -1]], (1, -1)),
    ],
)
def test_numbers_that_make_no_sense_are_refused(layer, numbers, found):
    arrays = [drawn("f32", 3, 5), *(np.array(n, I64) for n in numbers)]
    case = Case(node(layer, arrays), TOLD, arrays)
    ((variant, artifact),) = _compile(case)
    (binary,) = COMPILER.compile([artifact.code], NATIVE)
    telling = replace(artifact, launches=artifact.launches[:1])
    run = Run(case.node, variant, telling, {f"dynamic_{i}": 0 for i in range(2)})
    run(getattr(_library(binary), binary.symbol), arrays, 1)
    reported, a, b = run.fault.array(np.int64, (5,)).tolist()[:3]
    assert reported >= 2
    assert (a, b) == found
