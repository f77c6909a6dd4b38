"""Plugins as programs write them, over numpy arrays at the addresses that they are given."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from tactix_tensorrt import api as trt

Array = np.ndarray


def at(address: int, shape: Sequence[int], dtype: trt.DataType) -> Array:
    """The array at an address."""
    kind = np.dtype(trt.nptype(dtype))
    size = int(np.prod(shape)) * kind.itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address), kind).reshape(tuple(shape))


@contextmanager
def registered(*creators: trt.IPluginCreatorInterface) -> Iterator[None]:
    registry = trt.get_plugin_registry()
    for creator in creators:
        assert registry.register_creator(creator, "")
    try:
        yield
    finally:
        for creator in creators:
            assert registry.deregister_creator(creator)


class PluginV3(
    trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuildV2, trt.IPluginV3OneRuntime
):
    """What such plugins share in programs: one object has all capabilities, and is copied whole."""

    def __init__(self, name: str, outputs: int = 1) -> None:
        trt.IPluginV3.__init__(self)
        trt.IPluginV3OneCore.__init__(self)
        trt.IPluginV3OneBuildV2.__init__(self)
        trt.IPluginV3OneRuntime.__init__(self)
        self.plugin_name, self.plugin_version, self.plugin_namespace = name, "1", ""
        self.num_outputs = outputs

    def get_capability_interface(self, type: trt.PluginCapabilityType) -> object:
        return self

    def get_output_data_types(self, types: list[trt.DataType]) -> list[trt.DataType]:
        return [types[0]] * self.num_outputs

    def get_output_shapes(
        self, inputs: list, shape_inputs: list, builder: trt.IExprBuilder
    ) -> list:
        return [trt.DimsExprs(inputs[0])] * self.num_outputs

    def supports_format_combination(self, pos: int, in_out: list, num_inputs: int) -> bool:
        return in_out[pos].desc.format == trt.TensorFormat.LINEAR

    def get_fields_to_serialize(self) -> trt.PluginFieldCollection:
        return trt.PluginFieldCollection([])

    def configure_plugin(self, inputs: list, outputs: list) -> None: ...

    def on_shape_change(self, inputs: list, outputs: list) -> None: ...

    def set_tactic(self, tactic: int) -> None:
        self.tactic = tactic

    def attach_to_context(self, context: object) -> object:
        return self.clone()

    def clone(self) -> PluginV3:
        out = type(self).__new__(type(self))
        PluginV3.__init__(out, self.plugin_name)
        out.__dict__.update(self.__dict__)
        return out


class CircularPad(PluginV3):
    """The last axes, continued circularly: ``pads`` before and behind, last axis first."""

    def __init__(self, fields: Sequence[trt.PluginField] = (), phase: object = None) -> None:
        super().__init__(type(self).__name__)
        self.pads = next((f.data for f in fields if f.name == "pads"), np.array([], np.int32))
        self.phase, self.ran = phase, []

    def get_output_shapes(
        self, inputs: list, shape_inputs: list, builder: trt.IExprBuilder
    ) -> list:
        out = trt.DimsExprs(inputs[0])
        for i in range(len(self.pads) // 2):
            more = builder.constant(self.pads[2 * i] + self.pads[2 * i + 1])
            axis = len(out) - i - 1
            out[axis] = builder.operation(trt.DimensionOperation.SUM, inputs[0][axis], more)
        return [out]

    def supports_format_combination(self, pos: int, in_out: list, num_inputs: int) -> bool:
        desc = in_out[pos].desc
        return desc.format == trt.TensorFormat.LINEAR and desc.type == in_out[0].desc.type

    def get_fields_to_serialize(self) -> trt.PluginFieldCollection:
        field = trt.PluginField("pads", self.pads, trt.PluginFieldType.INT32)
        return trt.PluginFieldCollection([field])

    def enqueue(
        self, given: list, made: list, inputs: list, outputs: list, workspace: int, stream: int
    ) -> None:
        x = at(inputs[0], given[0].dims, given[0].type)
        widths = [(0, 0)] * x.ndim
        for i in range(len(self.pads) // 2):
            widths[x.ndim - i - 1] = (self.pads[2 * i], self.pads[2 * i + 1])
        at(outputs[0], made[0].dims, made[0].type)[...] = np.pad(x, widths, "wrap")


class Creator(trt.IPluginCreatorV3One):
    """Makes plugins of a class of ``(fields, phase)``; ``made``: in which phases it did."""

    def __init__(self, kind: type, *fields: trt.PluginField) -> None:
        trt.IPluginCreatorV3One.__init__(self)
        self.kind, self.name = kind, kind.__name__
        self.plugin_version, self.plugin_namespace = "1", ""
        self.field_names = trt.PluginFieldCollection(fields)
        self.made: list[trt.TensorRTPhase] = []

    def create_plugin(
        self, name: str, fields: trt.PluginFieldCollection, phase: trt.TensorRTPhase
    ) -> object:
        self.made.append(phase)
        return self.kind(fields, phase)


def pads(*sizes: int) -> trt.PluginFieldCollection:
    given = np.array(sizes, np.int32)
    return trt.PluginFieldCollection([trt.PluginField("pads", given, trt.PluginFieldType.INT32)])


class NonZero(PluginV3):
    """Where a matrix is not zero, and how many such places there are."""

    def __init__(self, fields: Sequence[trt.PluginField] = (), phase: object = None) -> None:
        super().__init__("NonZero", 2)

    def get_output_data_types(self, types: list[trt.DataType]) -> list[trt.DataType]:
        return [trt.DataType.INT32, trt.DataType.INT32]

    def get_output_shapes(
        self, inputs: list, shape_inputs: list, builder: trt.IExprBuilder
    ) -> list:
        upper = builder.operation(trt.DimensionOperation.PROD, inputs[0][0], inputs[0][1])
        two = builder.constant(2)
        opt = builder.operation(trt.DimensionOperation.FLOOR_DIV, upper, two)
        places = trt.DimsExprs(2)
        places[0], places[1] = builder.declare_size_tensor(1, opt, upper), two
        return [places, trt.DimsExprs(0)]

    def enqueue(
        self, given: list, made: list, inputs: list, outputs: list, workspace: int, stream: int
    ) -> None:
        found = np.argwhere(at(inputs[0], given[0].dims, given[0].type))
        at(outputs[0], found.shape, trt.int32)[...] = found
        at(outputs[1], (), trt.int32)[...] = len(found)


class AddInPlace(PluginV3):
    """One more, where the input lies."""

    def __init__(self, fields: Sequence[trt.PluginField] = (), phase: object = None) -> None:
        super().__init__("AddInPlace")

    def get_aliased_input(self, output_index: int) -> int:
        return 0

    def enqueue(
        self, given: list, made: list, inputs: list, outputs: list, workspace: int, stream: int
    ) -> None:
        assert inputs[0] == outputs[0]
        at(inputs[0], given[0].dims, given[0].type)[...] += 1
