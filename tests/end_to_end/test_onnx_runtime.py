"""Small graphs whose answers once differed from those of ONNX Runtime, or that were refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.helper import make_node as node
from small_models import agree, engine, model

from tactix.base.errors import AllocationError, ExecutionError, ModelImportError

F = np.float32
RNG = np.random.default_rng(0)


def random(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(F)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("opset", [10, 15, 16])
def test_regions_have_no_half_pixel_before_opset_16(opset: int, mode: str) -> None:
    fields = {
        "output_height": 3,
        "output_width": 2,
        "sampling_ratio": 2,
        "spatial_scale": 0.5,
        "mode": mode,
    }
    inputs = {"x": (F, (1, 2, 8, 8)), "r": (F, (3, 4)), "b": (np.int64, (3,))}
    m = model([node("RoiAlign", ["x", "r", "b"], ["y"], **fields)], inputs, ["y"], opset=opset)
    regions = np.array([[0, 0, 5, 5], [1, 2, 7, 6], [3, 3, 3.5, 3.25]], F)
    agree(m, {"x": random(1, 2, 8, 8), "r": regions, "b": np.zeros(3, np.int64)})


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("corners", ["half_pixel", "output_half_pixel"])
def test_regions_that_are_empty_or_turned_around(corners: str, ratio: int, mode: str) -> None:
    fields = {
        "output_height": 3,
        "output_width": 4,
        "sampling_ratio": ratio,
        "spatial_scale": 0.5,
        "mode": mode,
        "coordinate_transformation_mode": corners,
    }
    inputs = {"x": (F, (1, 2, 8, 9)), "r": (F, ("n", 4)), "b": (np.int64, ("n",))}
    m = model([node("RoiAlign", ["x", "r", "b"], ["y"], **fields)], inputs, ["y"], opset=16)
    regions = np.array([[5, 5, 5, 5], [5, 5, 1, 1], [0, 4, 9, 4], [1, 2, 9, 8]], F)
    agree(m, {"x": random(1, 2, 8, 9), "r": regions, "b": np.zeros(4, np.int64)})


def test_boxes_by_centre_whose_sizes_have_any_sign() -> None:
    inputs = {"boxes": (F, (2, "n", 4)), "scores": (F, (2, 3, "n"))}
    settings = {"most": np.array([20]), "overlap": np.array([0.3], F)}
    made = node("NonMaxSuppression", [*inputs, *settings], ["y"], center_point_box=1)
    m = model([made], inputs, ["y"], settings)
    turned = np.array([[0, 0, -1, 1], [0, 0, -1, 1], [0, 0, 1, 1], [0, 0, -1, -1]] * 2, F)
    for boxes in (random(2, 40, 4), turned.reshape(2, 4, 4)):
        agree(m, {"boxes": boxes, "scores": random(2, 3, boxes.shape[1])})


@pytest.mark.parametrize(("size", "scale"), [(8, 0.7), (10, 0.6), (7, 0.3), (5, 1.3), (6, 2.0)])
def test_the_first_resize_rounds_up_where_it_shrinks(size: int, scale: float) -> None:
    nodes = [node("Resize", ["x", "s"], ["y"], mode="nearest")]
    m = model(
        nodes, {"x": (F, (1, 1, 6, size))}, ["y"], {"s": np.array([1, 1, 1.5, scale], F)}, opset=10
    )
    agree(m, {"x": random(1, 1, 6, size)})
    late = model(nodes, {"x": (F, (1, 1, 6, size)), "s": (F, (4,))}, ["y"], opset=10)
    agree(late, {"x": random(1, 1, 6, size), "s": np.array([1, 1, 1.5, scale], F)})


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("wild", [np.nan, np.inf])
def test_a_wild_pixel_stays_where_it_is_with_antialias(mode: str, wild: float) -> None:
    scales = {"s": np.array([1, 1, 0.45, 1.7], F)}
    made = node("Resize", ["x", "", "s"], ["y"], mode=mode, antialias=1)
    m = model([made], {"x": (F, (1, 2, "h", "w"))}, ["y"], scales, opset=19)
    x = random(1, 2, 30, 24)
    x[0, 0, 12, 5] = wild
    agree(m, {"x": x}, tolerance=1e-4)


@pytest.mark.parametrize("count", [1, 3, 40])
@pytest.mark.parametrize("source", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("to", [TensorProto.UINT32, TensorProto.UINT64])
def test_negative_floats_wrap_as_unsigned_integers(to: int, source: Any, count: int) -> None:
    values = np.resize(np.array([-1.5, -3, 2.7, -60000, 40000, 0.9, -0.9], source), count)
    m = model([node("Cast", ["x"], ["y"], to=to)], {"x": (source, ("n",))}, ["y"])
    agree(m, {"x": values})
    folded = model([node("Cast", ["c"], ["z"], to=to), node("Add", ["z", "x"], ["y"])],
                   {"x": (onnx.helper.tensor_dtype_to_np_dtype(to), (count,))}, ["y"], {"c": values})  # fmt: skip
    agree(folded, {"x": np.ones(count, onnx.helper.tensor_dtype_to_np_dtype(to))})


@pytest.mark.parametrize(
    ("kernel", "stride", "pad", "with_pads", "size"),
    [
        (1280, 1280, 0, 0, 7),
        (9, 9, 0, 0, 7),
        (12, 12, 2, 0, 5),
        (12, 12, 2, 1, 5),
        (9, 3, 0, 0, 7),
        (3, 2, 0, 0, 4),
    ],
)
@pytest.mark.parametrize("op", ["AveragePool", "MaxPool"])
def test_a_window_may_be_larger_than_its_axis_in_ceil_mode(
    op: str, kernel: int, stride: int, pad: int, with_pads: int, size: int
) -> None:
    own = {"count_include_pad": with_pads} if op == "AveragePool" else {}
    fields = {
        "kernel_shape": [kernel] * 2,
        "strides": [stride] * 2,
        "pads": [pad] * 4,
        "ceil_mode": 1,
        **own,
    }
    for shape in ([1, 20, size, size], ["n", 20, "h", "w"]):
        m = model([node(op, ["x"], ["y"], **fields)], {"x": (F, shape)}, ["y"])
        agree(m, {"x": random(1, 20, size, size)})


def test_an_output_may_be_an_input_a_constant_or_another_output() -> None:
    x = random(2, 3)
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Identity", ["r"], ["s"]),
        node("Identity", ["c"], ["d"]),
    ]
    m = model(nodes, {"x": (F, (2, 3))}, ["x", "r", "s", "d", "c"], {"c": np.arange(3, dtype=F)})
    agree(m, {"x": x})
    assert [o.name for o in engine(m).outputs] == ["x_out", "r", "s", "d", "c"]
    agree(model([], {"x": (F, (2, 3))}, ["x"]), {"x": x})
    m = model([node("Relu", ["x"], ["x_out"])], {"x": (F, (2, 3))}, ["x_out", "x"])
    agree(m, {"x": x})
    assert [o.name for o in engine(m).outputs] == ["x_out", "x_out1"]


@pytest.mark.parametrize("going", [(), (1,)])
@pytest.mark.parametrize("number", [(), (1,)])
def test_a_body_may_take_its_counters_with_an_axis(
    number: tuple[int, ...], going: tuple[int, ...]
) -> None:
    info = onnx.helper.make_tensor_value_info
    nodes = [node("Identity", ["c"], ["c2"]), node("Cast", ["k"], ["f"], to=TensorProto.FLOAT)]
    nodes += [node("Add", ["s", "f"], ["s2"]), node("Identity", ["k"], ["row"])]
    inputs = [
        info("k", TensorProto.INT64, number),
        info("c", TensorProto.BOOL, going),
        info("s", TensorProto.FLOAT, (1,)),
    ]
    outputs = [info("c2", TensorProto.BOOL, going), info("s2", TensorProto.FLOAT, (1,))]
    body = onnx.helper.make_graph(
        nodes, "body", inputs, [*outputs, info("row", TensorProto.INT64, number)]
    )
    m = model(
        [node("Loop", ["n", "", "x"], ["y", "z"], body=body)],
        {"x": (F, (1,)), "n": (np.int64, ())},
        ["y", "z"],
    )
    feeds = {"x": random(1), "n": np.array(3)}
    got = dict(zip("yz", engine(m).create_execution_context().run(feeds).values(), strict=True))
    np.testing.assert_allclose(got["y"], feeds["x"] + 3, rtol=1e-6)
    np.testing.assert_array_equal(got["z"], np.arange(3).reshape(3, *number))
    if not number:  # the result of the other is declared as it is not
        agree(m, feeds)


def _dequantized(
    name: str, data: Any, scale: float, zero: Any
) -> tuple[onnx.NodeProto, dict[str, Any]]:
    parts = {name: data, f"{name}_scale": F(scale), f"{name}_zero": zero}
    return node("DequantizeLinear", [*parts], [f"{name}_real"]), parts


def _launchers(m: onnx.ModelProto) -> set[str]:
    return {s.artifact.launcher for s in engine(m).plan.steps}


@pytest.mark.parametrize("op", ["BatchNormalization", "LayerNormalization"])
def test_parameters_of_norms_may_be_stored_in_bytes(op: str) -> None:
    names = {"BatchNormalization": ["s", "b", "m", "v"], "LayerNormalization": ["s", "b"]}[op]
    made = [_dequantized(n, np.array([20, 50, 30, 90], np.int8), 0.02, np.int8(1)) for n in names]
    weights = RNG.integers(-127, 127, (4, 3, 3, 3)).astype(np.int8)
    made.append(_dequantized("w", weights, 0.01, np.int8(0)))
    nodes = [n for n, _ in made] + [node("Conv", ["x", "w_real"], ["c"])]
    nodes.append(node(op, ["c", *(f"{n}_real" for n in names)], ["y"]))
    m = model(
        nodes,
        {"x": (F, (1, 3, 8, 6))},
        ["y"],
        {k: v for _, parts in made for k, v in parts.items()},
    )
    agree(m, {"x": random(1, 3, 8, 6)}, tolerance=1e-4)
    assert _launchers(m) == {"tactix.cpu.elf@1"}


def test_a_pool_between_bytes_at_the_end_runs_natively() -> None:
    parts = {"s": F(0.1), "z": np.uint8(3)}
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        node("MaxPool", ["a"], ["b"], kernel_shape=[2, 2], strides=[2, 2]),
        node("QuantizeLinear", ["b", "s", "z"], ["c"]),
        node("DequantizeLinear", ["c", "s", "z"], ["y"]),
    ]
    m = model(nodes, {"x": (np.uint8, (1, 3, 8, 8))}, ["y"], parts)
    agree(m, {"x": RNG.integers(0, 255, (1, 3, 8, 8)).astype(np.uint8)})
    assert _launchers(m) == {"tactix.cpu.elf@1"}


@pytest.mark.parametrize("size", [[3 << 20, 2 << 20], [1 << 40, 1 << 40], [-3, 2]])
@pytest.mark.parametrize("more", [[], [node("Add", ["z", "z"], ["y"])]], ids=["output", "inner"])
def test_sizes_that_no_memory_has_are_an_error_of_the_step(
    more: list[Any], size: list[int]
) -> None:
    nodes = [node("Expand", ["x", "s"], ["z" if more else "y"], name="wide"), *more]
    m = model(nodes, {"x": (F, (1,)), "s": (np.int64, (2,))}, ["y"])
    why = r"^wide: .*(cannot allocate|large|big|negative|cannot be expanded to -3)"
    with pytest.raises((ExecutionError, AllocationError), match=why):
        engine(m).create_execution_context().run({"x": np.ones(1, F), "s": np.array(size)})


@pytest.mark.parametrize(
    ("op", "inputs", "fixed"),
    [
        ("Expand", {"s": [1 << 12, 1 << 12]}, {"x": np.ones(1, F)}),
        ("ConstantOfShape", {"s": [1 << 12, 1 << 12]}, {}),
        ("Tile", {"s": [1 << 12, 1 << 12]}, {"x": np.ones((1, 1), F)}),
        ("Range", {"a": 0, "b": 1 << 24, "c": 1}, {}),
        ("OneHot", {"s": 1 << 24}, {"x": np.ones(1, np.int64), "v": np.array([0, 1], F)}),
    ],
)
def test_a_size_beyond_the_machine_is_no_promise_of_the_system(
    op: str, inputs: dict[str, Any], fixed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the system promises any size, the process would be ended for writing there."""
    names = {"OneHot": ["x", "s", "v"], "Range": ["a", "b", "c"]}.get(op, [*fixed, *inputs])
    given = {name: np.array(value, np.int64) for name, value in inputs.items()}
    m = model(
        [node(op, names, ["y"], name="wide")],
        {k: (v.dtype, v.shape) for k, v in given.items()},
        ["y"],
        fixed,
    )
    context = engine(m).create_execution_context()
    monkeypatch.setattr("tactix.base.host_memory.largest", lambda: 1 << 25)
    why = r"^wide: .*cannot allocate \d+ bytes: this machine has"
    with pytest.raises((ExecutionError, AllocationError), match=why):
        context.run(given)


@pytest.mark.parametrize("op", ["AveragePool", "MaxPool"])
def test_a_window_that_fits_nowhere_is_refused(op: str) -> None:
    m = model([node(op, ["x"], ["y"], kernel_shape=[9, 9])], {"x": (F, (1, 2, 7, 7))}, ["y"])
    with pytest.raises(
        ModelImportError, match=r"a window of 9 \(kernel .*\) does not fit spatial axis 0 of 7"
    ):
        engine(m)
