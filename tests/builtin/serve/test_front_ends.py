"""A server of several processes: the protocols, models that change, and processes that are killed."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tactix.base.errors import ConfigError, InvalidArgument
from tactix_serve import ports, supervisor
from tactix_serve.options import ServerOptions
from tactix_serve.supervisor import Supervisor, automatic_front_ends

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="front ends share ports on Linux")

X = np.array([[1, 2, 3, 4], [-4, 1, 0, 2]], np.float32)
SERVER = """
import asyncio, sys
from pathlib import Path
from tactix.base.logger import Logger, Severity
from tactix_serve.options import ServerOptions
from tactix_serve.supervisor import Supervisor
folder = Path(sys.argv[1])
options = ServerOptions(folder, folder / ".cache", http=0, grpc=0, poll=0.05, shared_memory=True)
told = lambda ports: print(ports.http, ports.grpc, flush=True)
made = Supervisor(options, 2, Logger(Severity.INFO), "slow_model:open_model", told)
asyncio.run(made.serve())
print("stopped")
"""


@dataclass
class Processes:
    """``log``: what all of them said."""

    process: subprocess.Popen[str]
    http: int
    grpc: int
    log: Path

    def started(self, name: str) -> list[int]:
        """Processes of that name, the last one runs."""
        found = re.findall(rf"{name} is process (\d+)", self.log.read_text())
        return list(map(int, found))

    def kill(self, name: str) -> None:
        """And wait until another one has started."""
        before = self.started(name)
        os.kill(before[-1], signal.SIGKILL)
        until(lambda: len(self.started(name)) > len(before))


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@contextmanager
def running(folder: Path) -> Iterator[Processes]:
    for part in ("httptools", "grpc", "prometheus_client"):
        pytest.importorskip(part)
    (folder / ".log").mkdir()
    log = folder / ".log" / "server"
    given = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(given)}
    command = [sys.executable, "-c", SERVER, str(folder)]
    with (
        log.open("w") as told,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=told, text=True, env=env
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, log.read_text()
            yield Processes(process, *map(int, line.split()), log)
        finally:
            process.terminate()
            process.wait(60)


@pytest.fixture(scope="module")
def served(
    plans: Any, put_plan: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Processes]:
    """``scaled``, ``batched``: the same in batches, ``slow``."""
    folder = tmp_path_factory.mktemp("several")
    for name in ("scaled", "batched", "slow", "changing"):
        put_plan(folder, name, 1, plans.path("scaled"))
    (folder / "batched" / "config.toml").write_text("[batching]\nmax_batch = 8\nwindow = 0.002\n")
    with running(folder) as found:
        yield found


def asked(server: Processes, path: str, body: Any = None) -> tuple[int, Any]:
    """Status, and JSON or text, over a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=60)
    try:
        content = None if body is None else json.dumps(body).encode()
        connection.request("GET" if body is None else "POST", path, content)
        answer = connection.getresponse()
        text = answer.read().decode()
        return answer.status, json.loads(text) if text.startswith(("{", "[")) else text
    finally:
        connection.close()


def infer(server: Processes, model: str, x: Any = X) -> tuple[int, Any]:
    row = {"name": "x", "datatype": "FP32", "shape": x.shape, "data": x.ravel().tolist()}
    return asked(server, f"/v2/models/{model}/infer", {"inputs": [row]})


def outputs(answer: tuple[int, Any]) -> Any:
    status, found = answer
    assert status == 200, found
    (y,) = found["outputs"]
    return np.array(y["data"], np.float32).reshape(y["shape"])


def counted(server: Processes, model: str, outcome: str) -> float:
    _, text = asked(server, "/metrics")
    row = f'tactix_requests_total{{model="{model}",outcome="{outcome}"}} '
    found = re.search(re.escape(row) + r"([\d.]+)", text)
    return float(found[1]) if found else 0.0


def grpc_call(server: Processes, channel: Any, model: str, x: Any) -> Any:
    from tactix_serve.messages import protocol

    made = protocol().messages
    request = made["ModelInferRequest"](model_name=model)
    request.inputs.add(name="x", datatype="FP32", shape=x.shape)
    request.raw_input_contents.append(x.tobytes())
    call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    return call.future(request.SerializeToString())


