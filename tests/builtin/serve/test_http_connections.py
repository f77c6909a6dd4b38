"""HTTP/1.1 as clients may speak it: pieces, several requests at once, ends, and what is refused."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

pytest.importorskip("httptools")

from tactix_serve.http_connections import HttpServer
from tactix_serve.http_routes import HttpAnswer, HttpRequest, as_json

GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[Any]]


class Application:
    """Tells what it was asked; ``/wait`` is answered when it is let go."""

    def __init__(self) -> None:
        self.go, self.waiting, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def __call__(self, request: HttpRequest) -> HttpAnswer:
        if request.path == "/wait":
            self.waiting.set()
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        text = f"{request.method} {request.path} {bytes(request.body).decode()}"
        return HttpAnswer([text.encode()[:3], memoryview(text.encode()[3:])], kind="text/plain")


def refusal(error: Exception) -> HttpAnswer:
    return as_json({"error": str(error)}, 400)


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and content of the next one."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in head[1:-2])
    content = await reader.readexactly(int(headers.get("content-length", 0)))
    return int(head[0].split()[1]), headers, content


def talked(talk: Callable[..., Awaitable[Any]], most: int = 1000) -> Any:
    """What a client saw, which is given the server, too."""

    async def work() -> Any:
        application = Application()
        server = HttpServer(application, refusal, most)
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        await server.start(listener)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            return await talk(reader, writer, server)
        finally:
            writer.close()
            application.go.set()
            await server.stop(10)
            assert not server.connections

    return asyncio.run(asyncio.wait_for(work(), 60))


def contents(data: bytes, count: int, piece: int = 1 << 20) -> list[tuple[int, bytes]]:
    """Status and content of so many answers to what is sent."""

    async def talk(reader: Any, writer: Any, server: Any) -> Any:
        for at in range(0, len(data), piece):
            writer.write(data[at : at + piece])
            await writer.drain()
            await asyncio.sleep(0)
        return [(await answer(reader))[::2] for _ in range(count)]

    found: list[tuple[int, bytes]] = talked(talk)
    return found


POST = b"POST /b%20c?q=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"POST /d HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: 1\r\n\r\n"
)


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_requests_in_pieces_and_several_at_once(piece: int) -> None:
    found = contents(GET + POST + CHUNKED + GET * 40, 43, piece)
    assert found[:3] == [(200, b"GET /a "), (200, b"POST /b c hello"), (200, b"POST /d hello")]
    assert found[3:] == [(200, b"GET /a ")] * 40


def test_forms_that_are_rare() -> None:
    whole = b"GET http://x:1/e/f?g HTTP/1.1\r\nHost: x\r\n\r\n"
    other = b"GET /h HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    assert contents(whole + other + GET, 3) == [
        (200, b"GET /e/f "),
        (200, b"GET /h "),
        (200, b"GET /a "),
    ]


def test_a_body_that_waits_to_be_asked_for() -> None:
    async def talk(reader: Any, writer: Any, server: Any) -> Any:
        head = b"POST /b HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        writer.write(head)
        assert (await answer(reader))[0] == 100
        writer.write(b"ok")
        return (await answer(reader))[2]

    assert talked(talk) == b"POST /b ok"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"nothing\r\n\r\n", "no HTTP"),
        (b"POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n", "1001 bytes"),
        (
            b"POST /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            + (b"200\r\n" + bytes(512) + b"\r\n") * 2,
            "1024 bytes",
        ),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", "headers of more than"),
        (b"GET / HTTP/1.1\r\n" + b"a: " + b"b" * 70_000 + b"\r\n\r\n", "headers of more than"),
    ],
)
def test_what_is_refused_ends_the_connection(data: bytes, text: str) -> None:
    async def talk(reader: Any, writer: Any, server: Any) -> Any:
        writer.write(data)
        status, headers, content = await answer(reader)
        assert (status, headers["connection"]) == (400, "close")
        assert text in content.decode()
        assert await reader.read() == b""
        writer.write(GET)  # which nobody answers

    talked(talk)


def test_connections_that_the_client_ends() -> None:
    async def talk(reader: Any, writer: Any, server: Any) -> Any:
        writer.write(b"HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"content-length: 8\r\n" in head
        assert b"GMT\r\n" in head
        writer.write(b"GET /a HTTP/1.0\r\n\r\n")
        assert (await answer(reader))[1]["connection"] == "close"
        assert await reader.read() == b""

    talked(talk)


def test_who_goes_away_is_not_answered() -> None:
    async def talk(reader: Any, writer: Any, server: Any) -> Any:
        writer.write(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n" + GET)
        await server.application.waiting.wait()
        writer.close()
        await server.application.cancelled.wait()

    talked(talk)


def test_who_asks_nothing_is_left() -> None:
    async def talk(reader: Any, writer: Any, server: Any) -> Any:
        writer.write(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
        await server.application.waiting.wait()
        (connection,) = server.connections
        connection.end_idle(float("inf"))  # it is being answered
        server.application.go.set()
        assert (await answer(reader))[0] == 200
        connection.end_idle(0.0)
        assert server.connections
        connection.end_idle(float("inf"))
        assert await reader.read() == b""

    talked(talk)


def test_requests_have_their_grace() -> None:
    async def talk(reader: Any, writer: Any, server: Any) -> Any:
        writer.write(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
        await server.application.waiting.wait()
        stopping = asyncio.create_task(server.stop(0.01))
        await server.application.cancelled.wait()
        await stopping

    async def answered(reader: Any, writer: Any, server: Any) -> Any:
        writer.write(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
        await server.application.waiting.wait()
        stopping = asyncio.create_task(server.stop(60))
        await asyncio.sleep(0)
        server.application.go.set()
        status, headers, _ = await answer(reader)
        assert (status, headers["connection"]) == (200, "close")
        await stopping

    talked(talk)
    talked(answered)
