"""The process of a server that has the models: it answers what front ends hand to it."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from tactix.base.arrays import Array
from tactix.base.errors import InvalidArgument, TactixError
from tactix_serve.datatypes import OBJECTS, dtype_named, from_bytes, to_bytes
from tactix_serve.directory import ModelNotFound
from tactix_serve.frames import Buffer, FrameLink, Head, padded
from tactix_serve.inference import for_clients, outcome_of
from tactix_serve.metrics import ServerMetrics
from tactix_serve.repository import LoadedVersion, Repository
from tactix_serve.shared_memory import RegionSlice, RegionState, SharedMemory
from tactix_serve.wire import (
    ANSWER,
    CALL,
    CANCEL,
    COUNT,
    DIRECTORY,
    FAILURE,
    INFER,
    RESULT,
    InferHead,
    directory_rows,
    error_row,
)


@cache
def _numpy(datatype: str) -> np.dtype[Any]:
    return dtype_named(datatype).numpy


class EngineHost:
    """The models of a repository, for any number of front ends, each at a socket."""

    def __init__(self, repository: Repository, shared_memory: SharedMemory) -> None:
        self.repository, self.shared_memory = repository, shared_memory
        self.metrics = ServerMetrics()
        self._sessions = set[FrontEndSession]()
        repository.watchers.append(self._tell_all)

    def join(self, end: socket.socket) -> None:
        """A front end, which is told what serves, now and whenever that changes."""
        session = FrontEndSession(self, end, self._sessions.discard)
        self._sessions.add(session)
        session.tell_directory()

    def _tell_all(self) -> None:
        for session in self._sessions:
            session.tell_directory()

    def close(self) -> None:
        """Front ends are told nothing any more."""
        for session in list(self._sessions):
            session.close()


class FrontEndSession:
    """What a front end asks, which may be gone before it is answered."""

    def __init__(
        self, host: EngineHost, end: socket.socket, ended: Callable[[FrontEndSession], object]
    ) -> None:
        self.host, self._ended = host, ended
        self.running: dict[int, asyncio.Future[Mapping[str, Array]]] = {}
        self._tasks = set[asyncio.Task[None]]()
        self._hears: Mapping[int, Callable[[Head, memoryview], None]] = {
            INFER: self._infer,
            CANCEL: self._cancel,
            COUNT: self._count,
            CALL: self._call,
        }
        self.link = FrameLink(end, self._heard, self._gone)

    def tell_directory(self) -> None:
        self.link.send((DIRECTORY, *directory_rows(self.host.repository.directory)))

    def close(self) -> None:
        self.link.close()
        self._gone()

    def _gone(self) -> None:
        """Nobody waits for what runs."""
        for answer in list(self.running.values()):
            answer.cancel()
        self._ended(self)

    def _heard(self, head: Head, tensors: memoryview) -> None:
        self._hears[head[0]](head, tensors)

    # -- inference --------------------------------------------------------------------------------

    def _infer(self, head: Head, tensors: memoryview) -> None:
        asked, host = InferHead(*head), self.host
        host.metrics.began()
        try:
            loaded = host.repository.find(asked.model, asked.version)
        except TactixError as e:
            self._failed(asked, None, e)
            return
        try:
            feeds = self._feeds(asked.inputs, tensors)
            answer = loaded.model.ask(feeds, asked.timeout, [name for name, _ in asked.wanted])
        except Exception as e:  # whatever it is, the others are served on
            self._failed(asked, loaded, e)
            return
        loaded.__enter__()
        self.running[asked.number] = answer
        answer.add_done_callback(partial(self._answered, asked, loaded))

    def _feeds(self, inputs: Sequence[Any], tensors: memoryview) -> dict[str, Array]:
        """Over the bytes that came."""
        feeds, at = dict[str, Array](), 0
        for name, datatype, shape, size, region in inputs:
            if region is not None:
                found = self.host.shared_memory.read(RegionSlice(*region))
                feeds[name] = from_bytes(name, datatype, shape, found)
                continue
            if datatype == OBJECTS:
                feeds[name] = from_bytes(name, datatype, shape, tensors[at : at + size])
            else:
                feeds[name] = np.ndarray(shape, _numpy(datatype), tensors, at if size else 0)
            at += padded(size)
        return feeds

    def _answered(
        self,
        asked: InferHead,
        loaded: LoadedVersion,
        answer: asyncio.Future[Mapping[str, Array]],
    ) -> None:
        loaded.__exit__()
        del self.running[asked.number]
        if answer.cancelled():
            self._count_ended(asked, loaded, "cancelled")
            return
        error = answer.exception()
        try:
            if error is not None:
                raise error
            rows, content = self._outputs(asked, loaded.datatypes, answer.result())
        except Exception as e:  # as above
            self._failed(asked, loaded, e)
            return
        version = loaded.described.version
        self.link.send((ANSWER, asked.number, version, rows), content)
        self._count_ended(asked, loaded, "ok")

    def _outputs(
        self, asked: InferHead, datatypes: Mapping[str, str], results: Mapping[str, Array]
    ) -> tuple[Head, list[Buffer]]:
        """Rows of an answer, and what follows it."""
        rows, behind = list[Head](), list[Buffer]()
        for name, region in asked.wanted:
            array = results[name]
            content = memoryview(to_bytes(datatypes[name], array))
            rows.append((datatypes[name], array.shape, content.nbytes))
            if region is None:
                behind.append(content)
            else:
                self.host.shared_memory.write(RegionSlice(*region), content)
        return tuple(rows), behind

    def _failed(self, asked: InferHead, loaded: LoadedVersion | None, error: Exception) -> None:
        outcome = "error"
        if isinstance(error, TactixError):
            outcome, error = outcome_of(error), for_clients(error, asked.model)
        self.link.send((FAILURE, asked.number, *error_row(error)))
        self._count_ended(asked, loaded, outcome)

    def _count_ended(self, asked: InferHead, loaded: LoadedVersion | None, outcome: str) -> None:
        self.host.metrics.ended(loaded, outcome, time.perf_counter() - asked.start)

    def _cancel(self, head: Head, tensors: memoryview) -> None:
        answer = self.running.get(head[1])
        if answer is not None:
            answer.cancel()

    def _count(self, head: Head, tensors: memoryview) -> None:
        _, model, outcome, seconds = head
        try:
            loaded = self.host.repository.find(model)
        except ModelNotFound:  # or gone meanwhile
            loaded = None
        self.host.metrics.began()
        self.host.metrics.ended(loaded, outcome, seconds)

    # -- what else is asked -----------------------------------------------------------------------

    def _call(self, head: Head, tensors: memoryview) -> None:
        _, number, name, *arguments = head
        try:
            value = self._value(name, arguments)
        except Exception as e:  # as above
            self.link.send((FAILURE, number, *error_row(e)))
        else:
            self.link.send((RESULT, number, value))

    def _value(self, name: str, arguments: Sequence[Any]) -> object:
        """Raises InvalidArgument, ConfigError, ModelNotFound."""
        memory = self.host.shared_memory
        if name == "metrics":
            return self.host.metrics.of(self.host.repository)
        if name == "statistics":
            return self.host.repository.statistics(*arguments)
        if name == "regions":
            found = memory.regions(*arguments)
            return tuple((r.name, r.key, r.offset, r.size) for r in found)
        if name == "register":
            memory.register(RegionState(*arguments))
        elif name == "unregister":
            memory.unregister(*arguments)
        else:
            raise InvalidArgument(f"nothing is called {name!r}")
        return None
