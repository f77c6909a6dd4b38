"""HTTP/1.1 over sockets: requests as a parser cuts them out, answers in one write each."""

from __future__ import annotations

import asyncio
import http
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from typing import cast
from urllib.parse import unquote

import httptools

from tactix.base.errors import InvalidArgument
from tactix_serve.http_routes import HttpAnswer, HttpRequest
from tactix_serve.inference import RequestTooLarge

Application = Callable[[HttpRequest], Awaitable[HttpAnswer]]
Refusal = Callable[[Exception], HttpAnswer]

BACKLOG = 2048
"""Connections that wait to be taken."""
IDLE, SWEEP = 75.0, 10.0
"""Seconds after which a connection that asks nothing is closed, and between two looks."""
LINGER = 5.0
"""Seconds that a client whose request is refused has to read why: closed at once, a connection that
still sends would lose the answer.
"""
AHEAD = 16
"""Requests of a connection that wait for the answer of an earlier one before it is read no more."""
MOST_HEADERS = 1 << 16
"""Bytes of a request's headers and target."""
_PHRASES = {status.value: status.phrase for status in http.HTTPStatus}


class HttpServer:
    """Connections at a socket. ``application`` answers requests, ``refusal`` gives the answer for
    an error of their form. ``most``: bytes of a request.
    """

    def __init__(self, application: Application, refusal: Refusal, most: int) -> None:
        self.application, self.refusal, self.most = application, refusal, most
        self.connections = set[HttpConnection]()
        self.stopping, self._left = False, asyncio.Event()
        self._server: asyncio.Server | None = None
        self._sweeping: asyncio.Task[None] | None = None

    async def start(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: HttpConnection(self), sock=listener, backlog=BACKLOG
        )
        self._sweeping = loop.create_task(self._sweep())

    def left(self, connection: HttpConnection) -> None:
        """It is closed."""
        self.connections.discard(connection)
        if not self.connections:
            self._left.set()

    async def stop(self, grace: float) -> None:
        """No more connections; requests that are there have ``grace`` seconds."""
        assert self._server is not None
        assert self._sweeping is not None
        self.stopping = True
        self._sweeping.cancel()
        self._server.close()
        for connection in list(self.connections):
            connection.end()
        if self.connections:
            self._left.clear()
            try:
                await asyncio.wait_for(self._left.wait(), grace)
            except TimeoutError:
                for connection in list(self.connections):
                    connection.abort()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP)
            before = time.monotonic() - IDLE
            for connection in list(self.connections):
                connection.end_idle(before)


class HttpConnection(asyncio.Protocol):
    """Requests of a connection are answered one after the other. One that runs is cancelled when
    the client goes away.
    """

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[HttpRequest, bool]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._used, self._closing, self._refused = time.monotonic(), False, False
        self._clear()

    # -- the connection ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._server.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
        self._server.left(self)

    def end(self) -> None:
        """After what it has asked."""
        self._closing = True
        if self._transport is not None and self._task is None:
            self._transport.close()

    def end_idle(self, before: float) -> None:
        """If it has asked nothing since then."""
        if self._used < before and self._task is None:
            self.end()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- requests ---------------------------------------------------------------------------------

    def _clear(self) -> None:
        self._target, self._size, self._head_size = b"", 0, 0
        self._headers: dict[bytes, bytes] = {}
        self._parts = list[bytes]()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return  # read on, so that the client reads the answer
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as e:  # which nobody need heed
            if rest := data[e.args[0] :]:
                self.data_received(rest)
        except httptools.HttpParserError as e:
            cause = e.__context__ if isinstance(e.__context__, RequestTooLarge) else None
            self._refuse(cause or InvalidArgument("the request is no HTTP", why=str(e)))

    def on_url(self, part: bytes) -> None:
        self._target += part
        self._take_header(len(part))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value
        self._take_header(len(name) + len(value))

    def _take_header(self, size: int) -> None:
        self._head_size += size
        if self._head_size > MOST_HEADERS:
            raise RequestTooLarge(f"headers of more than {MOST_HEADERS} bytes", do="Send fewer")

    def on_headers_complete(self) -> None:
        told = self._headers.get(b"content-length", b"")
        if told.isdigit():
            self._check(int(told))
        if self._headers.get(b"expect", b"").lower() == b"100-continue" and self._transport:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, part: bytes) -> None:
        self._size += len(part)
        self._check(self._size)
        self._parts.append(part)

    def _check(self, size: int) -> None:
        most = self._server.most
        if size > most:
            what, why = f"a request of {size} bytes", f"the server takes {most}"
            raise RequestTooLarge(what, why=why, do="Start it with a larger --max-request-bytes")

    def on_message_complete(self) -> None:
        parts = self._parts
        body = memoryview(parts[0] if len(parts) == 1 else b"".join(parts))
        method = self._parser.get_method().decode("latin-1")
        request = HttpRequest(method, _path(self._target), self._headers, body)
        self._waiting.append((request, self._parser.should_keep_alive()))
        self._clear()
        if self._task is None:
            self._next()
        elif len(self._waiting) > AHEAD and self._transport is not None:
            self._transport.pause_reading()

    def _refuse(self, error: Exception) -> None:
        """What came is no request that is taken; nothing after it is one."""
        self._refused = self._closing = True
        if self._task is None and self._transport is not None:
            self._write(self._server.refusal(error), False, False)
            self._transport.write_eof()
            asyncio.get_running_loop().call_later(LINGER, self.abort)

    # -- answers ----------------------------------------------------------------------------------

    def _next(self) -> None:
        request, kept = self._waiting.popleft()
        self._task = asyncio.get_running_loop().create_task(self._answer(request, kept))

    async def _answer(self, request: HttpRequest, kept: bool) -> None:
        answer = await self._server.application(request)
        self._task, self._used = None, time.monotonic()
        if self._transport is None:
            return
        kept = kept and not self._closing and not self._server.stopping
        self._write(answer, kept, request.method == "HEAD")
        if not kept:
            self._transport.close()
        elif self._waiting:
            self._next()
            self._transport.resume_reading()

    def _write(self, answer: HttpAnswer, kept: bool, bare: bool) -> None:
        if self._transport is not None:
            head = _head(answer, kept)
            self._transport.writelines([head] if bare else [head, *answer.content])


def _path(target: bytes) -> str:
    """Of a request's target, which may name the server, too."""
    if target[:1] != b"/":
        try:
            target = httptools.parse_url(target).path or b"/"
        except httptools.HttpParserInvalidURLError:
            return ""
    path = target.partition(b"?")[0].decode("latin-1")
    return unquote(path) if "%" in path else path


def _head(answer: HttpAnswer, kept: bool) -> bytes:
    size = sum(x.nbytes if isinstance(x, memoryview) else len(x) for x in answer.content)
    status = answer.status
    lines = [
        f"HTTP/1.1 {status} {_PHRASES.get(status, '')}\r\ncontent-type: {answer.kind}\r\n"
        f"content-length: {size}\r\ndate: {_Clock.date()}\r\n"
    ]
    if answer.headers:
        lines += [f"{name.lower()}: {value}\r\n" for name, value in answer.headers.items()]
    lines.append("\r\n" if kept else "connection: close\r\n\r\n")
    return "".join(lines).encode("latin-1", "replace")


class _Clock:
    """The date as headers have it, made once a second."""

    _second, _text = 0, ""

    @classmethod
    def date(cls) -> str:
        now = int(time.time())
        if now != cls._second:
            cls._second, cls._text = now, formatdate(now, usegmt=True)
        return cls._text
