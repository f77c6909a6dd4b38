"""c_fourier: lengths of every kind of factor, halves, inverses, cuts, frames and windows."""

from __future__ import annotations

import numpy as np
import pytest
from harness import Case, check, check_all, node

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix_cpu.tactics.signal.fourier import FourierTactic, inner_length, terms_of

TACTIC = FourierTactic()
LENGTHS = [1, 2, 3, 4, 5, 6, 7, 8, 12, 15, 16, 25, 30, 32, 49, 60, 64, 77, 97, 120, 256, 400, 512]
CHIRPED = [101, 127, 202, 509, 603]
"""Lengths with a prime factor over 100."""
CODES = ["f64", "f32", "f16", "bf16"]
FORMS = [(inverse, onesided) for inverse in (False, True) for onesided in (False, True)]


def drawn(code, *shape):
    return np.random.default_rng(7).standard_normal(shape).astype(DType(code).numpy)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize(("inverse", "onesided"), FORMS)
def test_every_length(parts, inverse, onesided):
    attrs = {"axis": 1, "inverse": inverse, "onesided": onesided}
    cases = []
    for n in LENGTHS + CHIRPED:
        x = drawn("f32", 3, n // 2 + 1 if inverse and onesided else n, parts)
        if inverse and onesided and n == 1:
            continue
        cases.append(Case(node("DFT", [x], **attrs), TACTIC, [x]))
    check_all(cases)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize(("inverse", "onesided"), FORMS)
def test_every_dtype_and_axis(code, inverse, onesided):
    x = drawn(code, 5, 6, 9, 2)
    attrs = {"inverse": inverse, "onesided": onesided}
    nodes = [node("DFT", [x], axis=axis, **attrs) for axis in (0, 1, 2, -2)]
    check_all([Case(n, TACTIC, [x], nt=(1, 3)) for n in nodes])


@pytest.mark.parametrize("length", [3, 9, 16])
@pytest.mark.parametrize(("inverse", "onesided"), FORMS)
def test_signals_are_cut_or_filled(length, inverse, onesided):
    x = drawn("f32", 2, 9, 2)
    check(node("DFT", [x], axis=1, length=length, inverse=inverse, onesided=onesided), TACTIC, [x])


def test_many_signals_and_a_long_one():
    x, y = drawn("f32", 70, 48, 1), drawn("f32", 1, 1 << 16, 1)
    check_all([Case(node("DFT", [a], axis=1, onesided=True), TACTIC, [a]) for a in (x, y)])


@pytest.mark.parametrize(
    "env", [{"n": 0, "s": 8}, {"n": 3, "s": 30}, {"n": 20, "s": 17}, {"n": 18, "s": 206}]
)
@pytest.mark.parametrize(("inverse", "onesided"), FORMS)
def test_symbolic_sizes(env, inverse, onesided):
    x = TensorSpec(DType.FP32, (dims.sym("n"), dims.sym("s"), 2))
    made = node("DFT", [x], axis=1, inverse=inverse, onesided=onesided)
    check(made, TACTIC, env=env)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("onesided", [True, False])
def test_frames(code, parts, onesided):
    x, window = drawn(code, 2, 75, parts), drawn(code, 12)
    attrs = {"frame_step": 5, "frame_length": 12, "onesided": onesided}
    cases = [Case(node("STFT", given, **attrs), TACTIC, given) for given in ([x], [x, window])]
    check_all(cases)


def test_frames_of_a_signal_whose_length_only_running_tells():
    x = TensorSpec(DType.FP32, (2, dims.sym("s"), 1))
    window = TensorSpec(DType.FP32, (8,))
    made = node("STFT", [x, window], frame_step=3, frame_length=8)
    check(made, TACTIC, env={"s": 50})


def test_a_long_prime_length_is_as_precise_as_others():
    x = drawn("f64", 2, 4099, 2)
    check(node("DFT", [x], axis=1), TACTIC, [x])


def test_terms_tell_how_much_work_it_is():
    assert [terms_of(n) for n in (1, 2, 8, 12, 97, 35)] == [1, 1, 3, 5, 97, 12]


def test_a_long_prime_length_takes_few_terms():
    assert [inner_length(n) for n in (97, 101, 404, 509, 10000)] == [97, 256, 1024, 1024, 10000]
    assert terms_of(509) < terms_of(97)
