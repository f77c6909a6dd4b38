"""How long a machine works for a stranger's first pack: a fresh environment with tactix, the
guide's first page in it.

    python tests/benchmarks/first_pack.py              # a virtual environment, into which pip installs this checkout
    python tests/benchmarks/first_pack.py --offline    # the packages of this environment instead of an index

The page's commands are run as they stand there: `tactix-sdk new`, `pip install`, `tactix-sdk
check`, then its Python. The exit status is 1 if the pack does not pass, or if that takes two
minutes from `tactix-sdk new` on.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "sdk"))

import guide  # noqa: E402

PAGE = ROOT / "docs" / "plugins" / "1-start.md"
LIMIT = 120.0


def fresh(folder: Path) -> dict[str, str]:
    """A virtual environment with this checkout and what it needs, from the index that pip is set
    to.
    """
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [
        str(folder / "bin" / "python"),
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--quiet",
    ]
    source = folder.with_name("source")  # pip leaves a folder build where it builds
    for name in ("core", "plugins_builtin", "plugin_sdk"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    subprocess.run([*pip, str(source), str(source / "plugin_sdk"), "setuptools>=70.1"], check=True)
    paths = os.pathsep.join([str(folder / "bin"), os.environ.get("PATH", "")])
    caches = {"TACTIX_CACHE_DIR": str(folder / "cache"), "TACTIX_HOME": str(folder / "home")}
    plain = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return {**plain, **caches, "PATH": paths, "VIRTUAL_ENV": str(folder)}


def follow(python: Path, work: Path, env: Mapping[str, str]) -> tuple[bool, str]:
    """Run the page in a folder: whether all of it gave what it shows, and what it printed."""
    work.mkdir()
    command = [python, guide.__file__, PAGE]
    done = subprocess.run(
        command,
        cwd=work,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return done.returncode == 0, done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--offline", action="store_true")
    offline = parser.parse_args().offline
    with tempfile.TemporaryDirectory() as name:
        folder, start = Path(name), time.perf_counter()
        env = guide.environment(folder / "env") if offline else fresh(folder / "env")
        ready = time.perf_counter()
        passed, said = follow(folder / "env" / "bin" / "python", folder / "work", env)
        took = time.perf_counter() - ready
    print(f"the environment: {ready - start:.1f} s")
    for line, kind, seconds in re.findall(r"^--- line (\d+): (.+), ([\d.]+) s$", said, re.M):
        print(f"line {line}, {kind}: {float(seconds):.1f} s")
    print(
        f"from `tactix-sdk new` to a checked pack that fuses and runs: {took:.1f} s"
        if passed
        else said[-4000:]
    )
    return int(not passed or took > LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
