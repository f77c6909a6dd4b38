"""Files in docs/changes are of a kind that the next release knows, and say something."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["towncrier"]
KINDS = {kind["directory"] for kind in SETTINGS["type"]}


def test_every_change_is_of_a_known_kind() -> None:
    for path in sorted((ROOT / SETTINGS["directory"]).iterdir()):
        if path.name in SETTINGS["ignore"]:
            continue
        name, _, kind = path.name.removesuffix(".md").rpartition(".")
        assert path.suffix == ".md", path.name
        assert name, path.name
        assert kind in KINDS, path.name
        assert path.read_text(encoding="utf-8").strip(), path.name


def test_the_changes_of_a_release_have_their_place() -> None:
    text = (ROOT / SETTINGS["filename"]).read_text(encoding="utf-8")
    assert text.count(SETTINGS["start_string"]) == 1
