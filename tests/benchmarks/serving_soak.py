"""Does the server stay right, quick and small under load? Clients of NVIDIA's over HTTP and gRPC ask
three models with mixed shapes, check every answer, and give some requests up, while versions come,
break and go.

    python tests/benchmarks/serving_soak.py --seconds 900
    python tests/benchmarks/serving_soak.py --seconds 120 --peer onnxruntime

With ``--peer`` the same server serves the same models once by tactix and once by ONNX Runtime, both
without batching; load goes to each in turns, and the ratio of throughputs is that of turns. Needs
``tritonclient[http,grpc]``. Exits with 1 if an answer was wrong, or an error came that nobody asked
for.
"""

from __future__ import annotations

import argparse
import asyncio
import json
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

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tactix.run.request_stats import LatencyHistogram

SAMPLES, RELOAD, TURN, GIVEN_UP = 8, 5.0, 10.0, 0.02
"""Inputs of each model; seconds between reloads, and of a turn; the share of requests that is given
up.
"""
TOLERANCE = 1e-4
Pair = tuple[np.ndarray, np.ndarray]


# -- models: ids, rows, images --------------------------------------------------------------------


def mlp(version: int) -> onnx.ModelProto:
    """Other weights for odd and even versions."""
    rng = np.random.default_rng(version % 2)
    w1, w2 = (rng.standard_normal(s, np.float32) / 8 for s in ((64, 256), (256, 10)))
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "w2"], ["y"]),
    ]
    return _model(nodes, (TensorProto.FLOAT, ["batch", 64]), ["batch", 10], {"w1": w1, "w2": w2})


def embedding() -> onnx.ModelProto:
    table = np.random.default_rng(5).standard_normal((100, 16)).astype(np.float32)
    nodes = [helper.make_node("Gather", ["w", "x"], ["y"])]
    shape = ["batch", "length"]
    return _model(nodes, (TensorProto.INT64, shape), [*shape, 16], {"w": table})


def convolution() -> onnx.ModelProto:
    w = np.random.default_rng(6).standard_normal((16, 3, 3, 3)).astype(np.float32) / 5
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["y"]),
    ]
    shape = ["batch", 3, "height", "width"]
    return _model(nodes, (TensorProto.FLOAT, shape), ["batch", 16, 1, 1], {"w": w})


