"""What running takes from the pack: the launcher that calls BLAS."""

from typing import Any

from tactix_sdk import hookimpl


@hookimpl
def tactix_launchers() -> list[Any]:
    from acme_blas.launcher import BlasLauncher

    return [BlasLauncher()]
