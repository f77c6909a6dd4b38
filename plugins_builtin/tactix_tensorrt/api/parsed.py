"""What a parser read, as TensorRT's layers and tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tactix.base.dims import Dim
from tactix.base.errors import NetworkError
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
from tactix_tensorrt.api.values import FROM_NATIVE, Dims, native
from tactix_tensorrt.api.weights_names import Roles

if TYPE_CHECKING:
    from tactix.base.dtypes import DType
    from tactix.contracts.graph import Node, Value
    from tactix.network.definition import ModelTensor, NetworkDefinition
    from tactix_tensorrt.api.network import INetworkDefinition

Reader = Callable[[Mapping[str, Sequence[Dim | str | None]]], "NetworkDefinition"]

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


class ParsedModel:
    """The model that a network was parsed from, which is read again for other inputs.

    ``read``: tactix's network of it, with shapes that inputs have in place of its own. ``copies``:
    layers that compute nothing, for tensors of other names.
    """

    def __init__(self, network: INetworkDefinition, read: Reader) -> None:
        self._network, self._read = network, read
        self._inputs: dict[str, ITensor] = {}
        self._outputs: dict[str, ITensor] = {}
        self.copies: list[ILayer] = []
        self._settled: dict[str, ILayer] = {}
        self._known: dict[str, ITensor] = {}

    def fill(self, net: NetworkDefinition) -> dict[ITensor, Value]:
        """Inputs, layers and outputs of what an importer read; gives tactix's tensor of each.
        Raises NetworkError for an input or output of a type that TensorRT does not have.
        """
        _check_dtypes(net)
        network, found = self._network, self._found(net)
        self._inputs = {value.name: found[value] for value in net.inputs}
        network.inputs = list(self._inputs.values())
        for name, value in zip(net.output_names, net.outputs, strict=True):
            own = self._settled.get(name)
            tensor = found[value] if own is None else own.outputs[0]
            if tensor.layer is None or tensor.is_network_output:
                tensor = self._copied(tensor, ITensor(network, name))
            tensor.name = name
            self._outputs[name] = tensor
            network.mark_output(tensor)
        return {tensor: value for value, tensor in found.items()}

    def again(self) -> tuple[NetworkDefinition, dict[ITensor, Value]]:
        """As ``fill``, for the shapes, dtypes and names that inputs have now; tensors and layers
        that are still there stay the objects that they were. Raises TactixError for inputs that the
        model cannot have, and for a tensor in use that is gone.
        """
        network = self._network
        net = self._read({name: _asked(t) for name, t in self._inputs.items() if t.given_shape})
        added = [x for x in network.layers if not x.is_parsed and x not in self.copies]
        before = {x.parsed_node.name: x for x in network.layers if x.parsed_node is not None}
        self.copies, network.layers = [], []
        found = self._found(net, before)
        values = {tensor: value for value, tensor in found.items()}
        for name, value in zip(net.output_names, net.outputs, strict=True):
            tensor = self._outputs[name]
            settled = tensor.layer in self.copies
            if found[value] is not tensor and not settled:
                self._copied(found[value], tensor)
        network.layers += added
        for layer in added:
            layer.values = None
        self._check(values, [*added, *self.copies])
        values.update(self._entries(net))
        return net, values

    def _found(
        self, net: NetworkDefinition, before: Mapping[str, ILayer] | None = None
    ) -> dict[Value, ITensor]:
        """The tensors of a network, whose layers are added; those from ``before`` by name."""
        network, known = self._network, self._known
        tensors: dict[Value, ITensor] = {}
        for value in (*net.inputs, *net.constants):
            tensors[value] = known.setdefault(value.name, ITensor(network, value.name))
        names = _names(net)
        for node in net.nodes:
            layer = _layer(network, node, tensors, (before or {}).get(node.name), names)
            tensors.update(zip(node.outputs, layer.outputs, strict=True))
            network.add(layer)
        self._show_settled(net, tensors, names)
        return tensors

    def _show_settled(
        self, net: NetworkDefinition, tensors: Mapping[Value, ITensor], names: Mapping[Value, str]
    ) -> None:
        """Layers for the model's nodes that became none: identities, and constants that were
        computed, so that programs find the model's tensors by name.
        """
        for name, tensor in net.model_tensors.items():
            value = tensor.value
            source = tensors.get(value)
            computed = value.const is not None and value.name in net.origins
            own = names.get(value) == name
            if source is None or (own and value.producer is not None):
                continue
            layer = self._settled.get(name)
            if layer is None:
                layer = self._settled[name] = (
                    _constant(self._network, name, tensor, source)
                    if own and computed
                    else _identity(self._network, name, tensor, source)
                )
            layer.values = None
            if source is not layer.outputs[0]:
                layer.inputs = layer.inputs if layer.rewired else [source]
            self.copies.append(self._network.add(layer))

    def _copied(self, tensor: ITensor, out: ITensor) -> ITensor:
        """Another output of the same content as another tensor, whose name stays."""
        name = f"copy of {tensor.name}"
        layer = self._network.add(arithmetic.IIdentityLayer(self._network, name, [tensor]))
        layer.outputs = [out]
        out.layer, out.index = layer, 0
        self.copies.append(layer)
        return out

    def _check(self, values: Mapping[ITensor, Value], added: Sequence[ILayer]) -> None:
        """Raises NetworkError for a tensor in use that the model does not have any more."""
        network = self._network
        used = [*network.outputs, *network.debug, *(t for x in added for t in x.reads)]
        for tensor in used:
            if tensor not in values and tensor.layer not in (None, *added):
                what = f"{tensor.name!r} is not there once the model has the inputs' new shapes"
                raise NetworkError(what, do="Set shapes of inputs before its tensors are used")

    def _entries(self, net: NetworkDefinition) -> dict[ITensor, Value]:
        """The network's inputs, under the names and in the dtypes that they have now."""
        made: dict[ITensor, Value] = {}
        for name, value in zip(self._inputs, tuple(net.inputs), strict=True):
            tensor = self._inputs[name]
            dtype = value.spec.dtype if tensor.wanted_dtype is None else native(tensor.wanted_dtype)
            made[tensor] = _entry(net, value, tensor.name, dtype)
        return made


