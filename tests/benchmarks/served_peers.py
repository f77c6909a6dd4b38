#!/usr/bin/env python3
"""The server of ``tactix serve`` with another engine behind it: ONNX Runtime on the CPU, or
torch.compile in CUDA graphs.

``served`` starts it in processes of its own: ``python served_peers.py FOLDER --backend NAME``, which
tells its ports. A version's folder holds what the backend takes: ``model.onnx``, or for ``torch``
``model.pt``, a module that ``torch.save`` wrote and whose classes can be imported, and
``model.json``, what it takes and gives (``describe``).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import sys
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
from served_processes import Served, started

from tactix.base.logger import Logger, Severity
from tactix.run.run_times import QUICK
from tactix_serve.config import ModelConfig
from tactix_serve.datatypes import TensorMetadata, dtype_named
from tactix_serve.options import ServerOptions
from tactix_serve.served_model import ServedModel
from tactix_serve.server import ModelServer
from tactix_serve.supervisor import OPENS, Supervisor

Feeds = Mapping[str, Any]


# -- ONNX Runtime ---------------------------------------------------------------------------------


def onnxruntime_model(folder: Path, config: ModelConfig, cache: Path) -> ServedModel:
    """As tactix's own: on one thread a request and a request a core; at shapes where the least run
    took microseconds in the thread of the event loop.
    """
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        str(folder / "model.onnx"), settings, providers=["CPUExecutionProvider"]
    )
    kinds = {"tensor(float)": "FP32", "tensor(int64)": "INT64"}

    def metadata(io: Any) -> TensorMetadata:
        shape = tuple(d if isinstance(d, int) else -1 for d in io.shape)
        return TensorMetadata(io.name, kinds[io.type], shape)

    class SessionModel(ServedModel):
        platform = "onnxruntime_onnx"
        inputs = tuple(map(metadata, session.get_inputs()))
        outputs = tuple(map(metadata, session.get_outputs()))
        pool = ThreadPoolExecutor(os.cpu_count())
        least: dict[tuple[Any, ...], float] = {}

        async def infer(
            self, feeds: Feeds, timeout: float | None, outputs: Collection[str] | None = None
        ) -> Feeds:
            shapes = tuple(x.shape for x in feeds.values())
            if self.least.get(shapes, math.inf) <= QUICK:
                found = session.run(None, feeds)
            else:
                work = asyncio.get_running_loop().run_in_executor
                found = await work(self.pool, self.timed, shapes, feeds)
            return {m.name: y for m, y in zip(self.outputs, found, strict=True)}

        def timed(self, shapes: tuple[Any, ...], feeds: Feeds) -> Any:
            start = time.perf_counter()
            found = session.run(None, feeds)
            seconds = time.perf_counter() - start
            self.least[shapes] = min(seconds, self.least.get(shapes, math.inf))
            return found

        async def close(self) -> None:
            self.pool.shutdown(wait=False)

    return SessionModel()


# -- torch.compile --------------------------------------------------------------------------------


def describe(engine: Any, path: Path) -> None:
    """Writes what the engine takes and gives, for a peer that does the same."""
    from tactix_serve.served_model import EngineModel

    model = EngineModel(engine, ModelConfig())
    told = {side: [asdict(m) for m in getattr(model, side)] for side in ("inputs", "outputs")}
    path.write_text(json.dumps(told))


@dataclass(frozen=True)
class CapturedGraph:
    """A graph of the compiled module at one number of rows, and the arrays that it reads and
    writes. ``given`` and ``got`` lie in pinned memory of the host, ``feeds`` and ``found`` on the
    device.
    """

    replay: Any
    given: list[Any]
    feeds: list[Any]
    found: list[Any]
    got: list[Any]


class CompiledModule:
    """A module in float16 by torch.compile (its default mode), in a CUDA graph for each number of
    rows. All of it is used in one thread.
    """

    def __init__(self, path: Path, inputs: Sequence[TensorMetadata], rows: Sequence[int]) -> None:
        import torch

        module = torch.load(path, weights_only=False).eval().half().cuda()
        self._torch, self._module = torch, torch.compile(module, dynamic=False)
        self.graphs = {n: self._captured(inputs, n) for n in rows}

    def _captured(self, inputs: Sequence[TensorMetadata], rows: int) -> CapturedGraph:
        torch = self._torch
        given = []
        for m in inputs:
            zeros = np.zeros((rows, *m.shape[1:]), dtype_named(m.datatype).numpy)
            given.append(torch.from_numpy(zeros).pin_memory())
        feeds = [x.cuda().half() if x.is_floating_point() else x.cuda() for x in given]
        side = torch.cuda.Stream()
        with torch.no_grad(), torch.cuda.stream(side):
            for _ in range(3):
                self._module(*feeds)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            y = self._module(*feeds)
        found = list(y) if isinstance(y, (tuple, list)) else [y]
        got = [torch.empty(y.shape, dtype=y.dtype).pin_memory() for y in found]
        return CapturedGraph(graph.replay, given, feeds, found, got)

    def run(self, batch: Sequence[Feeds], names: Sequence[str], wanted: Sequence[bool]) -> Any:
        """Outputs that are wanted, in float32, a row for each of the batch; None for others."""
        rows = min(n for n in self.graphs if n >= len(batch))
        graph = self.graphs[rows]
        for name, host, device in zip(names, graph.given, graph.feeds, strict=True):
            for k, feeds in enumerate(batch):
                host[k].numpy()[...] = feeds[name][0]
            device.copy_(host, non_blocking=True)
        graph.replay()
        for want, device, host in zip(wanted, graph.found, graph.got, strict=True):
            if want:
                host.copy_(device, non_blocking=True)
        self._torch.cuda.current_stream().synchronize()
        pairs = zip(wanted, graph.got, strict=True)
        return [y.numpy()[: len(batch)].astype(np.float32) if w else None for w, y in pairs]


@dataclass(frozen=True)
class WaitingRow:
    feeds: Feeds
    answer: asyncio.Future[Any]
    since: float


class TorchModel(ServedModel):
    """Requests of one row, one by one or together as tactix's own are: what came within the window
    of the first, up to ``max_batch``, padded up to the next number of rows that has a graph.
    """

    platform = "torch_compile"

    def __init__(self, folder: Path, config: ModelConfig, wanted: Sequence[str]) -> None:
        told = json.loads((folder / "model.json").read_text())
        read = {side: [TensorMetadata(**{**m, "shape": tuple(m["shape"])}) for m in told[side]]
                for side in ("inputs", "outputs")}  # fmt: skip
        self.inputs, self.outputs = tuple(read["inputs"]), tuple(read["outputs"])
        self._wanted = [not wanted or m.name in wanted for m in self.outputs]
        batching = config.batching
        self._most = batching.max_batch if batching else 1
        self._window = batching.window if batching else 0.0
        self._thread = ThreadPoolExecutor(1)
        rows = sorted({*(4**k for k in range(5) if 4**k < self._most), self._most})
        path = folder / "model.pt"
        self._module = self._thread.submit(CompiledModule, path, self.inputs, rows).result()
        self._waiting: deque[WaitingRow] = deque()
        self._pump: asyncio.Task[None] | None = None

    async def infer(
        self, feeds: Feeds, timeout: float | None, outputs: Collection[str] | None = None
    ) -> Feeds:
        loop = asyncio.get_running_loop()
        row = WaitingRow(feeds, loop.create_future(), loop.time())
        self._waiting.append(row)
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._answer_all())
        found: Feeds = await row.answer
        return found

    async def _answer_all(self) -> None:
        loop, names = asyncio.get_running_loop(), [m.name for m in self.inputs]
        while self._waiting:
            left = self._waiting[0].since + self._window - loop.time()
            if len(self._waiting) < self._most and left > 0:
                await asyncio.sleep(min(left, 5e-4))
                continue
            count = min(self._most, len(self._waiting))
            batch = [self._waiting.popleft() for _ in range(count)]
            feeds = [r.feeds for r in batch]
            run = self._module.run
            found = await loop.run_in_executor(self._thread, run, feeds, names, self._wanted)
            for k, row in enumerate(batch):
                if not row.answer.done():
                    row.answer.set_result(self._row(found, k))

    def _row(self, found: Sequence[Any], k: int) -> Feeds:
        pairs = zip(self.outputs, found, strict=True)
        return {m.name: y[k : k + 1] for m, y in pairs if y is not None}

    async def close(self) -> None:
        self._thread.shutdown(wait=False)


def torch_model(folder: Path, config: ModelConfig, cache: Path) -> ServedModel:
    wanted = os.environ.get(WANTED, "")
    return TorchModel(folder, config, wanted.split(",") if wanted else [])


WANTED = "SERVED_PEER_OUTPUTS"
"""Outputs that clients ask for, with commas: others are not copied to the host."""

BACKENDS = {
    "tactix": OPENS,
    "onnxruntime": "served_peers:onnxruntime_model",
    "torch": "served_peers:torch_model",
}


# -- the server -----------------------------------------------------------------------------------


def serve(options: ServerOptions, backend: str, front_ends: int) -> None:
    """Tells its ports."""

    def told(ports: Any) -> None:
        print(f"http://127.0.0.1:{ports.http} grpc://127.0.0.1:{ports.grpc}", flush=True)

    logger, opens = Logger(Severity.ERROR), BACKENDS[backend]
    if front_ends > 1:
        asyncio.run(Supervisor(options, front_ends, logger, opens, told).serve())
        return
    opened = resolve_name(opens)
    server = ModelServer(options, logger, lambda f, c: opened(f, c, options.cache), told)
    asyncio.run(server.serve())


@contextmanager
def served(
    folder: Path, cache: Path, backend: str, front_ends: int, wanted: Sequence[str] = ()
) -> Iterator[Served]:
    """``wanted``: outputs that torch copies to the host; by default all."""
    command = [sys.executable, __file__, str(folder), "--backend", backend]
    command += ["--cache", str(cache), "--front-ends", str(front_ends)]
    here = str(Path(__file__).parent)
    given = filter(None, [here, os.environ.get("PYTHONPATH")])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(given), WANTED: ",".join(wanted)}
    with started(command, env) as server:
        yield server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path, help="a model repository")
    parser.add_argument("--backend", choices=tuple(BACKENDS), default="tactix")
    parser.add_argument("--cache", type=Path, required=True, help="where plans are kept")
    parser.add_argument("--front-ends", type=int, default=1)
    args = parser.parse_args()
    options = ServerOptions(args.folder, args.cache, http=0, grpc=0, poll=0.2)
    serve(options, args.backend, args.front_ends)


if __name__ == "__main__":
    main()
