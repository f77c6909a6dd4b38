"""Which tensor of a checkpoint each weight of a model is, and how it lies there.

An export to ONNX keeps the names of most parameters, but turns matrices of products around and
names them anew. So a map is made once, from the model and the checkpoint that it was exported from:
each tensor is turned to the weight's dtype and compared in every order of its axes, and by its
rows: of tables an export keeps those that it has looked up. As JSON:

    {"weights": {name: {"tensor", "dtype", "shape", "rows", "axes"}},
     "constants": {name: {"dtype", "shape", "content"}},
     "unused": {tensor: sha256}}

``shape`` and ``axes`` are without axes of one element. ``constants`` are weights of the model that
are no tensor of the checkpoint, compressed by zlib, in base64. ``unused``: tensors that are no
weight of the model; where there are constants, they must stay what they are, as an export may have
made a constant of one.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

from tactix.base.dims import show
from tactix.base.dtypes import DType
from tactix.base.errors import InvalidArgument, PlanFormatError
from tactix.base.files import replacing
from tactix.plan.reader import Reader
from tactix_refit.recipe import digest
from tactix_refit.tensor_file import FLOATS, TensorFile

Array = Any

KEPT = 4 << 20
"""Bytes, compressed, that a map has of constants."""

MOST = 1 << 30
"""Bytes of a map's file."""

MASK = 2
"""A constant of no more different numbers is a mask, or one number everywhere."""

TURNED = 4
"""Axes of more than one element that are tried in every order; more axes only as they are and in
reverse.
"""


@dataclass(frozen=True)
class TensorOrigin:
    """The tensor that a weight is: its name and dtype, its shape without axes of one element; which
    rows the weight has of it, None for all as they are, and in which order it has the axes.
    """

    tensor: str
    dtype: DType
    shape: tuple[int, ...]
    rows: tuple[int, ...] | None
    axes: tuple[int, ...]

    def of(self, array: Array) -> Array:
        """The weight's elements in its order, of the tensor's."""
        array = array.reshape(self.shape)
        return (array if self.rows is None else array[list(self.rows)]).transpose(self.axes)


@dataclass(frozen=True)
class Constant:
    """A weight of the model that is no tensor. ``content``: compressed by zlib."""

    dtype: DType
    shape: tuple[int, ...]
    content: bytes

    @property
    def size(self) -> int:
        """How many elements."""
        return math.prod(self.shape)

    def array(self) -> Array:
        """Its elements. Raises InvalidArgument."""
        size = self.size * self.dtype.itemsize
        unpacked = zlib.decompressobj()
        try:
            data = unpacked.decompress(self.content, size + 1)
        except zlib.error as e:
            raise InvalidArgument("a constant of the map is damaged", why=str(e)) from None
        if len(data) != size:
            raise InvalidArgument("a constant of the map has another size than its shape")
        return np.frombuffer(data, self.dtype.numpy).reshape(self.shape)


@dataclass(frozen=True)
class WeightMap:
    """By name of the weight; ``unused`` by name of the tensor."""

    weights: Mapping[str, TensorOrigin]
    constants: Mapping[str, Constant]
    unused: Mapping[str, str]

    def may_hold(self, elements: int) -> str:
        """A constant that an export may have made of a tensor of so many elements, if there is one.

        Those of two numbers at most are masks.
        """
        return next((n for n, c in self.constants.items() if _may_be_of(c, elements)), "")

    def save(self, path: str | Path) -> None:
        """Write the file. Raises OSError."""
        weights = {
            n: {
                "tensor": o.tensor,
                "dtype": o.dtype.value,
                "shape": list(o.shape),
                "rows": None if o.rows is None else list(o.rows),
                "axes": list(o.axes),
            }
            for n, o in self.weights.items()
        }
        constants = {
            n: {
                "dtype": c.dtype.value,
                "shape": list(c.shape),
                "content": base64.b64encode(c.content).decode(),
            }
            for n, c in self.constants.items()
        }
        body = {"weights": weights, "constants": constants, "unused": dict(self.unused)}
        with replacing(Path(path)) as f:
            f.write(json.dumps(body, sort_keys=True, indent=1).encode())

    @classmethod
    def load(cls, path: str | Path) -> WeightMap:
        """Read a file that ``save`` wrote. Raises InvalidArgument."""
        try:
            with open(path, "rb") as f:
                text = f.read(MOST + 1)
            if len(text) > MOST:
                raise ValueError(f"it has more than {MOST >> 20} MiB")
            root = Reader(json.loads(text), "map").only("weights", "constants", "unused")
            return cls(
                {n: _origin(r) for n, r in root.at("weights").fields().items()},
                {n: _constant(r) for n, r in root.at("constants").fields().items()},
                {n: r.text() for n, r in root.at("unused").fields().items()},
            )
        except (OSError, ValueError, RecursionError, PlanFormatError) as e:
            what, do = "that is no map of weights", "Write one with `tactix refit-map`"
            raise InvalidArgument(what, who=str(path), why=str(e), do=do) from None


