"""Requests that another process answers: what a front end has in place of models."""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tactix.base.errors import EngineClosed, TactixError
from tactix_serve.datatypes import TensorMetadata, to_bytes
from tactix_serve.directory import ModelDescription, ModelDirectory
from tactix_serve.frames import Buffer, FrameLink, Head, padded
from tactix_serve.inference import (
    InferenceAnswer,
    InferenceRequest,
    InferenceService,
    InputTensor,
    OutputTensor,
    WantedOutput,
    checked_input,
    input_array,
    outcome_of,
    refuse_twice,
    stopped,
    wanted_outputs,
)
from tactix_serve.shared_memory import RegionSlice, RegionState
from tactix_serve.tracing import span
from tactix_serve.wire import (
    CALL,
    CANCEL,
    COUNT,
    DIRECTORY,
    FAILURE,
    INFER,
    Region,
    directory_of,
    error_of,
)

AGAIN = 0.05
"""Seconds between two attempts to reach the other process."""
Told = tuple[Head, memoryview]


class RemoteService(InferenceService):
    """What listens at a socket of this machine, at the path ``at``, answers. While nothing does
    requests are refused; those that run when it ends are EngineClosed.
    """

    def __init__(self, at: str) -> None:
        self._at, self._numbers = at, itertools.count()
        self._link: FrameLink | None = None
        self._directory: ModelDirectory | None = None
        self._waiting: dict[int, asyncio.Future[Told]] = {}
        self._lost, self.connected = asyncio.Event(), asyncio.Event()

    @property
    def directory(self) -> ModelDirectory:
        if self._directory is None:
            raise _unreachable()
        return self._directory

    @property
    def ready(self) -> bool:
        return self._directory is not None and super().ready

    # -- the other process ------------------------------------------------------------------------

    async def keep_connected(self) -> None:
        """Until it is cancelled. ``connected`` is set when it is known for the first time what
        serves.
        """
        while True:
            end = await self._reached()
            self._lost.clear()
            self._link = FrameLink(end, self._heard, self._ended)
            try:
                await self._lost.wait()
            finally:
                self._link.close()

    async def _reached(self) -> socket.socket:
        while True:
            end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                end.setblocking(False)
                await asyncio.get_running_loop().sock_connect(end, self._at)
                return end
            except OSError:
                end.close()
                await asyncio.sleep(AGAIN)

    def _ended(self) -> None:
        """The other process is gone, or was replaced."""
        self._directory = None
        for waiting in self._waiting.values():
            if not waiting.done():
                do = "Ask again: it starts anew"
                waiting.set_exception(EngineClosed("the process that ran the model ended", do=do))
        self._lost.set()

    def _heard(self, head: Head, tensors: memoryview) -> None:
        kind, number = head[0], head[1]
        if kind == DIRECTORY:
            self._directory = directory_of(head[1:])
            self.connected.set()
            return
        waiting = self._waiting.get(number)
        if waiting is None or waiting.done():
            return
        if kind == FAILURE:
            waiting.set_exception(error_of(head[2:]))
        else:
            waiting.set_result((head, tensors))

    async def _asked(self, kind: int, rest: Head, tensors: Sequence[Buffer] = ()) -> Told:
        """The answer. Cancelled, the request is given up. Raises TactixError."""
        link, number = self._link, next(self._numbers)
        if self._directory is None or link is None:
            raise _unreachable()
        answer: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        link.send((kind, number, *rest), tensors)
        try:
            return await answer
        except asyncio.CancelledError:
            link.send((CANCEL, number))
            raise
        finally:
            del self._waiting[number]

    # -- inference --------------------------------------------------------------------------------

    async def infer(self, request: InferenceRequest) -> InferenceAnswer:
        start, model = time.perf_counter(), ""
        try:
            if self.stopping:
                raise stopped()
            described = self.directory.find(request.model, request.version)
            model = described.name
            wanted = wanted_outputs(described, request)
            rows, tensors = _inputs(described, request.inputs)
        except TactixError as e:
            self._count(model, outcome_of(e), time.perf_counter() - start)
            raise
        places = tuple((w.name, _region(w.region)) for w in wanted)
        rest = (model, request.version, request.timeout, start, places, rows)
        with span("infer", request.carrier, model=model, version=described.version):
            head, content = await self._asked(INFER, rest, tensors)
        return _answer(described, request, wanted, head, content)

    def _count(self, model: str, outcome: str, seconds: float) -> None:
        if self._link is not None:
            self._link.send((COUNT, model, outcome, seconds))

    # -- what else is asked -----------------------------------------------------------------------

    async def _called(self, name: str, *arguments: object) -> Any:
        head, _ = await self._asked(CALL, (name, *arguments))
        return head[2]

    async def metrics(self) -> bytes:
        found: bytes = await self._called("metrics")
        return found

    async def statistics(self, model: str, version: str) -> Sequence[Mapping[str, object]]:
        found: Sequence[Mapping[str, object]] = await self._called("statistics", model, version)
        return found

    async def regions(self, name: str) -> Sequence[RegionState]:
        return [RegionState(*row) for row in await self._called("regions", name)]

    async def register(self, region: RegionState) -> None:
        await self._called("register", region.name, region.key, region.offset, region.size)

    async def unregister(self, name: str) -> None:
        await self._called("unregister", name)


def _unreachable() -> EngineClosed:
    return EngineClosed("the process that runs models starts again", do="Try again later")


def _inputs(
    described: ModelDescription, inputs: Sequence[InputTensor]
) -> tuple[Head, list[Buffer]]:
    """Rows of a head, and the tensors that follow it. Raises InvalidArgument."""
    rows, tensors = list[Head](), list[Buffer]()
    refuse_twice(inputs)
    for x in inputs:
        checked_input(described, x)
        size = 0
        if x.region is None:
            content = memoryview(to_bytes(x.datatype, input_array(x)))
            tensors.append(content)
            size = content.nbytes
        rows.append((x.name, x.datatype, x.shape, size, _region(x.region)))
    return tuple(rows), tensors


def _region(place: RegionSlice | None) -> Region | None:
    return None if place is None else (place.region, place.offset, place.size)


def _answer(
    described: ModelDescription,
    request: InferenceRequest,
    wanted: Sequence[WantedOutput],
    head: Head,
    content: memoryview,
) -> InferenceAnswer:
    """Of the version that ran, which may have come meanwhile."""
    _, _, version, rows = head
    outputs, at = list[OutputTensor](), 0
    for w, (datatype, shape, size) in zip(wanted, rows, strict=True):
        mine = content[at : at + size] if w.region is None else content[:0]
        at += padded(mine.nbytes)
        metadata = TensorMetadata(w.name, datatype, shape)
        outputs.append(OutputTensor(metadata, shape, mine, size, w))
    return InferenceAnswer(described.name, version, outputs, request.id)
