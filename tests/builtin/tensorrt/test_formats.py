"""Inputs and outputs in formats that are not linear."""

from __future__ import annotations

import numpy as np
import pytest
from trt_logger import Kept

from tactix_tensorrt import api as trt
from tactix_tensorrt.api.formats import LAYOUTS

FORMATS = list(LAYOUTS)
SHAPES = {2: (2, 5, 3, 4), 3: (2, 5, 2, 3, 4)}
"""By the number of axes after the channels."""


def engine(
    builder: trt.Builder, config: trt.IBuilderConfig, form: trt.TensorFormat, dtype: trt.DataType
) -> trt.ICudaEngine:
    """y = 2 x, both in a format."""
    network = builder.create_network(0)
    x = network.add_input("x", dtype, SHAPES[LAYOUTS[form].spatial])
    y = network.add_elementwise(x, x, trt.ElementWiseOperation.SUM).get_output(0)
    y.name = "y"
    network.mark_output(y)
    x.allowed_formats = y.allowed_formats = 1 << int(form)
    made = builder.build_engine_with_config(network, config)
    assert made is not None
    return made


@pytest.mark.parametrize("form", FORMATS)
def test_a_layout_goes_there_and_back(form: trt.TensorFormat) -> None:
    layout = LAYOUTS[form]
    shape = SHAPES[layout.spatial]
    x = np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
    stored = layout.pack(x)
    assert stored.shape == layout.storage_shape(shape)
    assert np.count_nonzero(stored) == x.size
    np.testing.assert_array_equal(layout.unpack(stored, shape), x)


def test_how_channels_lie() -> None:
    x = np.arange(5 * 2, dtype=np.int8).reshape(1, 5, 1, 2)
    last = LAYOUTS[trt.TensorFormat.HWC]
    np.testing.assert_array_equal(last.pack(x), x.transpose(0, 2, 3, 1))
    assert last.strides(x.shape) == [10, 1, 10, 5]
    fours = LAYOUTS[trt.TensorFormat.CHW4]
    assert fours.storage_shape(x.shape) == (1, 2, 1, 2, 4)
    np.testing.assert_array_equal(fours.pack(x)[0, 0, 0, 0], x[0, :4, 0, 0])
    np.testing.assert_array_equal(fours.pack(x)[0, 1, 0, 1], [x[0, 4, 0, 1], 0, 0, 0])
    assert fours.strides(x.shape) == [4, 2, 2, 1]
    eights = LAYOUTS[trt.TensorFormat.HWC8]
    assert eights.storage_shape(x.shape) == (1, 1, 2, 8)
    assert eights.strides(x.shape) == [2, 1, 2, 1]


@pytest.mark.parametrize(
    ("form", "dtype", "kind"),
    [
        (trt.TensorFormat.HWC, trt.float32, np.float32),
        (trt.TensorFormat.CHW4, trt.int8, np.int8),
        (trt.TensorFormat.DHWC8, trt.float16, np.float16),
    ],
)
def test_an_engine_runs_on_tensors_of_a_format(
    builder: trt.Builder,
    config: trt.IBuilderConfig,
    form: trt.TensorFormat,
    dtype: trt.DataType,
    kind: type[np.generic],
) -> None:
    made, layout = engine(builder, config, form, dtype), LAYOUTS[form]
    shape = SHAPES[layout.spatial]
    assert made.get_tensor_format("x") is made.get_tensor_format("y") is form
    assert made.get_tensor_shape("x") == shape
    grouped = layout.lanes > 1
    assert made.get_tensor_components_per_element("x") == (layout.lanes if grouped else -1)
    assert made.get_tensor_vectorized_dim("x") == (1 if grouped else -1)
    assert made.get_tensor_bytes_per_component("x") == (dtype.itemsize if grouped else -1)
    x = (np.arange(np.prod(shape)) % 50).astype(kind).reshape(shape)
    given, room = layout.pack(x), np.zeros(layout.storage_shape(shape), kind)
    context = made.create_execution_context()
    assert context.get_max_output_size("y") == room.nbytes
    assert context.get_tensor_strides("x") == layout.strides(shape)
    for name, array in (("x", given), ("y", room)):
        assert context.set_tensor_address(name, array.ctypes.data)
        assert context.get_tensor_address(name) == array.ctypes.data
    assert context.execute_async_v3(0)
    np.testing.assert_array_equal(room, layout.pack(x + x))
    room[:] = 0
    assert context.execute_v2([given.ctypes.data, room.ctypes.data])
    np.testing.assert_array_equal(room, layout.pack(x + x))


class Room(trt.IOutputAllocator):
    """Gives memory, and keeps what it is told."""

    def __init__(self) -> None:
        trt.IOutputAllocator.__init__(self)
        self.memory = np.zeros(0, np.uint8)
        self.shape = trt.Dims()

    def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> int:
        self.memory = np.zeros(size, np.uint8)
        return self.memory.ctypes.data

    def notify_shape(self, tensor_name: str, shape: trt.Dims) -> None:
        self.shape = shape


def test_an_allocator_gives_room_for_groups(
    builder: trt.Builder, config: trt.IBuilderConfig, logger: Kept
) -> None:
    form = trt.TensorFormat.CHW16
    context = engine(builder, config, form, trt.float32).create_execution_context()
    x = np.ones(SHAPES[2], np.float32)
    stored = LAYOUTS[form].pack(x)
    assert not context.execute_async_v3(0)
    assert "has no address" in logger.errors[-1]
    assert context.set_tensor_address("x", stored.ctypes.data)
    assert not context.execute_async_v3(0)
    assert "tensor 'y' has no address" in logger.errors[-1]
    room = Room()
    assert context.set_output_allocator("y", room)
    assert context.execute_async_v3(0)
    assert room.shape == SHAPES[2]
    found = room.memory.view(np.float32).reshape(stored.shape)
    np.testing.assert_array_equal(found, 2 * stored)


def test_a_format_that_no_tensor_of_the_rank_has(
    builder: trt.Builder,
    network: trt.INetworkDefinition,
    config: trt.IBuilderConfig,
    logger: Kept,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = network.add_input("x", trt.float32, (4, 4))
    network.mark_output(network.add_identity(x).get_output(0))
    for form in (trt.TensorFormat.HWC, trt.TensorFormat.DLA_LINEAR):
        x.allowed_formats = 1 << int(form)
        assert builder.build_serialized_network(network, config) is None
        assert f"has 'x' in {form}" in logger.errors[-1]
    x.shape, x.allowed_formats = (1, 4, 4), 1 << int(trt.TensorFormat.HWC)
    monkeypatch.setenv("TACTIX_TENSORRT_DEVICE", "cuda")
    assert builder.build_serialized_network(network, config) is None
    assert "for this device" in logger.errors[-1]
