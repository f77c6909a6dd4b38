"""The flavour that runs plans on the lean runtime of this version, apart from everything else in the process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tactix.contracts.device import Device


class LeanFlavour:
    """What a machine without tactix would do with a plan."""

    key = "lean"

    def open(self, runtime: Any, source: Any, verify: bool | None) -> Any:
        """The guest's engine. Raises what its ``Runtime.deserialize`` does, ConfigError."""
        from tactix_runtime.dispatch import envelope_of, hand_over
        from tactix_runtime.lean_runtime import unpack
        from tactix_ship.lean.wheel import wheel

        data, found = envelope_of(source)
        return hand_over(runtime, unpack(wheel()), data, found, verify)

    def load(self, plan: Any, session: Any, device: Device, options: Any) -> Any:
        """Raises InvalidArgument: a guest knows no objects of ours."""
        from tactix_runtime.dispatch import no_bytes

        raise no_bytes(self.key)
