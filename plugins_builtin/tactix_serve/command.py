"""``tactix serve``: a folder of models over HTTP and gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tactix.base.errors import ConfigError, InvalidArgument
from tactix.base.logger import Logger, Severity

if TYPE_CHECKING:
    from tactix_serve.options import ServerOptions
    from tactix_serve.ports import Listening

PARTS = ("httptools", "grpc", "google", "prometheus_client")
MEBIBYTE = 1 << 20


@click.command("serve")
@click.argument("models", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--http", default=8000, show_default=True, help="Port of HTTP; -1 for none, 0: any.")
@click.option("--grpc", default=8001, show_default=True, help="Port of gRPC; -1 for none, 0: any.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option(
    "--front-ends",
    default="1",
    show_default=True,
    metavar="N|auto",
    help="Processes that speak HTTP and gRPC; with more than one another has the models.",
)
@click.option("--poll", default=2.0, show_default=True, help="Seconds between looks at MODELS.")
@click.option(
    "--max-request-bytes", "most", default=64 * MEBIBYTE, show_default=True, help="Of a request."
)
@click.option(
    "--grace", default=30.0, show_default=True, help="Seconds for requests when it stops."
)
@click.option("--shared-memory", is_flag=True, help="Let clients name system shared memory.")
@click.option(
    "--cache", type=click.Path(file_okay=False, path_type=Path), help="Folder for plans of models."
)
def command(
    models: Path,
    http: int,
    grpc: int,
    host: str,
    front_ends: str,
    poll: float,
    most: int,
    grace: float,
    shared_memory: bool,
    cache: Path | None,
) -> None:
    """Serve MODELS, a folder with NAME/VERSION/model.plan or model.onnx, by the Open Inference
    Protocol, until SIGTERM or Ctrl-C.
    """
    from tactix_serve.options import ServerOptions

    count = _front_ends(front_ends)
    options = ServerOptions(
        models,
        cache or _cache(),
        host,
        None if http == -1 else http,
        None if grpc == -1 else grpc,
        poll,
        most,
        grace,
        shared_memory,
    )

    def ready(ports: Listening) -> None:
        found = {"http": ports.http, "grpc": ports.grpc}
        told = " ".join(f"{kind}://{host}:{port}" for kind, port in found.items() if port)
        click.echo(f"serving {models} at {told}")

    asyncio.run(_serve(options, count, ready))
    click.echo("stopped")


def _front_ends(given: str) -> int:
    """Raises InvalidArgument."""
    from tactix_serve.supervisor import automatic_front_ends

    if given == "auto":
        return automatic_front_ends()
    if not (given.isascii() and given.isdigit() and int(given)):
        raise InvalidArgument(f"{given!r} front ends", do="Give a number from 1, or auto")
    return int(given)


def _serve(
    options: ServerOptions, front_ends: int, ready: Callable[[Listening], None]
) -> Coroutine[Any, Any, None]:
    """In this process alone, or by others. Raises ConfigError where libraries are missing."""
    logger = Logger(Severity.INFO)
    missing = [part for part in PARTS if find_spec(part) is None]
    if missing:
        why, do = f"there is no {missing[0]}", "pip install 'tactix[serve]'"
        raise ConfigError("the server's libraries are not installed", why=why, do=do)
    if front_ends > 1:
        from tactix_serve.supervisor import Supervisor

        return Supervisor(options, front_ends, logger, ready=ready).serve()
    from tactix_serve.server import ModelServer

    return ModelServer(options, logger, ready=ready).serve()


def _cache() -> Path:
    """Beside the timing cache."""
    from tactix.base.cache_folder import cache_folder

    return cache_folder() / "served"
