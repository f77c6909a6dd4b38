"""The user's trust store: trusts digests, and what its or the environment's keys sign."""

from __future__ import annotations

import json

from tactix.base.errors import PlanFormatError, UntrustedPlan
from tactix.contracts.trust import LOCAL, Seal
from tactix_trust.environment import known_keys, signing_key
from tactix_trust.key import ALGORITHMS, TrustKey
from tactix_trust.trust_file import read

DOMAIN = b"tactix plan signature 1\n"
"""Stands before the digest in what is signed, so that no signature of something else is one of a
plan.
"""


class LocalStore:
    """Plans made here are signed by the local key, which is made when there is none."""

    key = LOCAL

    def sign(self, digest: bytes) -> bytes:
        """By the local key. Raises ConfigError."""
        return sign(local_key(), digest)

    def trusted_by(self, seal: Seal) -> str:
        """Raises UntrustedPlan for a forged signature, PlanFormatError for what is none,
        ConfigError.
        """
        trust_file = read()
        if seal.signature:
            algorithm, name, value = parse(seal.signature)
            known = trust_file.keys.get(name) or known_keys().get(name)
            if known is not None:
                if known.algorithm != algorithm or not known.fits(DOMAIN + seal.digest, value):
                    do = "Get the plan again from where it was signed"
                    raise UntrustedPlan(
                        "the signature does not fit the plan", why=f"it names {known.title}", do=do
                    )
                return f"signed by {known.title}"
        return "its digest is trusted" if seal.digest.hex() in trust_file.digests else ""


def sign(key: TrustKey, digest: bytes) -> bytes:
    """The signature of a header with that sha256, as a plan holds it. Raises InvalidArgument,
    ConfigError.
    """
    value = key.sign(DOMAIN + digest).hex()
    text = json.dumps({"algorithm": key.algorithm, "key": key.id, "value": value}, sort_keys=True)
    return text.encode("ascii")


def parse(signature: bytes) -> tuple[str, str, bytes]:
    """Algorithm, id of the key, value. Raises PlanFormatError."""
    try:
        j = json.loads(signature.decode("ascii"))
        algorithm, name, value = j["algorithm"], j["key"], bytes.fromhex(j["value"])
        if len(j) == 3 and algorithm in ALGORITHMS and isinstance(name, str):
            return algorithm, name, value
        why = "its fields are not those of a signature"
    except (ValueError, TypeError, KeyError, RecursionError) as e:
        why = str(e)[:200]
    raise PlanFormatError("the plan's signature cannot be read", why=why)


def local_key() -> TrustKey:
    """The key that signs what is built here: of the environment, or of the trust store, made when
    there is none.

    Raises ConfigError.
    """
    if given := signing_key():
        return given
    trust_file = read()
    if trust_file.local in trust_file.keys:
        return trust_file.keys[trust_file.local]
    from tactix_trust import changing

    return changing.local_key()
