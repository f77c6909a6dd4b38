"""Parts of an ONNX model as models: nodes that are kept, with what they read as inputs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tactix.base.dims import sym
from tactix.base.dtypes import DType
from tactix.plan.schema import TensorIO

FEW = 1024
"""Elements of a cut tensor of integers or booleans that is frozen where its content is known: it
holds shapes, axes, masks of shapes.
"""


FREE_WEIGHTS = 4
"""The first version of the format in which weights need not be inputs, too."""

MOST_UNKNOWN = 32
"""Operators whose results are guessed."""

GUESS = int(onnx.TensorProto.FLOAT)
"""What an output is taken for of which nothing tells the type."""


@dataclass(frozen=True)
class CutTensor:
    """What is known of a tensor that a part may have to be given: its type, and its content if it
    is frozen.
    """

    type: onnx.TypeProto | None = None
    value: Any = None


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """Names of what a node reads, its graphs' free names among them."""
    yield from (x for x in node.input if x)
    for graph in graphs_of(node):
        own = {v.name for v in (*graph.input, *graph.initializer)}
        own |= {x for n in graph.node for x in n.output}
        inner = (x for n in graph.node for x in reads(n))
        yield from (x for x in (*inner, *(o.name for o in graph.output)) if x not in own)


def graphs_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Branches and bodies of a node."""
    for a in node.attribute:
        if a.type == onnx.AttributeProto.GRAPH:
            yield a.g
        yield from a.graphs


@dataclass
class WholeModel:
    """A model of which parts are taken. Constant nodes count as weights, not as nodes.

    ``cuts``: what is known of the tensors between the nodes.
    """

    model: onnx.ModelProto
    cuts: Mapping[str, CutTensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.model.graph
        self.nodes = [n for n in graph.node if _constant(n) is None]
        self._weights = {t.name: t for t in graph.initializer}
        self._weights |= {t.name: t for n in graph.node if (t := _constant(n)) is not None}
        self._sparse = {t.values.name for t in graph.sparse_initializer}
        self._inputs = {v.name: v for v in graph.input}
        self._outputs = {v.name: v for v in graph.output}
        told: Iterable[onnx.ValueInfoProto] = (*graph.value_info, *graph.output)
        self._infos = {v.name: v for v in told}
        self._is_checked = self._is_valid(self.model)

    @property
    def tensors(self) -> list[str]:
        """What nodes make."""
        return [x for n in self.nodes for x in n.output if x]

    def part(self, kept: Sequence[int]) -> onnx.ModelProto | None:
        """The model of the nodes at these places; None where the type of something that it would
        read is not known, or it is no valid model.
        """
        nodes = [self.nodes[i] for i in kept]
        made = {x for n in nodes for x in n.output}
        read = dict.fromkeys(x for n in nodes for x in reads(n))
        given = [x for x in read if x not in made]
        inputs, weights = list[onnx.ValueInfoProto](), list[onnx.TensorProto]()
        for name in given:
            if name in self._weights:
                weights.append(self._weights[name])
                if self.model.ir_version < FREE_WEIGHTS and name in self._inputs:
                    inputs.append(self._inputs[name])
            elif not self._give(name, inputs, weights):
                return None
        outputs = [self._output(x) for n in nodes for x in n.output if x and self._leaves(x, read)]
        graph = helper.make_graph(nodes, self.model.graph.name, inputs, outputs, weights)
        return self._checked(graph)

    def _give(
        self,
        name: str,
        inputs: list[onnx.ValueInfoProto],
        weights: list[onnx.TensorProto],
    ) -> bool:
        """Whether a tensor from outside can be an input or a frozen one."""
        if name in self._sparse:
            return False
        if name in self._inputs:
            inputs.append(self._inputs[name])
            return True
        cut = self.cuts.get(name, CutTensor())
        if cut.value is not None:
            weights.append(numpy_helper.from_array(np.asarray(cut.value), name))
        elif cut.type is not None:
            inputs.append(helper.make_value_info(name, cut.type))
        return cut.value is not None or cut.type is not None

    def _leaves(self, name: str, read: Mapping[str, None]) -> bool:
        """Whether it is an output of the part: one of the model, or what nothing in it reads."""
        return name in self._outputs or name not in read

    def _output(self, name: str) -> onnx.ValueInfoProto:
        if name in self._infos:
            return self._infos[name]
        known = self.cuts.get(name, CutTensor()).type
        guess = helper.make_tensor_type_proto(GUESS, None)
        return onnx.ValueInfoProto(name=name, type=known or guess)

    def _checked(self, graph: onnx.GraphProto) -> onnx.ModelProto | None:
        """The model of a graph; None for one that breaks a rule which the whole keeps."""
        out = helper.make_model(
            graph,
            ir_version=self.model.ir_version,
            producer_name=self.model.producer_name,
            opset_imports=self.model.opset_import,
            functions=self._called(graph.node),
        )
        return out if not self._is_checked or self._is_valid(out) else None

    @staticmethod
    def _is_valid(model: onnx.ModelProto) -> bool:
        """By onnx's checker, which wants a shape of every output."""
        light = without_weights(model)
        for v in light.graph.output:
            if v.type.HasField("tensor_type") and not v.type.tensor_type.HasField("shape"):
                v.type.tensor_type.shape.CopyFrom(onnx.TensorShapeProto())
        try:
            onnx.checker.check_model(light)
        except onnx.checker.ValidationError:
            return False
        return True

    def _called(self, nodes: Iterable[onnx.NodeProto]) -> list[onnx.FunctionProto]:
        """The functions that nodes call, and those that these call."""
        known = {(f.domain, f.name): f for f in self.model.functions}
        found: dict[tuple[str, str], onnx.FunctionProto] = {}
        waiting = list(nodes)
        while waiting:
            n = waiting.pop()
            key = (n.domain, n.op_type)
            if key in known and key not in found:
                found[key] = known[key]
                waiting += known[key].node
            waiting += [m for g in graphs_of(n) for m in g.node]
        return list(found.values())


