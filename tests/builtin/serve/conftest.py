"""Small plans, and a server over them in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tactix
from tactix.base.logger import Logger
from tactix.run.engine import Engine

WEIGHTS = np.arange(12, dtype=np.float32).reshape(4, 3) - 5


def _network(builder: tactix.Builder, name: str, factor: float) -> Any:
    """``scaled``: relu(x @ w) * factor. ``lengths``: twice each of a row's numbers. ``centred``: x
    less the mean over rows. ``rows``: those of the weights that x names. ``fixed``: no open axis.
    """
    network = builder.create_network(name)
    if name == "scaled":
        x = network.add_input("x", "f32", ("batch", 4))
        (y,) = network.add_layer("tactix.MatMul", [x, network.add_constant(WEIGHTS * factor)])
        (y,) = network.add_layer("tactix.Relu", [y])
    elif name == "lengths":
        x = network.add_input("x", "i64", ("batch", "length"))
        (y,) = network.add_layer("tactix.Add", [x, x])
    elif name == "centred":
        x = network.add_input("x", "f32", ("batch", 4))
        (mean,) = network.add_layer("tactix.ReduceMean", [x], axes=(0,), keepdims=True)
        (y,) = network.add_layer("tactix.Sub", [x, mean])
    elif name == "rows":
        x = network.add_input("x", "i64", ("batch",))
        (y,) = network.add_layer("tactix.Gather", [network.add_constant(WEIGHTS), x], axis=0)
    else:
        x = network.add_input("x", "f32", (2, 4))
        (y,) = network.add_layer("tactix.Relu", [x])
    network.mark_output(y, "y")
    return network


@dataclass(frozen=True)
class Plans:
    """Files of plans by name; of ``scaled`` also times 2."""

    folder: Path

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.plan"


@pytest.fixture(scope="session")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Plans:
    folder, builder = tmp_path_factory.mktemp("served_plans"), tactix.Builder()
    config = tactix.BuilderConfig(builder_optimization_level=0, timing_cache=False, threads=1)
    for name in ("scaled", "lengths", "centred", "rows", "fixed"):
        builder.build(_network(builder, name, 1), config).save(folder / f"{name}.plan")
    builder.build(_network(builder, "scaled", 2), config).save(folder / "twice.plan")
    return Plans(folder)


def scaled(x: Any, factor: float = 1) -> Any:
    """What ``scaled`` computes."""
    return np.maximum(x @ WEIGHTS, 0) * np.float32(factor)


@pytest.fixture
def engine(plans: Plans) -> Iterator[Engine]:
    """``scaled``, with one context for requests."""
    with tactix.load(plans.path("scaled"), max_threads=1) as engine:
        engine.set_pool(contexts=1)
        yield engine


@pytest.fixture(scope="session")
def expected() -> Callable[..., Any]:
    return scaled


@dataclass
class Running:
    """``http``, ``grpc``: ports. ``log``: what the server said."""

    models: Path
    http: int
    grpc: int
    log: list[str]


Serving = Callable[..., AbstractContextManager[Running]]


class Kept(Logger):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def log(self, severity: Any, msg: str) -> None:
        self.lines.append(msg)


@contextmanager
def running(models: Path, cache: Path, opens: Any = None, **options: Any) -> Iterator[Running]:
    """A server on ports that are free; it is stopped at the end."""
    pytest.importorskip("httptools")
    pytest.importorskip("grpc")
    pytest.importorskip("prometheus_client")
    from tactix_serve.options import ServerOptions
    from tactix_serve.server import ModelServer

    ready, found, log = threading.Event(), list[Any](), Kept()
    given = {"http": 0, "grpc": 0, "poll": 0.05, "grace": 10.0, **options}

    async def serve() -> None:
        stop = asyncio.Event()
        found.append((asyncio.get_running_loop(), stop))
        told = lambda ports: (found.append(ports), ready.set())  # noqa: E731
        await ModelServer(ServerOptions(models, cache, **given), log, opens, told).serve(stop)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(60), log.lines
    (loop, stop), ports = found
    try:
        yield Running(models, ports.http, ports.grpc, log.lines)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)
        assert not thread.is_alive()


@pytest.fixture(scope="session")
def serving() -> Serving:
    return running


@pytest.fixture(scope="module")
def server(plans: Plans, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """With ``scaled``, and ``batched``: the same with batching, and ``lengths`` in batches."""
    folder = tmp_path_factory.mktemp("repository")
    for name, of in (("scaled", "scaled"), ("batched", "scaled"), ("lengths", "lengths")):
        put(folder, name, 1, plans.path(of))
    (folder / "batched" / "config.toml").write_text("[batching]\nmax_batch = 8\nwindow = 0.01\n")
    (folder / "lengths" / "config.toml").write_text("[batching.pad]\nx = { axis = 1, value = 0 }\n")
    with running(folder, folder / ".cache", most=1 << 20, shared_memory=True) as found:
        yield found


def put(models: Path, name: str, version: int, plan: Path) -> None:
    """Put a plan into a repository, as a whole."""
    folder = models / name / str(version)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "new").write_bytes(plan.read_bytes())
    (folder / "new").replace(folder / "model.plan")


@pytest.fixture(scope="session")
def put_plan() -> Callable[..., None]:
    return put
