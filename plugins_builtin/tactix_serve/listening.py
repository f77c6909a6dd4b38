"""Ports, and both protocols at them."""

from __future__ import annotations

import grpc.aio

from tactix_serve.grpc_server import GrpcFrontend
from tactix_serve.http_connections import BACKLOG, HttpServer
from tactix_serve.http_server import HttpFrontend, error_answer
from tactix_serve.inference import InferenceService
from tactix_serve.ports import ListenAt, Listening, bound, place, port_taken


class Listener:
    """Answers both protocols by a service."""

    def __init__(self, service: InferenceService, at: ListenAt) -> None:
        self._service, self._at = service, at
        self._http: HttpServer | None = None
        self._grpc_frontend = GrpcFrontend(service)
        self._grpc: grpc.aio.Server | None = None

    async def start(self) -> Listening:
        """Raises ConfigError for ports that are taken."""
        at, listener, http = self._at, None, None
        if at.http is not None:
            listener = bound(at.host, at.http, at.shared)
            listener.listen(BACKLOG)
            http = listener.getsockname()[1]
        grpc_port = await self._start_grpc()
        if listener is not None:
            application = HttpFrontend(self._service).app()
            self._http = HttpServer(application, error_answer, at.most)
            await self._http.start(listener)
        return Listening(http, grpc_port)

    async def _start_grpc(self) -> int | None:
        at = self._at
        if at.grpc is None:
            return None
        self._grpc = self._grpc_frontend.server(at.most, at.shared)
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
            await self._grpc_frontend.stop(self._grpc, self._at.grace)
        if self._http is not None:
            await self._http.stop(self._at.grace)
