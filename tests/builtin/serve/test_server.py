"""The server itself: wrong requests, models that come, change and go, cancelled requests, ends."""

from __future__ import annotations

import asyncio
import contextlib
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
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tactix.base.arrays import Array
from tactix.base.errors import ConfigError, DeadlineExceeded, InvalidArgument, QueueFull
from tactix_serve.config import ModelConfig, read_config
from tactix_serve.datatypes import TensorMetadata
from tactix_serve.served_model import MODEL, ServedModel, open_model

X = np.ones((1, 4), np.float32)
ROW = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1.0] * 4}
INFER = "/v2/models/scaled/infer"


def asked(
    server: Any, path: str, body: Any = None, headers: Mapping[str, str] | None = None
) -> tuple[int, Any]:
    """Status and JSON. ``body``: JSON, or bytes."""
    connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=60)
    content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    method = "GET" if body is None else "POST"
    try:
        connection.request(method, path, content, dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")
    finally:
        connection.close()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def first(server: Any, name: str) -> float:
    """The first output of a model for ones."""
    status, found = asked(server, f"/v2/models/{name}/infer", {"inputs": [ROW]})
    assert status == 200, found
    return float(found["outputs"][0]["data"][2])


# -- requests -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"[]", "no JSON object"),
        (b"[" * 100_000, "no JSON"),
        (b"\xff", "no JSON"),
        ({}, "no inputs"),
        ({"inputs": 3}, "no list of objects"),
        ({"inputs": [3]}, "no list of objects"),
        ({"inputs": [{}]}, "'name' is None"),
        ({"inputs": [{**ROW, "name": "z"}]}, "no input is named 'z'"),
        ({"inputs": [ROW, ROW]}, "given twice"),
        ({"inputs": [{**ROW, "datatype": "FP64"}]}, "is FP32, got FP64"),
        ({"inputs": [{**ROW, "datatype": 3}]}, "'datatype' is 3"),
        ({"inputs": [{**ROW, "shape": [1, 5]}]}, "got [1, 5]"),
        ({"inputs": [{**ROW, "shape": [1, "4"]}]}, "the shape"),
        ({"inputs": [{**ROW, "shape": None}]}, "the shape"),
        ({"inputs": [{**ROW, "shape": [-1, 4]}]}, "the shape [-1, 4]"),
        ({"inputs": [{**ROW, "shape": [2**62, 4]}]}, "too large"),
        ({"inputs": [{**ROW, "shape": [0, 2**70], "data": []}]}, "got [0, "),
        ({"inputs": [{**ROW, "data": [1.0]}]}, "1 elements"),
        ({"inputs": [{**ROW, "data": ["1"] * 4}]}, "is not FP32"),
        (json.dumps({"inputs": [{**ROW, "data": [1e39] * 4}]}).encode(), "input 'x' is not FP32"),
        (
            json.dumps({"inputs": [ROW]}).replace("1.0,", "1e999,", 1).encode(),
            "the number at 0 is too large",
        ),
        ({"inputs": [{k: v for k, v in ROW.items() if k != "data"}]}, "no data"),
        ({"inputs": [ROW], "outputs": [{"name": "z"}]}, "no output is named 'z'"),
        ({"inputs": [ROW], "outputs": {}}, "no list of objects"),
        ({"inputs": [ROW], "parameters": []}, "no object"),
        ({"inputs": [ROW], "parameters": {"timeout": "1"}}, "'timeout' is '1'"),
        ({"inputs": [ROW], "parameters": {"sequence_id": 4}}, "sequences of requests"),
        ({"inputs": [{**ROW, "parameters": {"binary_data_size": 99}}]}, "takes 99 bytes"),
        ({"inputs": [{**ROW, "parameters": {"binary_data_size": -1}}]}, "is -1"),
        (
            {"inputs": [{**ROW, "parameters": {"shared_memory_region": "r"}}]},
            "'shared_memory_byte_size' is None",
        ),
    ],
)
def test_wrong_requests_are_told_in_the_protocols_json(server: Any, body: Any, text: str) -> None:
    status, found = asked(server, INFER, body)
    assert (status, list(found)) == (400, ["error"])
    assert text in found["error"]


