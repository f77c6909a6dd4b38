"""The whole suite passes but for the known failures, which are listed with their reasons."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cases import KINDS, collect
from report import document, joined, on_cuda, reason
from suite import Result, assert_agrees, run_suite

KNOWN = Path(__file__).with_name("known_failures.txt")

COMPILED = (
    "test_add", "test_conv_with_strides_padding", "test_gemm_all_attributes", "test_softmax_axis_1",
    "test_reduce_mean_keepdims_random", "test_nonzero_example", "test_slice", "test_layer_normalization_4d_axis1",
    "test_lstm_defaults", "test_maxpool_2d_pads", "test_gelu_tanh_1", "test_matmul_4d",
)  # fmt: skip
"""A few cases that run with every tactic source, C included."""


def known_failures() -> dict[str, str]:
    """Reasons by case; ``[1.20]`` behind a case says of which version of onnx it is."""
    lines = (line.partition(": ") for line in KNOWN.read_text().splitlines() if line)
    named = ((*name.partition(" [")[::2], why) for name, _, why in lines)
    return {name: why for name, version, why in named if onnx.__version__.startswith(version.rstrip("]"))}


@pytest.fixture(scope="module")
def cases() -> list[Any]:
    return collect()


@pytest.fixture(scope="module")
def results(cases: list[Any]) -> list[Result]:
    return run_suite(cases)


def test_nothing_fails_but_what_is_known(results: list[Result]) -> None:
    known = known_failures()
    assert {r.id: r.error for r in results if r.error and r.id not in known} == {}


def test_what_passes_is_no_known_failure(results: list[Result]) -> None:
    assert sorted(known_failures().keys() & {r.id for r in results if not r.error}) == []


def test_known_failures_have_a_reason() -> None:
    assert [name for name, why in known_failures().items() if not why] == []


def test_every_failure_has_a_reason_in_few_words(results: list[Result]) -> None:
    assert sorted({reason(r.error, r.name) for r in results if r.error and "Error" in reason(r.error, r.name)}) == []


def test_every_kind_is_there(cases: list[Any]) -> None:
    assert {c.kind for c in cases} == set(KINDS)
    assert len(cases) > 1700


def test_all_networks_and_all_converted_models_pass(results: list[Result]) -> None:
    assert [r.id for r in results if r.error and r.kind in ("real", "pytorch-converted", "pytorch-operator")] == []


def test_a_few_cases_pass_with_every_tactic_source(cases: list[Any]) -> None:
    chosen = [c for c in cases if c.kind == "node" and c.name in COMPILED]
    assert len(chosen) == len(COMPILED)
    assert {r.id: r.error for r in run_suite(chosen, None) if r.error} == {}


def test_the_document_counts(results: list[Result]) -> None:
    text = document(results)
    assert f"| all | {sum(not r.error for r in results)} | {len(results)} |" in text
    assert all(f"`{r.name}`" in text for r in results if r.error)


def test_the_part_about_a_gpu() -> None:
    results = [
        Result("node", "test_a", "A", 13), Result("node", "test_b", "B", 13, "", ("tactix.B@1",)),
        Result("simple", "test_c", "C", 13, "wrong result: far off"),
        Result("node", "test_attention_4d_fp16", "Attention", 23, "wrong result: 1 / 192"),
    ]  # fmt: skip
    text = on_cuda(results)
    assert "| node | 1 | 2 | 3 |" in text
    assert "| all | 1 | 2 | 4 |" in text
    assert "| `tactix.B@1` | 1 |" in text
    assert "rounded to float16" in text
    general = document(results[:2])
    both = joined(joined("", general), text)
    assert both.startswith(general.rstrip())
    assert both.endswith(text)
    assert joined(both, text) == both
    again = joined(both, document(results[:1]))
    assert again.endswith(text)
    assert "| all | 1 | 1 |" in again


@pytest.mark.parametrize(
    ("got", "want", "agrees"),
    [
        (np.float32([1, 2]), np.float32([1, 2.0001]), True),
        (np.float32([1, 2]), np.float32([1, 2.1]), False),
        (np.float32([1, np.nan]), np.float32([1, np.nan]), True),
        (np.float64([1]), np.float32([1]), False),
        (np.float32([1]), np.float32(1), False),
        (np.int64([7]), np.int64([8]), False),
        ([np.int64([7])], [np.int64([7])], True),
        ([np.int64([7])], [np.int64([7]), np.int64([7])], False),
    ],
)
def test_agreement(got: Any, want: Any, agrees: bool) -> None:
    if agrees:
        assert_agrees(got, want, 1e-3, 1e-7)
    else:
        with pytest.raises(AssertionError):
            assert_agrees(got, want, 1e-3, 1e-7)
