"""Where a plan's buffers are ONNX tensors: views, changes of format, parts of wholes, weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import onnx

from tactix.base import dims
from tactix.base.dims import Dim, Shape
from tactix.base.tensor import LINEAR, Format
from tactix.contracts.launcher import Operand
from tactix.plan.schema import Buffer, Plan
from tactix_inspect.onnx_export.call import reshaped
from tactix_inspect.onnx_export.graph import Graph, tensor
from tactix_inspect.onnx_export.moving import sliced

SAMPLE = 7
"""The value of symbols at which parts are put in order."""


@dataclass(frozen=True)
class Stored:
    """A tensor by its name, with the shape and format in which a buffer holds it."""

    name: str
    shape: Shape
    format: Format = LINEAR


class FileConstants:
    """Constants of a file, by content."""

    def __init__(self, taken: set[str]) -> None:
        self.tensors: list[onnx.TensorProto] = []
        self._taken, self._known = taken, dict[tuple[Any, ...], str]()

    def name(self, b: Buffer, array: np.ndarray) -> str:
        """The initializer with that content, named after the buffer."""
        key = b.blob, str(array.dtype), array.shape
        if key not in self._known:
            hint = b.name.removesuffix("/packed")
            name = next(n for n in _numbered(hint) if n not in self._taken)
            self._taken.add(name)
            self._known[key] = name
            self.tensors.append(tensor(np.ascontiguousarray(array).reshape(array.shape), name))
        return self._known[key]


def _numbered(hint: str) -> Iterator[str]:
    yield hint
    yield from (f"{hint}_{i}" for i in count(1))


class Storage:
    """The buffers of one plan while its graph is written."""

    def __init__(self, g: Graph, plan: Plan, weights: FileConstants) -> None:
        self._graph, self._plan, self._weights = g, plan, weights
        self._held: dict[int, Stored] = {}
        self._parts: dict[int, list[int]] = {}
        for i, b in enumerate(plan.buffers):
            if b.inside >= 0:
                self._parts.setdefault(b.inside, []).append(i)

    def put(self, buffer: int, name: str, shape: Shape, fmt: Format = LINEAR) -> None:
        """A buffer holds that tensor from here on."""
        self._held[buffer] = Stored(name, shape, fmt)

    def array(self, o: Operand) -> np.ndarray | None:
        """The content of a weight as its reader sees it; None of what is none."""
        b = self._plan.buffers[o.buffer] if o.buffer >= 0 else None
        if b is None or b.kind != "weight":
            return None
        stored: Any = np.frombuffer(self._plan.blobs[b.blob], b.dtype.numpy)
        shape = dims.evaluate_shape(o.spec.shape, {})
        return o.format.unpack(stored.reshape(dims.evaluate_shape(b.shape, {})), shape)

    def read(self, o: Operand) -> str:
        """The name of a tensor as a step reads it; "" for a constant that was not kept."""
        if o.buffer < 0:
            return ""
        if (array := self.array(o)) is not None:
            return self._weights.name(self._plan.buffers[o.buffer], array)
        return self._seen(self._whole(o.buffer), o.spec.shape, o.format)

    def _whole(self, buffer: int) -> Stored:
        """What a buffer holds: what was written there, its parts, or a piece of what it lies in."""
        if buffer not in self._held:
            parts = self._written_parts(buffer)
            made = self._joined(buffer, parts) if parts else self._cut(buffer)
            self._held[buffer] = made
        return self._held[buffer]

    def _written_parts(self, buffer: int) -> list[int]:
        """Those that follow each other from the begin of the buffer to its end."""
        offsets: dict[int, int] = {}
        for i in self._parts.get(buffer, ()):
            if i in self._held or self._written_parts(i):
                offsets.setdefault(self._sampled(self._plan.buffers[i].offset), i)
        return [offsets[k] for k in sorted(offsets)]

    def _sampled(self, d: Dim) -> int:
        return dims.evaluate(d, dict.fromkeys(dims.symbols(d), SAMPLE))

    def _joined(self, buffer: int, parts: Sequence[int]) -> Stored:
        b, held = self._plan.buffers[buffer], [self._whole(i) for i in parts]
        axis = _axis(b, held)
        if axis is not None:
            name = self._graph.one("Concat", *(h.name for h in held), axis=axis)
        else:
            flat = [self._flat(h) for h in held]
            stored = b.format.storage_shape(b.shape)
            joined = self._graph.one("Concat", *flat, axis=0)
            name = self._from_storage(joined, (dims.prod(stored),), b.shape, b.format)
        return Stored(name, b.shape, b.format)

    def _cut(self, buffer: int) -> Stored:
        b, g = self._plan.buffers[buffer], self._graph
        whole = self._whole(b.inside)
        start = dims.exact_div(b.offset, b.dtype.itemsize)
        assert start is not None
        axis = _axis(self._plan.buffers[b.inside], [Stored("", b.shape, b.format), whole])
        begin = None if axis is None else dims.exact_div(start, dims.prod(b.shape[axis + 1 :]))
        if axis is not None and begin is not None and whole.format == b.format:
            end = begin + b.shape[axis]
            name = sliced(g, whole.name, [begin], [end], [axis], [1])
        else:
            size = dims.prod(b.format.storage_shape(b.shape))
            flat = sliced(g, self._flat(whole), [start], [start + size], [0], [1])
            name = self._from_storage(flat, (size,), b.shape, b.format)
        return Stored(name, b.shape, b.format)

    # -- views -----------------------------------------------------------------------------------

    def _seen(self, held: Stored, shape: Shape, fmt: Format) -> str:
        """A tensor as if it were another one in the same memory."""
        if (held.shape, held.format) == (shape, fmt):
            return held.name
        kept = held.shape[:2] == shape[:2] and min(len(held.shape), len(shape)) > 2
        if held.format == fmt and (fmt.is_linear or kept):
            return reshaped(self._graph, held.name, held.shape, shape)
        stored, have = self._storage(held)
        return self._from_storage(stored, have, shape, fmt)

    def _flat(self, held: Stored) -> str:
        name, _ = self._storage(held)
        return self._graph.one("Reshape", name, self._graph.ints([-1]))

    def _storage(self, held: Stored) -> tuple[str, Shape]:
        """A tensor in the order of its memory, and the shape of that."""
        g, fmt, rank = self._graph, held.format, len(held.shape)
        shape = fmt.storage_shape(held.shape)
        if fmt.is_linear:
            return held.name, shape
        if fmt.lanes == 1:
            return g.one("Transpose", held.name, perm=[0, *range(2, rank), 1]), shape
        lanes, channels = fmt.lanes, held.shape[1]
        name, blocks = held.name, shape[1]
        if (missing := blocks * lanes - channels) != 0:
            around = [*(0,) * rank, 0, missing, *(0,) * (rank - 2)]
            name = g.one("Pad", name, g.vector(around))
        split = (held.shape[0], blocks, lanes, *held.shape[2:])
        name = reshaped(g, name, (held.shape[0], blocks * lanes, *held.shape[2:]), split)
        return g.one("Transpose", name, perm=[0, 1, *range(3, rank + 1), 2]), shape

    def _from_storage(self, name: str, have: Shape, shape: Shape, fmt: Format) -> str:
        """The tensor of that shape whose memory, in that format, holds these elements."""
        g, rank, want = self._graph, len(shape), fmt.storage_shape(shape)
        name = name if have == want else reshaped(g, name, have, want)
        if fmt.is_linear:
            return name
        if fmt.lanes == 1:
            return g.one("Transpose", name, perm=[0, rank - 1, *range(1, rank - 1)])
        name = g.one("Transpose", name, perm=[0, 1, rank, *range(2, rank)])
        wide = (want[0], want[1] * fmt.lanes, *shape[2:])
        name = reshaped(g, name, (want[0], want[1], fmt.lanes, *shape[2:]), wide)
        return name if wide[1] == shape[1] else sliced(g, name, [0], [shape[1]], [1], [1])


def _axis(whole: Buffer, parts: Sequence[Stored]) -> int | None:
    """The one axis along which parts have other sizes than the whole, in front of which nothing is
    longer than 1; None if there is no such.
    """
    ranks = {len(p.shape) for p in parts} | {len(whole.shape)}
    formats = {p.format for p in parts} | {whole.format}
    if len(ranks) > 1 or len(formats) > 1 or not (whole.format.is_linear or whole.format.lanes > 1):
        return None
    axes = {
        i
        for p in parts
        for i, (a, b) in enumerate(zip(p.shape, whole.shape, strict=True))
        if a != b
    }
    (axis, *more) = axes or {0}
    fits = not more and all(d == 1 for d in whole.shape[:axis])
    return axis if fits and (whole.format.is_linear or axis == 1) else None
