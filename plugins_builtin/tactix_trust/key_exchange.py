"""What is done with keys by hand: public halves are passed on, keys are called by their names."""

from __future__ import annotations

from tactix.base.errors import InvalidArgument
from tactix_trust.key import ED25519, HMAC, TrustKey
from tactix_trust.trust_file import TrustFile


def export(key: TrustKey) -> str:
    """What others need to verify: ``ed25519:`` and hexadecimal digits. Raises InvalidArgument for a
    secret one.
    """
    if key.algorithm == HMAC:
        do = "Make one of ed25519: tactix keys new --algorithm ed25519"
        raise InvalidArgument(
            f"{key.title} has no public half", why="who can verify with it can sign", do=do
        )
    return f"{ED25519}:{key.public.hex()}"


def find(trust_file: TrustFile, text: str) -> TrustKey:
    """The key of that name, else the one whose id begins so. Raises InvalidArgument unless there is
    just one.
    """
    named = [k for k in trust_file.keys.values() if text and k.name == text]
    found = named or [k for k in trust_file.keys.values() if text and k.id.startswith(text)]
    if len(found) != 1:
        do = "`tactix keys list` shows them"
        raise InvalidArgument(
            f"{'no key is' if not found else 'several keys are'} called {text!r}", do=do
        )
    return found[0]