def test_wrong_paths_methods_and_headers(server: Any) -> None:
    good = {"inputs": [ROW]}
    assert asked(server, "/v3")[0] == 404
    assert "error" in asked(server, "/v3")[1]
    assert asked(server, INFER)[0] == 405
    assert asked(server, "/v2/models/nothing")[0] == 404
    assert asked(server, "/v2/models/scaled/versions/7/infer", good)[0] == 404
    assert asked(server, "/v2/models/nothing/infer", {})[0] == 404
    assert asked(server, "/v2/systemsharedmemory/region/r/status")[0] == 400
    assert asked(server, "/v2/systemsharedmemory/region/r/register", {"key": 1})[0] == 400
    length = "Inference-Header-Content-Length"
    for wrong in ("-1", "x", "99999"):
        assert asked(server, INFER, good, {length: wrong})[0] == 400
    assert asked(server, INFER, json.dumps(good).encode() + b"abc", {length: "5"})[0] == 400
    assert asked(server, INFER, good, {"Content-Encoding": "gzip"})[0] == 400
    status, found = asked(server, INFER, b" " * ((1 << 20) + 1))
    assert (status, "--max-request-bytes" in found["error"]) == (413, True)
    assert asked(server, INFER, good)[0] == 200


@pytest.mark.parametrize("config", ["", "[batching]\n"])
def test_values_that_the_network_cannot_take_are_the_clients(
    plans: Any, tmp_path: Path, serving: Any, put_plan: Any, config: str
) -> None:
    """An index out of range, over HTTP and gRPC, alone and in a batch."""
    grpc = pytest.importorskip("grpc")
    from tactix_serve.messages import protocol

    put_plan(tmp_path, "rows", 1, plans.path("rows"))
    (tmp_path / "rows" / "config.toml").write_text(config)
    request = protocol().messages["ModelInferRequest"](model_name="rows")
    request.inputs.add(name="x", datatype="INT64", shape=[2])
    request.inputs[0].contents.int64_contents.extend([1, 4])
    given = {"name": "x", "datatype": "INT64", "shape": [2], "data": [1, 4]}
    with serving(tmp_path, tmp_path / ".cache") as server:
        status, found = asked(server, "/v2/models/rows/infer", {"inputs": [given]})
        with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            with pytest.raises(grpc.RpcError, match="index 4 is out of range") as told:
                call(request.SerializeToString())
    assert (status, "index 4 is out of range" in found["error"]) == (400, True)
    assert told.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_paths_may_end_in_a_slash_and_heads_have_no_body(server: Any) -> None:
    assert asked(server, "/v2/models/scaled/")[0] == 200
    assert asked(server, "/v2/models//ready")[0] == 404
    connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=60)
    connection.request("HEAD", "/v2/health/live")
    assert connection.getresponse().status == 200
    connection.close()


