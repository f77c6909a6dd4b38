"""Parts of an ONNX model by the names of its tensors, and what ONNX Runtime makes of them."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tactix.base.arrays import Array
from tactix.base.errors import ConfigError, ExecutionError, ModelImportError

SMALL = 1024
"""Bytes of a constant up to which shapes may hang on it."""


@dataclass(frozen=True)
class TensorType:
    """What a model says of a tensor. ``rank``: None where that is not known."""

    element: int
    rank: int | None


@dataclass(frozen=True)
class ModelSlice:
    """What computes ``targets`` of ``leaves``."""

    leaves: tuple[str, ...]
    targets: tuple[str, ...]
    session: Any


class ModelSlices:
    """Cuts of one model. Raises ConfigError without onnx and ONNX Runtime, ModelImportError for a
    file that is no model.
    """

    def __init__(self, path: str | Path, threads: int = 0) -> None:
        self._onnx, self._runtime = _packages()
        self._threads = threads
        try:
            model = self._onnx.load(str(path))
        except Exception as e:
            raise ModelImportError("cannot read the model", who=str(path), why=str(e)[:200]) from e
        if model.functions:
            model = self._onnx.inliner.inline_local_functions(model)
        self._model, graph = model, model.graph
        self._constants = {t.name: t for t in graph.initializer}
        self._made_by = {y: i for i, n in enumerate(graph.node) for y in n.output if y}
        self.inputs = tuple(v.name for v in graph.input if v.name not in self._constants)
        self._types = self._inferred()

    def makes(self, name: str) -> bool:
        """Whether a node of the model makes a tensor of that name."""
        return name in self._made_by

    def type(self, name: str) -> TensorType | None:
        """Of a tensor, where it is known."""
        return self._types.get(name)

    def between(self, known: Collection[str], targets: Sequence[str]) -> ModelSlice:
        """What computes these tensors of known ones, and of the model's inputs where those do not
        suffice. Raises ExecutionError for a part that ONNX Runtime does not run.
        """
        indices, leaves, constants = set[int](), dict[str, None](), dict[str, None]()
        left = list(targets)
        while left:
            name = left.pop()
            if name in self._constants:
                constants[name] = None
            elif name in self._made_by and (name in targets or name not in known):
                if (i := self._made_by[name]) not in indices:
                    indices.add(i)
                    left += _read(self._model.graph.node[i])
            elif name in known or name in self.inputs:
                leaves[name] = None
        part = self._part(sorted(indices), tuple(leaves), constants, targets)
        return ModelSlice(tuple(leaves), tuple(targets), self._session(part))

    def run(self, part: ModelSlice, feed: Mapping[str, Array]) -> list[Array]:
        """The targets, for arrays by name in the model's dtypes. Raises ExecutionError."""
        try:
            return list(part.session.run(list(part.targets), dict(feed)))
        except Exception as e:
            raise ExecutionError("ONNX Runtime failed", why=str(e)[:200]) from e

    def numpy_type(self, name: str) -> Any:
        """The dtype of a tensor; None where it is not known."""
        known = self._types.get(name)
        return known and self._onnx.helper.tensor_dtype_to_np_dtype(known.element)

    def _part(
        self,
        indices: Sequence[int],
        leaves: Sequence[str],
        constants: Collection[str],
        targets: Sequence[str],
    ) -> Any:
        helper, graph = self._onnx.helper, self._model.graph
        values = {
            name: helper.make_tensor_value_info(name, self._types[name].element, None)
            for name in (*leaves, *targets)
            if name in self._types
        }
        if missing := [n for n in (*leaves, *targets) if n not in values]:
            raise ExecutionError(f"the model does not tell the type of {missing[0]!r}")
        made = helper.make_graph(
            [graph.node[i] for i in indices],
            "part",
            [values[n] for n in leaves],
            [values[n] for n in targets],
            [self._constants[n] for n in constants],
        )
        return helper.make_model(
            made, opset_imports=self._model.opset_import, ir_version=self._model.ir_version
        )

    def _session(self, part: Any) -> Any:
        options = self._runtime.SessionOptions()
        options.graph_optimization_level = self._runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads, options.log_severity_level = self._threads, 4
        try:
            return self._runtime.InferenceSession(
                part.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as e:
            raise ExecutionError(
                "ONNX Runtime does not take this part of the model", why=str(e)[:200]
            ) from e

    def _inferred(self) -> dict[str, TensorType]:
        """Types of all tensors, as far as the onnx package infers them, without the bytes of
        weights.
        """
        onnx, graph = self._onnx, self._model.graph
        helper = onnx.helper
        small = [t for t in graph.initializer if len(t.raw_data) <= SMALL]
        large = [
            helper.make_tensor_value_info(t.name, t.data_type, list(t.dims))
            for t in graph.initializer
            if len(t.raw_data) > SMALL
        ]
        names = {t.name for t in graph.initializer}
        inputs = [v for v in graph.input if v.name not in names]
        skeleton = helper.make_graph(
            list(graph.node), "skeleton", [*inputs, *large], list(graph.output), small
        )
        model = helper.make_model(
            skeleton, opset_imports=self._model.opset_import, ir_version=self._model.ir_version
        )
        with contextlib.suppress(onnx.shape_inference.InferenceError):  # what the file says must do
            model = onnx.shape_inference.infer_shapes(model, data_prop=True)
        found = (*model.graph.input, *model.graph.value_info, *model.graph.output)
        found = (*found, *graph.value_info)
        return {v.name: _type(v.type.tensor_type) for v in found if v.type.HasField("tensor_type")}


def _type(told: Any) -> TensorType:
    return TensorType(told.elem_type, len(told.shape.dim) if told.HasField("shape") else None)


def _read(node: Any) -> Iterator[str]:
    """Tensors that a node reads, those of the graph around its bodies among them."""
    yield from (x for x in node.input if x)
    for a in node.attribute:
        for g in (a.g, *a.graphs) if a.HasField("g") or a.graphs else ():
            own = {y for n in g.node for y in n.output} | {t.name for t in g.initializer}
            own |= {v.name for v in g.input}
            yield from (x for n in g.node for x in _read(n) if x not in own)
            yield from (v.name for v in g.output if v.name not in own)


def _packages() -> tuple[Any, Any]:
    """onnx and onnxruntime. Raises ConfigError."""
    try:
        import onnx
        import onnx.inliner
        import onnx.shape_inference
        import onnxruntime
    except ImportError as e:
        raise ConfigError(
            "a model is run by ONNX Runtime, which is not here",
            why=str(e),
            do="pip install onnxruntime",
        ) from None
    return onnx, onnxruntime


def as_model_type(x: Array, dtype: Any) -> Array:
    """An array of a plan's in the dtype that the model has for it; narrower floats are widened."""
    return x if dtype is None or x.dtype == dtype else np.asarray(x).astype(dtype)
