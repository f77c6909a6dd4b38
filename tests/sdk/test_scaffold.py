"""``tactix-sdk new``: every combination passes every check; names that are none are refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sdk_site import Site

from tactix_sdk import errors
from tactix_sdk.authoring.cli import main
from tactix_sdk.authoring.scaffold import OWN_LAYER, TACTICS, create
from tactix_sdk.testing import FAILED, PASSED, outcomes

KINDS = [
    *((layer, rule, "") for layer, rule in ((True, True), (True, False), (False, True))),
    *((layer, layer, tactic) for tactic in ("c", "triton") for layer in (True, False)),
    *((layer, not layer, tactic) for tactic in ("cuda", "numpy") for layer in (True, False)),
]
"""Each kind of tactic beside a layer and without one, beside a rule and without one: no template
asks for three things at once.
"""
COMBINATIONS = [
    pytest.param(
        layer, rule, tactic, id="+".join([*["layer"] * layer, *["rule"] * rule, tactic]).strip("+")
    )
    for layer, rule, tactic in KINDS
]


def test_every_kind_of_tactic_is_combined() -> None:
    assert {tactic for *_, tactic in KINDS} == {*TACTICS, ""}


@pytest.mark.parametrize(("layer", "rule", "tactic"), COMBINATIONS)
def test_every_combination_passes(site: Site, layer: bool, rule: bool, tactic: str) -> None:
    subject = site.new("acme-swish", layer=layer, rule=rule, tactic=tactic)
    found = list(outcomes(subject))
    assert [(o.check.name, o.said) for o in found if o.state == FAILED] == []
    done = {o.check.name for o in found if o.state == PASSED}
    wanted = {"import-light", "hooks", "deterministic"}
    wanted |= {"layer-inference", "symbolic-shapes", "attributes", "onnx"} if layer else set()
    wanted |= {"rule-fires", "rule-numerics", "rule-termination"} if rule else set()
    wanted |= (
        {"tactic-reference", "tactic-shapes", "tactic-not-a-number", "lean-runtime"} & done
        if tactic
        else set()
    )
    wanted |= {"tactic-reference", "lean-runtime"} if tactic in ("c", "numpy") else set()
    assert wanted <= done


@pytest.mark.parametrize(
    ("name", "key", "tactic"),
    [
        ("my-class", "my_class.Class@1", "numpy"),
        ("my-none", "my_none.NoneOp@1", ""),
        ("acme-2d", "acme_2d.Op2d@1", "c"),
        ("my-exp", "my_exp.Exp@1", "c"),
        ("my-pack", "my_pack.Pack@1", ""),
        ("my-float", "my_float.Float@1", "cuda"),
        ("my-float", "my_float.Float@1", "c"),
        ("my-x", "my_x.X@1", "cuda"),
        ("my-np", "my_np.Np@1", "numpy"),
    ],
)
def test_words_that_mean_something_else_in_python(
    site: Site, name: str, key: str, tactic: str
) -> None:
    subject = site.new(name, layer=True, rule=True, tactic=tactic)
    assert [layer.key for layer in subject.objects("layers")] == [key]
    wanted = ["layer-inference", "attributes", "onnx", "rule-numerics"]
    wanted += ["tactic-reference"] if tactic == "numpy" else []
    found = list(outcomes(subject, wanted))
    assert [(o.check.name, o.state, o.said) for o in found if o.state != PASSED] == []


@pytest.mark.parametrize("tactic", OWN_LAYER)
def test_a_tactic_beside_a_layer_is_for_that_layer(site: Site, tactic: str) -> None:
    subject = site.new("acme-swish", layer=True, tactic=tactic)
    assert [(t.key, t.implements) for t in subject.objects("tactics")] == [
        (f"acme_swish.swish_{tactic}@1", ("acme_swish.Swish@1",))
    ]
    assert not subject.session.not_enabled("tactics")


def test_the_help_says_what_a_tactic_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "--help"]) == 0
    assert "for the layer of --layer; without it, and in Triton, for products" in " ".join(
        capsys.readouterr().out.split()
    )


def test_installed_by_pip_it_passes_its_own_tests(tmp_path: Path) -> None:
    assert main(["new", "acme-swish", "--layer", "--tactic", "c", "--path", str(tmp_path)]) == 0
    pip = [
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--disable-pip-version-check",
    ]
    command = [
        sys.executable,
        *pip,
        "--quiet",
        "--target",
        str(tmp_path / "site"),
        str(tmp_path / "acme-swish"),
    ]
    subprocess.run(command, check=True)
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), *filter(None, sys.path)]),
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        str(tmp_path / "acme-swish" / "tests"),
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


@pytest.mark.parametrize(
    ("name", "asked", "why"),
    [
        ("Acme Swish", {"layer": True}, "no name for a package"),
        ("lambda", {"layer": True}, "'lambda' is a word or module of Python itself"),
        ("json", {"layer": True}, "'json' is a word or module of Python itself"),
        ("numpy-", {"layer": True}, "no name for a package"),
        ("google", {"layer": True}, "'google' is a module of protobuf"),
        ("numpy", {"layer": True}, "'numpy' is a module of numpy"),
        ("pytest-xdist", {"layer": True}, "a distribution of that name is installed"),
        ("acme-swish", {}, "would be empty"),
        ("acme-swish", {"tactic": "fortran"}, "no kind of tactic 'fortran'"),
        ("acme-swish", {"layer": True, "namespace": "tactix"}, "namespace 'tactix' is reserved"),
        ("acme-swish", {"layer": True, "namespace": "Acme"}, "'Acme' is no namespace"),
        ("trt", {"layer": True}, "namespace 'trt' is reserved"),
        (
            "acme-swish",
            {"layer": True, "rule": True, "namespace": "class"},
            "'class': it is a word of Python, and the rule names it",
        ),
    ],
)
def test_what_cannot_be_is_said(tmp_path: Path, name: str, asked: dict[str, Any], why: str) -> None:
    with pytest.raises((errors.InvalidArgument, errors.ConfigError), match=why):
        create(name, tmp_path, **asked)
    assert list(tmp_path.iterdir()) == []


def test_without_templates_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(errors.ConfigError, match="the templates need jinja2"):
        create("acme-swish", tmp_path, layer=True)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "acme-swish").mkdir()
    assert main(["new", "acme-swish", "--path", str(tmp_path)]) == 1
    assert "exists" in capsys.readouterr().err


def test_packing_says_whether_it_can_be_embedded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = create("acme-num", tmp_path, tactic="numpy")
    monkeypatch.chdir(tmp_path)
    assert main(["pack", "acme-num"]) == 0
    assert "embeddable: tactix build MODEL --embed" in capsys.readouterr().out
    text = (folder / "pyproject.toml").read_text()
    (folder / "pyproject.toml").write_text(text.replace('"tactix>=0.1"', '"tactix>=0.1", "scipy"'))
    assert main(["pack", str(folder), "--out", str(tmp_path / "dist")]) == 1
    assert "scipy" in capsys.readouterr().out


@pytest.mark.parametrize("here", [True, False])
def test_a_pack_that_was_installed_from_its_folder_can_be_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: bool
) -> None:
    folder = tmp_path / "packs"
    source = (folder if here else tmp_path / "others") / "acme-anew"
    info = tmp_path / "site" / "acme_anew-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-anew\nVersion: 1.0\n")
    (info / "direct_url.json").write_text(json.dumps({"url": source.as_uri()}))
    monkeypatch.syspath_prepend(tmp_path / "site")
    folder.mkdir()
    if here:
        assert create("acme-anew", folder, layer=True).is_dir()
        return
    with pytest.raises(errors.InvalidArgument, match=r"is installed from .*/others/acme-anew"):
        create("acme-anew", folder, layer=True)
