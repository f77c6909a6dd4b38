"""Keys that the environment brings: nothing is kept, and nothing of a secret is told."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import tactix
from tactix.base.errors import ConfigError, UntrustedPlan
from tactix.plan import container
from tactix.plan.schema import Plan
from tactix_tools import cli
from tactix_trust import key_exchange
from tactix_trust.changing import generate
from tactix_trust.environment import known_keys, secret_text, signing_key
from tactix_trust.key import ED25519, TrustKey

pytest.importorskip("cryptography")
Become = Callable[[str], Path]


@pytest.fixture
def key() -> TrustKey:
    return generate(ED25519)


@pytest.mark.parametrize("kind", ["text", "file"])
def test_its_key_signs_and_its_public_half_is_trusted(
    plan: Plan,
    key: TrustKey,
    kind: str,
    tmp_path: Path,
    home: Become,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def given(name: str, text: str) -> str:
        if kind == "text":
            return text
        (tmp_path / name).write_text(f"# of the tests\n\n{text}  # one of them\n")
        return str(tmp_path / name)

    store = home("builder")
    monkeypatch.setenv("TACTIX_SIGNING_KEY", given("secret", secret_text(key)))
    tactix.Runtime().load(plan).save(tmp_path / "a.plan")
    assert tactix.load(tmp_path / "a.plan").plan.seal is not None, "what signs is trusted"
    container.save(plan, tmp_path / "b.plan")
    assert cli.main(["sign", str(tmp_path / "b.plan")]) == 0
    assert (tmp_path / "b.plan").read_bytes() == (tmp_path / "a.plan").read_bytes()
    monkeypatch.delenv("TACTIX_SIGNING_KEY")
    assert not store.exists()
    with pytest.raises(UntrustedPlan):
        tactix.load(tmp_path / "a.plan")
    others = key_exchange.export(generate(ED25519))
    monkeypatch.setenv(
        "TACTIX_TRUSTED_KEYS", given("trusted", f"{others}, {key_exchange.export(key)}")
    )
    verdict = tactix.Runtime().judge(container.load(tmp_path / "a.plan"))
    assert verdict.trusted_by == f"signed by ed25519 key {key.id} (TACTIX_TRUSTED_KEYS)"
    monkeypatch.setenv("TACTIX_TRUSTED_KEYS", given("trusted", others))
    with pytest.raises(UntrustedPlan):
        tactix.load(tmp_path / "a.plan")
    assert not store.exists()


@pytest.mark.parametrize(
    "text", ["ed25519-secret:12", "ed25519-secret:zz", "ed25519:", "/nowhere/at/all", "x"]
)
def test_what_is_no_key(
    text: str, key: TrustKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACTIX_SIGNING_KEY", text)
    with pytest.raises(ConfigError, match="TACTIX_SIGNING_KEY"):
        signing_key()
    monkeypatch.delenv("TACTIX_SIGNING_KEY")
    monkeypatch.setenv("TACTIX_TRUSTED_KEYS", text)
    with pytest.raises(ConfigError, match="TACTIX_TRUSTED_KEYS"):
        known_keys()
    monkeypatch.setenv("TACTIX_TRUSTED_KEYS", "")
    monkeypatch.setenv("TACTIX_SIGNING_KEY", f"{secret_text(key)},{secret_text(generate(ED25519))}")
    with pytest.raises(ConfigError, match="has 2 keys"):
        signing_key()
    monkeypatch.setenv("TACTIX_SIGNING_KEY", secret_text(key)[:-2])
    with pytest.raises(ConfigError) as caught:
        signing_key()
    assert key.secret.hex()[:8] not in str(caught.value)


def test_a_key_in_a_file_of_its_own(
    tmp_path: Path,
    home: Become,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is in no trust store, nobody else can read it, and an older one is not lost."""
    store = home("fresh")
    place = tmp_path / "release.key"
    command = ["keys", "new", "--algorithm", "ed25519", "--file", str(place)]
    assert cli.main([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert os.name != "posix" or place.stat().st_mode & 0o077 == 0
    monkeypatch.setenv("TACTIX_SIGNING_KEY", str(place))
    key = signing_key()
    assert key is not None
    assert (told["id"], told["public"]) == (key.id, key_exchange.export(key))
    assert not store.exists()
    before = place.read_bytes()
    assert cli.main(command) != 0
    assert place.read_bytes() == before
    assert cli.main(["keys", "new", "--file", str(tmp_path / "hmac.key")]) == 2
    assert not (tmp_path / "hmac.key").exists()
