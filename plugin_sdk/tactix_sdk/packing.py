"""A pack's wheel, and whether a plan can hold it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tactix.base.errors import ConfigError, TactixError

PIP = (
    "-m",
    "pip",
    "wheel",
    "--no-deps",
    "--no-build-isolation",
    "--disable-pip-version-check",
    "--quiet",
)


def make(folder: Path, out: Path) -> Path:
    """The wheel of the package in a folder. Raises ConfigError with pip's own words."""
    out.mkdir(parents=True, exist_ok=True)
    before = {p: p.stat().st_mtime_ns for p in out.glob("*.whl")}
    place = str(folder.resolve())  # a bare name pip would look up in an index
    done = subprocess.run(
        [sys.executable, *PIP, "--wheel-dir", str(out), place],
        capture_output=True,
        text=True,
        check=False,
    )
    made = [p for p in out.glob("*.whl") if before.get(p) != p.stat().st_mtime_ns]
    if done.returncode or not made:
        raise ConfigError(
            f"no wheel could be made of {folder}",
            why=done.stderr.strip()[-2000:] or "pip made none",
        )
    return made[0]


def why_not(wheel: Path) -> str:
    """What stands against embedding it in plans; empty if nothing does."""
    from tactix_sdk.pack_files import pack_of

    try:
        pack_of(wheel).check(())
    except TactixError as e:
        return str(e)
    return ""
