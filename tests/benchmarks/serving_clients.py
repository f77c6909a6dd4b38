"""Clients that cost little: requests are bytes that are made before, answers are read where they are
compared.
"""

from __future__ import annotations

import asyncio
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

DATATYPES = {"float32": "FP32", "int64": "INT64", "int32": "INT32"}
METHOD = "/inference.GRPCInferenceService/ModelInfer"
COMPARED, CHANNELS = 50, 4
"""One of ``COMPARED`` answers is compared. ``CHANNELS``: connections of a client over gRPC, which
the server's processes share.
"""
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class ClientOrder:
    """``rate``: requests a second of this client; 0: as fast as it is answered, ``outstanding`` at
    once. ``feeds``: different requests. ``want``: the engine's answers by output, for each.
    """

    protocol: str
    port: int
    model: str
    rate: float
    seconds: float
    feeds: Sequence[Arrays]
    want: Sequence[Arrays]
    outstanding: int = 64


@dataclass(frozen=True)
class ClientLoad:
    """Seconds of each answer; the largest departure; what failed; seconds of the processor."""

    times: list[float]
    departure: float
    failed: list[str]
    processor: float


class Wire(ABC):
    """How requests go."""

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    def request(self, feeds: Arrays, outputs: Sequence[str]) -> bytes: ...

    @abstractmethod
    async def ask(self, request: bytes) -> bytes:
        """The answer. Raises an error's text."""

    @abstractmethod
    def outputs(self, answer: bytes) -> dict[str, bytes]: ...

    @abstractmethod
    async def close(self) -> None: ...


class GrpcWire(Wire):
    def __init__(self, order: ClientOrder) -> None:
        from tactix_serve.messages import protocol

        self._order, self._made, self._next = order, protocol().messages, 0

    async def open(self) -> None:
        import grpc.aio

        options = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        place = f"127.0.0.1:{self._order.port}"
        self._channels = [grpc.aio.insecure_channel(place, options) for _ in range(CHANNELS)]
        self._asks = [channel.unary_unary(METHOD) for channel in self._channels]

    def request(self, feeds: Arrays, outputs: Sequence[str]) -> bytes:
        out = self._made["ModelInferRequest"](model_name=self._order.model)
        for name, x in feeds.items():
            out.inputs.add(name=name, datatype=DATATYPES[str(x.dtype)], shape=x.shape)
            out.raw_input_contents.append(x.tobytes())
        for name in outputs:
            out.outputs.add(name=name)
        return bytes(out.SerializeToString())

    async def ask(self, request: bytes) -> bytes:
        self._next = (self._next + 1) % CHANNELS
        return bytes(await self._asks[self._next](request))

    def outputs(self, answer: bytes) -> dict[str, bytes]:
        found = self._made["ModelInferResponse"].FromString(answer)
        return {
            row.name: raw for row, raw in zip(found.outputs, found.raw_output_contents, strict=True)
        }

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()


class HttpWire(Wire):
    """A connection for each request that runs, which is used again."""

    def __init__(self, order: ClientOrder) -> None:
        self._order, self._free = order, list[tuple[asyncio.StreamReader, Any]]()

    async def open(self) -> None:
        self._free = [await self._connected() for _ in range(self._order.outstanding)]

    async def _connected(self) -> tuple[asyncio.StreamReader, Any]:
        return await asyncio.open_connection("127.0.0.1", self._order.port)

    def request(self, feeds: Arrays, outputs: Sequence[str]) -> bytes:
        rows = [
            {
                "name": name,
                "datatype": DATATYPES[str(x.dtype)],
                "shape": x.shape,
                "parameters": {"binary_data_size": x.nbytes},
            }
            for name, x in feeds.items()
        ]
        wanted = [{"name": name, "parameters": {"binary_data": True}} for name in outputs]
        told = json.dumps({"inputs": rows, "outputs": wanted}).encode()
        body = told + b"".join(x.tobytes() for x in feeds.values())
        head = (
            f"POST /v2/models/{self._order.model}/infer HTTP/1.1\r\nHost: x\r\n"
            f"Inference-Header-Content-Length: {len(told)}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    async def ask(self, request: bytes) -> bytes:
        reader, writer = self._free.pop() if self._free else await self._connected()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(_field(head, b"content-length"))
        body = await reader.readexactly(length)
        self._free.append((reader, writer))
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(body.decode()[:200])
        return head + body

    def outputs(self, answer: bytes) -> dict[str, bytes]:
        head, _, body = answer.partition(b"\r\n\r\n")
        length = int(_field(head + b"\r\n", b"inference-header-content-length"))
        out, at = {}, length
        for row in json.loads(body[:length])["outputs"]:
            size = row["parameters"]["binary_data_size"]
            out[row["name"]] = body[at : at + size]
            at += size
        return out

    async def close(self) -> None:
        for _, writer in self._free:
            writer.close()


def _field(head: bytes, name: bytes) -> bytes:
    begin = head.index(name + b": ") + len(name) + 2
    return head[begin : head.index(b"\r\n", begin)]


WIRES: Mapping[str, type[Wire]] = {"grpc": GrpcWire, "http": HttpWire}  # type: ignore[type-abstract]


class Client:
    """A process of requests."""

    def __init__(self, order: ClientOrder) -> None:
        self._order, self._wire = order, WIRES[order.protocol](order)  # type: ignore[call-arg]
        self._requests = [
            self._wire.request(feeds, list(want))
            for feeds, want in zip(order.feeds, order.want, strict=True)
        ]
        self._times, self._failed, self._departure = list[float](), list[str](), 0.0

    async def run(self) -> ClientLoad:
        await self._wire.open()
        begin = time.process_time()
        await (self._at_rate() if self._order.rate else self._at_once())
        used = time.process_time() - begin
        await self._wire.close()
        return ClientLoad(self._times, self._departure, self._failed, used)

    async def _at_rate(self) -> None:
        begin, count = time.perf_counter(), int(self._order.rate * self._order.seconds)
        tasks = []
        for k in range(count):
            due = begin + k / self._order.rate
            if (left := due - time.perf_counter()) > 0:
                await asyncio.sleep(left)
            tasks.append(asyncio.create_task(self._one(k, due)))
        await asyncio.gather(*tasks)

    async def _at_once(self) -> None:
        end = time.perf_counter() + self._order.seconds

        async def again(k: int) -> None:
            while (now := time.perf_counter()) < end:
                await self._one(k, now)
                k += 1

        await asyncio.gather(*(again(k) for k in range(self._order.outstanding)))

    async def _one(self, k: int, due: float) -> None:
        k %= len(self._requests)
        try:
            answer = await self._wire.ask(self._requests[k])
        except Exception as e:
            self._failed.append(f"{type(e).__name__}: {e}"[:200])
            return
        self._times.append(time.perf_counter() - due)
        if len(self._times) % COMPARED == 1:
            self._compare(self._wire.outputs(answer), self._order.want[k])

    def _compare(self, found: Mapping[str, bytes], want: Arrays) -> None:
        for name, right in want.items():
            got = np.frombuffer(found[name], right.dtype).reshape(right.shape)
            apart = float(np.abs(got - right).max() / np.abs(right).max())
            self._departure = max(self._departure, apart)


def client(order: ClientOrder) -> ClientLoad:
    """In a process of its own."""
    return asyncio.run(Client(order).run())
