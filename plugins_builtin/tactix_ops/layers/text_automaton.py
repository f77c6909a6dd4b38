"""Matching strings in time that grows with pattern times text, and no faster: sets of states, no
backtracking.

Thompson's simulation of a nondeterministic automaton ("Regular Expression Search Algorithm", 1968)
whose steps are remembered, as RE2 has it. The pattern is one of Python's ``re`` as ``text_pattern``
writes it; Python's ``re`` is asked about single characters, and about rows of one kind, alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from tactix.base.errors import InvalidArgument

MOST = 10_000
"""States of an automaton: a counted repetition has a copy of what it repeats for each time."""

TIMES = 1000
"""Of a counted repetition; RE2's own limit."""

REMEMBERED = 20_000
"""Steps."""

Test = Callable[[str], bool]
Place = Callable[[str, str], bool]
"""Whether an assertion holds between two characters, empty at the ends."""


@dataclass(frozen=True)
class One:
    """A character."""

    test: Test


@dataclass(frozen=True)
class Between:
    """An assertion."""

    holds: Place


@dataclass(frozen=True)
class Row:
    """One after the other."""

    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Either:
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Repeated:
    """``most``: None for any number."""

    part: Part
    least: int
    most: int | None


Part: TypeAlias = "One | Between | Row | Either | Repeated"


# -- reading -------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""(?P<border>\(\?a:\\b\))
      | (?P<inside>\(\?!\(\?a:\\b\)\))
      | (?P<start>\\A) | (?P<end>\\Z)
      | (?P<atom>\\x[0-9A-Fa-f]{2} | \\0[0-7]{0,2} | \\. | \[\^?\]?(?:\\.|[^\]\\])*\])
      | (?P<times>\{(?P<least>\d+)(?P<open>,)?(?P<most>\d+)?\}\??)
      | (?P<often>[*+?]\??)
      | (?P<switch>\(\?(?P<all>[ims]+)\))
      | (?P<group>\((?:\?P<\w+>|\?(?P<flags>[ims-]*):)?)
      | (?P<close>\)) | (?P<bar>\|) | (?P<caret>\^) | (?P<dollar>\$)
      | (?P<plain>.)""",
    re.VERBOSE | re.DOTALL,
)
_OFTEN = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}


def _is_word(c: str) -> bool:
    return c.isascii() and (c.isalnum() or c == "_")


def _border(before: str, after: str) -> bool:
    return _is_word(before) != _is_word(after)


class _Reader:
    """A pattern that Python's ``re`` compiles, as parts. ``_flags``: those in force."""

    def __init__(self, pattern: str) -> None:
        self._tokens = list(_tokens(pattern))
        self._place = 0

    def read(self, flags: int = 0) -> Part:
        """Up to the end, or to what closes a group."""
        branches: list[Part] = []
        row: list[Part] = []
        while (token := self._next()) is not None and token.lastgroup != "close":
            kind = token.lastgroup or ""
            if kind == "bar":
                branches.append(Row(tuple(row)))
                row = []
            elif kind in ("times", "often"):
                row.append(_repeated(row.pop(), token))
            elif kind == "switch":
                flags = _switched(flags, token["all"])
            elif kind == "group":
                row.append(self.read(_switched(flags, token["flags"] or "")))
            else:
                row.append(_single(token, flags))
        return Either((*branches, Row(tuple(row)))) if branches else Row(tuple(row))

    def _next(self) -> re.Match[str] | None:
        self._place += 1
        return self._tokens[self._place - 1] if self._place <= len(self._tokens) else None


def _tokens(pattern: str) -> Iterator[re.Match[str]]:
    place = 0
    while place < len(pattern):
        token = _TOKEN.match(pattern, place)
        assert token is not None  # every character is a token
        yield token
        place = token.end()


def _switched(flags: int, text: str) -> int:
    on, _, off = text.partition("-")
    for c in on:
        flags |= _FLAGS[c]
    for c in off:
        flags &= ~_FLAGS[c]
    return flags


def _repeated(part: Part, token: re.Match[str]) -> Part:
    if token["often"]:
        return Repeated(part, *_OFTEN[token["often"][0]])
    least = int(token["least"])
    most = int(token["most"]) if token["most"] else None if token["open"] else least
    if max(least, most or 0) > TIMES:
        raise InvalidArgument(
            f"{token[0]} in a pattern",
            why=f"at most {TIMES} times are taken",
            do="Write it shorter",
        )
    return Repeated(part, least, most)


def _single(token: re.Match[str], flags: int) -> Part:
    """A character or an assertion."""
    kind, lines = token.lastgroup or "", bool(flags & re.MULTILINE)
    places: dict[str, Place] = {
        "border": _border,
        "inside": lambda before, after: not _border(before, after),
        "start": lambda before, after: not before,
        "end": lambda before, after: not after,
        "caret": lambda before, after: not before or (lines and before == "\n"),
        "dollar": lambda before, after: not after or (lines and after == "\n"),
    }
    if kind in places:
        return Between(places[kind])
    found = re.compile(
        token[0] if kind == "atom" or token[0] == "." else re.escape(token[0]), flags
    )
    return One(lambda c: found.fullmatch(c) is not None)


# -- the automaton -------------------------------------------------------------------------------


@dataclass(frozen=True)
class State:
    """Goes on to ``to``: at once where ``holds`` lets it, or by a character ``test`` takes."""

    to: tuple[int, ...]
    test: Test | None = None
    holds: Place | None = None


