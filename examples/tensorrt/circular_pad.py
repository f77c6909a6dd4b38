"""A plugin of IPluginV3 and its creator: rows of a panorama go on at their other end, as a convolution wants them.

A node of an ONNX model names it, and a network that is built here has it by add_plugin_v3. It is made of copies
alone, which CUDA's runtime does.
"""

from __future__ import annotations

import math

import numpy as np
import tensorrt as trt
from common import LOGGER, arguments, build, build_network, check
from cuda.bindings import runtime as cudart
from once import run

NAME, VERSION = "CircularPad", "1"
PADS = np.array([1, 1], np.int32)
IMAGES = (2, 3, 16, 32)


class CircularPad(
    trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime
):
    """``pads``: columns before and behind each row, int32, none more than the row has."""

    def __init__(self, pads: np.ndarray) -> None:
        trt.IPluginV3.__init__(self)
        trt.IPluginV3OneCore.__init__(self)
        trt.IPluginV3OneBuild.__init__(self)
        trt.IPluginV3OneRuntime.__init__(self)
        self.plugin_name, self.plugin_version, self.plugin_namespace = NAME, VERSION, ""
        self.num_outputs = 1
        self.pads = np.array(pads, np.int32)

    def get_capability_interface(self, type: trt.PluginCapabilityType) -> CircularPad:
        return self

    # -- in a build -------------------------------------------------------------------------------

    def get_output_data_types(self, input_types: list[trt.DataType]) -> list[trt.DataType]:
        return [input_types[0]]

    def get_output_shapes(
        self,
        inputs: list[trt.DimsExprs],
        shape_inputs: list[trt.DimsExprs],
        exprs: trt.IExprBuilder,
    ) -> list[trt.DimsExprs]:
        out, last = trt.DimsExprs(inputs[0]), len(inputs[0]) - 1
        more = exprs.constant(int(self.pads.sum()))
        out[last] = exprs.operation(trt.DimensionOperation.SUM, inputs[0][last], more)
        return [out]

    def supports_format_combination(
        self, pos: int, in_out: list[trt.DynamicPluginTensorDesc], num_inputs: int
    ) -> bool:
        desc, first = in_out[pos].desc, in_out[0].desc
        floats = desc.type in (trt.float32, trt.float16)
        return floats and desc.type == first.type and desc.format == trt.TensorFormat.LINEAR

    def configure_plugin(self, inputs: list, outputs: list) -> None: ...

    # -- in a run ---------------------------------------------------------------------------------

    def attach_to_context(self, context: trt.IPluginResourceContext) -> CircularPad:
        return self.clone()

    def on_shape_change(self, inputs: list, outputs: list) -> None: ...

    def set_tactic(self, tactic: int) -> None: ...

    def enqueue(
        self,
        input_desc: list[trt.PluginTensorDesc],
        output_desc: list[trt.PluginTensorDesc],
        inputs: list[int],
        outputs: list[int],
        workspace: int,
        stream: int,
    ) -> None:
        """The row's end, the row, and its begin, each for all rows at once."""
        *above, width = input_desc[0].dims
        size, (before, behind) = trt.nptype(input_desc[0].type)().itemsize, self.pads.tolist()
        parts = ((width - before, before), (0, width), (0, behind))
        x, y, kind = inputs[0], outputs[0], cudart.cudaMemcpyKind.cudaMemcpyDeviceToDevice
        x_pitch, y_pitch = width * size, (before + width + behind) * size
        for begin, columns in parts:
            source, wide = x + begin * size, columns * size
            check(
                cudart.cudaMemcpy2DAsync(
                    y, y_pitch, source, x_pitch, wide, math.prod(above), kind, stream
                )
            )
            y += wide

    # -- as bytes ---------------------------------------------------------------------------------

    def get_fields_to_serialize(self) -> trt.PluginFieldCollection:
        return fields(self.pads)

    def clone(self) -> CircularPad:
        return CircularPad(self.pads)


def fields(pads: np.ndarray) -> trt.PluginFieldCollection:
    return trt.PluginFieldCollection([trt.PluginField("pads", pads, trt.PluginFieldType.INT32)])


class CircularPadCreator(trt.IPluginCreatorV3One):
    """Asked by the parser, by the program, and where an engine is deserialized."""

    def __init__(self) -> None:
        trt.IPluginCreatorV3One.__init__(self)
        self.name, self.plugin_version, self.plugin_namespace = NAME, VERSION, ""
        self.field_names = fields(np.array([], np.int32))

    def create_plugin(
        self, name: str, given: trt.PluginFieldCollection, phase: trt.TensorRTPhase
    ) -> CircularPad:
        return CircularPad(next(f.data for f in given if f.name == "pads"))


def padding_alone(level: int) -> trt.ICudaEngine:
    """The engine of a network that is the plugin."""
    builder = trt.Builder(LOGGER)
    network = builder.create_network(0)
    images = network.add_input("images", trt.float32, IMAGES)
    creator = trt.get_plugin_registry().get_creator(NAME, VERSION, "")
    plugin = creator.create_plugin("pad", fields(PADS), trt.TensorRTPhase.BUILD)
    padded = network.add_plugin_v3([images], [], plugin).get_output(0)
    padded.name = "padded"
    network.mark_output(padded)
    return build_network(builder, network, level)


def main() -> None:
    args = arguments(__doc__)
    trt.get_plugin_registry().register_creator(CircularPadCreator(), "")
    images = np.random.default_rng(0).standard_normal(IMAGES).astype(np.float32)
    found = run(padding_alone(args.level), {"images": images})
    engine = build(args.model, args.level, [{"images": (IMAGES, IMAGES, IMAGES)}])
    found |= run(engine, {"images": images})
    for name, array in found.items():
        print(f"{name}: {array.shape}")
    if args.output:
        np.savez(args.output, images=images, **found)


if __name__ == "__main__":
    main()
