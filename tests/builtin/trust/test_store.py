"""Keys, the file that holds them, and two processes at it."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tactix.base.errors import ConfigError, InvalidArgument, UntrustedPlan
from tactix.contracts.trust import Seal
from tactix_trust import key as keys
from tactix_trust import key_exchange, trust_digest, trust_file
from tactix_trust.changing import changing, generate
from tactix_trust.store import LocalStore, parse, sign

Become = Callable[[str], Path]
DIGEST = hashlib.sha256(b"a header").digest()
OTHER = hashlib.sha256(b"another").digest()


@pytest.fixture(params=keys.ALGORITHMS)
def key(request: pytest.FixtureRequest) -> keys.TrustKey:
    if request.param == keys.ED25519:
        pytest.importorskip("cryptography")
    return generate(request.param, "mine")


def test_the_local_key_is_made_once(home: Become) -> None:
    store = LocalStore()
    assert store.trusted_by(Seal(DIGEST)) == ""
    assert not home("maker").exists()
    first = store.sign(DIGEST)
    assert store.sign(DIGEST) == first == LocalStore().sign(DIGEST)
    assert "hmac-sha256 key" in store.trusted_by(Seal(DIGEST, first))
    found = trust_file.read()
    assert list(found.keys) == [found.local] == [parse(first)[1]]


def test_a_secret_is_never_in_a_signature(key: keys.TrustKey) -> None:
    text = sign(key, DIGEST)
    assert key.secret.hex().encode() not in text
    assert key.secret not in text
    assert key.id not in key.secret.hex()


def test_signatures_of_both_kinds(key: keys.TrustKey) -> None:
    with changing() as found:
        found.add(key)
    signature = sign(key, DIGEST)
    assert LocalStore().trusted_by(Seal(DIGEST, signature)) == f"signed by {key.title}"
    with pytest.raises(UntrustedPlan, match=f"names {key.algorithm} key {key.id}"):
        LocalStore().trusted_by(Seal(OTHER, signature))
    j = json.loads(signature)
    other = next(a for a in keys.ALGORITHMS if a != key.algorithm)
    for wrong in (j | {"algorithm": other}, j | {"value": ""}, j | {"value": "00" * 32}):
        with pytest.raises(UntrustedPlan):
            LocalStore().trusted_by(Seal(DIGEST, json.dumps(wrong).encode()))


def test_foreign_and_removed_keys(key: keys.TrustKey) -> None:
    signature = sign(key, DIGEST)
    assert LocalStore().trusted_by(Seal(DIGEST, signature)) == ""
    with changing() as found:
        found.add(key)
    assert LocalStore().trusted_by(Seal(DIGEST, signature))
    with changing() as found:
        del found.keys[key.id]
    assert LocalStore().trusted_by(Seal(DIGEST, signature)) == ""


def test_the_public_half_verifies_and_cannot_sign(home: Become) -> None:
    pytest.importorskip("cryptography")
    key = generate(keys.ED25519, "release")
    home("other")
    public = keys.public_key(key_exchange.export(key) + "\n", "theirs")
    assert public.id == key.id
    with changing() as found:
        found.add(public)
    assert (
        LocalStore().trusted_by(Seal(DIGEST, sign(key, DIGEST)))
        == f"signed by ed25519 key {key.id} (theirs)"
    )
    with pytest.raises(InvalidArgument, match="secret is not here"):
        sign(public, DIGEST)


def test_trusting_the_public_half_of_an_own_key_keeps_the_secret() -> None:
    pytest.importorskip("cryptography")
    key = generate(keys.ED25519, "mine")
    with changing() as found:
        found.add(key)
        found.add(keys.public_key(key_exchange.export(key), "again"))
    (kept,) = trust_file.read().keys.values()
    assert (kept.secret, kept.name) == (key.secret, "again")


def test_without_cryptography(monkeypatch: pytest.MonkeyPatch) -> None:
    signature = json.dumps(
        {
            "algorithm": "ed25519",
            "key": keys.TrustKey(keys.ED25519, public=bytes(32)).id,
            "value": "00",
        }
    )
    with changing() as found:
        found.add(keys.TrustKey(keys.ED25519, public=bytes(32)))
    for name in (
        "cryptography",
        "cryptography.exceptions",
        "cryptography.hazmat.primitives.asymmetric",
    ):
        monkeypatch.setitem(sys.modules, name, None)
    for use in (
        lambda: generate(keys.ED25519),
        lambda: LocalStore().trusted_by(Seal(DIGEST, signature.encode())),
    ):
        with pytest.raises(ConfigError, match=r"pip install 'tactix\[sign\]'"):
            use()


def test_a_secret_key_is_not_exported() -> None:
    with pytest.raises(InvalidArgument, match="no public half"):
        key_exchange.export(generate(keys.HMAC))


@pytest.mark.parametrize(
    "text", ["", "ed25519", "ed25519:", "ed25519:zz", "ed25519:" + "00" * 31, "hmac-sha256:00"]
)
def test_what_is_no_public_key(text: str) -> None:
    with pytest.raises(InvalidArgument, match="no public key"):
        keys.public_key(text)


def test_keys_are_found_by_name_and_beginning() -> None:
    found = trust_file.TrustFile()
    a, b = generate(keys.HMAC, "a"), generate(keys.HMAC, "b")
    found.add(a)
    found.add(b)
    assert (
        key_exchange.find(found, "a")
        == key_exchange.find(found, a.id)
        == key_exchange.find(found, a.id[:12])
        == a
    )
    for text in ("", "nobody", "zzz"):
        with pytest.raises(InvalidArgument, match="no key"):
            key_exchange.find(found, text)
    found.add(generate(keys.HMAC, "a"))
    with pytest.raises(InvalidArgument, match="several"):
        key_exchange.find(found, "a")


# -- the file ------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")
def test_only_its_user_may_read_it(home: Become) -> None:
    old = os.umask(0)
    try:
        LocalStore().sign(DIGEST)
    finally:
        os.umask(old)
    file = home("maker")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    for mode in (0o640, 0o604, 0o620, 0o602):
        file.chmod(mode)
        with pytest.raises(ConfigError, match="chmod 600"):
            LocalStore().trusted_by(Seal(DIGEST))
    file.chmod(0o600)
    assert LocalStore().trusted_by(Seal(DIGEST)) == ""


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"version": 2, "local": "", "keys": [], "digests": {}}',
     '{"version": 1, "local": "", "keys": [{"algorithm": "x", "secret": "", "public": "", "name": ""}], "digests": {}}',
     '{"version": 1, "local": "", "keys": [], "digests": {"12": ""}}'],
)  # fmt: skip
def test_a_damaged_file_trusts_nobody(home: Become, text: str) -> None:
    LocalStore().sign(DIGEST)
    home("maker").write_text(text)
    for use in (lambda: LocalStore().trusted_by(Seal(DIGEST)), lambda: LocalStore().sign(DIGEST)):
        with pytest.raises(ConfigError, match=r"cannot read the trust store.*Mend it"):
            use()


def test_a_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TACTIX_HOME", str(tmp_path / "file" / "below"))
    with pytest.raises(ConfigError, match=r"cannot write.*TACTIX_HOME"):
        trust_digest("00" * 32)


def test_where_it_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TACTIX_HOME")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert trust_file.place() == tmp_path / "tactix" / "trust.json"
    monkeypatch.setenv("XDG_DATA_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert trust_file.place() == tmp_path / ".local" / "share" / "tactix" / "trust.json"


def test_digests(home: Become) -> None:
    trust_digest("sha256:" + DIGEST.hex().upper() + "\n", "why")
    assert trust_file.read().digests == {DIGEST.hex(): "why"}
    assert LocalStore().trusted_by(Seal(DIGEST)) == "its digest is trusted"
    assert LocalStore().trusted_by(Seal(OTHER)) == ""
    for wrong in ("", "00" * 31, "zz" * 32, DIGEST.hex() + "0"):
        with pytest.raises(InvalidArgument, match="no digest"):
            trust_digest(wrong)


def test_a_trusted_digest_does_not_excuse_a_forged_signature() -> None:
    own = LocalStore().sign(DIGEST)
    trust_digest(OTHER.hex())
    with pytest.raises(UntrustedPlan):
        LocalStore().trusted_by(Seal(OTHER, own))


CHILD = """
import sys
from tactix_trust import trust_digest
from tactix_trust.store import LocalStore
sys.stdin.readline()
print(LocalStore().sign(bytes(32)).decode(), flush=True)
for i in range(5):
    trust_digest(f"{int(sys.argv[1]):032x}{i:032x}")