def test_both_protocols_answer(served: Processes, expected: Callable[..., Any]) -> None:
    grpc = pytest.importorskip("grpc")
    from tactix_serve.messages import protocol

    assert asked(served, "/v2/health/ready")[0] == 200
    assert len(asked(served, "/v2/repository/index", {})[1]) == 4
    for model in ("scaled", "batched"):
        np.testing.assert_allclose(outputs(infer(served, model)), expected(X), rtol=1e-5)
        with grpc.insecure_channel(f"127.0.0.1:{served.grpc}") as channel:
            raw = grpc_call(served, channel, model, X).result(60)
            (content,) = (
                protocol().messages["ModelInferResponse"].FromString(raw).raw_output_contents
            )
            found = np.frombuffer(content, np.float32).reshape(2, 3)
            np.testing.assert_allclose(found, expected(X), rtol=1e-5)
            with pytest.raises(grpc.RpcError, match="no model 'none' serves"):
                grpc_call(served, channel, "none", X).result(60)
    assert infer(served, "scaled", X[:, :3])[0] == 400
    assert asked(served, "/v2/models/scaled/infer", {"inputs": []})[0] == 400


def test_all_front_ends_count_together(served: Processes) -> None:
    before = [counted(served, "scaled", outcome) for outcome in ("ok", "invalid")]
    for _ in range(12):  # connections of their own, which the front ends share
        infer(served, "scaled")
        infer(served, "scaled", X[:, :3])
    after = [counted(served, "scaled", outcome) for outcome in ("ok", "invalid")]
    assert [b - a for a, b in zip(before, after, strict=True)] == [12, 12]
    (found,) = asked(served, "/v2/models/scaled/stats")[1]["model_stats"]
    ended = found["inference_stats"]
    assert ended["success"]["count"] == counted(served, "scaled", "ok")
    assert ended["fail"]["count"] >= 12
    assert asked(served, "/v2/models/batched/config")[1]["max_batch_size"] == 8
    assert asked(served, "/v2/models/none/stats")[0] == 404


def test_shared_memory_is_known_to_all_front_ends(
    served: Processes, expected: Callable[..., Any]
) -> None:
    memory = shared_memory.SharedMemory(create=True, size=256)
    try:
        memory.buf[: X.nbytes] = X.tobytes()
        region = "/v2/systemsharedmemory/region/r"
        body = {"key": memory.name, "offset": 0, "byte_size": 256}
        assert asked(served, f"{region}/register", body)[0] == 200
        place = {"shared_memory_region": "r", "shared_memory_byte_size": X.nbytes}
        given = {"name": "x", "datatype": "FP32", "shape": X.shape, "parameters": place}
        where = {**place, "shared_memory_offset": 128}
        asking = {"inputs": [given], "outputs": [{"name": "y", "parameters": where}]}
        for _ in range(4):
            memory.buf[128:256] = bytes(128)
            status, found = asked(served, "/v2/models/scaled/infer", asking)
            assert status == 200, found
            assert found["outputs"][0]["parameters"]["shared_memory_byte_size"] == 24
            y = np.frombuffer(memory.buf[128:152], np.float32).reshape(2, 3).copy()
            np.testing.assert_allclose(y, expected(X), rtol=1e-5)
            assert [r["name"] for r in asked(served, "/v2/systemsharedmemory/status")[1]] == ["r"]
        assert asked(served, f"{region}/register", body)[0] == 400
        assert asked(served, f"{region}/unregister", {})[0] == 200
        assert asked(served, f"{region}/status")[0] == 400
    finally:
        memory.close()
        memory.unlink()


def test_models_change(
    served: Processes, plans: Any, put_plan: Any, expected: Callable[..., Any]
) -> None:
    folder = served.log.parents[1]
    put_plan(folder, "changing", 2, plans.path("twice"))
    until(lambda: np.allclose(outputs(infer(served, "changing")), expected(X, 2), rtol=1e-5))
    (folder / "changing" / "3").mkdir()
    (folder / "changing" / "3" / "model.plan").write_bytes(b"nothing")
    until(lambda: "UNAVAILABLE" in str(asked(served, "/v2/repository/index", {})[1]))
    assert np.allclose(outputs(infer(served, "changing")), expected(X, 2), rtol=1e-5)


