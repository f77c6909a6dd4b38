"""What building takes from the pack: the bid."""

from typing import Any

from tactix_sdk import hookimpl


@hookimpl
def tactix_tactics() -> list[Any]:
    from acme_onednn.tactic import OneDnnProduct

    return [OneDnnProduct()]
