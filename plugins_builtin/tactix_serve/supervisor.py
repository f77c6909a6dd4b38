"""A server of several processes: front ends that share ports, one process that has the models, and
this one, which starts them, starts them again when they end, and stops them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from tactix.base.errors import ConfigError, InvalidArgument
from tactix.base.logger import Logger
from tactix_serve.child import READY, ChildOrder
from tactix_serve.options import ServerOptions
from tactix_serve.ports import Listening, reserved
from tactix_serve.signals import heeding

OPENS = "tactix_serve.served_model:open_model"
ENGINE = "the engine's process"
MOST_AUTOMATIC = 8
"""Front ends at most where nobody says how many. One process with models takes what these bring."""
SOON, LATE, LONG = 0.1, 5.0, 10.0
"""Seconds until what has ended starts again, at first and at most; and how long it lived where the
next one starts at once.
"""
PATIENCE = 5.0
"""Seconds for a process to end beside the grace of requests."""


def automatic_front_ends() -> int:
    """Half of the cores, as clients, engines and front ends all want some; 1, which is no process
    of its own, where ports cannot be shared.
    """
    if sys.platform != "linux":
        return 1
    return max(1, min(MOST_AUTOMATIC, len(os.sched_getaffinity(0)) // 2))


@dataclass
class Child:
    """``listening``: whether it gets the socket of the engine's process. ``process``: the one that
    runs now, and ``control`` its socket.
    """

    name: str
    listening: bool
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    process: Process | None = None
    control: socket.socket | None = None


class Supervisor:
    """``opens``: ``module:function`` that opens the model of a version's folder, by default as an
    engine. ``ready`` is called when requests are taken. Raises ConfigError where the system shares
    no ports, InvalidArgument for no front ends.
    """

    def __init__(
        self,
        options: ServerOptions,
        front_ends: int,
        logger: Logger | None = None,
        opens: str = OPENS,
        ready: Callable[[Listening], object] = lambda ports: None,
    ) -> None:
        if sys.platform != "linux":
            do = "Serve with one front end, which is the process that has the models"
            raise ConfigError("front ends share ports on Linux alone", do=do)
        if front_ends < 1:
            raise InvalidArgument(f"{front_ends} front ends", do="Give 1 or more")
        self._options, self._logger, self._told = options, logger or Logger(), ready
        self._opens, self._stopping = opens, False
        self._children = [Child(ENGINE, True)]
        self._children += [Child(f"front end {i + 1}", False) for i in range(front_ends)]

    async def serve(self, stop: asyncio.Event | None = None) -> None:
        """Until ``stop`` is set, or SIGTERM or Ctrl-C comes. Then no request is taken, those that
        are there have the options' grace, and all processes end.

        Raises ConfigError for ports that are taken, and where a process ends before it serves.
        """
        stop = stop or asyncio.Event()
        with (
            heeding(stop),
            reserved(self._options.listen_at()) as ports,
            tempfile.TemporaryDirectory(prefix="tactix-serve-") as folder,
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening,
        ):
            place = str(Path(folder) / "engine")
            listening.bind(place)
            listening.listen(len(self._children))
            await self._run(ports, place, listening, stop)

    async def _run(
        self, ports: Listening, place: str, listening: socket.socket, stop: asyncio.Event
    ) -> None:
        options = replace(self._options, http=ports.http, grpc=ports.grpc)
        order = ChildOrder(-1, place, listening.fileno(), self._opens, options)
        keeping = [asyncio.create_task(self._keep(child, order)) for child in self._children]
        stopped = asyncio.create_task(stop.wait())
        serving = asyncio.create_task(self._serving(ports))
        try:
            done, _ = await asyncio.wait([stopped, *keeping], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopped}:
                task.result()  # what ended before it served
        finally:
            stopped.cancel()
            serving.cancel()
            await self._stop()
            for task in keeping:
                task.cancel()

    async def _serving(self, ports: Listening) -> None:
        for child in self._children:
            await child.ready.wait()
        self._told(ports)

    async def _keep(self, child: Child, order: ChildOrder) -> None:
        """A process of its kind, until the server stops. Raises ConfigError if none ever served."""
        wait = SOON
        while not self._stopping:
            began = time.monotonic()
            process = await self._start(child, order)
            code = await process.wait()
            if self._stopping:
                return
            if not child.ready.is_set():
                what = f"{child.name} ended with {code} before it served"
                raise ConfigError(what, do="Its messages tell why")
            lived = time.monotonic() - began
            wait = SOON if lived > LONG else min(LATE, 2 * wait)
            self._logger.error(f"{child.name} ended with {code}; it starts again")
            await asyncio.sleep(wait)

    async def _start(self, child: Child, order: ChildOrder) -> Process:
        """It has told that it serves, or has ended."""
        mine, theirs = socket.socketpair()
        mine.setblocking(False)
        listening = order.listening if child.listening else None
        told = replace(order, control=theirs.fileno(), listening=listening)
        given = [theirs.fileno(), *([] if listening is None else [listening])]
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tactix_serve.child", told.text(), pass_fds=given
            )
        if child.control is not None:
            child.control.close()
        child.process, child.control = process, mine
        self._logger.info(f"{child.name} is process {process.pid}")
        if await asyncio.get_running_loop().sock_recv(mine, 1) == READY:
            child.ready.set()
        return process

    async def _stop(self) -> None:
        """Front ends first, as their requests need the models."""
        self._stopping = True
        engine, *front_ends = self._children
        for group in (front_ends, [engine]):
            await asyncio.gather(*(self._ended(child) for child in group))

    async def _ended(self, child: Child) -> None:
        if child.process is None or child.control is None:
            return
        if child.ready.is_set():
            child.control.shutdown(socket.SHUT_WR)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(child.process.wait(), self._options.grace + PATIENCE)
        if child.process.returncode is None:
            child.process.kill()
            await child.process.wait()
        child.control.close()