def _names(net: NetworkDefinition) -> dict[Value, str]:
    """What the model calls tensors that are no inputs or weights of it; the first of several."""
    found: dict[Value, str] = {}
    for name, tensor in net.model_tensors.items():
        if tensor.value.producer is not None or tensor.value.name in net.origins:
            found.setdefault(tensor.value, name)
    return found


def _identity(
    network: INetworkDefinition, name: str, tensor: ModelTensor, source: ITensor
) -> ILayer:
    """What stands for a node that gives a tensor which has another name."""
    layer = arithmetic.IIdentityLayer(network, tensor.node, [source])
    layer.outputs[0].name = name
    return layer


def _constant(
    network: INetworkDefinition, name: str, tensor: ModelTensor, source: ITensor
) -> ILayer:
    """What stands for a node whose result the importer computed."""
    layer = moving.IConstantLayer(network, tensor.node, [])
    array = tensor.value.const
    if array is not None:
        layer.attributes.update(weights=array.reshape(-1), shape=Dims(array.shape))
    source.name, source.layer, source.index = name, layer, 0
    layer.outputs = [source]
    return layer


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


def _check_dtypes(net: NetworkDefinition) -> None:
    named = [(v.name, v) for v in net.inputs]
    for name, value in (*named, *zip(net.output_names, net.outputs, strict=True)):
        if value.spec.dtype not in FROM_NATIVE:
            what = f"{name!r} is {value.spec.dtype.name}, a type that TensorRT does not have"
            raise NetworkError(what, do="Cast it in the ONNX file, such as to float32 or int32")


def _asked(tensor: ITensor) -> tuple[Dim | str | None, ...]:
    """An input's shape as importers take it."""
    sizes = enumerate(tensor.given_shape or ())
    return tuple(n if n >= 0 else tensor.get_dimension_name(i) for i, n in sizes)


def _entry(net: NetworkDefinition, value: Value, name: str, dtype: DType) -> Value:
    """An input in place of another, in front of a cast if it has another dtype."""
    if (value.name, value.spec.dtype) == (name, dtype):
        return value
    at = net.inputs.index(value)
    del net.inputs[at]
    net.free_name(value.name)
    made = net.add_input(name, dtype, value.spec.shape)
    net.inputs.insert(at, net.inputs.pop())
    if made.name != name:
        what = f"input name {name!r} is that of another tensor or layer of the model"
        raise NetworkError(what, do="Give the input another one")
    read = made
    if dtype is not value.spec.dtype:
        (read,) = net.add_layer("tactix.Cast", [made], f"{name} as input", to=value.spec.dtype)
    net.call(read, *value.called)
    net.redirect_uses(value, read)
    net.redirect_output(value, read)
    return made


def _layer(
    network: INetworkDefinition,
    node: Node,
    tensors: dict[Value, ITensor],
    before: ILayer | None,
    names: Mapping[Value, str],
) -> ILayer:
    """The layer of a node: the one that was there before if it is alike."""
    kind = node.layer.name
    cls, operation = OPERATIONS.get(kind, (_class(node), None))
    inputs = [None if v is None else tensors[v] for v in node.inputs]
    plugin = _plugin(node)
    if type(before) is cls and len(before.outputs) == len(node.outputs):
        layer: ILayer = before
        layer.inputs = layer.inputs if layer.rewired else inputs
    else:
        layer = cls(network, node.name, inputs, len(node.outputs))
        for tensor, value in zip(layer.outputs, node.outputs, strict=True):
            tensor.name = names.get(value, value.name)
        operation = KINDS.get(kind, operation)
        if operation is not None:
            layer.attributes["op" if hasattr(layer, "op") else "kind"] = operation
        layer.attributes.update(_attributes(node))
    layer.parsed_node, layer.values = node, list(node.outputs)
    if plugin is not None:
        layer.attributes["plugin"] = plugin
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
