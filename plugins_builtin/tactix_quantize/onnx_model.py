"""ONNX models made ready for quantisation, and written with QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
from onnx import external_data_helper, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tactix.base.arrays import Array
from tactix.base.errors import ModelImportError, UnsupportedOperator
from tactix.base.files import replacing
from tactix.contracts.graph import Node, Value
from tactix_quantize.numbers import NarrowNumbers, NarrowScale, NarrowWeights
from tactix_quantize.points import Points, WeightedProduct

OPSET = 13
"""The first whose QuantizeLinear has an axis."""
LARGEST = 2**31 - 1
"""Bytes of a protobuf message."""
EXPORT = "Export or download it again"
KINDS = {
    "Convolution": "Conv",
    "Gemm": "Gemm",
    "MatMul": "MatMul",
    "Add": "Add",
    "MaxPool": "MaxPool",
}


def load(path: str, beside: bool = False, opset: int = OPSET) -> onnx.ModelProto:
    """A model of that opset or a newer one, whose nodes have names of their own, whose functions
    stand where they are called, and whose convolutions hold the normalisations behind them.
    ``beside``: weights of other files stay there, as long as the opset needs no conversion. Raises
    ModelImportError.
    """
    try:
        if not os.path.getsize(path):
            raise ModelImportError("that is empty", who=path, do=EXPORT)
        model = onnx.load(path, load_external_data=not beside)
        _check_age(model, path)
        if model.functions:
            model = onnx.inliner.inline_local_functions(model)
        if beside and _opset(model) < opset:
            model = onnx.load(path)
        model = _with_opset(model, path, opset)
    except ModelImportError:
        raise
    except Exception as e:  # protobuf, files and converters raise what they like
        why = f"{type(e).__name__}: {e}"
        raise ModelImportError("the model cannot be read", who=path, why=why, do=EXPORT) from e
    _name_nodes(model.graph)
    _store_constants(model.graph)
    folder = os.path.dirname(os.path.abspath(path))
    store_weights(model, folder)
    fold_norms(model.graph, folder)
    fold_factors(model.graph, folder)
    return model


def save(model: onnx.ModelProto, path: str | Path) -> None:
    """Write the model; one that no message holds has its weights in a file beside it."""
    path = Path(path)
    if model.ByteSize() < LARGEST:
        with replacing(path) as f:
            f.write(model.SerializeToString())
        return
    onnx.save(model, path, save_as_external_data=True, location=f"{path.name}.data")


def as_bytes(model: onnx.ModelProto, who: str) -> bytes:
    """Raises UnsupportedOperator for a model that no message holds."""
    if model.ByteSize() >= LARGEST:
        why = "its weights are more than 2 GiB"
        raise UnsupportedOperator("the model cannot be quantised in one piece", who=who, why=why)
    return bytes(model.SerializeToString())


def _check_age(model: onnx.ModelProto, path: str) -> None:
    """Raises ModelImportError for a model that is newer than the onnx that is installed."""
    opsets = [o.version for o in model.opset_import if o.domain in ("", "ai.onnx")]
    newest = {"IR version": onnx.IR_VERSION, "opset": onnx.defs.onnx_opset_version()}
    found = {"IR version": model.ir_version, "opset": max(opsets, default=0)}
    for what, known in newest.items():
        if found[what] > known:
            why = f"onnx {onnx.__version__} knows {known} and older ones"
            do = "Install a newer onnx, or export the model for an older one"
            raise ModelImportError(
                f"the model is of {what} {found[what]}", who=path, why=why, do=do
            )


def _with_opset(model: onnx.ModelProto, path: str, opset: int) -> onnx.ModelProto:
    """The model in that opset or a newer one, and an IR version that has its types. Raises
    ModelImportError for an old model that cannot be brought there.
    """
    made = model if _opset(model) >= opset else _converted(model, path, opset)
    least = helper.find_min_ir_version_for(made.opset_import, ignore_unknown=True)
    made.ir_version = max(made.ir_version, least)
    return made


def _converted(model: onnx.ModelProto, path: str, opset: int) -> onnx.ModelProto:
    try:
        return onnx.version_converter.convert_version(model, opset)
    except (RuntimeError, onnx.version_converter.ConvertError) as e:
        what = f"the model is of opset {_opset(model)}, and cannot be brought to {opset}"
        do = "Export it with a newer opset"
        raise ModelImportError(what, who=path, why=str(e), do=do) from e


def _opset(model: onnx.ModelProto) -> int:
    """Of the standard operators; the least that is needed where there are none."""
    versions = [o.version for o in model.opset_import if o.domain in ("", "ai.onnx")]
    return versions[0] if versions else OPSET


def _name_nodes(graph: onnx.GraphProto) -> None:
    taken: Counter[str] = Counter(n.name for n in graph.node)
    for i, node in enumerate(graph.node):
        if not node.name or taken[node.name] > 1:
            taken[node.name] -= 1
            node.name = f"{node.name or node.op_type}_{i}"
            while taken[node.name]:
                node.name += "_"
            taken[node.name] += 1


def _store_constants(graph: onnx.GraphProto) -> None:
    """Constant nodes with tensors become initializers."""
    for node in list(graph.node):
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            node.attribute[0].t.name = node.output[0]
            graph.initializer.append(node.attribute[0].t)
            graph.node.remove(node)


PRODUCTS = ("Conv", "Gemm", "MatMul")
"""Operators that become 8 bits."""
COMPUTED = frozenset({
    "Add", "Cast", "Concat", "Constant", "Div", "Expand", "Flatten", "Gather", "Identity", "Mul",
    "Neg", "Pow", "Reshape", "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Transpose", "Unsqueeze",
})  # fmt: skip
"""Operators that models compute weights by."""


def store_weights(model: onnx.ModelProto, folder: str = "") -> None:
    """Weights and biases of products that are computed from constants alone become initializers.
    ``folder``: of weights beside the model.
    """
    graph, stored = model.graph, Initializers(model.graph, folder)
    known, computed = {t.name for t in graph.initializer}, []
    for node in graph.node:
        plain = node.op_type in COMPUTED and node.domain in ("", "ai.onnx")
        if plain and known.issuperset(node.input):
            known.update(node.output)
            computed.append(node)
    read = {name for n in graph.node if n.op_type in PRODUCTS for name in n.input[1:] if name}
    wanted = sorted(name for name in read & known if name not in stored)
    if not wanted:
        return
    needed = set(wanted)
    nodes: list[onnx.NodeProto] = []
    for node in reversed(computed):
        if needed.intersection(node.output):
            needed.update(node.input)
            nodes.insert(0, node)
    given = {name: stored.array(name) for name in sorted(needed) if name in stored}
    for name, array in zip(wanted, _run(nodes, given, wanted, model), strict=True):
        stored.keep(array, name)
    _drop(graph, nodes, set(wanted))


def _run(
    nodes: Sequence[onnx.NodeProto],
    given: Mapping[str, Array],
    wanted: Sequence[str],
    model: onnx.ModelProto,
) -> list[Array]:
    """What some nodes of a model make."""
    inputs, outputs = (
        [onnx.ValueInfoProto(name=name) for name in names] for names in (given, wanted)
    )
    graph = helper.make_graph(nodes, "weights", inputs, outputs)
    alone = helper.make_model(graph, opset_imports=model.opset_import)
    return [np.asarray(a) for a in ReferenceEvaluator(alone).run(None, dict(given))]


def _drop(graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto], stored: set[str]) -> None:
    """Remove nodes, the last first, of which nothing is read but what is stored now."""
    readers = _readers(graph)
    for node in reversed(nodes):
        if all(name in stored or not readers[name] for name in node.output):
            graph.node.remove(node)
            readers.subtract(node.input)


class Initializers:
    """Arrays of a graph by name; new ones get names of their own. ``folder``: of those that lie in
    other files, which are read each time that they are asked for.
    """

    def __init__(self, graph: onnx.GraphProto, folder: str = "") -> None:
        self._graph, self._folder = graph, folder
        self._known = {t.name: t for t in graph.initializer}
        self._taken = {*self._known, *(name for n in graph.node for name in n.output)}
        self._taken |= {v.name for v in graph.input}

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def array(self, name: str) -> Array:
        stored = self._known[name]
        if external_data_helper.uses_external_data(stored):
            reference = onnx.TensorProto()
            reference.CopyFrom(stored)  # which gets the bytes, and is let go
            stored = reference
        found: Array = numpy_helper.to_array(stored, self._folder)
        return found

    def forget(self, name: str) -> None:
        """Let go of the bytes of one that nothing reads any more, before ``drop_unread``."""
        self._known[name].ClearField("raw_data")

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._known[name].dims)

    def dtype(self, name: str) -> np.dtype[Any]:
        return helper.tensor_dtype_to_np_dtype(self._known[name].data_type)

    def is_float(self, name: str) -> bool:
        """Whether it is float32."""
        return self.dtype(name) == np.float32

    def fresh(self, name: str) -> str:
        """A name that no tensor has."""
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def keep(self, array: Array, name: str) -> None:
        """Store an array under the name of a tensor that a node made."""
        self._graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        self._known[name] = self._graph.initializer[-1]

    def add(self, array: Array, name: str) -> str:
        """Store an array; gives its name."""
        tensor = numpy_helper.from_array(np.ascontiguousarray(array), self.fresh(name))
        self._graph.initializer.append(tensor)
        self._known[tensor.name] = self._graph.initializer[-1]
        return tensor.name


def drop_unread(graph: onnx.GraphProto) -> None:
    """Remove initializers that nothing reads, and inputs that only gave them a default."""
    gone = {t.name for t in graph.initializer} - _readers(graph).keys()
    for things in (graph.initializer, graph.input):
        for thing in [x for x in things if x.name in gone]:
            things.remove(thing)


def _readers(graph: onnx.GraphProto) -> Counter[str]:
    """How often each tensor is read, as an output of the model, too."""
    return Counter(
        [name for n in _all_nodes(graph) for name in n.input] + [o.name for o in graph.output]
    )


def _all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for a in node.attribute:
            for inner in (*a.graphs, *([a.g] if a.HasField("g") else [])):
                yield from _all_nodes(inner)


# -- normalisations ------------------------------------------------------------------------------


def fold_norms(graph: onnx.GraphProto, folder: str = "") -> None:
    """Put BatchNormalizations with known statistics into the convolutions before them."""
    stored = Initializers(graph, folder)
    readers = _readers(graph)
    makers = {name: n for n in graph.node for name in n.output}
    for norm in [n for n in graph.node if n.op_type == "BatchNormalization"]:
        conv = makers.get(norm.input[0])
        known = all(name in stored for name in norm.input[1:5]) and len(norm.output) == 1
        if conv is None or conv.op_type != "Conv" or readers[norm.input[0]] != 1 or not known:
            continue
        if all(name in stored for name in conv.input[1:] if name):
            _fold(conv, norm, stored)
            graph.node.remove(norm)
    drop_unread(graph)


def _fold(conv: onnx.NodeProto, norm: onnx.NodeProto, stored: Initializers) -> None:
    scale, shift, mean, variance = (
        stored.array(name).astype(np.float64) for name in norm.input[1:5]
    )
    epsilon = next((a.f for a in norm.attribute if a.name == "epsilon"), 1e-5)
    factor = scale / np.sqrt(variance + epsilon)
    w = stored.array(conv.input[1])
    has_bias = len(conv.input) > 2 and bool(conv.input[2])
    bias = stored.array(conv.input[2]).astype(np.float64) if has_bias else 0.0
    weights = (w * factor.reshape(-1, *(1,) * (w.ndim - 1))).astype(w.dtype)
    terms = ((bias - mean) * factor + shift).astype(w.dtype)
    conv.input[1] = stored.add(weights, f"{conv.input[1]}/folded")
    name = stored.add(terms, f"{conv.name}/bias")
    conv.input[2:] = [name]
    conv.output[0] = norm.output[0]


def fold_factors(graph: onnx.GraphProto, folder: str = "") -> None:
    """Put the factors of Gemms into their constants."""
    stored = Initializers(graph, folder)
    for node in graph.node:
        factors = {a.name: a.f for a in node.attribute if a.name in ("alpha", "beta")}
        known = all(name in stored and stored.is_float(name) for name in node.input[1:] if name)
        if node.op_type != "Gemm" or not known or set(factors.values()) <= {1.0}:
            continue
        for i, factor in ((1, factors.get("alpha", 1.0)), (2, factors.get("beta", 1.0))):
            if i < len(node.input) and node.input[i] and factor != 1:
                scaled = stored.array(node.input[i]) * np.float32(factor)
                node.input[i] = stored.add(scaled, f"{node.input[i]}/scaled")
        for a in [a for a in node.attribute if a.name in factors]:
            node.attribute.remove(a)
    drop_unread(graph)


# -- quantisation --------------------------------------------------------------------------------


class QuantizedFile:
    """Puts QuantizeLinear and DequantizeLinear nodes into a model's graph, which it changes."""

    def __init__(
        self, model: onnx.ModelProto, numbers: NarrowNumbers, per_channel: bool = True
    ) -> None:
        self._graph, self._numbers, self._per_channel = model.graph, numbers, per_channel
        self._nodes = {n.name: n for n in model.graph.node}
        self._stored = Initializers(model.graph)
        self._before: dict[str, list[onnx.NodeProto]] = {}
        self._read: dict[str, str] = {}

    def has(self, p: WeightedProduct) -> bool:
        """Whether a product of the imported network is one node of the file, with those weights."""
        node = self._nodes.get(p.node.name)
        if node is None or node.op_type != KINDS[p.node.layer.name]:
            return False
        bias_fits = p.bias is None or (len(node.input) > 2 and node.input[2] in self._stored)
        weights = node.input[1]
        same = weights in self._stored and self._stored.shape(weights) == p.weights.spec.shape
        return same and bias_fits

    def insert(self, found: Points, scales: Mapping[Value, NarrowScale]) -> None:
        """Let the points of the network that was imported read 8 bits in the file."""
        for p in found.products:
            self._weigh(p, scales[p.activation])
        for v, uses in found.reads.items():
            for node, i in uses:
                self._quantize(node, i, scales[v])
        nodes = [n for node in self._graph.node for n in (*self._before.pop(node.name, ()), node)]
        del self._graph.node[:]
        self._graph.node.extend(nodes)
        drop_unread(self._graph)

    def _quantize(self, reader: Node, i: int, scale: NarrowScale) -> None:
        node = self._nodes.get(reader.name)
        if node is None or node.op_type != KINDS.get(reader.layer.name):
            return  # written in another way than it was imported: it reads floats
        name = node.input[i]
        if name not in self._read:
            self._read[name] = self._there_and_back(name, node, scale)
        node.input[i] = self._read[name]

    def _there_and_back(self, name: str, before: onnx.NodeProto, a: NarrowScale) -> str:
        scale = self._stored.add(np.asarray(a.scale), f"{name}/scale")
        zero = self._stored.add(np.asarray(a.zero, a.dtype.numpy), f"{name}/zero_point")
        whole = self._stored.fresh(f"{name}/quantized")
        out = self._stored.fresh(f"{name}/dequantized")
        self._before.setdefault(before.name, []).extend(
            [
                helper.make_node("QuantizeLinear", [name, scale, zero], [whole], whole),
                helper.make_node("DequantizeLinear", [whole, scale, zero], [out], out),
            ]
        )
        return out

    def _weigh(self, p: WeightedProduct, a: NarrowScale) -> None:
        node = self._nodes[p.node.name]
        key = f"{node.input[1]}:{p.axis}"
        w = self._stored.array(node.input[1])
        made = self._numbers.weights(w, p.axis, self._per_channel)
        if key not in self._read:
            self._read[key] = self._dequantized(node, node.input[1], made, p.axis)
        node.input[1] = self._read[key]
        if p.bias is None:
            return
        bias, units = self._stored.array(node.input[2]), made.scales * a.scale
        if (
            bias.shape == made.stored.shape[p.axis : p.axis + 1]
            and (whole := self._numbers.bias(bias, units)) is not None
        ):
            stored = NarrowWeights(whole, units)
            node.input[2] = self._dequantized(node, node.input[2], stored, 0)

    def _dequantized(
        self, before: onnx.NodeProto, name: str, made: NarrowWeights, axis: int
    ) -> str:
        scales = made.scales if made.scales.size > 1 else made.scales.reshape(())
        stored = self._stored.add(made.stored, f"{name}/quantized")
        scale = self._stored.add(scales, f"{name}/scale")
        zero = self._stored.add(np.zeros(scales.shape, made.stored.dtype), f"{name}/zero_point")
        out = self._stored.fresh(f"{name}/dequantized")
        node = helper.make_node("DequantizeLinear", [stored, scale, zero], [out], out)
        if scales.shape:
            node.attribute.append(helper.make_attribute("axis", axis))
        self._before.setdefault(before.name, []).append(node)
        return out
