#!/usr/bin/env python3
"""What batching brings a server: clients ask one plan over gRPC at a fixed rate, and as fast as it
answers, with batching and without.

    tactix build bert_base.onnx -o bert_base.plan --device cuda --precision fp16 \\
        --min-shapes ... --opt-shapes ... --max-shapes ...
    python tests/benchmarks/serving_rate.py bert_base.plan --model bert_base.onnx [--rate 2000]
        [--seconds 10] [--clients 8] [--max-batch 64] [--window 0.004] [--target 0.02]
        [--single one.plan] [--outputs pooled]

``--single``: a plan for requests one by one, perhaps tuned for one sample; by default the same.
Requests are of one sample; those at a rate begin when their time has come, whether earlier ones are
answered or not, as those of many users do. ``--outputs``: which are asked for; by default all.
Printed are answers a second, percentiles of the time from a request's due time to its answer, and
the largest departure from the engine's own answer. Exits with 1 if that is over 2 %, or a request
failed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from peer_inputs import make_inputs
from rounds import words

import tactix

DATATYPES = {"float32": "FP32", "int64": "INT64", "int32": "INT32"}
METHOD = "/inference.GRPCInferenceService/ModelInfer"
NAME, MOST, OUTSTANDING, DIFFERENT = "served", 0.02, 64, 8
"""``OUTSTANDING``: requests of a client at once, where it asks as fast as it is answered.
``DIFFERENT``: samples of a client.
"""


@dataclass(frozen=True)
class ClientOrder:
    """``rate``: requests a second of this client; 0: as fast as it is answered. ``want``: the
    engine's answers by output, for each sample.
    """

    port: int
    rate: float
    seconds: float
    feeds: Sequence[dict[str, Any]]
    want: Sequence[dict[str, Any]]


@dataclass(frozen=True)
class ClientLoad:
    """Seconds of each answer; the largest departure; what failed."""

    times: list[float]
    departure: float
    failed: list[str]


class Client:
    """A process of requests."""

    def __init__(self, order: ClientOrder) -> None:
        from tactix_serve.messages import protocol

        made = protocol().messages
        self._order, self._response = order, made["ModelInferResponse"]
        self._requests = [self._request(made["ModelInferRequest"], k) for k in range(DIFFERENT)]
        self._times, self._failed, self._departure = list[float](), list[str](), 0.0

    def _request(self, kind: Any, k: int) -> bytes:
        out = kind(model_name=NAME)
        for name, x in self._order.feeds[k].items():
            out.inputs.add(name=name, datatype=DATATYPES[str(x.dtype)], shape=x.shape)
            out.raw_input_contents.append(x.tobytes())
        for name in self._order.want[k]:
            out.outputs.add(name=name)
        return bytes(out.SerializeToString())

    async def run(self) -> ClientLoad:
        import grpc.aio

        options = [("grpc.max_receive_message_length", -1)]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self._order.port}", options) as channel:
            ask = channel.unary_unary(METHOD)
            await (self._at_rate(ask) if self._order.rate else self._at_once(ask))
        return ClientLoad(self._times, self._departure, self._failed)

    async def _at_rate(self, ask: Any) -> None:
        begin, count = time.perf_counter(), int(self._order.rate * self._order.seconds)
        tasks = []
        for k in range(count):
            due = begin + k / self._order.rate
            if (left := due - time.perf_counter()) > 0:
                await asyncio.sleep(left)
            tasks.append(asyncio.create_task(self._one(ask, k, due)))
        await asyncio.gather(*tasks)

    async def _at_once(self, ask: Any) -> None:
        end = time.perf_counter() + self._order.seconds

        async def again(k: int) -> None:
            while (now := time.perf_counter()) < end:
                await self._one(ask, k, now)

        await asyncio.gather(*(again(k) for k in range(OUTSTANDING)))

    async def _one(self, ask: Any, k: int, due: float) -> None:
        k %= DIFFERENT
        try:
            answer = await ask(self._requests[k])
        except Exception as e:
            self._failed.append(str(e)[:200])
            return
        self._times.append(time.perf_counter() - due)
        if len(self._times) % 50 == 1:
            self._compare(self._response.FromString(answer), self._order.want[k])

    def _compare(self, answer: Any, want: dict[str, Any]) -> None:
        for row, raw in zip(answer.outputs, answer.raw_output_contents, strict=True):
            right = want[row.name]
            got = np.frombuffer(raw, right.dtype).reshape(right.shape)
            apart = float(np.abs(got - right).max() / np.abs(right).max())
            self._departure = max(self._departure, apart)


def client(order: ClientOrder) -> ClientLoad:
    """In a process of its own."""
    return asyncio.run(Client(order).run())


@contextmanager
def serving(plan: Path, folder: Path, config: str) -> Iterator[int]:
    """A server of the plan; its gRPC port."""
    place = folder / NAME / "1"
    place.mkdir(parents=True, exist_ok=True)
    (place / "model.plan").write_bytes(plan.read_bytes())
    (folder / NAME / "config.toml").write_text(config)
    command = [sys.executable, __file__, "--serve", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(json.loads(process.stdout.readline()))
        finally:
            process.terminate()
            process.wait(60)


def serve(folder: Path) -> None:
    from tactix_serve.options import ServerOptions
    from tactix_serve.server import ModelServer

    options = ServerOptions(folder, folder / "cache", http=None, grpc=0)
    told = lambda ports: print(json.dumps(ports.grpc), flush=True)  # noqa: E731
    asyncio.run(ModelServer(options, ready=told).serve())


@dataclass(frozen=True)
class RateTable:
    """What the lines have in common."""

    args: argparse.Namespace
    feeds: list[dict[str, Any]]
    want: list[dict[str, Any]]
    pool: ProcessPoolExecutor

    def line(self, port: int, kind: str, rate: float) -> tuple[str, bool]:
        """Of one load; whether it was right."""
        count, seconds = self.args.clients, self.args.seconds
        order = ClientOrder(port, rate / count, seconds, self.feeds, self.want)
        begin = time.perf_counter()
        loads = list(self.pool.map(client, [order] * count))
        took = time.perf_counter() - begin
        times = np.sort([t for x in loads for t in x.times]) * 1e3
        failed = [f for x in loads for f in x.failed]
        departure = max(x.departure for x in loads)
        asked = f"{rate:g} a second" if rate else "at once"
        p50, p99 = np.percentile(times, (50, 99)) if len(times) else (np.nan, np.nan)
        cells = (kind, asked, f"{len(times) / took:.0f}", f"{p50:.2f}", f"{p99:.2f}")
        text = f"| {' | '.join(cells)} | {len(failed)} | {departure:.1e} |"
        if failed:
            text += f"\n{failed[0]}"
        return text, not failed and departure <= MOST


def table(args: argparse.Namespace) -> bool:
    feeds = [make_inputs(args.model, 1, seed) for seed in range(DIFFERENT)]
    engine = tactix.load(args.plan)
    context = engine.create_execution_context()
    answers = [context.run(feed) for feed in feeds]
    chosen = args.outputs or [io.name for io in engine.outputs]
    want = [{name: np.asarray(y[name]) for name in chosen} for y in answers]
    engine.close()
    batching = f"max_batch = {args.max_batch}\nwindow = {args.window}\ntarget = {args.target}"
    kinds = {"one by one": "max_queue = 4096\n", "batches": f"[batching]\n{batching}\n"}
    kinds["batches"] += "max_queue = 4096\n"
    print("| requests | load | answers a second | p50 ms | p99 ms | failed | departure |")
    print("|---|---|---|---|---|---|---|", flush=True)
    right = True
    with tempfile.TemporaryDirectory() as work, ProcessPoolExecutor(args.clients) as pool:
        rows = RateTable(args, feeds, want, pool)
        for kind, config in kinds.items():
            folder = Path(work) / kind.replace(" ", "_")
            alone = kind == "one by one" and args.single
            with serving(args.single if alone else args.plan, folder, config) as port:
                for rate in (0.0, args.rate):
                    text, good = rows.line(port, kind, rate)
                    right &= good
                    print(text, flush=True)
    return right


def main() -> int:
    if sys.argv[1:2] == ["--serve"]:
        serve(Path(sys.argv[2]))
        return 0
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("plan", type=Path)
    parser.add_argument("--single", type=Path)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--rate", type=float, default=2000.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--max-batch", type=int, default=64)
    parser.add_argument("--window", type=float, default=0.004)
    parser.add_argument("--target", type=float, default=0.02)
    parser.add_argument("--outputs", type=words, default=[])
    return int(not table(parser.parse_args()))


if __name__ == "__main__":
    raise SystemExit(main())