def test_a_chunked_body_that_is_too_long_and_half_a_request(server: Any) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=60)
    parts = (b"x" * (1 << 18) for _ in range(5))
    connection.request("POST", INFER, parts, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()
    with socket.create_connection(("127.0.0.1", server.http)) as s:
        s.sendall(f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\nabc".encode())
    assert first(server, "scaled") >= 0


def test_spans_are_children_of_what_headers_name() -> None:
    trace = pytest.importorskip("opentelemetry.trace")
    from tactix_serve.tracing import span

    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with span("infer", {"traceparent": parent}, model="m"):
        found = trace.get_current_span().get_span_context()
    assert f"{found.trace_id:032x}" == parent.split("-")[1]


# -- models ---------------------------------------------------------------------------------------


def test_models_come_change_break_and_go(
    plans: Any, tmp_path: Path, serving: Any, put_plan: Any
) -> None:
    put_plan(tmp_path, "m", 1, plans.path("scaled"))
    with serving(tmp_path, tmp_path / ".cache") as server:
        once = first(server, "m")
        put_plan(tmp_path, "m", 2, plans.path("twice"))
        until(lambda: first(server, "m") == 2 * once)
        assert asked(server, "/v2/models/m/versions/1")[0] == 404
        (tmp_path / "broken" / "1").mkdir(parents=True)
        (tmp_path / "broken" / "1" / "model.plan").write_bytes(b"nothing")
        (tmp_path / "m" / "3").mkdir()
        (tmp_path / "m" / "3" / "model.plan").write_bytes(plans.path("scaled").read_bytes()[:-9])
        until(lambda: sum("is not loaded" in line for line in server.log) == 2)
        assert first(server, "m") == 2 * once
        _, index = asked(server, "/v2/repository/index", {})
        rows = {(r["name"], r["version"]): r for r in index}
        assert rows["m", "3"]["state"] == rows["broken", "1"]["state"] == "UNAVAILABLE"
        assert "not a tactix plan" in rows["broken", "1"]["reason"] or rows["broken", "1"]["reason"]
        assert asked(server, "/v2/health/ready")[0] == 503
        put_plan(tmp_path, "broken", 1, plans.path("scaled"))
        until(lambda: asked(server, "/v2/models/broken/ready")[0] == 200)
        assert asked(server, "/v2/health/ready")[0] == 200
        (tmp_path / "broken" / "1" / "model.plan").unlink()
        until(lambda: asked(server, "/v2/models/broken")[0] == 404)
        put_plan(tmp_path, "m", 3, plans.path("scaled"))
        until(lambda: first(server, "m") == once)
        (tmp_path / "m" / "9").mkdir()
        (tmp_path / "m" / "9" / "model.plan").write_bytes(b"nothing")
        put_plan(tmp_path, "m", 4, plans.path("twice"))  # below one that cannot be loaded
        until(lambda: first(server, "m") == 2 * once)
        (tmp_path / "m" / "4" / "model.plan").unlink()  # what serves stays while 9 is broken
        time.sleep(0.2)
        assert first(server, "m") == 2 * once
        (tmp_path / "m" / "9" / "model.plan").unlink()
        until(lambda: first(server, "m") == once)


def test_an_onnx_model_is_built_and_a_mixing_one_refused(
    plans: Any, tmp_path: Path, serving: Any, put_plan: Any
) -> None:
    digits = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
    (tmp_path / "digits" / "1").mkdir(parents=True)
    (tmp_path / "digits" / "1" / "model.onnx").write_bytes(digits.read_bytes())
    (tmp_path / "digits" / "config.toml").write_text("level = 0\nthreads = 1\nwarm_up = false\n")
    put_plan(tmp_path, "centred", 1, plans.path("centred"))
    (tmp_path / "centred" / "config.toml").write_text("[batching]\n")
    with serving(tmp_path, tmp_path / ".cache") as server:
        assert asked(server, "/v2/models/digits/ready")[0] == 200
        status, found = asked(server, "/v2/models/centred")
        assert (status, "beside other rows" in found["error"]) == (404, True)


def test_configurations(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    assert read_config(tmp_path) == ModelConfig()
    path.write_text("contexts = 2\ntimeout = 1\n[batching]\nmax_batch = 4\npad.x = { axis = 1 }\n")
    found = read_config(tmp_path)
    assert (found.contexts, found.timeout) == (2, 1.0)
    assert found.batching is not None
    assert (found.batching.max_batch, found.batching.pad) == (4, {"x": {1: 0}})
    for text in (
        "contexts =",
        "contextes = 1",
        "contexts = '2'",
        "contexts = true",
        "batching = 3",
        "[batching]\nwindow = -1",
        "[batching]\npad = 3",
        "[batching.pad.x]\nvalue = 1",
        "[batching.pad.x]\naxis = 1\nsize = [4]",
        "[batching.pad.x]\naxis = 1\nvalue = 'x'",
        "[batching.pad.x]\naxis = 1.5",
        "timeout = -1",
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=re.escape(str(path))):
            read_config(tmp_path)


def test_devices_that_are_wrong(plans: Any, tmp_path: Path, put_plan: Any) -> None:
    """Told with file, value, reason and cure, before a model is read."""
    put_plan(tmp_path, "m", 1, plans.path("scaled"))
    (tmp_path / "model" / "1").mkdir(parents=True)
    (tmp_path / "model" / "1" / MODEL).write_bytes(b"x")
    for name, value, text in (
        ("m", "cup", "no plugin provides device 'cup'. There are: cpu"),
        ("model", "cup", "no plugin provides device 'cup'. There are: cpu"),
        ("m", "cpu:7", "device 'cpu:7' is not here. There are: cpu:0"),
        ("m", "cpu, cpu", "cpu:0 is named twice. Name each once"),
        ("m", "cpu,", "a name is empty. Write names with commas"),
    ):
        with pytest.raises(ConfigError) as told:
            open_model(tmp_path / name / "1", ModelConfig(devices=value), tmp_path / ".cache")
        who = tmp_path / name / "config.toml"
        assert str(told.value).startswith(f"{who}: devices is {value!r}: {text}")


class Waiting(ServedModel):
    """Answers when it is let go."""

    platform = "test"
    inputs = (TensorMetadata("x", "FP32", (-1, 4)),)
    outputs = (TensorMetadata("y", "FP32", (-1, 4)),)

    def __init__(self) -> None:
        self.go, self.came, self.cancelled = threading.Event(), 0, 0
        self.closed = False

    async def infer(
        self,
        feeds: Mapping[str, Array],
        timeout: float | None,
        outputs: Collection[str] | None = None,
    ) -> Mapping[str, Array]:
        self.came += 1
        try:
            while not self.go.is_set():
                await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return {"y": feeds["x"]}

    async def close(self) -> None:
        self.closed = True


def row_over_grpc() -> bytes:
    """A request for the model m."""
    from tactix_serve.messages import protocol

    request = protocol().messages["ModelInferRequest"](model_name="m")
    request.inputs.add(name="x", datatype="FP32", shape=[1, 4])
    request.raw_input_contents.append(X.tobytes())
    content: bytes = request.SerializeToString()
    return content


def test_a_client_that_goes_away_cancels_its_request(
    plans: Any, tmp_path: Path, serving: Any, put_plan: Any
) -> None:
    put_plan(tmp_path, "m", 1, plans.path("scaled"))
    model = Waiting()
    with serving(tmp_path, tmp_path / ".cache", lambda folder, config: model) as server:
        body = json.dumps({"inputs": [ROW]})
        text = f"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", server.http)) as s:
            s.sendall((text + body).encode())
            until(lambda: model.came == 1)
        until(lambda: model.cancelled == 1)
        grpc = pytest.importorskip("grpc")
        from tactix_serve.grpc_server import SERVICE

        with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
            call = channel.unary_unary(f"/{SERVICE}/ModelInfer")
            pending = call.future(row_over_grpc())
            until(lambda: model.came == 2)
            pending.cancel()
            until(lambda: model.cancelled == 2)


class Full(Waiting):
    """Has no room."""

    async def infer(
        self,
        feeds: Mapping[str, Array],
        timeout: float | None,
        outputs: Collection[str] | None = None,
    ) -> Mapping[str, Array]:
        if timeout is not None:
            raise DeadlineExceeded("no answer within 1 s", who="engine", do="engine.set_pool")
        raise QueueFull("64 requests wait already", who="engine", do="wait=True")


def test_refusals_speak_of_the_server(
    plans: Any, tmp_path: Path, serving: Any, put_plan: Any
) -> None:
    put_plan(tmp_path, "m", 1, plans.path("scaled"))
    with serving(tmp_path, tmp_path / ".cache", lambda folder, config: Full()) as server:
        path = "/v2/models/m/infer"
        status, found = asked(server, path, {"inputs": [ROW]})
        assert (status, found["error"][:28]) == (503, "m: 64 requests wait already.")
        late = asked(server, path, {"inputs": [ROW], "parameters": {"timeout": 1}})
        assert (late[0], late[1]["error"][:24]) == (504, "m: no answer within 1 s.")
        for text in (found["error"], late[1]["error"]):
            assert "config.toml" in text
            assert "wait=" not in text
            assert "set_pool" not in text


def test_a_stop_waits_for_requests(plans: Any, tmp_path: Path, serving: Any, put_plan: Any) -> None:
    put_plan(tmp_path, "m", 1, plans.path("scaled"))
    model, answers = Waiting(), list[Any]()
    with serving(tmp_path, tmp_path / ".cache", lambda folder, config: model) as server:
        ask = threading.Thread(
            target=lambda: answers.append(asked(server, "/v2/models/m/infer", {"inputs": [ROW]}))
        )
        ask.start()
        until(lambda: model.came == 1)
        threading.Timer(0.3, model.go.set).start()
    ask.join(60)
    assert answers[0][0] == 200
    assert model.closed


class Blocking(Waiting):
    """Holds the server's loop until it is let go."""

    async def infer(self, *given: Any, **named: Any) -> Mapping[str, Array]:
        self.came += 1
        assert self.go.wait(60)
        return {"y": X}


def test_a_stop_refuses_what_grpc_has_read_and_ends_streams_that_wait(
    plans: Any, tmp_path: Path, serving: Any, put_plan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    grpc = pytest.importorskip("grpc")
    from tactix_serve.grpc_server import SERVICE

    monkeypatch.setattr("tactix_serve.grpc_server.QUIET", 0.3)  # of a busy machine
    put_plan(tmp_path, "m", 1, plans.path("scaled"))
    model, over = Blocking(), threading.Event()

    def asks() -> Iterator[bytes]:
        yield row_over_grpc()
        over.wait(60)

    with contextlib.ExitStack() as stack:
        server = stack.enter_context(
            serving(tmp_path, tmp_path / ".cache", lambda folder, config: model)
        )
        channel = grpc.insecure_channel(f"127.0.0.1:{server.grpc}")
        stream = channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")(asks())
        model.go.set()
        next(stream)
        model.go.clear()
        infer = channel.unary_unary(f"/{SERVICE}/ModelInfer")
        calls = [infer.future(row_over_grpc())]
        until(lambda: model.came == 2)
        calls += [infer.future(row_over_grpc()) for _ in range(8)]
        time.sleep(0.1)  # they are read
        threading.Timer(0.1, model.go.set).start()
    assert calls[0].code() is grpc.StatusCode.OK
    found = [call.code() for call in calls[1:]]
    assert found.count(grpc.StatusCode.CANCELLED) < 4, found  # all, if nothing hands them out
    with pytest.raises(grpc.RpcError, match="the server is stopping"):
        next(stream)
    over.set()
    channel.close()


def test_options_and_ports_that_are_taken(tmp_path: Path) -> None:
    pytest.importorskip("httptools")
    pytest.importorskip("grpc")
    from tactix_serve.options import ServerOptions
    from tactix_serve.server import ModelServer

    for wrong in ({"http": None, "grpc": None}, {"http": 70000}, {"poll": 0.0}, {"grace": -1.0}):
        with pytest.raises(InvalidArgument):
            ServerOptions(tmp_path, tmp_path, **wrong)
    with pytest.raises(InvalidArgument, match="there is no folder"):
        ServerOptions(tmp_path / "none", tmp_path)
    from click.testing import CliRunner

    from tactix_serve.command import command

    told = CliRunner().invoke(command, [str(tmp_path), "--http", "-7"]).exception
    assert isinstance(told, InvalidArgument)
    assert "port -7. Give 0 to 65535" in str(told)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options, opened = ServerOptions(tmp_path, tmp_path, http=port, grpc=None), list[Path]()
        (tmp_path / "m" / "1").mkdir(parents=True)
        (tmp_path / "m" / "1" / "model.onnx").write_bytes(b"x")
        opens: Any = lambda folder, config: opened.append(folder)  # noqa: E731
        with pytest.raises(ConfigError, match="cannot be served"):
            asyncio.run(ModelServer(options, opens=opens).serve())
        assert not opened


@pytest.mark.skipif(os.name != "posix", reason="needs SIGTERM")
def test_the_command_ends_cleanly_on_sigterm(plans: Any, tmp_path: Path, put_plan: Any) -> None:
    for part in ("httptools", "grpc", "prometheus_client"):
        pytest.importorskip(part)
    put_plan(tmp_path, "scaled", 1, plans.path("scaled"))
    command = "import sys; from tactix_tools.cli import main; sys.exit(main(sys.argv[1:]))"
    args = [sys.executable, "-c", command, "serve", str(tmp_path), "--http", "0", "--grpc", "0"]
    with subprocess.Popen(
        args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127.0.0.1:(\d+) grpc://127.0.0.1:\d+", line)
        assert found, process.communicate(timeout=60)
        with socket.create_connection(("127.0.0.1", int(found[1]))):
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "stopped\n"), err
