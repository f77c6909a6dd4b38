"""Putting packs into plans: what is taken, and what is refused with its reason."""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kept_log import KeptLog

import tactix
from tactix.base.errors import ConfigError
from tactix.plan import wheels
from tactix.plan.schema import Plan, Requirement
from tactix_sdk.pack_files import PackFiles, pack_of
from tactix_ship.embed import AUTO, embed, wheel_of
from tactix_tools.cli import main

PLUGIN = b"""
from tactix_sdk import Launcher, hookimpl
class L(Launcher):
    key = "acme_so.run@1"
@hookimpl
def tactix_launchers():
    return [L()]
"""
PACK = PackFiles(
    "Acme_So",
    "1.0",
    {"acme_so.py": PLUGIN},
    (("acme_so", "acme_so"),),
    frozenset({"numpy", "tactix"}),
)
NEEDS = Requirement("acme_so.run@1", "acme-so", "1.0", "of what is installed")
OWN = Requirement("tactix.cpu.elf@1", "tactix", "0.1")


def plan(*needs: Requirement) -> Plan:
    return Plan("p", (), (), (), (), (), requirements=needs)


@pytest.fixture
def session() -> tactix.Session:
    return tactix.Session(group="runtime", only=[], logger=KeptLog())


def written(
    folder: Path, pack: PackFiles = PACK, name: str = "acme_so-1.0-py3-none-any.whl"
) -> str:
    (folder / name).write_bytes(wheel_of(pack))
    return str(folder / name)


def test_a_wheel(tmp_path: Path, session: Any) -> None:
    out = embed(plan(OWN, NEEDS), [written(tmp_path)], session)
    assert out.requirements[0] == OWN
    ((digest, wheel),) = out.blobs.items()
    assert out.requirements[1] == replace(NEEDS, digest=digest, embedded=True, host_code=True)
    assert digest == hashlib.sha256(wheel).hexdigest()
    assert wheels.unpack(wheel, "")["acme_so.py"] == PLUGIN
    assert session.logger.lines == []
    assert (
        embed(plan(OWN, NEEDS), [tmp_path / "acme_so-1.0-py3-none-any.whl"], session).blobs
        == out.blobs
    )


def test_a_wheel_says_what_it_is(tmp_path: Path) -> None:
    found = pack_of(written(tmp_path))
    assert (found.dist, found.version, found.files, found.entry_points) == (
        PACK.dist,
        PACK.version,
        PACK.files,
        PACK.entry_points,
    )
    again = pack_of(written(tmp_path, replace(PACK, files=dict(found.files))))
    assert wheel_of(again) == wheel_of(PACK)


def test_needs_of_a_wheel(tmp_path: Path) -> None:
    text = (
        "Metadata-Version: 2.1\nName: a\nVersion: 1\nRequires-Dist: Some.Thing>=2\n"
        "Requires-Dist: more; extra == 'all'\nRequires-Dist: numpy (>1); python_version > '3'\n"
    )
    path = tmp_path / "a-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("a-1.dist-info/METADATA", text)
    assert pack_of(path).requires == {"some-thing", "numpy"}


def test_what_is_not_needed_stays_out(tmp_path: Path, session: Any) -> None:
    given = plan(OWN)
    assert embed(given, [written(tmp_path)], session) is given
    assert embed(given, [AUTO], session) is given
    assert [line for line in session.logger.lines if "Acme_So 1.0 is not embedded" in line]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"version": "2.0"}, "version 2.0 cannot stand in for 1.0"),
        ({"entry_points": ()}, "no entry point in tactix.runtime.v1"),
        (
            {"files": {**PACK.files, "acme_so_c.cpython-311-x86_64-linux-gnu.so": b""}},
            "machine code",
        ),
        (
            {
                "files": {
                    "acme_so.py": PLUGIN + b'import importlib\nimportlib.import_module("acme_so")'
                }
            },
            "line 9",
        ),
        ({"files": {"acme_so.py": PLUGIN.replace(b"run@1", b"walk@1")}}, "give no acme_so.run@1"),
        ({"files": {"acme_so.py": b"import acme_nothing"}}, "acme_nothing"),
    ],
)
def test_what_cannot_be_embedded(
    changed: dict[str, Any], why: str, tmp_path: Path, session: Any
) -> None:
    with pytest.raises(ConfigError, match=why):
        embed(plan(NEEDS), [written(tmp_path, replace(PACK, **changed))], session)


def test_other_distributions_may_not_be_there() -> None:
    with pytest.raises(ConfigError, match=r"it needs scipy, torch"):
        replace(PACK, requires=frozenset({"numpy", "torch", "scipy"})).check(())
    replace(PACK, requires=frozenset({"numpy", "acme-dep"})).check(["acme_dep"])


def test_what_only_tactix_can_run_is_told(tmp_path: Path, session: Any) -> None:
    text = b"import tactix.builder\n" + PLUGIN
    embed(plan(NEEDS), [written(tmp_path, replace(PACK, files={"acme_so.py": text}))], session)
    assert [
        line
        for line in session.logger.lines
        if "lean runtime cannot run" in line and "builder" in line
    ]


def test_packs_with_the_same_files(tmp_path: Path, session: Any) -> None:
    other = replace(PACK, dist="acme-to")
    wheels = [written(tmp_path), written(tmp_path, other, "acme_to-1.0-py3-none-any.whl")]
    with pytest.raises(ConfigError, match=r"both have acme_so\.py"):
        embed(plan(NEEDS, Requirement("acme_to.run@1", "acme-to", "1.0")), wheels, session)


def test_who_is_no_distribution(session: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="given in process"):
        embed(plan(Requirement("mine.run@1", "", "")), [AUTO], session)
    with pytest.raises(ConfigError, match="no distribution 'acme-nowhere'"):
        embed(plan(NEEDS), ["acme-nowhere"], session)
    for content in (b"", zipfile_of("a.py")):
        (tmp_path / "x.whl").write_bytes(content)
        with pytest.raises(ConfigError, match="cannot read the wheel"):
            embed(plan(NEEDS), [tmp_path / "x.whl"], session)
    with pytest.raises(ConfigError, match="cannot read the wheel"):
        embed(plan(NEEDS), [tmp_path / "none.whl"], session)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Path(__file__).parents[2] / "models" / "mlp.onnx"
    build = [
        "build",
        str(model),
        "-o",
        str(tmp_path / "it.plan"),
        "-O0",
        "--no-timing-cache",
        "--quiet",
        "--embed",
    ]
    assert main([*build, AUTO]) == 0
    assert tactix.load(tmp_path / "it.plan").get_used_plugin_libraries() == []
    assert main([*build, written(tmp_path)]) == 0
    assert "is not embedded" in capsys.readouterr().err
    assert main([*build, "acme-nowhere"]) != 0
    assert "no distribution 'acme-nowhere'" in " ".join(capsys.readouterr().err.split())


def zipfile_of(name: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr(name, "")
    return out.getvalue()
