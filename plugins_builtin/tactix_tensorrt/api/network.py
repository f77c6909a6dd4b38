"""INetworkDefinition: the layers that a program adds, or that a parser read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from tactix.base.dims import Expr, Shape
from tactix.base.errors import NetworkError
from tactix.base.spelling import did_you_mean
from tactix_tensorrt import device
from tactix_tensorrt.api import assertions, formats, parsed
from tactix_tensorrt.api.additions import Additions
from tactix_tensorrt.api.enums import DataType, NetworkDefinitionCreationFlag, TensorFormat
from tactix_tensorrt.api.layer import ILayer
from tactix_tensorrt.api.layers import moving
from tactix_tensorrt.api.logger import Reporting
from tactix_tensorrt.api.scope import Scope
from tactix_tensorrt.api.tensor import ITensor
from tactix_tensorrt.api.values import NATIVE, Dims, Weights
from tactix_tensorrt.api.weights_names import Roles, WeightsNames, named, users
from tactix_tensorrt.levels import at_this_level

if TYPE_CHECKING:
    from tactix.base.tensor import TensorSpec
    from tactix.contracts.graph import Node, Value
    from tactix.network.definition import NetworkDefinition
    from tactix_tensorrt.api.builder import Builder
    from tactix_tensorrt.api.config import IBuilderConfig
    from tactix_tensorrt.api.layers.bounds import Construct
    from tactix_tensorrt.api.values import Array

Layer = TypeVar("Layer", bound=ILayer)

CALLED = {
    "SoftMax": "Softmax",
    "MatrixMultiply": "Matrix Multiply",
    "RaggedSoftMax": "Ragged SoftMax",
    "PLUGIN_V2": "PluginV2DynamicExt",
    "PLUGIN_V3": "PluginV3_V3ONE",
}
"""Kinds in the names of layers that have none of their own, where TensorRT's are not the classes'.
"""


class Whole(Scope):
    """The network itself. ``values``: of inputs, and of what a parser read; ``nodes``: those that
    were added for a layer.
    """

    def __init__(self, network: INetworkDefinition) -> None:
        super().__init__()
        self._network = network
        self.values: dict[ITensor, Value] = {}
        self.nodes: dict[ILayer, list[Node]] = {}

    @property
    def native(self) -> NetworkDefinition:
        return self._network.native

    def taken(self, tensor: ITensor) -> Value | None:
        if tensor not in self.values and tensor.layer is None:
            self.values[tensor] = self._network.input_value(tensor)
        return self.values.get(tensor)

    def made(self, layer: ILayer) -> Sequence[Value] | None:
        return layer.values

    def keep(self, layer: ILayer, values: list[Value], nodes: list[Node]) -> None:
        layer.values, self.nodes[layer] = values, nodes


@at_this_level
class INetworkDefinition(Additions, Reporting):
    """Made by ``Builder.create_network``. ``flags``: a mask of NetworkDefinitionCreationFlag.

    ``inputs``, ``outputs``, ``layers``: in the order of adding. Layers become tactix's when a
    shape is asked for, or an engine built, so that attributes may change until then.
    ``asserted``: messages by those outputs of tactix's network that have to hold.
    """

    name = "Unnamed Network 0"
    tells_unfused = False

    def __init__(self, builder: Builder, flags: int) -> None:
        super().__init__(builder.logger)
        self.builder, self.flags = builder, flags
        self.inputs: list[ITensor] = []
        self.outputs: list[ITensor] = []
        self.for_shapes: list[ITensor] = []
        self.debug: list[ITensor] = []
        self.layers: list[ILayer] = []
        self._net: NetworkDefinition | None = None
        self._model: parsed.ParsedModel | None = None
        self._stale = False
        self.constructs: list[Construct] = []
        self.weights_names = WeightsNames()
        self.asserted: dict[str, str] = {}
        self.refittable: set[str] = set()
        self.roles: Roles = {}
        self._whole = Whole(self)

    # -- what it is -------------------------------------------------------------------------------

    def get_flag(self, flag: NetworkDefinitionCreationFlag) -> bool:
        return bool(self.flags & flag.mask)

    @property
    def is_strongly_typed(self) -> bool:
        flag = NetworkDefinitionCreationFlag.__members__.get("STRONGLY_TYPED")
        return flag is not None and self.get_flag(flag)  # TensorRT 8 has no such flag

    @property
    def has_implicit_batch_dimension(self) -> bool:
        return False

    @property
    def num_inputs(self) -> int:
        return len(self.inputs)

    @property
    def num_outputs(self) -> int:
        return len(self.outputs)

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, index: int) -> ILayer:
        return self.layers[index]

    def __bool__(self) -> bool:
        return True

    def get_input(self, index: int) -> ITensor | None:
        return self.inputs[index] if index in range(len(self.inputs)) else None

    def get_output(self, index: int) -> ITensor | None:
        return self.outputs[index] if index in range(len(self.outputs)) else None

    def get_layer(self, index: int) -> ILayer | None:
        return self.layers[index] if index in range(len(self.layers)) else None

    # -- inputs and outputs -----------------------------------------------------------------------

    def add_input(self, name: str, dtype: DataType, shape: Sequence[int]) -> ITensor | None:
        """None for a name that is taken."""
        if any(t.name == name for t in self.inputs):
            self.fail(f"input name {name!r} is taken: Give each input its own")
            return None
        tensor = ITensor(self, name)
        tensor.wanted_dtype, tensor.given_shape = dtype, Dims(shape)
        self.inputs.append(tensor)
        return tensor

    def mark_output(self, tensor: ITensor) -> None:
        if not any(t is tensor for t in self.outputs):
            self.outputs.append(tensor)

    def unmark_output(self, tensor: ITensor) -> None:
        self.outputs = [t for t in self.outputs if t is not tensor]

    def mark_output_for_shapes(self, tensor: ITensor) -> bool:
        """Let ``infer_shapes`` of contexts on the processor tell what it holds, too; False for what
        is an output already.
        """
        if tensor.is_network_output:
            return False
        self.mark_output(tensor)
        self.for_shapes.append(tensor)
        return True

    def unmark_output_for_shapes(self, tensor: ITensor) -> bool:
        """False for what is not marked so."""
        marked = any(t is tensor for t in self.for_shapes)
        self.for_shapes = [t for t in self.for_shapes if t is not tensor]
        if marked:
            self.unmark_output(tensor)
        return marked

    def remove_tensor(self, tensor: ITensor) -> None:
        """An input that nothing reads."""
        self.inputs = [t for t in self.inputs if t is not tensor]

    def mark_debug(self, tensor: ITensor) -> bool:
        """Let contexts tell a listener of it; False if they do so already."""
        if self.is_debug_tensor(tensor):
            return False
        self.debug.append(tensor)
        return True

    def unmark_debug(self, tensor: ITensor) -> bool:
        """False for what is no debug tensor."""
        found = self.is_debug_tensor(tensor)
        self.debug = [t for t in self.debug if t is not tensor]
        return found

    def is_debug_tensor(self, tensor: ITensor) -> bool:
        return any(t is tensor for t in self.debug)

    def mark_unfused_tensors_as_debug_tensors(self) -> bool:
        """Let contexts tell a listener of all tensors that fusions leave: a build then takes twice
        as long.
        """
        self.tells_unfused = True
        return True

    def unmark_unfused_tensors_as_debug_tensors(self) -> bool:
        self.tells_unfused = False
        return True

    def reshape_input(self, tensor: ITensor, shape: Dims) -> None:
        """Other sizes of an input."""
        if tensor not in self.inputs:
            self.fail(f"the shape of {tensor.name!r} follows from its layer")
            return
        tensor.given_shape = shape
        self.changed_input()

    def retype(self, tensor: ITensor, dtype: DataType) -> None:
        """Another dtype of an input or output; a model's input is cast to its own."""
        tensor.wanted_dtype = dtype
        if tensor.is_network_input:
            self.changed_input()

    def changed_input(self) -> None:
        """Make all anew when it is next asked for: a model is read again."""
        self._stale = self.is_parsed
        self._forget()

    def _forget(self) -> None:
        """All that was made, unless a parser made it."""
        if self._net is None or self.is_parsed:
            return
        self._net, self._whole, self.roles = None, Whole(self), {}
        for layer in self.layers:
            layer.values = None

    # -- layers -----------------------------------------------------------------------------------

    def add(self, layer: Layer) -> Layer:
        """Append a layer."""
        self.layers.append(layer)
        return layer

    def next_name(self, kind: str) -> str:
        """What TensorRT calls a layer that has no name."""
        return f"(Unnamed Layer* {len(self.layers)}) [{CALLED.get(kind, kind)}]"

    def outdated(self, layer: ILayer) -> None:
        """Forget what was made of a layer, and of all that read it; loops and branches, where a
        layer becomes several, are made anew with all that is there, as are weights with names.
        """
        if self.constructs or self.weights_names:
            self._forget()
            return
        stale = [layer]
        while stale:
            gone = stale.pop()
            if gone.values is None:
                continue
            gone.values = None
            for node in self._whole.nodes.pop(gone, ()):
                self.native.discard(node)
                self.native.free_name(node.name)
            read = set(gone.outputs)
            stale += [x for x in self.layers if read & {t for t in x.inputs if t is not None}]

    def set_weights_name(self, weights: Weights | Array, name: str | None) -> bool:
        """What refitters call weights of a layer that was added; None takes the name away. False
        for weights that no layer has, or several have, and for a name that is taken.
        """
        found = users(self.layers, weights)
        if len(found) != 1:
            why = f"{len(found)} layers have these weights"
            self.fail(f"set_weights_name {name!r}: {why}: Give what one layer has, after adding it")
            return False
        if name and self.weights_names.taken(name, weights):
            self.fail(f"set_weights_name: {name!r} is the name of others: Give each its own")
            return False
        self.weights_names.set(weights, name)
        self._forget()
        return True

    def mark_weights_refittable(self, name: str) -> bool:
        """Let refits of an engine that is built with REFIT_INDIVIDUAL change these weights; False
        for a name that no weights have.
        """
        known = named(self.layers) | self.weights_names.names()
        known |= {value.name for value in self.native.constants} if self.is_parsed else set()
        if name not in known:
            do = did_you_mean(name, sorted(known), "Give the name of weights of the network")
            self.fail(f"mark_weights_refittable: no weights are named {name!r}: {do}")
            return False
        self.refittable.add(name)
        return True

    def unmark_weights_refittable(self, name: str) -> bool:
        """False for what is not marked."""
        marked = self.are_weights_marked_refittable(name)
        self.refittable.discard(name)
        return marked

    def are_weights_marked_refittable(self, name: str) -> bool:
        return name in self.refittable

    # -- towards tactix ---------------------------------------------------------------------------

    @property
    def native(self) -> NetworkDefinition:
        """tactix's network, of all that was lowered so far. Raises TactixError."""
        self._renew()
        if self._net is None:
            self._net = self.builder.native.create_network(self.name)
        return self._net

    @property
    def is_parsed(self) -> bool:
        """Whether a parser filled it."""
        return self._model is not None

    def adopt(self, net: NetworkDefinition, read: parsed.Reader) -> None:
        """Take what an importer read. ``read``: reads it again. Raises NetworkError beside layers
        that are there.
        """
        if self.layers or self.inputs:
            raise NetworkError("the network has layers", do="Parse into a network of its own")
        model = parsed.ParsedModel(self, read)
        self._net, self._whole.values = net, model.fill(net)
        self._model = model
        self.roles = parsed.roles(self.layers)

    def _renew(self) -> None:
        """Read the model again if an input is another. Raises TactixError."""
        if self._model is None or not self._stale:
            return
        net, values = self._model.again()
        self._net, self._whole, self._stale = net, Whole(self), False
        self._whole.values = values
        for layer in self.layers:
            if layer.rewired:
                layer.rewire()
        self.roles = parsed.roles(self.layers)

    def value_of(self, tensor: ITensor) -> Value:
        """tactix's tensor. Raises TactixError for layers that make no sense."""
        self._renew()
        return self._whole.value_of(tensor)

    def input_value(self, tensor: ITensor) -> Value:
        """tactix's input for one of the network's."""
        shape = [
            n if n >= 0 else tensor.get_dimension_name(i)
            for i, n in enumerate(tensor.given_shape or ())
        ]
        return self.native.add_input(
            tensor.name, NATIVE[tensor.wanted_dtype or DataType.FLOAT], shape
        )

    def lowered(self) -> NetworkDefinition:
        """tactix's network with the outputs that are marked. Raises NetworkError without any,
        TactixError.
        """
        if not self.outputs:
            raise NetworkError("Network must have at least one output", do="Call mark_output")
        for tensor in self.inputs:
            self.value_of(tensor)
        self._check_names()
        self.formats()
        for construct in self.constructs:
            construct.check([*self.outputs, *self.debug])
        values = [self._output_value(t) for t in self.outputs]
        for name in self.native.output_names:
            self.native.unmark_output(name)
        for tensor, value in zip(self.outputs, values, strict=True):
            self.native.mark_output(value, tensor.name)
        for tensor in self.hidden:
            self.native.mark_output(self.value_of(tensor), tensor.name)
        self.asserted = {}
        self._demand_assertions()
        return self.native

    def tensors(self) -> dict[ITensor, Value]:
        """tactix's tensor of each that was lowered."""
        made = (pair for x in self.layers for pair in zip(x.outputs, x.values or ()))
        return {**self._whole.values, **dict(made)}

    def held_shapes(self) -> dict[str, Shape]:
        """What outputs for shapes hold, as far as shapes of inputs tell it. Raises TactixError."""
        specs = {t.name: self.value_of(t).spec for t in self.for_shapes}
        return {name: held for name, spec in specs.items() if (held := _held(spec)) is not None}

    def _check_names(self) -> None:
        """Raises NetworkError for a name that an input and an output have."""
        names = {t.name for t in self.inputs}
        for tensor in self.outputs:
            if tensor.name in names and not tensor.is_network_input:
                what = f"an input and an output are named {tensor.name!r}"
                raise NetworkError(what, do="Give each its own name")

    def _demand_assertions(self) -> None:
        for layer in self.layers:
            if isinstance(layer, moving.IAssertionLayer):
                self._demand(layer)

    def _demand(self, layer: moving.IAssertionLayer) -> None:
        """Let runs check an assertion: what shapes decide of it before, and what data decides after
        it, where a run is over when its call returns. Raises NetworkError for one that never holds.
        """
        condition = self.value_of(layer.reads[0])
        try:
            for assumption in assertions.assumed(condition, layer.message):
                self.native.demand(assumption, layer.name)
        except assertions.DecidedByData:
            if device.chosen() != "cpu":
                told = f"{layer.name}: data decides {layer.message!r}, which is not checked"
                self.warn(f"{told}. Check it before the run")
                return
            name = f"{layer.name} holds"
            self.native.mark_output(condition, name)
            self.asserted[name] = layer.message

    @property
    def hidden(self) -> list[ITensor]:
        """Debug tensors that are no inputs or outputs."""
        shown = {*self.inputs, *self.outputs}
        return [t for t in self.debug if t not in shown]

    def _output_value(self, tensor: ITensor) -> Value:
        value = self.value_of(tensor)
        dtype = tensor.wanted_dtype
        if dtype is None or tensor.is_network_input or value.spec.dtype is NATIVE[dtype]:
            return value
        name = f"{tensor.name} as output"
        return self.native.add_layer("tactix.Cast", [value], name, to=NATIVE[dtype])[0]

    def formats(self) -> dict[str, TensorFormat]:
        """Of inputs and outputs that may not be linear. Raises NetworkError for what no engine of
        the device has: results would be taken for others.
        """
        found = {t.name: self._format(t) for t in (*self.inputs, *self.outputs)}
        return {name: f for name, f in found.items() if f is not TensorFormat.LINEAR}

    def _format(self, tensor: ITensor) -> TensorFormat:
        allowed, rank = tensor.allowed_formats, self.value_of(tensor).spec.rank
        found = formats.chosen(allowed, rank)
        if found is None or (found is not TensorFormat.LINEAR and device.chosen() != "cpu"):
            wanted = ", ".join(str(f) for f in TensorFormat if allowed & f.mask) or "no format"
            what = f"no engine for this device has {tensor.name!r} in {wanted}"
            do = "Allow TensorFormat.LINEAR, and transpose outside of the engine"
            raise NetworkError(what, do=do)
        return found

    def open_inputs(self) -> list[str]:
        """Names of inputs with a size that profiles give."""
        return [t.name for t in self.inputs if _is_open(self.value_of(t))]

    def precise_layers(self, config: IBuilderConfig) -> list[ILayer]:
        """Layers whose precision counts under the configuration's flags."""
        asked = {"OBEY_PRECISION_CONSTRAINTS", "PREFER_PRECISION_CONSTRAINTS"}
        if not asked & set(config.names()):
            return []
        none = [] if self._model is None else self._model.copies
        return [layer for layer in self.layers if layer.has_precision and layer not in none]


def _held(spec: TensorSpec) -> Shape | None:
    """The integers in a tensor, None where data tells them."""
    if spec.const is not None:
        return tuple(int(n) for n in spec.const.ravel())
    return None if spec.value is None else tuple(spec.value)


def _is_open(value: Value) -> bool:
    return any(isinstance(d, Expr) for d in value.spec.shape)
