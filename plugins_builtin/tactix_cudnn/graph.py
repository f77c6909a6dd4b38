"""What cuDNN is asked for: operations over tensors, the library's guesses of engines for them, the
plans of these.

Plans are texts of the library's own, and hold for the version and the kind of device that made
them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any, ClassVar, Self

from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix_codegen.c.text import contiguous_strides
from tactix_cudnn import library as dnn
from tactix_cudnn.library import Cudnn, Descriptor
from tactix_cudnn.plan import Binding

ALIGNMENT = 16
"""Bytes at whose multiples tensors begin."""


class Operations:
    """Makes operations, in order, and their tensors. Raises LibraryFailure.

    Tensors without an id of the caller's are never stored.
    """

    def __init__(self, library: Cudnn) -> None:
        self.library = library
        self.made: list[Descriptor] = []
        self._ids = count(100)

    def tensor(
        self, dtype: DType, shape: Sequence[int], strides: Sequence[int] = (), uid: int = 0
    ) -> Descriptor:
        """Row-major where there are no strides."""
        return self._tensor(dtype, shape, strides or contiguous_strides(shape), uid).finalize()

    def scalar(self, dtype: DType, uid: int) -> Descriptor:
        """A number on the host, for tensors of four axes."""
        return self._tensor(dtype, (1,) * 4, (1,) * 4, uid).set(908, dnn.BOOLEAN, True).finalize()

    def _tensor(
        self, dtype: DType, shape: Sequence[int], strides: Sequence[Dim], uid: int
    ) -> Descriptor:
        made = Descriptor(self.library, dnn.TENSOR).set(901, dnn.DATA_TYPE, dnn.TYPES[dtype])
        made.set(902, dnn.INT64, *shape).set(903, dnn.INT64, *strides).set(
            906, dnn.INT64, uid or next(self._ids)
        )
        return made.set(900, dnn.INT64, ALIGNMENT).set(907, dnn.BOOLEAN, not uid)

    def pointwise(
        self,
        mode: int,
        y: Descriptor,
        *given: Descriptor,
        compute: DType = DType.FP32,
        axis: int = -1,
    ) -> Descriptor:
        """``given``: up to three tensors, which broadcast; gives y. ``axis``: the one whose indices
        are meant.
        """
        kind = Descriptor(self.library, dnn.POINTWISE).set(0, dnn.POINTWISE_MODE, mode)
        kind.set(1, dnn.DATA_TYPE, dnn.TYPES[compute])
        if axis >= 0:
            kind.set(9, dnn.INT64, axis)
        made = Descriptor(self.library, dnn.OPERATION_POINTWISE).set(
            750, dnn.DESCRIPTOR, kind.finalize()
        )
        for attribute, x in zip((751, 752, 758), given, strict=False):
            made.set(attribute, dnn.DESCRIPTOR, x)
        return self.add(made.set(753, dnn.DESCRIPTOR, y), y)

    def matmul(self, y: Descriptor, a: Descriptor, b: Descriptor) -> Descriptor:
        """The matrices of the last two axes; sums in float32; gives y."""
        kind = (
            Descriptor(self.library, dnn.MATMUL)
            .set(1500, dnn.DATA_TYPE, dnn.TYPES[DType.FP32])
            .finalize()
        )
        made = Descriptor(self.library, dnn.OPERATION_MATMUL).set(1523, dnn.DESCRIPTOR, kind)
        made.set(1520, dnn.DESCRIPTOR, a).set(1521, dnn.DESCRIPTOR, b)
        return self.add(made.set(1522, dnn.DESCRIPTOR, y), y)

    def reduction(self, mode: int, y: Descriptor, x: Descriptor) -> Descriptor:
        """Along the axes that have one element in y; in float32; gives y."""
        kind = Descriptor(self.library, dnn.REDUCTION).set(1600, dnn.REDUCTION_MODE, mode)
        kind.set(1601, dnn.DATA_TYPE, dnn.TYPES[DType.FP32]).finalize()
        made = Descriptor(self.library, dnn.OPERATION_REDUCTION).set(1612, dnn.DESCRIPTOR, kind)
        return self.add(made.set(1610, dnn.DESCRIPTOR, x).set(1611, dnn.DESCRIPTOR, y), y)

    def add(self, operation: Descriptor, y: Descriptor) -> Descriptor:
        """The next operation, which makes y; gives y."""
        self.made.append(operation.finalize())
        return y


@dataclass(frozen=True)
class CudnnWork:
    """What one plan computes, as data: numbers, texts and tuples of numbers. ``kind``: names the
    subclass.
    """

    kind: ClassVar[str]

    def operations(self, make: Operations) -> None:
        """Make them all. Raises LibraryFailure."""
        raise NotImplementedError(f"{self.kind}: operations")

    @property
    def binding(self) -> Binding:
        """The tensors that a plan is given addresses of, in the order of a call's arguments, and
        its numbers.
        """
        raise NotImplementedError(f"{self.kind}: binding")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, j: Mapping[str, Any]) -> Self:
        """What ``to_json`` gave."""
        return cls(**{name: tuple(x) if isinstance(x, list) else x for name, x in j.items()})


@dataclass(frozen=True)
class Guess:
    """Bytes of workspace of an engine with its settings, and whether its plan is compiled when it
    is made.
    """

    workspace: int
    compiles: bool


class CudnnGraph:
    """The operation graph on the device of a library. Raises LibraryFailure."""

    def __init__(self, library: Cudnn, what: CudnnWork) -> None:
        self.library, make = library, Operations(library)
        what.operations(make)
        graph = Descriptor(library, dnn.OPERATION_GRAPH).set(800, dnn.HANDLE, library.handle)
        self.descriptor = graph.set(801, dnn.DESCRIPTOR, *make.made).finalize()

    def configurations(self) -> list[Descriptor]:
        """The library's guesses for an engine and its settings, the best first."""
        guesses = Descriptor(self.library, dnn.HEURISTICS).set(201, dnn.DESCRIPTOR, self.descriptor)
        guesses.set(200, dnn.HEUR_MODE, dnn.MODE_A).finalize()
        made = [
            Descriptor(self.library, dnn.ENGINE_CONFIG)
            for _ in range(guesses.count(202, dnn.DESCRIPTOR))
        ]
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


@functools.lru_cache(4096)
def guesses(library: Cudnn, what: CudnnWork, most: int) -> tuple[Guess, ...]:
    """The library's first guesses. Raises LibraryFailure."""
    return CudnnGraph(library, what).guesses(most)
