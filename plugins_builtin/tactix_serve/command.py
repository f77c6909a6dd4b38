"""``tactix serve``: a folder of models over HTTP and gRPC."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from tactix.base.errors import ConfigError
from tactix.base.logger import Logger, Severity

PARTS = {"uvicorn", "grpc", "google", "prometheus_client"}
MEBIBYTE = 1 << 20


@click.command("serve")
@click.argument("models", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--http", default=8000, show_default=True, help="Port of HTTP; -1 for none, 0: any.")
@click.option("--grpc", default=8001, show_default=True, help="Port of gRPC; -1 for none, 0: any.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
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
    poll: float,
    most: int,
    grace: float,
    shared_memory: bool,
    cache: Path | None,
) -> None:
    """Serve MODELS, a folder with NAME/VERSION/model.plan or model.onnx, by the Open Inference
    Protocol, until SIGTERM or Ctrl-C.
    """
    try:
        from tactix_serve.server import Listening, ModelServer, ServerOptions
    except ModuleNotFoundError as e:
        if e.name is None or e.name.partition(".")[0] not in PARTS:
            raise
        do = "pip install 'tactix[serve]'"
        raise ConfigError("the server's libraries are not installed", why=str(e), do=do) from None

    options = ServerOptions(
        models,
        cache or _cache(),
        host,
        None if http < 0 else http,
        None if grpc < 0 else grpc,
        poll,
        most,
        grace,
        shared_memory,
    )

    def ready(ports: Listening) -> None:
        found = {"http": ports.http, "grpc": ports.grpc}
        told = " ".join(f"{kind}://{host}:{port}" for kind, port in found.items() if port)
        click.echo(f"serving {models} at {told}")

    asyncio.run(ModelServer(options, Logger(Severity.INFO), ready=ready).serve())
    click.echo("stopped")


def _cache() -> Path:
    """Beside the timing cache."""
    from tactix.base.cache_folder import cache_folder

    return cache_folder() / "served"
