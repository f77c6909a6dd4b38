"""The check ``calibrator`` catches calibrators that are wrong in one way each, and leaves right
ones alone.
"""

from __future__ import annotations

import pytest
from sdk_site import Site

from tactix_sdk.testing import CHECKS, FAILED, NOTHING, PASSED, Outcome, outcome

HOOK = """

@pack.calibrator
def given():
    from acme_seen.layers import Extremes

    return [Extremes()]
"""
EXTREMES = """

import numpy as np

from tactix_sdk import errors


class Extremes:
    key = "acme_seen.extremes"

    def __init__(self):
        self.seen = {}

    def batches(self):
        return iter(())

    def observe(self, tensor, values):
        x = np.asarray(values).astype(np.float64)
        x = x[np.isfinite(x)]
        if x.size:
            low, high = self.seen.get(tensor, (np.inf, -np.inf))
            low, high = min(low, x.min()), max(high, x.max())
            self.seen[tensor] = (low, high)

    def ranges(self):
        return {name: (low, high) for name, (low, high) in self.seen.items()}
"""
INIT = "self.seen = {}"
CAST = "x = np.asarray(values).astype(np.float64)"
FINITE = "x = x[np.isfinite(x)]"
FOUND = "low, high = min(low, x.min()), max(high, x.max())"
STORE = "self.seen[tensor] = (low, high)"
GIVEN = "return {name: (low, high) for name, (low, high) in self.seen.items()}"
AVERAGE = "low, high = (x.min(), x.max()) if np.isinf(low) else (0.9 * low + x.min() / 10, 0.9 * high + x.max() / 10)"
LAZY = "return {n: (min(v.min() for v in a), max(v.max() for v in a)) for n, a in self.all.items()}"


def given(pair: str) -> tuple[str, str]:
    """Another pair in place of the range."""
    return GIVEN, GIVEN.replace("(low, high) for", f"({pair}) for")


FAULTS: dict[str, tuple[list[tuple[str, str]], str]] = {
    "an average over batches": ([(FOUND, AVERAGE)], "the same values"),
    "the last batch alone": ([(FOUND, "low, high = x.min(), x.max()")], "the same values"),
    "not a number": (
        [(FINITE, ""), (FOUND, FOUND.replace("min(low", "np.minimum(low").replace("max(high", "np.maximum(high"))],
        "a tensor without a finite value has the range nan to nan"),
    "infinite": ([(FINITE, "x = x[~np.isnan(x)]")], "the range of 'with odd ones' is -inf to inf"),
    "an untyped refusal": (
        [(FINITE, "if not np.isfinite(x).all():\n            raise ValueError('odd')")], "ValueError: odd"),
    "no empty batches": ([("if x.size", "if True")], "ValueError"),
    "a range of nothing": (
        [("if x.size", "self.seen.setdefault(tensor, (0.0, 0.0))\n        if x.size")], "has the range 0 to 0"),
    "none of zeros": ([("if x.size", "if x.any()")], "no range for the tensor 'zeros in 1'"),
    "nothing below zero": ([given("max(low, 0), max(high, 0)")], "0 to 0 holds 0% of the values of 'negative in 1'"),
    "a constant is divided by its width": ([given("low, high / (low != high)")], "the range of 'constant in 1'"),
    "highest first": ([given("high, low")], "the range of 'normal in 1'"),
    "a limit": ([given("max(-20, low), min(20, high)")], "of the values of 'further in 1'"),
    "less far for more": ([given("low, high if high > 2000 else 1e9")], "1048576 times as far from zero"),
    "16 bits": ([(CAST, "x = np.asarray(values).astype(np.float16)")], "'further in 1'"),
    "no dtype but numpy's": (
        [("if x.size", "if x.size and values.dtype.kind == 'f'")], "no range for the tensor 'coarse as bf16'"),
    "an array that is kept": (
        [(INIT, "self.seen, self.all = {}, {}"), (GIVEN, LAZY),
         (STORE, "self.seen[tensor] = (low, high)\n            self.all.setdefault(tensor, []).append(values)")],
        "1e+06 to 1e+06 for 'taken back'"),
    "an array that is changed": ([(CAST, f"values[...] = np.clip(values, -9, 9)\n        {CAST}")], "ValueError"),
    "chance": ([(STORE, "self.seen[tensor] = (low, high + np.random.random())")], "in another calibrator"),
    "another process": ([given("low, high + hash('a') % 97")], "other ranges in another process"),
    "shared by two": ([("key = ", "seen = {}\n    key = "), (INIT, "pass")], "it shares them with another one"),
    "emptied when asked": ([(GIVEN, "out, self.seen = self.seen, {}\n        return out")], "asked for between"),
    "batches of nothing": ([("iter(())", "iter([1])")], "a batch is 1, not arrays by name"),
}  # fmt: skip


def found(site: Site, text: str) -> Outcome:
    """What the check says of a pack with that text."""
    changes = {"layers.py": lambda old: old + text, "__init__.py": lambda old: old + HOOK}
    return outcome(CHECKS["calibrator"], site.new("acme-seen", changes, layer=True))


def changed(*pairs: tuple[str, str]) -> str:
    text = EXTREMES
    for old, new in pairs:
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


RIGHT = {
    "the extremes": [],
    "of both signs alike": [given("-max(-low, high), max(-low, high)")],
    "refused by type": [
        (FINITE, "if not np.isfinite(x).all():\n            raise errors.InvalidArgument('odd')")
    ],
    "rounded": [given("float('%.2g' % (0.999 * low)), float('%.3g' % high)")],
}


@pytest.mark.parametrize("name", RIGHT)
def test_one_that_is_right_passes(site: Site, name: str) -> None:
    got = found(site, changed(*RIGHT[name]))
    assert (got.state, got.said) == (PASSED, "1 calibrators, 9 kinds of values")


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_caught(site: Site, name: str) -> None:
    pairs, said = FAULTS[name]
    got = found(site, changed(*pairs))
    assert got.state == FAILED, got.said
    assert said in got.said
    assert "acme_seen.extremes" in got.script


def test_what_is_not_there_is_said(site: Site) -> None:
    got = outcome(CHECKS["calibrator"], site.new("acme-swish", layer=True))
    assert (got.state, got.said) == (NOTHING, "the pack has no calibrators")
