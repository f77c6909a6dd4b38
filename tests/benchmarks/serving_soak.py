"""Does the server stay right, quick and small under load? Clients of NVIDIA's over HTTP and gRPC ask
three models with mixed shapes, check every answer, and give some requests up, while versions come,
break and go.

    python tests/benchmarks/serving_soak.py --seconds 900
    python tests/benchmarks/serving_soak.py --seconds 120 --peer onnxruntime
    python tests/benchmarks/serving_soak.py --seconds 180 --peer onnxruntime --models DIR --only mlp

With ``--peer`` the same server serves the same models once by tactix and once by ONNX Runtime, both
without batching, on one thread a request and a request a core; both run what takes microseconds in
the thread of the event loop. Load goes to each in turns, model by model, and ratios are those of
turns that follow each other. ``--models``: ONNX files in place of the three small ones.
``--cache``: keep plans there, so that another run builds nothing. Needs
``tritonclient[http,grpc]``. Exits with 1 if an answer was wrong, or an error came that nobody asked
for.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import multiprocessing
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serving_workloads import (
    Sample,
    ServedFile,
    exported_models,
    load_samples,
    mlp,
    save_samples,
    small_models,
)

from tactix.run.request_stats import LatencyHistogram
from tactix.run.run_times import QUICK

RELOAD, GIVEN_UP = 5.0, 0.02
"""Seconds between reloads; the share of requests that is given up."""
DATATYPES = {"float32": "FP32", "int64": "INT64"}


# -- the server -----------------------------------------------------------------------------------


def serve(folder: Path, cache: Path, backend: str) -> None:
    """In a process of its own; tells its ports."""
    from tactix_serve.options import ServerOptions
    from tactix_serve.server import ModelServer

    opens = onnxruntime_model if backend == "onnxruntime" else None
    options = ServerOptions(folder, cache, http=0, grpc=0, poll=0.2)
    told = lambda ports: print(json.dumps([ports.http, ports.grpc]), flush=True)  # noqa: E731
    asyncio.run(ModelServer(options, opens=opens, ready=told).serve())


def onnxruntime_model(folder: Path, config: Any) -> Any:
    """As tactix's own: on one thread a request and a request a core; at shapes where the least run
    took microseconds in the thread of the event loop.
    """
    import onnxruntime

    from tactix_serve.datatypes import TensorMetadata
    from tactix_serve.served_model import ServedModel

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

        async def infer(self, feeds: Any, timeout: float | None) -> Any:
            shapes = tuple(x.shape for x in feeds.values())
            if self.least.get(shapes, math.inf) <= QUICK:
                found = session.run(None, feeds)
            else:
                work = asyncio.get_running_loop().run_in_executor
                found = await work(self.pool, self.timed, shapes, feeds)
            return {m.name: y for m, y in zip(self.outputs, found, strict=True)}

        def timed(self, shapes: tuple[Any, ...], feeds: Any) -> Any:
            start = time.perf_counter()
            found = session.run(None, feeds)
            seconds = time.perf_counter() - start
            self.least[shapes] = min(seconds, self.least.get(shapes, math.inf))
            return found

        async def close(self) -> None:
            self.pool.shutdown(wait=False)

    return SessionModel()


def repository(folder: Path, files: Mapping[str, ServedFile]) -> None:
    for name, file in files.items():
        file.put(folder / name / "1")
        text = f"threads = 1\nwarm_up = false\n{file.config}"
        (folder / name / "config.toml").write_text(text)


@dataclass
class Served:
    """A server that runs. ``pid``: of its process."""

    folder: Path
    pid: int
    http: int
    grpc: int

    def resident(self) -> float:
        """MiB."""
        text = Path(f"/proc/{self.pid}/status").read_text()
        (line,) = (x for x in text.splitlines() if x.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def processor(self) -> float:
        """Seconds of all cores so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def served(folder: Path, cache: Path, backend: str) -> Iterator[Served]:
    command = [sys.executable, __file__, "--serve", str(folder), "--backend", backend]
    command += ["--cache", str(cache)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            http, grpc = json.loads(process.stdout.readline())
            yield Served(folder, process.pid, http, grpc)
        finally:
            process.terminate()
            code = process.wait(60)
            if code:
                print(f"the server ended with {code}")


def reload_models(
    folder: Path, file: ServedFile, stop: threading.Event, told: Counter[str]
) -> None:
    """A new version every RELOAD seconds; each third is broken, and taken away again."""
    version = 1
    while not stop.wait(RELOAD):
        version += 1
        file.put(folder / "mlp" / str(version), mlp(version))
        told["reloads"] += 1
        if version % 3 == 0:
            broken = folder / "mlp" / str(version + 1000)
            broken.mkdir()
            (broken / "model.onnx").write_bytes(b"no model")
            told["broken versions"] += 1
        for old in sorted((folder / "mlp").iterdir()):
            if old.is_dir() and int(old.name) not in (version, version - 1, version + 1000):
                shutil.rmtree(old)


# -- clients --------------------------------------------------------------------------------------


@dataclass
class Load:
    """What clients of one protocol saw."""

    right: int = 0
    wrong: int = 0
    given_up: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    latency: LatencyHistogram = field(default_factory=LatencyHistogram)
    seconds: float = 0.0

    def answered(self, seconds: float, fits: bool) -> None:
        self.latency.add(seconds)
        self.right, self.wrong = self.right + fits, self.wrong + (not fits)


@dataclass(frozen=True)
class Order:
    """What a process of clients is to do. ``samples``: the file of them. ``models``: by name."""

    samples: Path
    models: tuple[str, ...]
    ports: tuple[int, int]
    seconds: float
    seed: int
    threads: int
    given_up: float


def load(protocol: str, order: Order) -> Load:
    """In a process of its own."""
    known = {name: x for name, x in load_samples(order.samples).items() if name in order.models}
    with ThreadPoolExecutor(order.threads) as pool:
        seeds = [order.seed * 100 + i for i in range(order.threads)]
        asked = [pool.submit(Client(protocol, order, seed, known).ask) for seed in seeds]
        return merged([x.result() for x in asked])


def merged(loads: list[Load]) -> Load:
    out = Load(seconds=max(x.seconds for x in loads))
    for x in loads:
        out.right, out.wrong = out.right + x.right, out.wrong + x.wrong
        out.given_up += x.given_up
        out.errors += x.errors
        out.latency.merge(x.latency)
    return out


class Client:
    """Asks one request after the other."""

    def __init__(
        self, protocol: str, order: Order, seed: int, known: Mapping[str, list[Sample]]
    ) -> None:
        import importlib

        self._module = importlib.import_module(f"tritonclient.{protocol}")
        self._protocol, self._order, self._random = protocol, order, random.Random(seed)
        self._port = order.ports[protocol == "grpc"]
        self._requests = [(n, s, self._inputs(s)) for n, samples in known.items() for s in samples]

    def _inputs(self, sample: Sample) -> list[Any]:
        out = []
        for name, x in sample.feeds.items():
            given = self._module.InferInput(name, list(x.shape), DATATYPES[str(x.dtype)])
            given.set_data_from_numpy(x)
            out.append(given)
        return out

    def ask(self) -> Load:
        """Until the time is over."""
        out, start = Load(), time.perf_counter()
        client = self._module.InferenceServerClient(f"127.0.0.1:{self._port}")
        while time.perf_counter() - start < self._order.seconds:
            name, sample, given = self._random.choice(self._requests)
            if self._random.random() < self._order.given_up:
                _give_up(self._protocol, client, self._port, name, given)
                out.given_up += 1
            else:
                self._one(client, name, sample, given, out)
        out.seconds = time.perf_counter() - start
        client.close()
        return out

    def _one(self, client: Any, name: str, sample: Sample, given: list[Any], out: Load) -> None:
        began = time.perf_counter()
        try:
            found = client.infer(name, given)
        except Exception as e:
            out.errors[str(e)[:120]] += 1
            return
        seconds, response = time.perf_counter() - began, found.get_response()
        http = self._protocol == "http"
        version = response["model_version"] if http else response.model_version
        arrays = {y: found.as_numpy(y) for y in sample.right[0]}
        out.answered(seconds, sample.fits(int(version), arrays))


def _give_up(protocol: str, client: Any, port: int, name: str, given: list[Any]) -> None:
    """Ask, and go away."""
    if protocol == "grpc":
        client.async_infer(name, given, callback=lambda result, error: None).cancel()
        return
    (x,) = given
    shape = x.shape()
    rows = {"name": "x", "datatype": x.datatype(), "shape": shape, "data": [0] * math.prod(shape)}
    body = json.dumps({"inputs": [rows]})
    head = (
        f"POST /v2/models/{name}/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.sendall((head + body).encode())


@dataclass
class Turn:
    """Load of both protocols at once. ``processor``: seconds of the server's, for each answer."""

    loads: dict[str, Load]
    processor: float


@dataclass(frozen=True)
class Bench:
    """What turns have in common."""

    options: argparse.Namespace
    pool: ProcessPoolExecutor
    folder: Path
    files: Mapping[str, ServedFile]

    @property
    def samples(self) -> Path:
        return self.folder / "samples.pickle"

    @property
    def cache(self) -> Path:
        given: Path | None = self.options.cache
        return given or self.folder / "cache"

    def turn(self, server: Served, seconds: float, models: tuple[str, ...], give_up: float) -> Turn:
        seed, ports = random.randrange(1 << 20), (server.http, server.grpc)
        threads = self.options.threads
        order = Order(self.samples, models, ports, seconds, seed, threads, give_up)
        before = server.processor()
        asked = {p: self.pool.submit(load, p, order) for p in ("http", "grpc")}
        loads = {p: x.result() for p, x in asked.items()}
        used = server.processor() - before
        return Turn(loads, used / max(1, sum(x.right for x in loads.values())))


# -- what it says ---------------------------------------------------------------------------------


def soak(bench: Bench) -> bool:
    """One server, reloads, memory."""
    folder, seconds, models = bench.folder / "models", bench.options.seconds, tuple(bench.files)
    repository(folder, bench.files)
    stop, told, turns, memory = threading.Event(), Counter[str](), list[Turn](), list[float]()
    length = bench.options.turn
    with served(folder, bench.cache, "tactix") as server:
        bench.turn(server, min(length, seconds / 4), models, GIVEN_UP)  # pools and caches fill
        args = (folder, bench.files["mlp"], stop, told)
        thread = threading.Thread(target=reload_models, args=args)
        thread.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            turns.append(bench.turn(server, length, models, GIVEN_UP))
            memory.append(server.resident())
        stop.set()
        thread.join()
    right = report(turns)
    first = memory[: max(1, len(memory) // 4)]
    last = memory[-len(first) :]
    print(
        f"{told['reloads']} reloads, {told['broken versions']} broken versions; resident MiB: "
        f"{statistics.median(first):.1f} in the first quarter, {statistics.median(last):.1f} in "
        f"the last, {max(memory):.1f} at most"
    )
    return right


def against(bench: Bench) -> bool:
    """Two servers in turns, one of which runs ONNX Runtime; a row of the table for each model."""
    peer, length = bench.options.peer, bench.options.turn
    for backend in ("tactix", peer):
        repository(bench.folder / backend, bench.files)
    found: dict[str, list[tuple[Turn, Turn]]] = {name: [] for name in bench.files}
    with (
        served(bench.folder / "tactix", bench.cache, "tactix") as ours,
        served(bench.folder / peer, bench.cache, peer) as theirs,
    ):
        for name in bench.files:
            for server in (ours, theirs):
                bench.turn(server, length / 2, (name,), 0.0)  # pools and caches fill
        end = time.monotonic() + bench.options.seconds
        while time.monotonic() < end:
            for name, turns in found.items():
                a, b = (bench.turn(s, length, (name,), 0.0) for s in (ours, theirs))
                turns.append((a, b))
    for name, turns in found.items():
        print(f"| {name} | {' | '.join(_row(turns))} |")
    good = [_good(x) for turns in found.values() for pair in turns for x in pair]
    return all(good)


def _row(turns: list[tuple[Turn, Turn]]) -> Iterator[str]:
    """Of each protocol answers a second of both, and their ratio with its range; processor time."""
    for protocol in ("http", "grpc"):
        rates = [(_rate(a.loads[protocol]), _rate(b.loads[protocol])) for a, b in turns]
        ratios = [a / b for a, b in rates]
        for side in (0, 1):
            yield f"{statistics.median(r[side] for r in rates):.0f}"
        yield f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    for side in (0, 1):
        yield f"{statistics.median(t[side].processor for t in turns) * 1e6:.0f}"


def _rate(x: Load) -> float:
    return x.right / x.seconds


def _good(turn: Turn) -> bool:
    """Whether all was right; what was not is told."""
    for protocol, x in turn.loads.items():
        for text, count in x.errors.most_common(5):
            print(f"{protocol}: {count} x {text}")
        if x.wrong:
            print(f"{protocol}: {x.wrong} wrong")
    return all(not x.wrong and not x.errors and x.right > 0 for x in turn.loads.values())


def report(turns: list[Turn]) -> bool:
    """Whether all was right."""
    for protocol in ("http", "grpc"):
        x = merged([t.loads[protocol] for t in turns])
        rate = statistics.median(_rate(t.loads[protocol]) for t in turns)
        p50, p99 = (x.latency.quantile(q) * 1e3 for q in (0.5, 0.99))
        print(
            f"{protocol}: {x.right} right, {x.wrong} wrong, {x.given_up} given up, "
            f"{sum(x.errors.values())} errors; {rate:.0f} a second, p50 {p50:.2f} ms, "
            f"p99 {p99:.2f} ms"
        )
    good = [_good(t) for t in turns]
    return all(good)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--turn", type=float, default=10.0, help="seconds of a turn")
    parser.add_argument("--threads", type=int, default=2, help="clients of each protocol")
    parser.add_argument("--peer", choices=["onnxruntime"])
    parser.add_argument("--models", type=Path, help="a folder of NAME.onnx, for --peer")
    parser.add_argument("--only", default="", help="names, with commas")
    parser.add_argument("--cache", type=Path, help="where plans are kept")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--backend", default="tactix", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.cache, options.backend)
        return 0
    if options.models and not options.peer:
        parser.error("--models is for --peer")
    only = [name for name in options.only.split(",") if name]
    spawn = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(2, mp_context=spawn) as pool,
    ):
        files = small_models(batching=not options.peer)
        if options.models:
            files = exported_models(options.models.absolute(), only)
        bench = Bench(options, pool, Path(folder), files)
        save_samples(files, bench.samples)
        return 0 if (against if options.peer else soak)(bench) else 1


if __name__ == "__main__":
    raise SystemExit(main())