def _constant(node: onnx.NodeProto) -> onnx.TensorProto | None:
    """The tensor of a Constant node."""
    if node.op_type != "Constant" or node.domain:
        return None
    tensor = next((a.t for a in node.attribute if a.name == "value"), None)
    if tensor is None:
        return None
    out = onnx.TensorProto()
    out.CopyFrom(tensor)
    out.name = node.output[0]
    return out


def without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with inputs in place of its weights, but for small ones, which may be shapes."""
    out, graph = onnx.ModelProto(), model.graph
    out.ir_version = max(model.ir_version, FREE_WEIGHTS)
    out.opset_import.extend(model.opset_import)
    out.functions.extend(model.functions)
    small = [t for t in graph.initializer if math.prod(t.dims) <= FEW and not t.external_data]
    held = {t.name for t in small} | {v.name for v in graph.input}
    declared = (
        helper.make_tensor_value_info(t.name, t.data_type, list(t.dims))
        for t in graph.initializer
        if t.name not in held
    )
    out.graph.name = graph.name or "part"
    out.graph.node.extend(graph.node)
    out.graph.initializer.extend(small)
    out.graph.input.extend((*graph.input, *declared))
    out.graph.value_info.extend(graph.value_info)
    out.graph.output.extend(graph.output)
    return out


def cuts_of(model: onnx.ModelProto, values: Iterable[tuple[str, Any]] = ()) -> dict[str, CutTensor]:
    """What is known of tensors: types that onnx infers, completed by arrays that were computed.

    An operator that onnx does not know is taken to give what its first input is like.
    """
    light = without_weights(model)
    known = _types(light)
    for _ in range(MOST_UNKNOWN):
        guessed = _guess(light, known)
        if guessed is None:
            break
        light.graph.value_info.append(guessed)
        known = _types(light)
    out = {name: CutTensor(t) for name, t in known.items()}
    for name, value in values:
        frozen = value if _is_frozen(value) else None
        out[name] = CutTensor(out[name].type if name in out else _type(value), frozen)
    return out


def _types(model: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
    graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    told = (*graph.input, *graph.value_info, *graph.output)
    return {v.name: v.type for v in told if _is_whole(v.type)}


def _guess(
    model: onnx.ModelProto, known: Mapping[str, onnx.TypeProto]
) -> onnx.ValueInfoProto | None:
    """The output of the first operator without a schema of which nothing tells the type."""
    for n in model.graph.node:
        strange = not onnx.defs.has(n.op_type, n.domain)
        if strange and n.input and n.output[0] not in known and n.input[0] in known:
            return helper.make_value_info(n.output[0], known[n.input[0]])
    return None


def _is_whole(t: onnx.TypeProto) -> bool:
    """Whether a type has an element type and a rank."""
    tensor = t.tensor_type
    return bool(tensor.elem_type) and tensor.HasField("shape") and not _unnamed(tensor.shape)


def _unnamed(shape: onnx.TensorShapeProto) -> bool:
    return any(not d.HasField("dim_value") and not d.dim_param for d in shape.dim)


def _is_frozen(value: Any) -> bool:
    is_array = isinstance(value, np.ndarray)
    return is_array and value.dtype.kind in "iub" and value.size <= FEW


def _type(value: Any) -> onnx.TypeProto | None:
    if not isinstance(value, np.ndarray):
        return None
    number = helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_type_proto(number, value.shape)


def inputs_of(path: str) -> list[TensorIO] | None:
    """Inputs of a model file that are no weights; None where one is no tensor of a known rank, or
    the file is no model.
    """
    try:
        graph = onnx.load(path, load_external_data=False).graph
    except Exception:  # protobuf raises its own
        return None
    weights = {t.name for t in graph.initializer}
    given = [v for v in graph.input if v.name not in weights]
    if not all(v.type.tensor_type.HasField("shape") for v in given):
        return None
    return [_io(v, i) for i, v in enumerate(given)]


def _io(v: onnx.ValueInfoProto, buffer: int) -> TensorIO:
    t = v.type.tensor_type
    dtype = DType.of(np.dtype(helper.tensor_dtype_to_np_dtype(t.elem_type)))
    shape = [
        d.dim_value if d.HasField("dim_value") else sym(d.dim_param or f"{v.name}_{i}")
        for i, d in enumerate(t.shape.dim)
    ]
    return TensorIO(v.name, buffer, dtype, tuple(shape))
