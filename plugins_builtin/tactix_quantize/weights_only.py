"""Weights of few bits in blocks, activations as they are: MatMul and Gemm become MatMulNBits, and
Gather from a table of embeddings GatherBlockQuantized, operators of ONNX Runtime's domain
``com.microsoft``, which files of every opset may use.

Weights are read, rounded and let go one by one, so that a file whose weights lie beside it takes
about the memory of what is written.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import numpy as np
import onnx
from onnx import external_data_helper, helper

from tactix.base.arrays import Array
from tactix.base.errors import ConfigError
from tactix_quantize import onnx_model
from tactix_quantize.data_rounding import RoundedWeights
from tactix_quantize.onnx_model import Initializers
from tactix_quantize.weight_blocks import FewBits, WeightBlocks, in_blocks

DOMAIN = "com.microsoft"
STANDARD = ("", "ai.onnx")
CARRIES = frozenset({"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten"})
"""Operators that hand indices on."""
INT8_LEVEL = 4
"""``accuracy_level`` of MatMulNBits that permits int8 activations."""
FLOATS = {np.dtype(np.float32): 1e-3, np.dtype(np.float16): 4e-3}
"""Of weights, and how near neighbours of a table of angles are to the formula, by the square of its
largest: in float16 each of eight terms is rounded by up to 2**-11.
"""
INTEGERS = (onnx.TensorProto.INT32, onnx.TensorProto.INT64)


@dataclass(frozen=True)
class RewrittenModel:
    """``model``: rewritten. ``layers``: how many products and tables have constant weights;
    ``names``: of those that became few bits.
    """

    model: onnx.ModelProto
    layers: int
    names: tuple[str, ...]


Rounding = Callable[[onnx.NodeProto, Array], RoundedWeights]
"""Rounds the weights (K, N) of a product."""


class WeightsOnly:
    """A model file whose constant weights, float32 or float16, are to be of few bits;
    ``int8_activations``: what runs it may round those of products to int8, a scale for each block.
    Raises ModelImportError; ConfigError where there are no weights, and for a pattern of
    ``exclude`` that none fits.
    """

    def __init__(
        self,
        path: str,
        kind: FewBits,
        exclude: Sequence[str] = (),
        int8_activations: bool = False,
    ) -> None:
        self._level = {"accuracy_level": INT8_LEVEL} if int8_activations else {}
        self.kind, self._folder = kind, os.path.dirname(os.path.abspath(path))
        self.model = onnx_model.load(path, beside=True)
        self._graph = self.model.graph
        self._stored = Initializers(self._graph, self._folder)
        self._makers = {name: n for n in self._graph.node for name in n.output}
        found = [n for n in self._graph.node if self.is_product(n) or self._is_table(n)]
        for pattern in exclude:
            if not any(fnmatchcase(n.name, pattern) for n in found):
                do = f"Give names of layers: {', '.join(n.name for n in found[:5])}"
                raise ConfigError(f"no layer fits --exclude {pattern!r}", do=do)
        self._chosen = [n for n in found if not any(fnmatchcase(n.name, p) for p in exclude)]
        self._layers = len(found)
        if not self._chosen:
            why = "it has no product or table with constant float weights, or all are excluded"
            raise ConfigError("there is nothing to quantise", who=path, why=why)
        self._made: dict[str, list[str]] = {}
        self._factors: dict[str, Array] = {}
        self._scaled: dict[str, str] = {}
        self._left = Counter(name for n in self._graph.node for name in n.input)

    @property
    def products(self) -> list[onnx.NodeProto]:
        """Those that are to be of few bits."""
        return [n for n in self._chosen if self.is_product(n)]

    def weights(self, product: onnx.NodeProto) -> Array:
        """Of a product, (K, N), in float32."""
        w = self._stored.array(product.input[1]).astype(np.float32, copy=False)
        return w.T if _flag(product, "transB") else w

    def written(self, rounding: Rounding | None = None) -> RewrittenModel:
        """The model with weights of few bits; ``rounding``: of products, by default to the nearest
        integers.
        """
        names = tuple(n.name for n in self._chosen)
        for node in self._chosen:
            if node.op_type == "Gather":
                self._replace_table(node)
            else:
                self._replace_product(node, rounding or self._nearest)
        if all(o.domain != DOMAIN for o in self.model.opset_import):
            self.model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
        onnx_model.drop_unread(self._graph)
        external_data_helper.load_external_data_for_model(self.model, self._folder)
        return RewrittenModel(self.model, self._layers, names)

    def _nearest(self, node: onnx.NodeProto, w: Array) -> RoundedWeights:
        return RoundedWeights(in_blocks(w, self.kind))

    # -- products ---------------------------------------------------------------------------------

    def is_product(self, node: onnx.NodeProto) -> bool:
        if node.op_type not in ("MatMul", "Gemm") or node.domain not in STANDARD:
            return False
        plain = not _flag(node, "transA") and all(_factor(node, f) == 1 for f in ("alpha", "beta"))
        return plain and self._is_matrix(node.input[1])

    def _is_matrix(self, name: str) -> bool:
        if name not in self._stored or self._stored.dtype(name) not in FLOATS:
            return False
        shape = self._stored.shape(name)
        return len(shape) == 2 and 0 not in shape

    def _replace_product(self, node: onnx.NodeProto, rounding: Rounding) -> None:
        name, turned = node.input[1], _flag(node, "transB")
        sizes = self._stored.shape(name)
        k, n = sizes[::-1] if turned else sizes
        key = f"{name}:{node.input[0]}:{turned}"
        if key not in self._made:
            rounded = rounding(node, self.weights(node))
            made = rounded.blocks
            zeros = None if made.zeros is None else made.zeros.reshape(-1)
            flat = replace(made, scales=made.scales.reshape(-1), zeros=zeros)
            self._made[key] = self._store(flat, name)
            if rounded.factors is not None:
                factors = rounded.factors.astype(self._stored.dtype(name))
                self._factors[node.input[0]] = factors
        bias = node.input[2] if node.op_type == "Gemm" and len(node.input) > 2 else ""
        self._let_go(name)
        del node.attribute[:]
        node.op_type, node.domain = "MatMulNBits", DOMAIN
        node.input[1:] = self._made[key]
        attributes = {"K": k, "N": n, "bits": self.kind.bits, "block_size": self.kind.block}
        _set(node, attributes | self._level)
        if node.input[0] in self._factors:
            node.input[0] = self._scaled_input(node)
        if bias:
            self._add_bias(node, bias)

    def _scaled_input(self, node: onnx.NodeProto) -> str:
        """The activations times their factors; one tensor for all products that read them."""
        name = node.input[0]
        if name not in self._scaled:
            factors = self._stored.add(self._factors[name], f"{name}/factors")
            self._scaled[name] = self._stored.fresh(f"{name}/scaled")
            mul = helper.make_node("Mul", [name, factors], [self._scaled[name]], self._scaled[name])
            self._graph.node.insert(self._place(node), mul)
        return self._scaled[name]

    def _place(self, node: onnx.NodeProto) -> int:
        return next(i for i, n in enumerate(self._graph.node) if n.output[:1] == node.output[:1])

    def _add_bias(self, node: onnx.NodeProto, bias: str) -> None:
        made = node.output[0]
        node.output[0] = self._stored.fresh(f"{made}/product")
        add = helper.make_node("Add", [node.output[0], bias], [made], f"{node.name}/bias")
        self._graph.node.insert(self._place(node) + 1, add)

    def _store(self, blocks: WeightBlocks, name: str) -> list[str]:
        """Initializers of blocks, with scales in the dtype of the weights, which holds them."""
        scales = blocks.scales.astype(self._stored.dtype(name))
        made = [
            self._stored.add(blocks.packed, f"{name}/bits"),
            self._stored.add(scales, f"{name}/scales"),
        ]
        if blocks.zeros is not None:
            made.append(self._stored.add(blocks.zeros, f"{name}/zero_points"))
        return made

    def _let_go(self, name: str) -> None:
        """One reader less of float weights; without any they leave memory."""
        self._left[name] -= 1
        if not self._left[name]:
            self._stored.forget(name)

    # -- tables -----------------------------------------------------------------------------------

    def _is_table(self, node: onnx.NodeProto) -> bool:
        """Whether rows of a matrix are looked up by what the caller gives, and are no angles."""
        if node.op_type != "Gather" or node.domain not in STANDARD or _flag(node, "axis"):
            return False
        name = node.input[0]
        if not self._is_matrix(name) or self._stored.shape(name)[1] * self.kind.bits % 8:
            return False
        return self._is_given(node.input[1]) and not turns(self._stored.array(name))

    def _is_given(self, name: str) -> bool:
        """Whether indices are an integer input of the model."""
        while (maker := self._makers.get(name)) is not None and maker.op_type in CARRIES:
            name = maker.input[0]
        kinds = {v.name: v.type.tensor_type.elem_type for v in self._graph.input}
        return name not in self._stored and kinds.get(name) in INTEGERS

    def _replace_table(self, node: onnx.NodeProto) -> None:
        name = node.input[0]
        rows, columns = self._stored.shape(name)
        if name not in self._made:
            table = self._stored.array(name).astype(np.float32, copy=False)
            found = in_blocks(table.T, self.kind)
            packed = found.packed.reshape(rows, -1)[:, : columns * self.kind.bits // 8]
            self._made[name] = self._store(replace(found, packed=packed), name)
        self._let_go(name)
        table_name, *steps = self._made[name]
        del node.attribute[:]
        node.op_type, node.domain = "GatherBlockQuantized", DOMAIN
        node.input[:] = [table_name, node.input[1], *steps]
        fields = {"bits": self.kind.bits, "block_size": self.kind.block}
        _set(node, {**fields, "gather_axis": 0, "quantize_axis": 1})


def turns(table: Array) -> bool:
    """Whether rows are sines and cosines of angles that grow by a step per row: then neighbours
    add up to 2 cos(step) times the row between, column by column. Rounding would move positions.
    """
    if len(table) < 4:
        return False
    a, b, c, d = table[:4].astype(np.float64)
    largest = np.abs(table[:4]).max()
    error = np.abs((a + c) * c - (b + d) * b).max()
    return bool(error <= FLOATS[table.dtype] * largest**2)


def _flag(node: onnx.NodeProto, name: str) -> bool:
    return any(a.name == name and a.i for a in node.attribute)


def _factor(node: onnx.NodeProto, name: str) -> float:
    return next((a.f for a in node.attribute if a.name == name), 1.0)


def _set(node: onnx.NodeProto, attributes: dict[str, int]) -> None:
    node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
