"""The flavour that runs a plan in this process with everything that the runtime offers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tactix.contracts.device import Device


class DefaultFlavour:
    """An Engine over the plan itself; its contexts are phased where the plan needs it."""

    key = "default"

    def load(self, plan: Any, session: Any, device: Device, options: Any) -> Any:
        """An engine. Raises PlanCompatibilityError, AllocationError."""
        from tactix_builtin.flavours.inspector import InspectedEngine

        if not plan.produced:
            return InspectedEngine(plan, session, device, options)
        from tactix_builtin.flavours.phased import PhasedContext

        return InspectedEngine(plan, session, device, options, PhasedContext)
