"""One-layer networks as data.

A value is written ``f32[8,512,768]``; ``0:9`` behind it bounds what it holds (integers: the upper
bound is left out), ``=`` before it makes it a constant of the model. An empty text leaves an
optional input out; an array is a constant as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

import numpy as np

Given = str | np.ndarray
OPSET = 24
"""Of the main operator set, where a case names no other."""

NUMPY = {
    "f32": np.float32, "f16": np.float16, "f64": np.float64, "i64": np.int64, "i32": np.int32,
    "i16": np.int16, "i8": np.int8, "u8": np.uint8, "bool": np.bool_,
}  # fmt: skip
SPEC = re.compile(
    r"(?P<constant>= )?(?P<dtype>\w+)\[(?P<shape>[\d,]*)\](?: (?P<low>\S+):(?P<high>\S+))?"
)


@dataclass(frozen=True)
class Value:
    """An input of a case, and what it holds."""

    array: np.ndarray
    constant: bool


@dataclass(frozen=True)
class Case:
    """One layer. ``op``: with its domain, but for the main one. ``outputs``: how many are asked
    for; ``slack``: how much more rounding than that of its dtype the result may show.
    ``by_reference``: compared with ONNX's own reference, as ONNX Runtime departs from it.
    """

    op: str
    given: tuple[Given, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    outputs: int = 1
    opset: int = OPSET
    slack: float = 1.0
    by_reference: bool = False
    family: str = ""

    @property
    def name(self) -> str:
        """Unique: operator, note, and its first input."""
        first = next((g for g in self.given if isinstance(g, str) and g), "")
        words = [self.op.rpartition("::")[2], self.note, first.removeprefix("= ").partition(" ")[0]]
        return " ".join(w for w in words if w)

    @property
    def domain(self) -> str:
        return self.op.rpartition("::")[0]

    def in_half(self) -> Case:
        """The same in float16."""
        swapped = (g.replace("f32", "f16") if isinstance(g, str) else g for g in self.given)
        return replace(self, given=tuple(swapped))

    def values(self) -> list[Value | None]:
        """Made anew, the same for the same case."""
        rng = np.random.default_rng(crc32(self.name.encode()))
        return [_value(g, rng) for g in self.given]

    def model(self) -> Any:
        """The ``onnx.ModelProto``; its inputs are x0, x1, ... as the values are numbered."""
        from onnx import helper, numpy_helper

        values = self.values()
        names = [f"x{i}" if v else "" for i, v in enumerate(values)]
        results = [f"y{i}" for i in range(self.outputs)]
        node = helper.make_node(
            self.op.rpartition("::")[2], names, results, domain=self.domain, **self.attrs
        )
        graph = helper.make_graph(
            [node],
            "layer",
            [
                helper.make_tensor_value_info(
                    n, helper.np_dtype_to_tensor_dtype(v.array.dtype), v.array.shape
                )
                for n, v in zip(names, values, strict=True)
                if v and not v.constant
            ],
            [helper.make_empty_tensor_value_info(r) for r in results],
            [
                numpy_helper.from_array(v.array, n)
                for n, v in zip(names, values, strict=True)
                if v and v.constant
            ],
        )
        opsets = [helper.make_opsetid("", self.opset)]
        if self.domain:
            opsets.append(helper.make_opsetid(self.domain, 3 if "ml" in self.domain else 1))
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def feed(self) -> dict[str, np.ndarray]:
        """What the model's inputs get."""
        found = enumerate(self.values())
        return {f"x{i}": v.array for i, v in found if v and not v.constant}


def _value(given: Given, rng: np.random.Generator) -> Value | None:
    if isinstance(given, np.ndarray):
        return Value(given, True)
    if not given:
        return None
    found = SPEC.fullmatch(given)
    if not found:
        raise ValueError(f"{given!r} is no value: write dtype[sizes] low:high")
    dtype = np.dtype(NUMPY[found["dtype"]])
    shape = tuple(int(n) for n in found["shape"].split(",") if n)
    low, high = (float(found[k]) if found[k] else None for k in ("low", "high"))
    return Value(_random(rng, dtype, shape, low, high), bool(found["constant"]))


def _random(
    rng: np.random.Generator,
    dtype: np.dtype,
    shape: tuple[int, ...],
    low: float | None,
    high: float | None,
) -> np.ndarray:
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        start = max(limits.min, -100) if low is None else int(low)
        stop = min(limits.max, 100) + 1 if high is None else int(high)
        return rng.integers(start, stop, shape).astype(dtype)
    if low is None or high is None:
        return rng.standard_normal(shape).astype(dtype)
    return rng.uniform(low, high, shape).astype(dtype)


def halved(made: Iterable[Case]) -> Iterator[Case]:
    """The cases, and the first of each operator in float16, too."""
    seen = set()
    for case in made:
        yield case
        if case.op not in seen and any("f32" in g for g in case.given if isinstance(g, str)):
            seen.add(case.op)
            yield case.in_half()


def longs(*numbers: int) -> np.ndarray:
    """A constant list of int64."""
    return np.array(numbers, np.int64)


def floats(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def scalar(number: float, dtype: type = np.float32) -> np.ndarray:
    return np.array(number, dtype)


IMAGE, WORDS, ODD = "f32[1,64,56,56]", "f32[8,128,768]", "f32[7,33,129]"
