"""One convolution as cuDNN takes it: what it computes as data, its operation graph, engine configurations, plans.

``y = relu(conv(x, w) + residual + bias)``, all channels last; the last three parts where asked for. Plans are texts of
the library's own, and hold for the version and the kind of device that made them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tactix.words.dtypes import DType
from tactix.words.errors import PlanFormatError
from tactix_builtin.cuda.cudnn import library as dnn
from tactix_builtin.cuda.cudnn.library import Cudnn, Descriptor

ALIGNMENT = 16
X, W, RESIDUAL, BIAS, Y, PRODUCT, SUM, BIASED = range(1, 9)
"""Ids of tensors; the last three are never stored."""
_LENGTHS = {"x": 4, "w": 4, "y": 4, "strides": 2, "dilations": 2, "begins": 2, "ends": 2}


@dataclass(frozen=True)
class Convolution:
    """Sizes of x (n, c, rows, columns) and y (n, k, rows, columns), of w (k, c of a group, rows, columns)."""

    dtype: str
    x: tuple[int, ...]
    w: tuple[int, ...]
    y: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    bias: bool = False
    residual: bool = False
    relu: bool = False

    def to_text(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, j: Mapping[str, Any]) -> Convolution:
        """Raises PlanFormatError."""
        try:
            sizes = {name: tuple(map(int, j[name])) for name in _LENGTHS}
            parts = {name: bool(j[name]) for name in ("bias", "residual", "relu")}
            made = cls(j["dtype"], **sizes, **parts)  # type: ignore[arg-type]
            if DType(made.dtype) in dnn.TYPES and all(len(sizes[k]) == n for k, n in _LENGTHS.items()):
                return made
        except (TypeError, KeyError, ValueError) as e:
            raise PlanFormatError("not a convolution of cuDNN", why=str(e)) from None
        raise PlanFormatError("not a convolution of cuDNN", why=str(dict(j)))

    @property
    def ids(self) -> tuple[int, ...]:
        """The tensors that a plan is given addresses of, as a call has its arguments."""
        return (X, W, *((BIAS,) * self.bias), *((RESIDUAL,) * self.residual), Y)


@dataclass(frozen=True)
class Guess:
    """Bytes of workspace of an engine with its settings, and whether its plan is compiled when it is made."""

    workspace: int
    compiles: bool


class Graph:
    """The operation graph on the device of a library. Raises LibraryFailure."""

    def __init__(self, library: Cudnn, what: Convolution) -> None:
        self.library, self.what = library, what
        first, *adds = (PRODUCT, *((SUM,) * what.residual), *((BIASED,) * what.bias))
        stages = [first, *adds]
        if not what.relu:  # the last one is stored
            stages[-1] = Y
        tensors = {i: self._tensor(i, what.y) for i in stages}
        operations = [self._convolution(tensors[stages[0]])]
        terms = [*((RESIDUAL,) * what.residual), *((BIAS,) * what.bias)]
        for term, before, after in zip(terms, stages, stages[1:]):
            shape = what.y if term == RESIDUAL else (1, what.y[1], 1, 1)
            operations.append(self._pointwise(dnn.ADD, tensors[before], tensors[after], self._tensor(term, shape)))
        if what.relu:
            operations.append(self._pointwise(dnn.RELU, tensors[stages[-1]], self._tensor(Y, what.y)))
        graph = Descriptor(library, dnn.OPERATION_GRAPH).set(800, dnn.HANDLE, library.handle)
        self.descriptor = graph.set(801, dnn.DESCRIPTOR, *operations).finalize()

    def _tensor(self, uid: int, shape: Sequence[int]) -> Descriptor:
        """Channels last; sums that are never stored are float32."""
        virtual = uid in (PRODUCT, SUM, BIASED)
        n, c, rows, columns = shape
        dtype = DType.FP32 if virtual else DType(self.what.dtype)
        made = Descriptor(self.library, dnn.TENSOR)
        made.set(901, dnn.DATA_TYPE, dnn.TYPES[dtype]).set(902, dnn.INT64, n, c, rows, columns)
        made.set(903, dnn.INT64, c * rows * columns, 1, columns * c, c).set(906, dnn.INT64, uid)
        return made.set(900, dnn.INT64, ALIGNMENT).set(907, dnn.BOOLEAN, virtual).finalize()

    def _convolution(self, y: Descriptor) -> Descriptor:
        w = self.what
        kind = Descriptor(self.library, dnn.CONVOLUTION).set(100, dnn.DATA_TYPE, dnn.TYPES[DType.FP32])
        kind.set(101, dnn.CONVOLUTION_MODE, dnn.CROSS_CORRELATION).set(102, dnn.INT64, *w.dilations)
        kind.set(103, dnn.INT64, *w.strides).set(104, dnn.INT64, *w.ends).set(105, dnn.INT64, *w.begins)
        kind.set(106, dnn.INT64, 2).finalize()
        made = Descriptor(self.library, dnn.OPERATION_CONVOLUTION)
        made.set(700, dnn.FLOAT, 1.0).set(701, dnn.FLOAT, 0.0).set(702, dnn.DESCRIPTOR, kind)
        made.set(703, dnn.DESCRIPTOR, self._tensor(W, w.w)).set(704, dnn.DESCRIPTOR, self._tensor(X, w.x))
        return made.set(705, dnn.DESCRIPTOR, y).finalize()

    def _pointwise(self, mode: int, x: Descriptor, y: Descriptor, b: Descriptor | None = None) -> Descriptor:
        kind = Descriptor(self.library, dnn.POINTWISE).set(0, dnn.POINTWISE_MODE, mode)
        kind.set(1, dnn.DATA_TYPE, dnn.TYPES[DType.FP32]).finalize()
        made = Descriptor(self.library, dnn.OPERATION_POINTWISE).set(750, dnn.DESCRIPTOR, kind)
        made.set(751, dnn.DESCRIPTOR, x)
        if b is not None:
            made.set(752, dnn.DESCRIPTOR, b)
        return made.set(753, dnn.DESCRIPTOR, y).finalize()

    def configurations(self) -> list[Descriptor]:
        """The library's guesses for an engine and its settings, the best first."""
        guesses = Descriptor(self.library, dnn.HEURISTICS).set(201, dnn.DESCRIPTOR, self.descriptor)
        guesses.set(200, dnn.HEUR_MODE, dnn.MODE_A).finalize()
        made = [Descriptor(self.library, dnn.ENGINE_CONFIG) for _ in range(guesses.count(202, dnn.DESCRIPTOR))]
        return made[: guesses.descriptors(202, made)] if made else []

    def plan(self, rank: int) -> bytes:
        """The text of the plan by one of the guesses; this may compile it."""
        plan = Descriptor(self.library, dnn.PLAN).set(400, dnn.HANDLE, self.library.handle)
        plan.set(401, dnn.DESCRIPTOR, self.configurations()[rank]).finalize()
        return bytes(plan.get(405, dnn.CHAR)).rstrip(b"\0")

    def guesses(self, most: int) -> tuple[Guess, ...]:
        """What is known of the first guesses."""
        return tuple(self._guess(c) for c in self.configurations()[:most])

    def _guess(self, configuration: Descriptor) -> Guess:
        engine = Descriptor(self.library, dnn.ENGINE)
        configuration.descriptors(300, [engine])
        (workspace,) = configuration.get(303, dnn.INT64)
        return Guess(int(workspace), dnn.RUNTIME_COMPILATION in engine.get(1305, dnn.BEHAVIOR_NOTE))


class Plan:
    """A plan that was kept as text. Raises LibraryFailure."""

    def __init__(self, library: Cudnn, what: Convolution, text: bytes) -> None:
        self.library, self.what = library, what
        made = Descriptor(library, dnn.PLAN).text(405, text)
        self.descriptor = made.set(400, dnn.HANDLE, library.handle).finalize()
        (self.workspace,) = self.descriptor.get(402, dnn.INT64)

    def bind(self, arguments: Sequence[int]) -> Plan:
        """All sizes are settled already."""
        return self

    def enqueue(self, arguments: Sequence[int], stream: int) -> None:
        """``arguments``: addresses of x, w, the bias, the residual, y, the workspace; 0 for what is not there."""
        given = dict(zip((X, W, BIAS, RESIDUAL, Y), arguments, strict=False))
        ids = self.what.ids
        pack = Descriptor(self.library, dnn.VARIANT_PACK).set(1000, dnn.INT64, *ids)
        pack.set(1001, dnn.VOID_PTR, *(given[i] for i in ids)).set(1003, dnn.VOID_PTR, arguments[5])
        self.library.execute(self.descriptor, pack.finalize(), stream)
