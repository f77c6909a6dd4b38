"""Ports, and both protocols at them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import grpc.aio
import uvicorn

from tactix_serve.grpc_server import GrpcFrontend
from tactix_serve.http_server import HttpFrontend
from tactix_serve.inference import InferenceService
from tactix_serve.ports import ListenAt, Listening, bound, place, port_taken

BACKLOG = 2048
"""Connections of HTTP that wait to be taken."""


class Listener:
    """Answers both protocols by a service."""

    def __init__(self, service: InferenceService, at: ListenAt) -> None:
        self._service, self._at = service, at
        self._http: uvicorn.Server | None = None
        self._grpc: grpc.aio.Server | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> Listening:
        """Raises ConfigError for ports that are taken."""
        at, listener, http = self._at, None, None
        if at.http is not None:
            listener = bound(at.host, at.http, at.shared)
            listener.listen(BACKLOG)
            http = listener.getsockname()[1]
        grpc_port = await self._start_grpc()
        if listener is not None:
            self._http = self._uvicorn()
            self._serving = asyncio.create_task(self._http.serve(sockets=[listener]))
        return Listening(http, grpc_port)

    def _uvicorn(self) -> uvicorn.Server:
        config = uvicorn.Config(
            HttpFrontend(self._service, self._at.most).app(),
            log_config=None,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=max(1, round(self._at.grace)),
        )
        return _QuietServer(config)

    async def _start_grpc(self) -> int | None:
        at = self._at
        if at.grpc is None:
            return None
        self._grpc = GrpcFrontend(self._service).server(at.most, at.shared)
        try:
            port: int = self._grpc.add_insecure_port(place(at.host, at.grpc))
        except RuntimeError as e:
            raise port_taken(place(at.host, at.grpc), str(e)) from None
        await self._grpc.start()
        return port

    async def stop(self) -> None:
        """No request is taken any more; those that are there have their grace."""
        self._service.stopping = True
        if self._grpc is not None:
            await self._grpc.stop(self._at.grace)
        if self._http is not None and self._serving is not None:
            self._http.should_exit = True
            await self._serving


class _QuietServer(uvicorn.Server):
    """Signals are the server's as a whole."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
