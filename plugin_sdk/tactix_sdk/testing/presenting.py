"""Presenters: pictures of what they know, that run nothing, load nothing and trust no name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from tactix.contracts.presenter import Presenter
from tactix.run.runtime import Runtime
from tactix_sdk.testing import small_plan
from tactix_sdk.testing.looking import check_parts
from tactix_sdk.testing.report import check
from tactix_sdk.testing.subject import Subject

HOSTILE = "</svg><script>alert(1)</script><img src=x onerror='alert(2)'>"
_RUNS = re.compile(r"<script|<iframe|<object|<embed|javascript:", re.IGNORECASE)
_LOADS = re.compile(r"""(?:src|href)\s*=|url\(|@import|<link""", re.IGNORECASE)


@check("presenter")
def presenter(subject: Subject) -> str:
    """Presenters draw what they know as HTML without scripts, load nothing, and escape names."""
    looks = (_strange, _drawn, _escaped)
    return check_parts("presenter", subject, "presenters", subject.objects("presenters"), looks)


def _strange(subject: Subject, one: Presenter) -> Iterator[str]:
    """Things that it cannot know are shown to it."""
    for thing in (None, 3, "text", object()):
        if one.html(thing) is not None:
            yield f"it draws {thing!r}: give None for what it does not know"


def _subjects(subject: Subject, name: str) -> Iterator[object]:
    """An engine and a network of that name."""
    plan = replace(small_plan.plan(subject.session), name=name)
    runtime = Runtime(session=subject.session, max_threads=1, on_untrusted="allow")
    yield runtime.load(plan)
    network = small_plan.network(subject.session)
    network.name = name
    yield network


def _drawn(subject: Subject, one: Presenter) -> Iterator[str]:
    """An engine and a network are shown to it."""
    for thing in _subjects(subject, "small"):
        found: object = one.html(thing)
        if found is None:
            continue
        if not isinstance(found, str) or not found:
            yield f"of {type(thing).__name__} it gives {found!r:.60}: give HTML, or None"
            continue
        if _RUNS.search(found):
            yield f"its picture of {type(thing).__name__} has a script"
        if _LOADS.search(found):
            yield f"its picture of {type(thing).__name__} loads something"


def _escaped(subject: Subject, one: Presenter) -> Iterator[str]:
    """An engine and a network with names that are HTML are shown to it."""
    for thing in _subjects(subject, HOSTILE):
        if re.search(r"<script|<img", one.html(thing) or ""):
            yield f"in its picture of {type(thing).__name__} a name is HTML: escape names"
