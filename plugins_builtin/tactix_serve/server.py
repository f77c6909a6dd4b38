"""A server for a repository of models, over HTTP and gRPC, until it is told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tactix.base.logger import Logger
from tactix_serve.listening import Listener
from tactix_serve.local_service import LocalService
from tactix_serve.options import ServerOptions
from tactix_serve.ports import Listening, check_free
from tactix_serve.repository import Opens, Repository
from tactix_serve.served_model import open_model
from tactix_serve.shared_memory import SharedMemory
from tactix_serve.signals import heeding


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
        at = self._options.listen_at()
        check_free(at)
        stop = stop or asyncio.Event()
        repository = Repository(self._options.models, self._opens, self._logger)
        service = LocalService(repository, SharedMemory(self._options.shared_memory))
        with heeding(stop):
            await repository.refresh()
            try:
                listener = Listener(service, at)
                ports = await listener.start()
                watching = asyncio.create_task(repository.watch(self._options.poll))
                self._told(ports)
                try:
                    await stop.wait()
                finally:
                    watching.cancel()
                    await listener.stop()
            finally:
                await repository.close()
