"""The wheels of a release: ``tactix``, ``tactix-runtime`` and ``tactix-sdk``, of this tree.

    python tests/release/release_wheels.py --out dist                      # made twice, and compared
    python tests/release/release_wheels.py --out dist --check python3.12   # also installed there, each alone, and used

``make wheels`` does both. The same sources give the same bytes with the same Python and setuptools: files
are sorted, have one date and one mode, and no path of this machine is in them. ``--check`` makes
environments that pip fills from the index that it is set to.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from tactix_ship.lean import wheel as lean

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("core", "plugins_builtin", "plugin_sdk")
FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
NOT_SOURCES = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")

BUILD = """
import sys, numpy as np, tactix
assert tactix.__file__.startswith(sys.prefix), tactix.__file__
digits, plan, results = sys.argv[1:]
engine = tactix.build(f"{digits}/digits.onnx", level=0)
engine.save(plan)
with np.load(f"{digits}/digits_test.npz") as data: images, labels = data["images"], data["labels"]
found = tactix.load(plan)(images)
assert (found.argmax(1) == labels).mean() > 0.97
np.save(results, found)
"""
"""What the wheel of tactix is for."""

RUN = """
import sys, importlib.util, numpy as np, tactix_lean
digits, plan, results = sys.argv[1:]
assert tactix_lean.__file__.startswith(sys.prefix), tactix_lean.__file__
for name in ("tactix", "onnx", "pluggy", "click", "ml_dtypes"): assert not importlib.util.find_spec(name), name
with np.load(f"{digits}/digits_test.npz") as data: images = data["images"]
found = tactix_lean.load(plan, on_untrusted="allow")(images)
assert found.tobytes() == np.load(results).tobytes()
"""
"""What the wheel of the runtime is for, with numpy alone; the same answers to the bit."""


@dataclass(frozen=True)
class Wheels:
    """Files."""

    tactix: Path
    runtime: Path
    sdk: Path

    @property
    def all(self) -> tuple[Path, ...]:
        return (self.tactix, self.runtime, self.sdk)


def make(folder: Path) -> Wheels:
    """All three, written into the folder. Raises CalledProcessError, OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        source, made = Path(scratch) / "source", Path(scratch) / "made"
        for name in FOLDERS:
            shutil.copytree(ROOT / name, source / name, ignore=NOT_SOURCES)
        for name in FILES:
            shutil.copy(ROOT / name, source / name)
        places = [str(source), str(source / "plugin_sdk")]
        _pip("wheel", "--no-deps", "--no-build-isolation", "-w", str(made), *places)
        tactix, sdk = (
            _plain(next(made.glob(f"{n}-*.whl")), folder) for n in ("tactix", "tactix_sdk")
        )
    return Wheels(tactix, lean.write(folder), sdk)


def _plain(found: Path, folder: Path) -> Path:
    """The same files without what differs from one build to the next: dates, modes, their order."""
    with zipfile.ZipFile(found) as z:
        files = {i.filename: z.read(i) for i in z.infolist() if not i.is_dir()}
    own = next(name for name in files if name.endswith(".dist-info/RECORD"))
    files = {name: files[name] for name in sorted(files) if name != own}
    out = folder / found.name
    out.write_bytes(lean.archive({**files, own: lean.record(files, own).encode()}))
    return out


