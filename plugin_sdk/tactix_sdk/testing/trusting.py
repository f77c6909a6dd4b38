"""Trust stores: what they sign they vouch for, and for nothing else."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from tactix.base.errors import TactixError
from tactix.contracts.trust import Seal, TrustStore
from tactix_sdk.testing.looking import check_parts, wrong_type
from tactix_sdk.testing.report import check
from tactix_sdk.testing.subject import Subject

DIGESTS = tuple(hashlib.sha256(bytes([n])).digest() for n in range(8))
NONE = (
    b"\0",
    b"{}",
    b"[]",
    b"\xff" * 64,
    b"x" * (1 << 20),
    b'{"algorithm": 1, "key": [], "value": {}}',
)
"""Signatures that are none."""
OWN = ("TACTIX_SIGNING_KEY", "TACTIX_TRUSTED_KEYS")


@check("trust-store")
def trust_store(subject: Subject) -> str:
    """Trust stores vouch for what they signed, in any thread, and never for what is forged or
    unknown.
    """
    looks = (_unknown, _forged, _at_once)
    with _away_from_the_user():
        return check_parts(
            "trust-store", subject, "trust stores", subject.objects("trust_stores"), looks
        )


@contextlib.contextmanager
def _away_from_the_user() -> Iterator[None]:
    """Keys are those of a folder that goes away."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory() as home:
        os.environ["TACTIX_HOME"] = home
        for name in OWN:
            os.environ.pop(name, None)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def _vouched(one: TrustStore, seal: Seal, about: str) -> Iterator[str]:
    """What is wrong where a seal of no trust is vouched for, or is refused by another error."""
    try:
        said: object = one.trusted_by(seal)
    except Exception as e:
        yield from wrong_type(e, f"trusted_by, of {about},")
        return
    if said:
        yield f"it vouches for {about}: {said!r}"
    elif not isinstance(said, str):
        yield f"trusted_by, of {about}, gives {said!r}: give a text, an empty one for no"


def _unknown(subject: Subject, one: TrustStore) -> Iterator[str]:
    """Plans that nobody signed are asked about."""
    yield from _vouched(one, Seal(DIGESTS[0]), "a plan that nobody signed")
    for signature in NONE:
        yield from _vouched(one, Seal(DIGESTS[0], signature), f"the signature {signature[:24]!r}")


def _signed(one: TrustStore, digest: bytes) -> bytes:
    """Its signature; empty where it signs nothing."""
    try:
        return one.sign(digest)
    except (TactixError, OSError):
        return b""


def _forged(subject: Subject, one: TrustStore) -> Iterator[str]:
    """What it signs is asked about, then with another digest, or with half of the signature."""
    signature = _signed(one, DIGESTS[0])
    if not isinstance(signature, bytes):
        yield f"sign gives a {type(signature).__name__}, not bytes"
        return
    if not signature:
        return
    if not one.trusted_by(Seal(DIGESTS[0], signature)):
        yield "it does not vouch for what it signed"
    for at in range(len(DIGESTS[0])):
        other = bytes(b ^ (i == at) for i, b in enumerate(DIGESTS[0]))
        yield from list(
            _vouched(one, Seal(other, signature), "a plan that was changed after it was signed")
        )
    for part in (signature[: len(signature) // 2], signature[len(signature) // 2 :]):
        yield from _vouched(one, Seal(DIGESTS[0], part), "half of a signature")


def _at_once(subject: Subject, one: TrustStore) -> Iterator[str]:
    """Threads sign and ask at once."""

    def work(digest: bytes) -> bool:
        signature = _signed(one, digest)
        return not signature or bool(one.trusted_by(Seal(digest, signature)))

    with ThreadPoolExecutor(4) as pool:
        if not all(pool.map(work, DIGESTS * 4)):
            yield "of several threads at once, it does not vouch for what it signed"
