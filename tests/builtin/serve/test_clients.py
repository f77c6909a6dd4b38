"""The server as unmodified clients of NVIDIA's see it, over HTTP and gRPC."""

from __future__ import annotations

import contextlib
import importlib
import os
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import numpy as np
import pytest

X = np.random.default_rng(3).standard_normal((5, 4), dtype=np.float32)
Clients = tuple[Any, Any]


@pytest.fixture(scope="module", params=["http", "grpc"])
def client(request: pytest.FixtureRequest, server: Any) -> Iterator[Clients]:
    """A module of clients, and one of its clients."""
    pytest.importorskip("tritonclient")
    module = pytest.importorskip(f"tritonclient.{request.param}")
    port = {"http": server.http, "grpc": server.grpc}[request.param]
    made = module.InferenceServerClient(f"127.0.0.1:{port}")
    with contextlib.closing(made):
        yield module, made


def _input(module: Any, x: Any, **options: Any) -> Any:
    kinds = {np.dtype(np.float32): "FP32", np.dtype(np.int64): "INT64"}
    given = module.InferInput("x", list(x.shape), kinds[x.dtype])
    given.set_data_from_numpy(x, **options)
    return given


def test_health_and_metadata(client: Clients) -> None:
    _, c = client
    assert c.is_server_live()
    assert c.is_server_ready()
    assert c.is_model_ready("scaled")
    assert c.is_model_ready("scaled", "1")
    assert not c.is_model_ready("scaled", "2")
    assert not c.is_model_ready("nothing")
    extensions = _row(c.get_server_metadata())["extensions"]
    assert {"model_configuration", "statistics"} <= set(extensions)
    found, index = c.get_model_metadata("scaled"), c.get_model_repository_index()
    if not isinstance(found, dict):
        format_of = importlib.import_module("google.protobuf.json_format")
        found, index = (format_of.MessageToDict(m) for m in (found, index))
        index = index["models"]
    assert (found["name"], found["versions"]) == ("scaled", ["1"])
    assert [int(n) for n in found["inputs"][0]["shape"]] == [-1, 4]
    assert found["outputs"][0]["datatype"] == "FP32"
    assert [row["name"] for row in index] == ["batched", "lengths", "scaled"]
    assert {row["state"] for row in index} == {"READY"}


@pytest.mark.parametrize("model", ["scaled", "batched"])
def test_inference(client: Clients, model: str, expected: Callable[..., Any]) -> None:
    module, c = client
    wanted = [module.InferRequestedOutput("y")]
    for x in (X, X[:1], X[:0]):
        answer = c.infer(model, [_input(module, x)], outputs=wanted, request_id="7")
        np.testing.assert_allclose(answer.as_numpy("y"), expected(x), rtol=1e-5)
    response = answer.get_response()
    assert (response["id"] if isinstance(response, dict) else response.id) == "7"


def test_inference_in_json(server: Any, expected: Callable[..., Any]) -> None:
    module = pytest.importorskip("tritonclient.http")
    with contextlib.closing(module.InferenceServerClient(f"127.0.0.1:{server.http}")) as c:
        wanted = [module.InferRequestedOutput("y", binary_data=False)]
        answer = c.infer("scaled", [_input(module, X, binary_data=False)], outputs=wanted)
        np.testing.assert_allclose(answer.as_numpy("y"), expected(X), rtol=1e-5)


def test_many_at_once(client: Clients, server: Any) -> None:
    module, _ = client
    port = server.http if module.__name__.endswith("http") else server.grpc

    def ask(seed: int) -> None:
        rng = np.random.default_rng(seed)
        with contextlib.closing(module.InferenceServerClient(f"127.0.0.1:{port}")) as c:
            for n in range(1, 9):
                x = rng.integers(0, 9, (n % 3 + 1, n))
                answer = c.infer("lengths", [_input(module, x)])
                assert np.array_equal(answer.as_numpy("y"), x * 2)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(ask, range(4)))


