"""Keys: HMAC-SHA256 with a secret of this user, and Ed25519 (RFC 8032), whose public half others
verify with.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
from dataclasses import dataclass
from typing import Any

from tactix.base.errors import ConfigError, InvalidArgument

HMAC, ED25519 = "hmac-sha256", "ed25519"
ALGORITHMS = (HMAC, ED25519)
SIZE = 32
"""Bytes of a secret, and of a public half."""


@dataclass(frozen=True)
class TrustKey:
    """``secret``: empty for others' keys. ``public``: of an Ed25519 key. ``name``: for people."""

    algorithm: str
    secret: bytes = b""
    public: bytes = b""
    name: str = ""

    def __post_init__(self) -> None:
        sizes = (SIZE, 0) if self.algorithm == HMAC else (len(self.secret) and SIZE, SIZE)
        if self.algorithm not in ALGORITHMS or (len(self.secret), len(self.public)) != sizes:
            raise InvalidArgument(
                f"no key of {self.algorithm[:20]!r}", why="unknown algorithm, or wrong length"
            )

    @classmethod
    def from_secret(cls, secret: bytes, name: str = "") -> TrustKey:
        """The Ed25519 key of a secret. Raises InvalidArgument for one of another length,
        ConfigError.
        """
        if len(secret) != SIZE:
            raise InvalidArgument(
                "no secret of ed25519", why=f"it has {len(secret)} bytes, not {SIZE}"
            )
        public = (
            ed25519().Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
        )
        return cls(ED25519, secret, public, name)

    @functools.cached_property
    def id(self) -> str:
        """32 hexadecimal digits that name it, and tell nothing of the secret."""
        return hashlib.sha256(
            self.algorithm.encode() + b"\0" + (self.public or self.secret)
        ).hexdigest()[:32]

    @property
    def title(self) -> str:
        """For messages."""
        return f"{self.algorithm} key {self.id}" + (f" ({self.name})" if self.name else "")

    def sign(self, message: bytes) -> bytes:
        """Raises InvalidArgument for a key of others, ConfigError."""
        if not self.secret:
            raise InvalidArgument(f"{self.title} cannot sign", why="its secret is not here")
        if self.algorithm == HMAC:
            return hmac.digest(self.secret, message, "sha256")
        key = ed25519().Ed25519PrivateKey.from_private_bytes(self.secret)
        signature: bytes = key.sign(message)
        return signature

    def fits(self, message: bytes, signature: bytes) -> bool:
        """Whether the signature is of this message by this key; as long for a wrong one. Raises
        ConfigError.
        """
        if self.algorithm == HMAC:
            return hmac.compare_digest(self.sign(message), signature)
        public = ed25519().Ed25519PublicKey.from_public_bytes(self.public)
        from cryptography.exceptions import InvalidSignature

        try:
            public.verify(signature, message)
        except InvalidSignature:
            return False
        return True


def public_key(text: str, name: str = "") -> TrustKey:
    """The key of a text like ``ed25519:4d1f...``. Raises InvalidArgument."""
    algorithm, _, digits = text.strip().partition(":")
    try:
        if algorithm == ED25519:
            return TrustKey(ED25519, public=bytes.fromhex(digits), name=name)
    except ValueError:
        pass
    raise InvalidArgument(
        f"{text[:80]!r} is no public key", do="Give what `tactix keys export` prints: ed25519:..."
    )


def ed25519() -> Any:
    """The module of its keys. Raises ConfigError."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519 as keys
    except ImportError as e:
        raise ConfigError(
            "ed25519 is not here", why=str(e), do="pip install 'tactix[sign]'"
        ) from None
    return keys
