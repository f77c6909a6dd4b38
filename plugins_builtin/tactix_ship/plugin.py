"""The lean runtime, and packs inside of plans. Imports stay inside the hooks, so that finding plugins is quick."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.plugins.hookspecs import hookimpl

if TYPE_CHECKING:
    from tactix.contracts.flavour import RuntimeFlavour


@hookimpl
def tactix_flavours() -> list[RuntimeFlavour]:
    from tactix_ship.flavour import LeanFlavour

    return [LeanFlavour()]
