"""Names of a library and of what it has, as C takes them, and its texts with them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import resources

from tactix.base.errors import InvalidArgument
from tactix.base.logger import printable

_VALID = re.compile(r"[a-z][a-z0-9_]{0,63}")
_TAKEN = frozenset(
    {"lib", "tx", "txe", "program", "tables", "processor", "weights", "sha256", "context"}
    | {"launches", "running", "driver", "calls", "cubins", "cu", "cuda"}
)
"""Names of the texts themselves, and what names in them begin with."""
_HEADERS = frozenset(
    {"assert", "complex", "cpuid", "ctype", "dlfcn", "errno", "fcntl", "fenv", "float", "inttypes"}
    | {"limits", "locale", "malloc", "math", "memory", "pthread", "sched", "setjmp", "signal"}
    | {"stdarg", "stdbool", "stddef", "stdint", "stdio", "stdlib", "string", "strings", "syscall"}
    | {"tgmath", "threads", "time", "uchar", "unistd", "wchar", "wctype"}
)
"""Headers of the system, in whose place NAME.h would be read."""


def library_name(wanted: str) -> str:
    """``wanted`` as the name of a library, which its functions begin with. Raises
    InvalidArgument.
    """
    if not _VALID.fullmatch(wanted) or wanted in _TAKEN | _HEADERS:
        why = "it begins the names of C functions, and is that of a header"
        do = "Give --name small letters, digits and underscores, of no header that is there"
        raise InvalidArgument(f"a library cannot be named {wanted!r}", why=why, do=do)
    return wanted


def name_from(text: str) -> str:
    """A name of a library made of what a plan or file is called. Raises InvalidArgument."""
    found = re.sub(r"[^a-z0-9_]+", "_", text.lower()).strip("_")
    return library_name(found if found[:1].isalpha() else f"net_{found}".rstrip("_"))


def identifiers(names: Iterable[str]) -> list[str]:
    """For each name of a tensor a part of an identifier of its own."""
    out: list[str] = []
    for i, name in enumerate(names):
        plain = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").lower() or str(i)
        out.append(plain if plain not in out else f"{plain}_{i}")
    return out


def text_of(file: str, name: str) -> str:
    """A text of this folder, of the library of that name."""
    found = resources.files("tactix_ship.c_library.texts").joinpath(file)
    return named(found.read_text(encoding="utf-8"), name)


def named(text: str, name: str) -> str:
    """``lib`` in a text becomes the name of the library."""
    text = re.sub(r"\blib(?=_|\b)", name, text)
    return re.sub(r"\bLIB(?=_|\b)", name.upper(), text)


def literal(text: str) -> str:
    """As C writes it: bytes of UTF-8 beyond ASCII by their numbers, no trigraphs."""
    out = "".join(_escaped(b) for b in text.encode("utf-8", "surrogatepass"))
    return f'"{out}"'


def _escaped(byte: int) -> str:
    c = chr(byte)
    if c in '"\\?':
        return f"\\{c}"
    return c if 32 <= byte < 127 else f"\\{byte:03o}"


def remark(text: str) -> str:
    """Text that neither ends a comment nor begins one."""
    return printable(text).replace("*/", "* /").replace("/*", "/ *")
