"""What running takes from the pack: the launcher that executes primitives."""

from typing import Any

from tactix_sdk import hookimpl


@hookimpl
def tactix_launchers() -> list[Any]:
    from acme_onednn.launcher import OneDnnLauncher

    return [OneDnnLauncher()]
