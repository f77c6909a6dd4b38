"""Whose plans may bring code into this process: keys, signatures, trusted digests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tactix.contracts.trust import TrustStore


def trust_stores() -> list[TrustStore]:
    """The built-in trust store: the user's own."""
    from tactix_trust.store import LocalStore

    return [LocalStore()]


def trust_digest(digest: str, note: str = "") -> None:
    """Let the plan whose header has this sha256, as hexadecimal digits, run its code here.

    ``note``: for people, kept with it. Raises InvalidArgument, ConfigError.
    """
    from tactix_trust.changing import changing
    from tactix_trust.trust_file import digest_of

    text = digest_of(digest)
    with changing() as trust_file:
        trust_file.digests[text] = note
