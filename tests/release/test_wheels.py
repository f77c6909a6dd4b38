"""The wheels of a release, made from this tree: that they are the same every time, share no file,
and that each, installed alone, does what it is for.
"""

from __future__ import annotations

import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import tactix

sys.path.insert(0, str(Path(__file__).parent))

import release_wheels as release


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> release.Wheels:
    return release.make(tmp_path_factory.mktemp("wheels"))


def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as z:
        return z.namelist()


def test_two_builds_give_the_same_bytes(made: release.Wheels, tmp_path: Path) -> None:
    assert release.digests(release.make(tmp_path)) == release.digests(made)


def test_every_file_is_in_one_wheel(made: release.Wheels) -> None:
    """All that are in the sources of the SDK among them, tools of authors in the SDK's alone."""
    held = [set(names(path)) for path in made.all]
    assert not held[0] & held[1]
    assert not held[0] & held[2]
    sdk = release.ROOT / "plugin_sdk"
    modules = {p.relative_to(sdk).as_posix() for p in sdk.glob("tactix_*/**/*.py")}
    assert modules <= held[0] | held[2]
    assert {n.split("/")[1] for n in held[2] if n.startswith("tactix_sdk/")} == {
        "authoring",
        "testing",
    }


def test_no_path_of_this_machine_is_in_them(made: release.Wheels) -> None:
    for path in made.all:
        with zipfile.ZipFile(path) as z:
            assert not [n for n in z.namelist() if str(release.ROOT).encode() in z.read(n)]


def test_each_alone_does_what_it_is_for(made: release.Wheels) -> None:
    seen = release.check(made, sys.executable, linked=True)
    assert seen[:2] == ["tactix builds and loads", "tactix-runtime runs that plan"]
    assert " 0 failed" in seen[2]


def test_the_sdk_is_of_the_same_version() -> None:
    project = tomllib.loads((release.ROOT / "plugin_sdk" / "pyproject.toml").read_text())["project"]
    assert project["version"] == tactix.__version__
    assert f"tactix=={tactix.__version__}" in project["dependencies"]
