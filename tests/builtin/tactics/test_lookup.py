"""Lookup in C: keys of every dtype, equal ones, NaN and zeros among them, or none."""

from __future__ import annotations

import asked
import numpy as np
import pytest
from harness import NATIVE, Case, check_all, node
from select_cases import CODES, drawn, wild

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.select.lookup import LookupTactic

LOOKUP = LookupTactic()


def case(x, keys, values, **more):
    arrays = [x, keys, values, np.array(77).astype(values.dtype)]
    return Case(node("Lookup", arrays), LOOKUP, arrays, **more)


@pytest.mark.parametrize("code", CODES)
def test_values_of_keys(code):
    cases = []
    for count in (0, 1, 7, 300):
        keys = drawn(code, count, seed=count)
        x = np.concatenate([keys, drawn(code, 50, seed=5)])
        values = drawn("i64", count, seed=1)
        cases.append(case(np.random.default_rng(0).permutation(x), keys, values, nt=(1, 3)))
    check_all(cases)


@pytest.mark.parametrize("code", ["f64", "f32", "f16", "bf16"])
def test_zeros_are_one_key_and_so_is_what_is_no_number(code):
    """The first of equal keys counts."""
    x, keys = wild(code, 3), wild(code, 2)
    values = np.arange(len(keys), dtype=np.float32)
    check_all([case(x, keys, values), case(x, keys[keys == keys], values[keys == keys])])


@pytest.mark.parametrize("code", CODES)
def test_values_of_every_width(code):
    keys = np.arange(20, dtype=np.int32) % 13
    x = np.arange(-5, 20, dtype=np.int32).reshape(5, 5)
    check_all([case(x, keys, drawn(code, 20))])


def test_symbolic_sizes():
    x, keys = np.arange(12, dtype=np.int64).reshape(3, 4), np.array([3, 9, 4, 50])
    values, default = drawn("f32", 4), np.zeros(1, np.float32)
    specs = [TensorSpec(DType.INT64, (dims.sym("n"), 4)), TensorSpec(DType.INT64, (dims.sym("k"),))]
    made = node("Lookup", [*specs, TensorSpec(DType.FP32, (dims.sym("k"),)), default])
    check_all([Case(made, LOOKUP, [x, keys, values, default], env={"n": 3, "k": 4})])


def test_numbers_among_keys_of_another_dtype_are_left():
    arrays = [np.zeros(3), np.zeros(2, np.int64), np.zeros(2), np.zeros(1)]
    assert isinstance(asked.variants(LOOKUP, node("Lookup", arrays), NATIVE), Reject)
