"""Does the server stay right, quick and small under load? Clients of NVIDIA's over HTTP and gRPC ask
three models with mixed shapes, check every answer, and give some requests up, while versions come,
break and go, and processes of the server are killed.

    python tests/benchmarks/serving_soak.py --minutes 15
    python tests/benchmarks/serving_soak.py --minutes 2 --front-ends 1
    python tests/benchmarks/serving_soak.py --minutes 2 --peer onnxruntime
    python tests/benchmarks/serving_soak.py --minutes 3 --peer onnxruntime --models DIR --only mlp

With several front ends (2 by default) one of them is killed every minute, and the process that has
the models after a third of the time. Errors that such an end brings are allowed from the kill until
the server is ready again, and a second longer; memory is that of the processes that live longest.

With ``--peer`` the same server serves the same models once by tactix and once by ONNX Runtime, both
without batching, on one thread a request and a request a core; both run what takes microseconds in
the thread of the event loop. Load goes to each in turns, model by model, by clients that cost
little (``serving_clients.py``), and ratios are those of turns that follow each other. ``--models``:
ONNX files in place of the three small ones. ``--cache``: keep plans there, so that another run
builds nothing. Needs ``tritonclient[http,grpc]`` but for ``--peer``. Exits with 1 if an answer was
wrong, or an error came that nobody asked for.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import random
import shutil
import signal
import socket
import statistics
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from served_peers import served
from served_processes import Served, resident
from serving_clients import DATATYPES, ClientOrder, client
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

RELOAD, GIVEN_UP, EVERY = 5.0, 0.02, 60.0
"""Seconds between reloads; the share of requests that is given up; seconds between kills."""
BROUGHT = ("UNAVAILABLE", "503", "the process that", "reset", "closed", "refused", "EOF", "broken")
"""What is in the errors of requests whose process was killed."""
CLIENTS, OUTSTANDING, DEPARTURE = 2, 4, 2e-3
"""With a peer: processes of clients, requests of each at once, and the largest departure relative
to the largest magnitude of an output.
"""
REST = 0.02
"""Seconds that a client waits after an error."""


# -- the server -----------------------------------------------------------------------------------


def repository(folder: Path, files: Mapping[str, ServedFile]) -> None:
    for name, file in files.items():
        file.put(folder / name / "1")
        text = f"threads = 1\nwarm_up = false\n{file.config}"
        (folder / name / "config.toml").write_text(text)


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


@dataclass
class Kills:
    """Processes that were killed, and when errors of it are allowed: from and to, by
    time.monotonic, which is one clock for all processes of Linux.
    """

    server: Served
    counts: Counter[str] = field(default_factory=Counter)
    spans: list[tuple[float, float]] = field(default_factory=list)

    def run(self, seconds: float, stop: threading.Event) -> None:
        """Until it is stopped: the youngest front end every minute, and once the models' process."""
        begin, engine_at = time.monotonic(), seconds / 3
        while not stop.wait(min(EVERY, engine_at)):
            if not self.counts["engine"] and time.monotonic() - begin >= engine_at:
                self._kill("engine")
            else:
                self._kill("front ends")

    def _kill(self, role: str) -> None:
        pids = self.server.processes()[role]
        began = time.monotonic()
        os.kill(max(pids), signal.SIGKILL)
        self.counts[role] += 1
        count = len(pids)
        while max(pids) in self.server.processes()[role] or not self._whole(role, count):
            time.sleep(0.1)
        self.spans.append((began, time.monotonic() + 1.0))

    def _whole(self, role: str, count: int) -> bool:
        """As many as before, and ready."""
        if len(self.server.processes()[role]) < count:
            return False
        try:
            place = f"http://127.0.0.1:{self.server.http}/v2/health/ready"
            with urllib.request.urlopen(place, timeout=5):
                return True
        except OSError:
            return False

    def allow(self, when: float, text: str) -> bool:
        """Whether an error is one that a kill brings."""
        kind = any(word in text for word in BROUGHT)
        return kind and any(begin <= when <= end for begin, end in self.spans)


