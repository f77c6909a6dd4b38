"""Keys that the environment brings, for machines on which nothing is kept: TACTIX_SIGNING_KEY and
TACTIX_TRUSTED_KEYS.

Each is the text of keys, or the path of a file with it, which may be mounted: one key a line, or
with commas between; what follows ``#`` is for people.
"""

from __future__ import annotations

import os
import re

from tactix.base.errors import ConfigError, InvalidArgument
from tactix_trust.key import ED25519, TrustKey, public_key

SIGNING, TRUSTED = "TACTIX_SIGNING_KEY", "TACTIX_TRUSTED_KEYS"
SECRET = f"{ED25519}-secret"
"""The word in front of the hexadecimal digits of a secret."""


def signing_key() -> TrustKey | None:
    """The key that signs what is built here, in place of the local one. Raises ConfigError."""
    found = [secret_key(text, SIGNING) for text in _texts(SIGNING)]
    if len(found) > 1:
        raise ConfigError(f"{SIGNING} has {len(found)} keys", do="Give one")
    return found[0] if found else None


def known_keys() -> dict[str, TrustKey]:
    """Keys trusted beside those of the trust store, by id. Raises ConfigError."""
    signer = signing_key()
    keys = [*([signer] if signer else []), *(_public(text) for text in _texts(TRUSTED))]
    return {k.id: k for k in keys}


def secret_key(text: str, name: str) -> TrustKey:
    """The key of a text as ``secret_text`` gives it. Raises ConfigError, which does not show it."""
    word, _, digits = text.strip().partition(":")
    try:
        if word == SECRET:
            return TrustKey.from_secret(bytes.fromhex(digits), name)
    except (ValueError, InvalidArgument):
        pass
    do = (
        "Give what `tactix keys new --algorithm ed25519 --file PATH` wrote, "
        "or the path of that file"
    )
    raise ConfigError(f"{name} holds no secret key", do=do)


def secret_text(key: TrustKey) -> str:
    """All of an Ed25519 key, as TACTIX_SIGNING_KEY has it."""
    return f"{SECRET}:{key.secret.hex()}"


def _public(text: str) -> TrustKey:
    try:
        return public_key(text, TRUSTED)
    except InvalidArgument as e:
        raise ConfigError(f"{TRUSTED} holds no public key", why=e.what, do=e.do) from None


def _texts(variable: str) -> list[str]:
    given = os.environ.get(variable, "").strip()
    if given and not given.startswith(ED25519):
        try:
            with open(given, encoding="utf-8") as f:
                given = f.read()
        except (OSError, ValueError) as e:
            raise ConfigError(
                f"{variable} is neither a key nor a file with keys", why=str(e)
            ) from None
    lines = (line.partition("#")[0] for line in given.splitlines())
    return [text for line in lines for text in re.split(r"[\s,]+", line) if text]
