"""What building takes from the pack: what the accelerator and the host beside it can run, and how
models get narrow.
"""

from typing import Any

from tactix_sdk import hookimpl


@hookimpl
def tactix_tactics() -> list[Any]:
    from acme_dla.tactics import AcceleratorTactic, HostTactic

    return [AcceleratorTactic(), HostTactic()]


@hookimpl
def tactix_rules() -> list[Any]:
    from acme_dla.tactics import stored_fp16

    return [stored_fp16()]