def _size(part: Part) -> int:
    """States that it takes, or more than MOST."""
    if isinstance(part, Row | Either):
        return min(MOST + 1, 1 + sum(map(_size, part.parts)))
    if isinstance(part, Repeated):
        return min(MOST + 1, 1 + (_size(part.part) + 1) * max(1, part.least, part.most or 0))
    return 1


Groups: TypeAlias = tuple[frozenset[int], ...]
"""States by where the match that they are in began, the earliest first."""


@dataclass(frozen=True)
class Searched:
    """What a character makes of groups: the first that ``ended`` before it, and those left behind
    it, which were numbers ``kept``.
    """

    ended: int | None
    kept: tuple[int, ...]
    groups: Groups


def _is_run(part: Part) -> bool:
    """Whether it is characters of one kind in a row, of which Python's ``re`` finds the longest,
    too, and as fast as they can be looked at: what tokens are, as a rule.
    """
    while isinstance(part, Row) and len(part.parts) == 1:
        (part,) = part.parts
    return isinstance(part.part if isinstance(part, Repeated) else part, One)


class Automaton:
    """Of a pattern of Python's ``re`` that compiles. Raises InvalidArgument for one that takes too
    many states.
    """

    def __init__(self, pattern: str) -> None:
        part = _Reader(pattern).read()
        if (size := _size(part)) > MOST:
            raise InvalidArgument(
                f"the pattern {pattern[:60]!r} is too large",
                why=f"it takes more than {size - 1} states",
            )
        self._states: list[State] = [State(())]  # the first one is the end
        self._start = frozenset({self._added(part, 0)})
        self._known: dict[tuple[frozenset[int], str, str], frozenset[int]] = {}
        self._searched: dict[tuple[Groups, str, str], Searched] = {}
        greedy = _is_run(part) and not pattern.endswith("?")
        self._run = re.compile(pattern) if greedy else None

    def matches(self, text: str) -> bool:
        """Whether it matches all of the text."""
        now, before = self._start, ""
        for c in text:
            if not now:
                return False
            now = self._step(now, before, c)
            before = c
        return 0 in self._reached(now, before, "")

    def find(self, text: str, start: int = 0) -> tuple[int, int] | None:
        """Where the first match from ``start`` on begins, and where the longest from there ends."""
        if self._run is not None:
            run = self._run.search(text, start)
            return run.span() if run else None
        groups: Groups = ()
        starts: list[int] = []
        found: tuple[int, int] | None = None
        before = text[start - 1 : start]
        for place in range(start, len(text) + 1):
            if found is None:
                groups, starts = (*groups, self._start), [*starts, place]
            elif not groups:
                break
            after = text[place : place + 1]
            step = self._search(groups, before, after)
            if step.ended is not None:
                found = starts[step.ended], place
            groups, starts, before = step.groups, [starts[k] for k in step.kept], after
        return found

    def _search(self, groups: Groups, before: str, after: str) -> Searched:
        """A character on, from states that stand in the order of where their matches began."""
        key = groups, before, after
        if key not in self._searched:
            if len(self._searched) >= REMEMBERED:
                self._searched.clear()
            self._searched[key] = self._moved(groups, before, after)
        return self._searched[key]

    def _moved(self, groups: Groups, before: str, after: str) -> Searched:
        """A state that two groups reach is the earlier one's; what began behind an end is over."""
        ended: int | None = None
        kept: dict[int, frozenset[int]] = {}
        taken: set[int] = set()
        for k, group in enumerate(groups):
            if ended is None:
                ended = k if 0 in self._reached(group, before, after) else None
                if left := (self._step(group, before, after) if after else frozenset()) - taken:
                    kept[k] = left
                    taken |= left
        return Searched(ended, tuple(kept), tuple(kept.values()))

    def _step(self, now: frozenset[int], before: str, c: str) -> frozenset[int]:
        key = now, before, c
        if key not in self._known:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            passed = (self._states[i] for i in self._reached(now, before, c))
            self._known[key] = frozenset(
                s.to[0] for s in passed if s.test is not None and s.test(c)
            )
        return self._known[key]

    def _reached(self, now: frozenset[int], before: str, after: str) -> set[int]:
        """What can be had without a character, there."""
        seen: set[int] = set()
        stack = list(now)
        while stack:
            i = stack.pop()
            if i not in seen:
                seen.add(i)
                s = self._states[i]
                if s.test is None and (s.holds is None or s.holds(before, after)):
                    stack += s.to
        return seen

    def _add(self, state: State) -> int:
        self._states.append(state)
        return len(self._states) - 1

    def _added(self, part: Part, to: int) -> int:
        """Where the part begins, behind which it goes on at ``to``."""
        if isinstance(part, One):
            return self._add(State((to,), test=part.test))
        if isinstance(part, Between):
            return self._add(State((to,), holds=part.holds))
        if isinstance(part, Row):
            for p in reversed(part.parts):
                to = self._added(p, to)
            return to
        if isinstance(part, Either):
            return self._add(State(tuple(self._added(p, to) for p in part.parts)))
        return self._again(part, to)

    def _again(self, part: Repeated, to: int) -> int:
        if part.most is None:
            loop = self._add(State(()))
            self._states[loop] = State((self._added(part.part, loop), to))
            to = loop
        for _ in range((part.most or 0) - part.least):
            to = self._add(State((self._added(part.part, to), to)))
        for _ in range(part.least):
            to = self._added(part.part, to)
        return to