def _pip(*args: str) -> None:
    """Calls this interpreter's pip."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *args]
    subprocess.run(command, check=True)


@dataclass(frozen=True)
class Environment:
    """A new virtual environment of ``python``.

    ``linked``: what a wheel needs is linked from this process's environment, whose Python is of the
    same version, and not fetched.
    """

    python: str
    folder: Path
    linked: bool

    def __post_init__(self) -> None:
        subprocess.run([self.python, "-m", "venv", "--without-pip", str(self.folder)], check=True)

    @property
    def variables(self) -> dict[str, str]:
        """Of its processes: its own commands first, and folders of its own."""
        paths = os.pathsep.join([str(self.folder / "bin"), os.environ.get("PATH", "")])
        own = {name: str(self.folder / name) for name in ("TACTIX_CACHE_DIR", "TACTIX_HOME")}
        plain = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        return {**plain, **own, "PATH": paths}

    def install(self, *what: Path) -> None:
        """Raises CalledProcessError."""
        ways = ("--no-deps", "--no-index", "--no-build-isolation") if self.linked else ()
        python = str(self.folder / "bin" / "python")
        _pip("--python", python, "install", "--no-compile", *ways, *map(str, what))
        (site,) = self.folder.glob("lib/python*/site-packages")
        for found in _needed(site) if self.linked else ():
            if not (site / found.name).exists():
                (site / found.name).symlink_to(found, target_is_directory=found.is_dir())

    def run(self, *command: str) -> str:
        """What it prints. Raises CalledProcessError."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.variables,
            check=True,
            text=True,
            stdout=subprocess.PIPE,
        )
        return done.stdout


def _needed(site: Path) -> Iterator[Path]:
    """What the distributions there require, directly or not, as it lies in this environment."""
    todo = [r for d in metadata.distributions(path=[str(site)]) for r in d.requires or ()]
    seen: set[str] = set()
    while todo:
        requirement = todo.pop()
        name = re.split(r"[^\w.-]", requirement)[0]
        if "extra ==" in requirement or name in seen or name.startswith("tactix"):
            continue
        seen.add(name)
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # for another version of Python, or another system
        todo += found.requires or ()
        tops = {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}
        yield from (Path(str(found.locate_file(top))) for top in sorted(tops))


def check(wheels: Wheels, python: str, linked: bool = False) -> list[str]:
    """Install each wheel alone under a Python, and use it; what was seen, a line each.

    ``linked``: nothing is fetched, ``python`` is of this process's version, and the new pack sees
    one check in place of all. Raises CalledProcessError.
    """
    digits = ROOT / "examples" / "digits"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plan, results = folder / "digits.plan", folder / "digits.npy"
        given = [str(p) for p in (digits, plan, results)]
        tactix = Environment(python, folder / "tactix", linked)
        tactix.install(wheels.tactix)
        tactix.run("python", "-I", "-c", BUILD, *given)
        tactix.run("tactix", "inspect", str(plan))
        runtime = Environment(python, folder / "runtime", linked)
        runtime.install(wheels.runtime)
        runtime.run("python", "-I", "-c", RUN, *given)
        sdk = Environment(python, folder / "sdk", linked)
        sdk.install(wheels.sdk, wheels.tactix)
        sdk.run("tactix-sdk", "new", "acme-swish")
        sdk.install(folder / "sdk" / "acme-swish")
        few = ("--only", "layer-inference") if linked else ()
        passed = sdk.run("tactix-sdk", "check", "acme-swish", *few).splitlines()[-1]
    return [
        "tactix builds and loads",
        "tactix-runtime runs that plan",
        f"tactix-sdk: {passed}",
    ]


def digests(wheels: Wheels) -> list[str]:
    """sha256 of each."""
    return [hashlib.sha256(p.read_bytes()).hexdigest() for p in wheels.all]


def main(argv: Iterable[str] | None = None) -> int:
    """The exit status: 1 if two builds differ."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("dist"), help="the folder to write to")
    parser.add_argument(
        "--check", nargs="*", default=[], metavar="PYTHON", help="also use them there"
    )
    args = parser.parse_args(argv if argv is None else list(argv))
    made = make(args.out)
    with tempfile.TemporaryDirectory() as again:
        same = digests(made) == digests(make(Path(again)))
    for path, digest in zip(made.all, digests(made), strict=True):
        print(f"{path.name} {path.stat().st_size} bytes, sha256 {digest}")
    print("two builds: the same bytes" if same else "two builds: DIFFERENT bytes")
    for python in args.check:
        print(f"{python}: {'; '.join(check(made, python))}", flush=True)
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
