"""The lean runtime as a wheel: one generated package; the same bytes from the same sources."""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import tactix
from tactix.base.files import replacing
from tactix_ship.lean.modules import PLACES, closure, place, source_folder
from tactix_ship.lean.text import lean_text
from tactix_trust import object_cache

PACKAGE = "tactix_lean"
DISTRIBUTION = "tactix_runtime"
"""As it is in names of files. The package is called otherwise, as tactix has one of that name."""

EPOCH = (1980, 1, 1, 0, 0, 0)

METADATA = """\
Metadata-Version: 2.1
Name: tactix-runtime
Version: {version}
Summary: Runs plans that tactix {version} has built
License: Apache-2.0
Requires-Python: >=3.11
Requires-Dist: numpy>=1.26,<3
Provides-Extra: cuda
Requires-Dist: cuda-python>=13,<14; extra == 'cuda'
"""
WHEEL = (
    "Wheel-Version: 1.0\nGenerator: tactix {version}\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
)


def package_files() -> dict[str, bytes]:
    """The files of the package by path. Raises InternalError."""
    found = {
        place(module): lean_text(module, source).encode() for module, source in closure().items()
    }
    found["__init__.py"] += f"\n__version__ = {tactix.__version__!r}\n".encode()
    return found


@functools.cache
def wheel() -> bytes:
    """The file's bytes; from the cache of what tactix can make again, where they lie. Raises
    InternalError.
    """
    name = f"lean-{_sources()}.whl"
    found = object_cache.find(name)
    if found is None:
        found = made()
        object_cache.put(name, found)
    return found


def made() -> bytes:
    """The file's bytes, from the sources: that takes a second. Raises InternalError."""
    version = tactix.__version__
    info = f"{DISTRIBUTION}-{version}.dist-info"
    files = {f"{PACKAGE}/{path}": content for path, content in sorted(package_files().items())}
    files[f"{info}/METADATA"] = METADATA.format(version=version).encode()
    files[f"{info}/WHEEL"] = WHEEL.format(version=version).encode()
    files[f"{info}/RECORD"] = record(files, f"{info}/RECORD").encode()
    return archive(files)


def _sources() -> str:
    """Digest of whatever may be in it: all our modules, and the version."""
    told = hashlib.sha256(f"{tactix.__version__}\0".encode())
    for top in sorted(PLACES):
        folder = source_folder(top)
        for path in sorted(folder.rglob("*.py")):
            told.update(f"{top}/{path.relative_to(folder).as_posix()}\0".encode())
            told.update(hashlib.sha256(path.read_bytes()).digest())
    return told.hexdigest()


def record(files: Mapping[str, bytes], own: str) -> str:
    """The text of a wheel's RECORD, whose path is ``own``."""
    digests = {
        p: base64.urlsafe_b64encode(hashlib.sha256(c).digest()).rstrip(b"=").decode()
        for p, c in files.items()
    }
    return "".join(f"{p},sha256={digests[p]},{len(c)}\n" for p, c in files.items()) + f"{own},,\n"


def archive(files: Mapping[str, bytes]) -> bytes:
    """A wheel of files by path; the same bytes for the same files in the same order."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path, EPOCH)
            entry.external_attr, entry.create_system = 0o644 << 16, 3
            entry.compress_type = zipfile.ZIP_DEFLATED
            z.writestr(entry, content, compresslevel=9)
    return out.getvalue()


def installed_size() -> int:
    """Bytes of the files that it installs, without those that Python compiles."""
    with zipfile.ZipFile(io.BytesIO(wheel())) as z:
        return sum(i.file_size for i in z.infolist())


def write(folder: str | Path) -> Path:
    """Write the wheel into a folder, which is made if need be. Raises OSError."""
    path = Path(folder) / f"{DISTRIBUTION}-{tactix.__version__}-py3-none-any.whl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as f:
        f.write(wheel())
    return path
