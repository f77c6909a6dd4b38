"""Plans of small models, and an interpreter that has numpy and the lean runtime, and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tactix
from tactix import BuilderFlag
from tactix_ship.lean import wheel

MODELS = Path(__file__).parents[2] / "models"
PACKS = Path(__file__).parent / "packs"

Inputs = dict[str, np.ndarray]
Saved = tuple[Path, Inputs, list[np.ndarray]]


def feed(engine: Any, batch: int = 3) -> Inputs:
    """Random inputs; integers are 0 or 1."""
    rng = np.random.default_rng(7)
    out = {}
    for io in engine.inputs:
        shape = [d if isinstance(d, int) else batch for d in io.shape]
        x = rng.standard_normal(shape) if io.dtype.is_float else rng.integers(0, 2, shape)
        out[io.name] = x.astype(io.dtype.numpy)
    return out


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Saved]:
    """Builds a plan of a model: its file, inputs, and the results of the engine that was built."""
    folder, known = tmp_path_factory.mktemp("plans"), dict[Any, Saved]()

    def build(name: str, *flags: BuilderFlag, source: str = "") -> Saved:
        key = (name, flags, source)
        if key not in known:
            options = {"tactic_sources": {source}} if source else {}
            engine = tactix.build(
                MODELS / f"{name}.onnx", level=0, timing_cache=False, flags=set(flags), **options
            )
            path = folder / f"{Path(name).name}-{len(known)}.plan"
            engine.save(path)
            x = feed(engine)
            known[key] = path, x, list(engine.create_execution_context().run(x).values())
        return known[key]

    return build


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory, pip: Callable[..., None]) -> Path:
    """A virtual environment's interpreter; numpy is linked into it, the wheel installed by pip."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder / "env", with_pip=False, symlinks=os.name != "nt")
    python = folder / "env" / ("Scripts" if os.name == "nt" else "bin") / "python"
    where = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(where, check=True, capture_output=True, text=True).stdout.strip())
    packages = Path(np.__file__).parents[1]
    for name in ("numpy", "numpy.libs"):
        if (packages / name).exists():
            (site / name).symlink_to(packages / name, target_is_directory=True)
    pip("install", "--no-deps", "--no-index", "--no-compile", "--target", site, wheel.write(folder))
    return python


@pytest.fixture(scope="session")
def pip() -> Callable[..., None]:
    """Calls this interpreter's pip."""

    def call(*args: object) -> None:
        command = [
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "-q",
            *map(str, args),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    return call


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory, pip: Callable[..., None]) -> Path:
    """Wheels of both packs, of acme-twist in two versions that give other results."""
    folder = tmp_path_factory.mktemp("packs")
    shutil.copytree(PACKS, folder / "sources")
    other = folder / "sources" / "other"
    shutil.copytree(folder / "sources" / "acme_twist", other)
    settings = other / "pyproject.toml"
    settings.write_text(settings.read_text().replace('version = "1.0"', 'version = "2.0"'))
    (other / "acme_twist" / "factor.txt").write_text("3\n")
    for sources in (("acme_cube", "acme_twist"), ("other",)):
        places = [folder / "sources" / name for name in sources]
        pip("wheel", "--no-build-isolation", "--no-deps", "--no-index", "-w", folder, *places)
    return folder
