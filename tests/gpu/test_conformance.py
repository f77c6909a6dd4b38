"""Some of onnx's conformance cases on the device, those among them that need the host beside it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import tactix

sys.path.insert(0, str(Path(__file__).parents[1] / "onnx_suite"))

pytestmark = pytest.mark.gpu

ALONE = (
    "add", "attention_4d_gqa", "argmax_default_axis_random", "conv_with_strides_padding", "convtranspose_group_2",
    "gru_batchwise", "gridsample_bicubic", "lrn", "lstm_with_peepholes",
    "maxpool_2d_uint8", "quantizelinear_axis", "scatternd_add", "bitcast_float32_to_int32",
)  # fmt: skip
CROSSING = (
    "loop11", "loop13_seq", "scan9_sum", "if", "nonzero_example", "unique_sorted_without_axis", "identity_sequence",
    "compress_0", "string_concat", "range_float_type_positive_delta", "nonmaxsuppression_two_classes",
)  # fmt: skip


@pytest.fixture(scope="module")
def cases() -> dict[str, Any]:
    from cases import collect

    return {c.name.removeprefix("test_"): c for c in collect(["node"])}


def crossed(case: Any, device: Any) -> tuple[str, ...]:
    from suite import run_case

    builder = tactix.Builder(tactix.Logger(tactix.Severity.INTERNAL_ERROR))
    return run_case(case, builder, None, device.key)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ALONE)
def test_on_the_gpu_alone(name: str, device: Any, cases: dict[str, Any]) -> None:
    assert crossed(cases[name], device) == ()


@pytest.mark.parametrize("name", CROSSING)
def test_with_the_host_beside_it(name: str, device: Any, cases: dict[str, Any]) -> None:
    assert crossed(cases[name], device)
