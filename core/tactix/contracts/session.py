"""What running a plan sees of a session: what plugins gave for that, by key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from tactix.base.logger import Logger
from tactix.contracts.trust import Seal

if TYPE_CHECKING:
    from tactix.contracts.allocator import Allocator
    from tactix.contracts.device import Device
    from tactix.contracts.flavour import Flavour
    from tactix.contracts.launcher import Launcher
    from tactix.contracts.layer import Layer


class SessionView(Protocol):
    """May be used from several threads. Mappings raise PluginError for a key nobody provides."""

    @property
    def logger(self) -> Logger: ...

    @property
    def layers(self) -> Mapping[str, Layer]: ...

    @property
    def launchers(self) -> Mapping[str, Launcher]: ...

    @property
    def devices(self) -> Mapping[str, Device]: ...

    @property
    def allocators(self) -> Mapping[str, Allocator]: ...

    @property
    def flavours(self) -> Mapping[str, Flavour]: ...

    @property
    def signer(self) -> Callable[[bytes], bytes] | None:
        """What signs plans that are made here; None where there is no local key."""

    def why_missing(self, namespace: str, hook: str) -> tuple[str, str]:
        """Why what a namespace gives through a hook may not be here, and the cure; empty texts for
        no reason.
        """

    def why_unused(self, namespace: str, hook: str) -> tuple[str, str]:
        """Why what is installed of a namespace does not give through a hook, and the cure; empty
        texts for no reason, and where nothing of it is installed.
        """

    def presented(self, subject: object) -> str | None:
        """A picture of it as HTML for notebooks; None if nothing that is in use makes one."""

    def trusted_by(self, seal: Seal) -> str:
        """Why a plan is trusted, in words; empty if it is not. Raises UntrustedPlan for a forged
        signature.
        """
