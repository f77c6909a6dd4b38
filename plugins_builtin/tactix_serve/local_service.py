"""Requests that this process answers itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from tactix.base.arrays import Array
from tactix.base.errors import TactixError
from tactix_serve.datatypes import from_bytes, to_bytes
from tactix_serve.directory import ModelDescription, ModelDirectory
from tactix_serve.inference import (
    InferenceAnswer,
    InferenceRequest,
    InferenceService,
    InputTensor,
    OutputTensor,
    WantedOutput,
    checked_input,
    for_clients,
    input_array,
    outcome_of,
    refuse_twice,
    stopped,
    wanted_outputs,
)
from tactix_serve.metrics import ServerMetrics
from tactix_serve.repository import LoadedVersion, Repository
from tactix_serve.shared_memory import RegionState, SharedMemory
from tactix_serve.tracing import span


class LocalService(InferenceService):
    """On the models of a repository, in the event loop's process."""

    def __init__(self, repository: Repository, shared_memory: SharedMemory) -> None:
        self._repository, self._shared_memory = repository, shared_memory
        self._metrics = ServerMetrics()

    @property
    def directory(self) -> ModelDirectory:
        return self._repository.directory

    async def infer(self, request: InferenceRequest) -> InferenceAnswer:
        start, outcome = time.perf_counter(), "error"
        loaded: LoadedVersion | None = None
        self._metrics.began()
        try:
            if self.stopping:
                raise stopped()
            loaded = self._repository.find(request.model, request.version)
            with loaded:
                model, version = loaded.described.name, loaded.described.version
                with span("infer", request.carrier, model=model, version=version):
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
            self._metrics.ended(loaded, outcome, time.perf_counter() - start)

    async def _infer(self, loaded: LoadedVersion, request: InferenceRequest) -> InferenceAnswer:
        described = loaded.described
        wanted = wanted_outputs(described, request)
        feeds = {x.name: self._array(described, x) for x in request.inputs}
        refuse_twice(request.inputs)
        try:
            names = [w.name for w in wanted]
            results = await loaded.model.infer(feeds, request.timeout, names)
        except TactixError as e:
            raise for_clients(e, described.name) from None
        outputs = self._outputs(described, wanted, results)
        return InferenceAnswer(described.name, described.version, outputs, request.id)

    def _array(self, described: ModelDescription, x: InputTensor) -> Array:
        checked_input(described, x)
        if x.region is not None:
            return from_bytes(x.name, x.datatype, x.shape, self._shared_memory.read(x.region))
        return input_array(x)

    def _outputs(
        self,
        described: ModelDescription,
        wanted: Sequence[WantedOutput],
        results: Mapping[str, Array],
    ) -> list[OutputTensor]:
        metadata, out = {m.name: m for m in described.outputs}, list[OutputTensor]()
        for w in wanted:
            array = results[w.name]
            content = memoryview(to_bytes(metadata[w.name].datatype, array))
            size = content.nbytes
            if w.region is not None:
                self._shared_memory.write(w.region, content)
                content = content[:0]
            out.append(OutputTensor(metadata[w.name], array.shape, content, size, w))
        return out

    async def metrics(self) -> bytes:
        return self._metrics.of(self._repository)

    async def statistics(self, model: str, version: str) -> Sequence[Mapping[str, object]]:
        return self._repository.statistics(model, version)

    async def regions(self, name: str) -> Sequence[RegionState]:
        return self._shared_memory.regions(name)

    async def register(self, region: RegionState) -> None:
        self._shared_memory.register(region)

    async def unregister(self, name: str) -> None:
        self._shared_memory.unregister(name)
