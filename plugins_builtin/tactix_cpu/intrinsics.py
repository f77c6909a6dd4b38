"""What kernels use of ``<immintrin.h>``, in place of all of it.

GCC 12 takes 0.15 s to read the 6,400 functions of that header for each translation unit, and 0.6 s
to precompile it for a set of options; kernels use less than a hundred of these. So the compiler's
own header is preprocessed once, and what nobody names is left out: its functions are ``extern
inline`` ones, of which nothing comes out unless they are called, so objects are the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

INCLUDE = "#include <immintrin.h>\n"
SOURCE = f"#include <stddef.h>\n#include <stdint.h>\n#define _MM_MALLOC_H_INCLUDED\n{INCLUDE}"
"""What is preprocessed, with ``-E -dD -P``: without malloc, whose header brings others."""

_BEGIN = "#define _IMMINTRIN_H_INCLUDED"
_FUNCTION = re.compile(r"^([ \t]*)extern __inline.*?^\1}\n", re.M | re.S)
_OTHER_HEADERS = re.compile(r"#\s*include\s*<(?!immintrin)\w*intrin\.h>")
_PASTED = re.compile(r"\b_mm\w*\s*##")
_MACRO = re.compile(r"^#define (\w+)(.*)\n", re.M)
_NAME = re.compile(r"\b_\w+")
_EMPTY = re.compile(
    r"#pragma GCC push_options\n+(?:#pragma GCC target ?\([^\n]*\n+)*#pragma GCC pop_options\n+"
)


def may_be_cut(text: str) -> bool:
    """Whether a unit includes the header, and names by itself what it uses of it."""
    found = INCLUDE in text
    return found and not _OTHER_HEADERS.search(text) and not _PASTED.search(text)


def cut(preprocessed: str, texts: Iterable[str]) -> str:
    """A header with what these units use, of what the preprocessor makes of SOURCE; empty if that
    is no such header.
    """
    start = preprocessed.find(_BEGIN)
    if start < 0:
        return ""
    own = preprocessed[start:]
    functions = [(_name(f[0]), f.span()) for f in _FUNCTION.finditer(own)]
    bodies: dict[str, list[str]] = {}
    for name, (begin, end) in functions:
        bodies.setdefault(name, []).append(own[begin:end])
    for name, text in _MACRO.findall(preprocessed):
        bodies.setdefault(name, []).append(text)
    needed = _closure({n for t in texts for n in _NAME.findall(t)}, bodies)
    kept, at = [], 0
    for begin, end in (span for name, span in functions if name not in needed):
        kept.append(own[at:begin])
        at = end
    text = "".join((*kept, own[at:]))
    text = _MACRO.sub(lambda m: m[0] if m[1] in needed else "", text)
    return "#include <stddef.h>\n#include <stdint.h>\n" + _without_empty(text)


def _name(function: str) -> str:
    """The word in front of the parameters, which are the last parentheses before the body."""
    words = function.partition("{")[0].rpartition("(")[0].split()
    return words[-1] if words else ""


def _closure(names: Iterable[str], bodies: dict[str, list[str]]) -> set[str]:
    """These names, and all that what they stand for names."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [n for text in bodies.get(name, ()) for n in _NAME.findall(text)]
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
