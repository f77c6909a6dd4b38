"""Checks by name, and what became of each."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tactix.base.errors import InvalidArgument, TactixError
from tactix_sdk.testing.subject import Subject

PASSED, FAILED, SKIPPED, NOTHING = "passed", "failed", "skipped", "nothing to run"
STATES = (PASSED, FAILED, SKIPPED, NOTHING)
T = TypeVar("T")
WATCHERS: list[Callable[[str], None]] = []
"""Told the key of each part of a pack before it is looked at: what ends the process has a name
then.
"""


class Broken(AssertionError):
    """What a check found; ``script``: Python that shows it alone."""

    def __init__(self, what: str, script: str = "") -> None:
        super().__init__(what)
        self.script = script


class NothingToRun(Exception):
    """Why a check has nothing to do: the pack has no such part, or none that it could look at."""


class NotHere(Exception):
    """Why a check was skipped: what the pack's parts are over is not on this machine."""


@dataclass(frozen=True)
class Check:
    """``run(subject)`` says what it looked at, or raises Broken, NothingToRun or NotHere."""

    name: str
    about: str
    run: Callable[[Subject], str]


@dataclass(frozen=True)
class Outcome:
    """``state``: one of STATES. ``said``: what was looked at, what was found, or why not."""

    check: Check
    state: str
    said: str
    script: str = ""


CHECKS: dict[str, Check] = {}
AREAS = (
    "static", "meaning", "primitives", "rewriting", "sources", "bids", "compiling", "running",
    "machines", "memory", "ranges", "staging", "flavouring", "trusting", "presenting", "commands",
    "shipping",
)  # fmt: skip
"""Modules with checks, in the order in which these run: what fails first is often why others do."""


def ordered() -> list[str]:
    """Names of all checks."""
    return sorted(CHECKS, key=lambda name: AREAS.index(area_of(CHECKS[name])))


def tried(found: Sequence[Outcome]) -> bool:
    """Whether something of a pack was checked: more than its names, if anything was skipped."""
    passed = {area_of(o.check) for o in found if o.state == PASSED}
    skipped = any(o.state == SKIPPED for o in found)
    return bool(passed - {"static"} if skipped else passed)


def area_of(one: Check) -> str:
    """Of AREAS."""
    return one.run.__module__.rpartition(".")[2]


def check(name: str) -> Callable[[Callable[[Subject], str]], Callable[[Subject], str]]:
    """Enter a function in CHECKS; its docstring's first paragraph says what must hold."""

    def wrap(function: Callable[[Subject], str]) -> Callable[[Subject], str]:
        CHECKS[name] = Check(
            name, " ".join((function.__doc__ or "").partition("\n\n")[0].split()), function
        )
        return function

    return wrap


def counted(number: int, what: str, more: str = "") -> str:
    """What a check looked at, in words. Raises NothingToRun for nothing: that is no success."""
    if not number:
        raise NothingToRun(f"no {what}{more}")
    return f"{number} {what}{more}"


def for_each(found: Iterable[T], look: Callable[[T], int]) -> int:
    """The sum of what ``look`` gives for each part, which has a ``key``.

    Raises Broken with all that is broken, not the first alone; errors of the pack count as a part's
    failure.
    """
    total, broken = 0, list[Broken]()
    for one in found:
        looking_at(one)
        try:
            total += look(one)
        except (NothingToRun, NotHere):
            raise
        except Broken as e:
            broken.append(e)
        except Exception as e:
            broken.append(Broken(f"{key_of(one)}: {raised(e)}"))
    together(broken)
    return total


def key_of(one: object) -> str:
    """The key of a part; empty if it has none."""
    return str(getattr(one, "key", ""))


def raised(error: Exception) -> str:
    """An error of a pack in words; if it is not one of tactix's, with where it was raised."""
    where = (
        "" if isinstance(error, TactixError) else f"\n{''.join(traceback.format_exception(error))}"
    )
    return f"{type(error).__name__}: {error}{where}"


def looking_at(one: object) -> None:
    """Tell who watches."""
    for watcher in WATCHERS:
        watcher(key_of(one))


def together(broken: Sequence[Broken]) -> None:
    """Raises one Broken for all of them, with the first script."""
    if broken:
        scripts = [b.script for b in broken if b.script]
        raise Broken("\n".join(map(str, broken)), scripts[0] if scripts else "")


def outcome(one: Check, subject: Subject) -> Outcome:
    """Run one check here. Errors of the pack count as its failures."""
    try:
        return Outcome(one, PASSED, one.run(subject))
    except NothingToRun as e:
        return Outcome(one, NOTHING, str(e))
    except NotHere as e:
        return Outcome(one, SKIPPED, str(e))
    except Broken as e:
        return Outcome(one, FAILED, str(e), e.script)
    except Exception as e:
        return Outcome(one, FAILED, raised(e))


def outcomes(subject: Subject, names: Sequence[str] = ()) -> Iterator[Outcome]:
    """Run the checks of those names, by default all, each in a process of its own.

    Raises InvalidArgument for a name that is none.
    """
    if unknown := [n for n in names if n not in CHECKS]:
        raise InvalidArgument(f"no check {unknown[0]!r}", do=f"There are: {', '.join(ordered())}")
    return _in_order(subject, names or ordered())


def _in_order(subject: Subject, names: Sequence[str]) -> Iterator[Outcome]:
    """Where the pack cannot be loaded, one check says so, and what needs it has nothing to run."""
    from tactix_sdk.testing.apart import CheckServer

    server, broken = CheckServer(), ""
    try:
        for name in names:
            if broken and name != "import-light":
                yield Outcome(CHECKS[name], NOTHING, broken)
                continue
            got, loaded = server.outcome(name, subject)
            yield got
            if not loaded:
                broken = f"the pack cannot be loaded: see {name}"
    finally:
        server.close()


def loads(subject: Subject) -> bool:
    """Whether nothing of the pack fails when it is found."""
    try:
        for group in subject.groups:
            len(subject.fresh(group).layers)
    except TactixError:
        return False
    return True


def child(code: str, *arguments: str, **environment: str) -> str:
    """What code prints in a process of its own. Raises Broken with the code where it fails."""
    import os
    import subprocess
    import sys

    paths = os.pathsep.join(p for p in sys.path if p)
    env = {**os.environ, "PYTHONPATH": paths, **environment}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode:
        last = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise Broken(f"a process of its own failed: {last}", code)
    return done.stdout
