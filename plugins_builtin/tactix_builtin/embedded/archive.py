"""The wheels of packs inside of plans: where they are, what is in them."""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from typing import Any

from tactix.words.errors import PlanFormatError

GROUP = "tactix.runtime.v1"
"""Entry points of what running a plan may need; that of the hooks, which a lean runtime lacks."""

SIZE_LIMIT = 16 << 20
"""Bytes of an unpacked wheel."""


def unpack(wheel: Any, who: str) -> dict[str, bytes]:
    """The files of a wheel by path. Raises PlanFormatError, which names ``who`` brought it."""
    try:
        with zipfile.ZipFile(io.BytesIO(wheel)) as z:
            inside = [i for i in z.infolist() if not i.is_dir()]
            if sum(i.file_size for i in inside) > SIZE_LIMIT:
                raise PlanFormatError(f"more than {SIZE_LIMIT} bytes in a wheel", who=who)
            if wrong := [i.filename for i in inside if {"", "..", "."}.intersection(i.filename.split("/"))]:
                raise PlanFormatError(f"{wrong[0]!r} leaves the folder of a wheel", who=who)
            return {i.filename: z.read(i) for i in inside}
    except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, ValueError, EOFError, OSError) as e:
        raise PlanFormatError("that is no wheel", who=who, why=str(e)[:200], do="Make it or the plan again") from None


def content(plan: Any, digest: str) -> bytes:
    """The wheel of an embedded pack, as its sha256 says. Raises PlanFormatError."""
    wheel = bytes(plan.blobs[digest])
    if hashlib.sha256(wheel).hexdigest() != digest:
        raise PlanFormatError("content does not fit its sha256", who=f"blob {digest!r}", do="Copy the plan again")
    return wheel


def entries(files: dict[str, bytes]) -> list[tuple[str, str]]:
    """Namespaces and modules of a wheel's plugins at the runtime door."""
    from configparser import ConfigParser

    parser = ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    for path, text in files.items():
        if path.endswith(".dist-info/entry_points.txt"):
            parser.read_string(text.decode())
    return parser.items(GROUP) if parser.has_section(GROUP) else []
