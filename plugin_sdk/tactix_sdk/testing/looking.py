"""Parts of a pack, each looked at in several ways; all that is wrong is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from tactix.base.errors import TactixError
from tactix_sdk.testing.report import (
    Broken,
    NotHere,
    NothingToRun,
    key_of,
    looking_at,
    raised,
    together,
)
from tactix_sdk.testing.subject import Subject

T = TypeVar("T")
Look = Callable[[Subject, T], Iterator[str]]
"""Gives what is wrong with a part of a pack, in words; what it raises is wrong, too, but for
NotHere: what the part is over is not on this machine, and the looks that follow are left out.
"""


def check_parts(
    check: str, subject: Subject, what: str, found: Iterable[T], looks: Sequence[Look[T]]
) -> str:
    """Look at every part; how many there are, and which could not be looked at in every way.

    ``what``: the noun of the parts. Raises Broken for all that is wrong, NothingToRun without
    parts, NotHere if no part could be looked at.
    """
    parts, broken, away = list(found), list[str](), list[str]()
    if not parts:
        raise NothingToRun(f"the pack has no {what}")
    for part in parts:
        looking_at(part)
        for look in looks:
            try:
                broken += [f"{key_of(part)}: {w}" for w in _seen(look, subject, part)]
            except NotHere as e:
                away.append(f"{key_of(part)} ({e})")
                break
    together([Broken(words, script(check, subject)) for words in dict.fromkeys(broken)])
    if len(away) == len(parts):
        raise NotHere("; ".join(away))
    return f"{len(parts)} {what}" + (f"; not here: {', '.join(away)}" if away else "")


def _seen(look: Look[T], subject: Subject, part: T) -> list[str]:
    """What one look finds. Raises NotHere, after what was found before that."""
    out = list[str]()
    try:
        out.extend(look(subject, part))
    except NotHere:
        if not out:
            raise
    except Exception as e:
        words = " ".join((look.__doc__ or "").split()).rstrip(".")
        out.append(f"{words}: {raised(e)}")
    return out


def wrong_type(e: Exception, about: str, *kinds: type[Exception]) -> Iterator[str]:
    """What is wrong with an error that has left a part's method ``about``; nothing if it is one of
    ``kinds``, by default any of tactix's.
    """
    wanted = kinds or (TactixError,)
    if not isinstance(e, wanted):
        names = " or ".join(k.__name__ for k in wanted)
        yield f"{about} raises {type(e).__name__} ({e}), not {names}"


def script(check: str, subject: Subject) -> str:
    """Python that runs one check in its own process."""
    return f"""from tactix_sdk.testing import CHECKS, Subject
print(CHECKS[{check!r}].run(Subject({subject.dist!r})))
"""
