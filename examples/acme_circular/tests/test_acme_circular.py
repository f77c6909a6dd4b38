"""The pack's own test: needs tactix and the pack installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from acme_circular import circular_pad
from onnx import helper

import tactix
from tactix_cuda import nvrtc
from tactix_sdk import errors
from tactix_sdk.testing import PackTests

PADS = (0, 0, 2, 1, 0, 0, 3, 9)
RNG = np.random.default_rng(3)


class TestPack(PackTests):
    pack = "acme-circular"


def widths(pads: tuple[int, ...]) -> list[tuple[int, int]]:
    return list(zip(pads[: len(pads) // 2], pads[len(pads) // 2 :], strict=True))


def test_the_reference_is_numpys_wrap() -> None:
    x = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)
    (y,) = circular_pad.reference(circular_pad.Attrs(PADS), x)
    np.testing.assert_array_equal(y, np.pad(x, widths(PADS), "wrap"))


def relu_of_padded(pads: tuple[int, ...] = PADS) -> tuple[tactix.Builder, Any]:
    """A network with a dynamic batch and height."""
    builder = tactix.Builder()
    network = builder.create_network("padded")
    (y,) = network.add_layer(
        "acme_circular.CircularPad", [network.add_input("x", "f32", ("n", 3, "h", 5))], pads=pads
    )
    network.mark_output(*network.add_layer("tactix.Relu", [y]), name="y")
    return builder, network


@pytest.mark.parametrize("source", ["acme_circular", "numpy"])
def test_an_engine_of_dynamic_shapes(source: str) -> None:
    builder, network = relu_of_padded()
    engine = builder.build(
        network, tactix.BuilderConfig(tactic_sources={source, "c"}, timing_cache=False)
    )
    assert source in {
        s.info["tactic"].partition(".")[0].replace("tactix", "numpy") for s in engine.plan.steps
    }
    for n, h in ((1, 4), (3, 7), (2, 1)):
        x = RNG.standard_normal((n, 3, h, 5)).astype(np.float32)
        np.testing.assert_array_equal(engine(x), np.maximum(np.pad(x, widths(PADS), "wrap"), 0))


@pytest.mark.parametrize("pads", [(1, 1), (0,) * 7 + (-1,)])
def test_pads_that_do_not_suit_are_said(pads: tuple[int, ...]) -> None:
    with pytest.raises(errors.ShapeError, match="all begins, then all ends"):
        relu_of_padded(pads)


def test_a_model_made_for_tensorrts_sample_builds(tmp_path: Path) -> None:
    node = helper.make_node("CircPadPlugin", ["X"], ["Y"], "CircPadPlugin", pads=[3, 1, 0, 2])
    kind = onnx.TensorProto.FLOAT
    given, made = (
        helper.make_tensor_value_info(n, kind, s) for n, s in (("X", [2, 3, 4, 5]), ("Y", None))
    )
    model = helper.make_model(helper.make_graph([node], "sample", [given], [made]), ir_version=10)
    onnx.save(model, tmp_path / "sample.onnx")
    engine = tactix.build(tmp_path / "sample.onnx", level=0, timing_cache=False)
    x = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)
    np.testing.assert_array_equal(engine(x), np.pad(x, [(0, 0), (0, 0), (0, 2), (3, 1)], "wrap"))


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_a_plan_for_a_gpu_is_built_without_one(target: str) -> None:
    if reason := nvrtc.why_missing():
        pytest.skip(reason)
    builder, network = relu_of_padded()
    config = tactix.BuilderConfig(
        device="tactix.cuda@1",
        target=target,
        builder_optimization_level=0,
        timing_cache=False,
        tactic_sources={"acme_circular", "cuda_c"},
    )
    step = builder.build_plan(network, config).steps[0]
    assert step.info["tactic"] == "acme_circular.circular_pad_cuda@1"
    assert step.artifact.launcher == "tactix.cuda.cubin@1"
    assert step.artifact.code.blob[:4] == b"\x7fELF"
