"""The page on containers: its Dockerfile's steps run, one after the other, in folders that stand
for the images.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "sdk"))

import guide  # noqa: E402

PAGE = (ROOT / "docs" / "containers.md").read_text()
SOURCES = ("core", "plugins_builtin", "plugin_sdk", "pyproject.toml", "README.md", "LICENSE")
ABSOLUTE = re.compile(r"(?<![\w.:/-])/(?=(?:build|app|etc|run)\b)")
"""Where a path of an image begins."""


class Stage:
    """An image to be: a folder as its root, a Python and a home of its own."""

    def __init__(self, root: Path, context: Path) -> None:
        self.root, self.context, self.folder, self.user = root, context, root, ""
        (root / "home").mkdir(parents=True)
        own = guide.environment(root / "python")
        self.variables = {k: v for k, v in own.items() if not k.startswith(("TACTIX_", "XDG_"))}
        self.variables["HOME"] = str(root / "home")
        self.command: list[str] = []

    def here(self, text: str) -> str:
        """Paths of the image as those of its folder."""
        return ABSOLUTE.sub(f"{self.root}/", text)

    def copy(self, source: Path, target: str) -> None:
        place = self.folder / self.here(target)
        place.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, place)

    def run(self, command: str | list[str], **more: str) -> subprocess.CompletedProcess[str]:
        words = ["bash", "-ec", self.here(command)] if isinstance(command, str) else command
        env = {**self.variables, **more}
        return subprocess.run(
            words,
            cwd=self.folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )


def steps(dockerfile: str) -> list[tuple[str, str]]:
    """Instructions and what follows them; lines that end in a backslash are joined."""
    lines = dockerfile.replace("\\\n", " ").splitlines()
    return [
        (word, rest.strip())
        for word, _, rest in (line.partition(" ") for line in lines if line.strip())
    ]


def image(dockerfile: str, context: Path, secret: Path, folder: Path) -> Stage:
    """The last stage, after all steps."""
    stages: dict[str, Stage] = {}
    for word, rest in steps(dockerfile):
        if word == "FROM":
            name = rest.partition(" AS ")[2] or str(len(stages))
            stage = stages[name] = Stage(folder / name, context)
        elif word == "WORKDIR":
            stage.folder = Path(stage.here(rest))
            stage.folder.mkdir(parents=True)
        elif word == "COPY":
            found = re.fullmatch(r"(?:--from=(\w+) )?(\S+) (\S+)", rest)
            assert found, rest
            source = Path(stages[found[1]].here(found[2])) if found[1] else context / found[2]
            stage.copy(source, found[3])
        elif word == "ENV":
            name, _, value = rest.partition("=")
            stage.variables[name] = stage.here(value)
        elif word == "RUN":
            mount = re.match(r"--mount=type=secret,id=(\w+) +", rest)
            if mount:
                stage.copy(secret, f"/run/secrets/{mount[1]}")
            done = stage.run(rest[mount.end() if mount else 0 :])
            assert done.returncode == 0, (rest, done.stdout, done.stderr)
            if mount:
                shutil.rmtree(stage.root / "run")
        elif word == "USER":
            stage.user = rest
            (stage.root / "no-home").write_bytes(
                b""
            )  # nothing can be written there, not by root either
            stage.variables["HOME"] = str(stage.root / "no-home")
        else:
            assert word == "CMD", word
            stage.command = json.loads(rest)
    return stage


@pytest.mark.skipif(os.name != "posix", reason="the page's shell is bash")
def test_the_image_is_built_and_runs(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    blocks = dict(re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.M | re.S))
    assert blocks.keys() == {"sh", "dockerfile", "python"}
    context = tmp_path / "context"
    (context / "tactix-source").mkdir(parents=True)
    leave = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    for name in SOURCES:
        source, place = ROOT / name, context / "tactix-source" / name
        shutil.copytree(source, place, ignore=leave) if source.is_dir() else shutil.copyfile(
            source, place
        )
    shutil.copyfile(ROOT / "examples" / "digits" / "digits.onnx", context / "model.onnx")
    (context / "serve.py").write_text(blocks["python"])
    there = Stage(tmp_path / "there", context)
    there.folder = context
    assert there.run(blocks["sh"]).returncode == 0
    assert (context / "release.key").stat().st_mode & 0o077 == 0
    made = image(blocks["dockerfile"], context, context / "release.key", tmp_path / "images")
    assert made.user.split(":")[0] not in ("", "0", "root")
    done = made.run(made.command)
    assert (done.stdout.strip(), done.stderr) == ("(1, 10)", "")
    secret = (context / "release.key").read_text().strip()
    assert not [
        p for p in made.root.rglob("*") if p.is_file() and secret.encode() in p.read_bytes()
    ]
    for keys in ("", "ed25519:" + "11" * 32):  # nobody's, and somebody else's
        refused = made.run(made.command, TACTIX_TRUSTED_KEYS=keys)
        assert refused.returncode == 1
        assert "UntrustedPlan" in refused.stderr
    assert made.run(made.command, TACTIX_TRUSTED_KEYS="", TACTIX_UNTRUSTED="allow").returncode == 0
    assert shlex.join(made.command) in PAGE.replace('"', "").replace(",", "")
