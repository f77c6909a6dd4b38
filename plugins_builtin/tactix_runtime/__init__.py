"""What stands between a plan and an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tactix.contracts.flavour import Flavour
    from tactix.plan.schema import Plan


def flavours() -> list[Flavour[Plan]]:
    """The built-in flavours."""
    from tactix_runtime.default import DefaultFlavour
    from tactix_runtime.dispatch import DispatchFlavour

    return [DefaultFlavour(), DispatchFlavour()]