# -- clients --------------------------------------------------------------------------------------


@dataclass
class Load:
    """What clients of one protocol saw."""

    right: int = 0
    wrong: int = 0
    given_up: int = 0
    errors: list[tuple[float, str]] = field(default_factory=list)
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
                try:
                    _give_up(self._protocol, client, self._port, name, given)
                except OSError as e:
                    out.errors.append((time.monotonic(), f"{type(e).__name__}: {e}"))
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
            out.errors.append((time.monotonic(), f"{type(e).__name__}: {e}"[:160]))
            time.sleep(REST)
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

    @property
    def seconds(self) -> float:
        return float(self.options.minutes * 60)

    def turn(self, server: Served, seconds: float) -> dict[str, Load]:
        """Of both protocols at once."""
        seed, ports = random.randrange(1 << 20), (server.http, server.grpc)
        threads, models = self.options.threads, tuple(self.files)
        order = Order(self.samples, models, ports, seconds, seed, threads, GIVEN_UP)
        asked = {p: self.pool.submit(load, p, order) for p in ("http", "grpc")}
        return {p: x.result() for p, x in asked.items()}


# -- a soak ---------------------------------------------------------------------------------------


def soak(bench: Bench) -> bool:
    """One server, reloads, kills, memory."""
    folder, length = bench.folder / "models", bench.options.turn
    repository(folder, bench.files)
    stop, told, turns = threading.Event(), Counter[str](), list[dict[str, Load]]()
    memory: dict[int, list[float]] = {}
    with served(folder, bench.cache, "tactix", bench.options.front_ends) as server:
        bench.turn(server, min(length, bench.seconds / 4))  # pools and caches fill
        kills = Kills(server)
        work: list[Callable[[], None]] = [
            lambda: reload_models(folder, bench.files["mlp"], stop, told)
        ]
        if bench.options.front_ends > 1:
            work.append(lambda: kills.run(bench.seconds, stop))
        threads = [threading.Thread(target=run) for run in work]
        for thread in threads:
            thread.start()
        end = time.monotonic() + bench.seconds
        while time.monotonic() < end:
            turns.append(bench.turn(server, length))
            for pid, size in memory_of(server).items():
                memory.setdefault(pid, []).append(size)
        stop.set()
        for thread in threads:
            thread.join()
        names = {p: role for role, pids in server.processes().items() for p in pids}
    right = report(turns, kills)
    print(
        f"{told['reloads']} reloads, {told['broken versions']} broken versions; killed: "
        f"{kills.counts['front ends']} front ends, {kills.counts['engine']} processes with models"
    )
    for role in ("engine", "front ends"):
        alive = [sizes for pid, sizes in memory.items() if names.get(pid) == role]
        if alive:
            print(f"{role}: {grown(max(alive, key=len), length)}")
    return right


def memory_of(server: Served) -> dict[int, float]:
    """MiB by process; one that ends meanwhile is left out."""
    out = {}
    for pid in [p for pids in server.processes().values() for p in pids]:
        with suppress(OSError, ValueError):
            out[pid] = resident(pid)
    return out