def test_a_client_that_goes_away_cancels_its_request(served: Processes) -> None:
    grpc = pytest.importorskip("grpc")
    late = np.full((1, 4), 50, np.float32)
    row = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": late.ravel().tolist()}
    body = json.dumps({"inputs": [row]})
    head = f"POST /v2/models/slow/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", served.http)) as s:
        s.sendall((head + body).encode())
        until(lambda: "tactix_requests_in_flight 1.0" in asked(served, "/metrics")[1])
    until(lambda: counted(served, "slow", "cancelled") == 1)
    with grpc.insecure_channel(f"127.0.0.1:{served.grpc}") as channel:
        pending = grpc_call(served, channel, "slow", late)
        until(lambda: "tactix_requests_in_flight 1.0" in asked(served, "/metrics")[1])
        pending.cancel()
        until(lambda: counted(served, "slow", "cancelled") == 2)


def test_a_killed_front_end_starts_again(served: Processes) -> None:
    served.kill("front end 1")
    until(lambda: served.process.poll() is None and infer(served, "scaled")[0] == 200)
    assert "front end 1 ended with -9; it starts again" in served.log.read_text()
    for _ in range(8):
        outputs(infer(served, "scaled"))


def test_a_killed_engine_fails_its_requests_and_starts_again(served: Processes) -> None:
    grpc = pytest.importorskip("grpc")
    answers = list[Any]()
    late = np.full((1, 4), 50, np.float32)
    ask = threading.Thread(target=lambda: answers.append(infer(served, "slow", late)))
    ask.start()
    with grpc.insecure_channel(f"127.0.0.1:{served.grpc}") as channel:
        pending = grpc_call(served, channel, "slow", late)
        until(lambda: "tactix_requests_in_flight 2.0" in asked(served, "/metrics")[1])
        served.kill("the engine's process")
        error = pending.exception(60)
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    ask.join(60)
    assert answers[0] == (
        503,
        {"error": "the process that ran the model ended. Ask again: it starts anew"},
    )
    until(lambda: infer(served, "scaled")[0] == 200)
    until(lambda: asked(served, "/v2/health/ready")[0] == 200)


def test_requests_that_run_are_answered_before_it_stops(
    plans: Any, put_plan: Any, tmp_path: Path
) -> None:
    put_plan(tmp_path, "slow", 1, plans.path("scaled"))
    answers = list[Any]()
    with running(tmp_path) as server:
        wait = np.full((1, 4), 0.5, np.float32)
        ask = threading.Thread(target=lambda: answers.append(infer(server, "slow", wait)))
        ask.start()
        until(lambda: "tactix_requests_in_flight 1.0" in asked(server, "/metrics")[1])
        server.process.send_signal(signal.SIGTERM)
        out, _ = server.process.communicate(timeout=60)
        ask.join(60)
        assert (server.process.returncode, out) == (0, "stopped\n"), server.log.read_text()
        assert answers[0][0] == 200
        names = ("the engine's process", "front end 1", "front end 2")
        pids = [server.started(name)[0] for name in names]
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_processes_end_with_their_supervisor(plans: Any, put_plan: Any, tmp_path: Path) -> None:
    put_plan(tmp_path, "scaled", 1, plans.path("scaled"))
    with running(tmp_path) as server:
        names = ("the engine's process", "front end 1", "front end 2")
        pids = [server.started(name)[0] for name in names]
        server.process.kill()
        until(lambda: not any(_runs(pid) for pid in pids))


def _runs(pid: int) -> bool:
    """It may be a zombie where nobody waits for the children of others."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_ports_that_are_taken_or_shared_by_another_server() -> None:
    for shared in (False, True):
        with ports.bound("127.0.0.1", 0, shared) as other:
            other.listen()
            at = ports.ListenAt("127.0.0.1", other.getsockname()[1], None, 1, 0.0)
            with pytest.raises(ConfigError, match="cannot be served"), ports.reserved(at):
                pass


def test_where_ports_cannot_be_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ServerOptions(tmp_path, tmp_path)
    with pytest.raises(InvalidArgument, match="0 front ends"):
        Supervisor(options, 0)
    assert automatic_front_ends() >= 1
    monkeypatch.setattr(supervisor.sys, "platform", "darwin")
    assert automatic_front_ends() == 1
    with pytest.raises(ConfigError, match="on Linux alone"):
        Supervisor(options, 2)
