"""The hooks. What they return is imported when they are called."""

from typing import Any

from tactix_sdk import hookimpl


@hookimpl
def tactix_layers() -> list[Any]:
    from acme_circular.layers import circular_pad

    return [circular_pad]


@hookimpl
def tactix_converters() -> list[Any]:
    from acme_circular.layers import circ_pad_plugin

    return [circ_pad_plugin]


@hookimpl
def tactix_tactics() -> list[Any]:
    from acme_circular.tactics import on_cpu, on_cuda

    return [on_cpu, on_cuda]