def grown(sizes: Sequence[float], length: float) -> str:
    first = sizes[: max(1, len(sizes) // 4)]
    last = sizes[-len(first) :]
    return (
        f"resident MiB over {len(sizes) * length:.0f} s: {statistics.median(first):.1f} in the "
        f"first quarter, {statistics.median(last):.1f} in the last, {max(sizes):.1f} at most"
    )


def report(turns: Sequence[Mapping[str, Load]], kills: Kills) -> bool:
    """Whether all was right."""
    right = True
    for protocol in ("http", "grpc"):
        x = merged([t[protocol] for t in turns])
        rate = statistics.median(t[protocol].right / t[protocol].seconds for t in turns)
        p50, p99 = (x.latency.quantile(q) * 1e3 for q in (0.5, 0.99))
        odd = Counter(text for when, text in x.errors if not kills.allow(when, text))
        print(
            f"{protocol}: {x.right} right, {x.wrong} wrong, {x.given_up} given up, "
            f"{len(x.errors) - odd.total()} ended by kills, {odd.total()} other errors; "
            f"{rate:.0f} a second, p50 {p50:.2f} ms, p99 {p99:.2f} ms"
        )
        for text, count in odd.most_common(5):
            print(f"{protocol}: {count} x {text}")
        right &= not x.wrong and not odd and all(t[protocol].right > 0 for t in turns)
    return right


# -- a peer ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PeerTurn:
    """Answers a second, and processor seconds of the server for each."""

    rate: float
    processor: float


def against(bench: Bench) -> bool:
    """Two servers in turns, one of which runs ONNX Runtime; a row of the table for each model."""
    peer, front_ends = bench.options.peer, bench.options.front_ends
    for backend in ("tactix", peer):
        repository(bench.folder / backend, bench.files)
    pairs: dict[tuple[str, str], list[tuple[PeerTurn, PeerTurn]]] = {}
    kinds = [(name, protocol) for name in bench.files for protocol in ("http", "grpc")]
    with (
        served(bench.folder / "tactix", bench.cache, "tactix", front_ends) as ours,
        served(bench.folder / peer, bench.cache, peer, front_ends) as theirs,
    ):
        for name, protocol in kinds:
            for server in (ours, theirs):
                peer_turn(bench, server, protocol, name, bench.options.turn / 2)  # caches fill
        end = time.monotonic() + bench.seconds
        while time.monotonic() < end:
            for name, protocol in kinds:
                a, b = (
                    peer_turn(bench, s, protocol, name, bench.options.turn) for s in (ours, theirs)
                )
                pairs.setdefault((name, protocol), []).append((a, b))
    for (name, protocol), turns in pairs.items():
        print(f"| {name} | {protocol} | {' | '.join(_row(turns))} |")
    return True


def peer_turn(bench: Bench, server: Served, protocol: str, name: str, seconds: float) -> PeerTurn:
    """Raises AssertionError where an answer is wrong, or none came."""
    samples = bench.files[name].samples
    port = {"http": server.http, "grpc": server.grpc}[protocol]
    feeds, want = [s.feeds for s in samples], [s.right[1] for s in samples]
    order = ClientOrder(protocol, port, name, 0.0, seconds, feeds, want, OUTSTANDING)
    before = server.processor()
    begin = time.perf_counter()
    loads = list(bench.pool.map(client, [order] * CLIENTS))
    took = time.perf_counter() - begin
    used = sum(map(sum, server.processor().values())) - sum(map(sum, before.values()))
    failed = [text for x in loads for text in x.failed]
    assert not failed, failed[0]
    assert max(x.departure for x in loads) <= DEPARTURE, (name, [x.departure for x in loads])
    count = sum(len(x.times) for x in loads)
    return PeerTurn(count / took, used / count)


def _row(turns: list[tuple[PeerTurn, PeerTurn]]) -> Iterator[str]:
    """Answers a second of both, and their ratio with its range; processor time in microseconds."""
    for side in (0, 1):
        yield f"{statistics.median(t[side].rate for t in turns):.0f}"
    ratios = [a.rate / b.rate for a, b in turns]
    yield f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    for side in (0, 1):
        yield f"{statistics.median(t[side].processor for t in turns) * 1e6:.0f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--turn", type=float, default=10.0, help="seconds of a turn")
    parser.add_argument("--threads", type=int, default=2, help="clients of each protocol")
    parser.add_argument("--front-ends", type=int, default=2)
    parser.add_argument("--peer", choices=["onnxruntime"])
    parser.add_argument("--models", type=Path, help="a folder of NAME.onnx, for --peer")
    parser.add_argument("--only", default="", help="names, with commas")
    parser.add_argument("--cache", type=Path, help="where plans are kept")
    options = parser.parse_args()
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
