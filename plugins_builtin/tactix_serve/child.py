"""A process of a server that has several: python -m tactix_serve.child ORDER.

It is one of the front ends, or the one that has the models. It serves until its supervisor closes
the control socket, or is gone; signals are the supervisor's.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from tactix.base.errors import TactixError
from tactix.base.logger import Logger, Severity
from tactix_serve.options import ServerOptions

READY = b"r"


@dataclass(frozen=True)
class ChildOrder:
    """``control``: descriptor of the supervisor's socket. ``engine``: the path where the engine's
    process listens; ``listening``: the descriptor of that socket, in the order for that process,
    None in those for front ends. ``opens``: ``module:function`` that opens models.
    """

    control: int
    engine: str
    listening: int | None
    opens: str
    options: ServerOptions

    def text(self) -> str:
        """As the process gets it."""
        return json.dumps(asdict(self), default=str)


def read_order(text: str) -> ChildOrder:
    """What ``ChildOrder.text`` said."""
    given = json.loads(text)
    told = given.pop("options")
    models, cache = (Path(told.pop(name)) for name in ("models", "cache"))
    return ChildOrder(**given, options=ServerOptions(models, cache, **told))


class Supervision:
    """A child's view of its supervisor."""

    def __init__(self, control: int) -> None:
        self._control = socket.socket(fileno=control)
        self._control.setblocking(False)

    async def ready(self) -> None:
        """It serves."""
        await asyncio.get_running_loop().sock_sendall(self._control, READY)

    async def ended(self) -> None:
        """Until it is to stop."""
        await asyncio.get_running_loop().sock_recv(self._control, 1)


Ending = Callable[[], Coroutine[Any, Any, None]]


async def serve(order: ChildOrder) -> None:
    """Until the supervisor says so, or is gone; even where nothing is ready then."""
    supervision = Supervision(order.control)
    started = asyncio.create_task(_front_end(order) if order.listening is None else _engine(order))
    ended = asyncio.create_task(supervision.ended())
    await asyncio.wait((started, ended), return_when=asyncio.FIRST_COMPLETED)
    if not started.done():
        started.cancel()
        return
    ending = started.result()
    await supervision.ready()
    await ended
    await ending()


async def _front_end(order: ChildOrder) -> Ending:
    """Speaks the protocols. It listens when it knows what serves."""
    from tactix_serve.listening import Listener
    from tactix_serve.remote_service import RemoteService

    service = RemoteService(order.engine)
    keeping = asyncio.create_task(service.keep_connected())
    await service.connected.wait()
    listener = Listener(service, order.options.listen_at(shared=True))
    await listener.start()

    async def ending() -> None:
        await listener.stop()
        keeping.cancel()

    return ending


async def _engine(order: ChildOrder) -> Ending:
    """Has the models. It takes front ends when these are loaded."""
    from tactix_serve.engine_host import EngineHost
    from tactix_serve.repository import Repository
    from tactix_serve.shared_memory import SharedMemory

    options, opens = order.options, resolve_name(order.opens)
    repository = Repository(
        options.models,
        lambda folder, config: opens(folder, config, options.cache),
        Logger(Severity.INFO),
    )
    host = EngineHost(repository, SharedMemory(options.shared_memory))
    await repository.refresh()
    listening = socket.socket(fileno=order.listening)
    listening.setblocking(False)
    working = [
        asyncio.create_task(_accept(listening, host.join)),
        asyncio.create_task(repository.watch(options.poll)),
    ]

    async def ending() -> None:
        for task in working:
            task.cancel()
        host.close()
        await repository.close()

    return ending


async def _accept(listening: socket.socket, join: Callable[[socket.socket], None]) -> None:
    loop = asyncio.get_running_loop()
    while True:
        end, _ = await loop.sock_accept(listening)
        join(end)


def main() -> int:
    """Of the process."""
    order = read_order(sys.argv[1])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    try:
        asyncio.run(serve(order))
    except TactixError as e:
        Logger(Severity.INFO).error(str(e))
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