def _may_be_of(constant: Constant, elements: int) -> bool:
    """Whether it may have been made of a tensor of so many elements. Raises InvalidArgument."""
    if constant.size == 1:
        return elements == 1
    return elements > 1 and np.unique(constant.array()).size > MASK


def _origin(r: Reader) -> TensorOrigin:
    r.only("tensor", "dtype", "shape", "rows", "axes")
    shape = tuple(d.integer() for d in r.at("shape").items())
    axes = tuple(a.integer() for a in r.at("axes").items())
    if sorted(axes) != list(range(len(shape))):
        r.at("axes").fail("every axis once")
    return TensorOrigin(
        r.at("tensor").text(), _float(r), shape, _rows_read(r.at("rows"), shape), axes
    )


def _rows_read(r: Reader, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    if r.value is None:
        return None
    return tuple(n.integer(0, shape[0] if shape else 0) for n in r.items())


def _constant(r: Reader) -> Constant:
    r.only("dtype", "shape", "content")
    content = r.at("content").text()
    try:
        data = base64.b64decode(content, validate=True)
    except binascii.Error as e:
        raise PlanFormatError("that is no base64", who=r.path, why=str(e)) from None
    return Constant(_float(r), tuple(d.integer() for d in r.at("shape").items()), data)


def _float(r: Reader) -> DType:
    found = r.at("dtype").dtype()
    if found not in FLOATS.values():
        r.at("dtype").fail("a floating-point type")
    return found


def converted(array: Array, dtype: DType) -> Array:
    """The same numbers, rounded to nearest if need be."""
    with np.errstate(over="ignore"):
        return array.astype(dtype.numpy, copy=False)


# -- making one -----------------------------------------------------------------------------------


def map_of(model: Mapping[str, Array], file: TensorFile) -> WeightMap:
    """The map of a model's constants, by name, to the checkpoint that it was exported from.

    Where several tensors have the content of a weight, the one of its name is meant. Raises
    InvalidArgument where none is, and for weights of more than 4 MiB that are no tensor.
    """
    weights = {n: a for n, a in model.items() if a.size and DType.of(a.dtype) in FLOATS.values()}
    found = _candidates(weights, file)
    for name in weights.keys() - found.keys():
        if not _is_uniform(weights[name]):
            found[name] = _rows(weights[name], file)
    chosen = {n: o for n in weights if (o := _chosen(n, weights[n], found.get(n, []), file.path))}
    constants = {
        n: Constant(DType.of(a.dtype), a.shape, zlib.compress(np.ascontiguousarray(a).tobytes()))
        for n, a in weights.items()
        if n not in chosen
    }
    _check_small(constants, file.path)
    used = {o.tensor for o in chosen.values()}
    unused = {
        n: digest(file.array(n)) for n, t in file.tensors.items() if t.dtype and n not in used
    }
    return WeightMap(chosen, constants, unused)


def _candidates(weights: Mapping[str, Array], file: TensorFile) -> dict[str, list[TensorOrigin]]:
    """Tensors with the content of each weight."""
    wanted: dict[tuple[DType, str], list[str]] = {}
    dtypes: dict[int, set[DType]] = {}
    for name, a in weights.items():
        wanted.setdefault((DType.of(a.dtype), digest(a)), []).append(name)
        dtypes.setdefault(a.size, set()).add(DType.of(a.dtype))
    found: dict[str, list[TensorOrigin]] = {}
    for tensor, t in sorted(file.tensors.items()):
        if t.dtype is None or math.prod(t.shape) not in dtypes:
            continue
        array = file.array(tensor)
        for dtype in sorted(dtypes[array.size], key=lambda d: d.value):
            for axes, content in _orders(converted(array, dtype)):
                shape = without_ones(t.shape)
                for name in wanted.get((dtype, digest(content)), []):
                    found.setdefault(name, []).append(
                        TensorOrigin(tensor, t.dtype, shape, None, axes)
                    )
    return found


def _rows(weight: Array, file: TensorFile) -> list[TensorOrigin]:
    """Tensors of whose rows the weight is made, as of a table that was looked up in."""
    found = []
    for tensor, t in sorted(file.tensors.items()):
        shape = without_ones(t.shape)
        width = math.prod(shape[1:])
        if t.dtype is None or len(shape) < 2 or not width or weight.size % width:
            continue
        table = converted(file.array(tensor), DType.of(weight.dtype)).reshape(-1, width)
        places: dict[bytes, int] = {}
        for place, row in enumerate(table):
            known = places.setdefault(row.tobytes(), place)
            if known != place:
                places[row.tobytes()] = -1  # which of them is meant cannot be told
        rows = tuple(places.get(row.tobytes(), -1) for row in weight.reshape(-1, width))
        if min(rows) >= 0:
            found.append(TensorOrigin(tensor, t.dtype, shape, rows, tuple(range(len(shape)))))
    return found


def without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape without axes of one element."""
    return tuple(d for d in shape if d != 1)


def _orders(array: Array) -> Iterator[tuple[tuple[int, ...], Array]]:
    """The content in every order of the axes of more than one element."""
    array = array.reshape(without_ones(array.shape))
    straight = tuple(range(array.ndim))
    orders = permutations(straight) if array.ndim <= TURNED else {straight, straight[::-1]}
    return ((axes, array.transpose(axes)) for axes in orders)


def _chosen(name: str, weight: Array, found: list[TensorOrigin], who: str) -> TensorOrigin | None:
    """The origin that is meant; None where there is none. Raises InvalidArgument.

    Content that is one number everywhere says nothing: then only a name does.
    """
    named = [o for o in found if _are_one(name, o.tensor)]
    alike = _is_uniform(weight)
    meant = named or ([] if alike else found)
    if len({o.tensor for o in meant}) > 1:
        names = ", ".join(sorted({o.tensor for o in meant})[:4])
        why = f"{names} have its content"
        raise InvalidArgument(f"it is not clear which tensor {name!r} is", who=who, why=why)
    if len(meant) > 1 and not alike:
        what = f"it is not clear how {name!r} lies in {meant[0].tensor!r}"
        raise InvalidArgument(what, who=who, why="it is the same when turned around")
    return meant[0] if meant else None


def _is_uniform(array: Array) -> bool:
    """Whether it is one number everywhere."""
    return bool((array == array.flat[0]).all())


def _are_one(weight: str, tensor: str) -> bool:
    """Whether the names are the same but for modules in front of one."""
    return weight == tensor or weight.endswith(f".{tensor}") or tensor.endswith(f".{weight}")


def _check_small(constants: Mapping[str, Constant], who: str) -> None:
    size = sum(len(c.content) for c in constants.values())
    if size <= KEPT:
        return
    name, largest = max(constants.items(), key=lambda item: len(item[1].content))
    raise InvalidArgument(
        f"weight {name!r} {show(largest.shape)} is no tensor of the checkpoint, turned or not",
        who=who,
        do="Give the checkpoint that the model was exported from",
    )
