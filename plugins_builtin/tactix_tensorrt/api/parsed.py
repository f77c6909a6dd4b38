"""What a parser read, as TensorRT's layers and tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tactix_tensorrt.api.enums import (
    ActivationType,
    PoolingType,
    WeightsRole,
)
from tactix_tensorrt.api.layer import ILayer
from tactix_tensorrt.api.layers import arithmetic, moving, plugins, windows
from tactix_tensorrt.api.layers.branches import IIfConditionalOutputLayer
from tactix_tensorrt.api.layers.loops import ILoopOutputLayer
from tactix_tensorrt.api.plugins import IPluginV2
from tactix_tensorrt.api.tensor import ITensor
from tactix_tensorrt.api.values import Dims
from tactix_tensorrt.api.weights_names import Roles

if TYPE_CHECKING:
    from tactix.contracts.graph import Node, Value
    from tactix.network.definition import NetworkDefinition
    from tactix_tensorrt.api.network import INetworkDefinition

CLASSES: dict[str, type[ILayer]] = {
    "Convolution": windows.IConvolutionLayer,
    "ConvTranspose": windows.IDeconvolutionLayer,
    "MaxPool": windows.IPoolingLayer,
    "AveragePool": windows.IPoolingLayer,
    "LRN": windows.ILRNLayer,
    "Pad": windows.IPaddingLayer,
    "Resize": windows.IResizeLayer,
    "GridSample": windows.IGridSampleLayer,
    "Clip": arithmetic.IActivationLayer,
    "Gelu": arithmetic.IActivationLayer,
    "Selu": arithmetic.IActivationLayer,
    "HardSigmoid": arithmetic.IActivationLayer,
    "Softplus": arithmetic.IActivationLayer,
    "PRelu": arithmetic.IParametricReLULayer,
    "Cast": arithmetic.ICastLayer,
    "Where": arithmetic.ISelectLayer,
    "MatMul": arithmetic.IMatrixMultiplyLayer,
    "Gemm": arithmetic.IMatrixMultiplyLayer,
    "Softmax": arithmetic.ISoftMaxLayer,
    "TopK": arithmetic.ITopKLayer,
    "Einsum": arithmetic.IEinsumLayer,
    "CumSum": arithmetic.ICumulativeLayer,
    "LayerNormalization": arithmetic.INormalizationLayer,
    "InstanceNormalization": arithmetic.INormalizationLayer,
    "GroupNormalization": arithmetic.INormalizationLayer,
    "BatchNormalization": arithmetic.IScaleLayer,
    "Concat": moving.IConcatenationLayer,
    "Reshape": moving.IShuffleLayer,
    "Transpose": moving.IShuffleLayer,
    "Slice": moving.ISliceLayer,
    "Shape": moving.IShapeLayer,
    "Gather": moving.IGatherLayer,
    "GatherElements": moving.IGatherLayer,
    "GatherND": moving.IGatherLayer,
    "ScatterND": moving.IScatterLayer,
    "ScatterElements": moving.IScatterLayer,
    "NonZero": moving.INonZeroLayer,
    "QuantizeLinear": moving.IQuantizeLayer,
    "DequantizeLinear": moving.IDequantizeLayer,
    "ReverseSequence": moving.IReverseSequenceLayer,
    "Loop": ILoopOutputLayer,
    "Scan": ILoopOutputLayer,
    "If": IIfConditionalOutputLayer,
}
"""TensorRT's layer of a tactix layer; others, which TensorRT would make of several, are an
IIdentityLayer to programs that look."""

OPERATIONS: dict[str, tuple[type[ILayer], object]] = {
    **{k: (arithmetic.IActivationLayer, a) for a, k in arithmetic.PLAIN_ACTIVATIONS.items()},
    **{k: (arithmetic.IActivationLayer, a) for a, k in arithmetic.ALPHA_ACTIVATIONS.items()},
    **{k: (arithmetic.IElementWiseLayer, op) for op, k in arithmetic.BINARY.items()},
    **{k: (arithmetic.IUnaryLayer, op) for op, k in arithmetic.UNARY.items()},
    **{k: (arithmetic.IReduceLayer, op) for op, k in arithmetic.REDUCTIONS.items()},
}
"""Layers that one class of TensorRT's has by their operation."""

