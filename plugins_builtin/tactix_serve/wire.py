"""What front ends and the engine's process of a server tell each other.

A head begins with its kind and, where an answer belongs to a request, the number of that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from typing import NamedTuple

from tactix.base import errors
from tactix.base.errors import TactixError
from tactix_serve.batch_axis import BatchRefused
from tactix_serve.datatypes import TensorMetadata
from tactix_serve.directory import BatchLimits, ModelDescription, ModelDirectory, ModelNotFound
from tactix_serve.frames import Head
from tactix_serve.inference import RequestTooLarge

INFER, CANCEL, COUNT, CALL = 1, 2, 3, 4
"""Of a front end: ``InferHead``; its number; model and outcome of a request that the front end
ended itself, with its seconds; number, name and arguments of something else that is asked.
"""
ANSWER, FAILURE, RESULT, DIRECTORY = 11, 12, 13, 14
"""Of the engine's process: ``AnswerHead``; number and an error; number and a value; what serves."""

Region = tuple[str, int, int]
"""Name, offset, bytes."""


class InputHead(NamedTuple):
    """``size``: bytes among the tensors of the message, unless it lies in a ``region``."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    size: int
    region: Region | None


class InferHead(NamedTuple):
    """A request, whose tensors follow in order. ``start``: when it came, by time.perf_counter,
    which is one clock for all processes of Linux. ``wanted``: outputs and where they go.
    """

    kind: int
    number: int
    model: str
    version: str
    timeout: float | None
    start: float
    wanted: tuple[tuple[str, Region | None], ...]
    inputs: tuple[tuple[str, str, tuple[int, ...], int, Region | None], ...]


class AnswerHead(NamedTuple):
    """``outputs``: datatype, shape and bytes of each, in the order in which they were asked for."""

    kind: int
    number: int
    version: str
    outputs: tuple[tuple[str, tuple[int, ...], int], ...]


# -- errors ---------------------------------------------------------------------------------------

_KINDS: Mapping[str, type[TactixError]] = {
    kind.__name__: kind
    for kind in (
        errors.ConfigError,
        errors.DataError,
        errors.DeadlineExceeded,
        errors.DTypeError,
        errors.EngineClosed,
        errors.ExecutionError,
        errors.InvalidArgument,
        errors.QueueFull,
        errors.ShapeError,
        BatchRefused,
        ModelNotFound,
        RequestTooLarge,
    )
}
"""That clients are told apart; any other is a TactixError to them."""


def error_row(error: BaseException) -> Head:
    """An error as a value."""
    if isinstance(error, TactixError):
        return (type(error).__name__, error.what, error.who, error.why, error.do)
    return ("", f"the server failed: {type(error).__name__}: {error}", "", "", "")


def error_of(row: Head) -> TactixError:
    """The error that a row tells."""
    name, what, who, why, do = row
    return _KINDS.get(name, TactixError)(what, who=who, why=why, do=do)


# -- the directory --------------------------------------------------------------------------------


def directory_rows(directory: ModelDirectory) -> Head:
    """What serves, and what could not be loaded."""
    serving = tuple(
        (
            *(d.name, d.version, d.platform, _tensor_rows(d.inputs), _tensor_rows(d.outputs)),
            None if d.batching is None else astuple(d.batching),
        )
        for d in directory.serving.values()
    )
    return serving, tuple((*key, why) for key, why in directory.failed.items())


def directory_of(rows: Head) -> ModelDirectory:
    """The directory that rows tell."""
    serving, failed = rows
    described = [
        ModelDescription(
            *(name, version, platform, tuple(_tensors(x)), tuple(_tensors(y))),
            None if limits is None else BatchLimits(*limits),
        )
        for name, version, platform, x, y, limits in serving
    ]
    return ModelDirectory({d.name: d for d in described}, {(n, v): why for n, v, why in failed})


def _tensor_rows(tensors: Sequence[TensorMetadata]) -> Head:
    return tuple((t.name, t.datatype, t.shape) for t in tensors)


def _tensors(rows: Sequence[tuple[str, str, tuple[int, ...]]]) -> Iterator[TensorMetadata]:
    for name, datatype, shape in rows:
        yield TensorMetadata(name, datatype, shape)
