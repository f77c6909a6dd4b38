"""Trust store: who vouches for a plan whose code would run in this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Seal:
    """What a plan file says of itself before anything in it is decoded.

    ``digest``: sha256 of the header, which holds the sha256 of every blob. ``signature``: as a trust store wrote it,
    not covered by the digest; empty if the plan is not signed.
    """

    digest: bytes
    signature: bytes = b""


class TrustStore(Protocol):
    """Thread-safe. ``key``: its name; what is built here is signed by the one called ``local``."""

    key: str

    def sign(self, digest: bytes) -> bytes:
        """A signature for a header's sha256. Raises ConfigError, OSError."""

    def vouches(self, seal: Seal) -> str:
        """Why the plan is trusted, in words; empty if it is not. Raises UntrustedPlan for a forged signature."""