def test_errors_are_told(client: Clients) -> None:
    module, c = client
    error = importlib.import_module("tritonclient.utils").InferenceServerException
    for name, x, text in (
        ("nothing", X, "no model 'nothing' serves"),
        ("scaled", X[:, :3].copy(), r"'x' is \[-1, 4\], got \[5, 3\]"),
        ("scaled", np.zeros((1, 4), np.int64), "'x' is FP32, got INT64"),
    ):
        with pytest.raises(error, match=text):
            c.infer(name, [_input(module, x)])
    wanted = [module.InferRequestedOutput("z")]
    with pytest.raises(error, match="no output is named 'z'"):
        c.infer("scaled", [_input(module, X)], outputs=wanted)
    with pytest.raises(error, match="'timeout' is -1"):
        c.infer("scaled", [_input(module, X)], timeout=-1)
    with pytest.raises(error, match="version '9'"):
        c.infer("scaled", [_input(module, X)], model_version="9")
    big = np.zeros((1 << 17, 4), np.float32)
    with pytest.raises(error, match=r"a request of \d+ bytes|larger than max"):
        c.infer("scaled", [_input(module, big)])
    assert c.is_server_live()


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs /dev/shm")
def test_system_shared_memory(client: Clients, expected: Callable[..., Any]) -> None:
    module, c = client
    error = importlib.import_module("tritonclient.utils").InferenceServerException
    key = f"tactix-test-{os.getpid()}-{module.__name__[-4:]}"
    memory = shared_memory.SharedMemory(key, create=True, size=256)
    try:
        memory.buf[: X.nbytes] = X.tobytes()
        c.register_system_shared_memory("region", f"/{key}", 256)
        given = module.InferInput("x", list(X.shape), "FP32")
        given.set_shared_memory("region", X.nbytes)
        wanted = module.InferRequestedOutput("y")
        wanted.set_shared_memory("region", 60, offset=100)
        c.infer("scaled", [given], outputs=[wanted])
        y = np.frombuffer(bytes(memory.buf[100:160]), np.float32).reshape(5, 3)
        np.testing.assert_allclose(y, expected(X), rtol=1e-5)
        assert "region" in str(c.get_system_shared_memory_status())
        wanted.set_shared_memory("region", 59, offset=100)
        with pytest.raises(error, match="does not fit"):
            c.infer("scaled", [given], outputs=[wanted])
        given.set_shared_memory("region", 300)
        with pytest.raises(error, match="it has 256"):
            c.infer("scaled", [given])
        given.set_shared_memory("region", X.nbytes)
        wanted.set_shared_memory("region", 60, offset=100)
        os.truncate(f"/dev/shm/{key}", 100)
        with pytest.raises(error, match="has become smaller"):
            c.infer("scaled", [given], outputs=[wanted])
        with pytest.raises(error, match="cannot be opened"):
            c.register_system_shared_memory("other", "/tactix-no-such", 16)
        with pytest.raises(error, match="can have the key"):
            c.register_system_shared_memory("other", "/../etc/passwd", 16)
        c.unregister_system_shared_memory("region")
        with pytest.raises(error, match="no region 'region' is registered"):
            c.infer("scaled", [given])
    finally:
        memory.close()
        memory.unlink()


def test_a_stream_over_grpc(server: Any, expected: Callable[..., Any]) -> None:
    module = pytest.importorskip("tritonclient.grpc")
    queue = importlib.import_module("queue").Queue()
    with contextlib.closing(module.InferenceServerClient(f"127.0.0.1:{server.grpc}")) as c:
        c.start_stream(callback=lambda result, error: queue.put((result, error)))
        for name in ("scaled", "nothing", "scaled"):
            c.async_stream_infer(name, [_input(module, X)])
        answers = [queue.get(timeout=30) for _ in range(3)]
        c.stop_stream()
    np.testing.assert_allclose(answers[2][0].as_numpy("y"), expected(X), rtol=1e-5)
    assert "no model 'nothing' serves" in str(answers[1][1])


def test_metrics_count(client: Clients, server: Any) -> None:
    module, c = client
    before = _metric(server, 'tactix_requests_total{model="scaled",outcome="ok"}')
    c.infer("scaled", [_input(module, X)])
    assert _metric(server, 'tactix_requests_total{model="scaled",outcome="ok"}') == before + 1
    assert _metric(server, "tactix_models_ready") == 3
    assert _metric(server, "tactix_requests_in_flight") == 0


def test_batches_are_counted(client: Clients, server: Any) -> None:
    """By size and part; padding is a device's that has memory of its own."""
    module, c = client
    names = ("rows_total", "padding_total", 'seconds_total{model="batched",part="run"}')
    before = [_metric(server, f"tactix_batch_{name}") for name in _of_batched(names)]
    c.infer("batched", [_input(module, X)])
    after = [_metric(server, f"tactix_batch_{name}") for name in _of_batched(names)]
    assert (after[0] - before[0], after[1], after[2] > before[2]) == (len(X), 0, True)
    assert _metric(server, f'tactix_batches_total{{model="batched",rows="{len(X)}"}}') > 0


