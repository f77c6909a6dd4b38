"""Regular expressions in RE2's syntax for Python's ``re``: what only one of them has is translated
or refused.

Source of the syntax: RE2's documentation. There, classes such as ``\\d`` and ``[:alpha:]`` are
ASCII.
"""

from __future__ import annotations

import functools
import re
import string

from tactix.base.errors import InvalidArgument
from tactix_ops.layers.text_automaton import Automaton

_POSIX = {
    "alnum": string.ascii_letters + string.digits, "alpha": string.ascii_letters, "blank": "\t ",
    "ascii": "".join(map(chr, range(128))), "cntrl": "".join(map(chr, (*range(32), 127))),
    "digit": string.digits, "graph": "".join(map(chr, range(33, 127))),
    "lower": string.ascii_lowercase, "print": "".join(map(chr, range(32, 127))),
    "punct": string.punctuation, "space": "\t\n\v\f\r ", "upper": string.ascii_uppercase,
    "word": string.ascii_letters + string.digits + "_", "xdigit": string.hexdigits,
}  # fmt: skip
_LETTERS = {"d": _POSIX["digit"], "w": _POSIX["word"], "s": "\t\n\f\r "}

_TOKEN = re.compile(
    r"""(?P<quoted>\\Q(?P<text>.*?)(?:\\E|\Z))
      | (?P<point>\\x\{(?P<hex>[0-9A-Fa-f]{1,6})\})
      | (?P<escape>\\(?P<letter>.))
      | (?P<posix>\[:(?P<negated>\^?)(?P<name>[a-z]+):\])
      | (?P<possessive>(?:[*+?]|\{\d+(?:,\d*)?\})\+)
      | (?P<brace>\{,)
      | (?P<named>\(\?<(?=[A-Za-z_]))
      | (?P<flags>\(\?(?P<on>[A-Za-z]*)(?P<off>(?:-[A-Za-z]*)?)(?P<close>[:)]))
      | (?P<special>\(\?(?!P<))
      | (?P<open>\[\^?\]?)
      | (?P<plain>.)""",
    re.VERBOSE | re.DOTALL,
)
_REFUSED = frozenset("CpPuUNZgX") | frozenset("123456789")
"""Letters after a backslash that RE2 does not have, or that Python does not."""


@functools.lru_cache(64)
def compiled(pattern: str) -> Automaton:
    """What matches it. Raises InvalidArgument for one that RE2 or Python does not take."""
    try:
        text = translated(pattern)
        re.compile(text)
        return Automaton(text)
    except (re.error, OverflowError, RecursionError) as e:
        raise InvalidArgument(
            f"the pattern {pattern!r} does not compile", why=str(e), do="Write it as RE2 has it"
        ) from e


def translated(pattern: str) -> str:
    """RE2's pattern as one of Python that means the same. Raises InvalidArgument."""
    lines = any("m" in (t["on"] or "") for t in _TOKEN.finditer(pattern))
    out: list[str] = []
    in_class, place = False, 0
    while place < len(pattern):
        token = _TOKEN.match(pattern, place)
        assert token is not None  # every character is a token
        if not in_class and token.lastgroup == "open":
            text, place, in_class = token[0], token.end(), True
        elif in_class and token.lastgroup not in ("point", "escape", "posix", "quoted"):
            text, place, in_class = _bracketed(pattern, place), place + 1, pattern[place] != "]"
        else:
            text, place = _written(token, in_class, lines), token.end()
        out.append(text)
    return "".join(out)


def _bracketed(pattern: str, place: int) -> str:
    """A character in brackets; Python reserves some."""
    c = pattern[place]
    return "\\" + c if c in "[&~|" or pattern[place - 1 : place + 1] == "--" else c


def _written(token: re.Match[str], in_class: bool, lines: bool) -> str:
    kind, text = token.lastgroup, token[0]
    if kind == "quoted" and not in_class:
        return re.escape(token["text"])
    if kind == "point":
        return re.escape(chr(min(int(token["hex"], 16), 0x10FFFF)))
    if kind == "escape":
        return _escape(token["letter"], in_class)
    if kind == "posix":
        return _set(_named(token), bool(token["negated"])) if in_class else text
    if kind == "flags":
        return _flags(token)
    if kind in ("quoted", "possessive", "special"):
        raise _refused(text)
    if kind == "plain" and text == "$" and not lines:
        return r"\Z"
    return {"brace": r"\{,", "named": "(?P<"}.get(kind or "", text)


def _escape(letter: str, in_class: bool) -> str:
    if letter == "z" and not in_class:
        return r"\Z"
    if letter in "bB" and not in_class:
        return r"(?a:\b)" if letter == "b" else r"(?!(?a:\b))"
    if letter.lower() in _LETTERS:
        inside = _set(_LETTERS[letter.lower()], letter.isupper())
        return inside if in_class else f"[{inside}]"
    if letter in _REFUSED or letter in "bBAz" * in_class or not letter.isascii():
        raise _refused("\\" + letter)
    return "\\" + letter


def _named(token: re.Match[str]) -> str:
    if token["name"] not in _POSIX:
        raise _refused(token[0])
    return _POSIX[token["name"]]


def _set(members: str, negated: bool) -> str:
    """ASCII characters, or all others, as they stand in brackets."""
    if not negated:
        return "".join(f"\\x{ord(c):02x}" for c in members)
    return "".join(f"\\x{i:02x}" for i in range(128) if chr(i) not in members) + "\x80-\U0010ffff"


def _flags(token: re.Match[str]) -> str:
    """``U`` swaps greedy and lazy, which changes nothing for a match of the whole."""
    on, off = token["on"].replace("U", ""), token["off"].replace("U", "")
    if not set(on + off) <= set("ims-"):
        raise _refused(token[0])
    end = token["close"]
    if end == ")" and len(off) > 1:
        raise _refused(token[0])
    switched = on + (off if len(off) > 1 else "")
    return "" if end == ")" and not switched else f"(?{switched}{end}"


def _refused(text: str) -> InvalidArgument:
    return InvalidArgument(
        f"{text!r} in a pattern is not supported", do="Use what both RE2 and Python's re have"
    )
