"""Making keys, and changing the file of the trust store, one process at a time; looking into it
needs none of this.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tactix.base.errors import ConfigError
from tactix.base.files import replacing
from tactix_trust.key import HMAC, SIZE, TrustKey
from tactix_trust.trust_file import VERSION, TrustFile, place, read


def generate(algorithm: str, name: str = "") -> TrustKey:
    """A fresh key. Raises ConfigError where its algorithm is not there."""
    secret = os.urandom(SIZE)
    if algorithm == HMAC:
        return TrustKey(HMAC, secret, name=name)
    return TrustKey.from_secret(secret, name)


def local_key() -> TrustKey:
    """The key that signs what is built here; made if there is none. Raises ConfigError."""
    with changing() as trust_file:  # another process may have made it meanwhile
        if trust_file.local not in trust_file.keys:
            made = generate(HMAC, "local")
            trust_file.add(made)
            trust_file.local = made.id
        return trust_file.keys[trust_file.local]


@contextmanager
def changing() -> Iterator[TrustFile]:
    """What is trusted now, to be changed; written when the block ends. Raises ConfigError."""
    path = place()
    try:
        from filelock import FileLock
    except ImportError as e:  # the lean runtime alone
        do = "pip install filelock; or make the key with tactix: tactix keys new --local"
        raise ConfigError(
            "cannot write the trust store", who=str(path), why=str(e), do=do
        ) from None
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(f"{path}.lock", mode=0o600):
            trust_file = read()
            yield trust_file
            with replacing(path, 0o600) as f:
                f.write(json.dumps(_encode(trust_file), indent=1).encode())
    except OSError as e:
        do = (
            "Set TACTIX_HOME to a folder that can be written; to build without signing give "
            "sign=False (--no-sign)"
        )
        raise ConfigError(
            "cannot write the trust store", who=str(path), why=str(e), do=do
        ) from None


def _encode(trust_file: TrustFile) -> dict[str, Any]:
    keys = [
        {
            "algorithm": k.algorithm,
            "secret": k.secret.hex(),
            "public": k.public.hex(),
            "name": k.name,
        }
        for k in trust_file.keys.values()
    ]
    return {
        "version": VERSION,
        "local": trust_file.local,
        "keys": keys,
        "digests": trust_file.digests,
    }
