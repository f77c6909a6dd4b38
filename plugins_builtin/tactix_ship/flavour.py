"""The flavour that runs plans on the lean runtime of this version, apart from everything else in
the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.contracts.flavour import Flavour, Source
from tactix.plan.schema import Plan

if TYPE_CHECKING:
    from tactix.contracts.device import Device
    from tactix.contracts.engine import EngineView
    from tactix.contracts.flavour import Options
    from tactix.contracts.runtime import RuntimeView
    from tactix.contracts.session import SessionView


class LeanFlavour(Flavour[Plan]):
    """What a machine without tactix would do with a plan."""

    key = "lean"

    def open(self, runtime: RuntimeView[Plan], source: Source, verify: bool | None) -> EngineView:
        """The lean runtime's engine. Raises what its ``Runtime.deserialize`` does, ConfigError."""
        from tactix_runtime.dispatch import envelope_of, hand_over
        from tactix_runtime.lean_runtime import unpack
        from tactix_ship.lean.wheel import wheel

        data, found = envelope_of(source)
        return hand_over(runtime, unpack(wheel()), data, found, verify)

    def load(
        self, plan: Plan, session: SessionView, device: Device, options: Options
    ) -> EngineView:
        """Raises InvalidArgument: a lean runtime knows no objects of ours."""
        from tactix_runtime.dispatch import no_bytes

        raise no_bytes(self.key)
