"""The cases of ``onnx.backend.test``: one form for those in memory, those in files and the networks
of the wheel.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")

Data = list[tuple[list[Any], list[Any]]]
"""Pairs of inputs and expected outputs."""


@dataclass
class Case:
    """One case. ``model``: a ModelProto, or the path of one. ``operator``: what it is about;
    ``opset``: its version.
    """

    kind: str
    name: str
    rtol: float
    atol: float
    model: Any
    sets: Any = field(repr=False)
    operator: str = ""
    opset: int = 0

    @property
    def id(self) -> str:
        return f"{self.kind}/{self.name}"

    def load(self) -> tuple[Any, Data]:
        """The model and its data. Raises OSError."""
        if self.kind == "real":
            return self.model, [_made_up(self.model)]
        return self.model, self.sets if isinstance(self.sets, list) else list(
            _stored(self.model, self.sets)
        )


def collect(kinds: Sequence[str] = KINDS) -> list[Case]:
    """All cases of these kinds that the installed onnx has, in order of their names."""
    from onnx.backend.test.loader import load_model_tests

    np.random.seed(0)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = [_case(kind, c) for kind in kinds for c in load_model_tests(kind=kind)]
    operators = {c.id: c.operator for c in found if c.kind == "node"}
    for c in found:
        c.operator = operators.get(re.sub(r"_expanded(_ver\d+)?$", "", c.id), c.operator)
    return sorted(found, key=lambda c: (KINDS.index(c.kind), c.name))


def _case(kind: str, c: Any) -> Case:
    if kind == "real":
        return Case(
            kind, c.name, c.rtol, c.atol, _package() / c.url.removeprefix("onnx/"), None, "network"
        )
    model = c.model if c.model_dir is None else Path(c.model_dir) / "model.onnx"
    proto = c.model if c.model_dir is None else onnx.load(str(model), load_external_data=False)
    sets = c.data_sets if c.model_dir is None else sorted(Path(c.model_dir).glob("test_data_set_*"))
    operator, opset = _about(proto)
    if c.model_dir is None:
        sets = [tuple(sets)] if sets and not isinstance(sets[0], tuple) else list(sets)
        return Case(kind, c.name, c.rtol, c.atol, model, sets, operator, opset)
    return Case(kind, c.name, c.rtol, c.atol, model, tuple(sets), operator, opset)


def _about(model: onnx.ModelProto) -> tuple[str, int]:
    """The operator of a model of one node, and the version of its operator set."""
    versions = {o.domain: o.version for o in model.opset_import}
    nodes = [n for n in model.graph.node if n.op_type != "Constant"]
    if len(nodes) != 1:
        return "several", versions.get("", 0)
    prefix = f"{nodes[0].domain}::" if nodes[0].domain else ""
    return prefix + nodes[0].op_type, versions.get(nodes[0].domain, 0)


def _package() -> Path:
    return Path(onnx.__file__).parent


def _stored(model: Path, folders: Sequence[Path]) -> Iterator[tuple[list[Any], list[Any]]]:
    graph = onnx.load(str(model), load_external_data=False).graph
    for folder in folders:
        yield _read(folder, "input", graph.input), _read(folder, "output", graph.output)


def _read(folder: Path, what: str, declared: Any) -> list[Any]:
    count = len(list(folder.glob(f"{what}_*.pb")))
    return [
        _value((folder / f"{what}_{i}.pb").read_bytes(), declared[i].type) for i in range(count)
    ]


def _value(data: bytes, declared: onnx.TypeProto) -> Any:
    if declared.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if declared.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return onnx.TensorProto.FromString(data)


def _made_up(path: Path) -> tuple[list[Any], list[Any]]:
    """Inputs of a network as onnx's own runner makes them: 0 to 1 in even steps. The outputs lie
    beside it.
    """
    graph = onnx.load(str(path)).graph
    stored = {t.name for t in graph.initializer}
    inputs = []
    for v in graph.input:
        if v.name not in stored:
            shape = [d.dim_value or 1 for d in v.type.tensor_type.shape.dim]
            n = int(np.prod(shape))
            inputs.append((np.arange(n).reshape(shape) / n).astype(np.float32))
    files = [path.with_name(f"{path.stem}_output_{i}.pb") for i in range(len(graph.output))]
    return inputs, [onnx.TensorProto.FromString(f.read_bytes()) for f in files]
