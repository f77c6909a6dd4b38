"""Requests and answers of the Open Inference Protocol, whatever they come over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tactix.base.arrays import Array
from tactix.base.errors import (
    ConfigError,
    DeadlineExceeded,
    EngineClosed,
    InvalidArgument,
    QueueFull,
    TactixError,
)
from tactix_serve.datatypes import TensorMetadata, from_bytes, from_values, to_bytes
from tactix_serve.metrics import ServerMetrics
from tactix_serve.repository import LoadedVersion, ModelNotFound, Repository
from tactix_serve.served_model import ServedModel
from tactix_serve.shared_memory import RegionSlice, SharedMemory
from tactix_serve.tracing import span

EXTENSIONS = ("binary_tensor_data", "model_repository(index)", "system_shared_memory")


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
    """``array`` is what it holds, unless it lies in the region that was asked for."""

    metadata: TensorMetadata
    array: Array
    wanted: WantedOutput


@dataclass(frozen=True)
class InferenceAnswer:
    model: str
    version: str
    outputs: Sequence[OutputTensor] = field(default_factory=list)
    id: str = ""


class InferenceService:
    """What both servers ask. ``stopping``: no more requests are taken."""

    def __init__(
        self, repository: Repository, shared_memory: SharedMemory, metrics: ServerMetrics
    ) -> None:
        self.repository, self.shared_memory = repository, shared_memory
        self.metrics, self.stopping = metrics, False

    @property
    def ready(self) -> bool:
        return self.repository.ready and not self.stopping

    async def infer(self, request: InferenceRequest) -> InferenceAnswer:
        """Raises ModelNotFound, InvalidArgument, QueueFull, DeadlineExceeded, EngineClosed, and
        what running raises.
        """
        start, model, outcome = time.perf_counter(), "", "error"
        self.metrics.began()
        try:
            if self.stopping:
                raise EngineClosed("the server is stopping", do="Ask another one")
            with self.repository.find(request.model, request.version) as loaded:
                model = loaded.name
                with span("infer", request.carrier, model=loaded.name, version=loaded.version):
                    answer = await self._infer(loaded, request)
            outcome = "ok"
            return answer
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except TactixError as e:
            outcome = outcome_of(e)
            raise
        finally:
            self.metrics.ended(model, outcome, time.perf_counter() - start)

    async def _infer(self, loaded: LoadedVersion, request: InferenceRequest) -> InferenceAnswer:
        wanted = _wanted(loaded.model, request)
        known = {m.name: m for m in loaded.model.inputs}
        feeds = {x.name: self._array(known, x) for x in request.inputs}
        if len(feeds) < len(request.inputs):
            raise InvalidArgument("an input is given twice")
        results = await _answered(loaded, feeds, request.timeout)
        metadata = {m.name: m for m in loaded.model.outputs}
        outputs = []
        for w in wanted:
            array = results[w.name]
            if w.region is not None:
                content = to_bytes(metadata[w.name].datatype, array)
                self.shared_memory.write(w.region, content)
            outputs.append(OutputTensor(metadata[w.name], array, w))
        return InferenceAnswer(loaded.name, loaded.version, outputs, request.id)

    def _array(self, known: Mapping[str, TensorMetadata], x: InputTensor) -> Array:
        wanted = known.get(x.name)
        if wanted is None:
            do = f"There are: {', '.join(known) or 'none'}"
            raise InvalidArgument(f"no input is named {x.name!r}", do=do)
        if x.datatype != wanted.datatype:
            raise InvalidArgument(f"input {x.name!r} is {wanted.datatype}, got {x.datatype}")
        if not _fits(x.shape, wanted.shape):
            what = f"input {x.name!r} is {list(wanted.shape)}, got {list(x.shape)}"
            raise InvalidArgument(what, do="-1 stands for any size")
        if x.region is not None:
            return from_bytes(x.name, x.datatype, x.shape, self.shared_memory.read(x.region))
        if x.content is not None:
            return from_bytes(x.name, x.datatype, x.shape, x.content)
        return from_values(x.name, x.datatype, x.shape, x.values)

    def update_metrics(self) -> None:
        """Those of the repository."""
        rows = self.repository.index()
        loads, failures = self.repository.loads, self.repository.failures
        self.metrics.repository(sum(r.ready for r in rows), loads, failures)


async def _answered(
    loaded: LoadedVersion, feeds: Mapping[str, Array], timeout: float | None
) -> Mapping[str, Array]:
    """Results by name; what a client can do about an error is told in its own terms."""
    try:
        return await loaded.model.infer(feeds, timeout)
    except QueueFull as e:
        do = "Try again later; max_queue and contexts in its config.toml allow more"
        raise QueueFull(e.what, who=loaded.name, do=do) from None
    except DeadlineExceeded as e:
        do = "Give the request more time, or the model more contexts in its config.toml"
        raise DeadlineExceeded(e.what, who=loaded.name, do=do) from None


def _wanted(model: ServedModel, request: InferenceRequest) -> Sequence[WantedOutput]:
    known = [m.name for m in model.outputs]
    if not request.outputs:
        return [WantedOutput(name, request.binary_outputs) for name in known]
    for w in request.outputs:
        if w.name not in known:
            do = f"There are: {', '.join(known)}"
            raise InvalidArgument(f"no output is named {w.name!r}", do=do)
    return request.outputs


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
        ConfigError: "invalid",
    }
    return next((k for kind, k in kinds.items() if isinstance(error, kind)), "error")
