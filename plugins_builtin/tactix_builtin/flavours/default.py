"""The flavour that runs a plan in this process with everything that the runtime offers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tactix.contracts.device import Device


class DefaultFlavour:
    """An Engine over the plan itself."""

    key = "default"

    def load(self, plan: Any, session: Any, device: Device, options: Any) -> Any:
        """An engine. Raises PlanCompatibilityError, AllocationError."""
        from tactix.run.engine import Engine

        return Engine(plan, session, device, options)
