"""The flavour that looks at what it serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.contracts.flavour import DEFAULT
from tactix.contracts.shadow import ShadowFlavour, ShadowOptions
from tactix.plan.schema import Plan

if TYPE_CHECKING:
    from tactix.contracts.device import Device
    from tactix.contracts.engine import EngineView
    from tactix.contracts.flavour import Options
    from tactix.contracts.session import SessionView
    from tactix.contracts.shadow import ShadowedView


class ShadowingFlavour(ShadowFlavour[Plan]):
    """Plans run as by the default flavour."""

    key = "shadow"

    def load(
        self, plan: Plan, session: SessionView, device: Device, options: Options
    ) -> EngineView:
        """An engine that is looked at, by ``ShadowOptions`` as they are. Raises what the default
        flavour and ``shadow`` raise.
        """
        engine = session.flavours[DEFAULT].load(plan, session, device, options)
        return self.shadow(engine, session, ShadowOptions())

    def shadow(
        self, engine: EngineView, session: SessionView, options: ShadowOptions
    ) -> ShadowedView:
        from tactix_inspect.shadowing.served import shadow

        return shadow(engine, session, options)
