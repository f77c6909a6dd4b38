"""Runtime flavour: what stands between a plan and an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tactix.contracts.device import Device


class RuntimeFlavour(Protocol):
    """``key``: ``default``, ``lean``, ``dispatch`` or another name in a namespace."""

    key: str

    def load(self, plan: Any, session: Any, device: Device, options: Any) -> Any:
        """An engine of an admitted plan."""
