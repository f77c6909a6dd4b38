"""A server for a repository of models, over HTTP and gRPC, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from tactix.base.errors import ConfigError, InvalidArgument
from tactix.base.logger import Logger
from tactix_serve.grpc_server import GrpcFrontend
from tactix_serve.http_server import HttpFrontend
from tactix_serve.inference import InferenceService
from tactix_serve.metrics import ServerMetrics
from tactix_serve.repository import Opens, Repository
from tactix_serve.served_model import open_model
from tactix_serve.shared_memory import SharedMemory

SIGNALS = (signal.SIGTERM, signal.SIGINT)
HIGHEST_PORT, BACKLOG = 65535, 2048


@dataclass(frozen=True)
class ServerOptions:
    """``http``, ``grpc``: ports; 0 for any that is free, None for none. ``poll``: seconds between
    two looks at the folder. ``most``: bytes of a request. ``grace``: seconds that requests have
    when the server stops. ``cache``: folder for plans of models. Raises InvalidArgument.
    """

    models: Path
    cache: Path
    host: str = "127.0.0.1"
    http: int | None = 8000
    grpc: int | None = 8001
    poll: float = 2.0
    most: int = 64 << 20
    grace: float = 30.0
    shared_memory: bool = False

    def __post_init__(self) -> None:
        if not self.models.is_dir():
            do = "Give a folder with NAME/VERSION/model.plan or model.onnx"
            raise InvalidArgument(f"there is no folder {self.models}", do=do)
        if self.http is None and self.grpc is None:
            raise InvalidArgument("nothing is to be served", do="Give a port for HTTP or gRPC")
        for port in (self.http, self.grpc):
            if port is not None and not 0 <= port <= HIGHEST_PORT:
                raise InvalidArgument(f"port {port}", do=f"Give 0 to {HIGHEST_PORT}")
        if self.poll <= 0 or self.grace < 0 or self.most < 1:
            raise InvalidArgument("a time or size that is none", do="Give positive numbers")


@dataclass(frozen=True)
class Listening:
    """Ports that are served; None for none."""

    http: int | None
    grpc: int | None


class ModelServer:
    """``open_model``: gives the model of a version's folder; by default an engine's.

    ``ready`` is called when requests are taken.
    """

    def __init__(
        self,
        options: ServerOptions,
        logger: Logger | None = None,
        opens: Opens | None = None,
        ready: Callable[[Listening], object] = lambda ports: None,
    ) -> None:
        self._options, self._logger, self._told = options, logger or Logger(), ready
        self._opens = opens or (lambda folder, config: open_model(folder, config, options.cache))

    async def serve(self, stop: asyncio.Event | None = None) -> None:
        """Until ``stop`` is set, or SIGTERM or Ctrl-C comes where this is the main thread's loop.
        Then no request is taken, those that are there have ``grace`` seconds, and all is closed.

        Raises ConfigError for ports that are taken.
        """
        stop = stop or asyncio.Event()
        repository = Repository(self._options.models, self._opens, self._logger)
        memory = SharedMemory(self._options.shared_memory)
        service = InferenceService(repository, memory, ServerMetrics())
        with _heeding(stop):
            await repository.refresh()
            try:
                await self._listen(service, stop)
            finally:
                await repository.close()

    async def _listen(self, service: InferenceService, stop: asyncio.Event) -> None:
        http, http_port = self._http(service)
        rpc, rpc_port = await self._grpc(service)
        serving = None
        if http is not None:
            serving = asyncio.create_task(http[0].serve(sockets=[http[1]]))
        watching = asyncio.create_task(self._watch(service.repository))
        self._told(Listening(http_port, rpc_port))
        try:
            await stop.wait()
        finally:
            service.stopping = True
            watching.cancel()
            if rpc is not None:
                await rpc.stop(self._options.grace)
            if http is not None and serving is not None:
                http[0].should_exit = True
                await serving

    def _http(
        self, service: InferenceService
    ) -> tuple[tuple[uvicorn.Server, socket.socket] | None, int | None]:
        """Listening already, so that a port that is taken is told before anything serves."""
        if self._options.http is None:
            return None, None
        listener = _bound(self._options.host, self._options.http)
        config = uvicorn.Config(
            HttpFrontend(service, self._options.most).app(),
            log_config=None,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=max(1, round(self._options.grace)),
        )
        return (_QuietServer(config), listener), listener.getsockname()[1]

    async def _grpc(self, service: InferenceService) -> tuple[Any, int | None]:
        if self._options.grpc is None:
            return None, None
        server = GrpcFrontend(service).server(self._options.most)
        host = self._options.host
        place = f"[{host}]:{self._options.grpc}" if ":" in host else f"{host}:{self._options.grpc}"
        try:
            port = server.add_insecure_port(place)
        except RuntimeError as e:
            raise _taken(place, str(e)) from None
        await server.start()
        return server, port

    async def _watch(self, repository: Repository) -> None:
        while True:
            await asyncio.sleep(self._options.poll)
            try:
                await repository.refresh()
            except OSError as e:
                self._logger.error(f"{self._options.models} cannot be read: {e}")


class _QuietServer(uvicorn.Server):
    """Signals are the server's as a whole."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def _heeding(stop: asyncio.Event) -> Iterator[None]:
    """Signals set the event meanwhile, where the loop may have any."""
    loop, heard = asyncio.get_running_loop(), list[signal.Signals]()
    try:
        for number in SIGNALS:
            loop.add_signal_handler(number, stop.set)
            heard.append(number)
    except (NotImplementedError, RuntimeError, ValueError):
        pass  # not the main thread, or no POSIX
    try:
        yield
    finally:
        for number in heard:
            loop.remove_signal_handler(number)


def _bound(host: str, port: int) -> socket.socket:
    """With its protocol named: asyncio sends small answers at once on such sockets alone, and 40 ms
    later on others. Raises ConfigError.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as e:
        listener.close()
        raise _taken(f"{host}:{port}", str(e)) from None
    return listener


def _taken(place: str, why: str) -> ConfigError:
    return ConfigError(f"{place} cannot be served", why=why, do="Give another port or host")
