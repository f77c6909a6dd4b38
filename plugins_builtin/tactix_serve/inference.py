"""Requests and answers of the Open Inference Protocol, whatever they come over."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tactix.base.arrays import Array
from tactix.base.errors import (
    ConfigError,
    DataError,
    DeadlineExceeded,
    EngineClosed,
    InvalidArgument,
    QueueFull,
    TactixError,
)
from tactix_serve.datatypes import TensorMetadata, from_bytes, from_values
from tactix_serve.directory import ModelDescription, ModelDirectory, ModelNotFound
from tactix_serve.shared_memory import RegionSlice, RegionState

EXTENSIONS = (
    "binary_tensor_data",
    "model_configuration",
    "model_repository(index)",
    "statistics",
    "system_shared_memory",
)


class RequestTooLarge(TactixError):
    """A message with more bytes than the server takes."""


@dataclass(frozen=True)
class InputTensor:
    """An input as it came: ``content`` in bytes, ``values`` as JSON has them, or in a region."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    content: memoryview | None = None
    values: object = None
    region: RegionSlice | None = None


@dataclass(frozen=True)
class WantedOutput:
    """``binary``: as bytes behind the JSON. ``region``: where it is to be written."""

    name: str
    binary: bool = False
    region: RegionSlice | None = None


@dataclass(frozen=True)
class InferenceRequest:
    """``outputs``: none stands for all. ``timeout``: seconds. ``carrier``: headers, which may name
    the span that it belongs to.
    """

    model: str
    version: str
    inputs: Sequence[InputTensor]
    outputs: Sequence[WantedOutput] = ()
    id: str = ""
    timeout: float | None = None
    binary_outputs: bool = False
    carrier: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OutputTensor:
    """``content``: its bytes, of ``size`` in all; empty where they lie in the region that was asked
    for.
    """

    metadata: TensorMetadata
    shape: tuple[int, ...]
    content: bytes | memoryview
    size: int
    wanted: WantedOutput


@dataclass(frozen=True)
class InferenceAnswer:
    model: str
    version: str
    outputs: Sequence[OutputTensor] = field(default_factory=list)
    id: str = ""


def stopped() -> EngineClosed:
    """For a request that comes when no more are taken."""
    return EngineClosed("the server is stopping", do="Ask another one")


class InferenceService(ABC):
    """What both servers ask. ``stopping``: no more requests are taken."""

    stopping: bool = False

    @property
    @abstractmethod
    def directory(self) -> ModelDirectory:
        """What serves now."""

    @property
    def ready(self) -> bool:
        return self.directory.ready and not self.stopping

    @abstractmethod
    async def infer(self, request: InferenceRequest) -> InferenceAnswer:
        """Raises ModelNotFound, InvalidArgument, QueueFull, DeadlineExceeded, EngineClosed, and
        what running raises.
        """

    @abstractmethod
    async def metrics(self) -> bytes:
        """In Prometheus' format."""

    @abstractmethod
    async def statistics(self, model: str, version: str) -> Sequence[Mapping[str, object]]:
        """Of one model, or of all, by the words of Triton's extension. Raises ModelNotFound."""

    @abstractmethod
    async def regions(self, name: str) -> Sequence[RegionState]:
        """One of the shared memory, or all. Raises InvalidArgument."""

    @abstractmethod
    async def register(self, region: RegionState) -> None:
        """Raises InvalidArgument, ConfigError."""

    @abstractmethod
    async def unregister(self, name: str) -> None:
        """One, or all."""


def checked_input(described: ModelDescription, x: InputTensor) -> TensorMetadata:
    """What the model says of it. Raises InvalidArgument where they do not fit."""
    wanted = next((m for m in described.inputs if m.name == x.name), None)
    if wanted is None:
        do = f"There are: {', '.join(m.name for m in described.inputs) or 'none'}"
        raise InvalidArgument(f"no input is named {x.name!r}", do=do)
    if x.datatype != wanted.datatype:
        raise InvalidArgument(f"input {x.name!r} is {wanted.datatype}, got {x.datatype}")
    if not _fits(x.shape, wanted.shape):
        what = f"input {x.name!r} is {list(wanted.shape)}, got {list(x.shape)}"
        raise InvalidArgument(what, do="-1 stands for any size")
    return wanted


def input_array(x: InputTensor) -> Array:
    """Of one that lies in no region. Raises InvalidArgument."""
    if x.content is not None:
        return from_bytes(x.name, x.datatype, x.shape, x.content)
    return from_values(x.name, x.datatype, x.shape, x.values)


def refuse_twice(inputs: Sequence[InputTensor]) -> None:
    """Raises InvalidArgument."""
    if len({x.name for x in inputs}) < len(inputs):
        raise InvalidArgument("an input is given twice")


def wanted_outputs(
    described: ModelDescription, request: InferenceRequest
) -> Sequence[WantedOutput]:
    """Raises InvalidArgument for one that there is not."""
    known = [m.name for m in described.outputs]
    if not request.outputs:
        return [WantedOutput(name, request.binary_outputs) for name in known]
    for w in request.outputs:
        if w.name not in known:
            do = f"There are: {', '.join(known)}"
            raise InvalidArgument(f"no output is named {w.name!r}", do=do)
    return request.outputs


def for_clients(error: TactixError, model: str) -> TactixError:
    """The error in the terms of a client, who can do other things about it than a caller."""
    if isinstance(error, QueueFull):
        do = "Try again later; max_queue and contexts in its config.toml allow more"
        return QueueFull(error.what, who=model, do=do)
    if isinstance(error, DeadlineExceeded):
        do = "Give the request more time, or the model more contexts in its config.toml"
        return DeadlineExceeded(error.what, who=model, do=do)
    return error


def _fits(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    return len(shape) == len(wanted) and all(w in (-1, n) for n, w in zip(shape, wanted))


def outcome_of(error: TactixError) -> str:
    """Of a request that ended so, in metrics."""
    kinds: Mapping[type[TactixError], str] = {
        QueueFull: "refused",
        DeadlineExceeded: "expired",
        ModelNotFound: "not_found",
        RequestTooLarge: "invalid",
        InvalidArgument: "invalid",
        DataError: "invalid",
        ConfigError: "invalid",
    }
    return next((k for kind, k in kinds.items() if isinstance(error, kind)), "error")
