"""Indices out of range: one error by every way of running, and the next run is as if there had been
none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as node
from small_models import agree, by_onnx_runtime, engine, model

import tactix
from tactix.base.errors import ExecutionError
from tactix_refit.refitter import Refitter

F, I64 = np.float32, np.int64
TABLE = np.random.default_rng(0).standard_normal((4, 3)).astype(F)


def reading(
    op: str, indices: Any, axis: int = 0, **more: Any
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """A model of one operator that reads or writes TABLE at indices, and its inputs."""
    indices = np.asarray(indices, more.pop("dtype", I64))
    feeds = {"x": TABLE, "i": indices, **more}
    inputs = {k: (a.dtype, a.shape) for k, a in feeds.items()}
    fields = {} if op.endswith("ND") else {"axis": axis}
    return model([node(op, [*feeds], ["y"], name="reader", **fields)], inputs, ["y"]), feeds


UPDATES = {"ScatterElements": (1, 3), "ScatterND": (2, 3)}
WRONG = [
    ("Gather", [3, 1, 99, -5], 0, 99, 4),
    ("Gather", [[0, 1], [2, -5]], 0, -5, 4),
    ("Gather", [[3]], 1, 3, 3),
    ("GatherElements", [[0, 1, 2], [3, 4, 0]], 0, 4, 4),
    ("GatherElements", [[-4]], 1, -4, 3),
    ("GatherND", [[0, 1], [0, -4]], 0, -4, 3),
    ("GatherND", [[0], [10**12]], 0, 10**12, 4),
    ("ScatterElements", [[0, 1, 4]], 0, 4, 4),
    ("ScatterND", [[0], [-5]], 0, -5, 4),
]


@pytest.mark.parametrize("references", [False, True], ids=["native", "references"])
@pytest.mark.parametrize(("op", "indices", "axis", "index", "size"), WRONG)
def test_an_index_out_of_range_is_an_error(
    op: str, indices: Any, axis: int, index: int, size: int, references: bool
) -> None:
    more = {"u": np.ones(UPDATES[op], F)} if op in UPDATES else {}
    m, feeds = reading(op, indices, axis, **more)
    with pytest.raises(Exception, match=r"ONNXRuntimeError|out of"):
        by_onnx_runtime(m, feeds)
    context = engine(m, tactic_sources={"numpy"} if references else None).create_execution_context()
    with pytest.raises(
        ExecutionError,
        match=rf"^reader: index {index} is out of range: the axis has {size} elements",
    ):
        context.run(feeds)
    good = {**feeds, "i": np.zeros_like(feeds["i"])}
    np.testing.assert_array_equal(context.run(good)["y"], by_onnx_runtime(m, good)[0])


@pytest.mark.parametrize(
    ("op", "indices", "axis"),
    [
        ("Gather", [3, -4, 0, -1], 0),
        ("Gather", [[-3, 2]], 1),
        ("Gather", -1, -1),
        ("GatherElements", [[0, -1, -4], [3, 1, 0]], 0),
        ("GatherND", [[0, 1], [-4, -3]], 0),
        ("ScatterElements", [[0, -4, -1]], 0),
        ("ScatterND", [[0], [-1]], 0),
    ],
)
@pytest.mark.parametrize("dtype", [np.int32, I64])
def test_negative_indices_count_from_the_end(op: str, indices: Any, axis: int, dtype: Any) -> None:
    if op.endswith("ND") and dtype is np.int32:
        pytest.skip("its indices are int64")
    more = {"u": np.ones(UPDATES[op], F)} if op in UPDATES else {}
    agree(*reading(op, indices, axis, dtype=dtype, **more))


@pytest.mark.parametrize("op", ["Gather", "GatherND", "GatherElements"])
def test_an_axis_without_elements_has_no_index(op: str) -> None:
    shape = {"Gather": (2,), "GatherND": (2, 1), "GatherElements": (2, 3)}[op]
    feeds = {"x": np.zeros((0, 3), F), "i": np.zeros(shape, I64)}
    inputs = {"x": (F, ("n", 3)), "i": (I64, shape)}
    m = model([node(op, ["x", "i"], ["y"], name="reader")], inputs, ["y"])
    with pytest.raises(
        ExecutionError, match="reader: index 0 is out of range: the axis has 0 elements"
    ):
        engine(m).create_execution_context().run(feeds)


# ---- ways of running
# -------------------------------------------------------------------------------------------------


def rows(count: int = 4096) -> onnx.ModelProto:
    """Enough rows for several threads, between other launches."""
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Gather", ["r", "i"], ["g"], name="reader"),
        node("Abs", ["g"], ["y"]),
    ]
    return model(nodes, {"x": (F, (64, 32)), "i": (I64, (count,))}, ["y"])


def feeds_of(index: int, count: int = 4096) -> dict[str, Any]:
    indices = np.arange(count) % 64
    indices[count - 7] = index
    return {
        "x": np.random.default_rng(1).standard_normal((64, 32)).astype(F),
        "i": indices.astype(I64),
    }


def by_call(e: tactix.Engine, feeds: dict[str, Any]) -> Any:
    return e(**feeds)


def by_addresses(e: tactix.Engine, feeds: dict[str, Any]) -> Any:
    context, y = e.create_execution_context(), np.empty((4096, 32), F)
    assert context.execute_v2([feeds["x"].ctypes.data, feeds["i"].ctypes.data, y.ctypes.data])
    return y


def by_stream(e: tactix.Engine, feeds: dict[str, Any]) -> Any:
    context, y = e.create_execution_context(), np.empty((4096, 32), F)
    for name, array in {**feeds, "y": y}.items():
        context.set_tensor_address(name, array)
    stream = e.device.create_stream()
    context.execute_async_v3(stream)
    stream.synchronize()
    return y


@pytest.mark.parametrize("run", [by_call, by_addresses, by_stream])
@pytest.mark.parametrize("threads", [1, 3])
def test_every_way_of_running_tells(
    run: Callable[..., Any], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACTIX_ALWAYS_PARALLEL", "1")
    e = engine(rows(), threads=threads)
    for wrong in (64, -65, 2**62, -(2**63)):
        with pytest.raises(
            ExecutionError, match=rf"reader: index {wrong} is out of range: the axis has 64"
        ):
            run(e, feeds_of(wrong))
    good = feeds_of(-64)
    np.testing.assert_array_equal(run(e, good), np.abs(np.maximum(good["x"], 0)[good["i"]]))


def test_contexts_of_one_engine_do_not_share_errors() -> None:
    e = engine(rows())
    bad, well = e.create_execution_context(), e.create_execution_context()
    with pytest.raises(ExecutionError, match="index 64"):
        bad.run(feeds_of(64))
    well.run(feeds_of(3))
    bad.run(feeds_of(3))


def test_the_first_of_several_steps_is_named() -> None:
    nodes = [
        node("Gather", ["x", "i"], ["g"], name="first"),
        node("Gather", ["g", "i"], ["y"], name="second"),
    ]
    m = model(nodes, {"x": (F, (4, 3)), "i": (I64, (5,))}, ["y"])
    context = engine(m).create_execution_context()
    with pytest.raises(ExecutionError, match=r"^first: index 4 is out of range: the axis has 4"):
        context.run({"x": TABLE, "i": np.array([4, 4, 4, 4, 4])})
    nodes[0].attribute.append(onnx.helper.make_attribute("axis", 1))
    m = model(nodes, {"x": (F, (4, 9)), "i": (I64, (1,))}, ["y"])
    context = engine(m).create_execution_context()
    with pytest.raises(ExecutionError, match=r"^second: index -5 is out of range: the axis has 4"):
        context.run({"x": np.zeros((4, 9), F), "i": np.array([-5])})


def test_a_loop_tells_of_its_body() -> None:
    inputs = [onnx.helper.make_tensor_value_info("k", onnx.TensorProto.INT64, ()),
              onnx.helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, ())]  # fmt: skip
    outputs = [onnx.helper.make_tensor_value_info("c2", onnx.TensorProto.BOOL, ()),
               onnx.helper.make_tensor_value_info("row", onnx.TensorProto.FLOAT, (3,))]  # fmt: skip
    nodes = [node("Identity", ["c"], ["c2"]), node("Gather", ["x", "k"], ["row"], name="reader")]
    body = onnx.helper.make_graph(nodes, "body", inputs, outputs)
    m = model(
        [node("Loop", ["n", ""], ["y"], body=body)], {"x": (F, (4, 3)), "n": (I64, ())}, ["y"]
    )
    context = engine(m).create_execution_context()
    np.testing.assert_array_equal(context.run({"x": TABLE, "n": np.array(4)})["y"], TABLE)
    with pytest.raises(ExecutionError, match="reader: index 4 is out of range: the axis has 4"):
        context.run({"x": TABLE, "n": np.array(5)})
    np.testing.assert_array_equal(context.run({"x": TABLE, "n": np.array(2)})["y"], TABLE[:2])


def test_new_weights_are_checked_as_the_old_ones_were() -> None:
    def of(scale: float) -> onnx.ModelProto:
        nodes = [node("Gather", ["w", "i"], ["y"], name="reader")]
        return model(nodes, {"i": (I64, (2,))}, ["y"], {"w": TABLE * F(scale)})

    e = engine(of(1), flags={tactix.BuilderFlag.REFIT})
    context = e.create_execution_context()
    Refitter(e).refit_from_onnx(of(2))
    with pytest.raises(ExecutionError, match="reader: index 4"):
        context.run({"i": np.array([0, 4])})
    np.testing.assert_array_equal(context.run({"i": np.array([0, -4])})["y"], 2 * TABLE[[0, 0]])
