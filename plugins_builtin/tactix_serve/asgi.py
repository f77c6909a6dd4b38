"""Requests and answers over ASGI: no more than the protocol needs, as each of its requests passes
here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tactix_serve.inference import RequestTooLarge

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

PARAMETER = "{"
"""What begins a part of a path that stands for any name."""


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


class HttpRequest:
    """``path``: what the parts of the path are, by their names in the route."""

    def __init__(self, scope: Mapping[str, Any], receive: Receive, path: Mapping[str, str]) -> None:
        self.path, self._receive = path, receive
        self._headers: dict[bytes, bytes] = dict(scope["headers"])

    def header(self, name: str) -> str | None:
        """``name``: in small letters."""
        found = self._headers.get(name.encode())
        return None if found is None else found.decode("latin-1")

    def headers(self) -> dict[str, str]:
        return {k.decode("latin-1"): v.decode("latin-1") for k, v in self._headers.items()}

    async def body(self, most: int) -> memoryview:
        """Raises RequestTooLarge before more than ``most`` bytes are held; ClientGone."""
        told = self._headers.get(b"content-length", b"")
        if told.isdigit() and int(told) > most:
            raise _too_large(int(told), most)
        parts, size, more = list[bytes](), 0, True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            part = message.get("body", b"")
            more, size = message.get("more_body", False), size + len(part)
            if size > most:
                raise _too_large(size, most)
            parts.append(part)
        return memoryview(parts[0] if len(parts) == 1 else b"".join(parts))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Around what a client that goes away cancels. Raises ClientGone then. The body has been
        read.
        """
        watch = DisconnectWatch(self._receive)
        try:
            yield
        except asyncio.CancelledError:
            if watch.gone:
                watch.task.uncancel()
                raise ClientGone from None
            raise
        finally:
            watch.end()


class DisconnectWatch:
    """Cancels the current task when the client goes away. It begins to look when the loop goes on:
    an answer that is there before costs nothing.
    """

    def __init__(self, receive: Receive) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self.task, self.gone, self._receive = task, False, receive
        self._begin = loop.call_soon(self._watch)
        self._watching: asyncio.Task[None] | None = None

    def _watch(self) -> None:
        self._watching = asyncio.get_running_loop().create_task(self._wait())

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        self.task.cancel()

    def end(self) -> None:
        self._begin.cancel()
        if self._watching is not None:
            self._watching.cancel()


@dataclass(frozen=True)
class HttpAnswer:
    content: bytes
    status: int = 200
    kind: str = "application/json"
    headers: Mapping[str, str] | None = None

    async def send(self, send: Send) -> None:
        headers = [
            (b"content-type", self.kind.encode()),
            (b"content-length", str(len(self.content)).encode()),
        ]
        for name, value in (self.headers or {}).items():
            headers.append((name.lower().encode(), value.encode("latin-1", "replace")))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.content})


def as_json(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> HttpAnswer:
    """An answer in JSON."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return HttpAnswer(text.encode("utf-8", "replace"), status, headers=headers)


Handler = Callable[[HttpRequest], Awaitable[HttpAnswer]]


@dataclass(frozen=True)
class HttpRoute:
    """``path``: parts in braces are names that the handler gets."""

    method: str
    path: str
    handler: Handler


class HttpRouter:
    """The handler of a path and a method."""

    def __init__(self, routes: Sequence[HttpRoute]) -> None:
        self._routes: dict[int, list[tuple[list[str], HttpRoute]]] = {}
        for route in routes:
            parts = route.path.split("/")
            self._routes.setdefault(len(parts), []).append((parts, route))

    def find(self, method: str, path: str) -> tuple[Handler | None, dict[str, str], bool]:
        """The handler, None if there is none; parts of the path by name; and whether there is one
        for another method.
        """
        given = path.removesuffix("/").split("/")
        method, known = "GET" if method == "HEAD" else method, False
        for parts, route in self._routes.get(len(given), ()):
            named = _matched(parts, given)
            if named is None:
                continue
            if route.method == method:
                return route.handler, named, True
            known = True
        return None, {}, known


def _matched(parts: Sequence[str], given: Sequence[str]) -> dict[str, str] | None:
    named = dict[str, str]()
    for part, text in zip(parts, given, strict=True):
        if part[:1] == PARAMETER and text:
            named[part[1:-1]] = text
        elif part != text:
            return None
    return named


def _too_large(size: int, most: int) -> RequestTooLarge:
    what, why = f"a request of {size} bytes", f"the server takes {most}"
    return RequestTooLarge(what, why=why, do="Start it with a larger --max-request-bytes")