"""


def test_processes_that_make_the_local_key_at_once(home: Become) -> None:
    """All sign with one key, and none loses what another wrote."""
    started: list[Any] = [
        subprocess.Popen([sys.executable, "-c", CHILD, str(i)], stdin=-1, stdout=-1, text=True)
        for i in range(3)
    ]
    for p in started:
        p.stdin.write("\n")
        p.stdin.flush()
    signatures = {p.communicate(timeout=60)[0].strip() for p in started}
    assert [p.returncode for p in started] == [0, 0, 0]
    (signature,) = signatures
    found = trust_file.read()
    assert list(found.keys) == [found.local] == [json.loads(signature)["key"]]
    assert len(found.digests) == 15


def test_loading_needs_neither_platformdirs_nor_filelock() -> None:
    """Where the user's data folder is XDG's."""
    LocalStore().sign(DIGEST)
    code = (
        "import sys; sys.modules.update(platformdirs=None, filelock=None, cryptography=None); sys.platform = 'linux'\n"
        "from tactix.contracts.trust import Seal; from tactix_trust.store import LocalStore\n"
        "print(repr(LocalStore().trusted_by(Seal(bytes(32)))))"
    )
    for env in (dict(os.environ), {k: v for k, v in os.environ.items() if k != "TACTIX_HOME"}):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
        )
        assert done.stdout == "''\n"
