"""DFT and STFT in C whose lengths, steps and axes are the content of tensors."""

from __future__ import annotations

import asked
import numpy as np
import pytest
from harness import NATIVE, Case, check_all, node
from select_cases import drawn
from test_told_shapes import reported

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.signal.told_fourier import ToldFourierTactic

FOURIER = ToldFourierTactic()


def given(layer, arrays, **attrs):
    """A case; None stands for an absent input."""
    made = node(layer, arrays, **attrs)
    return Case(made, FOURIER, [x for x in arrays if x is not None], nt=(1, 3))


@pytest.mark.parametrize("code", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("onesided", [False, True])
@pytest.mark.parametrize("inverse", [False, True])
def test_any_length_along_any_axis(code, onesided, inverse):
    cases, attrs = [], {"onesided": onesided, "inverse": inverse}
    for parts in (1, 2):
        x = drawn(code, 3, 10, 7, parts)
        for axis in (None, 0, 1, -2, -3):
            for length in (None, 0, 4, 12, 16, 1):
                numbers = [v if v is None else np.array(v, np.int32) for v in (length, axis)]
                cases.append(given("DynamicDFT", [x, *numbers], **attrs))
    cases.append(given("DynamicDFT", [drawn(code, 0, 8, 2), np.array(4)], **attrs))
    for length in (15, 103, 254):
        numbers = [np.array(length), np.array(0)]
        cases.append(given("DynamicDFT", [drawn(code, 9, 2), *numbers], **attrs))
    check_all(cases)


@pytest.mark.parametrize("code", ["f32", "f64", "f16"])
@pytest.mark.parametrize("onesided", [False, True])
def test_frames(code, onesided):
    cases = []
    for parts in (1, 2):
        x = drawn(code, 2, 50, parts)
        window = drawn(code, 16, seed=2)
        for step, w, length in (
            (3, None, 16), (1, None, 50), (7, window, None), (50, window, 16), (5, None, None),
        ):  # fmt: skip
            numbers = [np.array(step), w, None if length is None else np.array(length)]
            cases.append(given("DynamicSTFT", [x, *numbers], onesided=onesided))
    check_all(cases)


def test_symbolic_sizes():
    x = TensorSpec(DType.FP32, (dims.sym("b"), dims.sym("n"), 1))
    signal, step, length = drawn("f32", 2, 40, 1), np.array(4), np.array(10)
    frames = node("DynamicSTFT", [x, step, None, length], onesided=True)
    whole = node("DynamicDFT", [x, length], onesided=True)
    env = {"b": 2, "n": 40}
    check_all(
        [
            Case(frames, FOURIER, [signal, step, length], env=env),
            Case(whole, FOURIER, [signal, length], env=env),
        ]
    )


@pytest.mark.parametrize(("length", "axis"), [(-3, 0), (4, 2), (4, -1), (4, -4), (4, 7)])
def test_transforms_that_are_none_are_refused(length, axis):
    case = given("DynamicDFT", [drawn("f32", 3, 5, 2), np.array(length), np.array(axis)])
    assert reported(case, case.arrays)


@pytest.mark.parametrize(("step", "length"), [(0, 4), (-1, 4), (1, 0), (1, 51)])
def test_frames_that_are_none_are_refused(step, length):
    case = given("DynamicSTFT", [drawn("f32", 2, 50, 1), np.array(step), None, np.array(length)])
    assert reported(case, case.arrays)


def test_a_window_of_another_length_is_refused():
    window = drawn("f32", 5)
    case = given("DynamicSTFT", [drawn("f32", 2, 50, 1), np.array(1), window, np.array(4)])
    assert reported(case, case.arrays)


def test_other_dtypes_are_left():
    x = np.zeros((2, 5, 2), np.int32)
    assert isinstance(asked.variants(FOURIER, node("DynamicDFT", [x]), NATIVE), Reject)
