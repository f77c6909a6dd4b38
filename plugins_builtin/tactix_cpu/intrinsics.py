"""What kernels use of ``<immintrin.h>``, in place of all of it.

GCC 12 takes 0.15 s to read the 6,400 functions of that header for each translation unit, and 0.6 s
to precompile it for a set of options; kernels use less than a hundred of these. So the compiler's
own header is preprocessed once for a set of options, and what nobody names is left out: its
functions are ``extern inline`` ones, of which nothing comes out unless they are called, so objects
are the same bytes.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

INCLUDE = "#include <immintrin.h>\n"
SOURCE = f"#include <stddef.h>\n#include <stdint.h>\n#define _MM_MALLOC_H_INCLUDED\n{INCLUDE}"
"""What is preprocessed, with ``-E -dD -P``: without malloc, whose header brings others."""

_BEGIN = "#define _IMMINTRIN_H_INCLUDED"
_DEFINED = re.compile(
    r"^(?P<margin>[ \t]*)extern __inline.*?^(?P=margin)}\n|^#define (?P<macro>\w+)[^\n]*\n",
    re.M | re.S,
)
_OTHER_HEADERS = re.compile(r"#\s*include\s*<(?!immintrin)\w*intrin\.h>")
_PASTED = re.compile(r"\b_mm\w*\s*##")
_NAME = re.compile(r"\b_\w+")
_EMPTY = re.compile(
    r"#pragma GCC push_options\n+(?:#pragma GCC target ?\([^\n]*\n+)*#pragma GCC pop_options\n+"
)


def may_be_cut(text: str) -> bool:
    """Whether a unit includes the header, and names by itself what it uses of it."""
    found = INCLUDE in text
    return found and not _OTHER_HEADERS.search(text) and not _PASTED.search(text)


@dataclass(frozen=True)
class Piece:
    """Some of the header's text, and what it defines: a function or a macro; empty for what stays
    in any case.
    """

    text: str
    name: str = ""


@dataclass(frozen=True)
class Header:
    """The compiler's own header for a set of options. ``pieces``: all of it, in order.
    ``meanings``: the text of the function or macro of a name; of a macro that is defined again, all
    of its texts.
    """

    pieces: tuple[Piece, ...]
    meanings: Mapping[str, str]


class Headers:
    """The last few headers that were asked for: a process compiles for few processors, and each
    takes about 10 MB. May be used from several threads.
    """

    def __init__(self, most: int = 4) -> None:
        self._most = most
        self._headers: OrderedDict[tuple[str, ...], Header] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[str, ...]) -> Header | None:
        with self._lock:
            if key in self._headers:
                self._headers.move_to_end(key)
            return self._headers.get(key)

    def put(self, key: tuple[str, ...], header: Header) -> None:
        """The one that was asked for least lately may be dropped for it."""
        with self._lock:
            self._headers[key] = header
            if len(self._headers) > self._most:
                self._headers.popitem(last=False)


def header(preprocessed: str) -> Header | None:
    """What the preprocessor makes of SOURCE, in pieces; None if that is no such header."""
    start = preprocessed.find(_BEGIN)
    if start < 0:
        return None
    pieces: list[Piece] = []
    at = start
    for found in _DEFINED.finditer(preprocessed, start):
        pieces += [Piece(preprocessed[at : found.start()]), _piece(found)]
        at = found.end()
    pieces.append(Piece(preprocessed[at:]))
    before = map(_piece, _DEFINED.finditer(preprocessed, 0, start))
    meanings: dict[str, str] = {}
    for piece in (*before, *pieces):
        if piece.name:
            meanings[piece.name] = meanings.get(piece.name, "") + piece.text
    return Header(tuple(pieces), meanings)


def cut(whole: Header, texts: Iterable[str]) -> str:
    """A header with what these units use of it."""
    needed = _closure({n for t in texts for n in _NAME.findall(t)}, whole.meanings)
    kept = "".join(p.text for p in whole.pieces if not p.name or p.name in needed)
    return "#include <stddef.h>\n#include <stdint.h>\n" + _without_empty(kept)


def _piece(found: re.Match[str]) -> Piece:
    """A macro; or a function, whose name is the word in front of its parameters, which are the last
    parentheses before the body.
    """
    words = found[0].partition("{")[0].rpartition("(")[0].split()
    return Piece(found[0], found["macro"] or (words[-1] if words else ""))


def _closure(names: Iterable[str], meanings: Mapping[str, str]) -> set[str]:
    """These names, and all that what they stand for names: of thousands of functions the texts of
    those alone are searched.
    """
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _NAME.findall(meanings.get(name, ""))
    return found


def _without_empty(text: str) -> str:
    """Without pairs of pragmas that nothing stands between."""
    before = ""
    while before != text:
        before, text = text, _EMPTY.sub("", text)
    return text


def preprocessing(command: Sequence[str], flags: Sequence[str], source: str, to: str) -> list[str]:
    """The words that preprocess the file ``source``."""
    return [*command, *flags, "-E", "-dD", "-P", source, "-o", to]
