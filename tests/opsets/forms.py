"""What a case of an operator is at one version: the same numbers at each, in the form that the
version wants.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx

DTYPES: Mapping[str, Any] = {
    "float": np.float32, "double": np.float64, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16,
    "int64": np.int64, "int32": np.int32, "int16": np.int16, "int8": np.int8, "uint8": np.uint8, "uint16": np.uint16,
    "uint32": np.uint32, "uint64": np.uint64, "bool": np.bool_,
}  # fmt: skip
"""Element types as onnx's schemas write them."""

ML = "ai.onnx.ml"
AROUND = 15
"""The main operator set of models of operators from other domains."""


@dataclass(frozen=True)
class Form:
    """``name``: the same at all versions. ``arrays``: inputs, None where one is absent. ``fixed``:
    those that are initializers. ``text``: a whole graph over the inputs, in place of one node.
    """

    name: str
    arrays: Sequence[Any]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    fixed: frozenset[int] = frozenset()
    tolerance: float = 1e-5
    text: str = ""


Forms = Callable[[int], Iterator[Form]]

FORMS: dict[str, Forms] = {}
"""By operator: its cases at a version."""


def forms(*operators: str) -> Callable[[Callable[[str, int], Iterator[Form]]], Any]:
    """Register what gives the cases of operators, from the operator's name and the version."""

    def register(made: Callable[[str, int], Iterator[Form]]) -> Any:
        for op in operators:
            FORMS[op] = functools.partial(made, op)
        return made

    return register


@dataclass(frozen=True)
class Case:
    """One form at one version of an operator, whose name begins with its domain if that is not the
    main one.
    """

    op: str
    version: int
    form: Form

    @property
    def id(self) -> str:
        return f"{self.op}-{self.version}/{self.form.name}"

    def model(self) -> onnx.ModelProto:
        """A model that imports just that operator set."""
        graph = self._parsed() if self.form.text else self._node()
        graph.initializer.extend(
            onnx.numpy_helper.from_array(np.asarray(self.form.arrays[i]), f"i{i}")
            for i in self.form.fixed
        )
        free = [v for v in graph.input if int(v.name[1:]) not in self.form.fixed]
        del graph.input[:]
        graph.input.extend(free)
        domain, _ = split(self.op)
        opsets = [onnx.helper.make_opsetid(domain, self.version)]
        opsets += [onnx.helper.make_opsetid("", AROUND)] if domain else []
        return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def _parsed(self) -> onnx.GraphProto:
        return onnx.parser.parse_graph(self.form.text.strip())

    def _node(self) -> onnx.GraphProto:
        f = self.form
        names = [f"i{i}" if a is not None else "" for i, a in enumerate(f.arrays)]
        outputs = [f"o{i}" for i in range(f.outputs)]
        domain, name = split(self.op)
        node = onnx.helper.make_node(name, names, outputs, domain=domain, **f.attrs)
        given = [(n, a) for n, a in zip(names, f.arrays, strict=True) if n]
        inputs = [onnx.helper.make_tensor_value_info(n, code(a), a.shape) for n, a in given]
        return onnx.helper.make_graph(
            [node], "case", inputs, [onnx.helper.make_empty_tensor_value_info(n) for n in outputs]
        )

    def feed(self) -> dict[str, Any]:
        given = enumerate(self.form.arrays)
        return {
            f"i{i}": np.asarray(a) for i, a in given if a is not None and i not in self.form.fixed
        }


def code(a: Any) -> int:
    """The ONNX element type of an array."""
    return (
        onnx.TensorProto.STRING
        if a.dtype == object
        else int(onnx.helper.np_dtype_to_tensor_dtype(a.dtype))
    )


def split(op: str) -> tuple[str, str]:
    """Domain and name."""
    domain, _, name = op.rpartition("::")
    return domain, name


@functools.cache
def versions(op: str) -> tuple[int, ...]:
    """At which the operator changed, oldest first; a version that only removes it does not count."""
    found = (s for s in onnx.defs.get_all_schemas_with_history() if (s.domain, s.name) == split(op))
    return tuple(sorted(s.since_version for s in found if not s.deprecated))


def dtypes_of(
    op: str, version: int, wanted: Sequence[str], place: int = 0, domain: str = ""
) -> Iterator[Any]:
    """Those of the element types that the operator takes for an input at that version."""
    schema = onnx.defs.get_schema(op, version, domain)
    taken = schema.inputs[min(place, len(schema.inputs) - 1)].types
    for name in wanted:
        if f"tensor({name})" in taken:
            yield np.dtype(DTYPES[name])


def normal(*shape: int, salt: int = 0) -> Any:
    """Normal float32 numbers that hang on the shape and the salt alone."""
    return np.asarray(_rng(shape, salt).standard_normal(shape), np.float32)


def positive(*shape: int, salt: int = 0) -> Any:
    """In [0.1, 2)."""
    return np.asarray(_rng(shape, salt).uniform(0.1, 2, shape), np.float32)


def whole(low: int, high: int, *shape: int, salt: int = 0) -> Any:
    """Integers, int64, in [low, high)."""
    return np.asarray(_rng(shape, salt).integers(low, high, shape))


def _rng(shape: Sequence[int], salt: int) -> Any:
    return np.random.default_rng(zlib.crc32(repr((tuple(shape), salt)).encode()))


def numbers(dtype: Any, *shape: int, salt: int = 0, low: int = -5, high: int = 6) -> Any:
    """Of any type: integers between the bounds (from 0 on if unsigned), else normal."""
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        return np.asarray(whole(0 if dtype.kind == "u" else low, high, *shape, salt=salt)).astype(
            dtype
        )
    drawn = whole(0, 2, *shape, salt=salt) if dtype.kind == "b" else normal(*shape, salt=salt)
    return np.asarray(drawn).astype(dtype)


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def moved(version: int, since: int, **parameters: Any) -> tuple[list[Any], dict[str, Any]]:
    """Parameters as attributes before ``since``, as inputs in this order from then on; None for
    absent ones.
    """
    if version < since:
        return [], {k: v for k, v in parameters.items() if v is not None}
    return [None if v is None else np.asarray(v) for v in parameters.values()], {}


def trimmed(arrays: Sequence[Any]) -> list[Any]:
    """Without absent inputs at the end."""
    out = list(arrays)
    while out and out[-1] is None:
        out.pop()
    return out
