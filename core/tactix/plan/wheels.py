"""The wheels of packs inside of plans: where they are, what is in them."""

from __future__ import annotations

import hashlib
import io
import struct
import zipfile
import zlib
from collections.abc import Sequence
from typing import Any

from tactix.base.errors import PlanFormatError

GROUP = "tactix.runtime.v1"
"""Entry points of what running a plan may need; that of the hooks, which a lean runtime lacks."""

SIZE_LIMIT = 16 << 20
"""Bytes of a wheel, and of what is unpacked from it."""

FILES = 10_000
"""In a wheel."""

_ENTRY = b"PK\x01\x02"
"""Begins an entry of a zip file's directory."""


def unpack(wheel: Any, who: str) -> dict[str, bytes]:
    """The files of a wheel by path. Raises PlanFormatError, which names ``who`` brought it.

    What its directory says is not believed: no more is unpacked of a file than its size there.
    """
    if len(wheel) > SIZE_LIMIT or bytes(wheel).count(_ENTRY) > FILES:
        raise PlanFormatError(f"more than {SIZE_LIMIT} bytes or {FILES} files in a wheel", who=who)
    try:
        with zipfile.ZipFile(io.BytesIO(wheel)) as z:
            inside = [i for i in z.infolist() if not i.filename.endswith("/")]
            _check(inside, who)
            return {i.filename: _content(z, i) for i in inside}
    except (
        zipfile.BadZipFile,
        zlib.error,
        struct.error,
        RuntimeError,
        NotImplementedError,
        ValueError,
        EOFError,
        OSError,
    ) as e:
        raise PlanFormatError(
            "that is no wheel", who=who, why=str(e)[:200], do="Make it or the plan again"
        ) from None


def _check(inside: Sequence[zipfile.ZipInfo], who: str) -> None:
    """Raises PlanFormatError for sizes, names and kinds of compression that no tactix wheel has."""
    if sum(i.file_size for i in inside) > SIZE_LIMIT:
        raise PlanFormatError(f"more than {SIZE_LIMIT} bytes in a wheel", who=who)
    for i in inside:
        if {"", "..", "."}.intersection(i.filename.split("/")) or {"\\", ":"}.intersection(
            i.filename
        ):
            raise PlanFormatError(f"{i.filename!r} leaves the folder of a wheel", who=who)
        if i.compress_type not in (
            zipfile.ZIP_STORED,
            zipfile.ZIP_DEFLATED,
        ):  # others unpack without a limit
            raise PlanFormatError(
                f"{i.filename!r} is compressed by method {i.compress_type}", who=who
            )
    if len({i.filename for i in inside}) < len(inside):
        raise PlanFormatError("a file is in a wheel twice", who=who)


def _content(z: zipfile.ZipFile, i: zipfile.ZipInfo) -> bytes:
    """No more than its size: ``ZipFile.read`` unpacks all that there is before it cuts that off."""
    with z.open(i) as f:
        found = f.read(i.file_size)
        if len(found) < i.file_size or f.read(1):
            raise zipfile.BadZipFile(f"{i.filename!r} is not of the size in the directory")
        return found


def content(plan: Any, digest: str) -> bytes:
    """The wheel of an embedded pack, as its sha256 says. Raises PlanFormatError."""
    wheel = bytes(plan.blobs[digest])
    if hashlib.sha256(wheel).hexdigest() != digest:
        raise PlanFormatError(
            "content does not fit its sha256", who=f"blob {digest!r}", do="Copy the plan again"
        )
    return wheel


def entries(files: dict[str, bytes]) -> list[tuple[str, str]]:
    """Namespaces and modules of a wheel's plugins of the runtime group. Raises PlanFormatError."""
    from configparser import ConfigParser, Error

    parser = ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    for path, text in files.items():
        if path.endswith(".dist-info/entry_points.txt"):
            try:
                parser.read_string(text.decode())
            except (Error, UnicodeDecodeError) as e:
                raise PlanFormatError(
                    "no entry points of a wheel", who=path, why=str(e)[:200]
                ) from None
    return parser.items(GROUP) if parser.has_section(GROUP) else []
