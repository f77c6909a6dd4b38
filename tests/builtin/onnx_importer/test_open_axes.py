"""Last axes whose size is open in the model although it tells a rank, or what the elements mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.helper import make_node, make_tensor_value_info

import tactix
from tactix.base.dims import sym
from tactix.base.errors import ModelImportError, UnsupportedOperator
from tactix_sdk.evaluate import evaluate

F32, I64 = np.float32, np.int64


def test_ranks_of_updates_tell_how_long_an_index_is(imported: Any, model: Any) -> None:
    inputs = {"x": (F32, [3, 4]), "i": (I64, ["n", "m"]), "u": (F32, ["n", 4])}
    net = imported(model([make_node("ScatterND", ["x", "i", "u"], ["y"])], inputs, ["y"]))
    assert net.inputs[1].spec.shape == (sym("n"), 1)
    x, u = np.zeros((3, 4), F32), np.ones((2, 4), F32)
    y = evaluate(net, {"x": x, "i": np.array([[2], [0]]), "u": u})["y"]
    assert np.array_equal(y, [[1] * 4, [0] * 4, [1] * 4])


def test_a_declared_rank_tells_how_long_an_index_is(imported: Any, model: Any) -> None:
    inputs = {"x": (F32, [3, 4]), "i": (I64, ["n", "m"])}
    m = model([make_node("GatherND", ["x", "i"], ["y"])], inputs, ["y"])
    m.graph.output[0].CopyFrom(make_tensor_value_info("y", 1, ["n"]))
    net = imported(m)
    assert net.inputs[1].spec.shape == (sym("n"), 2)
    x = np.arange(12, dtype=F32).reshape(3, 4)
    assert np.array_equal(evaluate(net, {"x": x, "i": np.array([[1, 2]])})["y"], [6])


def test_a_size_that_is_not_known_is_asked_for_by_name(imported: Any, model: Any) -> None:
    inputs = {"x": (F32, [3, 4]), "i": (I64, ["n", "m"])}
    m = model([make_node("GatherND", ["x", "i"], ["y"])], inputs, ["y"])
    with pytest.raises(UnsupportedOperator, match=r"'i' is m.*--shapes i:1x"):
        imported(m)


@pytest.mark.parametrize("shape", [[5], [4, 5], [2, 4, 5], [2, 1, 1], []])
def test_a_declared_rank_tells_how_many_dims_an_expansion_has(
    shape: list[int], imported: Any, model: Any
) -> None:
    inputs = {"x": (F32, [4, 1]), "s": (I64, ["k"])}
    m = model([make_node("Expand", ["x", "s"], ["y"])], inputs, ["y"])
    with pytest.raises(ModelImportError, match="the number of dims must be fixed"):
        imported(m)
    m.graph.output[0].CopyFrom(make_tensor_value_info("y", 1, [None] * 3))
    x = np.arange(4, dtype=F32)[:, None]
    got = evaluate(imported(m), {"x": x, "s": np.array(shape, I64)})["y"]
    want = np.broadcast_to(x, np.broadcast_shapes(x.shape, shape))
    assert np.array_equal(got, want.reshape((1,) * (3 - want.ndim) + want.shape))


@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("parts", [1, 2])
def test_a_transform_of_an_open_number_of_parts(
    parts: int, inverse: int, imported: Any, model: Any
) -> None:
    """Imaginary parts are there or are zeros, whatever the real ones are."""
    inputs = {"x": (F32, ["n", 8, "m"])}
    m = model([make_node("DFT", ["x"], ["y"], axis=1, inverse=inverse)], inputs, ["y"], opset=17)
    net = imported(m)
    x = np.random.default_rng(parts).standard_normal((2, 8, parts)).astype(F32)
    z = x[..., 0] + (1j * x[..., 1] if parts == 2 else 0)
    want = (np.fft.ifft if inverse else np.fft.fft)(z, axis=1)
    got = evaluate(net, {"x": x})["y"]
    np.testing.assert_allclose(got, np.stack([want.real, want.imag], -1), atol=1e-5)
    assert [str(a) for a in net.demands] == [
        "m must be at least 1",
        "-1*m + 3 must be at least 1",
    ]


def test_half_of_a_transform_is_of_real_numbers(imported: Any, model: Any) -> None:
    inputs = {"x": (F32, ["n", 8, "m"])}
    m = model([make_node("DFT", ["x"], ["y"], axis=1, onesided=1)], inputs, ["y"], opset=17)
    assert imported(m).inputs[0].spec.shape == (sym("n"), 8, 1)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("parts", [1, 2])
def test_frames_of_an_open_number_of_parts(
    parts: int, onesided: int, imported: Any, model: Any
) -> None:
    def network(last: Any) -> Any:
        inputs = {"x": (F32, [2, "t", last])}
        consts = {"step": np.int64(3), "window": np.hanning(8).astype(F32)}
        node = make_node("STFT", ["x", "step", "window"], ["y"], onesided=onesided)
        return imported(model([node], inputs, ["y"], consts))

    x = np.random.default_rng(parts).standard_normal((2, 20, parts)).astype(F32)
    got, want = (evaluate(network(last), {"x": x})["y"] for last in ("m", parts))
    np.testing.assert_allclose(got, want, atol=1e-5)


def test_a_size_that_the_caller_builds_for_is_taken(model: Any) -> None:
    def network(op: str, inputs: Any, shapes: Any, **attrs: Any) -> Any:
        m = model([make_node(op, list(inputs), ["y"], **attrs)], inputs, ["y"])
        return tactix.Builder().import_model(m, shapes=shapes)

    inputs = {"x": (F32, [3, 4]), "i": (I64, ["n", "m"])}
    assert network("GatherND", inputs, {"i": (5, 1)}).outputs[0].spec.shape == (sym("n"), 4)
    inputs = {"x": (F32, ["n", 8, "m"])}
    net = network("DFT", inputs, {"x": (None, 8, 2)}, axis=1)
    assert net.inputs[0].spec.shape == (sym("n"), 8, 2)


@pytest.mark.parametrize(("op", "size"), [("MaxRoiPool", 5), ("RoiAlign", 4)])
def test_rows_that_describe_regions_have_one_size(
    op: str, size: int, imported: Any, model: Any
) -> None:
    inputs: dict[str, Any] = {"x": (F32, [1, 2, 6, 6]), "r": (F32, ["n", "m"])}
    attrs = {"pooled_shape": [2, 2]} if op == "MaxRoiPool" else {}
    inputs |= {} if op == "MaxRoiPool" else {"b": (I64, ["n"])}
    net = imported(model([make_node(op, list(inputs), ["y"], **attrs)], inputs, ["y"]))
    assert net.inputs[1].spec.shape == (sym("n"), size)


def test_frames_of_complex_numbers_keep_their_imaginary_parts(imported: Any, model: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 16, 2)).astype(F32)
    nodes = [make_node("STFT", ["x", "step", "", "size"], ["y"], onesided=1)]
    constants = {"step": np.array(4), "size": np.array(8)}
    net = imported(model(nodes, {"x": (F32, [1, 16, 2])}, ["y"], constants))
    z = x[0, :, 0] + 1j * x[0, :, 1]
    want = np.stack([np.fft.fft(z[i : i + 8])[:5] for i in (0, 4, 8)])
    y = evaluate(net, {"x": x})["y"]
    assert np.allclose(y[0, ..., 0] + 1j * y[0, ..., 1], want, atol=1e-4)
