"""What running takes from the pack: the device, its memory, and what runs its steps and those of
the host beside it.
"""

from typing import Any

from tactix_sdk import hookimpl


@hookimpl
def tactix_devices() -> list[Any]:
    from acme_dla.device import Accelerator

    return [Accelerator()]


@hookimpl
def tactix_allocators() -> list[Any]:
    from acme_dla.device import SharedMemory

    return [SharedMemory()]


@hookimpl
def tactix_launchers() -> list[Any]:
    from acme_dla.device import HostLauncher, SubgraphLauncher

    return [SubgraphLauncher(), HostLauncher()]
