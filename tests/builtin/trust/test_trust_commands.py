"""``tactix sign``, ``verify``, ``trust``, ``keys``, and what ``run`` takes of foreign plans."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tactix.plan import container
from tactix.plan.schema import Plan
from tactix.plugins.hookspecs import hookimpl
from tactix.plugins.session import Session
from tactix_tools import cli
from tactix_trust import key_exchange, trust_file

Become = Callable[[str], Path]
Tool = Callable[..., Any]


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Tool:
    """Runs a command; its JSON document and exit code."""

    def run(*args: Any) -> tuple[Any, int]:
        capsys.readouterr()
        code = cli.main([*map(str, args), "--json"])
        return json.loads(capsys.readouterr().out), code

    return run


@pytest.fixture
def bare(plan: Plan, tmp_path: Path) -> Path:
    """Its file without a signature."""
    container.save(plan, tmp_path / "bare.plan")
    return tmp_path / "bare.plan"


class TrustingPack:
    """A pack with a trust store that trusts anything."""

    @hookimpl
    def tactix_trust_stores(self) -> list[Any]:
        return [SimpleNamespace(key="acme", trusted_by=lambda seal: "acme knows it")]


def test_verify_asks_stores_of_enabled_packs(
    path: Path, tool: Tool, home: Become, monkeypatch: pytest.MonkeyPatch
) -> None:
    home("other")
    session = Session(plugins=[("acme", TrustingPack())])
    monkeypatch.setattr(cli, "_session", lambda: session)
    found, code = tool("verify", path)
    assert (code, found["trusted"]) == (5, None)
    session.enable("acme")
    found, code = tool("verify", path)
    assert (code, found["trusted"]) == (0, "acme knows it")


@pytest.mark.parametrize("name", ["sign", "verify", "trust", "keys"])
def test_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([name, "--help"]) == 0
    assert "Usage: tactix " + name in capsys.readouterr().out


def test_verify(
    path: Path, bare: Path, tool: Tool, home: Become, capsys: pytest.CaptureFixture[str]
) -> None:
    found, code = tool("verify", path)
    assert code == 0
    assert found["digest"] == container.load(path).seal.digest.hex()
    assert found["signature"] == {"algorithm": "hmac-sha256", "key": trust_file.read().local}
    assert found["trusted"].startswith("signed by hmac-sha256 key")
    assert found["code_steps"] == len(container.load(path).steps)
    assert cli.main(["verify", str(path)]) == 0
    out = capsys.readouterr().out
    assert found["digest"] in out
    assert "whole" in out
    found, code = tool("verify", bare)
    assert (code, found["signature"], found["trusted"]) == (5, None, None)
    home("other")
    found, code = tool("verify", path)
    assert (code, found["trusted"]) == (5, None)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert tool("verify", path)[1] == 5


def test_sign_with_the_local_key(bare: Path, tool: Tool, tmp_path: Path) -> None:
    before = bare.read_bytes()
    found, code = tool("sign", bare, "-o", tmp_path / "signed.plan")
    assert code == 0
    assert bare.read_bytes() == before
    assert found == {"plan": str(tmp_path / "signed.plan"), "key": trust_file.read().local}
    one, two = (container.load(p) for p in (bare, tmp_path / "signed.plan"))
    assert one.seal.digest == two.seal.digest
    assert tool("verify", tmp_path / "signed.plan")[1] == 0
    assert tool("sign", bare)[1] == 0
    assert bare.read_bytes() == (tmp_path / "signed.plan").read_bytes()


def test_sign_refuses_a_damaged_plan(bare: Path, tool: Tool) -> None:
    data = bytearray(bare.read_bytes())
    data[-1] ^= 1
    bare.write_bytes(data)
    assert tool("sign", bare)[1] == 5
    assert bare.read_bytes() == data


def test_a_public_key_goes_to_another_user(
    path: Path, tool: Tool, home: Become, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cryptography")
    made, code = tool("keys", "new", "--algorithm", "ed25519", "--name", "release")
    assert (code, made["signs"], made["local"]) == (0, True, False)
    assert tool("sign", path, "--key", "release")[0]["key"] == made["id"]
    assert tool("verify", path)[0]["trusted"] == f"signed by ed25519 key {made['id']} (release)"
    capsys.readouterr()
    assert cli.main(["keys", "export", made["id"][:10]]) == 0
    public = capsys.readouterr().out.strip()
    home("other")
    assert tool("run", path)[1] == 5
    theirs, code = tool("keys", "trust", public, "--name", "maker")
    assert (code, theirs["id"], theirs["signs"]) == (0, made["id"], False)
    assert tool("run", path)[1] == 0
    assert cli.main(["keys", "list"]) == 0
    assert made["id"] in capsys.readouterr().out
    assert tool("sign", path, "--key", "maker")[1] == 2
    assert cli.main(["keys", "remove", "maker"]) == 0
    removed = " ".join(capsys.readouterr().out.split())
    assert "maker" in removed
    assert "plans that it signed are not trusted here from now on" in removed
    assert tool("run", path)[1] == 5


def test_a_local_key_of_ones_own(tool: Tool) -> None:
    made, _ = tool("keys", "new", "--name", "second", "--local")
    assert trust_file.read().local == made["id"]
    (row,) = tool("keys", "list")[0]["keys"]
    assert row == made
    assert cli.main(["keys", "remove", "second"]) == 0
    assert trust_file.read() == trust_file.TrustFile()
    assert cli.main(["keys", "remove", "second"]) == 2


def test_a_secret_key_stays_here(tool: Tool, capsys: pytest.CaptureFixture[str]) -> None:
    tool("keys", "new", "--name", "mine")
    secret = key_exchange.find(trust_file.read(), "mine").secret.hex()
    assert cli.main(["keys", "export", "mine"]) == 2
    assert cli.main(["keys", "list", "--json"]) == 0
    shown = capsys.readouterr()
    assert "no public half" in shown.err
    assert secret not in shown.out + shown.err


def test_trust_by_digest(bare: Path, tool: Tool, capsys: pytest.CaptureFixture[str]) -> None:
    digest = tool("verify", bare)[0]["digest"]
    error, code = tool("run", bare)
    assert (code, error["error"]["type"]) == (5, "UntrustedPlan")
    assert f"tactix trust {digest}" in error["error"]["do"]
    assert tool("run", bare, "--untrusted", "allow")[1] == 0
    assert tool("trust", digest, "--note", "why")[0] == {"digests": {digest: "why"}}
    assert tool("run", bare)[1] == 0
    assert tool("verify", bare)[0]["trusted"] == "its digest is trusted"
    assert cli.main(["trust"]) == 0
    assert digest in capsys.readouterr().out
    assert tool("trust", digest, "--remove")[0] == {"digests": {}}
    assert tool("run", bare)[1] == 5
    assert [tool("trust", *args)[1] for args in (("12",), (digest, "--remove"))] == [2, 2]
    assert cli.main(["trust", "--remove"]) == 2


def test_build_signs_unless_told_not_to(tmp_path: Path, tool: Tool) -> None:
    import onnx
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    fast = ("build", tmp_path / "m.onnx", "-O0", "--no-timing-cache", "-o", tmp_path / "m.plan")
    assert tool(*fast)[1] == 0
    assert tool("run", tmp_path / "m.plan")[1] == 0
    assert tool(*fast, "--no-sign")[1] == 0
    assert container.load(tmp_path / "m.plan").seal.signature == b""
    assert tool("run", tmp_path / "m.plan")[1] == 5


@pytest.mark.parametrize("command", [("run",), ("bench", "--seconds", "50ms")])
def test_without_trust_references_run_with_one_warning(
    command: tuple[str, ...], bare: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    references = ("--untrusted", "references")
    assert cli.main([command[0], str(bare), *command[1:]]) == 5
    assert "--untrusted allow" in capsys.readouterr().err
    assert cli.main([command[0], str(bare), *command[1:], *references]) == 0
    assert (
        capsys.readouterr().err.count(
            "the references of layers, which are slow, run in place of its code"
        )
        == 1
    )
    assert cli.main([command[0], str(bare), *command[1:], *references, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["on_references"] is True
    assert cli.main([command[0], str(bare), *command[1:], "--untrusted", "allow", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["on_references"] is False


def test_check_tells_what_loading_would_do(
    bare: Path, tool: Tool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, code = tool("check", bare)
    assert (code, refused["trust"]) == (
        5,
        {"trusted_by": "", "code": True, "outcome": "refused", "policy": "refuse"},
    )
    assert "not trusted" in refused["reasons"][0]
    slow, code = tool("check", bare, "--untrusted", "references")
    assert (code, slow["trust"]["outcome"], slow["reasons"]) == (0, "references", [])
    assert "the references of layers, which are slow" in slow["warnings"][0]
    allowed, code = tool("check", bare, "--untrusted", "allow")
    assert (code, allowed["trust"]["outcome"], allowed["warnings"]) == (0, "runs", [])
    for policy, told in (
        ("refuse", "would be refused here"),
        ("references", "would run on references here, slowly"),
    ):
        monkeypatch.setenv("TACTIX_UNTRUSTED", policy)
        cli.main(["check", str(bare)])
        assert f"{bare}: {told}" in capsys.readouterr().out


def test_build_finds_out_early_that_it_cannot_sign(
    bare: Path, tmp_path: Path, tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the model is even looked at."""
    monkeypatch.setenv("TACTIX_HOME", str(bare / "below"))
    (tmp_path / "m.onnx").write_bytes(b"no model")
    error, code = tool("build", tmp_path / "m.onnx", "-O0", "--no-timing-cache")
    assert (code, error["error"]["what"]) == (2, "cannot write the trust store")
    assert error["error"]["do"].endswith("sign=False (--no-sign)")
    assert tool("build", tmp_path / "m.onnx", "-O0", "--no-timing-cache", "--no-sign")[1] == 3


def test_two_keys_cannot_have_one_name(home: Become, tool: Tool) -> None:
    home("mine")
    made, code = tool("keys", "new", "--name", "release")
    assert code == 0
    found, code = tool("keys", "new", "--name", "release")
    assert (code, found["error"]["what"]) == (2, "another key is called 'release'")
    assert list(trust_file.read().keys) == [made["id"]]