KINDS = {
    "MaxPool": PoolingType.MAX,
    "AveragePool": PoolingType.AVERAGE,
    "Clip": ActivationType.CLIP,
    "Selu": ActivationType.SELU,
    "Gelu": ActivationType.GELU_ERF,
    "HardSigmoid": ActivationType.HARD_SIGMOID,
    "Softplus": ActivationType.SOFTPLUS,
}


def fill(network: INetworkDefinition, net: NetworkDefinition) -> dict[ITensor, Value]:
    """Inputs, layers and outputs of what an importer read; gives tactix's tensor of each."""
    tensors: dict[Value, ITensor] = {}
    for value in (*net.inputs, *net.constants):
        tensors[value] = ITensor(network, value.name)
    network.inputs = [tensors[v] for v in net.inputs]
    for node in net.nodes:
        layer = _layer(network, node, tensors)
        tensors.update(zip(node.outputs, layer.outputs, strict=True))
        network.add(layer)
    found = {tensor: value for value, tensor in tensors.items()}
    for name, value in zip(net.output_names, net.outputs, strict=True):
        tensor = tensors[value]
        if tensor.layer is None or tensor.is_network_output:
            tensor = _copied(network, tensor, value)
        tensor.name, found[tensor] = name, value
        network.mark_output(tensor)
    return found


def roles(layers: Sequence[ILayer]) -> Roles:
    """Names of the model's weights that are kernels and biases of layers."""
    found: Roles = {}
    for layer in layers:
        node = layer.parsed_node if isinstance(layer, windows.Weighted) else None
        if node is None:
            continue
        stored = dict(zip((WeightsRole.KERNEL, WeightsRole.BIAS), node.inputs[1:3]))
        named = {r: v.name for r, v in stored.items() if v is not None and v.spec.const is not None}
        found[layer.name] = named
    return found


def _copied(network: INetworkDefinition, tensor: ITensor, value: Value) -> ITensor:
    """Another output of the same content as an input, a constant or an output, whose name stays."""
    layer = network.add(arithmetic.IIdentityLayer(network, f"copy of {tensor.name}", [tensor]))
    layer.values = [value]
    return layer.outputs[0]


def _layer(network: INetworkDefinition, node: Node, tensors: dict[Value, ITensor]) -> ILayer:
    kind = node.layer.name
    cls, operation = OPERATIONS.get(kind, (_class(node), None))
    inputs = [None if v is None else tensors[v] for v in node.inputs]
    layer = cls(network, node.name, inputs, len(node.outputs))
    layer.parsed_node, layer.values = node, list(node.outputs)
    for tensor, value in zip(layer.outputs, node.outputs, strict=True):
        tensor.name = value.name
    if (plugin := _plugin(node)) is not None:
        layer.attributes["plugin"] = plugin
    operation = KINDS.get(kind, operation)
    if operation is not None:
        layer.attributes["op" if hasattr(layer, "op") else "kind"] = operation
    layer.attributes.update(_attributes(node))
    return layer


def _class(node: Node) -> type[ILayer]:
    """TensorRT's layer of one of tactix's; of a plugin by the interface that it has."""
    plugin = _plugin(node)
    if plugin is None:
        return CLASSES.get(node.layer.name, arithmetic.IIdentityLayer)
    return plugins.IPluginV2Layer if isinstance(plugin, IPluginV2) else plugins.IPluginV3Layer


def _plugin(node: Node) -> object | None:
    """The program's plugin that a node is, if it is one."""
    from tactix_tensorrt.plugin_steps.layer import PluginAttrs

    return node.attrs.plugin.view.plugin if isinstance(node.attrs, PluginAttrs) else None


def _attributes(node: Node) -> dict[str, object]:
    """Attributes by TensorRT's names, of those that say the same in tactix."""
    same = {"strides": "stride_nd", "dilations": "dilation_nd", "kernel_shape": "window_size_nd"}
    found: dict[str, object] = {
        theirs: Dims(getattr(node.attrs, ours))
        for ours, theirs in same.items()
        if hasattr(node.attrs, ours)
    }
    if hasattr(node.attrs, "axis"):
        found["axis"] = node.attrs.axis
    return found