def test_configurations_are_told(client: Clients) -> None:
    """By the same words over both protocols; rows of a model in batches are no size of its own."""
    _, c = client
    alone, batched = (_row(c.get_model_config(name)) for name in ("scaled", "batched"))
    alone, batched = alone.get("config", alone), batched.get("config", batched)
    kinds = [alone[k] for k in ("name", "platform", "backend")]
    assert kinds == ["scaled", "tactix_plan", "tactix"]
    assert (alone.get("max_batch_size", 0), batched["max_batch_size"]) == (0, 8)
    (x,), (y,) = alone["input"], batched["output"]
    assert (x["name"], x["data_type"], [*map(int, x["dims"])]) == ("x", "TYPE_FP32", [-1, 4])
    assert (y["name"], y["data_type"], [*map(int, y["dims"])]) == ("y", "TYPE_FP32", [3])
    assert "dynamic_batching" not in alone
    limits = batched["dynamic_batching"]
    assert int(limits["max_queue_delay_microseconds"]) == 10_000
    assert limits["default_queue_policy"]["max_queue_size"] == 256
    _is_told_of_unknown_models(c.get_model_config)


def test_statistics_are_told(client: Clients) -> None:
    module, c = client
    start, wrong = time.time(), importlib.import_module("tritonclient.utils")
    for name in ("scaled", "batched"):
        before = _statistics(c, name)
        for _ in range(2):
            c.infer(name, [_input(module, X)])
        with pytest.raises(wrong.InferenceServerException):
            c.infer(name, [_input(module, X[:, :3].copy())])
        after = _statistics(c, name)
        rows, runs = (after[k] - before[k] for k in ("inference_count", "execution_count"))
        assert (rows, runs) == ((2 * len(X), 2) if name == "batched" else (2, 2))
        assert abs(after["last_inference"] / 1000 - start) < 60  # seconds since 1970
        apart = () if name == "batched" else ("compute_input", "compute_output")
        for word, asked in (("success", 2), ("fail", 1), *((p, 2) for p in MEASURED)):
            more = {k: after[word][k] - before[word][k] for k in ("count", "ns")}
            assert more["count"] == asked, word
            if word != "queue" or name == "batched":  # a run in the loop's thread waits for nobody
                assert (more["ns"] > 0) == (word not in apart), word
        parts = sum(after[p]["ns"] - before[p]["ns"] for p in MEASURED)
        assert parts <= after["success"]["ns"] - before["success"]["ns"]
    found = _row(c.get_inference_statistics())["model_stats"]
    assert [m["name"] for m in found] == ["batched", "lengths", "scaled"]
    (of_size,) = [b for b in found[0]["batch_stats"] if int(b.get("batch_size", 0)) == len(X)]
    assert int(of_size["compute_infer"]["count"]) >= 2
    _is_told_of_unknown_models(c.get_inference_statistics)


MEASURED = ("queue", "compute_input", "compute_infer", "compute_output")
"""Of models in batches; of others not what is ``apart`` above."""


def _statistics(client: Any, name: str) -> dict[str, Any]:
    """Numbers of a model by name, and durations; over gRPC a 0 is left out."""
    (found,) = _row(client.get_inference_statistics(name, "1"))["model_stats"]
    assert (found["name"], found["version"]) == (name, "1")
    counts = ("last_inference", "inference_count", "execution_count")
    durations = found["inference_stats"]
    out: dict[str, Any] = {k: int(found.get(k, 0)) for k in counts}
    for word in ("success", "fail", *MEASURED, "cache_hit", "cache_miss"):
        out[word] = {k: int(durations[word].get(k, 0)) for k in ("count", "ns")}
    return out


def _row(found: Any) -> dict[str, Any]:
    """What a client gives, as JSON has it."""
    if isinstance(found, dict):
        return found
    format_of = importlib.import_module("google.protobuf.json_format")
    row: dict[str, Any] = format_of.MessageToDict(found, preserving_proto_field_name=True)
    return row


def _is_told_of_unknown_models(asks: Callable[..., Any]) -> None:
    error = importlib.import_module("tritonclient.utils").InferenceServerException
    for name, version in (("nothing", ""), ("scaled", "9")):
        with pytest.raises(error, match=name if name == "nothing" else "version '9'") as told:
            asks(name, version)
        assert "404" in str(told.value.status()) or "NOT_FOUND" in str(told.value.status())


def _of_batched(names: tuple[str, ...]) -> list[str]:
    return [n if "{" in n else f'{n}{{model="batched"}}' for n in names]


def _metric(server: Any, name: str) -> float:
    url = f"http://127.0.0.1:{server.http}/metrics"
    with urllib.request.urlopen(url, timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(f"{name} ")), 0.0)