def _model(
    nodes: list[Any], x: tuple[int, list[Any]], y: list[Any], weights: Mapping[str, np.ndarray]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "soak",
        [helper.make_tensor_value_info("x", *x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)],
        [numpy_helper.from_array(w, name) for name, w in weights.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8)


def inputs(name: str) -> list[np.ndarray]:
    """Of mixed shapes."""
    rng = np.random.default_rng(7)
    rows = [int(n) for n in rng.integers(1, 5, SAMPLES)]
    if name == "mlp":
        return [rng.standard_normal((n, 64), np.float32) for n in rows]
    if name == "embedding":
        return [rng.integers(0, 100, (n, int(rng.integers(1, 20)))) for n in rows]
    sizes = [int(rng.choice((16, 24, 32))) for _ in rows]
    return [rng.standard_normal((1, 3, s, s), np.float32) for s in sizes]


def answers() -> dict[tuple[str, int], list[Pair]]:
    """Inputs and what is right, by model and the version's parity."""
    made = {("mlp", 0): mlp(0), ("mlp", 1): mlp(1)}
    made |= {(n, i): m for n, m in OTHERS.items() for i in (0, 1)}
    return {
        key: [(x, ReferenceEvaluator(model).run(None, {"x": x})[0]) for x in inputs(key[0])]
        for key, model in made.items()
    }


OTHERS = {"embedding": embedding(), "conv": convolution()}
MODELS = ("mlp", "embedding", "conv")


# -- the server -----------------------------------------------------------------------------------


def serve(folder: Path, backend: str) -> None:
    """In a process of its own; tells its ports."""
    from tactix_serve.server import ModelServer, ServerOptions

    opens = onnxruntime_model if backend == "onnxruntime" else None
    options = ServerOptions(folder, folder.parent / "cache", http=0, grpc=0, poll=0.2)
    told = lambda ports: print(json.dumps([ports.http, ports.grpc]), flush=True)  # noqa: E731
    asyncio.run(ModelServer(options, opens=opens, ready=told).serve())


def onnxruntime_model(folder: Path, config: Any) -> Any:
    """As tactix's own, on one thread a request and a request a core."""
    import onnxruntime

    from tactix_serve.datatypes import TensorMetadata
    from tactix_serve.served_model import ServedModel

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        (folder / "model.onnx").read_bytes(), settings, providers=["CPUExecutionProvider"]
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

        async def infer(self, feeds: Any, timeout: float | None) -> Any:
            work = asyncio.get_running_loop().run_in_executor
            found = await work(self.pool, lambda: session.run(None, dict(feeds)))
            return {m.name: y for m, y in zip(self.outputs, found, strict=True)}

        async def close(self) -> None:
            self.pool.shutdown(wait=False)

    return SessionModel()


def repository(folder: Path, batching: bool) -> None:
    tables = {
        "mlp": "[batching]\nmax_batch = 8\nwindow = 0.002\n",
        "embedding": "[batching]\nmax_batch = 8\n[batching.pad]\nx = { axis = 1, value = 0 }\n",
        "conv": "",
    }
    for name in MODELS:
        put(folder, name, 1, mlp(1) if name == "mlp" else OTHERS[name])
        table = tables[name] if batching else ""
        text = f"threads = 1\nlevel = 1\nmax_queue = 256\nwarm_up = false\n{table}"
        (folder / name / "config.toml").write_text(text)


def put(folder: Path, name: str, version: int, model: onnx.ModelProto | bytes) -> None:
    place = folder / name / str(version)
    place.mkdir(parents=True, exist_ok=True)
    content = model if isinstance(model, bytes) else model.SerializeToString()
    (place / "new").write_bytes(content)
    (place / "new").replace(place / "model.onnx")


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


@contextmanager
def served(folder: Path, backend: str) -> Iterator[Served]:
    command = [sys.executable, __file__, "--serve", str(folder), "--backend", backend]
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


def reload_models(folder: Path, stop: threading.Event, told: Counter[str]) -> None:
    """A new version every RELOAD seconds; each third is broken, and taken away again."""
    version = 1
    while not stop.wait(RELOAD):
        version += 1
        put(folder, "mlp", version, mlp(version))
        told["reloads"] += 1
        if version % 3 == 0:
            put(folder, "mlp", version + 1000, b"no model")
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


def load(protocol: str, ports: tuple[int, int], seconds: float, seed: int, threads: int) -> Load:
    """In a process of its own."""
    with ThreadPoolExecutor(threads) as pool:
        asked = [
            pool.submit(_ask, protocol, ports, seconds, seed * 100 + i) for i in range(threads)
        ]
        return merged([x.result() for x in asked])


def merged(loads: list[Load]) -> Load:
    out = Load(seconds=max(x.seconds for x in loads))
    for x in loads:
        out.right, out.wrong = out.right + x.right, out.wrong + x.wrong
        out.given_up += x.given_up
        out.errors += x.errors
        out.latency.merge(x.latency)
    return out


def _ask(protocol: str, ports: tuple[int, int], seconds: float, seed: int) -> Load:
    import importlib

    module = importlib.import_module(f"tritonclient.{protocol}")
    port, out, rng = ports[protocol == "grpc"], Load(), random.Random(seed)
    client, known = module.InferenceServerClient(f"127.0.0.1:{port}"), answers()
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        name, k = rng.choice(MODELS), rng.randrange(SAMPLES)
        x = known[name, 0][k][0]
        given = module.InferInput("x", list(x.shape), "INT64" if x.dtype == np.int64 else "FP32")
        given.set_data_from_numpy(x)
        if rng.random() < GIVEN_UP:
            _give_up(protocol, client, port, name, given, x)
            out.given_up += 1
            continue
        began = time.perf_counter()
        try:
            found = client.infer(name, [given])
        except Exception as e:
            out.errors[str(e)[:120]] += 1
            continue
        out.latency.add(time.perf_counter() - began)
        response = found.get_response()
        version = response["model_version"] if protocol == "http" else response.model_version
        right = known[name, int(version) % 2][k][1]
        fits = np.allclose(found.as_numpy("y"), right, rtol=TOLERANCE, atol=TOLERANCE)
        out.right, out.wrong = out.right + fits, out.wrong + (not fits)
    out.seconds = time.perf_counter() - start
    client.close()
    return out


def _give_up(protocol: str, client: Any, port: int, name: str, given: Any, x: np.ndarray) -> None:
    """Ask, and go away."""
    if protocol == "grpc":
        client.async_infer(name, [given], callback=lambda result, error: None).cancel()
        return
    rows = {"name": "x", "datatype": given.datatype(), "shape": list(x.shape)}
    body = json.dumps({"inputs": [{**rows, "data": x.ravel().tolist()}]})
    head = (
        f"POST /v2/models/{name}/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.sendall((head + body).encode())


def turn(
    pool: ProcessPoolExecutor, server: Served, seconds: float, threads: int
) -> dict[str, Load]:
    """Both protocols at once."""
    seed, ports = random.randrange(1 << 20), (server.http, server.grpc)
    asked = {p: pool.submit(load, p, ports, seconds, seed, threads) for p in ("http", "grpc")}
    return {p: x.result() for p, x in asked.items()}


# -- what it says ---------------------------------------------------------------------------------


def soak(options: argparse.Namespace, pool: ProcessPoolExecutor, folder: Path) -> bool:
    """One server, reloads, memory."""
    repository(folder, batching=True)
    stop, told, turns, memory = threading.Event(), Counter[str](), list[dict[str, Load]](), []
    with served(folder, "tactix") as server:
        turn(pool, server, min(TURN, options.seconds / 4), options.threads)  # pools and caches fill
        thread = threading.Thread(target=reload_models, args=(folder, stop, told))
        thread.start()
        end = time.monotonic() + options.seconds
        while time.monotonic() < end:
            turns.append(turn(pool, server, TURN, options.threads))
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


def against(options: argparse.Namespace, pool: ProcessPoolExecutor, folder: Path) -> bool:
    """Two servers in turns, one of which runs ONNX Runtime."""
    found: dict[str, list[dict[str, Load]]] = {"tactix": [], options.peer: []}
    for backend in found:
        repository(folder / backend / "models", batching=False)
    with (
        served(folder / "tactix" / "models", "tactix") as ours,
        served(folder / options.peer / "models", options.peer) as theirs,
    ):
        servers = {"tactix": ours, options.peer: theirs}
        for server in servers.values():
            turn(pool, server, TURN / 2, options.threads)
        end = time.monotonic() + options.seconds
        while time.monotonic() < end:
            for backend, server in servers.items():
                found[backend].append(turn(pool, server, TURN, options.threads))
    right = True
    for backend, turns in found.items():
        print(backend)
        right &= report(turns)
    for protocol in ("http", "grpc"):
        ratios = [
            _rate(a[protocol]) / _rate(b[protocol])
            for a, b in zip(found["tactix"], found[options.peer], strict=True)
        ]
        print(
            f"{protocol}: throughput of tactix by that of {options.peer}: "
            f"{statistics.median(ratios):.3f} (median of {len(ratios)} turns, "
            f"{min(ratios):.3f} to {max(ratios):.3f})"
        )
    return right


def _rate(x: Load) -> float:
    return x.right / x.seconds


def report(turns: list[dict[str, Load]]) -> bool:
    """Whether all was right."""
    good = True
    for protocol in ("http", "grpc"):
        x = merged([t[protocol] for t in turns])
        rate = statistics.median(_rate(t[protocol]) for t in turns)
        p50, p99 = (x.latency.quantile(q) * 1e3 for q in (0.5, 0.99))
        print(
            f"{protocol}: {x.right} right, {x.wrong} wrong, {x.given_up} given up, "
            f"{sum(x.errors.values())} errors; {rate:.0f} a second, p50 {p50:.2f} ms, "
            f"p99 {p99:.2f} ms"
        )
        for text, count in x.errors.most_common(5):
            print(f"    {count} x {text}")
        good &= not x.wrong and not x.errors and x.right > 0
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--threads", type=int, default=2, help="clients of each protocol")
    parser.add_argument("--peer", choices=["onnxruntime"])
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--backend", default="tactix", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.backend)
        return 0
    spawn = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(2, mp_context=spawn) as pool,
    ):
        work = against if options.peer else soak
        return 0 if work(options, pool, Path(folder) / "models") else 1


if __name__ == "__main__":
    raise SystemExit(main())
