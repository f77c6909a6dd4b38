"""Trust store: which plans are trusted to run their code, and what becomes of one that is not."""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass
from typing import Protocol

from tactix.base.errors import ConfigError

LOCAL = "local"
"""The key of the trust store that signs what is made here."""


class OnUntrusted(enum.StrEnum):
    """What becomes of a plan that brings code, for a processor or a GPU, which is not trusted.

    ``REFUSE``: it is not loaded. ``REFERENCES``: the numpy references of installed layers run in
    place of its code.
    ``ALLOW``: its code runs.
    """

    REFUSE = "refuse"
    REFERENCES = "references"
    ALLOW = "allow"

    @classmethod
    def chosen(cls, given: str = "") -> OnUntrusted:
        """What was given, else TACTIX_UNTRUSTED, else ``REFUSE``. Raises ConfigError."""
        text = given or os.environ.get("TACTIX_UNTRUSTED", "") or cls.REFUSE
        try:
            return cls(text)
        except ValueError:
            who = "on_untrusted" if given else "TACTIX_UNTRUSTED"
            raise ConfigError(f"{who} is {text!r}", do=f"Choose one of {', '.join(cls)}") from None


@dataclass(frozen=True)
class Seal:
    """What a plan file says of itself before anything in it is decoded.

    ``digest``: sha256 of the header, which holds the sha256 of every blob. ``signature``: as a
    trust store wrote it, not covered by the digest; empty if the plan is not signed.
    """

    digest: bytes
    signature: bytes = b""


class TrustStore(Protocol):
    """Thread-safe. ``key``: its name; what is built here is signed by the one called LOCAL."""

    key: str

    def sign(self, digest: bytes) -> bytes:
        """A signature for a header's sha256. Raises ConfigError, OSError."""

    def trusted_by(self, seal: Seal) -> str:
        """Why the plan is trusted, in words; empty if it is not. Raises UntrustedPlan for a forged
        signature.
        """
